//! Copies by the copy engines of the GPU, through a page-locked staging buffer.
#![allow(unsafe_code, reason = "copies between raw addresses")]

use std::ptr;
use std::sync::Arc;

use crate::{Device, DeviceBuffer, Error, PinnedBuffer, Stream};

/// Size of the part of the staging buffer from which copies reserve pieces, in bytes.
const STAGING_BYTES: usize = 1 << 20;

/// Size of the staging buffer's last part, in bytes. Short copies that wait for completion use it.
pub(super) const SCRATCH_BYTES: usize = 64 << 10;

/// Alignment of the pieces in the staging buffer, for the copy engines.
const STAGING_ALIGN: usize = 64;

/// Copies between the host and one GPU, which run in order in a dedicated stream.
pub(super) struct Copies {
    stream: Stream,
    /// Whether copies may be pending in the stream.
    pending: bool,
}

/// A page-locked buffer through which bytes pass between pageable host memory and GPU memory.
pub(super) struct Staging {
    buffer: PinnedBuffer,
    /// Number of bytes at the start of the buffer that are reserved for pending copies.
    used: usize,
}

impl Staging {
    pub(super) fn new(device: &Arc<Device>) -> Result<Self, Error> {
        Ok(Self { buffer: PinnedBuffer::new(device, STAGING_BYTES + SCRATCH_BYTES)?, used: 0 })
    }

    /// Returns the length of the longest piece that can be reserved, in bytes.
    pub(super) fn len(&self) -> usize {
        STAGING_BYTES
    }

    /// Returns the offset of the scratch bytes in the staging buffer. They belong to no piece.
    pub(super) fn scratch(&self) -> usize {
        STAGING_BYTES
    }

    /// Reserves `len` bytes and returns their offset, or `None` if too many are in use.
    pub(super) fn reserve(&mut self, len: usize) -> Option<usize> {
        let at = self.used;
        if at + len > STAGING_BYTES {
            return None;
        }
        self.used = (at + len).next_multiple_of(STAGING_ALIGN);
        Some(at)
    }

    /// Makes the whole buffer available again. No copy may be pending.
    pub(super) fn clear(&mut self) {
        self.used = 0;
    }

    /// Returns the address for the GPU of the byte at offset `at`.
    pub(super) fn address(&self, at: usize) -> u64 {
        self.buffer.address() + at as u64
    }

    /// Copies `data` into the reserved piece at offset `at`.
    pub(super) fn put(&mut self, at: usize, data: &[u8]) {
        assert!(at + data.len() <= self.buffer.len());
        // SAFETY: inside of the buffer. No pending access uses the reserved bytes.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), self.buffer.as_ptr().as_ptr().add(at), data.len()) }
    }

    /// Copies the piece at offset `at` to `data`. The access that filled the piece must have completed.
    pub(super) fn get(&self, at: usize, data: &mut [u8]) {
        assert!(at + data.len() <= self.buffer.len());
        // SAFETY: as above; the access has completed.
        unsafe {
            ptr::copy_nonoverlapping(self.buffer.as_ptr().as_ptr().add(at), data.as_mut_ptr(), data.len())
        }
    }
}

impl Copies {
    /// Creates the stream, and performs each kind of copy once. The driver then loads what it needs for them while no
    /// kernel runs. Later, loading could wait for a kernel which in turn waits for the copy.
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

    /// Blocks until all pending copies have completed.
    pub(super) fn drain(&mut self) -> Result<(), Error> {
        if self.pending {
            self.stream.synchronize()?;
            self.pending = false;
        }
        Ok(())
    }

    /// Queues a copy after all earlier ones.
    ///
    /// # Safety
    /// Both ranges stay valid until the next drain, and no other access races with the copy. They are not both memory
    /// of the same GPU: such a copy runs on multiprocessors, and would deadlock with a kernel that fills them and waits
    /// for it.
    pub(super) unsafe fn copy(&mut self, to: u64, from: u64, len: usize) -> Result<(), Error> {
        self.pending = true;
        // SAFETY: promised by the caller.
        unsafe { self.stream.copy(to, from, len) }
    }

    /// Queues a copy in pieces of up to `most` bytes, through the page-locked memory at address `staging`.
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
