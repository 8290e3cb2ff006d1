//! Zeroed allocations of GPU memory, and copies between GPU and host, as work in a stream.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::os::fd::OwnedFd;
use std::sync::Arc;

use cudarc::driver::sys;

use crate::error::check;
use crate::{DeviceBuffer, Error, SharedMemory, Stream};

/// Page size of GPU memory. Smaller allocations may share a page with others.
const GPU_PAGE: usize = 2 << 20;

impl DeviceBuffer {
    /// Allocates `len` zeroed bytes, aligned to 256 bytes. `len` must not be 0.
    ///
    /// The bytes are set to 0 by work in `stream`, and the call waits for that work.
    ///
    /// # Errors
    /// - [`Error::Call`] if the GPU has too little free memory, or if earlier work in `stream` failed
    pub fn zeroed(stream: &Stream, len: usize) -> Result<Self, Error> {
        let buffer = Self::new(stream.device(), len)?;
        buffer.fill(stream, 0, len, 0)?;
        Ok(buffer)
    }

    /// Like [`zeroed`](Self::zeroed), but in separate pages, so a NIC can be given access to exactly this buffer.
    ///
    /// `len` must not be 0. The bytes are set to 0 by work in `stream`, and the call waits for that work.
    ///
    /// # Errors
    /// - [`Error::Call`] if the GPU has too little free memory, or if earlier work in `stream` failed
    pub fn zeroed_pages(stream: &Stream, len: usize) -> Result<Self, Error> {
        let buffer = Self::allocate(stream.device(), len, len.next_multiple_of(GPU_PAGE))?;
        buffer.fill(stream, 0, len, 0)?;
        Ok(buffer)
    }

    /// Allocates `len` zeroed bytes that other GPUs and processes can map.
    ///
    /// `len` must not be 0. The bytes are set to 0 by work in `stream`, and the call waits for that work.
    ///
    /// # Errors
    /// - [`Error::Call`] if the GPU has too little free memory or cannot export it, or if earlier work in `stream`
    ///   failed
    pub fn zeroed_shared(stream: &Stream, len: usize) -> Result<Self, Error> {
        let device = Arc::clone(stream.device());
        let shared = SharedMemory::new(&device, len)?;
        let buffer = Self::of_shared(device, shared, len);
        buffer.fill(stream, 0, len, 0)?;
        Ok(buffer)
    }

    /// Maps the memory of this GPU that another process [exported](SharedMemory::export) as `file`, and sets its first `len`
    /// bytes to 0 by work in `stream`, for which the call waits.
    ///
    /// # Errors
    /// - [`Error::WrongMemoryGpu`] if the memory belongs to another GPU
    /// - [`Error::Call`] if the driver refuses, or if earlier work in `stream` failed
    pub fn inherited(stream: &Stream, file: &OwnedFd, len: usize) -> Result<Self, Error> {
        let device = Arc::clone(stream.device());
        let shared = SharedMemory::import(&device, file, len)?;
        let buffer = Self::of_shared(device, shared, len);
        buffer.fill(stream, 0, len, 0)?;
        Ok(buffer)
    }

    /// Sets the `len` bytes at `offset` to `value`, after the earlier work in `stream`, and waits for completion.
    ///
    /// # Errors
    /// - [`Error::OutOfRange`] if the range exceeds the buffer
    /// - [`Error::Call`] if the driver refuses, or if earlier work in `stream` failed
    pub fn fill(&self, stream: &Stream, offset: usize, len: usize, value: u8) -> Result<(), Error> {
        let address = self.range_address(offset, len)?;
        let _current = self.device().make_current()?;
        // SAFETY: the range lies in this allocation.
        check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(address, value, len, stream.raw()) })?;
        stream.synchronize()
    }

    /// Copies `data` to the bytes at `offset`, after the earlier work in `stream`, and waits for completion.
    ///
    /// # Errors
    /// - [`Error::OutOfRange`] if the range exceeds the buffer
    /// - [`Error::Call`] if the driver refuses, or if earlier work in `stream` failed
    pub fn write(&self, stream: &Stream, offset: usize, data: &[u8]) -> Result<(), Error> {
        let address = self.range_address(offset, data.len())?;
        let _current = self.device().make_current()?;
        // SAFETY: the range lies in this allocation. `data` is borrowed until the copy has completed.
        let result =
            unsafe { sys::cuMemcpyHtoDAsync_v2(address, data.as_ptr().cast(), data.len(), stream.raw()) };
        finish_copy(stream, check("cuMemcpyHtoDAsync", result))
    }

    /// Copies the bytes at `offset` to `data`, after the earlier work in `stream`, and waits for completion.
    ///
    /// # Errors
    /// - [`Error::OutOfRange`] if the range exceeds the buffer
    /// - [`Error::Call`] if the driver refuses, or if earlier work in `stream` failed
    pub fn read(&self, stream: &Stream, offset: usize, data: &mut [u8]) -> Result<(), Error> {
        let address = self.range_address(offset, data.len())?;
        let _current = self.device().make_current()?;
        // SAFETY: the range lies in this allocation. `data` is borrowed until the copy has completed.
        let result =
            unsafe { sys::cuMemcpyDtoHAsync_v2(data.as_mut_ptr().cast(), address, data.len(), stream.raw()) };
        finish_copy(stream, check("cuMemcpyDtoHAsync", result))
    }
}

/// Waits for the copy in `stream`, even if queueing it failed: the caller may reuse the data as soon as this returns.
fn finish_copy(stream: &Stream, queued: Result<(), Error>) -> Result<(), Error> {
    let done = stream.synchronize();
    queued.and(done)
}
