//! The layout of everything that the host fills and kernels read.
//!
//! Plain data is `Pod`. A type with an address that device code trusts, such as the context or a symmetric handle, is not:
//! safe code cannot forge it from bytes. The host writes descriptors once. Words that kernels update lie in structs of
//! their own, one cache line each. The magic number, the version and the layout hash in [`Header`] let a kernel refuse
//! a host of another build.

mod queues;
mod timeline;

pub use queues::{Connection, FIRST_BLOCK, Handshake, QpDesc, QpEntry, QpState, answer, qp_flags};
pub use timeline::{TRACE_RINGS, TRACED_QUEUE, TraceArea, TracedCall, traced};

use bytemuck::{Pod, Zeroable};
use core::mem::{offset_of, size_of};

/// "RUSH": the first word of every context.
pub const MAGIC: u32 = u32::from_be_bytes(*b"RUSH");

/// The version of the layout's meaning. It counts incompatible changes that the layout hash cannot see.
pub const VERSION: u32 = 8;

/// A hash of the sizes and offsets below. Host and kernel agree on it if they were built from one layout.
pub const LAYOUT: u64 = layout_hash();

/// An address in the kernel's address space: of the GPU, or of the process of a native kernel.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct DevAddr(pub u64);

impl DevAddr {
    /// Returns the address as a pointer.
    pub fn ptr<T>(self) -> *mut T {
        self.0 as usize as *mut T
    }

    /// Returns the address `bytes` further on.
    pub const fn add(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

/// The header that a kernel checks before it trusts the rest. Its own layout never changes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u32,
    /// [`VERSION`].
    pub version: u32,
    /// [`LAYOUT`].
    pub layout: u64,
    /// The [`ControlPage`], where even a kernel of another build can report the mismatch.
    pub control: DevAddr,
}

/// The parts of a context: the first parameter of every kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct CtxParts {
    /// See [`Header`].
    pub header: Header,
    /// The [`DeviceState`] of this PE.
    pub state: DevAddr,
    /// Base of this PE's symmetric heap.
    pub heap: DevAddr,
    /// Length of the heap in bytes.
    pub heap_bytes: u64,
    /// The [`SegmentTable`] of the launch: memory at offsets beyond `heap_bytes`.
    pub segments: DevAddr,
    /// `n_pes` [`PeerDesc`]s.
    pub peers: DevAddr,
    /// [`QpEntry`]s: sets of `n_pes`, the shared sets first.
    pub qps: DevAddr,
    /// Number of this PE.
    pub pe: u32,
    /// Number of PEs in the job.
    pub n_pes: u32,
    /// First QP set that this context uses.
    pub first_set: u32,
    /// QP sets that this context spreads its blocks over, a multiple of `rails`.
    pub n_sets: u32,
    /// Number of [`PerBlock`](crate::PerBlock) contexts. Each has `rails` QP sets, after the shared ones.
    pub block_sets: u32,
    /// Number of [`Exclusive`](crate::Exclusive) contexts. Each has `rails` QP sets, after the sets of the per-block
    /// contexts.
    pub exclusive_sets: u32,
    /// Number of rails. Set `s` uses rail `s % rails`: the NIC of that number at both ends.
    pub rails: u32,
    /// First of the mixed PEs: their memory is mapped here, but their atomics go through the NIC. `fence` must wait for
    /// QPs to them. PEs between them may not be mixed.
    pub mixed_from: u32,
    /// One past the last mixed PE.
    pub mixed_to: u32,
    /// Number of contexts made by the host, see [`Context`](crate::Context). Each has `rails` QP sets, after the
    /// exclusive ones.
    pub context_sets: u32,
    /// The status word of the launch queue of this launch, 0 if there is none. It holds the `mark` of the launch that
    /// failed, or 0. A launch that follows a failed one does nothing.
    pub status: DevAddr,
    /// The number of this launch among the launches of its queue; not 0.
    pub mark: u64,
    /// The address where the heap of PE 0 is mapped, or would be. The heaps of the next PEs follow, `p2p_stride` bytes
    /// apart.
    pub p2p_base: DevAddr,
    /// Bytes from one mapped heap to the next.
    pub p2p_stride: u64,
    /// First of the P2P peers: PEs with successive numbers, this PE among them, that map each other's heaps. The window
    /// has a gap for this PE, since its memory is at `heap` already.
    pub p2p_from: u32,
    /// Number of P2P peers, this PE included; 0 if this PE cannot access even its own memory by loads and stores.
    pub p2p_count: u32,
    /// Bits of [`ctx_flags`].
    pub flags: u32,
    /// Number of slots for teams, the predefined teams included.
    pub team_slots: u32,
    /// [`TeamDesc`]s: [`MAX_CHANNELS`](team_words::MAX_CHANNELS) for each of the `team_slots` slots.
    pub teams: DevAddr,
    /// Heap offset of the words and the scratch of team slot 0; see [`team_words`].
    pub team_words: u64,
    /// Bytes of heap for each team slot.
    pub team_bytes: u64,
    /// The [`TraceArea`] of the PE, for kernels that were built with a timeline; 0 if it has none.
    pub trace: DevAddr,
    /// Blocks of the launch in `x` and in `y`. A launch is one-dimensional for the GPU, and [`Ctx::block_idx`](crate::Ctx::block_idx)
    /// divides the index of a block by these.
    pub grid_dim: [u32; 2],
    /// Threads of a block in `x` and in `y`, likewise.
    pub block_dim: [u32; 2],
}

