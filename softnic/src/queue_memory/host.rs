//! Queue memory that the CPU accesses directly.
#![allow(unsafe_code, reason = "queues are shared with their driver through raw pointers, with atomics")]

use super::{BLOCK_BYTES, BadQueueMemory, order};
use crate::memory::Memory;
use rushmem_mlx5::{Cqe, Segment};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A checked range of host memory that holds a queue or a doorbell record. It keeps the memory alive, and all accesses
/// stay within it.
pub(crate) struct HostQueue {
    base: NonNull<u8>,
    len: usize,
    _memory: Arc<dyn Memory>,
}

// SAFETY: the memory is Send and Sync, this type only adds a range, and all accesses are atomic.
unsafe impl Send for HostQueue {}

impl HostQueue {
    /// Checks the alignment of the `len` bytes of `memory` at `offset`. The caller has checked the range. Byte 0 of the
    /// memory is at `start`.
    pub(super) fn new(
        memory: &Arc<dyn Memory>,
        start: NonNull<u8>,
        offset: u64,
        len: usize,
        align: usize,
    ) -> Result<HostQueue, BadQueueMemory> {
        let base = NonNull::new(start.as_ptr().wrapping_add(offset as usize)).ok_or(BadQueueMemory::Range)?;
        if !(base.as_ptr() as usize).is_multiple_of(align) {
            return Err(BadQueueMemory::Alignment);
        }
        Ok(HostQueue { base, len, _memory: Arc::clone(memory) })
    }

    fn word64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset < self.len && self.len - offset >= 8);
        // SAFETY: the range is inside the queue memory (asserted above) and stays mapped while `_memory` lives (the
        // contract of `Memory`). The word is aligned, because memory with 64-bit words is 8-byte aligned.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    fn word32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset < self.len && self.len - offset >= 4);
        // SAFETY: as `word64`.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Loads the 4-byte word at `offset` with acquire ordering, which makes data published before it visible.
    pub(super) fn load_u32(&self, offset: usize) -> u32 {
        self.word32(offset).load(Ordering::Acquire)
    }

    /// Swaps the 8-byte word at `offset` with 0. Returns its value unless that was 0.
    pub(super) fn take_u64(&self, offset: usize) -> Option<u64> {
        order::take(self.word64(offset))
    }

    /// Copies the segments of block `index`, modulo the number of blocks, which is a power of two.
    #[inline]
    pub(super) fn load_block(&self, index: usize, out: &mut [Segment]) {
        let offset = (index * BLOCK_BYTES) & (self.len - 1);
        assert!(offset + BLOCK_BYTES <= self.len);
        // SAFETY: `offset + 64` is inside the queue, and its base is 64-byte aligned for queues.
        let words =
            unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset).cast::<AtomicU64>(), 8) };
        order::load_words(words, bytemuck::cast_slice_mut(out));
    }

    /// Copies segments starting at a byte offset, which is a multiple of 16.
    pub(super) fn load_segments(&self, offset: usize, out: &mut [Segment]) {
        for (i, segment) in out.iter_mut().enumerate() {
            let at = offset + 16 * i;
            let pair = [self.word64(at).load(Ordering::Relaxed), self.word64(at + 8).load(Ordering::Relaxed)];
            *segment = bytemuck::cast(pair);
        }
    }

    /// Prefetches block `index` into the CPU's caches.
    #[inline]
    pub(super) fn prefetch_block(&self, index: usize) {
        let offset = (index * BLOCK_BYTES) & (self.len - 1);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch only affects performance, whatever the address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.base.as_ptr().wrapping_add(offset).cast::<i8>());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = offset;
    }

    /// Invalidates the CQE at a byte offset, for consumers that poll its last eight bytes.
    #[inline]
    pub(super) fn invalidate(&self, offset: usize) {
        self.word64(offset + 56).store(u64::MAX, Ordering::Relaxed);
    }

    /// Stores the 8-byte word at `offset` with relaxed ordering.
    #[inline]
    pub(super) fn store_u64(&self, offset: usize, value: u64) {
        self.word64(offset).store(value, Ordering::Relaxed);
    }

    /// Writes a CQE at a byte offset. Its last eight bytes, which consumers poll, are stored last.
    #[inline]
    pub(super) fn store_cqe(&self, offset: usize, cqe: &Cqe) {
        assert!(offset < self.len && self.len - offset >= 64);
        let words: [u64; 8] = bytemuck::cast(*cqe);
        // SAFETY: the 64 bytes are inside the queue, and its base is 64-byte aligned for queues.
        let to = unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset).cast::<AtomicU64>(), 8) };
        order::store_cqe(to, &words);
    }
}
