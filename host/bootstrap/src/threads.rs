//! The bootstrap of a job whose PEs are threads of one process. It needs no sockets.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::client::{allgather_call, barrier_call, exit_reason};
use crate::epoch::Epoch;
use crate::error::{Error, Failure};
use crate::job::{FORM_EPOCH, JobState, Progress};
use crate::messages::{Inbox, OnMessage, PeerMessage};
use crate::traffic::{Meter, Traffic};
use crate::watch::{Report, Watch};
use crate::wire::{MESSAGE_LIMIT, part_limit};
use crate::{Bootstrap, Gathered, OnPeerLost};
use rushmem_base::{lock, wait_timeout};

/// One PE of a job with one thread of this process per PE.
///
/// Dropping the connection without [`Bootstrap::finish`] counts as the loss of the PE. That is how other PEs learn that
/// a thread has panicked.
pub struct Threads {
    pe: u32,
    n_pes: u32,
    timeout: Duration,
    shared: Arc<Shared>,
    watch: Watch,
    /// Locked during each collective call, so concurrent callers take turns and the PE is in one call at a time.
    calls: Mutex<()>,
    meter: Meter,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    inboxes: Vec<Inbox>,
}

struct State {
    job: JobState,
    /// Number of completed collective calls. A PE lags behind by at most one, since the next call needs all PEs.
    completed: u64,
    /// Contributions of all PEs to the last completed call.
    gathered: Gathered,
    /// For each PE, the channel that reports lost PEs to it. `None` once the PE has left.
    watchers: Vec<Option<Sender<Report>>>,
}

impl Threads {
    /// Creates a job. Returns the connections of its PEs in PE order, one for each thread.
    ///
    /// `timeout` is the default deadline of calls.
    pub fn job(n_pes: u32, timeout: Duration) -> Vec<Threads> {
        let mut job = JobState::new(n_pes, None);
        for pe in 0..n_pes {
            let joined = job.join(pe, n_pes, "", "a thread");
            debug_assert_eq!(joined, Ok(()));
        }
        let watches: Vec<Watch> = (0..n_pes).map(|_| Watch::new(n_pes)).collect();
        let state = State {
            job,
            completed: 0,
            gathered: Arc::default(),
            watchers: watches.iter().map(|watch| Some(watch.sender())).collect(),
        };
        let inboxes = (0..n_pes).map(|_| Inbox::new()).collect();
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), inboxes });
        let pe = |(pe, watch)| Threads {
            pe,
            n_pes,
            timeout,
            shared: shared.clone(),
            watch,
            calls: Mutex::new(()),
            meter: Meter::default(),
        };
        (0..n_pes).zip(watches).map(pe).collect()
    }

    fn gather(&self, call: String, mine: &[u8], within: Duration) -> Result<Gathered, Error> {
        let limit = part_limit(self.n_pes);
        if mine.len() > limit {
            return Err(Error::TooLarge { call, bytes: mine.len(), limit });
        }
        let _one_at_a_time = lock(&self.calls);
        let mut state = lock(&self.shared.state);
        if state.watchers[self.pe as usize].is_none() {
            return Err(Error::Left { call });
        }
        let before = state.completed;
        match state.job.contribute(self.pe, &call, mine.to_vec()) {
            Progress::Waiting | Progress::Formed(_) => {}
            Progress::Done(parts) => {
                state.gathered = Arc::new(parts);
                state.completed += 1;
                self.shared.changed.notify_all();
            }
            Progress::Failed(failure) => {
                self.shared.changed.notify_all();
                return Err(failure.into());
            }
        }
        // `gathered` cannot be overwritten before this PE has read it: the next call cannot complete without this PE.
        let gathered = |state: &State| (state.completed != before).then(|| Arc::clone(&state.gathered));
        self.outcome(state, &call, within, gathered, JobState::failure)
    }

    /// Waits for the outcome of this PE's call: what `take` returns, or the job's `failure`.
    fn outcome<T>(
        &self,
        mut state: MutexGuard<'_, State>,
        call: &str,
        within: Duration,
        take: impl Fn(&State) -> Option<T>,
        failure: impl Fn(&JobState) -> Option<&Failure>,
    ) -> Result<T, Error> {
        let begin = Instant::now();
        loop {
            if let Some(outcome) = take(&state) {
                return Ok(outcome);
            }
            if let Some(failure) = failure(&state.job) {
                return Err(failure.clone().into());
            }
            // Another thread may have ended this PE, and the others may have formed an epoch since.
            if state.watchers[self.pe as usize].is_none() {
                return Err(Error::Left { call: call.into() });
            }
            let left = within.saturating_sub(begin.elapsed());
            // `give_up` returns `None` if the call has completed just now; the loop then returns its result.
            if left.is_zero()
                && let Some(failure) = state.job.give_up(self.pe, within)
            {
                self.shared.changed.notify_all();
                return Err(failure.into());
            }
            state = wait_timeout(&self.shared.changed, state, left);
        }
    }

    fn agree_on_epoch(&self, within: Duration) -> Result<Epoch, Error> {
        let _one_at_a_time = lock(&self.calls);
        let mut state = lock(&self.shared.state);
        if state.watchers[self.pe as usize].is_none() {
            return Err(Error::Left { call: FORM_EPOCH.into() });
        }
        let before = state.job.epoch().number;
        let progress = state.job.form_epoch(self.pe);
        if progress != Progress::Waiting {
            self.shared.changed.notify_all();
        }
        // The epoch cannot be replaced before this PE has read it: the next one cannot be formed without this PE.
        let formed = |state: &State| Some(state.job.epoch()).filter(|epoch| epoch.number != before).cloned();
        self.outcome(state, FORM_EPOCH, within, formed, JobState::final_failure)
    }

    /// Leaves the job. With a `reason`, the other PEs see this PE as lost; without one, it has finished.
    fn leave(&self, reason: Option<&str>, exit: Option<u8>) {
        self.watch.close();
        self.shared.inboxes[self.pe as usize].close();
        let mut state = lock(&self.shared.state);
        if state.watchers[self.pe as usize].take().is_none() {
            return;
        }
        match reason {
            None => drop(state.job.finish(self.pe)),
            Some(reason) => {
                if let Some((lost, _)) = state.job.lose(self.pe, reason, exit) {
                    for watcher in state.watchers.iter().flatten() {
                        // This fails if the PE has dropped its receiver in the meantime.
                        let _ = watcher.send(Report::Lost(lost.clone()));
                    }
                }
            }
        }
        self.shared.changed.notify_all();
    }
}

