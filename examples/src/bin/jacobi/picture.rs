//! The file of a picture.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rushmem_examples::Result;
use tempfile::NamedTempFile;

/// An SVG file that will be written. It appears under its name only when it is complete.
pub(crate) struct Picture {
    file: NamedTempFile,
    path: PathBuf,
}

impl Picture {
    /// Creates the file, so that a wrong name is an error before any work is done.
    pub(crate) fn new(path: &Path) -> Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = tempfile::Builder::new().permissions(Permissions::from_mode(0o666)).tempfile_in(folder);
        let file = file.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(Self { file, path: path.into() })
    }

    /// Writes the picture.
    pub(crate) fn write(mut self, svg: &str) -> Result<()> {
        let written = self.file.write_all(svg.as_bytes());
        let written = written.and_then(|()| self.file.persist(&self.path).map_err(|error| error.error));
        written.map_err(|error| format!("cannot write {}: {error}", self.path.display()))?;
        Ok(())
    }
}
