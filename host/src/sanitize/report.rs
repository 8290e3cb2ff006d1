//! The findings of a job, at its end.

use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use rushmem_base::lock;
use rushmem_device::watch;
use rushmem_sanitizer::Finding;

use super::Sanitizer;
use crate::{Error, Result};

/// The findings of all jobs of this process.
static FINDINGS: Mutex<Vec<Finding>> = Mutex::new(Vec::new());

/// Checks that the sanitizer can watch a job of this process.
///
/// # Errors
/// - [`Error::Unavailable`] with the remedy.
pub(crate) fn check_supported(is_native: bool, is_threads: bool) -> Result<()> {
    let why = if !watch::ENABLED {
        "this release build has no hooks; build without --release, or with `--features rushmem/sanitize`"
    } else if !is_native {
        "it watches native kernels, and this job uses a GPU; set RUSHMEM_DEVICE=native"
    } else if !is_threads {
        "it watches PEs of one process; run `rushmem run --sanitize -n N PROGRAM`, or set RUSHMEM_PES without a launcher"
    } else {
        return Ok(());
    };
    Err(Error::Unavailable { what: "the sanitizer".into(), why: why.into() })
}

impl Sanitizer {
    /// Takes the findings so far. `has_timed_out` tells that the deadline of a wait has ended the job.
    pub(crate) fn take_findings(&self, has_timed_out: bool) -> Vec<Finding> {
        let mut state = self.lock();
        let suspected = state.suspected.take().filter(|_| has_timed_out);
        let races = state.engine.take_races().into_iter().map(|race| Finding::Race(Box::new(race)));
        races.chain(state.deadlock.take().or(suspected).map(Finding::Deadlock)).collect()
    }
}

/// Prints the findings of a job, and writes the findings of all jobs so far to `file` as JSON.
///
/// # Errors
/// - [`Error::Unavailable`] if the file cannot be written.
pub(crate) fn report(findings: &[Finding], file: &str) -> Result<()> {
    let text: String = findings.iter().map(|finding| format!("rushmem: {finding}\n")).collect();
    // Nobody reads a closed standard error.
    let _ = std::io::stderr().write_all(text.as_bytes());
    if file.is_empty() {
        return Ok(());
    }
    let mut all = lock(&FINDINGS);
    all.extend_from_slice(findings);
    let unwritten =
        |why: String| Error::Unavailable { what: format!("the report of the sanitizer, {file},"), why };
    let json = serde_json::to_vec_pretty(&*all).map_err(|error| unwritten(error.to_string()))?;
    std::fs::write(Path::new(file), json).map_err(|error| unwritten(error.to_string()))
}
