//! The symmetric offsets behind addresses on the wire.

use std::collections::HashMap;
use std::sync::Mutex;

use rushmem_base::lock;

/// Symmetric memory beyond the first heap, on one PE, as one key of a NIC names it.
#[derive(Clone, Copy, Debug)]
pub struct WireRange {
    /// The PE.
    pub pe: u32,
    /// The rkey.
    pub key: u32,
    /// The address on the wire of its first byte.
    pub base: u64,
    /// The symmetric offset of its first byte.
    pub offset: u64,
}

/// The offsets of the memory that the PEs of this process know. The address of memory in the first heap is its offset.
#[derive(Debug, Default)]
pub(crate) struct WireOffsets(Mutex<HashMap<(u32, u32), WireRange>>);

impl WireOffsets {
    /// Adds ranges. A key that was used before names new memory then.
    pub(super) fn add(&self, ranges: impl IntoIterator<Item = WireRange>) {
        lock(&self.0).extend(ranges.into_iter().map(|range| ((range.pe, range.key), range)));
    }

    /// Returns the offset of the memory of `pe` behind an address and an rkey.
    pub(super) fn offset(&self, pe: u32, addr: u64, key: u32) -> u64 {
        let found = lock(&self.0).get(&(pe, key)).copied();
        found.map_or(addr, |range| range.offset + addr.wrapping_sub(range.base))
    }
}
