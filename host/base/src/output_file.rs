//! Checks at startup that an output file, written only when the job finishes, will be writable.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;

/// Checks that a file can be written, without changing its contents or leaving a new file.
///
/// # Errors
/// Fails with the error that a later attempt to write the file would return.
pub fn check_writable(path: &Path) -> io::Result<()> {
    match File::create_new(path) {
        Ok(_) => std::fs::remove_file(path),
        // Opening a FIFO would wait for a reader, and a device may react to being opened.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => match path.metadata() {
            Ok(meta) if meta.is_file() || meta.is_dir() => match OpenOptions::new().append(true).open(path) {
                // Another process that made the same check has just removed its file again.
                Err(gone) if gone.kind() == ErrorKind::NotFound => Ok(()),
                other => other.map(drop),
            },
            _ => Ok(()),
        },
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_changes_nothing() {
        let folder = std::env::temp_dir().join(format!("rushmem-check-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let file = folder.join("t.json");
        check_writable(&file).unwrap();
        assert!(!file.exists());
        std::fs::write(&file, "text").unwrap();
        check_writable(&file).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "text");
        assert!(check_writable(&folder).is_err());
        assert_eq!(check_writable(&folder.join("no/t.json")).unwrap_err().kind(), ErrorKind::NotFound);
        check_writable(Path::new("/dev/null")).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
