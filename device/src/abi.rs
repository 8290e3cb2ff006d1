//! Every struct that the host fills and kernels read, and nothing else.
//!
//! Plain data is [`Pod`]; what device code trusts as an address (the context, a symmetric handle) is not, so that
//! safe code cannot forge one from bytes. Cold descriptors are written once by the host; the words that kernels
//! update live in structs of their own, one line each.

use bytemuck::{Pod, Zeroable};
use core::mem::{offset_of, size_of};

/// "RUSH": the first word of every context.
pub const MAGIC: u32 = u32::from_be_bytes(*b"RUSH");

/// Counts incompatible changes of meaning that the layout hash cannot see.
pub const VERSION: u32 = 5;

/// A hash of the sizes and offsets below: equal on both sides when host and kernel were built from one layout.
pub const LAYOUT: u64 = layout_hash();

/// An address as the kernel sees it: of the GPU, or of the process when the kernel runs natively.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct DevAddr(pub u64);

impl QpState {
    /// The state of a QP without connection.
    pub fn unconnected() -> Self {
        let mut state: Self = Zeroable::zeroed();
        (state.reserved.word, state.doorbell.word) = (FIRST_BLOCK, FIRST_BLOCK);
        state
    }
}

impl DevAddr {
    /// The address as a pointer.
    pub fn ptr<T>(self) -> *mut T {
        self.0 as usize as *mut T
    }

    /// The address `bytes` further on.
    pub const fn add(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

/// The header that a kernel checks before it believes the rest. Its own layout never changes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u32,
    /// [`VERSION`].
    pub version: u32,
    /// [`LAYOUT`].
    pub layout: u64,
    /// The [`ControlPage`], where even a kernel of another build can say what is wrong.
    pub control: DevAddr,
}

/// What a context is made of.
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
    /// This PE.
    pub pe: u32,
    /// PEs in the job.
    pub n_pes: u32,
    /// First QP set that this context uses.
    pub first_set: u32,
    /// QP sets that this context spreads its blocks over, a multiple of `rails`.
    pub n_sets: u32,
    /// [`PerBlock`](crate::PerBlock) contexts; `rails` QP sets for each, after the shared ones.
    pub block_sets: u32,
    /// [`Exclusive`](crate::Exclusive) contexts; `rails` QP sets for each, after those.
    pub exclusive_sets: u32,
    /// NICs of each PE. Set number `s` uses number `s % rails` at both ends.
    pub rails: u32,
    /// First of the PEs among which all lie whose memory is mapped here while their atomics go through the NIC: what
    /// `fence` must look at.
    pub mixed_from: u32,
    /// One past the last of them.
    pub mixed_to: u32,
    /// Contexts that the host makes, see [`Context`](crate::Context); `rails` QP sets for each, after the exclusive ones.
    pub context_sets: u32,
    /// A word of the queue of kernels that this launch is in, 0 if there is none: the `mark` of the launch that failed,
    /// or 0. What follows a failed launch in its queue does nothing.
    pub status: DevAddr,
    /// What tells this launch from the others of its queue; not 0.
    pub mark: u64,
    /// Where the heap of PE `p2p_from` is mapped; those of the PEs after it follow, `p2p_stride` bytes apart.
    pub p2p_base: DevAddr,
    /// Bytes from one to the next.
    pub p2p_stride: u64,
    /// First of the near PEs: neighbours in number, this PE among them, whose heaps are mapped so. The place of its own is
    /// empty, since its memory is at `heap` already.
    pub p2p_from: u32,
    /// Near PEs; 0 if this PE reaches not even its own memory by loads and stores.
    pub p2p_count: u32,
    /// Bits of [`ctx_flags`].
    pub flags: u32,
    /// Teams that there can be at once, the predefined ones included.
    pub team_slots: u32,
    /// `team_slots` [`TeamDesc`]s.
    pub teams: DevAddr,
    /// Heap offset of the words and the scratch of team slot 0; see [`team_words`].
    pub team_words: u64,
    /// Bytes of heap that each team slot has.
    pub team_bytes: u64,
    /// Reserved, zero.
    pub reserved: u64,
}

impl CtxParts {
    /// True if `pe` is one of the near PEs. Of its own memory too the place is not in the window.
    #[inline(always)]
    pub const fn is_p2p(&self, pe: u32) -> bool {
        pe.wrapping_sub(self.p2p_from) < self.p2p_count
    }

