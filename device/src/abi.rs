//! Memory layout of everything that the host fills in and kernels read: contexts, descriptors, words and error records.
//!
//! Plain data is `Pod`. Types with an address that device code trusts, such as the context or a symmetric handle, are
//! not, so safe code cannot forge them from bytes. The host writes descriptors once. Words that kernels update are in
//! separate structs, each word in its own cache line. Magic number, version and layout hash in [`Header`] allow a
//! kernel to reject a host from another build.

mod queues;
mod timeline;

pub use queues::{
    Connection, FIRST_BLOCK, Handshake, LostResult, MovedKey, QpDesc, QpEntry, QpState, answer, qp_flags,
    result_order,
};
pub use timeline::{TRACE_RINGS, TRACED_QUEUE, TraceArea, TracedCall, traced};

use bytemuck::{Pod, Zeroable};
use core::mem::{offset_of, size_of};

/// "RUSH": the first word of every context.
pub const MAGIC: u32 = u32::from_be_bytes(*b"RUSH");

/// Version of the ABI between host and kernels. Incremented for incompatible changes that [`LAYOUT`] cannot detect.
pub const VERSION: u32 = 9;

/// Hash of the sizes and field offsets of the ABI's structs. A kernel rejects a host that was built with another hash.
pub const LAYOUT: u64 = layout_hash();

/// An address in the address space of the kernel: that of the GPU, or of the process of a native kernel.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct DevAddr(pub u64);

impl DevAddr {
    /// Returns the address as a pointer.
    pub fn ptr<T>(self) -> *mut T {
        self.0 as usize as *mut T
    }

    /// Returns the address that is `bytes` bytes higher.
    pub const fn add(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

/// Identifies the host's build. A kernel checks it before it trusts the rest of its context. The layout of the header
/// itself never changes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Header {
    /// Always [`MAGIC`].
    pub magic: u32,
    /// [`VERSION`] with which the host was built.
    pub version: u32,
    /// [`LAYOUT`] with which the host was built.
    pub layout: u64,
    /// Address of the [`ControlPage`], on which even a kernel from another build can report the mismatch.
    pub control: DevAddr,
}

/// Contents of a context, which is the first parameter of every kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct CtxParts {
    /// Identifies the host's build, for the kernel to check.
    pub header: Header,
    /// Address of this PE's [`DeviceState`].
    pub state: DevAddr,
    /// Base of this PE's symmetric heap.
    pub heap: DevAddr,
    /// Length of the heap, in bytes.
    pub heap_bytes: u64,
    /// Address of the launch's [`SegmentTable`], for memory at offsets past `heap_bytes`.
    pub segments: DevAddr,
    /// Address of the table of [`PeerDesc`]s, indexed by PE number.
    pub peers: DevAddr,
    /// Address of the table of [`QpEntry`]s, in sets of `n_pes` QPs; the sets that blocks share come first.
    pub qps: DevAddr,
    /// This PE's number in the job.
    pub pe: u32,
    /// Number of PEs in the job.
    pub n_pes: u32,
    /// First QP set that this context uses.
    pub first_set: u32,
    /// Number of QP sets over which this context spreads blocks; a multiple of `rails`.
    pub n_sets: u32,
    /// Number of [`PerBlock`](crate::PerBlock) contexts. Each has `rails` QP sets, stored after the shared ones.
    pub block_sets: u32,
    /// Number of [`Exclusive`](crate::Exclusive) contexts. Each has `rails` QP sets, stored after those of the
    /// per-block contexts.
    pub exclusive_sets: u32,
    /// Number of rails. Set `s` uses rail `s % rails`, which is the NIC with that index on both PEs.
    pub rails: u32,
    /// First of the mixed PEs, whose memory is mapped on this PE but whose atomics go through the NIC. `fence` must
    /// wait for the QPs to them. Not every PE in the range need be mixed.
    pub mixed_from: u32,
    /// One past the last mixed PE.
    pub mixed_to: u32,
    /// Number of contexts created by the host, see [`Context`](crate::Context). Each has `rails` QP sets, stored after
    /// the exclusive ones.
    pub context_sets: u32,
    /// Address of the status word of the launch queue, or 0 if there is none. The word holds the `mark` of the launch
    /// that failed, or 0. A launch after a failed one does nothing.
    pub status: DevAddr,
    /// Identifies this launch within its queue; never 0. Opaque to kernels, which only store it in `status`.
    pub mark: u64,
    /// Address at which the heap of PE 0 is mapped, or would be. The heaps of the following PEs are `p2p_stride` bytes
    /// apart.
    pub p2p_base: DevAddr,
    /// Distance between two mapped heaps, in bytes.
    pub p2p_stride: u64,
    /// First of the P2P peers: a contiguous range of PEs, including this one, that map each other's heaps. The window
    /// has a gap at this PE, whose memory is at `heap`.
    pub p2p_from: u32,
    /// Number of P2P peers, including this PE; 0 if this PE cannot access even its own memory by loads and stores.
    pub p2p_count: u32,
    /// Properties of the context: bits of [`ctx_flags`].
    pub flags: u32,
    /// Number of team slots, including predefined teams.
    pub team_slots: u32,
    /// Address of the table of teams: [`MAX_CHANNELS`](team_words::MAX_CHANNELS) [`TeamDesc`]s per slot.
    pub teams: DevAddr,
    /// Heap offset of the words and scratch of team slot 0; see [`team_words`].
    pub team_words: u64,
    /// Length of a team slot in the heap, in bytes.
    pub team_bytes: u64,
    /// Address of the PE's [`TraceArea`], for kernels built with a timeline; 0 if there is none.
    pub trace: DevAddr,
    /// Number of blocks of the launch in `x` and `y`. The GPU only sees one dimension;
    /// [`Ctx::block_idx`](crate::Ctx::block_idx) divides the block index by these.
    pub grid_dim: [u32; 2],
    /// Number of threads per block in `x` and `y`. [`Ctx::thread_idx`](crate::Ctx::thread_idx) divides the thread index
    /// by these.
    pub block_dim: [u32; 2],
}

