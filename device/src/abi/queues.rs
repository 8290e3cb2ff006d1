//! Table of QPs in the ABI: descriptors, connections and state words, and how kernels request a connection.

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
    /// Address of the [`DeviceState`](super::DeviceState) of the PE that owns the QP.
    pub pe_state: DevAddr,
    /// Address of the [`Handshake`] with which kernels request the connection, in host memory.
    pub handshake: DevAddr,
    /// Local memory key for data in this PE's heap, which is what puts and gets transfer.
    pub lkey: u32,
    /// Remote memory key for data in the peer's heap. May be [relaxed](qp_flags::RELAXED).
    pub rkey: u32,
    /// The peer's PE number.
    pub peer: u32,
    /// log2 of the depth of send queue and completion queue, in blocks and entries.
    pub log_depth: u32,
    /// Properties of the QP: bits of [`qp_flags`].
    pub flags: u32,
    /// Index of the rail. The QP uses the NIC with this index on both PEs.
    pub rail: u32,
    /// Local memory key for words in this PE's heap: single values and results of atomics. Never relaxed.
    pub strict_lkey: u32,
    /// Remote memory key for words in the peer's heap: single values, atomics, signals and read-backs. Never relaxed.
    pub strict_rkey: u32,
    /// Address vector of the peer's DC target, if the QP is [`DC`](qp_flags::DC).
    pub target: AvSeg,
    /// Address of the [`QpEntry`] that holds the shared QP, if it is [`DC`](qp_flags::DC).
    pub queue: DevAddr,
    /// Reserved, zero.
    pub reserved: [u32; 6],
}

/// The queues of a connected QP.
///
/// The thread that fetches them from the [`Handshake`] writes them before it sets [`QpState::done`] to the first block of
/// the connection; others read them only after they have seen that value. They have a separate cache line, so no cache
/// holds stale contents. The fields that every posting needs come first: two 16-byte loads.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Connection {
    /// Address of the send queue, which consists of 64-byte blocks.
    pub sq: DevAddr,
    /// Address of the send doorbell record, one big-endian word.
    pub dbr: DevAddr,
    /// Address of the doorbell register in the UAR page.
    pub uar: DevAddr,
    /// QP number, as in WQEs and doorbells.
    pub qpn: u32,
    /// [`QpDesc::flags`], plus [`qp_flags::UNORDERED`] and [`qp_flags::RELAXED`] where they apply.
    pub flags: u32,
    /// Address of the completion queue, which consists of 64-byte entries.
    pub cq: DevAddr,
    /// Address of a word per block of the send queue: the reservation last published in the block. See
    /// [`ReadyEntry`](crate::sq::ReadyEntry).
    pub ready: DevAddr,
    /// Address of a word per block of the send queue: 1 while the fetch slot of the block is in use.
    pub fetch_busy: DevAddr,
    /// Heap offset of the fetch slots: 8 bytes per block of the send queue, for the result of its operation.
    pub fetch_slots: u64,
    /// Keys to replace in WQEs, if the QP has [moved](qp_flags::MOVED): the lkeys of this PE's heap for data and for words,
    /// and the rkeys of the peer's.
    pub keys: [MovedKey; 4],
    /// Reserved, zero.
    pub reserved_2: [u64; 4],
}

/// A memory key with which kernels build WQEs, and the key of the same memory on the NIC that executes them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct MovedKey {
    /// Key on the NIC of the QP's first connection.
    pub from: u32,
    /// Key on the NIC of the current connection.
    pub to: u32,
}

/// A QP in the table of QPs, connected or not.
///
/// All parts are at fixed offsets, so the loads of a posting need not wait for each other.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct QpEntry {
    /// Fixed properties of the QP.
    pub desc: QpDesc,
    /// Queues of the QP. Valid once it is connected.
    pub connection: Connection,
    /// Words of the QP that kernels update.
    pub state: QpState,
}

/// Words with which a kernel requests the connection of a QP, and the host's answer.
///
/// In host memory, because the host may be unable to write GPU memory while a kernel is waiting.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Handshake {
    /// How many connections kernels have requested so far. Written by kernels after everything else.
    pub wanted: u32,
    /// One of [`answer`]. Reset by kernels, and written by the host after everything else.
    pub answer: u32,
    /// How often another process has replaced the peer while kernels were running. Written by the host before it takes requests
    /// for connections to that process.
    pub renewed: u32,
    /// Value of `renewed` when kernels last requested a connection. The host ignores a request if it differs.
    pub seen: u32,
    /// Where kernels copy the blocks of a failed connection: a ring with a slot for each block of the send queue. Written by
    /// the host before a connection is published.
    pub salvage: DevAddr,
    /// Index one past the last block that was known to be complete when the connection failed.
    pub done: u64,
    /// Index one past the last block in the salvage ring.
    pub end: u64,
    /// Index of the first block that kernels will post to the next connection.
    pub resume: u64,
    /// Value of [`QpState::second_blocks`] when the connection failed.
    pub second_blocks: u64,
    /// Number of entries of the new connection's CQ that the host has consumed. 0 for a collapsed CQ.
    pub completions: u64,
    /// Number of fetching atomics that were executed but whose results are lost. The salvage ring has a [`LostResult`] for
    /// each.
    pub lost_results: u64,
    /// Reserved, zero.
    pub reserved: [u32; 14],
    /// Queues of the connected QP. Valid if `answer` is [`answer::CONNECTED`].
    pub connection: Connection,
}

