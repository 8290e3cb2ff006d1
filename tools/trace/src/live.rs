//! Files in which running PEs publish their state, for tools of the same user such as `rushmem top`.
//!
//! Each PE replaces its file about once a second, and removes it when it finishes. Readers do not trust the contents.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rushmem_base::stat_field;
use serde::{Deserialize, Serialize};

use crate::totals::Totals;
use crate::waits::PeWaits;

/// Version of the format of the published files. Readers ignore files of other versions.
const VERSION: u32 = 1;
/// Maximum size of a file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// Maximum number of directory entries that are examined.
const MAX_FILES: usize = 4096;
/// File name extension of published files.
const EXTENSION: &str = ".live";

/// The state that a running PE publishes to its user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Live {
    version: u32,
    /// Process ID of the PE.
    pub pid: u32,
    /// Start time of the process, as in `/proc/PID/stat`. Distinguishes it from a later process with the same PID.
    start: u64,
    /// Name of the program, as in its first argument.
    pub program: String,
    /// A random number that identifies the job.
    pub job: u32,
    /// Rank of the PE in the job.
    pub pe: u32,
    /// Number of PEs in the job.
    pub n_pes: u32,
    /// When this state was published, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Traffic and wait times since the job started.
    pub totals: Totals,
    /// Calls that are waiting at the time of publication, and what they wait for.
    pub waits: PeWaits,
}

impl Live {
    /// Creates the state of PE `pe` of `n_pes`, which must run in this process.
    pub fn new(job: u32, (pe, n_pes): (u32, u32), time_ns: u64, totals: Totals, waits: PeWaits) -> Self {
        let pid = std::process::id();
        let program = std::env::args_os().next().unwrap_or_default().to_string_lossy().into_owned();
        let start = start_of(pid).unwrap_or(0);
        Self { version: VERSION, pid, start, program, job, pe, n_pes, time_ns, totals, waits }
    }

    /// Returns whether the process that published this state is still running.
    fn is_alive(&self) -> bool {
        start_of(self.pid) == Some(self.start)
    }
}

/// Returns the start time of a process from `/proc`, or `None` if it is not running.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let is_dead = matches!(stat_field(&stat, 0)?, "Z" | "X");
    stat_field(&stat, 19)?.parse().ok().filter(|_| !is_dead)
}

/// The published file of a running PE. It is removed on drop.
#[derive(Debug)]
pub struct LiveFile {
    file: PathBuf,
    draft: PathBuf,
}

impl LiveFile {
    /// Chooses the path for PE `pe` in this process. The file is created by the first [`LiveFile::write`].
    ///
    /// # Errors
    /// - The errors of [`live_folder`].
    pub fn new(job: u32, pe: u32) -> io::Result<Self> {
        Ok(Self::in_folder(&live_folder()?, job, pe))
    }

    fn in_folder(folder: &Path, job: u32, pe: u32) -> Self {
        let name = format!("{}.{job}.{pe}", std::process::id());
        Self { file: folder.join(format!("{name}{EXTENSION}")), draft: folder.join(format!("{name}.draft")) }
    }

    /// Replaces the published state atomically. Only the user may read the file.
    ///
    /// # Errors
    /// - The error of the file system.
    pub fn write(&self, live: &Live) -> io::Result<()> {
        // A stale draft would make `create_new` fail, which in turn protects against a link planted by someone else.
        let _ = fs::remove_file(&self.draft);
        let mut to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.draft)?;
        to.write_all(&serde_json::to_vec(live)?)?;
        fs::rename(&self.draft, &self.file)
    }
}

impl Drop for LiveFile {
    fn drop(&mut self) {
        // If this fails, the next reader removes the files.
        let _ = fs::remove_file(&self.draft);
        let _ = fs::remove_file(&self.file);
    }
}

/// Returns the folder for published files of this user, and creates it if necessary: `rushmem` in `XDG_RUNTIME_DIR`, or
/// else `rushmem-UID` in the folder for temporary files.
///
/// # Errors
/// - An error if the folder cannot be created, or if other users can write to it.
pub fn live_folder() -> io::Result<PathBuf> {
    let user = fs::metadata("/proc/self")?.uid();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_dir());
    let folder = match runtime {
        Some(runtime) => runtime.join("rushmem"),
        None => std::env::temp_dir().join(format!("rushmem-{user}")),
    };
    checked(folder, user)
}

