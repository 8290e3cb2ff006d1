//! The worker threads that connect QPs.
//!
//! All PEs of a process share them. Steps for the same QP run on the same worker, in order; commands for different QPs
//! run in parallel.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, Weak};

use rushmem_base::lock;
use rushmem_error::{Error, Result};

/// Minimum number of worker threads. They mostly wait for firmware, not for a CPU.
const MIN_WORKERS: u32 = 4;
/// Maximum number of worker threads. Up to this, there is one per PE of the process: native kernels busy-wait on the
/// same CPUs, and a few workers among hundreds of such kernels would get too little time.
const MAX_WORKERS: u32 = 128;

type Step = Box<dyn FnOnce() + Send>;

/// The worker threads of this process that connect QPs. After the last handle is dropped, they finish the queued steps
/// and exit.
///
/// Dropping does not join them: the last handle may be dropped by a step, on a worker.
pub(super) struct Workers {
    queues: Vec<Sender<Step>>,
}

impl Workers {
    /// Returns a handle to the workers of this process. Starts them, for its `pes` PEs, if none are running.
    ///
    /// # Errors
    /// [`Error::Thread`] if a thread cannot start.
    pub(super) fn of_process(pes: u32) -> Result<Arc<Self>> {
        static WORKERS: Mutex<Weak<Workers>> = Mutex::new(Weak::new());
        let mut workers = lock(&WORKERS);
        if let Some(workers) = workers.upgrade() {
            return Ok(workers);
        }
        let started = Arc::new(Self::start(pes.clamp(MIN_WORKERS, MAX_WORKERS))?);
        *workers = Arc::downgrade(&started);
        Ok(started)
    }

    fn start(n: u32) -> Result<Self> {
        let start = |_| {
            let (queue, steps) = channel::<Step>();
            let run = move || steps.into_iter().for_each(|step| step());
            let thread = std::thread::Builder::new().name("rushmem-connect".into()).spawn(run);
            thread.map(|_| queue).map_err(Error::Thread)
        };
        Ok(Self { queues: (0..n).map(start).collect::<Result<_>>()? })
    }

    /// Queues a step of a connection. Steps with the same `key` run in order.
    pub(super) fn submit(&self, key: usize, step: impl FnOnce() + Send + 'static) {
        // The receiver is gone only if a step panicked, and the panic has been reported already.
        let _ = self.queues[key % self.queues.len()].send(Box::new(step));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_a_key_keep_their_order() {
        let workers = Workers::start(3).unwrap();
        let seen: Vec<_> = (0..10).map(|_| Arc::new(Mutex::new(Vec::new()))).collect();
        for step in 0..100 {
            for (key, seen) in seen.iter().enumerate() {
                let seen = Arc::clone(seen);
                workers.submit(key, move || lock(&seen).push(step));
            }
        }
        for (key, seen) in seen.iter().enumerate() {
            let (done, wait) = channel();
            workers.submit(key, move || done.send(()).unwrap());
            wait.recv().unwrap();
            assert_eq!(*lock(seen), (0..100).collect::<Vec<_>>());
        }
    }

    #[test]
    fn pes_of_a_process_share_workers() {
        let [a, b] = [1, 9].map(|pes| Workers::of_process(pes).unwrap());
        assert!(Arc::ptr_eq(&a, &b));
    }
}
