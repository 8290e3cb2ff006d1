//! The search for waits that cannot end.
//!
//! A thread of the job looks at the waits from time to time. A wait may be out of date for a moment: its word has changed, and
//! the lane has not looked again. So the same waits must stay for a while before they count.
//!
//! A short deadline ends the waits before. They then count if they have stayed for half of it, and the job fails by it.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rushmem_sanitizer::Deadlock;

use super::Sanitizer;

/// The longest time between two looks.
const INTERVAL: Duration = Duration::from_millis(100);

/// The number of looks in the shorter of the two times, at least.
const LOOKS: u32 = 20;

/// The time for which the same waits must stay.
const STAY: Duration = Duration::from_secs(2);

impl Sanitizer {
    /// Looks for deadlocks until `job` closes. Ends the waits of all PEs if it finds one. `deadline` ends waits, too.
    pub(crate) fn look_for_deadlocks(&self, job: &Receiver<()>, deadline: Duration) {
        let short = STAY.min(deadline / 2);
        let (mut last, mut since) = (None, Instant::now());
        while job.recv_timeout(INTERVAL.min(short / LOOKS)) == Err(RecvTimeoutError::Timeout) {
            let found = self.lock().engine.deadlock();
            if found != last {
                (last, since) = (found, Instant::now());
                continue;
            }
            match found {
                Some(deadlock) if since.elapsed() >= STAY => return self.end_by(deadlock),
                Some(deadlock) if since.elapsed() >= short => self.suspect(deadlock),
                _ => {}
            }
        }
    }

    fn suspect(&self, deadlock: Deadlock) {
        let mut state = self.lock();
        if !state.has_failed {
            state.suspected = Some(deadlock);
        }
    }

    fn end_by(&self, deadlock: Deadlock) {
        let mut state = self.lock();
        if state.has_failed {
            return;
        }
        state.deadlock = Some(deadlock);
        let ends = std::mem::take(&mut state.ends);
        drop(state);
        ends.iter().for_each(|end| end.0("the sanitizer has found a deadlock"));
    }
}