impl CtxParts {
    /// Returns whether `pe` is a P2P peer or this PE. The window does not map this PE's own memory.
    #[inline(always)]
    pub const fn is_p2p(&self, pe: u32) -> bool {
        pe.wrapping_sub(self.p2p_from) < self.p2p_count
    }

    /// Returns whether the heap contains all of the `bytes` bytes at `offset`.
    #[inline(always)]
    pub const fn has(&self, offset: u64, bytes: u64) -> bool {
        // Evaluates both conditions, for a single branch.
        (bytes <= self.heap_bytes) & (offset <= self.heap_bytes.wrapping_sub(bytes))
    }
}

/// Bits of [`CtxParts::flags`].
pub mod ctx_flags {
    /// Atomics on mapped heaps are processor atomics, because no PE updates these words through a NIC. Contexts of one
    /// launch may differ in this flag.
    pub const P2P_ATOMICS: u32 = 1;
    /// All PEs of the job are P2P peers and [`P2P_ATOMICS`] is set, so no operation of this PE goes through a NIC.
    pub const P2P_ALL: u32 = 2;
    /// Some queues are [`ON_GPU`](super::qp_flags::ON_GPU). A fence at GPU scope precedes their doorbells.
    pub const GPU_QUEUES: u32 = 4;
    /// A segment of the launch is in host memory.
    pub const HOST_MEMORY: u32 = 8;
    /// This PE maps no heaps except those of its P2P peers.
    pub const NO_P2P_OTHERS: u32 = 16;
    /// Processor atomics on mapped heaps are atomic with respect to each other. [`P2P_ATOMICS`] may be set for words
    /// that no NIC peer updates.
    pub const NODE_ATOMICS: u32 = 32;
    /// An ACK does not prove that every observer sees the data: NICs or processors reach the same heap by several
    /// paths, between which PCIe has no order. Later writes through [relaxed keys](super::qp_flags::RELAXED) may pass
    /// the data as well. `quiet` therefore posts a READ to each peer.
    pub const EARLY_ACKS: u32 = 64;
    /// The launch owns the per-block queues: no other launch with this flag runs concurrently.
    pub const PER_BLOCK: u32 = 128;
    /// The QPs are [`DC`](super::qp_flags::DC) initiators; each set has fewer of them than there are PEs.
    pub const DC: u32 = 256;
}

