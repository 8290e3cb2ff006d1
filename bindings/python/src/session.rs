//! The PE of this process, from `init` to `finalize`.
#![allow(
    unsafe_code,
    reason = "keeps streams beside the PE that they borrow, and adopts streams of other libraries"
)]

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard, TryLockError};
use std::time::Duration;

use rushmem::{Error, Pe, Result, RunningPe, Stream};
use rushmem_base::lock;
use rushmem_error::call_site;

/// The session of this process, if it has been initialized and not finalized.
static CURRENT: Mutex<Option<Arc<Session>>> = Mutex::new(None);

/// A PE that may have been shut down. Calls hold a read lock while they use it.
pub(crate) struct Session(RwLock<Option<Started>>);

/// A running PE and the streams of other libraries that it has been used with.
pub(crate) struct Started {
    /// Streams by handle. They borrow `pe`, whatever their type says, and are dropped first.
    streams: Mutex<HashMap<usize, Arc<Stream<'static>>>>,
    /// Boxed, so it does not move while there are streams.
    pe: Box<RunningPe>,
}

impl Session {
    /// Starts the session of this process with `start`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if the process already has a session.
    pub(crate) fn start(start: impl FnOnce() -> Result<RunningPe>) -> Result<Arc<Self>> {
        let mut current = lock(&CURRENT);
        if current.is_some() {
            let what = "this process has already been initialized; call finalize() first";
            return Err(Error::misuse("init", what));
        }
        let started = Started { streams: Mutex::default(), pe: Box::new(start()?) };
        let session = Arc::new(Self(RwLock::new(Some(started))));
        *current = Some(Arc::clone(&session));
        Ok(session)
    }

    /// Runs `call` with the PE.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if the PE has been shut down.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&Started) -> Result<R>) -> Result<R> {
        let started = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let gone = || Error::misuse("rushmem", "the runtime has been finalized");
        // Errors contain no line of this crate. The traceback shows the user's.
        let _site = call_site::enter_foreign();
        call(started.as_ref().ok_or_else(gone)?)
    }

    /// Returns whether the PE has been shut down.
    pub(crate) fn is_finished(&self) -> bool {
        self.with(|_| Ok(())).is_err()
    }

    /// Waits until no call uses the PE. Does not queue for the lock: that would block later readers, such as the `finish` that
    /// interrupts the calls.
    fn when_unused(&self) -> RwLockWriteGuard<'_, Option<Started>> {
        loop {
            match self.0.try_write() {
                Ok(slot) => return slot,
                Err(TryLockError::Poisoned(error)) => return error.into_inner(),
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Shuts the PE down after all calls have returned. `outcome` is the reason to abort the job instead, if there is
    /// one: it interrupts the calls of other threads. Does nothing if the PE has been shut down.
    pub(crate) fn finish(&self, outcome: Result<(), String>) -> Result<()> {
        let mut slot = match (self.0.try_write(), &outcome) {
            (Ok(slot), _) => slot,
            (Err(_), reason) => {
                if let Err(reason) = reason {
                    // If there is no PE any more, there is nothing to abort.
                    let _ = self.with(|started| {
                        started.pe().abort(&Error::App(reason.clone().into()));
                        Ok(())
                    });
                }
                self.when_unused()
            }
        };
        let Some(Started { streams, pe }) = slot.take() else {
            drop(slot);
            self.wait_until_finished();
            return Ok(());
        };
        drop(slot);
        let _finished = Finished;
        drop(streams);
        pe.finish_with(outcome.map_err(|reason| Error::App(reason.into()).into()))
    }

    /// Waits for a `finish` on another thread, such as one that an interrupt has left in the background: the process must not
    /// end before it has told the other PEs.
    fn wait_until_finished(&self) {
        let is_current = || lock(&CURRENT).as_deref().is_some_and(|current| std::ptr::eq(current, self));
        while is_current() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Ends the session of this process when it is dropped.
struct Finished;

impl Drop for Finished {
    fn drop(&mut self) {
        *lock(&CURRENT) = None;
    }
}

impl Started {
    pub(crate) fn pe(&self) -> &Pe {
        &self.pe
    }

    /// Returns the stream with the `CUstream` `handle`, which the caller of the Python method keeps alive until
    /// `finalize`.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if kernels run natively.
    /// - [`Error::Cuda`] if the stream belongs to another GPU.
    pub(crate) fn stream(&self, handle: usize) -> Result<Arc<Stream<'_>>> {
        match lock(&self.streams).entry(handle) {
            Entry::Occupied(entry) => Ok(Arc::clone(entry.get()) as _),
            Entry::Vacant(entry) => {
                let raw = std::ptr::with_exposed_provenance_mut(handle);
                // SAFETY: the documentation of the Python methods demands that the stream exists until `finalize`.
                let stream = unsafe { self.pe().stream_from_raw(raw) }?;
                // SAFETY: only the lifetime changes. The PE is boxed and outlives `streams`, and this function lends
                // streams no longer than `self`.
                let stream = unsafe { std::mem::transmute::<Stream<'_>, Stream<'static>>(stream) };
                Ok(Arc::clone(entry.insert(Arc::new(stream))) as _)
            }
        }
    }
}
