//! The memory that kernels of a PE can access, by address and by offset.

use std::sync::Arc;

use rushmem_device::Handle;
use rushmem_device::abi::{CtxParts, DevAddr, LOCAL_OFFSETS};
use rushmem_device::watch::PeRange;
use rushmem_sanitizer::{Bytes, Memory, Region, Regions, Space, Span};

/// A range of offsets beyond the first heap.
#[derive(Clone, Copy, Debug)]
struct Segment {
    begin: u64,
    bytes: u64,
    space: Space,
}

/// The memory that kernels of a PE can access.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    pe: u32,
    n_pes: u32,
    /// The offsets of the heap that hold objects.
    objects: (u64, u64),
    regions: Arc<Regions>,
    segments: Vec<Segment>,
}

impl Addresses {
    /// Creates the heaps of a context. The runtime uses the first `reserved` bytes of each heap itself.
    pub fn new(parts: &CtxParts, reserved: u64) -> Self {
        let window = |pe: u32| parts.p2p_base.0.wrapping_add(u64::from(pe) * parts.p2p_stride);
        let peers = (0..parts.n_pes).filter(|&pe| pe != parts.pe && parts.is_p2p(pe));
        let others = peers.map(|pe| (pe, window(pe)));
        let mut regions = Regions::default();
        for (pe, address) in std::iter::once((parts.pe, parts.heap.0)).chain(others) {
            let memory = Memory { pe, space: Space::Heap };
            let bytes = parts.heap_bytes.saturating_sub(reserved);
            regions.add(Region { address: address.wrapping_add(reserved), bytes, memory, start: reserved });
        }
        Self {
            pe: parts.pe,
            n_pes: parts.n_pes,
            objects: (reserved, parts.heap_bytes),
            regions: Arc::new(regions),
            segments: Vec::new(),
        }
    }

    /// Adds a segment at these offsets, with its address on each PE that maps it. `is_window` says that it is user
    /// memory of all PEs.
    pub fn add(
        &mut self,
        (begin, bytes): (u64, u64),
        is_window: bool,
        addresses: impl Iterator<Item = (u32, DevAddr)>,
    ) {
        let space = match is_window {
            _ if begin >= LOCAL_OFFSETS => Space::Local,
            true => Space::Window,
            false => Space::Heap,
        };
        self.segments.push(Segment { begin, bytes, space });
        let start = begin - base_of(space);
        for (pe, address) in addresses {
            let region = Region { address: address.0, bytes, memory: Memory { pe, space }, start };
            Arc::make_mut(&mut self.regions).add(region);
        }
    }

    /// Returns the memory of a range, provided that it lies within an object.
    pub(super) fn span(&self, PeRange { pe, offset, bytes }: PeRange) -> Option<Span> {
        let end = offset.checked_add(bytes)?;
        let (first, last) = self.objects;
        let space = if offset < last {
            (first <= offset && end <= last).then_some(Space::Heap)?
        } else {
            let holds = |s: &&Segment| s.begin <= offset && end <= s.begin.saturating_add(s.bytes);
            self.segments.iter().find(holds)?.space
        };
        let base = base_of(space);
        let bytes = Bytes { start: offset - base, end: end - base };
        (pe < self.n_pes && bytes.start < bytes.end).then_some(Span { memory: Memory { pe, space }, bytes })
    }

    /// Returns this PE's memory of a handle.
    pub(super) fn own(&self, Handle { offset, bytes, .. }: Handle) -> Option<Span> {
        self.span(PeRange { pe: self.pe, offset, bytes })
    }

    pub(super) fn regions(&self) -> &Arc<Regions> {
        &self.regions
    }
}

/// Returns the first offset of a kind of memory.
fn base_of(space: Space) -> u64 {
    if space == Space::Local { LOCAL_OFFSETS } else { 0 }
}