/// The segment table of one or more launches, followed by `count` [`SegmentDesc`]s. A table is immutable; the host
/// replaces it by a new one. Only the resident table, for kernels that the runtime does not launch, is updated in place.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct SegmentTable {
    /// Context of the launches that use this table, without their [launch queue](CtxParts::status). Outlined functions
    /// read the context from the table.
    pub parts: CtxParts,
    /// Number of segments in this table.
    pub count: u64,
    /// 1 in the resident table, which the host updates while kernels use it.
    pub in_place: u64,
}

/// A segment: memory past the heap that kernels address by offset. It either extends the heap or is a buffer of the
/// user.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct SegmentDesc {
    /// First offset of the segment, in the address space of heap offsets.
    pub begin: u64,
    /// Length of the segment, in bytes. 0 in an unused entry of the resident table.
    pub bytes: u64,
    /// Address of the segment on this PE.
    pub addr: DevAddr,
    /// Length of the segment once more: kernels load it together with the offset, or with the address, in 16 bytes.
    pub addr_bytes: u64,
    /// Address of the [`SegmentEnd`]s: one for each NIC of this PE. For a symmetric segment, one for each NIC of each
    /// PE follows.
    pub ends: DevAddr,
    /// For a symmetric segment, the address of one [`DevAddr`] per PE: where that PE's memory is mapped on this PE, or
    /// 0. Segments are mapped wherever heaps are.
    pub mapped: DevAddr,
}

/// A segment on one PE, as seen by one NIC.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct SegmentEnd {
    /// Address of the segment's first byte in RDMA requests.
    pub base: u64,
    /// Memory key for bulk data.
    pub key: u32,
    /// Memory key for single words, which never allows relaxed ordering.
    pub strict_key: u32,
}

/// Maximum number of launch queues, graphs and host operations of a PE. [`CtxParts::status`] points to one of this many
/// consecutive words.
pub const LAUNCH_QUEUES: u64 = 512;

/// First offset of local buffers, which are registered only with the NICs of their own PE. Symmetric memory has lower
/// offsets.
pub const LOCAL_OFFSETS: u64 = 1 << 63;

/// Set in [`CtxParts::status`] by the first launch after a failed one, to keep a replayed graph from running the failed
/// launch again.
pub const SEALED: u64 = 1 << 63;

/// How to reach a PE that is not a P2P peer in the [window](CtxParts::p2p_from).
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct PeerDesc {
    /// Address at which the peer's heap is mapped on this PE, or 0 if it is not.
    pub direct: DevAddr,
}

/// A 64-bit word in its own 128-byte cache line.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct CacheLine {
    /// Value of the word; the rest of the cache line is padding.
    pub word: u64,
    /// Reserved, zero.
    pub reserved: [u64; 15],
}

/// State of a PE needed by waiting and failing calls, and words of the PE that kernels update.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct DeviceState {
    /// Address of the PE's [`ControlPage`].
    pub control: DevAddr,
    /// Deadline of every blocking call, in nanoseconds.
    pub deadline_ns: u64,
    /// PE whose state this is.
    pub pe: u32,
    /// Reserved, zero.
    pub reserved: u32,
    /// Deadline for connecting a QP, in nanoseconds. The host gives up a little earlier and reports the cause.
    pub connect_ns: u64,
    /// Address of the [`PrintRing`], or 0 if printing is disabled.
    pub print: DevAddr,
    /// Address of [`ControlPage::lost`], or 0 in a job with fixed membership.
    pub lost: DevAddr,
    /// Address of the table of QPs, which starts with those that all threads share.
    pub qps: DevAddr,
    /// Number of QPs that all threads share, in a job with failover. 0 in others.
    pub shared_qps: u32,
    /// Reserved, zero.
    pub reserved_2: [u32; 17],
    /// Number of errors so far. Each claims a record of the [`ControlPage`], while there are any left.
    pub records: CacheLine,
    /// Number of blocks that are waiting in the current grid barrier.
    pub grid_arrived: CacheLine,
    /// Number of grid barriers that all blocks have completed.
    pub grid_generation: CacheLine,
    /// Index, counted from 1, of the last grid barrier that a block entered with an error, above 8 bits with its code.
    pub grid_failed: CacheLine,
    /// 1 once any [`WEAK`](qp_flags::WEAK) QP has been connected.
    pub weak: CacheLine,
    /// Number of slots of the [`PrintRing`] that kernels have reserved.
    pub printed: CacheLine,
    /// Number of lines lost because the [`PrintRing`] was full.
    pub lost_lines: CacheLine,
}

