//! The file through which a running PE publishes its state to `rushmem top`.

use std::time::{Duration, Instant};

use rushmem_trace::{Live, LiveFile, PeWaits, Totals, now_ns};

/// Time between two updates of the file.
const INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct LiveState {
    file: LiveFile,
    job: u32,
    next: Instant,
}

impl LiveState {
    /// Creates the file of `pe`. Returns `None`, and logs why, if that fails.
    pub(super) fn new(job: u32, pe: u32) -> Option<Self> {
        match LiveFile::new(job, pe) {
            Ok(file) => Some(Self { file, job, next: Instant::now() }),
            Err(error) => {
                tracing::warn!("`rushmem top` does not see PE {pe}: {error}");
                None
            }
        }
    }

    /// Writes the state, if an update is due.
    pub(super) fn step(&mut self, now: Instant, n_pes: u32, state: impl FnOnce() -> (Totals, PeWaits)) {
        if now < self.next {
            return;
        }
        self.next = now + INTERVAL;
        let (totals, waits) = state();
        let live = Live::new(self.job, (waits.pe, n_pes), now_ns(), totals, waits);
        if let Err(error) = self.file.write(&live) {
            tracing::debug!("the state for `rushmem top` cannot be written: {error}");
        }
    }
}
