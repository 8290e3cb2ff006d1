//! The search for waits that cannot end.
//!
//! A thread looks at the waits from time to time, in the process of the engine. A wait may be out of date for a moment: its
//! word has changed, and the lane has not looked again. So the same waits must stay for a while before they count.
//!
//! In other processes, the thread sends the requests that the process keeps back. So the engine knows their waits, too.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use rushmem_base::lock;
use rushmem_sanitizer::Deadlock;

use super::Sanitizer;
use super::link::Link;
use super::state::State;

/// The time between two looks.
const INTERVAL: Duration = Duration::from_millis(100);

/// The number of looks that must find the same waits.
const LOOKS: u32 = 20;

impl Sanitizer {
    /// Looks for deadlocks until `job` closes. Ends the waits of the job if it finds one.
    pub(crate) fn look_for_deadlocks(&self, job: &Receiver<()>) {
        match &self.link {
            Link::Here(state) => self.look(state, job),
            Link::There(client) => {
                while job.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    client.flush();
                }
            }
        }
    }

    fn look(&self, state: &Mutex<State>, job: &Receiver<()>) {
        let (mut last, mut looks) = (None, 0);
        while job.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let found = lock(state).engine.deadlock();
            looks = if found.is_some() && found == last { looks + 1 } else { 0 };
            match found {
                Some(deadlock) if looks >= LOOKS => return self.end_by(state, deadlock),
                found => last = found,
            }
        }
    }

    /// Ends the waits of the PEs of this process. Other processes then lose a PE, which ends their waits.
    fn end_by(&self, state: &Mutex<State>, deadlock: Deadlock) {
        let mut state = lock(state);
        if state.has_failed {
            return;
        }
        state.deadlock = Some(deadlock);
        drop(state);
        let ends = std::mem::take(&mut *lock(&self.ends));
        ends.iter().for_each(|end| end.0("the sanitizer has found a deadlock"));
    }
}
