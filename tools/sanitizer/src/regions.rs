//! Symmetric and registered memory by address.

use crate::access::{Memory, Span};
use crate::intervals::Bytes;

/// A range of mapped memory of one PE.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Its address in this process.
    pub address: u64,
    /// Its length, in bytes.
    pub bytes: u64,
    /// The memory that it is part of.
    pub memory: Memory,
    /// The offset of its first byte in that memory.
    pub start: u64,
}

/// The memory that kernels of a PE can access by address.
#[derive(Clone, Debug, Default)]
pub struct Regions(Vec<Region>);

impl Regions {
    /// Adds a region.
    pub fn add(&mut self, region: Region) {
        self.0.push(region);
    }

    /// Returns the memory at an address, if it lies within one region.
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
