//! Accesses by the copy engines of the GPU, through a page-locked staging buffer.
#![allow(unsafe_code, reason = "copies between raw addresses")]

use std::ptr;
use std::sync::Arc;

use crate::{Device, DeviceBuffer, Error, PinnedBuffer, Stream};

/// Bytes of the page-locked staging buffer for pieces.
const STAGING_BYTES: usize = 1 << 20;

/// Bytes behind them for accesses that use no piece.
pub(super) const SCRATCH_BYTES: usize = 64 << 10;

/// Alignment of each piece in the staging buffer, which suits the copy engines.
const STAGING_ALIGN: usize = 64;

/// A stream of copies.
pub(super) struct Copies {
    stream: Stream,
    /// Whether copies may be pending.
    pending: bool,
}

/// A page-locked buffer between host memory and GPU memory.
pub(super) struct Staging {
    buffer: PinnedBuffer,
    /// Length of the part that pending accesses may use.
    used: usize,
}

impl Staging {
    pub(super) fn new(device: &Arc<Device>) -> Result<Self, Error> {
        Ok(Self { buffer: PinnedBuffer::new(device, STAGING_BYTES + SCRATCH_BYTES)?, used: 0 })
    }

    /// Returns the length of the longest piece.
    pub(super) fn len(&self) -> usize {
        STAGING_BYTES
    }

    /// Returns the offset of the scratch bytes, which no piece contains.
    pub(super) fn scratch(&self) -> usize {
        STAGING_BYTES
    }

    /// Reserves `len` bytes and returns their offset, or `None` if pending accesses use too many.
    pub(super) fn reserve(&mut self, len: usize) -> Option<usize> {
        let at = self.used;
        if at + len > STAGING_BYTES {
            return None;
        }
        self.used = (at + len).next_multiple_of(STAGING_ALIGN);
        Some(at)
    }

    /// Frees the buffer. No access is pending.
    pub(super) fn clear(&mut self) {
        self.used = 0;
    }

    /// Returns the address of a piece for the GPU.
    pub(super) fn address(&self, at: usize) -> u64 {
        self.buffer.address() + at as u64
    }

    /// Copies `data` to a reserved piece.
    pub(super) fn put(&mut self, at: usize, data: &[u8]) {
        assert!(at + data.len() <= self.buffer.len());
        // SAFETY: inside of the buffer. No pending access uses the reserved bytes.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), self.buffer.as_ptr().as_ptr().add(at), data.len()) }
    }

    /// Copies a piece, which an access has filled, to `data`.
    pub(super) fn get(&self, at: usize, data: &mut [u8]) {
        assert!(at + data.len() <= self.buffer.len());
        // SAFETY: as above; the access has completed.
        unsafe {
            ptr::copy_nonoverlapping(self.buffer.as_ptr().as_ptr().add(at), data.as_mut_ptr(), data.len())
        }
    }
}

impl Copies {
    /// Creates a stream, and performs each kind of copy once, so that the driver loads what it needs while no kernel runs.
    ///
    /// Later, loading could wait for a kernel that waits for the copy.
    pub(super) fn new(device: &Arc<Device>, staging: &Staging) -> Result<Self, Error> {
        let stream = Stream::new(device)?;
        let scratch = DeviceBuffer::new(device, STAGING_BYTES)?;
        let (gpu, host) = (scratch.address(), staging.address(0));
        for len in [8, 4096, STAGING_BYTES] {
            for (to, from) in [(gpu, host), (host, gpu)] {
                // SAFETY: both ranges lie in the scratch or the staging buffer, which no other code uses yet.
                unsafe { stream.copy(to, from, len)? };
            }
        }
        stream.synchronize()?;
        Ok(Self { stream, pending: false })
    }

    /// Waits until all pending copies have completed.
    pub(super) fn drain(&mut self) -> Result<(), Error> {
        if self.pending {
            self.stream.synchronize()?;
            self.pending = false;
        }
        Ok(())
    }

    /// Starts a copy, after all started copies.
    ///
    /// # Safety
    /// Both ranges are valid until the next drain, and no other access races with the copy. They are not memory of the same
    /// GPU: such a copy would run on multiprocessors, and a kernel that fills them and waits for it would wait forever.
    pub(super) unsafe fn copy(&mut self, to: u64, from: u64, len: usize) -> Result<(), Error> {
        self.pending = true;
        // SAFETY: promised by the caller.
        unsafe { self.stream.copy(to, from, len) }
    }

    /// Starts a copy through `most` page-locked bytes at address `staging`, after all started copies.
    ///
    /// # Safety
    /// All ranges are valid until the next drain, and no other access races with the copy.
    pub(super) unsafe fn copy_staged(
        &mut self,
        staging: u64,
        most: usize,
        to: u64,
        from: u64,
        len: u64,
    ) -> Result<(), Error> {
        for at in (0..len).step_by(most) {
            let piece = (len - at).min(most as u64) as usize;
            // SAFETY: promised by the caller. The copies are in order, so they may share the bytes.
            unsafe {
                self.copy(staging, from + at, piece)?;
                self.copy(to + at, staging, piece)?;
            }
        }
        Ok(())
    }
}