impl CtxParts {
    /// Returns whether `pe` is a P2P peer or this PE. The window has no mapping of this PE's own memory.
    #[inline(always)]
    pub const fn is_p2p(&self, pe: u32) -> bool {
        pe.wrapping_sub(self.p2p_from) < self.p2p_count
    }

    /// Returns whether the heap contains all of the `bytes` bytes from `offset` on.
    #[inline(always)]
    pub const fn has(&self, offset: u64, bytes: u64) -> bool {
        // Both, for one branch.
        (bytes <= self.heap_bytes) & (offset <= self.heap_bytes.wrapping_sub(bytes))
    }
}

/// [`CtxParts::flags`].
pub mod ctx_flags {
    /// Atomics on mapped heaps are processor atomics: no PE updates these words through a NIC. Contexts of one launch may
    /// differ in it.
    pub const P2P_ATOMICS: u32 = 1;
    /// All PEs of the job are P2P peers and [`P2P_ATOMICS`] is set: no operation of this PE goes through a NIC.
    pub const P2P_ALL: u32 = 2;
    /// There are queues [`ON_GPU`](super::qp_flags::ON_GPU). Their doorbells follow a fence at GPU scope only.
    pub const GPU_QUEUES: u32 = 4;
    /// The launch can access host memory through a segment.
    pub const HOST_MEMORY: u32 = 8;
    /// No heap is mapped here except the heaps of P2P peers.
    pub const NO_P2P_OTHERS: u32 = 16;
    /// Processor atomics on mapped heaps are atomic with each other. [`P2P_ATOMICS`] may be set for words that no NIC
    /// peer updates.
    pub const NODE_ATOMICS: u32 = 32;
    /// An ACK does not prove that every observer sees the data, since NICs or processors reach one heap in several ways.
    /// PCIe does not order their accesses. Later writes through [relaxed keys](super::qp_flags::RELAXED) may pass the data
    /// too. So `quiet` posts a READ to each peer.
    pub const EARLY_ACKS: u32 = 64;
    /// The launch has the per-block queues: no other launch with this flag runs at the same time.
    pub const PER_BLOCK: u32 = 128;
    /// The QPs are [`DC`](super::qp_flags::DC) initiators, fewer than PEs in each set.
    pub const DC: u32 = 256;
}

/// The table of segments for the launches of some time: `count` [`SegmentDesc`]s follow it. A table never changes; the
/// host makes a new one instead.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct SegmentTable {
    /// The context of these launches, without their [launch queue](CtxParts::status). Outlined functions find it here.
    pub parts: CtxParts,
    /// Number of segments.
    pub count: u64,
    /// Reserved, zero.
    pub reserved: u64,
}

/// A segment: memory beyond the heap that kernels address by offset. It extends the heap, or is a buffer of the user.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct SegmentDesc {
    /// First offset.
    pub begin: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Address of this PE's memory.
    pub addr: DevAddr,
    /// The NICs' view of the memory: a [`SegmentEnd`] for each NIC of this PE. A symmetric segment has one for each NIC
    /// of each PE after these.
    pub ends: DevAddr,
    /// A [`DevAddr`] for each PE, of a symmetric segment: where its memory is mapped here, or 0. Segments are mapped
    /// where heaps are.
    pub mapped: DevAddr,
}

