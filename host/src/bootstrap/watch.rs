//! Hands lost peers to the one who wants to know, from a thread of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::OnPeerLost;
use super::error::{Error, PeerLost};

/// Locks also what a panicking thread left: all our states are whole between statements.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) struct Watch {
    sender: Sender<PeerLost>,
    receiver: Mutex<Option<Receiver<PeerLost>>>,
    closed: Arc<AtomicBool>,
}

impl Watch {
    pub(super) fn new() -> Watch {
        let (sender, receiver) = channel();
        Watch { sender, receiver: Mutex::new(Some(receiver)), closed: Arc::default() }
    }

    /// A sender that may be kept elsewhere; the thread of [`Watch::on_peer_lost`] ends with the last of them.
    pub(super) fn sender(&self) -> Sender<PeerLost> {
        self.sender.clone()
    }

    pub(super) fn tell(&self, lost: PeerLost) {
        // Nobody listens any more once the watching thread has seen `closed`.
        let _ = self.sender.send(lost);
    }

    /// No callback begins after this.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub(super) fn on_peer_lost(&self, mut callback: OnPeerLost) -> Result<(), Error> {
        let receiver = lock(&self.receiver).take().ok_or(Error::Watched)?;
        let closed = self.closed.clone();
        let body = move || {
            for lost in receiver {
                if closed.load(Ordering::SeqCst) {
                    break;
                }
                callback(lost);
            }
        };
        let name = "rushmem-watch";
        let thread = std::thread::Builder::new().name(name.into()).spawn(body);
        thread.map(drop).map_err(|source| Error::Thread { name, source })
    }
}
