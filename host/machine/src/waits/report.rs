//! Reports of what the PEs wait for: connects the protocol to the bootstrap. Each PE's service thread drives its part.

use std::io::Write;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rushmem_base::{crowd_deadline, lock, wait_timeout};
use rushmem_bootstrap::{Bootstrap, PeerMessage};

use super::known::Known;
use super::live::LiveState;
use super::protocol::{Action, Cause, Message, Protocol};
use super::signal;

/// First byte of every message about waits. Messages about queues and teams start with other bytes.
const WAITS_MESSAGE: u8 = b'W';

/// How long PE 0 waits for the answers of all PEs, before scaling by the number of PEs per core.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(800);

/// Returns whether a bootstrap message belongs to the protocol that collects waits.
pub fn is_waits_message(mail: &PeerMessage) -> bool {
    mail.bytes.first() == Some(&WAITS_MESSAGE)
}

/// Reports what the PEs of the job wait for. Each PE has one instance.
pub struct Waits {
    /// What this PE waits for.
    pub known: Known,
    patience: Duration,
    protocol: Mutex<Protocol>,
    changed: Condvar,
    n_pes: u32,
    /// The file for `rushmem top`, if the settings ask for one.
    live: Mutex<Option<LiveState>>,
}

impl Waits {
    /// Creates the state of one PE in a job of `n_pes` PEs, `local_pes` of which share this machine.
    pub fn new(known: Known, n_pes: u32, local_pes: u32) -> Arc<Self> {
        let patience = crowd_deadline(ANSWER_TIMEOUT, local_pes);
        let protocol = Mutex::new(Protocol::new(known.pe(), n_pes, patience));
        Arc::new(Self { known, patience, protocol, changed: Condvar::new(), n_pes, live: Mutex::new(None) })
    }

    /// Starts to publish the state of the PE to `rushmem top`.
    pub fn show(&self, job: u32) {
        *lock(&self.live) = LiveState::new(job, self.known.pe());
    }

    /// Removes the file created by [`Waits::show`].
    pub fn hide(&self) {
        *lock(&self.live) = None;
    }

    /// Performs all actions that are due. The service thread calls it regularly. `in_flight` describes each QP with
    /// outstanding operations.
    pub fn step(&self, bootstrap: &dyn Bootstrap, in_flight: &dyn Fn() -> Vec<String>) {
        let now = Instant::now();
        let mut actions = Vec::new();
        {
            let mut protocol = lock(&self.protocol);
            if signal::take() {
                actions.extend(protocol.ask(Cause::Signal, now));
            }
            actions.extend(protocol.step(&|cause| self.known.waits(cause, in_flight()), now));
        }
        self.perform(actions, bootstrap);
        if let Some(live) = &mut *lock(&self.live) {
            let state = || (self.known.totals(), self.known.waits(Cause::Signal, in_flight()));
            live.step(now, self.n_pes, state);
        }
    }

    /// Handles a message for which [`is_waits_message`] is true.
    pub fn receive(&self, mail: &PeerMessage, bootstrap: &dyn Bootstrap) {
        let text = mail.bytes.get(1..).unwrap_or_default();
        match serde_json::from_slice::<Message>(text) {
            Ok(message) => {
                let actions = lock(&self.protocol).receive(mail.from, message, Instant::now());
                self.perform(actions, bootstrap);
            }
            Err(error) => tracing::error!("PE {} sent a malformed message about waits: {error}", mail.from),
        }
    }

    /// Requests a report because a deadline has passed, without waiting for it.
    pub fn ask(&self, bootstrap: &dyn Bootstrap) {
        let actions = lock(&self.protocol).ask(Cause::Deadline, Instant::now());
        self.perform(actions, bootstrap);
    }

    /// Requests a report because a deadline has passed, and waits until PE 0 has printed it. `wake` must make the
    /// service thread call [`Waits::step`].
    pub fn report_deadline(&self, bootstrap: &dyn Bootstrap, wake: impl Fn()) {
        let ended = lock(&self.protocol).ended;
        self.ask(bootstrap);
        wake();
        // A PE that gives up on PE 0 prints its own waits after two timeouts; the third leaves time for that.
        let until = Instant::now() + 3 * self.patience;
        let mut protocol = lock(&self.protocol);
        while protocol.ended == ended && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            protocol = wait_timeout(&self.changed, protocol, left);
        }
    }

    fn perform(&self, actions: Vec<Action>, bootstrap: &dyn Bootstrap) {
        for action in actions {
            match action {
                Action::Print(waits) => {
                    // A closed standard error is not worth reporting: nobody would read it.
                    let _ = std::io::stderr().write_all(format!("rushmem: {waits}").as_bytes());
                }
                Action::Send(to, message) => {
                    let text = serde_json::to_vec(&message).map_err(|error| error.to_string());
                    let bytes = text.map(|text| [&[WAITS_MESSAGE], &*text].concat());
                    let sent =
                        bytes.and_then(|bytes| bootstrap.send(to, &bytes).map_err(|error| error.to_string()));
                    if let Err(error) = sent {
                        tracing::debug!("cannot send a message about waits to PE {to}: {error}");
                    }
                }
            }
        }
        self.changed.notify_all();
    }
}
