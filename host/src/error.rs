//! What can go wrong on the host, by party at fault. Each error says what was tried and what to do.

use crate::bootstrap::PeerLost;
use crate::report::DeviceError;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call of the runtime failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is wrong.
    #[error(transparent)]
    Config(#[from] crate::config::Error),
    /// The PEs of the job did not find each other, or lost each other in a collective call.
    #[error(transparent)]
    Bootstrap(#[from] crate::bootstrap::Error),
    /// A PE died, or gave up, while this one worked with it.
    #[error("{0}")]
    PeerLost(PeerLost),
    /// A kernel met an error; the first record tells which, the second number how many more there were.
    #[error("{first}{}", more(*.others))]
    Device {
        /// The first error.
        first: Box<DeviceError>,
        /// Further errors of the same launch.
        others: u64,
    },
    /// An operation that the host initiated, or queued on a stream, failed.
    #[error("{what}: {cause}")]
    Operation {
        /// The operation, or the kernel.
        what: &'static str,
        /// What went wrong.
        cause: Box<Error>,
    },
    /// A kernel was queued behind one that failed.
    #[error("{kernel} did not run, since {failed}, launched before it, failed")]
    NotRun {
        /// The kernel.
        kernel: &'static str,
        /// The one that failed.
        failed: &'static str,
    },
    /// A kernel returned an error of its own, of which there is no record.
    #[error(
        "it returned an error that no call of rushmem recorded: one of its own, or one that another wait of this PE \
         has told"
    )]
    Unrecorded,
    /// The same, and a QP is there that an earlier error has ended: what uses it fails without a record of its own.
    #[error(
        "it returned an error of which there is no record, and QP {qpn:#x} towards PE {peer} was ended by an earlier one, \
         which was told then; once all PEs have called Pe::reset_queues, there are new QPs"
    )]
    Poisoned {
        /// The PE at its other end.
        peer: u32,
        /// Its number.
        qpn: u32,
    },
    /// A grid whose blocks cannot all run at once.
    #[error(
        "all blocks of {kernel} must run at once, since it is launched on all PEs together: PE {pe} has room for {room} \
         such blocks, and {blocks} were to be launched there; Pe::max_grid tells what fits everywhere"
    )]
    GridTooLarge {
        /// The kernel.
        kernel: &'static str,
        /// The PE with the least room.
        pe: u32,
        /// Blocks that were to be launched there.
        blocks: u32,
        /// Blocks that there is room for.
        room: u32,
    },
    /// CUDA refused something.
    #[error(transparent)]
    Cuda(#[from] crate::cuda::Error),
    /// A kernel could not run natively.
    #[error(transparent)]
    Native(#[from] crate::native::Error),
    /// The NIC did not do what bring-up asked.
    #[error(transparent)]
    Nic(#[from] crate::provider::Error),
    /// The software ConnectX could not start.
    #[error("the software ConnectX could not start: {0}")]
    SoftNic(#[from] rushmem_softnic::Error),
    /// Memory of the PE could not be read or written.
    #[error("copy to or from a PE's memory failed: {0}")]
    Memory(#[from] rushmem_softnic::MemoryError),
    /// The symmetric heap is too small.
    #[error(
        "the symmetric heap has no room for {wanted} bytes: {free} of {total} bytes are free, {largest} of them in \
         one piece; raise RUSHMEM_HEAP_BYTES on all PEs, or let it grow (RUSHMEM_HEAP_MAX)"
    )]
    HeapFull {
        /// Bytes asked for.
        wanted: u64,
        /// Bytes free.
        free: u64,
        /// Largest free piece.
        largest: u64,
        /// Bytes that the heap has for the user.
        total: u64,
    },
    /// The heap is larger than what the machine has.
    #[error(
        "what {pes} PEs want does not fit: each needs {wanted} bytes for its symmetric heap and queues, and {place} \
         has {available} bytes available; lower RUSHMEM_HEAP_BYTES or RUSHMEM_SQ_DEPTH, or run fewer PEs"
    )]
    HeapTooLarge {
        /// Bytes for each PE.
        wanted: u64,
        /// PEs that share the memory.
        pes: u32,
        /// What memory it is.
        place: String,
        /// Bytes available.
        available: u64,
    },
    /// PEs called a collective call with different arguments.
    #[error(
        "PE {pe} called {call} with {theirs}, this PE with {mine}: all PEs must make the same collective calls in \
         the same order"
    )]
    Mismatch {
        /// The PE that differs.
        pe: u32,
        /// The call.
        call: String,
        /// What it said.
        theirs: String,
        /// What this PE said.
        mine: String,
    },
    /// Another PE could not do its part of a collective call; this one has undone its own.
    #[error("PE {pe} could not do its part of {call}: {why}")]
    Elsewhere {
        /// The PE.
        pe: u32,
        /// The call.
        call: &'static str,
        /// What it said.
        why: String,
    },
    /// PEs did not come to a call that only some PEs make.
    #[error("PEs {pes:?} did not come to {call} within {waited:?}")]
    Absent {
        /// The call, with its arguments.
        call: String,
        /// Who is missing.
        pes: Vec<u32>,
        /// How long the others waited.
        waited: std::time::Duration,
    },
    /// NICs of different kinds, which cannot talk to each other.
    #[error(
        "PE {pe} has {theirs}, this PE has {mine}: they cannot talk to each other. Set RUSHMEM_NIC to the same kind on \
         all nodes: soft everywhere, or RDMA devices everywhere"
    )]
    MixedNics {
        /// The PE that differs.
        pe: u32,
        /// What NIC it has.
        theirs: String,
        /// What NIC this PE has.
        mine: String,
    },
    /// A NIC does not do for its own PE what it is needed for.
    #[error("{nic} fails its loopback probe: {why}")]
    Probe {
        /// The NIC.
        nic: String,
        /// What went wrong.
        why: String,
    },
    /// A QP towards a peer could not be made or connected.
    #[error("PE {pe} cannot be connected to PE {peer}: {why}")]
    NoConnection {
        /// This PE.
        pe: u32,
        /// The other one.
        peer: u32,
        /// Why.
        why: String,
    },
    /// Kernels use more QPs than there is memory for.
    #[error(
        "the queue memory of the NIC holds {qps} QPs, and kernels may use {wanted}; raise RUSHMEM_QUEUE_MEMORY, or \
         lower RUSHMEM_SQ_DEPTH"
    )]
    QueueMemory {
        /// QPs that fit.
        qps: u64,
        /// QPs that kernels may use, on all NICs of the PE.
        wanted: u64,
    },
    /// A handle is not what the call needs.
    #[error("{call}: {what}")]
    Misuse {
        /// The call.
        call: &'static str,
        /// What is wrong.
        what: String,
    },
    /// What was asked for is not there.
    #[error("{what} is not available: {why}")]
    Unavailable {
        /// What.
        what: String,
        /// Why, and what to do.
        why: String,
    },
    /// The operating system gave no thread.
    #[error("no thread for a kernel: {0}")]
    Thread(std::io::Error),
    /// The application's own error.
    #[error(transparent)]
    App(Box<dyn std::error::Error + Send + Sync>),
    /// The application panicked.
    #[error("panic: {0}")]
    Panic(String),
}

fn more(others: u64) -> String {
    match others {
        0 => String::new(),
        n => format!(" (and {n} more)"),
    }
}

impl Error {
    /// How far this is from the cause of a job's end: 0 for what may be the cause, 1 for the end of a QP whose other end
    /// failed, 2 if this PE only learned of an error that another one met.
    pub(crate) fn distance(&self) -> u8 {
        use crate::bootstrap::{Error as Bootstrap, Failure};
        match self {
            Self::PeerLost(_) | Self::Bootstrap(Bootstrap::Failed(Failure::Lost(_))) => 2,
            Self::Operation { cause, .. } => cause.distance(),
            Self::Elsewhere { .. } => 1,
            Self::Device { first, .. } if first.is_flush() => 1,
            _ => 0,
        }
    }
}