impl Bootstrap for Threads {
    fn pe(&self) -> u32 {
        self.pe
    }

    fn n_pes(&self) -> u32 {
        self.n_pes
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn traffic(&self) -> Traffic {
        self.meter.read()
    }

    fn allgather_within(&self, tag: &str, mine: &[u8], within: Duration) -> Result<Gathered, Error> {
        self.gather(allgather_call(tag), mine, within)
            .inspect(|parts| self.meter.call(parts))
            .inspect_err(|error| self.watch.wait_for_exit_callback(error))
    }

    fn barrier_within(&self, tag: &str, within: Duration) -> Result<(), Error> {
        let gathered = self.gather(barrier_call(tag), &[], within);
        gathered
            .map(|parts| self.meter.call(&parts))
            .inspect_err(|error| self.watch.wait_for_exit_callback(error))
    }

    fn form_epoch(&self, _admits: bool, within: Duration) -> Result<Epoch, Error> {
        self.agree_on_epoch(within)
            .inspect(|_| {
                self.meter.call(&[]);
                self.watch.wait_for_callback();
            })
            .inspect_err(|error| self.watch.wait_for_exit_callback(error))
    }

    fn abort(&self, reason: &str) {
        self.leave(Some(&format!("aborted: {reason}")), None);
    }

    fn exit(&self, code: u8) {
        self.leave(Some(&exit_reason(code)), Some(code));
    }

    fn on_peer_lost(&self, callback: OnPeerLost) -> Result<(), Error> {
        self.watch.on_peer_lost(callback)
    }

    fn send(&self, to: u32, bytes: &[u8]) -> Result<(), Error> {
        let call = || format!("message to PE {to}");
        if bytes.len() > MESSAGE_LIMIT {
            return Err(Error::TooLarge { call: call(), bytes: bytes.len(), limit: MESSAGE_LIMIT });
        }
        let inbox = self.shared.inboxes.get(to as usize).ok_or(Error::NoPe { pe: to, n_pes: self.n_pes })?;
        if lock(&self.shared.state).watchers[self.pe as usize].is_none() {
            return Err(Error::Left { call: call() });
        }
        self.meter.message(bytes);
        inbox.deliver(PeerMessage { from: self.pe, bytes: bytes.to_vec() });
        Ok(())
    }

    fn on_message(&self, callback: OnMessage) -> Result<(), Error> {
        self.shared.inboxes[self.pe as usize].on_message(callback)
    }

    fn finish(&self) -> Result<(), Error> {
        self.leave(None, None);
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let reason =
            if std::thread::panicking() { "its thread panicked" } else { "it left without finish()" };
        self.leave(Some(reason), None);
    }
}
