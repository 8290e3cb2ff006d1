//! Calls that may wait for other PEs.

use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use pyo3::prelude::*;
use rushmem::{Error, Result};
use rushmem_base::lock;

use crate::error::exception;

/// How often a waiting thread lets Python handle signals.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

type Job = Box<dyn FnOnce() + Send>;

/// Threads of this process that are ready for a job. A forked child has none of its parent's threads.
static IDLE: Mutex<Vec<Worker>> = Mutex::new(Vec::new());

#[derive(Clone)]
struct Worker {
    process: u32,
    jobs: Sender<Job>,
}

/// Runs `call` without the GIL, and returns its result.
///
/// The call runs on another thread, since the runtime's waits are not interrupted by signals. If a signal handler raises
/// an exception, as Ctrl-C does, this function returns it immediately. The call then goes on in the background, and
/// aborting the job makes it fail.
pub(crate) fn interruptible<R: Send + 'static>(
    py: Python<'_>,
    call: impl FnOnce() -> Result<R> + Send + 'static,
) -> PyResult<R> {
    let (sender, mut receiver) = channel();
    let job = move || {
        // The receiver is gone if the wait was interrupted.
        let _ = sender.send(call());
    };
    run(Box::new(job)).map_err(|error| exception(py, error))?;
    loop {
        let receiver = &mut receiver;
        match py.detach(move || receiver.recv_timeout(SIGNAL_INTERVAL)) {
            Ok(result) => return result.map_err(|error| exception(py, error)),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(exception(py, Error::Panic("see the message on standard error".into())));
            }
        }
    }
}

/// Runs `call` on this thread, without the GIL. For calls that do not wait for other PEs.
pub(crate) fn brief<R: Send>(py: Python<'_>, call: impl FnOnce() -> Result<R> + Send) -> PyResult<R> {
    py.detach(call).map_err(|error| exception(py, error))
}

/// Runs a job on an idle thread, or on a new one. There are as many threads as there were jobs at the same time.
fn run(job: Job) -> Result<()> {
    let process = std::process::id();
    let idle = {
        let mut idle = lock(&IDLE);
        idle.retain(|worker| worker.process == process);
        idle.pop()
    };
    let job = match idle {
        None => job,
        // An idle thread waits for the job, so this fails only while the process exits.
        Some(worker) => match worker.jobs.send(job) {
            Ok(()) => return Ok(()),
            Err(returned) => returned.0,
        },
    };
    let (jobs, queue) = channel::<Job>();
    let worker = Worker { process, jobs };
    let work = move || {
        let mut job = job;
        loop {
            job();
            lock(&IDLE).push(worker.clone());
            let Ok(next) = queue.recv() else { return };
            job = next;
        }
    };
    std::thread::Builder::new().name("rushmem-call".into()).spawn(work).map_err(Error::Thread)?;
    Ok(())
}
