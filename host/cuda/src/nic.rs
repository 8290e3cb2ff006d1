//! GPU memory for the software ConnectX, which accesses it through the copy engines of the GPU.
//!
//! The CPU cannot access GPU memory directly. So the software ConnectX copies each byte through a page-locked staging
//! buffer. Copies run beside kernels and never wait for one, since the kernel may wait for the copy.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard};

use rushmem_softnic::{AtomicOp, Memory, MemoryError, Width};

use crate::{Device, DeviceBuffer, Error, PinnedBuffer, Stream};
use rushmem_base::lock;

/// Size of the page-locked staging buffer.
const STAGING_BYTES: usize = 1 << 20;

/// Alignment of each piece in the staging buffer, which suits the copy engines.
const STAGING_ALIGN: usize = 64;

/// A stream of copies with its page-locked staging buffer. A thread of the software ConnectX has one for each GPU.
///
/// Copies run beside kernels and never wait for one.
pub struct CopyEngine {
    stream: Stream,
    staging: PinnedBuffer,
    state: Mutex<StagingState>,
}

#[derive(Default)]
struct StagingState {
    /// Length of the part of the staging buffer that pending copies may use.
    used: usize,
    /// Whether copies may be pending.
    pending: bool,
}

impl CopyEngine {
    /// Creates the stream and the staging buffer. The call waits until no PE of this process runs a kernel.
    ///
    /// # Errors
    /// - [`Error::Call`] if the driver refuses
    pub fn new(device: &Arc<Device>) -> Result<Self, Error> {
        let staging = PinnedBuffer::new(device, STAGING_BYTES)?;
        let engine = Self { stream: Stream::new(device)?, staging, state: Mutex::default() };
        engine.warm_up()?;
        Ok(engine)
    }

    /// Performs each kind of copy once, so that the driver loads what it needs while no kernel runs.
    ///
    /// Later, loading could wait for a kernel that waits for the copy.
    fn warm_up(&self) -> Result<(), Error> {
        let scratch = DeviceBuffer::new(self.stream.device(), STAGING_BYTES)?;
        let (gpu, host) = (scratch.address(), self.staging.address());
        for len in [8, 4096, STAGING_BYTES] {
            for (to, from) in [(gpu, host), (host, gpu)] {
                // SAFETY: both ranges lie in the scratch or the staging buffer, which no other code uses yet.
                unsafe { self.stream.copy(to, from, len)? };
            }
        }
        self.stream.synchronize()
    }

    /// Waits until all started copies have completed.
    ///
    /// # Errors
    /// - [`Error::Call`] if a copy failed, or if a kernel's fault lost the context
    pub fn flush(&self) -> Result<(), Error> {
        self.drain(&mut self.state())
    }

    fn state(&self) -> MutexGuard<'_, StagingState> {
        lock(&self.state)
    }

    /// Waits until all pending copies have completed and frees the staging buffer.
    fn drain(&self, state: &mut StagingState) -> Result<(), Error> {
        if state.pending {
            self.stream.synchronize()?;
            *state = StagingState::default();
        }
        Ok(())
    }

    /// Reserves `len` bytes of the staging buffer, which is at least that long, and returns their offset.
    fn reserve(&self, state: &mut StagingState, len: usize) -> Result<usize, Error> {
        if state.used + len > self.staging.len() {
            self.drain(state)?;
        }
        let at = state.used;
        state.used = (at + len).next_multiple_of(STAGING_ALIGN);
        state.pending = true;
        Ok(at)
    }

    /// Starts to copy `data` to address `to`.
    ///
    /// # Safety
    /// The range is GPU memory that stays allocated until the next flush.
    unsafe fn write(&self, state: &mut StagingState, mut to: u64, data: &[u8]) -> Result<(), Error> {
        for piece in data.chunks(self.staging.len()) {
            let at = self.reserve(state, piece.len())?;
            // SAFETY: no pending copy uses the reserved bytes, and the CPU writes to the buffer only under the lock.
            // The caller vouches for the target.
            unsafe {
                let staged = self.staging.as_ptr().as_ptr().add(at);
                ptr::copy_nonoverlapping(piece.as_ptr(), staged, piece.len());
                self.stream.copy(to, self.staging.address() + at as u64, piece.len())?;
            }
            to += piece.len() as u64;
        }
        Ok(())
    }

    /// Copies from address `from` to `data`, after all started copies, and waits for completion.
    ///
    /// # Safety
    /// The range is allocated GPU memory.
    unsafe fn read(&self, state: &mut StagingState, mut from: u64, data: &mut [u8]) -> Result<(), Error> {
        for piece in data.chunks_mut(self.staging.len()) {
            let at = self.reserve(state, piece.len())?;
            // SAFETY: no pending copy uses the reserved bytes, and this copy has completed before the CPU reads them.
            // The caller vouches for the source.
            unsafe {
                self.stream.copy(self.staging.address() + at as u64, from, piece.len())?;
                self.drain(state)?;
                let staged = self.staging.as_ptr().as_ptr().add(at);
                ptr::copy_nonoverlapping(staged, piece.as_mut_ptr(), piece.len());
            }
            from += piece.len() as u64;
        }
        Ok(())
    }
}