/// The ring of printed lines, in host memory, followed by `slots` [`PrintSlot`]s. A line takes consecutive slots.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct PrintRing {
    /// Number of slots, a power of two.
    pub slots: u64,
    /// Number of slots that the host has read.
    pub taken: u64,
    /// Reserved, zero.
    pub reserved: [u64; 14],
}

/// Number of words in a [`PrintSlot`].
pub const PRINT_WORDS: usize = 29;

/// Part of a line. The first word of a line has the length of the format string in its lower half and the number of
/// values in its upper half. The string follows, then two words for each [`Value`](crate::print::Value).
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct PrintSlot {
    /// Index of the slot plus 1, once the slot has been written.
    pub ready: u64,
    /// Number of slots that the line still occupies, counting this one.
    pub left: u64,
    /// Block index in the lower half, thread index in the upper half.
    pub place: u64,
    /// Words of the line, which continue in the next slot.
    pub words: [u64; PRINT_WORDS],
}

/// A team as seen by one of its members, including the words that kernels update.
///
/// A team has one such entry per *channel*. A group uses channel 0. In a call of the whole grid, each participating
/// block uses the channel of its index, in parallel with the other blocks.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct TeamDesc {
    /// This PE's number in the team.
    pub my_pe: u32,
    /// Number of members of the team.
    pub n_pes: u32,
    /// PE number of member 0.
    pub start: u32,
    /// Difference between the PE numbers of successive members, wrapping; 0 if it varies.
    pub stride: u32,
    /// Distinguishes the team from earlier ones in this slot; 0 while the slot is free. The same on all members.
    pub generation: u32,
    /// Properties of the team: bits of [`team_flags`].
    pub flags: u32,
    /// Address of a `u32` per member: its PE number in the job.
    pub pes: DevAddr,
    /// Address of a `u32` per PE of the job: its number in the team, or `u32::MAX` for a PE that is not a member.
    pub members: DevAddr,
    /// Address of a `u32` per member, sorted by node: the members of node 0, then those of node 1, and so on. A node is
    /// a set of members that are P2P peers of each other. Its first member is the leader.
    pub by_node: DevAddr,
    /// Address of a `u32` per node, and one more: the index in `by_node` at which its members start.
    pub node_starts: DevAddr,
    /// Address of a `u32` per member: the index of its node.
    pub nodes: DevAddr,
    /// Number of nodes on which the team has members.
    pub n_nodes: u32,
    /// Index of this PE's node.
    pub node: u32,
    /// Rank of this PE among the members of its node.
    pub node_rank: u32,
    /// Number of channels of the team, including this one.
    pub channels: u32,
    /// Heap offset of this channel's words and scratch.
    pub words: u64,
    /// Length of this channel's words and scratch, in bytes.
    pub bytes: u64,
    /// The team's slot in the table.
    pub slot: u32,
    /// Reserved, zero.
    pub reserved_2: [u32; 7],
    /// Lock word of the team, which also counts check-ins: see [`team_word`].
    pub word: CacheLine,
    /// Counters of the team's calls.
    pub counters: TeamCounters,
}

/// Bits of [`TeamDesc::flags`].
pub mod team_flags {
    /// All members are P2P peers of each other, with processor atomics. The same on all members.
    pub const P2P: u32 = 1;
}

/// Bits of [`TeamDesc::word`]. The bits from [`SHIFT`](team_word::SHIFT) on count check-ins, with which the members
/// verify at the start of a collective that they make the same call.
pub mod team_word {
    /// A group is in a collective call on the team. Only that group may change the word.
    pub const BUSY: u64 = 1;
    /// An earlier call has left the members with different counters, so the team is unusable.
    /// [`TeamCounters::failed`](super::TeamCounters::failed) has the error.
    pub const FAILED: u64 = 2;
    /// Position of the number of check-ins in the word.
    pub const SHIFT: u32 = 2;
}