fn checked(folder: PathBuf, user: u32) -> io::Result<PathBuf> {
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let about = fs::symlink_metadata(&folder)?;
    if !about.is_dir() || about.uid() != user || about.mode() & 0o022 != 0 {
        let why = format!("{} is not a folder that only this user may write to", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(folder)
}

/// Returns the published states of all running PEs of this user. Removes the files of processes that have exited.
///
/// # Errors
/// - The errors of [`live_folder`], or the error of reading it.
pub fn all_live() -> io::Result<Vec<Live>> {
    all_in(&live_folder()?)
}

fn all_in(folder: &Path) -> io::Result<Vec<Live>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)?.take(MAX_FILES) {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some((pid, job, pe)) = name.strip_suffix(EXTENSION).and_then(numbers) else { continue };
        match read(&path) {
            Some(live) if (live.pid, live.job, live.pe) == (pid, job, pe) && live.is_alive() => {
                all.push(live)
            }
            // It may have another version of the format, and its process may be running: leave it alone.
            None if start_of(pid).is_some() => {}
            // It may have been removed in the meantime.
            _ => drop(fs::remove_file(&path)),
        }
    }
    all.sort_by_key(|live| (live.job, live.pe, live.pid));
    Ok(all)
}

/// Parses PID, job and PE from the name of a published file, without its extension.
fn numbers(name: &str) -> Option<(u32, u32, u32)> {
    let (pid, rest) = name.split_once('.')?;
    let (job, pe) = rest.split_once('.')?;
    Some((pid.parse().ok()?, job.parse().ok()?, pe.parse().ok()?))
}

/// Reads a published file. Returns `None` if it is not valid or has another version.
fn read(path: &Path) -> Option<Live> {
    // Check before opening: a FIFO would block, and a link may lead to anything.
    if !fs::symlink_metadata(path).ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    fs::File::open(path).ok()?.take(MAX_BYTES).read_to_end(&mut text).ok()?;
    let live: Live = serde_json::from_slice(&text).ok()?;
    (live.version == VERSION && live.pe < live.n_pes && live.waits.pe == live.pe).then_some(live)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    const JOB: u32 = 7;

    fn live(pe: u32) -> Live {
        live_of(JOB, pe)
    }

    fn live_of(job: u32, pe: u32) -> Live {
        Live::new(job, (pe, 4), 5, Totals::default(), PeWaits { pe, ..PeWaits::default() })
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("rushmem-live-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        checked(folder, fs::metadata("/proc/self").unwrap().uid()).unwrap()
    }

    #[test]
    fn file_is_removed_with_its_pe() {
        let folder = folder("pe");
        let file = LiveFile::in_folder(&folder, JOB, 3);
        (0..2).for_each(|_| file.write(&live(3)).unwrap());
        assert_eq!(fs::metadata(&file.file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(all_in(&folder).unwrap(), [live(3)]);
        drop(file);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn jobs_of_one_process_have_separate_files() {
        let folder = folder("jobs");
        let files = [JOB, JOB + 1].map(|job| (LiveFile::in_folder(&folder, job, 0), live_of(job, 0)));
        files.iter().for_each(|(file, live)| file.write(live).unwrap());
        assert_eq!(all_in(&folder).unwrap(), [live_of(JOB, 0), live_of(JOB + 1, 0)]);
        drop(files);
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn files_of_dead_processes_are_removed() {
        let folder = folder("dead");
        let mut dead = live(0);
        dead.start += 1;
        let own = format!("{}.{JOB}.0{EXTENSION}", dead.pid);
        fs::write(folder.join(&own), serde_json::to_vec(&dead).unwrap()).unwrap();
        fs::write(folder.join(format!("{}.{JOB}.0{EXTENSION}", u32::MAX)), "{}").unwrap();
        assert!(all_in(&folder).unwrap().is_empty());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn ignores_other_files() {
        let folder = folder("other");
        let pid = std::process::id();
        let mut strange = live(1);
        strange.n_pes = 1;
        let long = format!("{}{}", " ".repeat(MAX_BYTES as usize), serde_json::to_string(&live(2)).unwrap());
        fs::write(folder.join(format!("{pid}.{JOB}.1{EXTENSION}")), serde_json::to_vec(&strange).unwrap())
            .unwrap();
        fs::write(folder.join(format!("{pid}.{JOB}.2{EXTENSION}")), long).unwrap();
        symlink("/dev/zero", folder.join(format!("{pid}.{JOB}.3{EXTENSION}"))).unwrap();
        fs::write(folder.join("notes"), "a file of the user").unwrap();
        assert!(all_in(&folder).unwrap().is_empty());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 4);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn rejects_folders_that_others_can_write_to() {
        let folder = folder("open");
        let user = fs::metadata(&folder).unwrap().uid();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(checked(folder.clone(), user).unwrap_err().to_string().contains("only this user"));
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(checked(folder.clone(), user).is_ok() && checked(folder.clone(), user + 1).is_err());
        fs::remove_dir(&folder).unwrap();
    }
}
