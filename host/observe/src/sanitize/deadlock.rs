//! Detects deadlocks: waits of a job's PEs that can never be satisfied.
//!
//! A thread in the process of the sanitizer engine checks the waits periodically. A wait may be stale for a moment, if
//! its word has changed and the waiting thread has not read it again. So the same waits must persist for a while before
//! they are reported.
//!
//! A short deadline may abort the waits earlier. In that case they are reported if they have persisted for half of the
//! deadline and the job fails because of it.
//!
//! If PEs are processes, a thread in each of them sends the buffered requests periodically, so the engine knows its
//! waits.

use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rushmem_base::lock;
use rushmem_sanitizer::{Deadlock, JobState};

use super::Sanitizer;

/// Maximum time between two checks for deadlocks.
const INTERVAL: Duration = Duration::from_millis(100);

/// Minimum number of checks during the time for which the same waits must persist.
const MIN_CHECKS: u32 = 20;

/// How long the same waits must persist before they are reported as a deadlock.
const MIN_DURATION: Duration = Duration::from_secs(2);

impl Sanitizer {
    /// Checks for deadlocks until the sender of `job` is dropped, and aborts the waits of the job if it finds one.
    ///
    /// `deadline` is the time after which a wait fails by itself.
    pub fn look_for_deadlocks(&self, job: &Receiver<()>, deadline: Duration) {
        if let Some(engine) = &self.engine {
            return self.look(engine, job, deadline);
        }
        while job.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
            self.link.flush();
        }
    }

    fn look(&self, state: &Mutex<JobState>, job: &Receiver<()>, deadline: Duration) {
        let short = MIN_DURATION.min(deadline / 2);
        let (mut last, mut since, mut is_suspected) = (None, Instant::now(), false);
        while job.recv_timeout(INTERVAL.min(short / MIN_CHECKS)) == Err(RecvTimeoutError::Timeout) {
            self.link.flush();
            let found = lock(state).engine.deadlock();
            if found != last {
                (last, since, is_suspected) = (found, Instant::now(), false);
                continue;
            }
            match found {
                Some(deadlock) if since.elapsed() >= MIN_DURATION => return self.end_by(state, deadlock),
                Some(deadlock) if since.elapsed() >= short && !is_suspected => {
                    suspect(state, deadlock);
                    is_suspected = true;
                }
                _ => {}
            }
        }
    }

    /// Records a deadlock and aborts the waits of all PEs in this process. Other processes then lose a PE, which aborts
    /// their waits.
    fn end_by(&self, state: &Mutex<JobState>, mut deadlock: Deadlock) {
        let mut state = lock(state);
        if state.has_failed {
            return;
        }
        state.engine.explain(&mut deadlock);
        state.deadlock = Some(deadlock);
        drop(state);
        self.is_over.store(true, Ordering::Relaxed);
        let ends = std::mem::take(&mut *lock(&self.ends));
        ends.iter().for_each(|end| end.0("the sanitizer has found a deadlock"));
    }
}

/// Records a deadlock that is reported only if a wait later exceeds its deadline.
fn suspect(state: &Mutex<JobState>, mut deadlock: Deadlock) {
    let mut state = lock(state);
    if !state.has_failed {
        state.engine.explain(&mut deadlock);
        state.suspected = Some(deadlock);
    }
}
