//! Hands lost peers to the one who wants to know, from a thread of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::OnPeerLost;
use crate::error::{Error, Failure, PeerLost};
use rushmem_base::lock;

/// How long a call is held back for a process that is about to end.
const HOLD: Duration = Duration::from_secs(10);

pub(crate) struct Watch {
    sender: Sender<PeerLost>,
    receiver: Mutex<Option<Receiver<PeerLost>>>,
    closed: Arc<AtomicBool>,
    /// Whether the callback knows of the end of the job, and has returned.
    exit_told: Arc<(Mutex<bool>, Condvar)>,
}

impl Watch {
    pub(crate) fn new() -> Watch {
        let (sender, receiver) = channel();
        let receiver = Mutex::new(Some(receiver));
        Watch { sender, receiver, closed: Arc::default(), exit_told: Arc::default() }
    }

    /// A sender that may be kept elsewhere; the thread of [`Watch::on_peer_lost`] ends with the last of them.
    pub(crate) fn sender(&self) -> Sender<PeerLost> {
        self.sender.clone()
    }

    pub(crate) fn tell(&self, lost: PeerLost) {
        // Nobody listens any more once the watching thread has seen `closed`.
        let _ = self.sender.send(lost);
    }

    /// No callback begins after this.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// A call that fails because a PE ends the whole job does not return before the callback has had its chance to end
    /// this process: its caller might end it with another code.
    pub(crate) fn hold(&self, outcome: &Error) {
        let Error::Failed(Failure::Lost(PeerLost { exit: Some(_), .. })) = outcome else { return };
        let watched = lock(&self.receiver).is_none();
        if watched && !self.closed.load(Ordering::SeqCst) {
            let (told, changed) = &*self.exit_told;
            // What it holds is of no use any more: either way the call returns.
            let _ = changed.wait_timeout_while(lock(told), HOLD, |told| !*told);
        }
    }

    pub(crate) fn on_peer_lost(&self, mut callback: OnPeerLost) -> Result<(), Error> {
        let receiver = lock(&self.receiver).take().ok_or(Error::Watched)?;
        let (closed, exit_told) = (self.closed.clone(), self.exit_told.clone());
        let body = move || {
            for lost in receiver {
                if closed.load(Ordering::SeqCst) {
                    break;
                }
                let exit = lost.exit.is_some();
                callback(lost);
                if exit {
                    *lock(&exit_told.0) = true;
                    exit_told.1.notify_all();
                }
            }
        };
        let name = "rushmem-watch";
        let thread = std::thread::Builder::new().name(name.into()).spawn(body);
        thread.map(drop).map_err(|source| Error::Thread { name, source })
    }
}
