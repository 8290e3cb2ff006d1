//! Segments (ranges of offsets besides the first heap), and the segment table through which kernels find them.
#![allow(unsafe_code, reason = "makes the context of a launch from addresses")]

use std::any::Any;
use std::mem::size_of;
use std::sync::Arc;

use bytemuck::Zeroable;
use rushmem_device::Handle;
use rushmem_device::abi::{CtxParts, DevAddr, SegmentDesc, SegmentEnd, SegmentTable, ctx_flags};
use rushmem_error::Result;
use rushmem_fabric::provider::{Key, Keys};
use rushmem_fabric::queues::RemoteEnd;
use rushmem_machine::{Machine, Region};
use rushmem_observe::sanitize::Addresses;
use rushmem_observe::trace::WireRange;

use crate::p2p::PeerMapping;

/// Memory to which kernels refer by the offsets from `begin` on. Fields drop in order: keys, memory, owner.
pub struct Segment {
    keys: Vec<Keys>,
    region: Region,
    /// The user's buffer, kept alive. `None` for memory of the runtime.
    owner: Option<Box<dyn Any + Send + Sync>>,
    pub(super) begin: u64,
    pub(super) bytes: u64,
    /// Stamp of the handles of a user buffer. 0 for growth of the heap, where each object has its own stamp.
    pub(super) stamp: u64,
    /// Keys and addresses on all PEs, if the segment is symmetric.
    peers: Option<Peers>,
}

/// Location of a symmetric segment on all PEs.
struct Peers {
    /// Wire addresses and keys: entry `pe * rails + rail`.
    ends: Vec<SegmentEnd>,
    /// For each PE, the address at which its part is mapped into this PE, or 0 if it is not.
    mapped: Vec<DevAddr>,
    /// Guard that keeps the parts of other PEs mapped.
    shared: Arc<PeerMapping>,
}

/// Returns the wire address and keys for each rail: rkeys for peers if `rkeys`, or lkeys for this PE.
fn ends(keys: &[Keys], rkeys: bool) -> Vec<SegmentEnd> {
    let word = |key: &dyn Key| if rkeys { key.rkey() } else { key.lkey() };
    let end = |keys: &Keys| SegmentEnd {
        base: keys.strict().base(),
        key: word(keys.data()),
        strict_key: word(keys.strict()),
    };
    keys.iter().map(end).collect()
}

impl Segment {
    /// Creates a segment of memory that `keys` register with this PE's NICs. [`Memory`](super::Memory) assigns its
    /// offsets when it is added.
    pub fn new(region: Region, keys: Vec<Keys>, owner: Option<Box<dyn Any + Send + Sync>>) -> Self {
        let bytes = region.memory.len();
        Self { keys, region, owner, begin: 0, bytes, stamp: 0, peers: None }
    }

    /// Assigns offsets to the segment: its first `bytes` bytes start at offset `begin`.
    pub(super) fn at(self, begin: u64, bytes: u64, stamp: u64) -> Self {
        Self { begin, bytes, stamp, ..self }
    }

    /// Makes the segment symmetric, given the keys of all PEs (`ends`) and the addresses of their parts (`mapped`).
    pub fn symmetric(self, ends: Vec<SegmentEnd>, mapped: Vec<DevAddr>, shared: PeerMapping) -> Self {
        Self { peers: Some(Peers { ends, mapped, shared: Arc::new(shared) }), ..self }
    }

    /// Returns the address at which `pe`'s part of the segment is mapped into this PE, if it is.
    pub(super) fn mapped(&self, pe: u32) -> Option<DevAddr> {
        self.peers.as_ref()?.mapped.get(pe as usize).copied().filter(|addr| addr.0 != 0)
    }

    /// Returns a guard that keeps the parts of other PEs mapped. `None` unless the segment is symmetric.
    pub(super) fn keep_mapped(&self) -> Option<Arc<PeerMapping>> {
        self.peers.as_ref().map(|peers| Arc::clone(&peers.shared))
    }

