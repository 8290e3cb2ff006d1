//! Translates addresses on the wire to symmetric offsets.

use std::collections::HashMap;
use std::sync::Mutex;

use rushmem_base::lock;

/// Symmetric memory beyond the first heap on one PE, as named by one key of a NIC.
#[derive(Clone, Copy, Debug)]
pub struct WireRange {
    /// The PE that owns the memory.
    pub pe: u32,
    /// Its rkey.
    pub key: u32,
    /// The wire address of its first byte.
    pub base: u64,
    /// The symmetric offset of its first byte.
    pub offset: u64,
}

/// The offsets of the memory that the PEs of this process know. In the first heap, wire addresses equal offsets.
#[derive(Debug, Default)]
pub(crate) struct WireOffsets(Mutex<HashMap<(u32, u32), WireRange>>);

impl WireOffsets {
    /// Adds ranges. If a key is reused, it names the new memory from now on.
    pub(super) fn add(&self, ranges: impl IntoIterator<Item = WireRange>) {
        lock(&self.0).extend(ranges.into_iter().map(|range| ((range.pe, range.key), range)));
    }

    /// Returns the symmetric offset of an address and rkey of `pe`.
    pub(super) fn offset(&self, pe: u32, addr: u64, key: u32) -> u64 {
        let found = lock(&self.0).get(&(pe, key)).copied();
        found.map_or(addr, |range| range.offset + addr.wrapping_sub(range.base))
    }
}
