//! Output files of the examples, which appear under their name only once they are complete.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::Result;

/// An output file that appears under its name only once it is complete.
pub struct Output {
    file: NamedTempFile,
    path: PathBuf,
}

impl Output {
    /// Creates a temporary file next to `path`, so that an unwritable path is reported before any work is done.
    ///
    /// # Errors
    /// The error names the file.
    pub fn new(path: &Path) -> Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut builder = tempfile::Builder::new();
        let file = builder.prefix(".").permissions(Permissions::from_mode(0o666)).tempfile_in(folder);
        let file = file.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        if path.is_dir() {
            return Err(format!("cannot write {}: it is a directory", path.display()).into());
        }
        Ok(Self { file, path: path.into() })
    }

    /// Writes the content and renames the file into place.
    ///
    /// # Errors
    /// The error names the file.
    pub fn write(mut self, content: &[u8]) -> Result<()> {
        let written = self.file.write_all(content);
        let written = written.and_then(|()| self.file.persist(&self.path).map_err(|error| error.error));
        written.map_err(|error| format!("cannot write {}: {error}", self.path.display()))?;
        Ok(())
    }
}
