//! Keeps the launches and streams that the program dropped without waiting for them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rushmem_base::lock;
use rushmem_machine::Event;

use super::{LaunchId, LaunchQueue};

/// The dropped launches and streams of a PE that may still be running.
#[derive(Default)]
pub(crate) struct DroppedWork {
    /// Whether `list` may have entries. Avoids the lock in the common case of an empty list.
    any: AtomicBool,
    list: Mutex<Vec<Dropped>>,
}

/// A dropped launch in the PE's own queue, with the event after it, or the queue of a dropped stream.
pub(crate) enum Dropped {
    Launch(LaunchId, Event),
    Stream(Arc<LaunchQueue>),
}

impl DroppedWork {
    pub(crate) fn add(&self, dropped: Dropped) {
        let mut list = lock(&self.list);
        list.push(dropped);
        self.any.store(true, Ordering::Release);
    }

    /// Removes each entry and calls `wait` for it. If another thread is doing so, returns after that thread's last
    /// `wait`.
    pub(crate) fn take_each(&self, wait: impl FnMut(Dropped)) {
        if self.any.load(Ordering::Acquire) {
            let mut list = lock(&self.list);
            list.drain(..).for_each(wait);
            self.any.store(false, Ordering::Release);
        }
    }
}