    /// Returns the wire address and rkeys of this PE's part for each rail, for access by peers.
    pub fn rkeys(&self) -> Vec<SegmentEnd> {
        ends(&self.keys, true)
    }

    /// Returns the wire address ranges of a symmetric segment on all PEs.
    pub(super) fn wire_ranges(&self) -> impl Iterator<Item = WireRange> {
        let (offset, rails) = (self.begin, self.keys.len().max(1));
        let ends = self.peers.iter().flat_map(|peers| peers.ends.iter().enumerate());
        ends.flat_map(move |(i, &SegmentEnd { base, key, strict_key })| {
            let range = move |key| WireRange { pe: (i / rails) as u32, key, base, offset };
            [range(key), range(strict_key)]
        })
    }

    /// Returns the wire address and rkey of `pe`'s part for access through rail `rail`, or `None` unless the segment is
    /// symmetric.
    pub(super) fn end(&self, pe: u32, rail: usize) -> Option<RemoteEnd> {
        let end = self.peers.as_ref()?.ends.get(pe as usize * self.keys.len() + rail)?;
        Some((end.base, end.strict_key))
    }

    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Returns whether the segment is a user buffer that overlaps the `bytes` bytes at `address`.
    pub(super) fn overlaps(&self, address: u64, bytes: u64) -> bool {
        let begin = self.region.memory.host_ptr().map_or(self.region.addr.0, |start| start.as_ptr() as u64);
        self.owner.is_some() && begin < address.saturating_add(bytes) && address < begin + self.bytes
    }

    /// Returns whether the segment is a user buffer and `handle` refers to it or to a part of it.
    pub(super) fn holds(&self, handle: Handle) -> bool {
        let inside = handle.offset.checked_sub(self.begin).and_then(|at| at.checked_add(handle.bytes));
        self.stamp != 0 && self.stamp == handle.stamp && inside.is_some_and(|end| end <= self.bytes)
    }

    /// Number of bytes in the segment's tail: see [`Segment::describe`].
    fn tail_bytes(&self) -> usize {
        let peers = self.peers.as_ref();
        let ends = self.keys.len() + peers.map_or(0, |peers| peers.ends.len());
        ends * size_of::<SegmentEnd>() + peers.map_or(0, |peers| peers.mapped.len()) * size_of::<DevAddr>()
    }

    /// Returns the segment's entry in a segment table, and the tail to which it points: own keys, keys of peers,
    /// addresses of peers. The tail will be at `tail_at`.
    pub(super) fn describe(&self, tail_at: DevAddr) -> (SegmentDesc, Vec<u8>) {
        let mut tail = bytemuck::cast_slice(&ends(&self.keys, false)).to_vec();
        let mut entry = SegmentDesc {
            begin: self.begin,
            bytes: self.bytes,
            addr: self.region.addr,
            addr_bytes: self.bytes,
            ends: tail_at,
            ..SegmentDesc::zeroed()
        };
        if let Some(peers) = &self.peers {
            tail.extend_from_slice(bytemuck::cast_slice(&peers.ends));
            entry.mapped = tail_at.add(tail.len() as u64);
            tail.extend_from_slice(bytemuck::cast_slice(&peers.mapped));
        }
        (entry, tail)
    }

    /// Deregisters the memory and returns the user's buffer.
    pub fn into_owner(self) -> Option<Box<dyn Any + Send + Sync>> {
        let Self { keys, region, owner, .. } = self;
        // In this order: the buffer may be freed only when neither a NIC nor the machine refers to it.
        drop(keys);
        drop(region);
        owner
    }
}

/// A segment table in memory that kernels can read, with the matching kernel context. It is immutable: an update builds
/// a new table, and running launches keep theirs.
pub struct SegmentMap {
    _region: Region,
    parts: CtxParts,
    segments: Vec<Arc<Segment>>,
}

