//! The operations that change files and folders.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Operations that change files and folders. Tests make them fail, or stop after one of them.
pub trait Files: Sync {
    /// Creates a folder, unless it exists.
    fn create_folder(&self, path: &Path) -> io::Result<()>;
    /// Creates a file that does not exist yet.
    fn create(&self, path: &Path) -> io::Result<File>;
    /// Like [`create`](Files::create), for writes past the page cache if the file system has such. Then the memory, the
    /// lengths and the offsets of writes must be multiples of [`ALIGN`](crate::format::ALIGN).
    fn create_direct(&self, path: &Path) -> io::Result<File>;
    /// Writes all `bytes` at offset `at`.
    fn write_at(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()>;
    /// Waits until the file, or the entries of a folder, have reached the disk.
    fn sync(&self, file: &File) -> io::Result<()>;
    /// Renames a file, in place of the one that has the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file, or a folder with its files.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// The files of the operating system.
pub struct Disk;

impl Files for Disk {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            other => other,
        }
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        File::create_new(path)
    }

    fn create_direct(&self, path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let opened =
            options.write(true).create_new(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path);
        match opened {
            // Linux creates the file before it finds that the file system has no direct I/O.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                OpenOptions::new().write(true).create(true).truncate(true).open(path)
            }
            other => other,
        }
    }

    fn write_at(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        file.write_all_at(bytes, at)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        if path.symlink_metadata()?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
    }
}
