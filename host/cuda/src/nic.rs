//! GPU memory as the software NIC sees it: bytes that it moves with the GPU's copy engines.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard};

use rushmem_softnic::{AtomicOp, Memory, MemoryError, Width};

use crate::{Device, DeviceBuffer, Error, PinnedBuffer, Stream};
use rushmem_base::lock;

/// Bytes that small copies pass through, page-locked.
const STAGING_BYTES: usize = 1 << 20;

/// Distance between two pieces in the staging buffer, a multiple of what copy engines like.
const STAGING_ALIGN: usize = 64;

/// A stream of copies and the page-locked buffer that they pass through. One NIC thread has one for each GPU.
///
/// Copies run beside kernels and never wait for one.
pub struct CopyEngine {
    stream: Stream,
    staging: PinnedBuffer,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Bytes of the staging buffer that copies in flight may use.
    used: usize,
    /// Whether copies may be in flight.
    pending: bool,
}

impl CopyEngine {
    /// Makes the stream and the buffer.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(device: &Arc<Device>) -> Result<Self, Error> {
        let staging = PinnedBuffer::new(device, STAGING_BYTES)?;
        let engine = Self { stream: Stream::new(device)?, staging, state: Mutex::default() };
        engine.warm_up()?;
        Ok(engine)
    }

    /// Makes the driver load what each kind of copy needs: later it might wait for a kernel that waits for the copy.
    fn warm_up(&self) -> Result<(), Error> {
        let scratch = DeviceBuffer::new(self.stream.device(), STAGING_BYTES)?;
        let (there, here) = (scratch.address(), self.staging.address());
        for len in [8, 4096, STAGING_BYTES] {
            for (to, from) in [(there, here), (here, there)] {
                // SAFETY: both ranges lie in the scratch or the staging buffer, and are used by nobody else.
                unsafe { self.stream.copy(to, from, len)? };
            }
        }
        self.stream.synchronize()
    }

    /// Waits for all copies that were started.
    ///
    /// # Errors
    /// What the driver says, which may be the error of a kernel that has spoilt the context.
    pub fn flush(&self) -> Result<(), Error> {
        self.finish(&mut self.state())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn finish(&self, state: &mut State) -> Result<(), Error> {
        if state.pending {
            self.stream.synchronize()?;
            *state = State::default();
        }
        Ok(())
    }

    /// The offset of `len` free bytes in the staging buffer, which is at least as long.
    fn reserve(&self, state: &mut State, len: usize) -> Result<usize, Error> {
        if state.used + len > self.staging.len() {
            self.finish(state)?;
        }
        let at = state.used;
        state.used = (at + len).next_multiple_of(STAGING_ALIGN);
        state.pending = true;
        Ok(at)
    }

    /// Starts copies of `data` to `to`.
    ///
    /// # Safety
    /// The range is GPU memory that stays allocated until a flush.
    unsafe fn write(&self, state: &mut State, mut to: u64, data: &[u8]) -> Result<(), Error> {
        for piece in data.chunks(self.staging.len()) {
            let at = self.reserve(state, piece.len())?;
            // SAFETY: `reserve` has found room for the piece, which no copy in flight uses; the CPU writes to the
            // buffer under the lock only. The copy's target is the caller's promise.
            unsafe {
                let staged = self.staging.as_ptr().as_ptr().add(at);
                ptr::copy_nonoverlapping(piece.as_ptr(), staged, piece.len());
                self.stream.copy(to, self.staging.address() + at as u64, piece.len())?;
            }
            to += piece.len() as u64;
        }
        Ok(())
    }

    /// Copies from `from` into `data`, after all that was started, and waits for it.
    ///
    /// # Safety
    /// The range is GPU memory.
    unsafe fn read(&self, state: &mut State, mut from: u64, data: &mut [u8]) -> Result<(), Error> {
        for piece in data.chunks_mut(self.staging.len()) {
            let at = self.reserve(state, piece.len())?;
            // SAFETY: `reserve` has found room for the piece, which no other copy uses, and this one is over when
            // the bytes are taken. The copy's source is the caller's promise.
            unsafe {
                self.stream.copy(self.staging.address() + at as u64, from, piece.len())?;
                self.finish(state)?;
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
        // Before the staging buffer goes.
        if let Err(error) = self.flush() {
            tracing::warn!(%error, "copies to or from GPU memory may not have been done");
        }
    }
}

/// GPU memory that the software NIC reads and writes.
pub struct CudaMemory {
    buffer: Arc<DeviceBuffer>,
    engine: Arc<CopyEngine>,
}

impl CudaMemory {
    /// All of `buffer`, moved by `engine`. Several memories may share an engine; the copies of all are then in one
    /// order, and a flush of one waits for all.
    pub fn new(buffer: Arc<DeviceBuffer>, engine: Arc<CopyEngine>) -> Self {
        Self { buffer, engine }
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.buffer.len() as u64
    }

    /// Whether it has no bytes, which cannot be.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The address of its first byte, for GPUs.
    pub fn address(&self) -> u64 {
        self.buffer.address()
    }

    /// Copies bytes out, after all that was started.
    ///
    /// # Errors
    /// [`Error::Range`], or what the driver says.
    pub fn read(&self, offset: u64, data: &mut [u8]) -> Result<(), Error> {
        let from = self.at(offset, data.len() as u64)?;
        // SAFETY: a range of this buffer.
        unsafe { self.engine.read(&mut self.engine.state(), from, data) }
    }

    /// Starts to copy `data` in, which may be reused at once. It has landed after the next [`flush`](Self::flush).
    ///
    /// # Errors
    /// [`Error::Range`], or what the driver says.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        let to = self.at(offset, data.len() as u64)?;
        // SAFETY: a range of this buffer, which outlives the engine's copies: see `drop`.
        unsafe { self.engine.write(&mut self.engine.state(), to, data) }
    }

    /// Reads a little-endian word of `N` bytes, after all that was started; where `change` returns a word, writes it
    /// and waits until it has landed. Returns the old word.
    ///
    /// No other access through this engine comes between. A kernel's may: copy engines have no atomics.
    ///
    /// # Errors
    /// [`Error::Range`], or what the driver says.
    pub fn modify<const N: usize>(
        &self,
        offset: u64,
        change: impl FnOnce([u8; N]) -> Option<[u8; N]>,
    ) -> Result<[u8; N], Error> {
        let at = self.at(offset, N as u64)?;
        let mut state = self.engine.state();
        let mut old = [0; N];
        // SAFETY: a range of this buffer, and the copies are over when this returns.
        unsafe { self.engine.read(&mut state, at, &mut old)? };
        if let Some(new) = change(old) {
            // SAFETY: as above.
            unsafe { self.engine.write(&mut state, at, &new)? };
            self.engine.finish(&mut state)?;
        }
        Ok(old)
    }

    /// Starts a copy from an address of any GPU's memory or of host memory. It has landed after the next
    /// [`flush`](Self::flush).
    ///
    /// # Errors
    /// [`Error::Range`], or what the driver says.
    ///
    /// # Safety
    /// The source stays valid until then.
    pub unsafe fn copy_in(&self, offset: u64, from: u64, len: u64) -> Result<(), Error> {
        let to = self.at(offset, len)?;
        let mut state = self.engine.state();
        state.pending = true;
        // SAFETY: the target is a range of this buffer, the source the caller's promise.
        unsafe { self.engine.stream.copy(to, from, len as usize) }
    }

    /// Starts a copy to an address of any GPU's memory or of host memory. It has landed after the next
    /// [`flush`](Self::flush).
    ///
    /// # Errors
    /// [`Error::Range`], or what the driver says.
    ///
    /// # Safety
    /// The target stays valid until then, and nobody uses it meanwhile.
    pub unsafe fn copy_out(&self, offset: u64, to: u64, len: u64) -> Result<(), Error> {
        let from = self.at(offset, len)?;
        let mut state = self.engine.state();
        state.pending = true;
        // SAFETY: the source is a range of this buffer, the target the caller's promise.
        unsafe { self.engine.stream.copy(to, from, len as usize) }
    }

    /// Waits until everything that was started has landed.
    ///
    /// # Errors
    /// What the driver says.
    pub fn flush(&self) -> Result<(), Error> {
        self.engine.flush()
    }

    fn at(&self, offset: u64, len: u64) -> Result<u64, Error> {
        self.buffer.at(offset as usize, len as usize)
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        // Before the buffer may go.
        if let Err(error) = self.flush() {
            tracing::warn!(%error, "copies to or from GPU memory may not have been done");
        }
    }
}

// SAFETY: the CPU has no pointer to it.
unsafe impl Memory for CudaMemory {
    fn len(&self) -> u64 {
        CudaMemory::len(self)
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        None
    }

    // No `unified_addr`: a copy within a GPU runs on its multiprocessors, so a kernel that fills them and waits for
    // the copy would wait for ever. Copies through the staging buffer use the copy engines alone.

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), MemoryError> {
        CudaMemory::read(self, offset, buf).map_err(memory_error)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MemoryError> {
        CudaMemory::write(self, offset, data).map_err(memory_error)
    }

    /// Atomic among accesses through the same engine; a kernel's atomics on the same word may come between.
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
        // SAFETY: the adapter gives addresses that another memory vouches for, which it keeps until the flush.
        unsafe { CudaMemory::copy_in(self, offset, src, len) }.map(|()| true).map_err(memory_error)
    }

    fn copy_out(&self, offset: u64, dst: u64, len: u64) -> Result<bool, MemoryError> {
        // SAFETY: as for `copy_in`.
        unsafe { CudaMemory::copy_out(self, offset, dst, len) }.map(|()| true).map_err(memory_error)
    }

    fn flush(&self) -> Result<(), MemoryError> {
        CudaMemory::flush(self).map_err(memory_error)
    }
}

/// The adapter passes on a code only, so the text goes to the log.
fn memory_error(error: Error) -> MemoryError {
    if let Error::Range { offset, len, .. } = error {
        return MemoryError::OutOfRange { offset: offset as u64, len: len as u64 };
    }
    tracing::error!(%error, "the software NIC cannot move GPU memory");
    MemoryError::Device(error.code().map_or(-1, |code| code as i32))
}