/// A fetching atomic whose result is lost.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct LostResult {
    /// Index of its block.
    pub block: u64,
    /// Address of the word that says in which [order](result_order) the result is, or 0 if the result belongs in the block's
    /// fetch slot.
    pub order: DevAddr,
}

/// Byte orders of the results of atomics without waiting.
pub mod result_order {
    /// Offset of the word that contains the order, from the result.
    pub const OFFSET: u64 = 8;
    /// The byte order of this processor, in which processor atomics store results.
    pub const OWN: u32 = 0;
    /// The order in which some NICs write results: 8 bytes in this processor's byte order, but 4 bytes big-endian.
    pub const NIC: u32 = 1;
    /// The order in which other NICs write results: 4 and 8 bytes big-endian.
    pub const NIC_BIG_ENDIAN_8: u32 = 2;
    /// There is no result: it was lost with the connection.
    pub const LOST: u32 = 3;
}

/// States of the host's answer, for [`Handshake::answer`].
pub mod answer {
    /// The host has not answered yet.
    pub const NONE: u32 = 0;
    /// The QP is connected, and `connection` is valid.
    pub const CONNECTED: u32 = 1;
    /// The host could not connect the QP, and reports why.
    pub const FAILED: u32 = 2;
}

/// Index of a QP's first block.
///
/// A multiple of 2^16, because 16-bit WQE indices start at 0. It exceeds every depth, which makes an unconnected queue,
/// with [`QpState::done`] of 0, look full.
pub const FIRST_BLOCK: u64 = 1 << 16;

/// Bits of [`QpDesc::flags`] and [`Connection::flags`].
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
    /// If the connection fails, the host makes another one, over another NIC if necessary: see `sq/failover.rs`.
    pub const FAILOVER: u32 = 128;
    /// One of the two NICs is not that of the rail, so [`Connection::keys`](super::Connection::keys) applies. Excludes
    /// [`ON_GPU`]. Only found in a [`Connection`](super::Connection).
    pub const MOVED: u32 = 256;
    /// The flags of a *weak* QP, one whose WRITEs may overtake each other unless `fence` posts a WQE.
    pub const WEAK: u32 = UNORDERED | RELAXED;
}

/// State of a QP that kernels update.
///
/// Block indices are 64-bit, start at [`FIRST_BLOCK`], never wrap, and are one past the last block in question.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct QpState {
    /// One past the last reserved block.
    pub reserved: CacheLine,
    /// One past the last block known to be complete; 0 while the QP is unconnected. After a failover, the first block of the
    /// new connection, which completes all earlier ones.
    pub done: CacheLine,
    /// One past the last announced block, and doorbell state: see [`DoorbellState`](crate::sq::DoorbellState).
    pub doorbell: CacheLine,
    /// 1 while a thread polls the CQ for all waiting threads.
    pub poller: CacheLine,
    /// Number of CQ entries consumed. Written by the poller, as is `done`.
    pub cq_next: CacheLine,
    /// The [`Error`](crate::Error) code that broke this QP, in the low 8 bits; 0 while it works. The bits above are one past
    /// the last block for which the loss of the peer has been reported.
    pub poison: CacheLine,
    /// 1 once a thread has requested the connection from the host.
    pub connect_requested: CacheLine,
    /// 1 once a thread has started to fetch the connection.
    pub connect_fetched: CacheLine,
    /// Twice the number of failovers so far, plus 1 while a thread hands the queue over to the host.
    pub closing: CacheLine,
    /// Number of blocks posted to the current connection that are the second of their WQE. Only counted for
    /// [`FAILOVER`](qp_flags::FAILOVER).
    pub second_blocks: CacheLine,
    /// Owner of the QP set, or 0 if it is free. Only used in the QP to PE 0; see [`Ctx::context`](crate::Ctx::context).
    pub owner: CacheLine,
    /// One past the last block of an open [`Batch`](crate::Batch); 0 if no announcement is being held back.
    pub batch_end: CacheLine,
    /// Four times a block index, plus bits for the fences and read-backs posted after all blocks before it. See
    /// `order/delivery.rs`.
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
