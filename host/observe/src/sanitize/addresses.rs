//! Maps the addresses and symmetric offsets that a PE's kernels use to memory as the sanitizer knows it.

use std::sync::Arc;

use rushmem_device::Handle;
use rushmem_device::abi::{CtxParts, DevAddr, LOCAL_OFFSETS};
use rushmem_device::watch::PeRange;
use rushmem_sanitizer::{Bytes, Memory, Region, Regions, Space, Span};

#[derive(Clone, Copy, Debug)]
struct Segment {
    begin: u64,
    bytes: u64,
    space: Space,
}

/// Memory that the kernels of one PE can access, used to translate an address or symmetric offset to a [`Span`].
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    pe: u32,
    n_pes: u32,
    /// First offset of the heap that holds user objects, and the end of the heap.
    objects: (u64, u64),
    regions: Arc<Regions>,
    segments: Vec<Segment>,
}

impl Addresses {
    /// Creates the address map of a PE from its own heap and the heaps of all peers that it can access directly.
    ///
    /// The first `reserved` bytes of each heap belong to the runtime, and are excluded.
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

    /// Adds a memory segment beyond the first heap, given as the range of symmetric offsets `(begin, bytes)`.
    ///
    /// `addresses` yields its address on each PE that maps it. `is_window` is set for user memory registered by all
    /// PEs.
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

    /// Translates a range of symmetric offsets, or returns `None` if it is not within the memory that holds user
    /// objects.
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

    pub(super) fn own(&self, Handle { offset, bytes, .. }: Handle) -> Option<Span> {
        self.span(PeRange { pe: self.pe, offset, bytes })
    }

    pub(super) fn regions(&self) -> &Arc<Regions> {
        &self.regions
    }
}

/// Returns the first symmetric offset of memory of this kind.
fn base_of(space: Space) -> u64 {
    if space == Space::Local { LOCAL_OFFSETS } else { 0 }
}