/// A segment's memory on one PE, as one NIC knows it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct SegmentEnd {
    /// Address on the wire of its first byte.
    pub base: u64,
    /// Its key for data.
    pub key: u32,
    /// Its key for words.
    pub strict_key: u32,
}

/// The number of launch queues, graphs and host operations of a PE at once. [`CtxParts::status`] is one of as many
/// consecutive words.
pub const LAUNCH_QUEUES: u64 = 512;

/// First offset of buffers that are registered with their own PE only. Offsets of symmetric memory are below it.
pub const LOCAL_OFFSETS: u64 = 1 << 63;

/// A bit of [`CtxParts::status`]. The launch after a failed one sets it, so that the failed one does not run again in a
/// replayed graph.
pub const SEALED: u64 = 1 << 63;

/// The route to a PE that is not a P2P peer in the [window](CtxParts::p2p_from).
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct PeerDesc {
    /// Address where the peer's heap is mapped here; 0 if it is not.
    pub direct: DevAddr,
}

/// A word with a 128-byte cache line of its own.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct CacheLine {
    /// The word.
    pub word: u64,
    /// Reserved, zero.
    pub reserved: [u64; 15],
}

/// The state of a PE that waiting and failing calls need, and the PE's words that kernels update.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct DeviceState {
    /// The [`ControlPage`].
    pub control: DevAddr,
    /// Deadline of every blocking call, in nanoseconds.
    pub deadline_ns: u64,
    /// This PE.
    pub pe: u32,
    /// Reserved, zero.
    pub reserved: u32,
    /// Deadline of the connection of a QP, in nanoseconds. The host ends a late connection earlier, with the cause.
    pub connect_ns: u64,
    /// The [`PrintRing`]; 0 if kernels print nothing.
    pub print: DevAddr,
    /// Reserved, zero.
    pub reserved_2: [u32; 22],
    /// Number of error records claimed.
    pub records: CacheLine,
    /// Blocks that wait in the grid barrier.
    pub grid_arrived: CacheLine,
    /// Grid barriers completed.
    pub grid_generation: CacheLine,
    /// The last grid barrier at which a block brought an error: its number from 1.
    pub grid_failed: CacheLine,
    /// 1 once a QP is connected that is [`WEAK`](qp_flags::WEAK).
    pub weak: CacheLine,
    /// Slots of the [`PrintRing`] that kernels have reserved.
    pub printed: CacheLine,
    /// Lines that found no room in the [`PrintRing`].
    pub lost_lines: CacheLine,
}

/// The ring of the lines that kernels print, in host memory: `slots` [`PrintSlot`]s follow it. A line takes consecutive slots.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct PrintRing {
    /// Number of slots, a power of two.
    pub slots: u64,
    /// Slots that the host has read.
    pub taken: u64,
    /// Reserved, zero.
    pub reserved: [u64; 14],
}

/// Words of a [`PrintSlot`].
pub const PRINT_WORDS: usize = 29;

/// A part of a line. The first word of a line has the bytes of its format string in the low half, and the number of its values in
/// the high half. The string and two words for each [`Value`](crate::print::Value) follow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct PrintSlot {
    /// The slot's number from 1, once it has been written.
    pub ready: u64,
    /// Slots of the line from this one on.
    pub left: u64,
    /// The block in the low half, the thread in the high half.
    pub place: u64,
    /// The words.
    pub words: [u64; PRINT_WORDS],
}

