//! Saves that are interrupted after each of their file operations.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{load, names, save};
use crate::{Disk, Files};

/// What happens besides, when a save is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    None,
    /// The last operation is done in part.
    Torn,
    /// The last operation is done in part, and files that were not synchronized lose half of their content, as if the
    /// machine had failed.
    Unsynced,
}

/// Files on disk, all of whose operations fail after some.
struct StoppingDisk {
    /// Number of operations that are still done.
    left: AtomicU32,
    damage: Damage,
    unsynced: Mutex<BTreeSet<PathBuf>>,
}

/// Returns half of `length`, as a multiple of the length of a page if `length` is one.
fn half(length: usize) -> usize {
    const PAGE: usize = 4096;
    if length.is_multiple_of(PAGE) { length / PAGE / 2 * PAGE } else { length / 2 }
}

fn path_of(file: &File) -> PathBuf {
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
}

impl StoppingDisk {
    fn new(left: u32, damage: Damage) -> Self {
        Self { left: AtomicU32::new(left), damage, unsynced: Mutex::default() }
    }

    /// Does `whole`, or `half` in place of it if this is the operation that is stopped, or nothing after that.
    fn step<R>(
        &self,
        whole: impl FnOnce() -> io::Result<R>,
        half: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<R> {
        const STOPPED: u32 = u32::MAX;
        let next = |left: u32| Some(if left == STOPPED { STOPPED } else { left.wrapping_sub(1) });
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(STOPPED) => {}
            Ok(0) => {
                if self.damage != Damage::None {
                    half()?;
                }
                if self.damage == Damage::Unsynced {
                    for path in self.unsynced.lock().unwrap().iter().filter(|path| path.exists()) {
                        let file = OpenOptions::new().write(true).open(path)?;
                        file.set_len(file.metadata()?.len() / 2)?;
                    }
                }
            }
            _ => return whole(),
        }
        Err(io::Error::other("stopped"))
    }
}

impl Files for StoppingDisk {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.step(|| Disk.create_folder(path), || Ok(()))
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        self.step(|| Disk.create(path), || Ok(()))
    }

    fn create_direct(&self, path: &Path) -> io::Result<File> {
        self.step(|| Disk.create_direct(path), || Ok(()))
    }

    fn write_at(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        self.unsynced.lock().unwrap().insert(path_of(file));
        self.step(|| Disk.write_at(file, bytes, at), || Disk.write_at(file, &bytes[..half(bytes.len())], at))
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.step(
            || {
                self.unsynced.lock().unwrap().remove(&path_of(file));
                Ok(())
            },
            || Ok(()),
        )
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(
            || {
                Disk.rename(from, to)?;
                let mut unsynced = self.unsynced.lock().unwrap();
                if unsynced.remove(from) {
                    unsynced.insert(to.into());
                }
                Ok(())
            },
            || Ok(()),
        )
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step(
            || Disk.remove(path),
            || {
                fs::read_dir(path).map_or(Ok(()), |mut files| {
                    files.next().map_or(Ok(()), |file| Disk.remove(&file?.path()))
                })
            },
        )
    }
}

/// Stops saves after 0, 1, 2 and so on operations, until one is not stopped. Returns how many loads then returned the
/// old content and how many the new one.
fn stop_everywhere(path: &Path, damage: Damage, mut current: Option<u8>) -> [u32; 2] {
    let mut outcomes = [0, 0];
    for operations in 0.. {
        let new = (operations % 200) as u8 + 2;
        let saved = save(&StoppingDisk::new(operations, damage), path, new);
        let told = format!("{damage:?} after {operations} operations: {saved:?}");
        let loaded = path.join("rushmem.manifest").exists().then(|| load(path).expect(&told));
        assert!(loaded == current || loaded == Some(new), "{loaded:?} after {current:?}, {told}");
        outcomes[usize::from(loaded == Some(new))] += 1;
        current = loaded;
        // The last operation removes the old content, and saves do not fail if it stays.
        if saved.is_ok() && names(path).len() == 3 {
            return outcomes;
        }
        assert!(operations < 150, "{told}");
    }
    outcomes
}

#[test]
fn save_stopped_anywhere_leaves_the_old_or_the_new_checkpoint() {
    for damage in [Damage::None, Damage::Torn, Damage::Unsynced] {
        for old in [None, Some(1)] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("checkpoint");
            if let Some(old) = old {
                save(&Disk, &path, old).unwrap();
            }
            let [before, after] = stop_everywhere(&path, damage, old);
            // At least one operation for each chunk comes before the change, and those that tidy up come after it.
            assert!(before > 15 && after > 1, "{before} and {after}");
            save(&Disk, &path, 0).unwrap();
            assert_eq!(names(&path).len(), 3, "{:?}", names(&path));
            assert_eq!(load(&path).unwrap(), 0);
        }
    }
}
