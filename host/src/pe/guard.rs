//! Memory that stays accessible when its PE has been shut down, for libraries that lend it to others.

use std::sync::Arc;

use bytemuck::Pod;
use rushmem_device::LocalBuffer;
use rushmem_error::call_site;
use rushmem_machine::Region;
use rushmem_memory::misuse;
use rushmem_memory::p2p::{MappedHeaps, PeerMapping};

use super::Pe;
#[cfg(doc)]
use crate::Error;
use crate::Result;

/// Keeps the memory of a symmetric object accessible. [`Pe::keep`] creates it.
#[must_use = "dropping the guard may free the memory"]
pub struct MemoryGuard {
    region: Region,
    _heaps: Option<Arc<MappedHeaps>>,
    _segment: Option<Arc<PeerMapping>>,
}

// Libraries drop guards on any thread.
const _: () = {
    const fn any_thread<T: Send + Sync>() {}
    any_thread::<MemoryGuard>();
};

impl MemoryGuard {
    /// Returns whether the memory was allocated on a GPU, rather than on the host or by the application.
    pub fn is_on_gpu(&self) -> bool {
        self.region.gpu.is_some()
    }
}

/// # Memory lent to other libraries
impl Pe {
    /// Keeps this PE's copy of `object`, and the copies of P2P peers, at their addresses until the guard is dropped, even
    /// after the PE has been shut down. Not collective.
    ///
    /// For language bindings that pass the addresses of [`Pe::address`] and [`Pe::ptr`] to other libraries. The guard does
    /// not prevent [`Pe::free`], after which the memory may become part of another object. It does not keep the
    /// application's own memory either, such as the buffer of a window.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if the object has been freed.
    #[track_caller]
    pub fn keep<T: Pod>(&self, object: impl LocalBuffer<T> + std::fmt::Debug) -> Result<MemoryGuard> {
        let _site = call_site::enter();
        let handle = object.handle();
        let region = self.memory.locate(handle).map_err(|why| misuse("keep", object, why))?.region;
        Ok(match self.memory.keep_mapped(handle.offset) {
            Some(segment) => MemoryGuard { region, _heaps: None, _segment: segment },
            None => MemoryGuard { region, _heaps: self.peer_map.keep_mapped(), _segment: None },
        })
    }
}
