//! Manages the timeline files that the jobs of this process write.
//!
//! Jobs of a process may run one after the other, and a file holds all jobs that name it. Concurrent jobs need separate
//! files, because the indices of their PEs overlap.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rushmem_base::{check_writable, lock};
use rushmem_config::Config;
use rushmem_error::{Error, Result};
use rushmem_trace::{Trace, part_of};

/// Paths of the timeline files that running jobs will write.
static CLAIMED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
/// The contents of each timeline file written so far, by path.
static WRITTEN: Mutex<BTreeMap<PathBuf, Trace>> = Mutex::new(BTreeMap::new());

/// The timeline file of a running job. No other job of this process can write it until this is dropped.
#[derive(Debug)]
pub struct TraceFile {
    /// The file name as the user specified it, for messages.
    name: PathBuf,
    path: PathBuf,
}

impl TraceFile {
    /// Claims the timeline file named in `config`. Returns `None` if it names none.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if another running job of this process has claimed the file, or it cannot be written.
    pub fn of(config: &Config) -> Result<Option<Self>> {
        let whole = Path::new(&config.trace);
        if config.trace.is_empty() {
            return Ok(None);
        }
        Self::claim(config.pe.map_or_else(|| whole.to_owned(), |pe| part_of(whole, pe))).map(Some)
    }

    fn claim(name: PathBuf) -> Result<Self> {
        let path = std::path::absolute(&name).unwrap_or_else(|_| name.clone());
        let is_free = lock(&CLAIMED).insert(path.clone());
        if !is_free {
            let why = "another running job of this process writes it; give each job a `trace` of its own";
            return Err(unavailable(&name, why.into()));
        }
        let claimed = Self { name, path };
        // The file is written after the job's work, when it would be too late for an error.
        check_writable(&claimed.path).map_err(|error| unavailable(&claimed.name, error.to_string()))?;
        Ok(claimed)
    }

    /// Writes a job's timeline to the file, which keeps the timelines of earlier jobs of this process.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if the file cannot be written.
    pub(super) fn write(&self, trace: Trace) -> Result<()> {
        let mut written = lock(&WRITTEN);
        let all = written.entry(self.path.clone()).or_default();
        all.merge(trace);
        let to = File::create(&self.path).map_err(|error| unavailable(&self.name, error.to_string()))?;
        all.write(to).map_err(|error| unavailable(&self.name, error.to_string()))
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        lock(&CLAIMED).remove(&self.path);
    }
}

fn unavailable(file: &Path, why: String) -> Error {
    Error::Unavailable { what: format!("the timeline, {},", file.display()), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(folder: &Path, name: &str, pe: Option<u32>) -> Result<TraceFile> {
        let mut config = Config::default();
        (config.trace, config.pe) = (folder.join(name).to_str().unwrap().into(), pe);
        TraceFile::of(&config).map(Option::unwrap)
    }

    fn trace(dropped: u64) -> Trace {
        Trace { dropped, ..Trace::default() }
    }

    #[test]
    fn a_file_belongs_to_one_running_job() {
        let folder = tempfile::tempdir().unwrap();
        let claim = |name, pe| claim(folder.path(), name, pe);
        let first = claim("t.json", None).unwrap();
        let error = claim("./t.json", None).unwrap_err().to_string();
        assert!(error.contains("t.json, is not available: another running job"), "{error}");
        // PEs of one job may be separate jobs of this process, which write parts.
        let others = [claim("other.json", None), claim("t.json", Some(0)), claim("t.json", Some(1))];
        assert!(others.iter().all(Result::is_ok), "{others:?}");
        drop(first);
        assert!(claim("t.json", None).is_ok());
        assert!(TraceFile::of(&Config::default()).unwrap().is_none());
    }

    #[test]
    fn a_file_holds_the_jobs_that_name_it() {
        let folder = tempfile::tempdir().unwrap();
        let jobs = [("t.json", None), ("other.json", None), ("t.json", Some(3)), ("t.json", None)];
        for ((name, pe), dropped) in jobs.into_iter().zip([1, 2, 4, 8]) {
            claim(folder.path(), name, pe).unwrap().write(trace(dropped)).unwrap();
        }
        let read = |name: &str| Trace::read(File::open(folder.path().join(name)).unwrap()).unwrap();
        assert_eq!(["t.json", "other.json", "t.json.pe3"].map(|name| read(name).dropped), [9, 2, 4]);
    }

    #[test]
    fn an_unwritable_file_is_refused_by_name() {
        let error = claim(Path::new("no such folder"), "t.json", Some(1)).unwrap_err().to_string();
        assert!(error.starts_with("the timeline, no such folder/t.json.pe1, is not available: "), "{error}");
    }
}