/// Counters of a team's calls. Only accessed by the group that is in a call.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct TeamCounters {
    /// Number of messages consumed from NIC peers, over all calls.
    pub taken: u64,
    /// Number of this PE's arrivals at the split barrier.
    pub arrivals: u64,
    /// Number of this PE's waits at the split barrier.
    pub waits: u64,
    /// The [`Error`](crate::Error) code of the call that left the members out of step, or 0.
    pub failed: u64,
    /// Number of messages consumed from P2P peers, over all calls.
    pub taken_p2p: u64,
    /// Reserved, zero.
    pub reserved: [u64; 11],
}

/// Offsets of the words at the start of a team slot's heap range.
pub mod team_words {
    /// Maximum number of rounds of a check-in. In each round, a member signals one other member.
    pub const ROUNDS: u32 = 32;
    /// Words of check-ins that proceed in rounds: `ROUNDS` words for even check-ins, followed by as many for odd ones.
    pub const IN_ROUNDS: u64 = 0;
    /// Counter of messages received through the NIC.
    pub const MESSAGES: u64 = 2 * ROUNDS as u64 * 8;
    /// Offset of the word in which the root of a broadcast stores the heap offset of its source, or `u64::MAX` if the
    /// other members cannot read the source.
    pub const SOURCE: u64 = MESSAGES + 32;
    /// Counter of arrivals of NIC peers at the split barrier.
    pub const ARRIVALS: u64 = MESSAGES + 64;
    /// Distance from a counter of NIC peers to that of P2P peers. NIC atomics and processor atomics are not atomic with
    /// respect to each other, so each kind has its own word.
    pub const P2P: u64 = 32;
    /// Words of check-ins in which each member signals all others: one word per member for even check-ins, followed by
    /// as many for odd ones.
    pub const MEETINGS: u64 = MESSAGES + 128;

    /// Returns the offset of the value words in a team of `n`. A member has two of them, for calls in which members
    /// contribute different lengths.
    pub const fn values(n: u32) -> u64 {
        MEETINGS + n as u64 * 16
    }

    /// Returns the offset of the scratch space in a team of `n` members.
    pub const fn scratch(n: u32) -> u64 {
        (values(n) + n as u64 * 16).next_multiple_of(128)
    }

    /// Maximum length of the low-latency (LL) slots for small collective calls, in bytes. Half of a slot is flags, so
    /// calls with more data are faster without LL. Without NICs, the scratch starts with two sets of slots.
    pub const MAX_SLOT_BYTES: u64 = 16 << 10;

    /// Returns the length of one set of LL slots in a scratch of `bytes` bytes, for a team of `n`.
    ///
    /// The rest of the scratch has room for the data of one set, which is half as long, with each member's block at a
    /// multiple of 16. Other calls use the rest in pieces of at least one cache line per member.
    pub const fn slots(bytes: u64, n: u32) -> u64 {
        let most = bytes.saturating_sub(128 * n as u64) * 2 / 5;
        (if most < MAX_SLOT_BYTES { most } else { MAX_SLOT_BYTES }) & !127
    }

    /// Returns the minimum length of the scratch in a team of `n`: two cache lines per member, so at least one beside the
    /// LL slots. Collective calls split data into cache lines.
    pub const fn min_scratch(n: u32) -> u64 {
        n as u64 * 256
    }

    /// Maximum number of channels of a team.
    pub const MAX_CHANNELS: u32 = 64;
    /// Number of bytes for which a call with NIC peers uses a channel. More data uses more channels.
    pub const BYTES_PER_CHANNEL: u64 = 8 << 10;

    /// Returns the number of bytes for which a call of a P2P team uses a channel, in a job of `n_pes`: what a block of
    /// 256 threads exchanges in one step.
    pub const fn p2p_bytes_per_channel(n_pes: u32) -> u64 {
        const OF_TWO: u64 = 1536;
        const MIN: u64 = 256;
        let each = (2 * OF_TWO as u32 / if n_pes > 2 { n_pes } else { 2 }) as u64;
        (if each > MIN { each } else { MIN }) & !127
    }

    /// Minimum scratch of a channel through which NIC peers send. Each fetch of a reduction fills one member's share of
    /// it.
    const NIC_SCRATCH: u64 = 32 << 10;

    /// Returns how many bytes a channel of a team of `n` needs for words and scratch. `is_p2p` means that the team is
    /// on one node.
    const fn min_channel(n: u32, is_p2p: bool) -> u64 {
        let least = min_scratch(n);
        scratch(n) + if is_p2p || least > NIC_SCRATCH { least } else { NIC_SCRATCH }
    }