/// A PE's entry of a team that it is a member of, with the words that kernels update.
///
/// A team has an entry for each *channel*. A group uses channel 0. In a call of the whole grid, each block that works uses
/// the channel of its number, beside the other blocks.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct TeamDesc {
    /// This PE's number in the team.
    pub my_pe: u32,
    /// Number of members.
    pub n_pes: u32,
    /// The PE of member 0.
    pub start: u32,
    /// Distance from each member's PE to the next member's PE, wrapping; 0 if the distances differ.
    pub stride: u32,
    /// Number that distinguishes this team from others that had the slot before; 0 while the slot is free. Equal on all
    /// members.
    pub generation: u32,
    /// Bits of [`team_flags`].
    pub flags: u32,
    /// A `u32` for each member: its PE.
    pub pes: DevAddr,
    /// A `u32` for each PE: its number in the team, or `u32::MAX`.
    pub members: DevAddr,
    /// A `u32` for each member number: the members of node 0, then of node 1, and so on. A node is a set of members that
    /// are P2P peers of each other. Its first member is its leader.
    pub by_node: DevAddr,
    /// A `u32` for each node and one more: where its members begin in `by_node`.
    pub node_starts: DevAddr,
    /// A `u32` for each member: its node.
    pub nodes: DevAddr,
    /// Number of nodes.
    pub n_nodes: u32,
    /// Node of this PE.
    pub node: u32,
    /// Number of this PE among the members of its node.
    pub node_rank: u32,
    /// Number of channels of the team, this one included.
    pub channels: u32,
    /// Heap offset of the words and the scratch of this channel.
    pub words: u64,
    /// Bytes of heap for them.
    pub bytes: u64,
    /// Reserved, zero.
    pub reserved_2: [u64; 4],
    /// The team lock and the count of check-ins: see [`team_word`].
    pub word: CacheLine,
    /// The counters of the team's calls.
    pub counters: TeamCounters,
}

/// [`TeamDesc::flags`].
pub mod team_flags {
    /// All members are P2P peers of each other, and their processor atomics are atomic. Equal on all members.
    pub const P2P: u32 = 1;
}

/// Bits of [`TeamDesc::word`]. Above them it counts the check-ins of all members.
pub mod team_word {
    /// A group is in a collective call of the team. Only that group changes the word.
    pub const BUSY: u64 = 1;
    /// A call has left the members out of step; [`TeamCounters::failed`](super::TeamCounters::failed) has the error.
    pub const FAILED: u64 = 2;
    /// Lowest bit of the count.
    pub const SHIFT: u32 = 2;
}

/// Counters of a team's calls. Only the group in the call accesses them.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct TeamCounters {
    /// Messages received from NIC peers, by all calls so far.
    pub taken: u64,
    /// Arrivals at the split barrier.
    pub arrivals: u64,
    /// Waits of the split barrier.
    pub waits: u64,
    /// The [`Error`](crate::Error) code of the call that left the members out of step; 0 while they are in step.
    pub failed: u64,
    /// Messages received from P2P peers, by all calls so far.
    pub taken_p2p: u64,
    /// Reserved, zero.
    pub reserved: [u64; 11],
}

/// Offsets of the words at the head of a team slot's part of the heap.
pub mod team_words {
    /// Rounds of a check-in that there are words for.
    pub const ROUNDS: u32 = 32;
    /// Words of check-ins in rounds: `ROUNDS` for even check-ins, then as many for odd ones.
    pub const IN_ROUNDS: u64 = 0;
    /// Count of messages received through the NIC.
    pub const MESSAGES: u64 = 2 * ROUNDS as u64 * 8;
    /// Count of the arrivals of NIC peers at the split barrier.
    pub const ARRIVALS: u64 = MESSAGES + 64;
    /// Distance from a count of NIC peers to the same count of P2P peers. Atomics of NICs and of processors are not
    /// atomic with each other, so each kind has its own word.
    pub const P2P: u64 = 32;
    /// Words of check-ins in which each member tells all: one from each member for even check-ins, then as many for odd
    /// ones.
    pub const MEETINGS: u64 = MESSAGES + 128;

    /// Returns the offset of two words from each member, in a team of `n`: for calls in which members contribute
    /// different sizes.
    pub const fn values(n: u32) -> u64 {
        MEETINGS + n as u64 * 16
    }

    /// Returns the offset of the scratch, in a team of `n`.
    pub const fn scratch(n: u32) -> u64 {
        (values(n) + n as u64 * 16).next_multiple_of(128)
    }

    /// Most bytes of a set of LL slots for small calls; half of them are flags. More data takes less time in a large call.
    /// Without NICs, the scratch begins with two sets.
    pub const MOST_SLOTS: u64 = 16 << 10;

    /// Returns the bytes of a set of slots, in a scratch of `bytes`. Other calls use the rest, at least half of the
    /// scratch.
    pub const fn slots(bytes: u64) -> u64 {
        let most = bytes / 4;
        (if most < MOST_SLOTS { most } else { MOST_SLOTS }) & !127
    }

