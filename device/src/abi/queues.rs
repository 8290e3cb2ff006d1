//! The table of QPs: descriptors, connections and state words, and how kernels request a connection.

use core::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use rushmem_mlx5::av::AvSeg;

use super::{CacheLine, DevAddr};

/// Fixed properties of a QP to a peer, connected or not.
///
/// If the QPs of a set are [`DC`](qp_flags::DC) initiators, several PEs share the QP of one entry. Each PE still has
/// its own descriptor, with its keys and its address.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct QpDesc {
    /// The PE's [`DeviceState`](super::DeviceState).
    pub pe_state: DevAddr,
    /// The [`Handshake`], in host memory.
    pub handshake: DevAddr,
    /// Key of this PE's heap for data, which is what puts and gets transfer.
    pub lkey: u32,
    /// Key of the peer's heap for data. May be [relaxed](qp_flags::RELAXED).
    pub rkey: u32,
    /// The peer, as a PE number.
    pub peer: u32,
    /// log2 of the depth of send queue and completion queue, in blocks and entries.
    pub log_depth: u32,
    /// Bits of [`qp_flags`].
    pub flags: u32,
    /// Index of the rail, which is that of the NIC on both PEs.
    pub rail: u32,
    /// Key of this PE's heap for words: single values and results of atomics. Never relaxed.
    pub strict_lkey: u32,
    /// Key of the peer's heap for words: single values, atomics, signals and read-backs. Never relaxed.
    pub strict_rkey: u32,
    /// The address vector of the peer's target, if the QP is [`DC`](qp_flags::DC).
    pub target: AvSeg,
    /// The entry that holds the QP, if it is [`DC`](qp_flags::DC).
    pub queue: DevAddr,
    /// Reserved, zero.
    pub reserved: [u32; 6],
}

/// The queues of a connected QP.
///
/// The thread that fetches them from the [`Handshake`] writes them before it sets [`QpState::done`] to [`FIRST_BLOCK`];
/// others read them only after they have seen that value. They have a separate cache line, so no cache holds stale
/// contents. The fields that every posting needs come first: two 16-byte loads.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Connection {
    /// Send queue: 64-byte blocks.
    pub sq: DevAddr,
    /// Send doorbell record: one big-endian word.
    pub dbr: DevAddr,
    /// Doorbell register in the UAR page.
    pub uar: DevAddr,
    /// QP number.
    pub qpn: u32,
    /// [`QpDesc::flags`], plus [`qp_flags::UNORDERED`] and [`qp_flags::RELAXED`] where they apply.
    pub flags: u32,
    /// Completion queue: 64-byte entries.
    pub cq: DevAddr,
    /// A word per block: the reservation last published there. See [`ReadyEntry`](crate::sq::ReadyEntry).
    pub ready: DevAddr,
    /// A word per block: 1 while its fetch slot is in use.
    pub fetch_busy: DevAddr,
    /// Heap offset of the fetch slots, 8 bytes per block.
    pub fetch_slots: u64,
    /// Reserved, zero.
    pub reserved_2: [u64; 8],
}

/// An entry of the table of QPs.
///
/// All parts are at fixed offsets, so the loads of a posting need not wait for each other.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct QpEntry {
    /// Fixed properties.
    pub desc: QpDesc,
    /// Queues. Valid once the QP is connected.
    pub connection: Connection,
    /// Words that kernels update.
    pub state: QpState,
}

/// The words with which a kernel requests a connection, and the answer.
///
/// In host memory, because the host may be unable to write GPU memory while a kernel is waiting.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Handshake {
    /// 1 once a kernel needs the connection. Set by kernels.
    pub wanted: u32,
    /// One of [`answer`]. Written by the host after everything else.
    pub answer: u32,
    /// Reserved, zero.
    pub reserved: [u32; 30],
    /// Valid if `answer` is [`answer::CONNECTED`].
    pub connection: Connection,
}

