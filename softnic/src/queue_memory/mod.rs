//! Memory that the adapter and its driver access word by word: queues, doorbell records, UAR pages.
//!
//! In host memory, words are loaded and stored. In GPU memory, which the CPU cannot access, each access is a read or a
//! write of the [`Memory`], like an access of a ConnectX over PCIe. Those are executed in call order; `order` has the
//! order of loads and stores.

mod device;
mod host;
mod order;

use crate::memory::Memory;
use device::DeviceQueue;
use host::HostQueue;
use rushmem_mlx5::{Cqe, Segment};
use std::sync::Arc;

/// Length of a send queue basic block, in bytes.
const BLOCK_BYTES: usize = 64;

/// A checked range of memory that holds a queue, a doorbell record or a UAR page. It keeps the memory alive, and all
/// accesses stay within it.
pub(crate) enum QueueMemory {
    Host(HostQueue),
    Device(DeviceQueue),
}

/// Why a range of memory cannot hold a queue or a doorbell record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadQueueMemory {
    Range,
    Alignment,
}

impl QueueMemory {
    /// Checks that the `len` bytes of `memory` at `offset` exist and are aligned to `align` bytes.
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

    /// Whether the CPU cannot access the memory directly, in which case an access takes microseconds.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self, QueueMemory::Device(_))
    }

    /// Loads the 4-byte word at `offset` with acquire ordering, which makes data published before it visible.
    #[inline]
    pub(crate) fn load_u32(&self, offset: usize) -> u32 {
        match self {
            QueueMemory::Host(queue) => queue.load_u32(offset),
            QueueMemory::Device(queue) => queue.load_u32(offset),
        }
    }

    /// Takes the 8-byte words at `offsets`, in ascending order, that the driver has stored. In host memory, taking a
    /// word leaves 0. The acquire pairs with the release before the driver's doorbell.
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

    /// Prepares to load `blocks` blocks of a send queue from block `index` on, modulo the queue size. The driver has
    /// announced them by a doorbell.
    #[inline]
    pub(crate) fn fetch_ahead(&self, index: u16, blocks: u16) {
        match self {
            QueueMemory::Host(queue) => queue.prefetch_block(usize::from(index) + 2),
            QueueMemory::Device(queue) => queue.fetch_ahead(index, blocks),
        }
    }

    /// Copies the segments of block `index`, modulo the number of blocks, which is a power of two.
    #[inline]
    pub(crate) fn load_block(&self, index: u16, out: &mut [Segment]) {
        match self {
            QueueMemory::Host(queue) => queue.load_block(usize::from(index), out),
            QueueMemory::Device(queue) => queue.load_block(index, out),
        }
    }

    /// Copies segments starting at a byte offset, which is a multiple of 16.
    pub(crate) fn load_segments(&self, offset: usize, out: &mut [Segment]) {
        match self {
            QueueMemory::Host(queue) => queue.load_segments(offset, out),
            QueueMemory::Device(queue) => queue.load_segments(offset, out),
        }
    }

    /// Forgets send queue blocks that were fetched ahead, because the driver restarts the queue.
    pub(crate) fn restart(&self) {
        if let QueueMemory::Device(queue) = self {
            queue.restart();
        }
    }

    /// Invalidates the CQE at a byte offset, for consumers that poll its last eight bytes.
    #[inline]
    pub(crate) fn invalidate(&self, offset: usize) {
        match self {
            QueueMemory::Host(queue) => queue.invalidate(offset),
            QueueMemory::Device(queue) => queue.invalidate(offset),
        }
    }

    #[inline]
    pub(crate) fn store_u64(&self, offset: usize, value: u64) {
        match self {
            QueueMemory::Host(queue) => queue.store_u64(offset, value),
            QueueMemory::Device(queue) => queue.store_u64(offset, value),
        }
    }

    /// Writes a CQE at a byte offset. Its last eight bytes, which consumers poll, are stored last.
    #[inline]
    pub(crate) fn store_cqe(&self, offset: usize, cqe: &Cqe) {
        match self {
            QueueMemory::Host(queue) => queue.store_cqe(offset, cqe),
            QueueMemory::Device(queue) => queue.store_cqe(offset, cqe),
        }
    }
}