    /// Returns how many bytes the additional channels of a team share in a job of `n_pes`: at least `wanted`, and
    /// enough for one channel of all PEs.
    pub const fn channels_bytes(wanted: u64, n_pes: u32) -> u64 {
        let least = min_channel(n_pes, false);
        (if wanted > least { wanted } else { least }).next_multiple_of(128)
    }

    /// Returns the number of additional channels of a team of `n` that share `bytes`, and the length of each.
    pub const fn channels(bytes: u64, n: u32, is_p2p: bool) -> (u32, u64) {
        let room = bytes / min_channel(n, is_p2p);
        let count = if room < MAX_CHANNELS as u64 { room } else { MAX_CHANNELS as u64 - 1 };
        match bytes.checked_div(count) {
            Some(each) => (count as u32, each & !127),
            None => (0, 0),
        }
    }
}

/// Offsets of the runtime's own words in the symmetric heap. User objects start after [`reserved::bytes`].
pub mod reserved {
    /// Offset of 8 bytes to which a NIC writes results that nobody reads, such as those of non-fetching atomics.
    pub const SINK: u64 = 0;
    /// Offset of the fetch slots of the QPs, to which a NIC writes the results of fetching operations.
    pub const FETCH: u64 = 128;

    /// Returns the offset of the team words, after the fetch slots of `qps` QPs that are `depth` blocks deep.
    pub const fn teams(qps: u64, depth: u64) -> u64 {
        (FETCH + qps * depth * 8).next_multiple_of(128)
    }

    /// Returns how many bytes at the start of the heap belong to the runtime: `teams` bytes of team words, and
    /// everything before them.
    pub const fn bytes(qps: u64, depth: u64, teams: u64) -> u64 {
        (self::teams(qps, depth) + teams).next_multiple_of(4096)
    }
}

/// Kinds of collective calls. A call hash contains its kind, at [`SHIFT`](call_kind::SHIFT).
pub mod call_kind {
    /// Position of the kind in a call hash.
    pub const SHIFT: u32 = 27;
    /// Kind in the call hash of `barrier` and `sync`.
    pub const SYNC: u32 = 1;
    /// Kind in the call hash of `broadcast`.
    pub const BROADCAST: u32 = 2;
    /// Kind in the call hash of `fcollect`.
    pub const FCOLLECT: u32 = 3;
    /// Kind in the call hash of `collect`.
    pub const COLLECT: u32 = 4;
    /// Kind in the call hash of `alltoall`.
    pub const ALLTOALL: u32 = 5;
    /// Kind in the call hash of `alltoalls`.
    pub const ALLTOALLS: u32 = 6;
    /// Kind in the call hash of `alltoallv`.
    pub const ALLTOALLV: u32 = 7;
    /// Kind in the call hash of `reduce`.
    pub const REDUCE: u32 = 8;
    /// Kind in the call hash of `reduce_scatter`.
    pub const REDUCE_SCATTER: u32 = 9;
    /// Kind in the call hash of `scan`.
    pub const SCAN: u32 = 10;
    /// Kind in the call hash of a further check-in within the same collective call.
    pub const STEP: u32 = 11;
    /// Kind in the call hash of a call that its own PE rejects because of wrong arguments.
    pub const WRONG: u32 = 15;

    /// Returns the 31-bit hash of a collective call, by which members verify that they make the same one. `channels` is
    /// the number of groups that make the call, and `generation` that of the team's handle. Never equal to the hash of
    /// [`WRONG`].
    ///
    /// The kind is part of the hash, which allows the record of a mismatch to name both calls.
    #[inline(always)]
    pub const fn hash(channels: u32, generation: u32, kind: u32, arguments: [u64; 4]) -> u32 {
        let [a, b, c, d] = arguments;
        // Members must have equal numbers of blocks, or they would divide the data differently.
        let call = (channels as u64 - 1) << 8 | kind as u64;
        // The products are independent of each other, so their latencies overlap.
        let sum = ((generation as u64) << 32 | call)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(a.wrapping_mul(0xbf58_476d_1ce4_e5b9))
            .wrapping_add(b.wrapping_mul(0x94d0_49bb_1331_11eb))
            .wrapping_add(c.wrapping_mul(0xd6e8_feb8_6659_fd93))
            .wrapping_add(d.wrapping_mul(0xff51_afd7_ed55_8ccd));
        kind << SHIFT | (sum >> (64 - SHIFT)) as u32
    }
}

