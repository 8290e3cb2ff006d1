//! Translates addresses to symmetric and registered memory.

use crate::access::{Memory, Span};
use crate::intervals::Bytes;

/// A range of a PE's memory that is mapped into this process.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Address of the range in this process.
    pub address: u64,
    /// Length of the range, in bytes.
    pub bytes: u64,
    /// The memory that contains the range.
    pub memory: Memory,
    /// Offset of the range's first byte in that memory.
    pub start: u64,
}

/// The mapped memory that kernels of a PE can access, searchable by address.
#[derive(Clone, Debug, Default)]
pub struct Regions(Vec<Region>);

impl Regions {
    /// Adds a range of mapped memory.
    pub fn add(&mut self, region: Region) {
        self.0.push(region);
    }

    /// Translates `bytes` bytes at an address, or returns `None` if they are not within one mapped range.
    pub fn at(&self, address: u64, bytes: u64) -> Option<Span> {
        let inside = |region: &&Region| address.wrapping_sub(region.address) < region.bytes;
        let Region { address: first, bytes: len, memory, start } = *self.0.iter().find(inside)?;
        let offset = address - first;
        let is_whole = bytes > 0 && bytes <= len - offset;
        let start = start + offset;
        is_whole.then_some(Span { memory, bytes: Bytes { start, end: start + bytes } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Space;

    #[test]
    fn an_address_has_the_memory_of_its_region() {
        let mut regions = Regions::default();
        let memory = |pe| Memory { pe, space: Space::Heap };
        regions.add(Region { address: 1000, bytes: 100, memory: memory(0), start: 64 });
        regions.add(Region { address: 2000, bytes: 100, memory: memory(1), start: 0 });
        assert_eq!(regions.at(1008, 8), Some(Span::heap(0, 72, 8)));
        assert_eq!(regions.at(2000, 100), Some(Span::heap(1, 0, 100)));
        assert_eq!([(999, 1), (1096, 8), (1100, 1), (1000, 0)].map(|(at, n)| regions.at(at, n)), [None; 4]);
    }
}