    /// Returns the least bytes of the scratch: two cache lines for each member. Collective calls proceed by lines, in
    /// half of the scratch where no transfer goes through a NIC.
    pub const fn least_scratch(n: u32) -> u64 {
        n as u64 * 256
    }

    /// Most channels of a team.
    pub const MAX_CHANNELS: u32 = 64;
    /// Bytes of the data of a collective call for which it is worth while to use one more channel, if NIC peers take part.
    pub const BYTES_PER_CHANNEL: u64 = 8 << 10;

    /// Returns the same bytes for calls of P2P teams, in a job of `n_pes`: a block of 256 threads exchanges them in one step.
    pub const fn p2p_bytes_per_channel(n_pes: u32) -> u64 {
        const OF_TWO: u64 = 1536;
        const LEAST: u64 = 256;
        let each = (2 * OF_TWO as u32 / if n_pes > 2 { n_pes } else { 2 }) as u64;
        (if each > LEAST { each } else { LEAST }) & !127
    }

    /// Least scratch of a channel through which NIC peers send: each fetch of a reduction fills a member's share of it.
    const NIC_SCRATCH: u64 = 32 << 10;

    /// Returns the bytes of words and scratch that a channel of a team of `n` needs. `is_p2p` says that the team has one
    /// node.
    const fn least_channel(n: u32, is_p2p: bool) -> u64 {
        let least = least_scratch(n);
        scratch(n) + if is_p2p || least > NIC_SCRATCH { least } else { NIC_SCRATCH }
    }

    /// Returns the bytes that the further channels of a team share, in a job of `n_pes`. They are at least `wanted`, and
    /// enough for one channel of all PEs.
    pub const fn channels_bytes(wanted: u64, n_pes: u32) -> u64 {
        let least = least_channel(n_pes, false);
        (if wanted > least { wanted } else { least }).next_multiple_of(128)
    }

    /// Returns the number of further channels of a team of `n` that share `bytes`, and the bytes of each.
    pub const fn channels(bytes: u64, n: u32, is_p2p: bool) -> (u32, u64) {
        let room = bytes / least_channel(n, is_p2p);
        let count = if room < MAX_CHANNELS as u64 { room } else { MAX_CHANNELS as u64 - 1 };
        match bytes.checked_div(count) {
            Some(each) => (count as u32, each & !127),
            None => (0, 0),
        }
    }
}

/// Offsets of the runtime's own words in the symmetric heap. The user's objects begin after [`reserved::bytes`].
pub mod reserved {
    /// Destination of unused results: 8 bytes.
    pub const SINK: u64 = 0;
    /// Fetch slots of the QPs.
    pub const FETCH: u64 = 128;

    /// Returns the offset of the teams' words, after the fetch slots of `qps` QPs of `depth` blocks.
    pub const fn teams(qps: u64, depth: u64) -> u64 {
        (FETCH + qps * depth * 8).next_multiple_of(128)
    }

    /// Returns the bytes at the head of the heap that the runtime keeps: everything before the teams' words, and
    /// `teams` bytes.
    pub const fn bytes(qps: u64, depth: u64, teams: u64) -> u64 {
        (self::teams(qps, depth) + teams).next_multiple_of(4096)
    }
}

/// Kinds of collective calls, as call hashes carry them in the bits from [`SHIFT`](call_kind::SHIFT) on.
pub mod call_kind {
    /// Lowest bit of the kind in a call hash.
    pub const SHIFT: u32 = 27;
    /// `barrier` and `sync`.
    pub const SYNC: u32 = 1;
    /// `broadcast`.
    pub const BROADCAST: u32 = 2;
    /// `fcollect`.
    pub const FCOLLECT: u32 = 3;
    /// `collect`.
    pub const COLLECT: u32 = 4;
    /// `alltoall`.
    pub const ALLTOALL: u32 = 5;
    /// `alltoalls`.
    pub const ALLTOALLS: u32 = 6;
    /// `alltoallv`.
    pub const ALLTOALLV: u32 = 7;
    /// `reduce`.
    pub const REDUCE: u32 = 8;
    /// `reduce_scatter`.
    pub const REDUCE_SCATTER: u32 = 9;
    /// `scan`.
    pub const SCAN: u32 = 10;
    /// A later check-in of the same call.
    pub const STEP: u32 = 11;
    /// A call with wrong arguments of its own member.
    pub const WRONG: u32 = 15;
}