impl Drop for CopyEngine {
    fn drop(&mut self) {
        // The staging buffer is freed after this.
        if let Err(error) = self.flush() {
            tracing::warn!(%error, "copies to or from GPU memory may be incomplete");
        }
    }
}

/// GPU memory that the software ConnectX reads and writes.
pub struct CudaMemory {
    buffer: Arc<DeviceBuffer>,
    engine: Arc<CopyEngine>,
}

impl CudaMemory {
    /// Gives the software ConnectX access to `buffer` through `engine`.
    ///
    /// Several memories may share an engine. Their copies then have one common order, and a flush of one memory waits
    /// for all.
    pub fn new(buffer: Arc<DeviceBuffer>, engine: Arc<CopyEngine>) -> Self {
        Self { buffer, engine }
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.buffer.len() as u64
    }

    /// Returns whether the length is 0, which [`DeviceBuffer`] does not allow.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Returns the address of the first byte for kernels and copies.
    pub fn address(&self) -> u64 {
        self.buffer.address()
    }

    /// Copies the bytes at `offset` to `data`, after all started copies, and waits for completion.
    ///
    /// # Errors
    /// - [`Error::OutOfRange`] if the range exceeds the buffer
    /// - [`Error::Call`] if the driver refuses, or if the context is lost
    pub fn read(&self, offset: u64, data: &mut [u8]) -> Result<(), Error> {
        let from = self.range_address(offset, data.len() as u64)?;
        // SAFETY: a range of this buffer.
        unsafe { self.engine.read(&mut self.engine.state(), from, data) }
    }

    /// Starts to copy `data` to the bytes at `offset`. `data` may be reused when the call returns.
    ///
    /// The copy has completed after the next [`flush`](Self::flush).
    ///
    /// # Errors
    /// - [`Error::OutOfRange`] if the range exceeds the buffer
    /// - [`Error::Call`] if the driver refuses, or if the context is lost
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        let to = self.range_address(offset, data.len() as u64)?;
        // SAFETY: a range of this buffer, which outlives the copies of the engine: see `drop`.
        unsafe { self.engine.write(&mut self.engine.state(), to, data) }
    }

    /// Reads the little-endian word of `N` bytes at `offset`, passes it to `change` and returns it.
    ///
    /// If `change` returns a word, that word is written, and the write has completed when the call returns. The read
    /// comes after all started copies.
    ///
    /// The operation is atomic among accesses through the same engine, but not towards kernels: copy engines have no
    /// atomic operations.
    ///
    /// # Errors
    /// - [`Error::OutOfRange`] if the range exceeds the buffer
    /// - [`Error::Call`] if the driver refuses, or if the context is lost
    pub fn modify<const N: usize>(
        &self,
        offset: u64,
        change: impl FnOnce([u8; N]) -> Option<[u8; N]>,
    ) -> Result<[u8; N], Error> {
        let at = self.range_address(offset, N as u64)?;
        let mut state = self.engine.state();
        let mut old = [0; N];
        // SAFETY: a range of this buffer. The copies have completed when the call returns.
        unsafe { self.engine.read(&mut state, at, &mut old)? };
        if let Some(new) = change(old) {
            // SAFETY: see above.
            unsafe { self.engine.write(&mut state, at, &new)? };
            self.engine.drain(&mut state)?;
        }
        Ok(old)
    }

    /// Starts to copy `len` bytes from address `from` to the bytes at `offset`.
    ///
    /// The source may be memory of any GPU or host memory. The copy has completed after the next
    /// [`flush`](Self::flush).
    ///
    /// # Errors
    /// - [`Error::OutOfRange`] if the range exceeds the buffer
    /// - [`Error::Call`] if the driver refuses, or if the context is lost
    ///
    /// # Safety
    /// The source stays valid until the next flush.
    pub unsafe fn copy_in(&self, offset: u64, from: u64, len: u64) -> Result<(), Error> {
        let to = self.range_address(offset, len)?;
        let mut state = self.engine.state();
        state.pending = true;
        // SAFETY: the target is a range of this buffer. The caller vouches for the source.
        unsafe { self.engine.stream.copy(to, from, len as usize) }
    }

    /// Starts to copy `len` bytes at `offset` to address `to`.
    ///
    /// The target may be memory of any GPU or host memory. The copy has completed after the next
    /// [`flush`](Self::flush).
    ///
    /// # Errors
    /// - [`Error::OutOfRange`] if the range exceeds the buffer
    /// - [`Error::Call`] if the driver refuses, or if the context is lost
    ///
    /// # Safety
    /// The target stays valid until the next flush. No other access uses it before.
    pub unsafe fn copy_out(&self, offset: u64, to: u64, len: u64) -> Result<(), Error> {
        let from = self.range_address(offset, len)?;
        let mut state = self.engine.state();
        state.pending = true;
        // SAFETY: the source is a range of this buffer. The caller vouches for the target.
        unsafe { self.engine.stream.copy(to, from, len as usize) }
    }

    /// Waits until all started copies have completed.
    ///
    /// # Errors
    /// - [`Error::Call`] if a copy failed, or if a kernel's fault lost the context
    pub fn flush(&self) -> Result<(), Error> {
        self.engine.flush()
    }

    fn range_address(&self, offset: u64, len: u64) -> Result<u64, Error> {
        self.buffer.range_address(offset as usize, len as usize)
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        // The buffer may be freed after this.
        if let Err(error) = self.flush() {
            tracing::warn!(%error, "copies to or from GPU memory may be incomplete");
        }
    }
}

