//! Searches for the program that `rushmem run` starts.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// The program that a search has chosen, and others of the same name.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) program: PathBuf,
    pub(super) others: Vec<PathBuf>,
}

impl Choice {
    fn only(program: PathBuf) -> Self {
        Self { program, others: Vec::new() }
    }

    /// Returns a sentence that warns the user if there are other programs of the same name.
    pub(super) fn ambiguity(&self) -> Option<String> {
        let other = self.others.first()?;
        let (program, other) = (self.program.display(), other.display());
        Some(format!("runs {program}; {other} has the same name: write a path to choose"))
    }
}

/// Searches for the file of a program.
///
/// A name with a slash is used as given. Other names are searched in `beside`, the directory of this command, then in
/// its subdirectory `examples`, and finally in the directories of `path` (the variable PATH).
pub(super) fn find(program: &OsStr, path: Option<OsString>, beside: Option<&Path>) -> Result<Choice, Error> {
    let name = program.display();
    if program.is_empty() {
        return Err(Error::Usage("the program's name is empty".into()));
    }
    if program.as_encoded_bytes().contains(&b'/') {
        return match look(Path::new(program)) {
            Found::Program => Ok(Choice::only(program.into())),
            Found::Unusable(why) => Err(Error::Usage(format!("cannot run `{name}`: {why}"))),
            Found::Nothing => Err(Error::Usage(format!("cannot run `{name}`: no such file"))),
        };
    }
    let on_path = path.iter().flat_map(std::env::split_paths).filter(|dir| !dir.as_os_str().is_empty());
    let here = beside.iter().flat_map(|dir| [dir.to_path_buf(), dir.join("examples")]);
    let mut tried = Vec::new();
    let mut others = Vec::new();
    let mut found: Option<Choice> = None;
    for directory in here.chain(on_path) {
        let candidate = directory.join(program);
        match look(&candidate) {
            Found::Program => match &mut found {
                None => found = Some(Choice::only(candidate)),
                Some(choice) if is_same(&choice.program, &candidate) => {}
                Some(choice) => choice.others.push(candidate),
            },
            Found::Unusable(why) => others.push(format!("; {} exists, but {why}", candidate.display())),
            Found::Nothing => {}
        }
        tried.push(directory.display().to_string());
    }
    if let Some(choice) = found {
        return Ok(choice);
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

/// Returns whether two paths refer to the same file.
fn is_same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
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
    fn searches_its_own_directory_then_path() {
        let (beside, path) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |dir: &tempfile::TempDir, name: &str| dir.path().join(name);
        let look_for = |name: &str| find(name.as_ref(), Some(path.path().into()), Some(beside.path()));
        program(&at(&path, "a"), 0o755);
        let only = look_for("a").unwrap();
        assert_eq!((&only.program, only.ambiguity()), (&at(&path, "a"), None));
        program(&at(&beside, "a"), 0o644);
        assert_eq!(look_for("a").unwrap().program, at(&path, "a"));
        program(&at(&beside, "a"), 0o755);
        let both = look_for("a").unwrap();
        assert_eq!((&both.program, &both.others), (&at(&beside, "a"), &vec![at(&path, "a")]));
        let told = both.ambiguity().unwrap();
        assert!(told.ends_with("/a has the same name: write a path to choose"), "{told}");
        // A link to the same file does not make the name ambiguous.
        std::fs::remove_file(at(&path, "a")).unwrap();
        std::os::unix::fs::symlink(at(&beside, "a"), at(&path, "a")).unwrap();
        assert_eq!(look_for("a").unwrap().ambiguity(), None);

        program(&at(&path, "b"), 0o644);
        let message = look_for("b").unwrap_err().to_string();
        assert!(message.contains("not executable"), "{message}");
        assert!(message.contains(&beside.path().display().to_string()), "{message}");

        let message = look_for("./no/such").unwrap_err().to_string();
        assert_eq!(message, "cannot run `./no/such`: no such file");
        let message = look_for("/").unwrap_err().to_string();
        assert!(message.contains("directory"), "{message}");
    }
}
