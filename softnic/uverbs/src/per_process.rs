//! Variables whose object exists once per process. A forked child creates a new object, because it may inherit held
//! locks and lacks the parent's threads.

use std::sync::atomic::{AtomicPtr, Ordering};

/// A static variable that has a separate object in each process, across forks.
pub(crate) struct PerProcess<T>(AtomicPtr<Entry<T>>);

struct Entry<T> {
    pid: u32,
    object: T,
}

impl<T: Send + Sync> PerProcess<T> {
    pub(crate) const fn new() -> PerProcess<T> {
        PerProcess(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Returns the object, if [`PerProcess::current`] has created it in this process.
    pub(crate) fn existing(&self) -> Option<&'static T> {
        // SAFETY: null, or made by `Box::into_raw` in `current` and never freed.
        let entry: Option<&'static Entry<T>> = unsafe { self.0.load(Ordering::Acquire).as_ref() };
        entry.filter(|entry| entry.pid == std::process::id()).map(|entry| &entry.object)
    }

    /// Returns the object of this process, creating it if needed. It is never freed.
    pub(crate) fn current(&self, make: impl Fn() -> T) -> &'static T {
        loop {
            if let Some(object) = self.existing() {
                return object;
            }
            let found = self.0.load(Ordering::Acquire);
            let new = Box::into_raw(Box::new(Entry { pid: std::process::id(), object: make() }));
            match self.0.compare_exchange(found, new, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: made above, and never freed.
                Ok(_) => return unsafe { &(*new).object },
                // SAFETY: made above, and not shared yet.
                Err(_) => drop(unsafe { Box::from_raw(new) }),
            }
        }
    }
}
