//! Writes the log of a process. The crates of the runtime emit `tracing` events. A job writes them to standard error or
//! a file, unless the program has set its own subscriber.

use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::sync::Mutex;

use rushmem_base::host_name;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{Config, Error};

/// Log target of the line that summarizes a job's NICs. The filter `warn` lets it through.
pub(crate) const SUMMARY: &str = "rushmem::summary";

/// Starts the log of this process. If a program does not call this, [`Job::run`](crate::Job::run) starts the log.
///
/// The settings `log` (a filter) and `log_file` (a path) configure it.
///
/// The filter is a list of levels and modules, for example `info`, or `warn,rushmem_bootstrap=debug` for one module.
/// Modules are crates, such as `rushmem_bootstrap` (start of a job), `rushmem_memory` and `rushmem_fabric`, or their
/// modules, such as `rushmem_fabric::queues` (connections) and `rushmem_fabric::nics`. Without a path, the log goes to
/// standard error. In a path, `%h` is the host name, `%p` the process ID, and `%%` a percent sign.
///
/// # Errors
/// - [`Error::Invalid`] if the filter is malformed or the file cannot be opened.
/// - [`Error::LogTaken`] if the program has already set up a log.
pub fn init_log(config: &Config) -> Result<(), Error> {
    let invalid = |key: &str, value: &str, why: String, accepts: &str| Error::Invalid {
        place: format!("RUSHMEM_{}", key.to_uppercase()),
        value: value.into(),
        why,
        accepts: accepts.into(),
    };
    let mut filter = parse(&config.log).map_err(|why| {
        let accepts = "a level, or PART=LEVEL, or a list of them separated by commas";
        invalid("log", &config.log, format!("it is not a log filter: {why}"), accepts)
    })?;
    // The line about the job's NICs is not a warning, but users of the default filter expect it.
    if config.log.trim() == "warn" {
        filter = filter.with_target(SUMMARY, LevelFilter::INFO);
    }
    // The launcher compares lines of several processes, so never use colors, no matter which features other crates
    // enable.
    let log = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_ansi(false);
    let set = if config.log_file.is_empty() {
        log.with_writer(std::io::stderr).without_time().finish().with(filter).try_init()
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
        log.with_writer(Mutex::new(file)).finish().with(filter).try_init()
    };
    set.map_err(|_| Error::LogTaken)
}

/// Starts the log of this process as [`init_log`] does, unless the program has set a subscriber.
///
/// # Errors
/// - [`Error::Invalid`] if the filter is malformed or the file cannot be opened.
pub(crate) fn init_if_unset(config: &Config) -> Result<(), Error> {
    if tracing::dispatcher::has_been_set() {
        return Ok(());
    }
    match init_log(config) {
        // Another thread came first, or the program uses a logger of the crate `log`.
        Err(Error::LogTaken) => Ok(()),
        outcome => outcome,
    }
}

/// Parses a log filter: a list of levels and modules. Whitespace is ignored.
fn parse(filter: &str) -> Result<Targets, String> {
    let filter: String = filter.split_whitespace().collect();
    match filter.split(',').find(|part| part.starts_with('=') || part.ends_with('=')) {
        Some(part) => Err(format!("{part:?} lacks a part or a level")),
        None => filter.parse().map_err(|why: ParseError| why.to_string()),
    }
}

/// Opens the log file for appending. Each line is a single write, so several processes can share a file.
fn open(path: &PathBuf) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Expands `%h`, `%p` and `%%` in the path of the log file.
fn expand(pattern: &str) -> Result<PathBuf, String> {
    let mut path = String::new();
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        match (c, if c == '%' { rest.next() } else { None }) {
            ('%', Some('h')) => path += &host_name(),
            ('%', Some('p')) => path += &std::process::id().to_string(),
            ('%', Some('%')) => path.push('%'),
            ('%', Some(other)) => return Err(format!("%{other} is not defined")),
            ('%', None) => return Err("its last % is followed by nothing".into()),
            (c, _) => path.push(c),
        }
    }
    Ok(path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_parsed() {
        let filter = parse("warn, rushmem_bootstrap = debug").unwrap();
        assert!(filter.would_enable("rushmem_bootstrap::connect", &tracing::Level::DEBUG));
        assert!(!filter.would_enable("rushmem::queues", &tracing::Level::INFO));
        assert!(parse("").is_ok());
        assert!(parse("=,=").unwrap_err().contains("lacks"));
        assert!(parse("info,rushmem=").unwrap_err().contains("\"rushmem=\""));
        assert!(parse("rushmem=loud").is_err());
    }

    #[test]
    fn patterns_become_paths() {
        let wanted = format!("/tmp/a-{}.{}.100%.log", host_name(), std::process::id());
        assert_eq!(expand("/tmp/a-%h.%p.100%%.log").unwrap(), PathBuf::from(wanted));
        assert_eq!(expand("plain").unwrap(), PathBuf::from("plain"));
        assert!(expand("a%x").unwrap_err().contains("%x"));
        assert!(expand("a%").unwrap_err().contains("last %"));
    }
}
