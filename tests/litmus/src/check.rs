//! Litmus tests with separate kernels: interaction of kernels with the host, and collective calls.

mod collect;
mod host;

use rushmem::{Error, Pe};

use crate::program::Race;

/// A test of the memory model with separate kernels, for a job of at least two PEs.
#[derive(Clone, Copy)]
pub struct Check {
    /// IDs of the litmus tests that the check covers.
    pub ids: &'static [&'static str],
    /// Name of the check: the property of the memory model that it verifies.
    pub name: &'static str,
    /// Whether the check's memory accesses race.
    pub race: Race,
    run: fn(&Pe) -> Result<Verdict, Error>,
}

/// Outcome of a check on one PE. The error describes the violation.
type Verdict = Result<(), String>;

impl Check {
    const fn new(
        ids: &'static [&'static str],
        name: &'static str,
        run: fn(&Pe) -> Result<Verdict, Error>,
    ) -> Self {
        Self { ids, name, race: Race::None, run }
    }

    /// Declares that the check's accesses race in all runs.
    const fn races(self) -> Self {
        Self { race: Race::Always, ..self }
    }

    /// Runs the check on all PEs of a job. Returns the violations found on each PE, the same list on every PE.
    ///
    /// # Errors
    /// - the error of a launch or an allocation
    pub fn run(&self, pe: &Pe) -> Result<Vec<String>, Error> {
        let mine = (self.run)(pe)?.err().unwrap_or_default();
        let all = pe.allgather(mine.as_bytes())?;
        let told = |(pe, wrong): (usize, Vec<u8>)| {
            let wrong = String::from_utf8_lossy(&wrong);
            (!wrong.is_empty()).then(|| format!("{}: PE {pe}: {wrong}", self.name))
        };
        Ok(all.into_iter().enumerate().filter_map(told).collect())
    }
}

/// Returns all checks except [`leave_behind`].
pub fn all() -> Vec<Check> {
    [collect::CHECKS, host::CHECKS].concat()
}

/// ID of the litmus test that [`leave_behind`] covers.
pub const LEAVE_BEHIND: &str = "L78";

/// Ends a job with a put that no call has completed, and for which another PE waits.
///
/// # Errors
/// - the error of a launch or an allocation
pub fn leave_behind(pe: &Pe) -> Result<(), Error> {
    host::leave_behind(pe)
}

/// Returns the check whose [`Check::name`] is `name`.
///
/// # Panics
/// If there is no such check.
pub fn named(name: &str) -> Check {
    all().into_iter().find(|check| check.name == name).expect("a check of this name")
}

fn must(right: bool, seen: impl FnOnce() -> String) -> Verdict {
    if right { Ok(()) } else { Err(seen()) }
}
