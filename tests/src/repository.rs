//! Reads files of this repository, for tests that check sources and documents.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the root folder of the repository.
///
/// # Panics
/// If the folder of this crate no longer exists.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the root of the repository")
}

/// Returns all files of the repository with one of `extensions`, relative to the root and sorted.
///
/// Skips build folders and hidden folders.
pub fn files(extensions: &[&str]) -> Vec<PathBuf> {
    let root = root();
    let mut found = Vec::new();
    walk(&root, &mut |path| {
        if path.extension().is_some_and(|e| extensions.iter().any(|wanted| e == *wanted)) {
            found.push(path.strip_prefix(&root).expect("a path below the root").into());
        }
    });
    found.sort();
    found
}

/// Returns the text of a file of the repository.
///
/// # Panics
/// If `path`, relative to the root, cannot be read.
pub fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn walk(folder: &Path, visit: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable folder").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        if !path.is_dir() {
            visit(&path);
        } else if name != "target" && !name.starts_with('.') {
            walk(&path, visit);
        }
    }
}
