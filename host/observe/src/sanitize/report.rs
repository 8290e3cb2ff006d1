//! Reports the sanitizer's findings when a job has finished: as text, and as JSON in a file.

use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use rushmem_base::lock;
use rushmem_device::watch;
use rushmem_error::{Error, Result};
use rushmem_sanitizer::{Finding, Request};

use super::Sanitizer;
use super::server::Server;

/// Findings of all jobs that have finished in this process.
static FINDINGS: Mutex<Vec<Finding>> = Mutex::new(Vec::new());

/// Checks that the sanitizer can observe kernels: the build has hooks, and kernels run on the native GPU emulator.
///
/// # Errors
/// - [`Error::Unavailable`] if it cannot, with the remedy.
pub fn check_supported(what: &str, is_native: bool) -> Result<()> {
    let why = if !watch::ENABLED {
        "this release build has no hooks; build without --release, or with `--features rushmem/sanitize`"
    } else if !is_native {
        "it serves native kernels, and this job uses a GPU; set RUSHMEM_DEVICE=native"
    } else {
        return Ok(());
    };
    Err(Error::Unavailable { what: what.into(), why: why.into() })
}

impl Sanitizer {
    /// Waits until all PEs have finished, and returns the findings of the job. The process with the engine also reports
    /// them.
    ///
    /// `has_timed_out` is set if a wait of this process has exceeded its deadline.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if the report cannot be written to `file`.
    pub fn findings(&self, file: &str, has_timed_out: bool) -> Result<Vec<Finding>> {
        if has_timed_out {
            self.link.tell(Request::DeadlinePassed);
        }
        self.link.end();
        let Some(engine) = &self.engine else { return Ok(self.link.findings()) };
        let mut server = lock(&self.server).take();
        server.iter_mut().for_each(Server::wait_for_all);
        let findings = lock(engine).take_findings();
        // A launcher may kill this process as soon as another has exited because of the findings.
        let reported = report(&findings, file);
        server.iter().for_each(|server| server.send_findings(findings.clone()));
        reported.map(|()| findings)
    }
}

/// Checks at startup that the report file will be writable when the job has finished.
///
/// # Errors
/// - [`Error::Unavailable`] if the file cannot be written.
pub fn check_report(file: &str) -> Result<()> {
    let check = || rushmem_base::check_writable(Path::new(file));
    if file.is_empty() { Ok(()) } else { check().map_err(|error| unwritten(file, error.to_string())) }
}

fn unwritten(file: &str, why: String) -> Error {
    Error::Unavailable { what: format!("the report of the sanitizer, {file},"), why }
}

/// Prints the findings of a job, and writes the findings of all jobs so far to `file` as JSON.
///
/// # Errors
/// - [`Error::Unavailable`] if the file cannot be written.
fn report(findings: &[Finding], file: &str) -> Result<()> {
    let text: String = findings.iter().map(|finding| format!("rushmem: {finding}\n")).collect();
    // A closed standard error has no reader.
    let _ = std::io::stderr().write_all(text.as_bytes());
    if file.is_empty() {
        return Ok(());
    }
    let mut all = lock(&FINDINGS);
    all.extend_from_slice(findings);
    let json = serde_json::to_vec_pretty(&*all).map_err(|error| unwritten(file, error.to_string()))?;
    std::fs::write(Path::new(file), json).map_err(|error| unwritten(file, error.to_string()))
}
