//! Queue memory that the CPU cannot access directly, such as GPU memory.

use super::{BLOCK_BYTES, BadQueueMemory};
use crate::memory::{Memory, MemoryError};
use rushmem_mlx5::{Cqe, Segment};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Maximum number of send queue blocks fetched by one read.
const MAX_READ_AHEAD: u16 = 32;

/// Offset within a CQE of the eight bytes that consumers poll.
const CQE_HEAD: usize = 56;

/// Queue memory that is accessed by reads and writes of its [`Memory`]. Once an access has failed, all words read as 0
/// and writes are dropped.
pub(crate) struct DeviceQueue {
    memory: Arc<dyn Memory>,
    base: u64,
    len: usize,
    ahead: RefCell<Ahead>,
    /// The words that the last [`DeviceQueue::take_words`] has read, and a spare buffer for the next call.
    seen: RefCell<Vec<u8>>,
    spare: RefCell<Vec<u8>>,
    has_failed: Cell<bool>,
}

/// Send queue blocks that a doorbell has announced, fetched by one read.
#[derive(Default)]
struct Ahead {
    first: u16,
    bytes: Vec<u8>,
}

impl Ahead {
    fn block(&self, index: u16) -> Option<&[u8]> {
        let at = usize::from(index.wrapping_sub(self.first)) * BLOCK_BYTES;
        self.bytes.get(at..at + BLOCK_BYTES)
    }
}

impl DeviceQueue {
    /// Checks the alignment of the `len` bytes of `memory` at `offset`. The caller has checked the range.
    pub(super) fn new(
        memory: &Arc<dyn Memory>,
        offset: u64,
        len: usize,
        align: usize,
    ) -> Result<DeviceQueue, BadQueueMemory> {
        let base = memory.place().map_or(0, |place| place.address).wrapping_add(offset);
        if !base.is_multiple_of(align as u64) {
            return Err(BadQueueMemory::Alignment);
        }
        let memory = Arc::clone(memory);
        let (ahead, seen, spare, has_failed) = Default::default();
        Ok(DeviceQueue { memory, base: offset, len, ahead, seen, spare, has_failed })
    }

    /// Calls `access` with the memory, unless an earlier access has failed. Returns the default value on failure.
    fn access<T: Default>(&self, access: impl FnOnce(&dyn Memory) -> Result<T, MemoryError>) -> T {
        if self.has_failed.get() {
            return T::default();
        }
        access(&*self.memory).unwrap_or_else(|error| {
            tracing::error!("a queue is lost: {error}");
            self.has_failed.set(true);
            T::default()
        })
    }

    fn read(&self, offset: usize, to: &mut [u8]) {
        assert!(offset <= self.len && to.len() <= self.len - offset);
        to.fill(0);
        self.access(|memory| memory.read(self.base + offset as u64, to));
    }

    fn write(&self, offset: usize, data: &[u8]) {
        assert!(offset <= self.len && data.len() <= self.len - offset);
        self.access(|memory| memory.write(self.base + offset as u64, data));
    }

    pub(super) fn load_u32(&self, offset: usize) -> u32 {
        let mut word = [0; 4];
        self.read(offset, &mut word);
        u32::from_ne_bytes(word)
    }

    /// Reads the words at `offsets` in one access, and calls `taken` for those that have changed since the last call.
    ///
    /// The words are not reset, since that could overwrite a newer value, so a value that is stored twice is missed.
    pub(super) fn take_words(&self, offsets: &[usize], mut taken: impl FnMut(usize, u64)) {
        const WORD: usize = size_of::<u64>();
        let (Some(first), Some(last)) = (offsets.first(), offsets.last()) else { return };
        let (mut seen, mut now) = (self.seen.borrow_mut(), self.spare.take());
        now.resize(last + WORD - first, 0);
        seen.resize(now.len(), 0);
        self.read(*first, &mut now);
        if self.has_failed.get() {
            return;
        }
        for offset in offsets {
            let word = offset - first..offset - first + WORD;
            if now[word.clone()] != seen[word.clone()] {
                taken(*offset, bytemuck::pod_read_unaligned(&now[word]));
            }
        }
        self.spare.replace(std::mem::replace(&mut *seen, now));
    }

    /// Fetches up to `blocks` blocks of the send queue from block `index` on, unless block `index` has been fetched
    /// before.
    pub(super) fn fetch_ahead(&self, index: u16, blocks: u16) {
        let mut ahead = self.ahead.borrow_mut();
        if ahead.block(index).is_some() {
            return;
        }
        let in_queue = self.len / BLOCK_BYTES;
        let slot = usize::from(index) & (in_queue - 1);
        let blocks = usize::from(blocks.min(MAX_READ_AHEAD)).min(in_queue - slot);
        ahead.first = index;
        ahead.bytes.resize(blocks * BLOCK_BYTES, 0);
        self.read(slot * BLOCK_BYTES, &mut ahead.bytes);
    }

    pub(super) fn load_block(&self, index: u16, out: &mut [Segment]) {
        let to: &mut [u8] = bytemuck::cast_slice_mut(out);
        if let Some(block) = self.ahead.borrow().block(index) {
            to.copy_from_slice(&block[..to.len()]);
            return;
        }
        self.read((usize::from(index) * BLOCK_BYTES) & (self.len - 1), to);
    }

    pub(super) fn load_segments(&self, offset: usize, out: &mut [Segment]) {
        self.read(offset, bytemuck::cast_slice_mut(out));
    }

    pub(super) fn restart(&self) {
        self.ahead.take();
    }

    pub(super) fn invalidate(&self, offset: usize) {
        self.write(offset + CQE_HEAD, &[0xff; 8]);
    }

    pub(super) fn store_u64(&self, offset: usize, value: u64) {
        self.write(offset, &value.to_ne_bytes());
    }

    /// Writes a CQE at a byte offset. Its polled bytes are written last: the memory makes writes visible in call order.
    pub(super) fn store_cqe(&self, offset: usize, cqe: &Cqe) {
        let (head, tail) = bytemuck::bytes_of(cqe).split_at(CQE_HEAD);
        self.write(offset, head);
        self.write(offset + CQE_HEAD, tail);
    }
}
