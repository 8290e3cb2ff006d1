//! The table of QPs: what kernels know of each QP, the words that they update, and how they ask for its connection.

use core::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use rushmem_mlx5::av::AvSeg;

use super::{CacheLine, DevAddr};

/// A QP to a peer: its fixed properties. The QP need not be connected.
///
/// If the QPs of a set are [`DC`](qp_flags::DC) initiators, several PEs share the QP of one entry. Each PE has a descriptor of
/// its own nevertheless, with its keys and its address.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct QpDesc {
    /// The PE's [`DeviceState`](super::DeviceState).
    pub pe_state: DevAddr,
    /// The [`Handshake`], in host memory.
    pub handshake: DevAddr,
    /// Key of this PE's heap for data: what puts and gets transfer.
    pub lkey: u32,
    /// Key of the peer's heap for data. It may be [relaxed](qp_flags::RELAXED).
    pub rkey: u32,
    /// The peer.
    pub peer: u32,
    /// log2 of the depth of send queue and completion queue, in basic blocks and entries.
    pub log_depth: u32,
    /// Bits of [`qp_flags`].
    pub flags: u32,
    /// Number of its rail: the NIC of that number at both ends.
    pub rail: u32,
    /// Key of this PE's heap for words: single values, results of atomics. It is never relaxed.
    pub strict_lkey: u32,
    /// Key of the peer's heap for words: single values, atomics, signals, read-backs. It is never relaxed.
    pub strict_rkey: u32,
    /// The address vector of the peer's target, if the QP is [`DC`](qp_flags::DC).
    pub target: AvSeg,
    /// The entry of the QP, if it is [`DC`](qp_flags::DC).
    pub queue: DevAddr,
    /// Reserved, zero.
    pub reserved: [u32; 6],
}

/// The queues of a connected QP.
///
/// The thread that fetches it from the [`Handshake`] writes it before it sets [`QpState::done`] to [`FIRST_BLOCK`].
/// Others read it after they have seen that. It has a cache line of its own, so that no cache holds older content. The
/// fields that every posting needs come first: two loads of 16 bytes.
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
    /// [`QpDesc::flags`], and [`qp_flags::UNORDERED`] and [`qp_flags::RELAXED`] if they apply.
    pub flags: u32,
    /// Completion queue: entries of 64 bytes.
    pub cq: DevAddr,
    /// A word for each block: the published reservation that begins there. See [`ReadyEntry`](crate::sq::ReadyEntry).
    pub ready: DevAddr,
    /// A word for each block: 1 while its fetch slot is in use.
    pub fetch_busy: DevAddr,
    /// Heap offset of the 8-byte fetch slots, one for each block.
    pub fetch_slots: u64,
    /// Reserved, zero.
    pub reserved_2: [u64; 8],
}

/// An entry of the table of QPs: a descriptor, its connection and its state words.
///
/// A posting needs addresses at fixed distances from the entry, so that its loads do not wait for each other.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct QpEntry {
    /// Fixed properties.
    pub desc: QpDesc,
    /// Queues, valid once the QP is connected.
    pub connection: Connection,
    /// Words that kernels update.
    pub state: QpState,
}

/// The words with which a kernel asks the host for a connection, and the answer.
///
/// It lies in host memory, since the host may not be able to write GPU memory while a kernel waits.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Handshake {
    /// 1 once a kernel wants the connection. Written by kernels.
    pub wanted: u32,
    /// One of [`answer`]. Written by the host, last.
    pub answer: u32,
    /// Reserved, zero.
    pub reserved: [u32; 30],
    /// The connection.
    pub connection: Connection,
}

/// [`Handshake::answer`].
pub mod answer {
    /// No answer yet.
    pub const NONE: u32 = 0;
    /// The connection is established.
    pub const CONNECTED: u32 = 1;
    /// The host could not connect the QP and reports the reason.
    pub const FAILED: u32 = 2;
}

/// Index of a QP's first basic block.
///
/// It is a multiple of 2^16, so that WQE indices begin at 0. It exceeds every depth, so that an unconnected queue, with
/// a [`QpState::done`] of 0, looks full to posters.
pub const FIRST_BLOCK: u64 = 1 << 16;

/// [`QpDesc::flags`].
pub mod qp_flags {
    /// Every completion is written to entry 0.
    pub const COLLAPSED: u32 = 1;
    /// 8-byte results of atomics arrive big-endian.
    pub const BIG_ENDIAN_8: u32 = 2;
    /// The NIC accepts a doorbell record that becomes visible after the doorbell, or reads none. Posters still store the
    /// record first, but do not wait in between.
    pub const LATE_RECORD: u32 = 4;
    /// Send queue and doorbell record lie in this GPU's memory: the NIC sees there what the whole GPU sees.
    pub const ON_GPU: u32 = 8;
    /// WRITEs may land out of order, as with adaptive routing. `fence` posts a strong fence. Only a
    /// [`Connection`](super::Connection) has this flag, since firmware chooses the order when a QP connects.
    pub const UNORDERED: u32 = 16;
    /// The peer's keys for data are relaxed: a WRITE through one may pass earlier WRITEs on the PCIe bus, also after their
    /// ACK. `fence` posts a read-back and a strong fence, `quiet` a read-back. Only a
    /// [`Connection`](super::Connection) has this flag.
    pub const RELAXED: u32 = 32;
    /// A DC initiator: each WQE names its target by an address vector, and takes two basic blocks.
    pub const DC: u32 = 64;
    /// The flags of a *weak* QP, on which `fence` posts.
    pub const WEAK: u32 = UNORDERED | RELAXED;
}

/// The words of a QP that kernels update.
///
/// Block counts are 64-bit, begin at [`FIRST_BLOCK`], never wrap, and mean "one past the last".
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct QpState {
    /// Reserved blocks.
    pub reserved: CacheLine,
    /// Blocks known to be complete; 0 while the QP is not connected.
    pub done: CacheLine,
    /// Announced blocks, and the state of the doorbell: see [`DoorbellState`](crate::sq::DoorbellState).
    pub doorbell: CacheLine,
    /// 1 while a thread polls the CQ for all waiting threads.
    pub poller: CacheLine,
    /// CQ entries consumed. The poller writes it, and `done`.
    pub cq_next: CacheLine,
    /// The [`Error`](crate::Error) code that ended this QP; 0 while it works.
    pub poison: CacheLine,
    /// 1 once a thread has asked the host for the connection.
    pub connect_requested: CacheLine,
    /// 1 once a thread has begun to fetch the connection.
    pub connect_fetched: CacheLine,
    /// The claimant of the QP set, 0 if it is free (used in the QP to PE 0): see [`Ctx::context`](crate::Ctx::context).
    pub owner: CacheLine,
    /// The end of a posting that a [`Batch`](crate::Batch) has not announced; 0 if there is none.
    pub batch_end: CacheLine,
    /// Four times a block index, plus bits that say what follows all blocks before it. See `delivery.rs`.
    pub fenced: CacheLine,
}

// Kernels copy the address vector by segments of 16 bytes.
const _: () = assert!(offset_of!(QpDesc, target).is_multiple_of(16));

impl QpState {
    /// Returns the state of a QP without connection.
    pub fn unconnected() -> Self {
        let mut state: Self = Zeroable::zeroed();
        (state.reserved.word, state.doorbell.word) = (FIRST_BLOCK, FIRST_BLOCK);
        state
    }
}
