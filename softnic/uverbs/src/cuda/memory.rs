//! Registered GPU memory, which the adapter accesses by copies of the CUDA driver.

use super::copier::Copier;
use super::driver::CudaError;
use rushmem_softnic::{AtomicOp, Memory, MemoryAddr, MemoryError, MemoryKind, Width};
use std::ptr::NonNull;
use std::sync::Arc;

pub(super) struct DeviceMemory {
    copier: Arc<Copier>,
    address: u64,
    len: u64,
}

impl DeviceMemory {
    /// Creates memory of `len` bytes at a device address in the copier's context.
    pub(super) fn new(copier: Arc<Copier>, address: u64, len: u64) -> DeviceMemory {
        DeviceMemory { copier, address, len }
    }

    /// Returns the device address of a range.
    fn at(&self, offset: u64, len: u64) -> Result<u64, MemoryError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(self.address + offset),
            _ => Err(MemoryError::OutOfRange { offset, len }),
        }
    }
}

/// Logs the error, because the adapter's error is only a code.
fn failed(error: CudaError) -> MemoryError {
    tracing::error!("the adapter cannot access GPU memory: {error}");
    MemoryError::Device(error.code)
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // The program may free the memory after this.
        if let Err(error) = self.copier.flush() {
            tracing::debug!("the last copies to GPU memory have failed: {error}");
        }
    }
}

// SAFETY: it has no host pointer.
unsafe impl Memory for DeviceMemory {
    fn len(&self) -> u64 {
        self.len
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        None
    }

    fn place(&self) -> Option<MemoryAddr> {
        Some(MemoryAddr { address: self.address, kind: MemoryKind::Gpu(self.copier.ordinal()) })
    }

    fn queue(&self) -> Option<u64> {
        Some(Arc::as_ptr(&self.copier).addr() as u64)
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), MemoryError> {
        self.copier.read(self.at(offset, buf.len() as u64)?, buf).map_err(failed)
    }

    fn gather(&self, ranges: &[(u64, usize)], buf: &mut [u8]) -> Result<(), MemoryError> {
        let at = |&(offset, len): &(u64, usize)| Ok((self.at(offset, len as u64)?, len));
        let ranges = ranges.iter().map(at).collect::<Result<Vec<_>, MemoryError>>()?;
        self.copier.gather(&ranges, buf).map_err(failed)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MemoryError> {
        self.copier.write(self.at(offset, data.len() as u64)?, data).map_err(failed)
    }

    fn atomic(&self, offset: u64, width: Width, op: AtomicOp) -> Result<u64, MemoryError> {
        let at = self.at(offset, width.bytes())?;
        if !at.is_multiple_of(width.bytes()) {
            return Err(MemoryError::Misaligned { offset });
        }
        self.copier.atomic(at, width, op).map_err(failed)
    }

    fn flush(&self) -> Result<(), MemoryError> {
        self.copier.flush().map_err(failed)
    }
}
