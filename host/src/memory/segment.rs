//! Memory beyond the heap: what it has grown by, and buffers of the user's; and the table of it that kernels get.

use std::any::Any;
use std::mem::size_of;
use std::sync::Arc;

use bytemuck::Zeroable;
use rushmem_device::abi::{CtxParts, DevAddr, SegmentDesc, SegmentEnd, SegmentTable, ctx_flags};
use rushmem_device::{Ctx, Handle};

use crate::Result;
use crate::machine::{Machine, Region};
use crate::p2p::PeerMapping;
use crate::provider::Key;

/// Memory at the offsets from `begin` on. Fields drop in order: keys before the memory, the memory before its owner.
pub(crate) struct Segment {
    keys: Vec<Box<dyn Key>>,
    region: Region,
    /// What the user has given; `None` for memory of the runtime's own.
    owner: Option<Box<dyn Any + Send + Sync>>,
    pub(super) begin: u64,
    pub(super) bytes: u64,
    /// Of the handles of a user's buffer; 0 for what the heap has grown by, whose objects have their own.
    pub(super) stamp: u64,
    /// If it is symmetric: how the NICs of each PE know its memory, and where that is mapped here.
    peers: Option<Peers>,
}

/// The same segment on all PEs.
struct Peers {
    /// By PE and NIC.
    ends: Vec<SegmentEnd>,
    /// By PE; 0 for those that are not.
    mapped: Vec<DevAddr>,
    /// What keeps it so.
    _shared: PeerMapping,
}

/// How NICs know memory: those of peers, or this PE's own.
fn ends(keys: &[Box<dyn Key>], rkeys: bool) -> Vec<SegmentEnd> {
    let end = |key: &dyn Key| {
        let word = if rkeys { key.rkey() } else { key.lkey() };
        SegmentEnd { base: key.base(), key: word, reserved: 0 }
    };
    keys.iter().map(|key| end(&**key)).collect()
}

impl Segment {
    /// Memory that is registered with this PE's NICs by `keys`. It belongs to no offsets yet.
    pub(crate) fn new(
        region: Region,
        keys: Vec<Box<dyn Key>>,
        owner: Option<Box<dyn Any + Send + Sync>>,
    ) -> Self {
        let bytes = region.memory.len();
        Self { keys, region, owner, begin: 0, bytes, stamp: 0, peers: None }
    }

    /// The segment, `bytes` long, at the offsets from `begin` on.
    pub(super) fn at(self, begin: u64, bytes: u64, stamp: u64) -> Self {
        Self { begin, bytes, stamp, ..self }
    }

    /// The segment, which all PEs have: known to their NICs by `ends`, and mapped where `mapped` says.
    pub(crate) fn symmetric(self, ends: Vec<SegmentEnd>, mapped: Vec<DevAddr>, shared: PeerMapping) -> Self {
        Self { peers: Some(Peers { ends, mapped, _shared: shared }), ..self }
    }

    /// Where the memory of another PE is mapped here.
    pub(super) fn mapped(&self, pe: u32) -> Option<DevAddr> {
        self.peers.as_ref()?.mapped.get(pe as usize).copied().filter(|addr| addr.0 != 0)
    }

