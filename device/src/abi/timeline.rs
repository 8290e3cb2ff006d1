//! The rings in which kernels of a GPU write their calls.

use bytemuck::{Pod, Zeroable};

use super::{CacheLine, LAUNCH_QUEUES};

/// Number of rings of a [`TraceArea`]. Blocks of equal numbers modulo this share a ring.
pub const TRACE_RINGS: usize = 256;

/// The calls that kernels with a timeline have made. The rings of `calls` [`TracedCall`]s each follow it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct TraceArea {
    /// Entries of each ring, a power of two.
    pub calls: u64,
    /// Reserved, zero.
    pub reserved: [u64; 15],
    /// Number of entries taken in each ring. Call `i` has entry `i % calls`.
    pub counts: [CacheLine; TRACE_RINGS],
}

/// A call of a kernel, or a kernel in one of its blocks.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct TracedCall {
    /// Device clock at its begin, in nanoseconds.
    pub begin_ns: u64,
    /// Device clock at its end; 0 while it runs.
    pub end_ns: u64,
    /// Address of its name in the kernel's memory.
    pub name: u64,
    /// Address of the file name of the call site in the kernel's memory.
    pub file: u64,
    /// [`CtxParts::mark`](super::CtxParts::mark) of the launch, with the number of its launch queue in the bits [`TRACED_QUEUE`].
    pub launch: u64,
    /// Offset at the peer. Of a wait: the value.
    pub remote: u64,
    /// Offset of the word that it changes or waits for. Of a collective call: slot and generation of the team.
    pub word: u64,
    /// Bytes that it moves.
    pub bytes: u64,
    /// The peer; `u32::MAX` if none.
    pub peer: u32,
    /// Line of the call site.
    pub line: u32,
    /// Block of the thread.
    pub block: u32,
    /// One of [`traced`].
    pub kind: u32,
    /// Thread in the block.
    pub thread: u16,
    /// Bytes of `name`.
    pub name_len: u8,
    /// Bytes of `file`.
    pub file_len: u8,
    /// Reserved, zero.
    pub reserved: u32,
}

/// The bits of [`TracedCall::launch`] with the number of the launch queue.
pub const TRACED_QUEUE: u64 = (LAUNCH_QUEUES - 1) << 20;

/// [`TracedCall::kind`].
pub mod traced {
    /// A kernel in one of its blocks.
    pub const KERNEL: u32 = 1;
    /// A put without a signal.
    pub const PUT: u32 = 2;
    /// A put with a signal.
    pub const PUT_SIGNAL: u32 = 3;
    /// A get, or an atomic that only reads.
    pub const GET: u32 = 4;
    /// A change of a word.
    pub const CHANGE: u32 = 5;
    /// `fence`.
    pub const FENCE: u32 = 6;
    /// `quiet` or `flush`.
    pub const COMPLETION: u32 = 7;
    /// A wait for a word.
    pub const WAIT: u32 = 8;
    /// A collective call.
    pub const COLLECTIVE: u32 = 9;
    /// The barrier of the grid.
    pub const GRID: u32 = 10;
}
