//! The error type of the runtime. Each message says what failed, with values, and then the remedy.

use std::error::Error as _;
use std::fmt;
use std::path::PathBuf;

use rushmem_base::THREAD_ADVICE;
use rushmem_bootstrap::{self as bootstrap, Failure, PeerLost};

use crate::call_site::CallSite;
use crate::report::DeviceError;

/// The result of a call of the runtime.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a call of the runtime failed.
///
/// The message is for people and may change. For programs, [`Error::status`] returns a stable code and name. `Debug`
/// prints the message, too, which keeps the output of a `main` that returns this error readable.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is unknown, has an invalid value or contradicts another one.
    #[error(transparent)]
    Config(#[from] rushmem_config::Error),
    /// The PEs of the job did not find each other, or a collective call between them failed.
    #[error(transparent)]
    Bootstrap(#[from] rushmem_bootstrap::Error),
    /// A PE that this PE needed died or failed.
    #[error("{0}")]
    PeerLost(PeerLost),
    /// A kernel recorded errors.
    #[error("{first}{}", more(*.others))]
    Device {
        /// The recorded error that is nearest to the root cause of the failure.
        first: Box<DeviceError>,
        /// Number of other errors that kernels of this PE recorded.
        others: u64,
    },
    /// An operation of the host, or a kernel on a stream, failed.
    #[error("{what}: {cause}{}", unless_in_text(.cause, *.site))]
    Operation {
        /// Name of the operation or the kernel.
        what: &'static str,
        /// Why the operation or the kernel failed.
        cause: Box<Error>,
        /// Line of the application that made the call, for an operation.
        site: CallSite,
    },
    /// A kernel was skipped because an earlier kernel in its queue failed.
    #[error("{kernel} did not run, because {failed}, launched before it, failed")]
    NotRun {
        /// Name of the skipped kernel.
        kernel: &'static str,
        /// Name of the earlier kernel that failed.
        failed: &'static str,
    },
    /// A kernel returned an error for which there is no record: the kernel made the error itself, or another wait has
    /// already reported the record.
    #[error(
        "the kernel returned an error without a record: the kernel made the error itself, or another wait of this PE \
         has reported the record"
    )]
    Unrecorded,
    /// A kernel returned an error without a record, and a QP of this PE is poisoned. Calls that use a poisoned QP
    /// fail without recording anything.
    #[error(
        "the kernel returned an error without a record, and QP {qpn:#x} towards PE {peer} was ended by an earlier \
         error, which was reported then; call Pe::reset_queues on all PEs to get new QPs"
    )]
    Poisoned {
        /// PE that the poisoned QP was connected to.
        peer: u32,
        /// QPN of the poisoned QP.
        qpn: u32,
    },
    /// Not all blocks of a grid can be resident together.
    #[error(
        "all blocks of {kernel} must run at once, because it is launched on all PEs together: PE {pe} has room for \
         {room} such blocks, but its grid has {blocks}; Pe::max_grid returns the largest grid for all PEs"
    )]
    GridTooLarge {
        /// Name of the kernel whose grid is too large.
        kernel: &'static str,
        /// The PE with room for the fewest blocks.
        pe: u32,
        /// Number of blocks in the grid of that PE.
        blocks: u32,
        /// Number of blocks that can be resident on that PE's GPU together.
        room: u32,
    },
    /// A kernel ran for longer than the setting `kernel_limit`.
    #[error(
        "PE {pe}: {kernel} did not end within {limit:?}; check its loops, or raise RUSHMEM_KERNEL_LIMIT (none for \
         kernels that run on)"
    )]
    KernelLimit {
        /// PE whose kernel ran for too long.
        pe: u32,
        /// Name of the kernel, and where it was launched.
        kernel: String,
        /// Value of the setting `kernel_limit`.
        limit: std::time::Duration,
    },
    /// A host loop polled with `test` for as long as the setting `timeout`, and the test failed each time.
    #[error(
        "{call}: the tests of this PE have failed for {deadline:?}; check that the PEs that update the words still run, or \
         raise RUSHMEM_TIMEOUT{site}"
    )]
    TestLoop {
        /// Name of the call that tests the words.
        call: &'static str,
        /// Value of the setting `timeout`.
        deadline: std::time::Duration,
        /// Line of the application that made the call.
        site: CallSite,
    },
    /// A call of the CUDA layer failed.
    #[error(transparent)]
    Cuda(#[from] rushmem_cuda::Error),
    /// The native GPU emulator could not run a kernel.
    #[error(transparent)]
    Native(#[from] rushmem_native::Error),
    /// A native kernel failed, for example because a lane panicked.
    #[error("PE {pe}: {}{cause}", kernel_prefix(*.kernel))]
    NativeKernel {
        /// PE whose kernel failed.
        pe: u32,
        /// Name of the kernel, if the error was found by waiting for a single launch.
        kernel: Option<&'static str>,
        /// Why the kernel failed.
        cause: rushmem_native::Error,
    },
    /// A NIC refused a request or did not complete it.
    #[error(transparent)]
    Nic(#[from] crate::nic_error::NicError),
    /// The software ConnectX could not start.
    #[error("the software ConnectX could not start: {0}")]
    SoftNic(#[from] rushmem_softnic::Error),
    /// The memory of a PE could not be read or written.
    #[error("a copy to or from the memory of a PE failed: {0}")]
    Memory(#[from] rushmem_softnic::MemoryError),
    /// A file could not be read or written.
    #[error("cannot {what} {}: {cause}", path.display())]
    File {
        /// What failed, as a verb.
        what: &'static str,
        /// Path of the file or folder.
        path: PathBuf,
        /// Why it failed.
        cause: std::io::Error,
    },
    /// A checkpoint is damaged or in use, or does not fit the job or its objects.
    #[error("the checkpoint {} is refused: {why}", path.display())]
    Checkpoint {
        /// Path of the checkpoint, or of the file in it.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The symmetric heap has no room for an object.
    #[error(
        "the symmetric heap has no room for {wanted} bytes: {free} of {total} bytes are free, {largest} of them in \
         one piece; {}{site}", heap_advice(*.max)
    )]
    HeapFull {
        /// Requested size of the object, in bytes.
        wanted: u64,
        /// Number of free bytes in the heap, which may be in several pieces.
        free: u64,
        /// Size of the largest free piece, in bytes.
        largest: u64,
        /// Size of the part of the heap that is available for objects, in bytes.
        total: u64,
        /// Value of the setting `heap_max`, if it allows the heap to grow.
        max: Option<u64>,
        /// Line of the application that made the call.
        site: CallSite,
    },
    /// The heaps and queues of the PEs do not fit into the memory of the machine.
    #[error(
        "{pes} PEs need {wanted} bytes each for their symmetric heaps and queues, but {memory} has only {available} \
         bytes available; lower RUSHMEM_HEAP_BYTES or RUSHMEM_SQ_DEPTH, or run fewer PEs"
    )]
    HeapTooLarge {
        /// Memory that each PE needs for its heap and queues, in bytes.
        wanted: u64,
        /// Number of PEs that share the memory.
        pes: u32,
        /// Description of the memory, such as "this machine's memory".
        memory: String,
        /// Size of the memory that is still available, in bytes.
        available: u64,
    },
    /// The system refused to allocate more host memory to this process.
    #[error(
        "cannot allocate {bytes} bytes of host memory; lower RUSHMEM_HEAP_BYTES or RUSHMEM_SQ_DEPTH, run fewer PEs, \
         or raise the limit of this process (`ulimit -v`)"
    )]
    HostMemory {
        /// Size of the refused allocation, in bytes.
        bytes: u64,
    },
    /// The PEs made different collective calls, or passed different arguments.
    #[error(
        "PE {pe} called {call} with {theirs}, this PE with {mine}: all PEs must make the same collective calls in \
         the same order{site}"
    )]
    Mismatch {
        /// PE whose call differs from the call of this PE.
        pe: u32,
        /// Name of the collective call that this PE made.
        call: String,
        /// The call that PE `pe` made, with its arguments.
        theirs: String,
        /// The call that this PE made, with its arguments.
        mine: String,
        /// Line of the application that made the call.
        site: CallSite,
    },
    /// A collective call failed on another PE. This PE has undone its part.
    #[error("{call} failed on PE {pe}: {why}{site}")]
    Elsewhere {
        /// PE on which the call failed.
        pe: u32,
        /// Name of the collective call.
        call: &'static str,
        /// Message of the error on that PE.
        why: String,
        /// Line of the application that made the call.
        site: CallSite,
    },
    /// Some PEs did not make a call that all must make together.
    #[error("PEs {pes:?} did not call {call} within {waited:?}{site}")]
    Absent {
        /// The collective call that PEs are missing from, with its arguments.
        call: String,
        /// PEs that did not make the call.
        pes: Vec<u32>,
        /// How long the other PEs waited.
        waited: std::time::Duration,
        /// Line of the application that made the call.
        site: CallSite,
    },
    /// The PEs have NICs of different kinds, which cannot talk to each other.
    #[error(
        "PE {pe} has {theirs}, and this PE has {mine}, which cannot communicate; set RUSHMEM_NIC to the same kind on \
         all nodes: soft everywhere, or RDMA devices everywhere"
    )]
    MixedNics {
        /// PE whose NIC differs from the NIC of this PE.
        pe: u32,
        /// Kind of NIC that PE `pe` uses.
        theirs: String,
        /// Kind of NIC that this PE uses.
        mine: String,
    },
    /// A NIC failed the probe that the runtime runs before it uses a NIC.
    #[error("{nic} failed its loopback probe: {why}")]
    Probe {
        /// Name of the NIC that failed the probe.
        nic: String,
        /// What went wrong in the probe of the NIC.
        why: String,
    },
    /// A QP to a peer could not be created or connected.
    #[error("PE {pe} cannot be connected to PE {peer}: {why}")]
    NoConnection {
        /// PE that could not connect, and reports the error.
        pe: u32,
        /// PE that the QP should have been connected to.
        peer: u32,
        /// Why the QP could not be created or connected.
        why: String,
    },
    /// A NIC failed during the job, and QPs of this PE used it. All waits in the PE's kernels fail.
    #[error("PE {pe}: {nic} failed: {why}")]
    NicFailed {
        /// PE whose QPs used the NIC.
        pe: u32,
        /// Name of the NIC, and its port.
        nic: String,
        /// How the NIC failed.
        why: String,
    },
    /// A connected QP lost its peer. All waits in the PE's kernels fail.
    #[error("PE {pe} lost its connection to PE {peer}: {why}")]
    ConnectionLost {
        /// PE whose QP lost its peer.
        pe: u32,
        /// PE that the QP was connected to.
        peer: u32,
        /// Reason that the remote PE gave for closing the connection.
        why: String,
    },
    /// The queues of all QPs that kernels may use need more memory than the setting `queue_memory` allows.
    #[error(
        "the queues of {qps} QPs of {depth} WQEs need {needed} bytes, and may take {limit}; raise RUSHMEM_QUEUE_MEMORY, \
         remove RUSHMEM_SQ_DEPTH, or use fewer QPs to each peer"
    )]
    QueueMemory {
        /// Number of QPs that kernels may use, on all NICs of the PE.
        qps: u64,
        /// Depth of each send queue, in WQEs.
        depth: u64,
        /// Memory that the queues of all these QPs need, in bytes.
        needed: u64,
        /// Value of the setting `queue_memory`, in bytes.
        limit: u64,
    },
    /// The program made an invalid call: a wrong argument, a stale handle, or a call at the wrong time.
    #[error("{call}: {what}{site}")]
    Misuse {
        /// Name of the call that was misused.
        call: &'static str,
        /// What is wrong with the arguments or the time of the call.
        what: String,
        /// Line of the application that made the call.
        site: CallSite,
    },
    /// A requested feature or resource is not available.
    #[error("{what} is not available: {why}")]
    Unavailable {
        /// Feature or resource that is not available.
        what: String,
        /// Why it is not available, and what to do about it.
        why: String,
    },
    /// The communication sanitizer has found races or deadlocks.
    #[error("the sanitizer has {} findings; the first is a {}", .0.len(), .0.first().map_or_else(String::new, ToString::to_string))]
    Sanitizer(Vec<rushmem_sanitizer::Finding>),
    /// The operating system could not start a thread.
    #[error("the operating system could not start a thread: {0}; {THREAD_ADVICE}")]
    Thread(std::io::Error),
    /// The application returned an error.
    #[error(transparent)]
    App(Box<dyn std::error::Error + Send + Sync>),
    /// The application panicked, with this message.
    #[error("panic: {0}")]
    Panic(String),
}

