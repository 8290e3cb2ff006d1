//! GPU memory as the software ConnectX accesses it.
#![allow(unsafe_code, reason = "accesses GPU memory by address")]

use std::ptr::NonNull;
use std::sync::Arc;

use rushmem_softnic::{AtomicOp, Memory, MemoryAddr, MemoryError, MemoryKind, Width};

use super::CopyEngine;
use super::engine::Access;
use crate::{DeviceBuffer, Error};

/// GPU memory that the software ConnectX reads and writes.
pub struct CudaMemory {
    buffer: Arc<DeviceBuffer>,
    engine: Arc<CopyEngine>,
    access: Access,
}

impl CudaMemory {
    /// Creates an accessor of `buffer` that uses `engine`, which must belong to the same GPU.
    ///
    /// Memories that share an engine share its order: a flush of one waits for the accesses of all.
    pub fn new(buffer: Arc<DeviceBuffer>, engine: Arc<CopyEngine>) -> Self {
        Self { buffer, engine, access: Access::Any }
    }

    /// Returns the same memory for accesses of the host, which never use the service kernel.
    ///
    /// The host accesses memory of one PE while kernels of others run. A service kernel next to them would slow down
    /// their fences.
    #[must_use]
    pub fn for_host(&self) -> Self {
        let (buffer, engine) = (Arc::clone(&self.buffer), Arc::clone(&self.engine));
        Self { buffer, engine, access: Access::CopyEngines }
    }

    fn range(&self, offset: u64, len: u64) -> Result<u64, MemoryError> {
        self.buffer.range_address(offset as usize, len as usize).map_err(memory_error)
    }

    fn word(&self, offset: u64, width: Width) -> Result<u64, MemoryError> {
        if !offset.is_multiple_of(width.bytes()) {
            return Err(MemoryError::Misaligned { offset });
        }
        self.range(offset, width.bytes())
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        // The buffer may be freed after this, so no access may be pending.
        if let Err(error) = self.engine.flush() {
            tracing::warn!(%error, "accesses to GPU memory may be incomplete");
        }
    }
}

// SAFETY: the CPU has no pointer to the memory. The accesses below stay inside the buffer, and `drop` waits for them
// before it can be freed. The adapter keeps other memory alive until the next flush.
unsafe impl Memory for CudaMemory {
    fn len(&self) -> u64 {
        self.buffer.len() as u64
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        None
    }

    fn place(&self) -> Option<MemoryAddr> {
        Some(MemoryAddr { address: self.buffer.address(), kind: MemoryKind::Gpu(self.engine.ordinal()) })
    }

    fn queue(&self) -> Option<u64> {
        Some(Arc::as_ptr(&self.engine).addr() as u64)
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), MemoryError> {
        let from = self.range(offset, buf.len() as u64)?;
        // SAFETY: a range of the buffer.
        unsafe { self.engine.lock().read(from, buf, self.access) }.map_err(memory_error)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MemoryError> {
        let to = self.range(offset, data.len() as u64)?;
        // SAFETY: a range of the buffer.
        unsafe { self.engine.lock().write(to, data, self.access) }.map_err(memory_error)
    }

    fn atomic(&self, offset: u64, width: Width, op: AtomicOp) -> Result<u64, MemoryError> {
        let at = self.word(offset, width)?;
        // SAFETY: an aligned word of the buffer.
        unsafe { self.engine.lock().atomic(at, width, op) }.map_err(memory_error)
    }

    fn atomic_to(
        &self,
        offset: u64,
        width: Width,
        op: AtomicOp,
        result: MemoryAddr,
    ) -> Result<bool, MemoryError> {
        let at = self.word(offset, width)?;
        if !self.reaches(result) {
            return Ok(false);
        }
        // SAFETY: an aligned word of the buffer; see above for the result.
        unsafe { self.engine.lock().atomic_to(at, width, op, result.address) }.map_err(memory_error)
    }

    fn copy_in(&self, offset: u64, src: MemoryAddr, len: u64) -> Result<bool, MemoryError> {
        let to = self.range(offset, len)?;
        self.copy(to, src.address, len, src)
    }

    fn copy_out(&self, offset: u64, dst: MemoryAddr, len: u64) -> Result<bool, MemoryError> {
        let from = self.range(offset, len)?;
        self.copy(dst.address, from, len, dst)
    }

    fn flush(&self) -> Result<(), MemoryError> {
        self.engine.flush().map_err(memory_error)
    }
}

impl CudaMemory {
    /// Returns whether the GPU that owns this memory can access `place`. Pageable host memory does not count, since
    /// only some GPUs can access it.
    fn reaches(&self, place: MemoryAddr) -> bool {
        match place.kind {
            MemoryKind::Host => false,
            MemoryKind::PageLocked => true,
            MemoryKind::Gpu(gpu) => gpu == self.engine.ordinal(),
        }
    }

    /// Starts a copy between this memory and `other`. One of `to` and `from` is the address of `other`. Returns `false`
    /// if the caller has to copy another way.
    fn copy(&self, to: u64, from: u64, len: u64, other: MemoryAddr) -> Result<bool, MemoryError> {
        let mut queue = self.engine.lock();
        // SAFETY: a range of the buffer, and memory that the adapter keeps alive until the flush.
        let started = unsafe {
            match other.kind {
                MemoryKind::Host => queue.copy_pageable(to, from, len),
                MemoryKind::PageLocked => queue.copy_host(to, from, len, self.access).map(|()| true),
                MemoryKind::Gpu(_) if self.reaches(other) => queue.copy_within(to, from, len).map(|()| true),
                MemoryKind::Gpu(_) => Ok(false),
            }
        };
        started.map_err(memory_error)
    }
}

/// Converts an error for the software ConnectX. The result holds only a code, so the text is logged here.
fn memory_error(error: Error) -> MemoryError {
    if let Error::OutOfRange { offset, len, .. } = error {
        return MemoryError::OutOfRange { offset: offset as u64, len: len as u64 };
    }
    tracing::error!(%error, "the software ConnectX cannot access GPU memory");
    MemoryError::Device(error.code().map_or(-1, |code| code as i32))
}
