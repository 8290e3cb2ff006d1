//! File access whose errors name the file.

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};

pub(crate) fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(Error::io("read", path))
}

pub(crate) fn create_dir(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(Error::io("create", path))
}

/// Writes a file unless it already has these contents: an unchanged modification time avoids a rebuild by Cargo.
pub(crate) fn write_if_changed(path: &Path, text: &str) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == text.as_bytes()) {
        return Ok(());
    }
    fs::write(path, text).map_err(Error::io("write", path))
}
