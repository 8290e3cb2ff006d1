//! PEs that are up, and the handle of one that the program itself shuts down.

use std::io::Write;
use std::ops::Deref;

use rushmem_machine::end_process;

use super::resources::ProcessResources;
use super::{AppError, Job, ProcessPes};
use crate::life::Up;
use crate::{Error, Pe, Result};

/// A PE that has joined its job. It must leave the job through [`StartedPe::finish`].
pub(super) struct StartedPe {
    pe: Pe,
    /// ID of the process that started the PE.
    process: u32,
    _up: Up,
}

impl StartedPe {
    /// Counts `pe` as up and compares its clock with those of its peers. Collective.
    ///
    /// # Errors
    /// - The errors of the comparison. The PE has been shut down.
    pub(super) fn new(pe: Pe) -> Result<Self> {
        let started = Self { pe, process: std::process::id(), _up: Up::new() };
        match started.pe.compare_clocks() {
            Ok(()) => Ok(started),
            Err(error) => started.finish(Err(error)),
        }
    }

    pub(super) fn pe(&self) -> &Pe {
        &self.pe
    }

    /// Shuts the PE down. See [`Pe::finish`].
    pub(super) fn finish<T>(self, outcome: Result<T>) -> Result<T> {
        if std::process::id() != self.process {
            end_forked_child(self.pe.my_pe());
        }
        self.pe.finish(outcome)
    }
}

/// Exits a forked child process that would shut the PE down. It has neither the threads nor the queues of its
/// parent, so it can neither leave the job in an orderly way nor return.
fn end_forked_child(pe: u32) -> ! {
    // If standard error is closed, there is nothing left to do about it.
    let _ = writeln!(
        std::io::stderr(),
        "Error: PE {pe}: a forked child reached the end of the application; end it by `std::process::exit` or `exec` \
         before that"
    );
    end_process(1)
}

/// The PE of this process, as started by [`Job::start`]. Dereferences to [`Pe`].
///
/// [`finish`](RunningPe::finish) shuts it down. Dropping it instead aborts the job, as a panic in
/// [`Job::run`](crate::Job::run) does.
#[must_use = "dropping the PE without `finish` aborts the job"]
pub struct RunningPe(
    /// `None` only after [`finish`](RunningPe::finish) or `drop` has taken it.
    Option<Running>,
);

struct Running {
    pe: StartedPe,
    job: Job,
    resources: ProcessResources,
}

// Initialization and finalization may happen on different threads.
const _: () = {
    const fn any_thread<T: Send + Sync>() {}
    any_thread::<RunningPe>();
};

impl RunningPe {
    /// Starts the only one of `pes`.
    pub(super) fn start(job: Job, resources: ProcessResources, pes: ProcessPes) -> Result<Self> {
        let bootstrap = pes.into_iter().next().expect("a process has at least one PE");
        let pe = job.clone().start_pe(&resources, 0, bootstrap)?;
        Ok(Self(Some(Running { pe, job, resources })))
    }

    /// Shuts the PE down. Collective: waits until all PEs leave the job.
    ///
    /// Afterwards this process may start another job. Operations that the program has not completed by a `quiet` may be
    /// lost.
    ///
    /// # Errors
    /// The PE is shut down in any case:
    /// - The error of a launch or stream that the program dropped without waiting for it. The job is aborted.
    /// - [`Error::PeerLost`] if a PE is lost, and [`Error::Bootstrap`] if a PE never leaves the job.
    /// - [`Error::Sanitizer`] with the findings, if the setting `sanitize` is on.
    ///
    /// # Examples
    /// ```no_run
    /// # fn main() -> Result<(), rushmem::Error> {
    /// let pe = rushmem::Job::new()?.start()?;
    /// println!("PE {} of {}", pe.my_pe(), pe.n_pes());
    /// pe.finish()
    /// # }
    /// ```
    pub fn finish(self) -> Result<()> {
        self.finish_with(Ok(()))
    }

    /// Shuts the PE down with the outcome of the program, as [`Job::run`](crate::Job::run) does with what the
    /// application returns. An error aborts the job.
    ///
    /// # Errors
    /// The PE is shut down in any case:
    /// - The error in `outcome`.
    /// - The errors of [`finish`](RunningPe::finish).
    pub fn finish_with(mut self, outcome: Result<(), AppError>) -> Result<()> {
        self.0.take().map_or(Ok(()), |running| running.end(outcome.map_err(|error| error.0)))
    }
}

impl Running {
    fn end(self, outcome: Result<()>) -> Result<()> {
        let Self { pe, job, resources } = self;
        let outcome = pe.finish(outcome);
        job.conclude(resources, vec![outcome]).map(drop)
    }
}

impl Deref for RunningPe {
    type Target = Pe;
    fn deref(&self) -> &Pe {
        self.0.as_ref().expect("only `finish` and `drop` take the PE").pe.pe()
    }
}

impl Drop for RunningPe {
    fn drop(&mut self) {
        let Some(running) = self.0.take() else { return };
        let cause = match std::thread::panicking() {
            true => Error::Panic("the thread that owns the PE is unwinding".into()),
            false => Error::App("the PE was dropped without `finish`".into()),
        };
        let pe = running.pe.pe().my_pe();
        if let Err(error) = running.end(Err(cause)) {
            tracing::error!(pe, "{error}");
        }
    }
}