    /// True if the heap has all of the `bytes` bytes from `offset` on.
    #[inline(always)]
    pub const fn has(&self, offset: u64, bytes: u64) -> bool {
        // Both, for one branch.
        (bytes <= self.heap_bytes) & (offset <= self.heap_bytes.wrapping_sub(bytes))
    }
}

/// [`CtxParts::flags`].
pub mod ctx_flags {
    /// Atomics on heaps that are mapped may be this processor's own: nobody reaches these words through a NIC. Equal for
    /// all PEs of a job.
    pub const P2P_ATOMICS: u32 = 1;
    /// All PEs of the job are near, and atomics are direct: nothing of this PE's goes through a NIC.
    pub const P2P_ALL: u32 = 2;
    /// There are queues [`ON_GPU`](super::qp_flags::ON_GPU), whose doorbells come after a fence at GPU scope only.
    pub const GPU_QUEUES: u32 = 4;
    /// The launch knows memory of the host, by a segment.
    pub const HOST_MEMORY: u32 = 8;
    /// Of PEs that are not near no heap is mapped.
    pub const OTHERS_FAR: u32 = 16;
}

/// The segments that the launches of one time know: `count` [`SegmentDesc`]s follow. It never changes: there is a new one
/// instead.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct SegmentTable {
    /// The context of such a launch, but for its [queue of kernels](CtxParts::status), for functions that find it in memory.
    pub parts: CtxParts,
    /// Segments.
    pub count: u64,
    /// Reserved, zero.
    pub reserved: u64,
}

/// Memory beyond the heap that kernels name by offsets, as they name the heap: what the heap has grown by, and
/// buffers of the user's.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct SegmentDesc {
    /// Its first offset.
    pub begin: u64,
    /// Its length.
    pub bytes: u64,
    /// This PE's memory.
    pub addr: DevAddr,
    /// How NICs name it: a [`SegmentEnd`] for each NIC of this PE, then, if it is symmetric, for each NIC of each PE.
    pub ends: DevAddr,
    /// If it is symmetric: for each PE, where its memory is mapped here, or 0. Mapped are those whose heaps are.
    pub mapped: DevAddr,
}

/// A segment's memory on one PE, as one NIC knows it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct SegmentEnd {
    /// Address on the wire of its first byte.
    pub base: u64,
    /// Its key.
    pub key: u32,
    /// Reserved, zero.
    pub reserved: u32,
}

/// The first offset of buffers that are registered with their own PE only. Those of symmetric memory are below.
pub const LOCAL_OFFSETS: u64 = 1 << 63;

/// Set in [`CtxParts::status`] by what follows the failed launch, which then does not run again in a replayed graph.
pub const SEALED: u64 = 1 << 63;

/// How a PE is reached that is not [near](CtxParts::p2p_from).
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct PeerDesc {
    /// Where the peer's heap is mapped here; 0 if it is not.
    pub direct: DevAddr,
}

/// A QP towards a peer, which may not be there yet: what is known from the start and never changes.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct QpDesc {
    /// The PE's [`DeviceState`].
    pub pe_state: DevAddr,
    /// The [`Handshake`], in host memory.
    pub handshake: DevAddr,
    /// Key of this PE's heap.
    pub lkey: u32,
    /// Key of the peer's heap.
    pub rkey: u32,
    /// The peer.
    pub peer: u32,
    /// log2 of the depth of send queue and completion queue, in basic blocks and entries.
    pub log_depth: u32,
    /// Bits of [`qp_flags`].
    pub flags: u32,
    /// Number of its NIC, the same at both ends.
    pub rail: u32,
    /// Reserved, zero.
    pub reserved: [u32; 22],
}

/// The queues of a QP. The thread that fetches it from the [`Handshake`] writes it before it raises [`QpState::done`] to
/// [`FIRST_BLOCK`], others read it after they have seen that: it has a line of its own, so that no cache holds an earlier
/// content. What every posting needs comes first: two loads of 16 bytes.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Connection {
    /// Send queue: basic blocks of 64 bytes.
    pub sq: DevAddr,
    /// Send doorbell record: one big-endian word.
    pub dbr: DevAddr,
    /// Doorbell register of the UAR page.
    pub uar: DevAddr,
    /// QP number.
    pub qpn: u32,
    /// As [`QpDesc::flags`].
    pub flags: u32,
    /// Completion queue: entries of 64 bytes.
    pub cq: DevAddr,
    /// A word for each block: which reservation that starts there is published. See [`ReadyEntry`](crate::sq::ReadyEntry).
    pub ready: DevAddr,
    /// A word for each block: 1 while its fetch slot is in use.
    pub fetch_busy: DevAddr,
    /// Heap offset of the 8-byte fetch slots, one for each block.
    pub fetch_slots: u64,
    /// Reserved, zero.
    pub reserved_2: [u64; 8],
}

