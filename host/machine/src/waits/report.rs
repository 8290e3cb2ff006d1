//! The part of a PE in the report of the waits, driven by its service thread.

use std::io::Write;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rushmem_base::{crowd_deadline, lock, wait_timeout};
use rushmem_bootstrap::{Bootstrap, PeerMessage};

use super::known::Known;
use super::live::LiveState;
use super::protocol::{Action, Cause, Message, Protocol};
use super::signal;

/// The first byte of every message about waits. Messages about queues and teams begin with other bytes.
const WAITS_MESSAGE: u8 = b'W';

/// The time that PE 0 waits for the answers of all PEs, in a job with few PEs.
const PATIENCE: Duration = Duration::from_millis(800);

/// Returns whether a message is about waits.
pub fn is_waits_message(mail: &PeerMessage) -> bool {
    mail.bytes.first() == Some(&WAITS_MESSAGE)
}

/// The report of the waits, as one PE takes part in it.
pub struct Waits {
    /// The waits of this PE.
    pub known: Known,
    patience: Duration,
    protocol: Mutex<Protocol>,
    changed: Condvar,
    n_pes: u32,
    /// The file for `rushmem top`, if the settings ask for one.
    live: Mutex<Option<LiveState>>,
}

impl Waits {
    /// Returns the part of a PE of a job of `n_pes` PEs; `local_pes` of them share this machine.
    pub fn new(known: Known, n_pes: u32, local_pes: u32) -> Arc<Self> {
        let patience = crowd_deadline(PATIENCE, local_pes);
        let protocol = Mutex::new(Protocol::new(known.pe(), n_pes, patience));
        Arc::new(Self { known, patience, protocol, changed: Condvar::new(), n_pes, live: Mutex::new(None) })
    }

    /// Shows the PE to `rushmem top` from now on.
    pub fn show(&self, job: u32) {
        *lock(&self.live) = LiveState::new(job, self.known.pe());
    }

    /// Ends what [`Waits::show`] began.
    pub fn hide(&self) {
        *lock(&self.live) = None;
    }

    /// Performs the steps that are due. `in_flight` describes the QPs with operations that are under way.
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

    /// Takes a message about waits.
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

    /// Asks for a print after a passed deadline, without a wait for it.
    pub fn ask(&self, bootstrap: &dyn Bootstrap) {
        let actions = lock(&self.protocol).ask(Cause::Deadline, Instant::now());
        self.perform(actions, bootstrap);
    }

    /// Lets PE 0 print the waits of the job after a passed deadline, and waits until it has. `wake` makes the service thread
    /// look.
    pub fn report_deadline(&self, bootstrap: &dyn Bootstrap, wake: impl Fn()) {
        let ended = lock(&self.protocol).ended;
        self.ask(bootstrap);
        wake();
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
                    // Nobody reads a closed standard error.
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
