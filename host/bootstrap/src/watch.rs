//! Reports lost PEs to the callback of a PE, on a dedicated thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::OnPeerLost;
use crate::error::{Error, Failure, PeerLost};
use rushmem_base::{crowd_deadline, lock};

/// How long a failed call waits for the callback to exit the process, before scaling by the number of PEs.
const CALLBACK_WAIT: Duration = Duration::from_secs(10);

pub(crate) enum Report {
    Lost(PeerLost),
    /// Drops the sender, once the callback has handled all earlier losses.
    Handled(#[expect(dead_code, reason = "it is only dropped")] Sender<()>),
}

/// Queue of lost PEs that one PE's callback has yet to handle.
pub(crate) struct Watch {
    sender: Sender<Report>,
    receiver: Mutex<Option<Receiver<Report>>>,
    closed: Arc<AtomicBool>,
    /// Whether the callback was told that a PE exits the whole job, and has returned.
    exit_reported: Arc<(Mutex<bool>, Condvar)>,
    /// How long a failed call waits for the callback to exit the process: `CALLBACK_WAIT`, scaled by the number of PEs.
    wait: Duration,
}

impl Watch {
    /// Creates the queue of a PE in a job of `n_pes` PEs.
    pub(crate) fn new(n_pes: u32) -> Watch {
        let (sender, receiver) = channel();
        let receiver = Mutex::new(Some(receiver));
        Watch {
            sender,
            receiver,
            closed: Arc::default(),
            exit_reported: Arc::default(),
            wait: crowd_deadline(CALLBACK_WAIT, n_pes),
        }
    }

    /// Returns another sender for reports of lost PEs. The thread of [`Watch::on_peer_lost`] runs until all senders are
    /// dropped.
    pub(crate) fn sender(&self) -> Sender<Report> {
        self.sender.clone()
    }

    pub(crate) fn report(&self, lost: PeerLost) {
        // This fails if the callback's thread has seen `closed` and returned.
        let _ = self.sender.send(Report::Lost(lost));
    }

    /// Waits until the callback, if there is one, has handled all losses reported so far.
    pub(crate) fn wait_for_callback(&self) {
        if lock(&self.receiver).is_some() {
            return;
        }
        let (handled, wait) = channel();
        // Both fail once the callback's thread has returned or the marker is dropped.
        let _ = self.sender.send(Report::Handled(handled));
        let _ = wait.recv();
    }

    /// Stops reports of lost PEs. No callback starts after this, but one may still be running.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// If `outcome` says that a PE exits the whole job, waits for the callback.
    ///
    /// The callback exits this process with the code of that PE. Without the wait, the caller of the failed call could
    /// exit with another code first.
    pub(crate) fn wait_for_exit_callback(&self, outcome: &Error) {
        let Error::Failed(Failure::Lost(PeerLost { exit: Some(_), .. })) = outcome else { return };
        let watched = lock(&self.receiver).is_none();
        if watched && !self.closed.load(Ordering::SeqCst) {
            let (reported, changed) = &*self.exit_reported;
            // The call fails either way, so it does not matter whether the wait timed out.
            let _ = changed.wait_timeout_while(lock(reported), self.wait, |reported| !*reported);
        }
    }

    pub(crate) fn on_peer_lost(&self, mut callback: OnPeerLost) -> Result<(), Error> {
        let receiver = lock(&self.receiver).take().ok_or(Error::CallbackExists)?;
        let (closed, exit_reported) = (self.closed.clone(), self.exit_reported.clone());
        let body = move || {
            for report in receiver {
                if closed.load(Ordering::SeqCst) {
                    break;
                }
                let Report::Lost(lost) = report else { continue };
                let exit = lost.exit.is_some();
                callback(lost);
                if exit {
                    *lock(&exit_reported.0) = true;
                    exit_reported.1.notify_all();
                }
            }
        };
        let name = "rushmem-watch";
        let thread = std::thread::Builder::new().name(name.into()).spawn(body);
        thread.map(drop).map_err(|source| Error::Thread { name, source })
    }
}
