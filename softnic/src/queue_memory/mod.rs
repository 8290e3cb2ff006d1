//! Memory that the adapter and its driver share word by word: queues, doorbell records, UAR pages.
//!
//! The CPU loads and stores the words of host memory. It cannot do that in GPU memory. Each access there is a read or a write
//! of the [`Memory`], like the accesses of a ConnectX over PCIe.

mod device;
mod host;

use crate::memory::Memory;
use device::DeviceQueue;
use host::HostQueue;
use rushmem_mlx5::{Cqe, Segment};
use std::sync::Arc;

/// Bytes of one work-queue basic block.
const BLOCK_BYTES: usize = 64;

/// A checked range of memory. It keeps the memory alive, and every access stays inside.
pub(crate) enum QueueMemory {
    Host(HostQueue),
    Device(DeviceQueue),
}

/// The reason why memory is unsuitable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadQueueMemory {
    Range,
    Alignment,
}

impl QueueMemory {
    /// Checks `len` bytes of `memory` from `offset` for this alignment.
    pub(crate) fn new(
        memory: &Arc<dyn Memory>,
        offset: u64,
        len: usize,
        align: usize,
    ) -> Result<QueueMemory, BadQueueMemory> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= memory.len() => {}
            _ => return Err(BadQueueMemory::Range),
        }
        Ok(match memory.host_ptr() {
            Some(start) => QueueMemory::Host(HostQueue::new(memory, start, offset, len, align)?),
            None => QueueMemory::Device(DeviceQueue::new(memory, offset, len, align)?),
        })
    }

    /// Returns whether the memory is not host memory. An access then takes microseconds.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self, QueueMemory::Device(_))
    }

    /// Loads a word with acquire ordering: data published before the word is visible.
    #[inline]
    pub(crate) fn load_u32(&self, offset: usize) -> u32 {
        match self {
            QueueMemory::Host(queue) => queue.load_u32(offset),
            QueueMemory::Device(queue) => queue.load_u32(offset),
        }
    }

    /// Takes the words of 8 bytes at `offsets`, in ascending order, that the driver has stored. It takes the words of host
    /// memory by leaving 0. The acquire pairs with the driver's release before its doorbell.
    #[inline]
    pub(crate) fn take_words(&self, offsets: &[usize], mut taken: impl FnMut(usize, u64)) {
        match self {
            QueueMemory::Host(queue) => {
                for offset in offsets {
                    if let Some(value) = queue.take_u64(*offset) {
                        taken(*offset, value);
                    }
                }
            }
            QueueMemory::Device(queue) => queue.take_words(offsets, taken),
        }
    }

    /// Prepares to load `blocks` blocks from block `index`, modulo the queue. The driver has announced them.
    #[inline]
    pub(crate) fn fetch_ahead(&self, index: u16, blocks: u16) {
        match self {
            QueueMemory::Host(queue) => queue.prefetch_block(usize::from(index) + 2),
            QueueMemory::Device(queue) => queue.fetch_ahead(index, blocks),
        }
    }

    /// Copies the segments of block `index`, modulo the queue, which has a power of two of blocks.
    #[inline]
    pub(crate) fn load_block(&self, index: u16, out: &mut [Segment]) {
        match self {
            QueueMemory::Host(queue) => queue.load_block(usize::from(index), out),
            QueueMemory::Device(queue) => queue.load_block(index, out),
        }
    }

    /// Copies segments from a byte offset that is a multiple of 16.
    pub(crate) fn load_segments(&self, offset: usize, out: &mut [Segment]) {
        match self {
            QueueMemory::Host(queue) => queue.load_segments(offset, out),
            QueueMemory::Device(queue) => queue.load_segments(offset, out),
        }
    }

    /// Forgets blocks that were fetched ahead, because the driver starts the queue again.
    pub(crate) fn restart(&self) {
        if let QueueMemory::Device(queue) = self {
            queue.restart();
        }
    }

    /// Makes the CQE at a byte offset invalid, for consumers that poll its last eight bytes.
    #[inline]
    pub(crate) fn invalidate(&self, offset: usize) {
        match self {
            QueueMemory::Host(queue) => queue.invalidate(offset),
            QueueMemory::Device(queue) => queue.invalidate(offset),
        }
    }

    /// Stores a word of 8 bytes.
    #[inline]
    pub(crate) fn store_u64(&self, offset: usize, value: u64) {
        match self {
            QueueMemory::Host(queue) => queue.store_u64(offset, value),
            QueueMemory::Device(queue) => queue.store_u64(offset, value),
        }
    }

    /// Writes a CQE at a byte offset. Consumers poll its last eight bytes, which are stored last.
    #[inline]
    pub(crate) fn store_cqe(&self, offset: usize, cqe: &Cqe) {
        match self {
            QueueMemory::Host(queue) => queue.store_cqe(offset, cqe),
            QueueMemory::Device(queue) => queue.store_cqe(offset, cqe),
        }
    }
}