impl Segment {
    /// Returns whether kernels access the part of some PE through the NIC, because it is not mapped.
    fn goes_through_nic(&self) -> bool {
        self.peers.as_ref().is_some_and(|peers| peers.mapped.iter().any(|addr| addr.0 == 0))
    }
}

impl SegmentMap {
    /// Builds a segment table in memory of `machine`. `own` is the PE's kernel context without segments.
    pub(super) fn new(machine: &dyn Machine, own: CtxParts, segments: Vec<Arc<Segment>>) -> Result<Self> {
        let descs = size_of::<SegmentTable>() + segments.len() * size_of::<SegmentDesc>();
        let head = descs.next_multiple_of(size_of::<SegmentEnd>());
        let region = machine.local((head + segments.iter().map(|s| s.tail_bytes()).sum::<usize>()) as u64)?;
        // Layout: header, one descriptor per segment, then their tails.
        let (mut table, mut tails) = (vec![0u8; head], Vec::new());
        let (header, descs) = table.split_at_mut(size_of::<SegmentTable>());
        let parts = CtxParts { segments: region.addr, ..adapt(own, &segments) };
        let count = segments.len() as u64;
        header.copy_from_slice(bytemuck::bytes_of(&SegmentTable { parts, count, in_place: 0 }));
        for (segment, desc) in segments.iter().zip(descs.chunks_exact_mut(size_of::<SegmentDesc>())) {
            let (entry, tail) = segment.describe(region.addr.add((head + tails.len()) as u64));
            tails.extend(tail);
            desc.copy_from_slice(bytemuck::bytes_of(&entry));
        }
        table.extend(tails);
        region.write(0, &table)?;
        Ok(Self { _region: region, parts, segments })
    }

    pub(super) fn ctx(&self) -> CtxParts {
        self.parts
    }

    /// Returns the addresses that kernels with this segment table can access, for the sanitizer.
    pub(super) fn addresses(&self, reserved: u64) -> Addresses {
        let mut addresses = Addresses::new(&self.parts, reserved);
        let CtxParts { pe, n_pes, .. } = self.parts;
        for segment in &self.segments {
            let own = (pe, segment.region.addr);
            let others = (0..n_pes).filter(|&peer| peer != pe);
            let mapped = others.filter_map(|peer| Some((peer, segment.mapped(peer)?)));
            let all = std::iter::once(own).chain(mapped);
            addresses.add((segment.begin, segment.bytes), segment.stamp != 0, all);
        }
        addresses
    }

    pub(super) fn segments(&self) -> &[Arc<Segment>] {
        &self.segments
    }
}

/// Adapts a PE's kernel context to `segments`. If some segment is not mapped, a PE with P2P access to all heaps still
/// uses the NIC.
pub(super) fn adapt(own: CtxParts, segments: &[Arc<Segment>]) -> CtxParts {
    let mut parts = own;
    if segments.iter().any(|segment| segment.region.memory.host_ptr().is_some()) {
        parts.flags |= ctx_flags::HOST_MEMORY;
    }
    let nic = segments.iter().any(|segment| segment.goes_through_nic());
    if nic && parts.flags & ctx_flags::P2P_ALL != 0 {
        parts.flags &= !ctx_flags::P2P_ALL;
        (parts.mixed_from, parts.mixed_to) = (0, parts.n_pes);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushmem_machine::Native;
    use rushmem_native::Options;

    #[test]
    fn segments_in_host_memory_set_the_flag() {
        let machine = Native::new(Options::default());
        let has_host_memory = |segments| {
            let table = SegmentMap::new(&machine, CtxParts::zeroed(), segments).unwrap();
            table.ctx().flags & ctx_flags::HOST_MEMORY != 0
        };
        assert!(!has_host_memory(Vec::new()));
        let segment = Segment::new(machine.local(4096).unwrap(), Vec::new(), None).at(1 << 20, 4096, 0);
        assert!(has_host_memory(vec![Arc::new(segment)]));
    }
}