/// Returns the line of an operation, or nothing if the message of `cause` already contains a line.
fn unless_in_text(cause: &Error, site: CallSite) -> CallSite {
    if matches!(cause, Error::Device { .. }) { CallSite::default() } else { site }
}

/// Returns advice for a full heap, which may grow to `max` bytes.
fn heap_advice(max: Option<u64>) -> String {
    max.map_or_else(
        || "raise RUSHMEM_HEAP_BYTES on all PEs, or let the heap grow with RUSHMEM_HEAP_MAX".into(),
        |max| format!("it may grow to {max} bytes: raise RUSHMEM_HEAP_MAX on all PEs"),
    )
}

fn more(others: u64) -> String {
    match others {
        0 => String::new(),
        n => format!(" (and {n} more)"),
    }
}

impl fmt::Debug for Error {
    /// Formats the message, followed by those causes that it does not include.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            let reason = error.to_string();
            if !text.contains(&reason) {
                text = format!("{text}: {reason}");
            }
            cause = error.source();
        }
        f.write_str(&text)
    }
}

fn kernel_prefix(kernel: Option<&'static str>) -> String {
    kernel.map(|name| format!("kernel {name}: ")).unwrap_or_default()
}

impl Error {
    /// Creates the error for an invalid call. Libraries on top of this one may return it for their own calls.
    ///
    /// It contains the line of the application if this thread is inside a call of this crate.
    pub fn misuse(call: &'static str, what: impl Into<String>) -> Self {
        Self::Misuse { call, what: what.into(), site: CallSite::current() }
    }