/// A descriptor, its connection and its words: what tables of QPs consist of. All that a posting needs lies at distances
/// that are known from the entry's address, so that the loads do not wait for each other.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct QpEntry {
    /// What is known from the start.
    pub desc: QpDesc,
    /// What is known once it is connected.
    pub connection: Connection,
    /// What kernels update.
    pub state: QpState,
}

/// How a kernel comes to the connection of a QP. It lies in host memory, since the host may not be able to write to a
/// GPU's memory while a kernel waits there.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Handshake {
    /// 1 once a kernel wants the connection. Written by kernels.
    pub wanted: u32,
    /// One of [`answer`]; written by the host, last.
    pub answer: u32,
    /// Reserved, zero.
    pub reserved: [u32; 30],
    /// The connection.
    pub connection: Connection,
}

/// [`Handshake::answer`].
pub mod answer {
    /// None yet.
    pub const NONE: u32 = 0;
    /// The connection is there.
    pub const CONNECTED: u32 = 1;
    /// It could not be made; the host knows why.
    pub const FAILED: u32 = 2;
}

/// Number of a QP's first basic block. A multiple of 2^16, so that WQE indices begin at 0; larger than any depth, so
/// that a queue without connection, where [`QpState::done`] is 0, looks full to those who post.
pub const FIRST_BLOCK: u64 = 1 << 16;

/// [`QpDesc::flags`].
pub mod qp_flags {
    /// Every completion is written to entry 0.
    pub const COLLAPSED: u32 = 1;
    /// 8-byte results of atomics arrive big-endian.
    pub const BIG_ENDIAN_8: u32 = 2;
    /// The NIC takes up a doorbell record that becomes visible after the doorbell. The record is still stored before it, but
    /// nobody waits in between.
    pub const LATE_RECORD: u32 = 4;
    /// Send queue and doorbell record lie in this GPU's memory: the NIC sees there what all of the GPU sees.
    pub const ON_GPU: u32 = 8;
}

/// The words of a QP that kernels update. All counters are 64-bit, count WQE basic blocks from [`FIRST_BLOCK`], never wrap and
/// always mean "one past the last".
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct QpState {
    /// Blocks handed out.
    pub reserved: CacheLine,
    /// Blocks known to have completed; 0 while the QP is not connected.
    pub done: CacheLine,
    /// Blocks announced to the NIC, and who announces more: see [`DoorbellState`](crate::sq::DoorbellState).
    pub doorbell: CacheLine,
    /// 1 while some thread polls the CQ for all that wait.
    pub poller: CacheLine,
    /// CQ entries consumed; belongs to the holder of `poller`, as `done` does.
    pub cq_next: CacheLine,
    /// The [`Error`](crate::Error) code that ended this QP; 0 while it lives.
    pub poison: CacheLine,
    /// 1 once a thread has asked the host for the connection.
    pub connect_requested: CacheLine,
    /// 1 once a thread has begun to fetch it.
    pub connect_fetched: CacheLine,
    /// Not 0 while a context owns the set (used in the QP to PE 0): see [`Ctx::context`](crate::Ctx::context).
    pub owner: CacheLine,
    /// Not 0 if WQEs may be written that no doorbell has announced, see [`Batch`](crate::Batch): where some of them end.
    pub batch_end: CacheLine,
}

/// A word with a 128-byte line of its own.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct CacheLine {
    /// The word.
    pub word: u64,
    /// Reserved, zero.
    pub reserved: [u64; 15],
}

/// What a waiting or failing call needs of its PE, and the words of the PE that kernels update.
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
    pub reserved: [u32; 27],
    /// Error records claimed.
    pub records: CacheLine,
    /// Blocks that wait in the grid barrier.
    pub grid_arrived: CacheLine,
    /// Grid barriers completed.
    pub grid_generation: CacheLine,
}