    /// How the NICs of peers know it on this PE.
    pub(crate) fn rkeys(&self) -> Vec<SegmentEnd> {
        ends(&self.keys, true)
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// True if it is a buffer of the user's, and its address range and the given one meet.
    pub(super) fn overlaps(&self, address: u64, bytes: u64) -> bool {
        let begin = self.region.memory.host_ptr().map_or(self.region.addr.0, |start| start.as_ptr() as u64);
        self.owner.is_some() && begin < address.saturating_add(bytes) && address < begin + self.bytes
    }

    /// True if `handle` names it or a part of it.
    pub(super) fn holds(&self, handle: Handle) -> bool {
        let inside = handle.offset.checked_sub(self.begin).and_then(|at| at.checked_add(handle.bytes));
        self.stamp != 0 && self.stamp == handle.stamp && inside.is_some_and(|end| end <= self.bytes)
    }

    /// Ends its registration, and gives back what the user gave.
    pub(crate) fn into_owner(self) -> Option<Box<dyn Any + Send + Sync>> {
        let Self { keys, region, owner, .. } = self;
        drop(keys);
        drop(region);
        owner
    }
}

/// The segments that launches of one time know, and the context that they get. Never changed: there is a new table instead,
/// and a launch keeps its own.
pub(crate) struct SegmentMap {
    _region: Region,
    parts: CtxParts,
    segments: Vec<Arc<Segment>>,
}

impl Segment {
    /// Symmetric memory that is not mapped everywhere, so that some of it is reached through the NIC.
    fn goes_through_nic(&self) -> bool {
        self.peers.as_ref().is_some_and(|peers| peers.mapped.iter().any(|addr| addr.0 == 0))
    }
}

impl SegmentMap {
    /// The table of `segments`, in memory of `machine`, of a PE whose own parts of a context are `own`.
    pub(super) fn new(machine: &dyn Machine, own: CtxParts, segments: Vec<Arc<Segment>>) -> Result<Self> {
        let tail = |segment: &Segment| {
            let of_peers = segment.peers.as_ref();
            let ends = segment.keys.len() + of_peers.map_or(0, |peers| peers.ends.len());
            let mapped = of_peers.map_or(0, |peers| peers.mapped.len());
            ends * size_of::<SegmentEnd>() + mapped * size_of::<DevAddr>()
        };
        let descs = size_of::<SegmentTable>() + segments.len() * size_of::<SegmentDesc>();
        let head = descs.next_multiple_of(size_of::<SegmentEnd>());
        let region = machine.local((head + segments.iter().map(|s| tail(s)).sum::<usize>()) as u64)?;
        let (mut table, mut tails) = (vec![0u8; head], Vec::new());
        let (told, descs) = table.split_at_mut(size_of::<SegmentTable>());
        let parts = CtxParts { segments: region.addr, ..known(own, &segments) };
        let count = segments.len() as u64;
        told.copy_from_slice(bytemuck::bytes_of(&SegmentTable { parts, count, reserved: 0 }));
        let after = |tails: &Vec<u8>| region.addr.add((head + tails.len()) as u64);
        for (segment, desc) in segments.iter().zip(descs.chunks_exact_mut(size_of::<SegmentDesc>())) {
            let mut told = SegmentDesc {
                begin: segment.begin,
                bytes: segment.bytes,
                addr: segment.region.addr,
                ends: after(&tails),
                ..SegmentDesc::zeroed()
            };
            tails.extend_from_slice(bytemuck::cast_slice(&ends(&segment.keys, false)));
            if let Some(peers) = &segment.peers {
                tails.extend_from_slice(bytemuck::cast_slice(&peers.ends));
                told.mapped = after(&tails);
                tails.extend_from_slice(bytemuck::cast_slice(&peers.mapped));
            }
            desc.copy_from_slice(bytemuck::bytes_of(&told));
        }
        table.extend(tails);
        region.write(0, &table)?;
        Ok(Self { _region: region, parts, segments })
    }

    /// The context of a launch.
    pub(super) fn ctx(&self) -> Ctx {
        // SAFETY: the addresses are of memory that the PE keeps, and of the table, which the launch keeps.
        unsafe { Ctx::from_parts(self.parts) }
    }

    pub(super) fn segments(&self) -> &[Arc<Segment>] {
        &self.segments
    }
}

/// What a launch with these segments gets of a PE's own parts. One that reaches all heaps by loads and stores uses the NIC
/// all the same if there is a segment which it does not reach so.
fn known(own: CtxParts, segments: &[Arc<Segment>]) -> CtxParts {
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
    use crate::machine::Native;
    use crate::native::Options;

    #[test]
    fn a_launch_is_told_of_memory_of_the_host() {
        let machine = Native::new(Options::default(), 1);
        let told = |segments| {
            let table = SegmentMap::new(&machine, CtxParts::zeroed(), segments).unwrap();
            table.ctx().parts().flags & ctx_flags::HOST_MEMORY != 0
        };
        assert!(!told(Vec::new()));
        let segment = Segment::new(machine.local(4096).unwrap(), Vec::new(), None).at(1 << 20, 4096, 0);
        assert!(told(vec![Arc::new(segment)]));
    }
}
