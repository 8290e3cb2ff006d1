//! Translates addresses on the wire to symmetric offsets.

use std::collections::HashMap;
use std::sync::Mutex;

use rushmem_base::lock;

/// Memory on one PE that is registered under one rkey, with its wire address and symmetric offset. Not used for the
/// first heap, whose wire addresses equal its offsets.
#[derive(Clone, Copy, Debug)]
pub struct WireRange {
    /// The PE that owns the registered memory.
    pub pe: u32,
    /// The rkey of the registered memory.
    pub key: u32,
    /// Wire address at which the memory starts.
    pub base: u64,
    /// Symmetric offset at which the memory starts.
    pub offset: u64,
}

/// Maps PE and rkey to registered memory beyond the first heap. In the first heap, wire addresses equal offsets.
#[derive(Debug, Default)]
pub(crate) struct WireOffsets(Mutex<HashMap<(u32, u32), WireRange>>);

impl WireOffsets {
    /// Adds registered memory. A range with an rkey that is already known replaces the old one.
    pub(super) fn add(&self, ranges: impl IntoIterator<Item = WireRange>) {
        lock(&self.0).extend(ranges.into_iter().map(|range| ((range.pe, range.key), range)));
    }

    /// Translates a wire address in memory of `pe` under rkey `key` to a symmetric offset.
    pub(super) fn offset(&self, pe: u32, addr: u64, key: u32) -> u64 {
        let found = lock(&self.0).get(&(pe, key)).copied();
        found.map_or(addr, |range| range.offset + addr.wrapping_sub(range.base))
    }
}
