//! Whom an adapter's events concern.

use crate::events::Channel;
use rushmem_softnic::Event;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Who waits for completions of a CQ.
pub(crate) struct Waiter {
    /// The completion channel.
    pub(crate) channel: Arc<Channel>,
    /// What the program calls the CQ.
    pub(crate) user_handle: u64,
    /// Events sent so far.
    sent: AtomicU32,
}

impl Waiter {
    pub(crate) fn new(channel: Arc<Channel>, user_handle: u64) -> Waiter {
        Waiter { channel, user_handle, sent: AtomicU32::new(0) }
    }

    /// Tells that the CQ has completions.
    fn wake(&self) {
        if self.channel.send(&self.user_handle.to_ne_bytes()) {
            self.sent.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes back what has not been read; gives how many events have been.
    pub(crate) fn finish(&self) -> u32 {
        let own = self.user_handle.to_ne_bytes();
        let unread = self.channel.take_back(own.len(), |event| event == own);
        self.sent.load(Ordering::Relaxed).saturating_sub(unread)
    }
}

/// The waiters of an adapter, by CQ number.
#[derive(Default)]
pub(crate) struct Registry {
    cqs: Mutex<HashMap<u32, Arc<Waiter>>>,
}

impl Registry {
    fn cqs(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Arc<Waiter>>> {
        self.cqs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `waiter` hear of completions of a CQ.
    pub(crate) fn listen(&self, cqn: u32, waiter: Arc<Waiter>) {
        self.cqs().insert(cqn, waiter);
    }

    /// Ends that.
    pub(crate) fn forget(&self, cqn: u32) {
        self.cqs().remove(&cqn);
    }

    /// Passes an event of the adapter on.
    pub(crate) fn event(&self, event: Event) {
        match event {
            Event::Completion { cqn } => {
                if let Some(waiter) = self.cqs().get(&cqn) {
                    waiter.wake();
                }
            }
            other => tracing::debug!(?other, "event that nobody waits for"),
        }
    }
}
