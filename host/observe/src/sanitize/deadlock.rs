//! The search for waits that cannot end.
//!
//! A thread looks at the waits from time to time, in the process of the engine. A wait may be out of date for a moment: its
//! word has changed, and the lane has not looked again. So the same waits must stay for a while before they count.
//!
//! A short deadline ends the waits before. They then count if they have stayed for half of it, and the job fails by it.
//!
//! If PEs are processes, the thread of each sends the requests that the process keeps back. So the engine knows its waits.

use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rushmem_base::lock;
use rushmem_sanitizer::{Deadlock, JobState};

use super::Sanitizer;

/// The longest time between two looks.
const INTERVAL: Duration = Duration::from_millis(100);

/// The number of looks in the shorter of the two times, at least.
const LOOKS: u32 = 20;

/// The time for which the same waits must stay.
const STAY: Duration = Duration::from_secs(2);

impl Sanitizer {
    /// Looks for deadlocks until `job` closes. Ends the waits of the job if it finds one. `deadline` ends waits, too.
    pub fn look_for_deadlocks(&self, job: &Receiver<()>, deadline: Duration) {
        if let Some(engine) = &self.engine {
            return self.look(engine, job, deadline);
        }
        while job.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
            self.link.flush();
        }
    }

    fn look(&self, state: &Mutex<JobState>, job: &Receiver<()>, deadline: Duration) {
        let short = STAY.min(deadline / 2);
        let (mut last, mut since, mut is_suspected) = (None, Instant::now(), false);
        while job.recv_timeout(INTERVAL.min(short / LOOKS)) == Err(RecvTimeoutError::Timeout) {
            self.link.flush();
            let found = lock(state).engine.deadlock();
            if found != last {
                (last, since, is_suspected) = (found, Instant::now(), false);
                continue;
            }
            match found {
                Some(deadlock) if since.elapsed() >= STAY => return self.end_by(state, deadlock),
                Some(deadlock) if since.elapsed() >= short && !is_suspected => {
                    suspect(state, deadlock);
                    is_suspected = true;
                }
                _ => {}
            }
        }
    }

    /// Ends the waits of the PEs of this process. Other processes then lose a PE, which ends their waits.
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

/// Keeps a deadlock in case the deadline of a wait ends the job.
fn suspect(state: &Mutex<JobState>, mut deadlock: Deadlock) {
    let mut state = lock(state);
    if !state.has_failed {
        state.engine.explain(&mut deadlock);
        state.suspected = Some(deadlock);
    }
}
