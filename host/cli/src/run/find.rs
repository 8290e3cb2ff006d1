//! Search for the program to start.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Finds the path of the program.
///
/// A name with a slash is used as given. Other names are looked up in the directories of `path` (the variable PATH). Last come
/// `beside`, the directory of this command, and its subdirectory `examples`.
pub(super) fn find(program: &OsStr, path: Option<OsString>, beside: Option<&Path>) -> Result<PathBuf, Error> {
    let name = program.display();
    if program.is_empty() {
        return Err(Error::Usage("the program's name is empty".into()));
    }
    if program.as_encoded_bytes().contains(&b'/') {
        return match look(Path::new(program)) {
            Found::Program => Ok(program.into()),
            Found::Unusable(why) => Err(Error::Usage(format!("cannot run `{name}`: {why}"))),
            Found::Nothing => Err(Error::Usage(format!("cannot run `{name}`: no such file"))),
        };
    }
    let on_path = path.iter().flat_map(std::env::split_paths).filter(|dir| !dir.as_os_str().is_empty());
    let here = beside.iter().flat_map(|dir| [dir.to_path_buf(), dir.join("examples")]);
    let mut tried = Vec::new();
    let mut others = Vec::new();
    for directory in on_path.chain(here) {
        let candidate = directory.join(program);
        match look(&candidate) {
            Found::Program => return Ok(candidate),
            Found::Unusable(why) => others.push(format!("; {} exists, but {why}", candidate.display())),
            Found::Nothing => {}
        }
        tried.push(directory.display().to_string());
    }
    if let Found::Program = look(&Path::new(".").join(program)) {
        others.push(format!("; a program of that name is in this directory: write ./{name}"));
    }
    Err(Error::Usage(format!(
        "cannot find the program `{name}`; looked in {}{}",
        tried.join(", "),
        others.concat()
    )))
}

enum Found {
    Program,
    Unusable(&'static str),
    Nothing,
}

fn look(path: &Path) -> Found {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Found::Unusable("it is a directory"),
        Ok(meta) if meta.permissions().mode() & 0o111 == 0 => {
            Found::Unusable("it is not executable; run chmod +x on it")
        }
        Ok(_) => Found::Program,
        Err(_) => Found::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(path: &Path, mode: u32) {
        std::fs::write(path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn searches_path_then_own_directory() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let look_for = |name: &str| find(name.as_ref(), Some(first.path().into()), Some(second.path()));
        program(&second.path().join("a"), 0o755);
        assert_eq!(look_for("a").unwrap(), second.path().join("a"));
        program(&first.path().join("a"), 0o644);
        assert_eq!(look_for("a").unwrap(), second.path().join("a"));
        program(&first.path().join("a"), 0o755);
        assert_eq!(look_for("a").unwrap(), first.path().join("a"));

        program(&first.path().join("b"), 0o644);
        let message = look_for("b").unwrap_err().to_string();
        assert!(message.contains("not executable"), "{message}");
        assert!(message.contains(&second.path().display().to_string()), "{message}");

        let message = look_for("./no/such").unwrap_err().to_string();
        assert_eq!(message, "cannot run `./no/such`: no such file");
        let message = look_for("/").unwrap_err().to_string();
        assert!(message.contains("directory"), "{message}");
    }
}