/// Number of error records in a control page. Later errors are counted but not recorded.
pub const RECORDS: usize = 16;

/// Set in [`ControlPage::exit`] together with the exit code, which may be 0.
pub const EXIT_ASKED: u32 = 1 << 8;

/// Memory shared by host and kernels while a kernel runs: host memory, mapped for the GPU.
#[repr(C, align(4096))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct ControlPage {
    /// The abort word. Once it is not 0, every blocking call fails with [`Error::Aborted`](crate::Error::Aborted). Set
    /// by the host, or by a kernel that terminates the job.
    pub abort: u32,
    /// Nonzero if a kernel has requested a connection. Set by kernels, cleared by the host.
    pub requested: u32,
    /// Nonzero if a kernel terminates the job: [`EXIT_ASKED`], and the exit code in the low byte. Set by kernels.
    pub exit: u32,
    /// Reserved, zero.
    pub reserved: [u32; 29],
    /// Error records, in the order in which they were claimed.
    pub records: [ErrorRecord; RECORDS],
    /// A bit set of lost PEs and, from bit [`LOST_TEAMS`] on, of the slots of teams with lost members. Set by the host of
    /// a job with live membership.
    pub lost: [[u32; 32]; LOST_LINES],
    /// Reserved, zero.
    pub tail: [[u64; 16]; 8],
}

/// Size of [`ControlPage::lost`], in 128-byte lines.
const LOST_LINES: usize = 9;

/// Index in [`ControlPage::lost`] of the bit of team slot 0, and so the largest number of PEs in a job with live
/// membership.
pub const LOST_TEAMS: u32 = 8192;

/// Largest number of team slots in a job with live membership.
pub const MAX_LIVE_TEAMS: u32 = LOST_LINES as u32 * 1024 - LOST_TEAMS;

/// One error, recorded by the thread that encountered it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct ErrorRecord {
    /// [`Error`](crate::Error) code. Written last, so 0 means that the record is incomplete.
    pub code: u32,
    /// PE on which the kernel ran.
    pub pe: u32,
    /// The peer's PE number, or `u32::MAX` if no peer is involved.
    pub peer: u32,
    /// QP number, or 0 if no QP is involved.
    pub qpn: u32,
    /// Index of the failed WQE, 16 bits.
    pub wqe: u32,
    /// Opcode of the failed WQE.
    pub opcode: u32,
    /// Syndrome of the error CQE.
    pub syndrome: u32,
    /// Vendor syndrome of the error CQE.
    pub vendor: u32,
    /// Block index of the thread that encountered the error.
    pub block: u32,
    /// Index, within its block, of the thread that encountered the error.
    pub thread: u32,
    /// Line of the failed call in the kernel's source, or 0 if `file` is the name of the called function.
    pub line: u32,
    /// Number of bytes used in `file`.
    pub file_len: u32,
    /// The value found, whose meaning depends on `code`: a word, an offset or a count.
    pub found: u64,
    /// The value expected. For a mismatch of collective calls: the call hash of this PE in the upper half, and that of
    /// the peer in the lower half, or 0.
    pub wanted: u64,
    /// Heap offset involved, or `u64::MAX`.
    pub offset: u64,
    /// Device clock when the error occurred, in nanoseconds.
    pub time_ns: u64,
    /// Tail of the call site's file name.
    pub file: [u8; 32],
}

