//! The log of a process. This crate and its parts only tell what happens; a program decides whether anybody listens.

use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::sync::Mutex;

use rushmem_base::host_name;
use tracing_subscriber::EnvFilter;

use crate::config::{Config, Error};

/// Has the log written as the settings `log` and `log_file` say, for the rest of this process's life.
///
/// The filter is a list of levels and parts: `info`, or `warn,rushmem_bootstrap=debug` for one part alone. Parts are
/// crates, such as `rushmem_bootstrap` (start), or modules of this one, such as `rushmem::queues` (connections), `rushmem::nics`
/// and `rushmem::provider` (NICs).
///
/// # Errors
/// A filter or a file that cannot be used, or a log that the program has set up before.
pub fn init_log(config: &Config) -> Result<(), Error> {
    let invalid = |key: &str, value: &str, why: String, accepts: &str| Error::Invalid {
        place: format!("RUSHMEM_{}", key.to_uppercase()),
        value: value.into(),
        why,
        accepts: accepts.into(),
    };
    let filter = EnvFilter::try_new(&config.log).map_err(|why| {
        let accepts = "a level, or PART=LEVEL, or a list of them separated by commas";
        invalid("log", &config.log, format!("it is no log filter: {why}"), accepts)
    })?;
    let log = tracing_subscriber::fmt().with_env_filter(filter);
    let set = if config.log_file.is_empty() {
        log.with_writer(std::io::stderr).without_time().try_init()
    } else {
        let unusable = |why| {
            invalid(
                "log_file",
                &config.log_file,
                why,
                "a path, with %h for the host, %p for the process, %% for %",
            )
        };
        let path = expand(&config.log_file).map_err(unusable)?;
        let file = open(&path).map_err(|error| unusable(format!("{}: {error}", path.display())))?;
        log.with_ansi(false).with_writer(Mutex::new(file)).try_init()
    };
    set.map_err(|_| Error::LogTaken)
}

/// Lines are added, each in one piece: several processes may share a file.
fn open(path: &PathBuf) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// The path that a pattern means for this process.
fn expand(pattern: &str) -> Result<PathBuf, String> {
    let mut path = String::new();
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        match (c, if c == '%' { rest.next() } else { None }) {
            ('%', Some('h')) => path += &host_name(),
            ('%', Some('p')) => path += &std::process::id().to_string(),
            ('%', Some('%')) => path.push('%'),
            ('%', Some(other)) => return Err(format!("%{other} stands for nothing")),
            ('%', None) => return Err("nothing follows its last %".into()),
            (c, _) => path.push(c),
        }
    }
    Ok(path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_become_paths() {
        let wanted = format!("/tmp/a-{}.{}.100%.log", host_name(), std::process::id());
        assert_eq!(expand("/tmp/a-%h.%p.100%%.log").unwrap(), PathBuf::from(wanted));
        assert_eq!(expand("plain").unwrap(), PathBuf::from("plain"));
        assert!(expand("a%x").unwrap_err().contains("%x"));
        assert!(expand("a%").unwrap_err().contains("last %"));
    }
}