/// What a PE knows of a team that it is in, and the words of it that kernels update.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct TeamDesc {
    /// This PE's number in the team.
    pub my_pe: u32,
    /// Members.
    pub n_pes: u32,
    /// The PE of member 0.
    pub start: u32,
    /// From each member's PE to that of the next one, wrapping; 0 if the steps differ.
    pub stride: u32,
    /// Tells this team from others that had the slot before; 0 while the slot is free. Equal on all members.
    pub generation: u32,
    /// Reserved, zero.
    pub reserved: u32,
    /// A `u32` for each member: its PE.
    pub pes: DevAddr,
    /// A `u32` for each PE: its number in the team, or `u32::MAX`.
    pub members: DevAddr,
    /// Reserved, zero.
    pub reserved_2: [u64; 11],
    /// Whether it may be used, and how far it is: see [`team_word`].
    pub word: CacheLine,
    /// The counters of its calls.
    pub counters: TeamCounters,
}

/// [`TeamDesc::word`]: bits, and above them how often all members have met.
pub mod team_word {
    /// A group is in a collective call of the team: only it changes the word.
    pub const BUSY: u64 = 1;
    /// A call has left the members out of step: [`TeamCounters::failed`](super::TeamCounters::failed) says how.
    pub const FAILED: u64 = 2;
    /// Where the number begins.
    pub const SHIFT: u32 = 2;
}

/// What a PE counts of a team's calls: words that the group in the call has for itself.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct TeamCounters {
    /// Messages taken from the others, by all calls so far.
    pub taken: u64,
    /// Arrivals at the split barrier.
    pub arrivals: u64,
    /// Waits of the split barrier.
    pub waits: u64,
    /// The [`Error`](crate::Error) code of the call that left the members out of step; 0 while they are in step.
    pub failed: u64,
    /// Reserved, zero.
    pub reserved: [u64; 12],
}

/// What lies at the head of a team slot's part of the heap.
pub mod team_words {
    /// Rounds of a meeting that there are words for.
    pub const ROUNDS: u32 = 32;
    /// Words of meetings in rounds: `ROUNDS` for even ones, then as many for odd ones.
    pub const IN_ROUNDS: u64 = 0;
    /// Counts the messages that have come.
    pub const MESSAGES: u64 = 2 * ROUNDS as u64 * 8;
    /// Counts arrivals of the others at the split barrier.
    pub const ARRIVALS: u64 = MESSAGES + 64;
    /// Words of meetings where each tells all: one from each member for even ones, then as many for odd ones.
    pub const MEETINGS: u64 = MESSAGES + 128;

    /// Two words from each member, for calls whose members differ in what they bring, in a job of `n_pes`.
    pub const fn values(n_pes: u32) -> u64 {
        MEETINGS + n_pes as u64 * 16
    }

    /// Where the scratch begins, in a job of `n_pes`.
    pub const fn scratch(n_pes: u32) -> u64 {
        (values(n_pes) + n_pes as u64 * 16).next_multiple_of(128)
    }

    /// Most bytes that a set of slots holds of small calls' data, half of which is flags: where nothing goes through a NIC,
    /// the scratch begins with two sets.
    pub const MOST_SLOTS: u64 = 32 << 10;

    /// Bytes of a set of slots, in a scratch of `bytes`: the rest, at least half of it, is for other calls.
    pub const fn slots(bytes: u64) -> u64 {
        let most = bytes / 4;
        (if most < MOST_SLOTS { most } else { MOST_SLOTS }) & !127
    }

    /// Least bytes of the scratch: two lines for each member, since collective calls go on line by line, in half of it where
    /// nothing goes through a NIC.
    pub const fn least_scratch(n_pes: u32) -> u64 {
        n_pes as u64 * 256
    }
}

/// Where the runtime's own words lie in the symmetric heap. The user's objects begin after [`reserved::bytes`].
pub mod reserved {
    /// Sink of results that nobody wants: 8 bytes.
    pub const SINK: u64 = 0;
    /// Fetch slots of the QPs.
    pub const FETCH: u64 = 128;

    /// Where the teams' words begin, behind the fetch slots of `qps` QPs of `depth` blocks.
    pub const fn teams(qps: u64, depth: u64) -> u64 {
        (FETCH + qps * depth * 8).next_multiple_of(128)
    }

