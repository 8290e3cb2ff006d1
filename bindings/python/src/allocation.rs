//! Symmetric memory that arrays refer to, and the views of it that other libraries hold.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use rushmem::{Error, MemoryGuard, Result};
use rushmem_base::lock;
use rushmem_device::SymSlice;

use crate::session::Session;

/// Where the memory of an array is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Host,
    /// Host memory that the GPU with this ordinal can access.
    PageLocked,
    Gpu(u32),
}

/// A symmetric object: one from the heap, or a window.
pub(crate) struct Allocation {
    session: Arc<Session>,
    object: SymSlice<u8>,
    place: Place,
    use_: Mutex<Use>,
}

/// Who uses an allocation.
struct Use {
    /// Descriptions of the views, by ID.
    views: BTreeMap<u64, String>,
    next_view: u64,
    /// Guards of the memory. `None` once it has been freed.
    kept: Option<Kept>,
}

/// Keeps the memory accessible after the runtime has been finalized. Fields drop in order.
pub(crate) struct Kept {
    /// Of an object with bytes.
    pub(crate) _guard: Option<MemoryGuard>,
    /// Owner of a window's memory.
    pub(crate) owner: Option<Arc<dyn Any + Send + Sync>>,
}

impl Allocation {
    pub(crate) fn new(session: Arc<Session>, object: SymSlice<u8>, place: Place, kept: Kept) -> Arc<Self> {
        let use_ = Use { views: BTreeMap::new(), next_view: 0, kept: Some(kept) };
        Arc::new(Self { session, object, place, use_: Mutex::new(use_) })
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn object(&self) -> SymSlice<u8> {
        self.object
    }

    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// Returns whether the memory belongs to another library.
    pub(crate) fn is_foreign(&self) -> bool {
        lock(&self.use_).kept.as_ref().is_some_and(|kept| kept.owner.is_some())
    }

    /// Fails if the memory has been freed.
    pub(crate) fn check(&self) -> Result<()> {
        match lock(&self.use_).kept {
            Some(_) => Ok(()),
            None => Err(freed()),
        }
    }

    /// Registers a view of the memory, for as long as the lease exists.
    pub(crate) fn lend(self: &Arc<Self>, description: String) -> Result<Lease> {
        let mut used = lock(&self.use_);
        if used.kept.is_none() {
            return Err(freed());
        }
        let id = used.next_view;
        used.next_view += 1;
        used.views.insert(id, description);
        Ok(Lease { memory: Arc::clone(self), id })
    }

    /// Frees the memory with `free`, unless there are views. Nobody can create a view during the call.
    pub(crate) fn free(&self, call: &'static str, free: impl FnOnce() -> Result<()>) -> Result<()> {
        let taken = {
            let mut used = lock(&self.use_);
            if !used.views.is_empty() {
                let all: Vec<&str> = used.views.values().map(String::as_str).collect();
                let what = format!("views of the array still exist ({}); delete them first", all.join(", "));
                return Err(Error::misuse(call, what));
            }
            used.kept.take().ok_or_else(freed)?
        };
        let outcome = free();
        if outcome.is_err() {
            lock(&self.use_).kept = Some(taken);
        }
        outcome
    }
}

fn freed() -> Error {
    Error::misuse("rushmem", "the array has been freed")
}

/// A view of an array that another library holds. Keeps the memory allocated.
#[pyclass(frozen, module = "rushmem._rushmem")]
pub(crate) struct Lease {
    memory: Arc<Allocation>,
    id: u64,
}

impl Drop for Lease {
    fn drop(&mut self) {
        lock(&self.memory.use_).views.remove(&self.id);
    }
}
