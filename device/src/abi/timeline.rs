//! Layout of the rings in which GPU kernels with a timeline record their calls.

use bytemuck::{Pod, Zeroable};

use super::{CacheLine, LAUNCH_QUEUES};

/// Number of rings of a [`TraceArea`]. Blocks with equal indices modulo this share a ring.
pub const TRACE_RINGS: usize = 256;

/// Header of the calls that kernels with a timeline record, followed by the rings of `calls` [`TracedCall`]s each.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct TraceArea {
    /// Number of entries per ring, a power of two.
    pub calls: u64,
    /// Reserved, zero.
    pub reserved: [u64; 15],
    /// Number of entries claimed in each ring. Call `i` uses entry `i % calls`.
    pub counts: [CacheLine; TRACE_RINGS],
}

/// A call made by a kernel, or one block's run of the kernel itself.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct TracedCall {
    /// Device clock when the call started, in nanoseconds.
    pub begin_ns: u64,
    /// Device clock when the call returned, in nanoseconds; 0 before that.
    pub end_ns: u64,
    /// Address of the call's name, in the kernel's memory.
    pub name: u64,
    /// Address of the call site's file name, in the kernel's memory.
    pub file: u64,
    /// [`CtxParts::mark`](super::CtxParts::mark) of the launch. The bits [`TRACED_QUEUE`] hold the index of its launch
    /// queue.
    pub launch: u64,
    /// Heap offset on the peer that the call accesses. For a wait: the value waited for.
    pub remote: u64,
    /// Offset of the word that the call changes or waits for. For a collective call: slot and generation of the team.
    pub word: u64,
    /// Number of bytes that the call transfers.
    pub bytes: u64,
    /// The peer's PE number, or `u32::MAX` if there is none.
    pub peer: u32,
    /// Line of the call in the kernel's source.
    pub line: u32,
    /// Index of the block that made the call.
    pub block: u32,
    /// Kind of the call: one of the constants in [`traced`].
    pub kind: u32,
    /// Index, within its block, of the thread that made the call.
    pub thread: u16,
    /// Length of the name, in bytes.
    pub name_len: u8,
    /// Length of the file name, in bytes.
    pub file_len: u8,
    /// Reserved, zero.
    pub reserved: u32,
}

/// The bits of [`TracedCall::launch`] that hold the index of the launch queue.
pub const TRACED_QUEUE: u64 = (LAUNCH_QUEUES - 1) << 20;

/// Kinds of recorded calls, for [`TracedCall::kind`].
pub mod traced {
    /// One block's run of a kernel.
    pub const KERNEL: u32 = 1;
    /// A call that puts data, without a signal.
    pub const PUT: u32 = 2;
    /// A call that puts data and then signals.
    pub const PUT_SIGNAL: u32 = 3;
    /// A call that reads memory of a peer: a get, or an atomic that only reads.
    pub const GET: u32 = 4;
    /// A call that changes a single word of a peer.
    pub const CHANGE: u32 = 5;
    /// A call of `fence`.
    pub const FENCE: u32 = 6;
    /// A call of `quiet` or `flush`.
    pub const COMPLETION: u32 = 7;
    /// A wait for a word to satisfy a comparison.
    pub const WAIT: u32 = 8;
    /// A collective call of a team.
    pub const COLLECTIVE: u32 = 9;
    /// A barrier of all blocks of the grid.
    pub const GRID: u32 = 10;
}