    /// Bytes at the head of the heap that the runtime keeps, with that, and with `teams` bytes for all teams.
    pub const fn bytes(qps: u64, depth: u64, teams: u64) -> u64 {
        (self::teams(qps, depth) + teams).next_multiple_of(4096)
    }
}

/// Error records that a control page has room for; later ones are counted, not kept.
pub const RECORDS: usize = 16;

/// Set in [`ControlPage::exit`] beside the code, which may be 0.
pub const EXIT_ASKED: u32 = 1 << 8;

/// The page that host and kernels share while a kernel runs: host memory, mapped for the GPU.
#[repr(C, align(4096))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct ControlPage {
    /// Not 0: every blocking call ends with [`Error::Aborted`](crate::Error::Aborted). Written by the host, and by a
    /// kernel that ends the job.
    pub abort: u32,
    /// Not 0: a kernel has asked for a connection. Written by kernels, cleared by the host.
    pub requested: u32,
    /// Not 0: a kernel ends the job with the code in the low byte, beside [`EXIT_ASKED`]. Written by kernels.
    pub exit: u32,
    /// Reserved, zero.
    pub reserved: [u32; 29],
    /// What went wrong, in order of claim.
    pub records: [ErrorRecord; RECORDS],
    /// Reserved, zero.
    pub tail: [[u64; 16]; 17],
}

/// One error, as the thread that met it saw it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct ErrorRecord {
    /// [`Error`](crate::Error) code; written last, so 0 means "not yet".
    pub code: u32,
    /// PE whose kernel met the error.
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
    /// Block and thread.
    pub block: u32,
    /// Thread in the block.
    pub thread: u32,
    /// CacheLine of the call site.
    pub line: u32,
    /// Bytes used in `file`.
    pub file_len: u32,
    /// What was seen: the value of a word, an offset, a count (depends on `code`).
    pub found: u64,
    /// What was wanted.
    pub wanted: u64,
    /// Heap offset concerned; `u64::MAX` if none.
    pub offset: u64,
    /// Device clock, in nanoseconds.
    pub time_ns: u64,
    /// Tail of the call site's file name.
    pub file: [u8; 32],
}

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
        offset_of!(CtxParts, context_sets),
        offset_of!(CtxParts, status),
        offset_of!(CtxParts, mark),
        offset_of!(CtxParts, mixed_from),
        offset_of!(CtxParts, p2p_base),
        offset_of!(CtxParts, flags),
        offset_of!(CtxParts, teams),
        size_of::<PeerDesc>(),
        size_of::<QpDesc>(),
        offset_of!(QpDesc, handshake),
        offset_of!(Handshake, connection),
        offset_of!(QpDesc, lkey),
        offset_of!(QpDesc, flags),
        offset_of!(QpDesc, rail),
        offset_of!(QpEntry, connection),
        offset_of!(QpEntry, state),
        offset_of!(Connection, fetch_slots),
        offset_of!(Connection, qpn),
        size_of::<QpState>(),
        offset_of!(QpState, doorbell),
        offset_of!(QpState, poller),
        offset_of!(QpState, owner),
        offset_of!(QpState, batch_end),
        FIRST_BLOCK as usize,
        offset_of!(ControlPage, requested),
        offset_of!(ControlPage, exit),
        size_of::<DeviceState>(),
        offset_of!(DeviceState, deadline_ns),
        offset_of!(DeviceState, pe),
        offset_of!(DeviceState, records),
        size_of::<TeamDesc>(),
        offset_of!(TeamDesc, stride),
        offset_of!(TeamDesc, pes),
        offset_of!(TeamDesc, word),
        offset_of!(TeamDesc, counters),
        offset_of!(TeamCounters, failed),
        team_words::MEETINGS as usize,
        team_words::values(1) as usize,
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
    assert!(size_of::<CtxParts>() == 192);
    assert!(size_of::<QpDesc>() == 128 && size_of::<Connection>() == 128);
    assert!(offset_of!(Connection, uar) == 16 && offset_of!(Connection, qpn) == 24);
    assert!(size_of::<CacheLine>() == 128);
    assert!(offset_of!(DeviceState, records) == 128);
    assert!(size_of::<TeamDesc>() == 3 * 128);
    assert!(size_of::<ErrorRecord>() == 112);
    assert!(size_of::<ControlPage>() == 4096);
};