    /// Adds the PE to an error of the native GPU emulator.
    #[doc(hidden)]
    pub fn on_pe(self, pe: u32) -> Self {
        match self {
            Self::Native(cause) => Self::NativeKernel { pe, kernel: None, cause },
            other => other,
        }
    }

    /// Adds the name of the kernel to an error that came from one.
    #[doc(hidden)]
    pub fn in_kernel(mut self, name: &'static str) -> Self {
        match &mut self {
            Self::Device { first, .. } => first.set_kernel(name),
            Self::NativeKernel { kernel, .. } => *kernel = Some(name),
            _ => {}
        }
        self
    }

    /// Replaces the lines of the runtime's own kernels by `site`, the line of the application that requested the
    /// operation.
    #[doc(hidden)]
    pub fn of_operation(mut self, site: CallSite) -> Self {
        if let Self::Device { first, .. } = &mut self {
            first.set_call_site(site);
        }
        self
    }

    /// Returns how far this error is from the root cause of a job's failure. The error with the smallest distance is
    /// reported.
    ///
    /// - 0: a possible cause.
    /// - 1: another PE failed, in a collective call or at the other end of a QP.
    /// - 2: this PE was merely informed of a lost PE.
    #[doc(hidden)]
    pub fn distance(&self) -> u8 {
        match self {
            error if error.lost_peer().is_some() => 2,
            Self::Operation { cause, .. } => cause.distance(),
            Self::Elsewhere { .. } | Self::ConnectionLost { .. } => 1,
            Self::Device { first, .. } if first.is_flush() => 1,
            _ => 0,
        }
    }