/// Values of [`Handshake::answer`].
pub mod answer {
    /// No answer yet.
    pub const NONE: u32 = 0;
    /// The connection is established.
    pub const CONNECTED: u32 = 1;
    /// The host could not connect the QP, and reports why.
    pub const FAILED: u32 = 2;
}

/// Index of a QP's first block.
///
/// A multiple of 2^16, because 16-bit WQE indices start at 0. It exceeds every depth, which makes an unconnected queue,
/// with [`QpState::done`] of 0, look full.
pub const FIRST_BLOCK: u64 = 1 << 16;

/// Flags in [`QpDesc::flags`].
pub mod qp_flags {
    /// Every CQE is written to entry 0 of the CQ.
    pub const COLLAPSED: u32 = 1;
    /// 8-byte results of atomics are big-endian.
    pub const BIG_ENDIAN_8: u32 = 2;
    /// The NIC tolerates a doorbell record that becomes visible after the doorbell, or reads none. Posters still store
    /// the record first but do not wait in between.
    pub const LATE_RECORD: u32 = 4;
    /// Send queue and doorbell record are in this GPU's memory: the NIC sees there what the whole GPU sees.
    pub const ON_GPU: u32 = 8;
    /// WRITEs may be delivered out of order, as with adaptive routing. `fence` posts a strong fence. Only found in a
    /// [`Connection`](super::Connection), because firmware decides when a QP connects.
    pub const UNORDERED: u32 = 16;
    /// The peer's keys for data are relaxed: a WRITE through one may pass earlier WRITEs on PCIe, even after their ACK.
    /// `fence` posts a read-back and a strong fence, `quiet` a read-back. Only found in a
    /// [`Connection`](super::Connection).
    pub const RELAXED: u32 = 32;
    /// A DC initiator: each WQE contains the address vector of its target, and takes two blocks.
    pub const DC: u32 = 64;
    /// The flags of a *weak* QP, on which `fence` has to post something.
    pub const WEAK: u32 = UNORDERED | RELAXED;
}

/// The words of a QP that kernels update.
///
/// Block indices are 64-bit, start at [`FIRST_BLOCK`], never wrap, and are one past the last block in question.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct QpState {
    /// One past the last reserved block.
    pub reserved: CacheLine,
    /// One past the last block known to be complete; 0 while the QP is unconnected.
    pub done: CacheLine,
    /// One past the last announced block, and doorbell state: see [`DoorbellState`](crate::sq::DoorbellState).
    pub doorbell: CacheLine,
    /// 1 while a thread polls the CQ for all waiting threads.
    pub poller: CacheLine,
    /// Number of CQ entries consumed. Written by the poller, as is `done`.
    pub cq_next: CacheLine,
    /// The [`Error`](crate::Error) code that broke this QP; 0 while it works.
    pub poison: CacheLine,
    /// 1 once a thread has requested the connection from the host.
    pub connect_requested: CacheLine,
    /// 1 once a thread has started to fetch the connection.
    pub connect_fetched: CacheLine,
    /// Owner of the QP set, or 0 if it is free. Only used in the QP to PE 0; see [`Ctx::context`](crate::Ctx::context).
    pub owner: CacheLine,
    /// One past the last block of an open [`Batch`](crate::Batch); 0 if everything has been announced.
    pub batch_end: CacheLine,
    /// Four times a block index, plus bits for the remedies posted after all blocks before it. See `delivery.rs`.
    pub fenced: CacheLine,
}

// Kernels copy the address vector in segments of 16 bytes.
const _: () = assert!(offset_of!(QpDesc, target).is_multiple_of(16));

impl QpState {
    /// Returns the initial state of an unconnected QP.
    pub fn unconnected() -> Self {
        let mut state: Self = Zeroable::zeroed();
        (state.reserved.word, state.doorbell.word) = (FIRST_BLOCK, FIRST_BLOCK);
        state
    }
}