// More than 60 lines, because each fact about the layout is on its own line.
#[allow(clippy::indexing_slicing)] // const evaluation only
const fn layout_hash() -> u64 {
    let facts = [
        size_of::<CtxParts>(),
        offset_of!(CtxParts, state),
        offset_of!(CtxParts, qps),
        offset_of!(CtxParts, exclusive_sets),
        offset_of!(CtxParts, segments),
        size_of::<SegmentTable>(),
        offset_of!(SegmentTable, count),
        size_of::<SegmentDesc>(),
        offset_of!(SegmentDesc, mapped),
        size_of::<SegmentEnd>(),
        offset_of!(SegmentEnd, key),
        offset_of!(SegmentEnd, strict_key),
        offset_of!(CtxParts, context_sets),
        offset_of!(CtxParts, status),
        offset_of!(CtxParts, mark),
        offset_of!(CtxParts, mixed_from),
        offset_of!(CtxParts, p2p_base),
        offset_of!(CtxParts, flags),
        offset_of!(CtxParts, teams),
        offset_of!(CtxParts, grid_dim),
        size_of::<PeerDesc>(),
        size_of::<QpDesc>(),
        offset_of!(QpDesc, handshake),
        offset_of!(Handshake, connection),
        offset_of!(Handshake, seen),
        offset_of!(Handshake, salvage),
        offset_of!(Handshake, lost_results),
        offset_of!(QpDesc, lkey),
        offset_of!(QpDesc, flags),
        offset_of!(QpDesc, rail),
        offset_of!(QpDesc, strict_lkey),
        offset_of!(QpDesc, target),
        offset_of!(QpDesc, queue),
        offset_of!(QpEntry, connection),
        offset_of!(QpEntry, state),
        offset_of!(Connection, fetch_slots),
        offset_of!(Connection, keys),
        offset_of!(Connection, qpn),
        size_of::<QpState>(),
        offset_of!(QpState, doorbell),
        offset_of!(QpState, poller),
        offset_of!(QpState, closing),
        offset_of!(QpState, owner),
        offset_of!(QpState, batch_end),
        offset_of!(QpState, fenced),
        FIRST_BLOCK as usize,
        offset_of!(ControlPage, requested),
        offset_of!(ControlPage, exit),
        offset_of!(ControlPage, lost),
        size_of::<DeviceState>(),
        offset_of!(DeviceState, deadline_ns),
        offset_of!(DeviceState, pe),
        offset_of!(DeviceState, connect_ns),
        offset_of!(DeviceState, records),
        offset_of!(DeviceState, weak),
        offset_of!(DeviceState, print),
        offset_of!(DeviceState, lost),
        offset_of!(DeviceState, qps),
        offset_of!(DeviceState, shared_qps),
        offset_of!(DeviceState, printed),
        offset_of!(DeviceState, lost_lines),
        size_of::<PrintRing>(),
        size_of::<PrintSlot>(),
        offset_of!(PrintSlot, words),
        size_of::<TeamDesc>(),
        offset_of!(TeamDesc, stride),
        offset_of!(TeamDesc, pes),
        offset_of!(TeamDesc, by_node),
        offset_of!(TeamDesc, node),
        offset_of!(TeamDesc, channels),
        offset_of!(TeamDesc, words),
        offset_of!(TeamDesc, slot),
        offset_of!(TeamDesc, word),
        offset_of!(TeamDesc, counters),
        offset_of!(TeamCounters, failed),
        team_words::MEETINGS as usize,
        team_words::values(1) as usize,
        team_words::MAX_CHANNELS as usize,
        team_words::BYTES_PER_CHANNEL as usize,
        team_words::p2p_bytes_per_channel(2) as usize,
        team_words::slots(1 << 16, 2) as usize,
        size_of::<ControlPage>(),
        size_of::<ErrorRecord>(),
        offset_of!(ErrorRecord, found),
        offset_of!(ErrorRecord, file),
        reserved::FETCH as usize,
    ];
    // FNV-1a, over words instead of bytes.
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut i = 0;
    while i < facts.len() {
        hash = (hash ^ facts[i] as u64).wrapping_mul(0x100_0000_01b3);
        i += 1;
    }
    hash
}

const _: () = {
    assert!(size_of::<Header>() == 24 && offset_of!(Header, control) == 16);
    assert!(size_of::<CtxParts>() == 208);
    assert!(size_of::<QpDesc>() == 128 && size_of::<Connection>() == 128);
    assert!(offset_of!(Connection, uar) == 16 && offset_of!(Connection, qpn) == 24);
    assert!(size_of::<CacheLine>() == 128);
    assert!(offset_of!(DeviceState, records) == 128);
    assert!(size_of::<TeamDesc>() == 3 * 128);
    assert!(size_of::<ErrorRecord>() == 112);
    assert!(size_of::<ControlPage>() == 4096);
};