    /// Returns whether a kernel failed only because its job or its PE had already failed.
    #[doc(hidden)]
    pub fn is_aborted(&self) -> bool {
        match self {
            Self::Operation { cause, .. } => cause.is_aborted(),
            Self::Device { first, .. } => first.is_aborted(),
            _ => false,
        }
    }

    /// Returns whether the deadline of a kernel, or of one of its calls, has passed.
    #[doc(hidden)]
    pub fn is_deadline(&self) -> bool {
        match self {
            Self::Operation { cause, .. } => cause.is_deadline(),
            Self::Device { first, .. } => first.is_deadline(),
            Self::KernelLimit { .. } | Self::TestLoop { .. } => true,
            Self::NativeKernel { cause, .. } => matches!(cause, rushmem_native::Error::TimeLimit { .. }),
            _ => false,
        }
    }

    /// Returns the reason that other PEs see when this error makes the PE fail. A lost PE is only named, since they
    /// were told the details themselves.
    #[doc(hidden)]
    pub fn abort_reason(&self) -> String {
        match (self, self.lost_peer()) {
            (_, Some(PeerLost { pe: Some(pe), .. })) => format!("PE {pe} was lost"),
            (_, Some(PeerLost { pe: None, .. })) => "the launcher was lost".into(),
            (Self::Operation { cause, .. }, None) => cause.abort_reason(),
            (error, None) => error.to_string(),
        }
    }

    /// Returns the lost PE or launcher, if this error merely reports it.
    fn lost_peer(&self) -> Option<&PeerLost> {
        match self {
            Self::PeerLost(lost) | Self::Bootstrap(bootstrap::Error::Failed(Failure::Lost(lost))) => {
                Some(lost)
            }
            Self::Operation { cause, .. } => cause.lost_peer(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the cache is broken")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn debug_is_the_text_with_its_causes() {
        let small = Error::HeapFull {
            wanted: 8,
            free: 4,
            largest: 4,
            total: 4,
            max: None,
            site: CallSite::default(),
        };
        assert_eq!(format!("{small:?}"), small.to_string());
        let app = Error::App(Box::new(Outer(std::io::Error::other("no space"))));
        assert_eq!(format!("{app:?}"), "the cache is broken: no space");
        let thread = Error::Thread(std::io::Error::other("no room"));
        assert_eq!(
            format!("{thread:?}"),
            format!("the operating system could not start a thread: no room; {THREAD_ADVICE}")
        );
    }

    #[test]
    fn a_native_panic_names_its_pe_and_kernel() {
        let cause = rushmem_native::Error::Panicked { block: 2, thread: 5, message: "no room".into() };
        let error = Error::Native(cause).on_pe(1);
        assert_eq!(error.to_string(), "PE 1: lane 5 of block 2 panicked: no room");
        let named = error.in_kernel("ring");
        assert_eq!(named.to_string(), "PE 1: kernel ring: lane 5 of block 2 panicked: no room");
    }
}
