//! Tests with memory that the CPU cannot access directly, like GPU memory.

use rushmem_mlx5::{AtomicOp, Width};
use rushmem_softnic::{HostBuffer, Memory, MemoryError};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Host memory that hides its pointer from the adapter, like GPU memory.
pub(crate) struct FarBuffer(pub(crate) Arc<HostBuffer>);

// SAFETY: it returns no pointer.
unsafe impl Memory for FarBuffer {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        None
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), MemoryError> {
        self.0.read(offset, buf)?;
        fence(Ordering::Acquire);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MemoryError> {
        fence(Ordering::Release);
        self.0.write(offset, data)
    }

    fn atomic(&self, offset: u64, width: Width, op: AtomicOp) -> Result<u64, MemoryError> {
        self.0.atomic(offset, width, op)
    }
}