// SAFETY: the CPU has no pointer to the memory.
unsafe impl Memory for CudaMemory {
    fn len(&self) -> u64 {
        CudaMemory::len(self)
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        None
    }

    // No `unified_addr`: a copy within a GPU runs on its multiprocessors. A kernel that fills them and waits for the
    // copy would wait forever. Copies through the staging buffer use only the copy engines.

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), MemoryError> {
        CudaMemory::read(self, offset, buf).map_err(memory_error)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MemoryError> {
        CudaMemory::write(self, offset, data).map_err(memory_error)
    }

    /// Performs the operation atomically among accesses through the same engine, but not towards kernels.
    fn atomic(&self, offset: u64, width: Width, op: AtomicOp) -> Result<u64, MemoryError> {
        if !offset.is_multiple_of(width.bytes()) {
            return Err(MemoryError::Misaligned { offset });
        }
        let old = match width {
            Width::Four => {
                let change =
                    |old| Some((op.apply(u32::from_le_bytes(old).into(), width)? as u32).to_le_bytes());
                self.modify(offset, change).map(|old| u32::from_le_bytes(old).into())
            }
            Width::Eight => {
                let change = |old| Some(op.apply(u64::from_le_bytes(old), width)?.to_le_bytes());
                self.modify(offset, change).map(u64::from_le_bytes)
            }
        };
        old.map_err(memory_error)
    }

    fn copy_in(&self, offset: u64, src: u64, len: u64) -> Result<bool, MemoryError> {
        // SAFETY: the software ConnectX passes addresses of another memory, which it keeps alive until the flush.
        unsafe { CudaMemory::copy_in(self, offset, src, len) }.map(|()| true).map_err(memory_error)
    }

    fn copy_out(&self, offset: u64, dst: u64, len: u64) -> Result<bool, MemoryError> {
        // SAFETY: see `copy_in`.
        unsafe { CudaMemory::copy_out(self, offset, dst, len) }.map(|()| true).map_err(memory_error)
    }

    fn flush(&self) -> Result<(), MemoryError> {
        CudaMemory::flush(self).map_err(memory_error)
    }
}

/// Converts an error for the software ConnectX. It keeps only a code, so the text is logged.
fn memory_error(error: Error) -> MemoryError {
    if let Error::OutOfRange { offset, len, .. } = error {
        return MemoryError::OutOfRange { offset: offset as u64, len: len as u64 };
    }
    tracing::error!(%error, "the software ConnectX cannot access GPU memory");
    MemoryError::Device(error.code().map_or(-1, |code| code as i32))
}