/// Error records in a control page. Later errors are counted, not kept.
pub const RECORDS: usize = 16;

/// Set in [`ControlPage::exit`] beside the code, which may be 0.
pub const EXIT_ASKED: u32 = 1 << 8;

/// The page that host and kernels share while a kernel runs: host memory, mapped for the GPU.
#[repr(C, align(4096))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct ControlPage {
    /// The abort word. If it is not 0, every blocking call ends with [`Error::Aborted`](crate::Error::Aborted). Written
    /// by the host, and by a kernel that ends the job.
    pub abort: u32,
    /// Not 0: a kernel has asked for a connection. Written by kernels, cleared by the host.
    pub requested: u32,
    /// Not 0 if a kernel ends the job: the exit code in the low byte, beside [`EXIT_ASKED`]. Written by kernels.
    pub exit: u32,
    /// Reserved, zero.
    pub reserved: [u32; 29],
    /// Error records, in order of claim.
    pub records: [ErrorRecord; RECORDS],
    /// Reserved, zero.
    pub tail: [[u64; 16]; 17],
}

/// One error, recorded by the thread that met it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct ErrorRecord {
    /// [`Error`](crate::Error) code; written last, so 0 means "not yet".
    pub code: u32,
    /// PE that ran the kernel.
    pub pe: u32,
    /// The peer concerned; `u32::MAX` if none.
    pub peer: u32,
    /// QP number; 0 if no QP is concerned.
    pub qpn: u32,
    /// WQE index (16 bits) that failed.
    pub wqe: u32,
    /// Opcode of that WQE.
    pub opcode: u32,
    /// Syndrome of the error CQE.
    pub syndrome: u32,
    /// Vendor syndrome.
    pub vendor: u32,
    /// Block of the thread.
    pub block: u32,
    /// Thread in the block.
    pub thread: u32,
    /// Line of the call site.
    pub line: u32,
    /// Bytes used in `file`.
    pub file_len: u32,
    /// Value found: of a word, an offset or a count, depending on `code`.
    pub found: u64,
    /// Value wanted. For a mismatch of collective calls: the call hash of this PE in the upper half and the hash of the
    /// peer in the lower half, or 0.
    pub wanted: u64,
    /// Heap offset concerned; `u64::MAX` if none.
    pub offset: u64,
    /// Device clock, in nanoseconds.
    pub time_ns: u64,
    /// Tail of the call site's file name.
    pub file: [u8; 32],
}

// More than 60 lines, as each fact of the layout has its line.
#[allow(clippy::indexing_slicing)] // runs in the compiler only
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
        offset_of!(QpDesc, lkey),
        offset_of!(QpDesc, flags),
        offset_of!(QpDesc, rail),
        offset_of!(QpDesc, strict_lkey),
        offset_of!(QpDesc, target),
        offset_of!(QpDesc, queue),
        offset_of!(QpEntry, connection),
        offset_of!(QpEntry, state),
        offset_of!(Connection, fetch_slots),
        offset_of!(Connection, qpn),
        size_of::<QpState>(),
        offset_of!(QpState, doorbell),
        offset_of!(QpState, poller),
        offset_of!(QpState, owner),
        offset_of!(QpState, batch_end),
        offset_of!(QpState, fenced),
        FIRST_BLOCK as usize,
        offset_of!(ControlPage, requested),
        offset_of!(ControlPage, exit),
        size_of::<DeviceState>(),
        offset_of!(DeviceState, deadline_ns),
        offset_of!(DeviceState, pe),
        offset_of!(DeviceState, connect_ns),
        offset_of!(DeviceState, records),
        offset_of!(DeviceState, weak),
        offset_of!(DeviceState, print),
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
        offset_of!(TeamDesc, word),
        offset_of!(TeamDesc, counters),
        offset_of!(TeamCounters, failed),
        team_words::MEETINGS as usize,
        team_words::values(1) as usize,
        team_words::MAX_CHANNELS as usize,
        team_words::BYTES_PER_CHANNEL as usize,
        team_words::p2p_bytes_per_channel(2) as usize,
        size_of::<ControlPage>(),
        size_of::<ErrorRecord>(),
        offset_of!(ErrorRecord, found),
        offset_of!(ErrorRecord, file),
        reserved::FETCH as usize,
    ];
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
