//! Memory of other libraries, which `register` makes symmetric.
#![allow(unsafe_code, reason = "registers memory that other libraries describe")]

use std::any::Any;
use std::sync::Arc;

use rushmem::{Buffer, MemoryLocation};

use crate::allocation::Place;
use crate::dtype::DType;

/// An array of another library.
pub(crate) struct Foreign {
    pub(crate) memory: Memory,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: DType,
}

/// The memory of an array of another library, as bytes.
pub(crate) struct Memory {
    location: MemoryLocation,
    bytes: usize,
    place: Place,
    owner: Arc<dyn Any + Send + Sync>,
}

impl Memory {
    /// # Safety
    /// The rules of [`Buffer`] hold for the bytes until `owner` is dropped.
    pub(crate) unsafe fn new(
        location: MemoryLocation,
        bytes: usize,
        gpu: u32,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        let place = match location {
            MemoryLocation::Host(_) => Place::Host,
            MemoryLocation::PageLocked(_) => Place::PageLocked,
            MemoryLocation::Gpu(_) => Place::Gpu(gpu),
        };
        Self { location, bytes, place, owner }
    }

    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// Returns what keeps the memory allocated.
    pub(crate) fn owner(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::clone(&self.owner)
    }
}

// SAFETY: an address range. The caller of `new` promised that any thread may use it.
unsafe impl Send for Memory {}
// SAFETY: see `Send`.
unsafe impl Sync for Memory {}

// SAFETY: the caller of `new` promised it.
unsafe impl Buffer for Memory {
    type Element = u8;
    fn location(&mut self) -> MemoryLocation {
        self.location
    }
    fn len(&self) -> usize {
        self.bytes
    }
}
