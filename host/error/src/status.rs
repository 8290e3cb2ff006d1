//! Stable codes and names of all errors, for programs and scripts. `docs/errors.md` is generated from this file.

use rushmem_bootstrap::{Error as Bootstrap, Failure};
use rushmem_cuda as cuda;
use rushmem_device::Error as Code;
use rushmem_native as native;

use crate::Error;

/// `CUDA_ERROR_OUT_OF_MEMORY`.
const CUDA_OUT_OF_MEMORY: u32 = 2;

/// A class of [`Error`]s with a stable code and name. Messages, by contrast, may change between versions.
///
/// Codes 1 to 7 have the same meaning as in NVSHMEM's `nvshmemx_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum Status {
    /// An argument, a setting or the order of calls is invalid.
    InvalidValue = 1,
    /// The symmetric heap, host memory or GPU memory is full.
    OutOfMemory = 2,
    /// This machine or this build lacks a requested feature.
    NotSupported = 3,
    /// The PEs made different collective calls, or differ in their builds or settings.
    Asymmetric = 4,
    /// There is no GPU, or not the requested one.
    NoGpu = 5,
    /// A kernel could not be launched, or was terminated from outside.
    LaunchFailed = 6,
    /// This library broke one of its own guarantees.
    Internal = 7,
    /// A call in a kernel failed. The kernel's error code says why.
    Kernel = 8,
    /// A NIC refused a request, or did not complete it.
    Nic = 9,
    /// Other PEs did not arrive in time.
    Timeout = 10,
    /// A PE or the job's server was lost.
    PeerLost = 11,
    /// The PEs of a job could not find each other.
    Bootstrap = 12,
    /// The operating system refused a request.
    System = 13,
    /// The application returned an error, or panicked.
    Application = 14,
}

impl Status {
    /// All statuses, sorted by code.
    pub const ALL: [Status; 14] = [
        Status::InvalidValue,
        Status::OutOfMemory,
        Status::NotSupported,
        Status::Asymmetric,
        Status::NoGpu,
        Status::LaunchFailed,
        Status::Internal,
        Status::Kernel,
        Status::Nic,
        Status::Timeout,
        Status::PeerLost,
        Status::Bootstrap,
        Status::System,
        Status::Application,
    ];

    /// Returns the code of the status, from 1. Code 0 means success.
    pub fn code(self) -> i32 {
        self as i32
    }

    /// Returns the status with this code, if there is one.
    pub fn from_code(code: i32) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.code() == code)
    }

    /// Returns the name of the status, such as `out_of_memory`.
    pub fn name(self) -> &'static str {
        match self {
            Status::InvalidValue => "invalid_value",
            Status::OutOfMemory => "out_of_memory",
            Status::NotSupported => "not_supported",
            Status::Asymmetric => "asymmetric",
            Status::NoGpu => "no_gpu",
            Status::LaunchFailed => "launch_failed",
            Status::Internal => "internal",
            Status::Kernel => "kernel",
            Status::Nic => "nic",
            Status::Timeout => "timeout",
            Status::PeerLost => "peer_lost",
            Status::Bootstrap => "bootstrap",
            Status::System => "system",
            Status::Application => "application",
        }
    }

    /// Returns a sentence that explains the status. NVSHMEM: `nvshmemx_status_string`.
    pub fn meaning(self) -> &'static str {
        match self {
            Status::InvalidValue => "An argument, a setting or the order of calls is invalid.",
            Status::OutOfMemory => "The symmetric heap, host memory or GPU memory is full.",
            Status::NotSupported => "This machine or this build lacks a requested feature.",
            Status::Asymmetric => {
                "The PEs made different collective calls, or differ in their builds or settings."
            }
            Status::NoGpu => "There is no GPU, or not the requested one.",
            Status::LaunchFailed => "A kernel could not be launched, or was ended from outside.",
            Status::Internal => "This library broke one of its own guarantees.",
            Status::Kernel => "A call in a kernel failed; the kernel's error code gives the reason.",
            Status::Nic => "A NIC refused a request, or did not complete it.",
            Status::Timeout => "Other PEs did not come in time.",
            Status::PeerLost => "A PE or the job's server was lost.",
            Status::Bootstrap => "The PEs of a job could not find each other.",
            Status::System => "The operating system refused a request.",
            Status::Application => "The application returned an error, or panicked.",
        }
    }
}

impl Error {
    /// Returns the class of this error, with a stable code and name.
    ///
    /// ```no_run
    /// # use rushmem_error as rushmem;
    /// # fn run() -> Result<(), rushmem::Error> { Ok(()) }
    /// if let Err(error) = run() {
    ///     eprintln!("{error}");
    ///     std::process::exit(error.status().code());
    /// }
    /// ```
    pub fn status(&self) -> Status {
        match self {
            Error::Config(_) | Error::Misuse { .. } => Status::InvalidValue,
            Error::Sanitizer(_) => Status::Application,
            Error::HeapFull { .. }
            | Error::HeapTooLarge { .. }
            | Error::HostMemory { .. }
            | Error::QueueMemory { .. } => Status::OutOfMemory,
            Error::Unavailable { .. } => Status::NotSupported,
            Error::Operation { cause, .. } => cause.status(),
            Error::NotRun { .. } | Error::GridTooLarge { .. } => Status::LaunchFailed,
            Error::Unrecorded | Error::Poisoned { .. } => Status::Kernel,
            Error::Mismatch { .. } | Error::MixedNics { .. } | Error::Elsewhere { .. } => Status::Asymmetric,
            Error::Device { .. } => Status::Kernel,
            Error::Nic(_)
            | Error::SoftNic(_)
            | Error::Probe { .. }
            | Error::NoConnection { .. }
            | Error::NicFailed { .. }
            | Error::ConnectionLost { .. } => Status::Nic,
            Error::Memory(_) => Status::Internal,
            Error::Absent { .. } | Error::KernelLimit { .. } | Error::TestLoop { .. } => Status::Timeout,
            Error::PeerLost(_) => Status::PeerLost,
            Error::Thread(_) | Error::File { .. } | Error::Checkpoint { .. } => Status::System,
            Error::App(_) | Error::Panic(_) => Status::Application,
            Error::Bootstrap(error) => bootstrap_status(error),
            Error::Cuda(error) => cuda_status(error),
            Error::Native(error) | Error::NativeKernel { cause: error, .. } => native_status(error),
        }
    }
}

fn bootstrap_status(error: &Bootstrap) -> Status {
    match error {
        Bootstrap::Failed(Failure::Lost(_)) => Status::PeerLost,
        Bootstrap::Failed(Failure::Missing { .. }) | Bootstrap::NoAnswer { .. } => Status::Timeout,
        Bootstrap::Failed(Failure::Mismatch { .. } | Failure::Left { .. } | Failure::Builds { .. }) => {
            Status::Asymmetric
        }
        Bootstrap::Left { .. }
        | Bootstrap::CallbackExists
        | Bootstrap::NoPe { .. }
        | Bootstrap::TooManyPes { .. }
        | Bootstrap::TooLarge { .. }
        | Bootstrap::Launch { .. }
        | Bootstrap::NotStarted { .. }
        | Bootstrap::Id { .. }
        | Bootstrap::Interface { .. }
        | Bootstrap::Loopback { .. }
        | Bootstrap::Token
        | Bootstrap::Config(_) => Status::InvalidValue,
        Bootstrap::Connect { .. }
        | Bootstrap::Closed { .. }
        | Bootstrap::Refused { .. }
        | Bootstrap::NotLauncher { .. }
        | Bootstrap::Listen { .. }
        | Bootstrap::Exchange { .. } => Status::Bootstrap,
        Bootstrap::Interfaces(_) | Bootstrap::Random(_) | Bootstrap::Thread { .. } => Status::System,
    }
}

fn cuda_status(error: &cuda::Error) -> Status {
    match error {
        cuda::Error::NoDriver { .. } | cuda::Error::OldDriver { .. } | cuda::Error::NoDevice { .. } => {
            Status::NoGpu
        }
        cuda::Error::NoPeerAccess { .. }
        | cuda::Error::NotShareable { .. }
        | cuda::Error::MpsFull { .. }
        | cuda::Error::OldGpu { .. } => Status::NotSupported,
        cuda::Error::Call(call) if call.code == CUDA_OUT_OF_MEMORY => Status::OutOfMemory,
        cuda::Error::ZeroByte { .. }
        | cuda::Error::NoFunction { .. }
        | cuda::Error::WrongArguments { .. }
        | cuda::Error::NotResident { .. }
        | cuda::Error::WrongStreamGpu { .. }
        | cuda::Error::WrongMemoryGpu { .. }
        | cuda::Error::SharedPage { .. }
        | cuda::Error::OutOfRange { .. } => Status::InvalidValue,
        cuda::Error::Call(_) | cuda::Error::Ptx { .. } | cuda::Error::Deadline { .. } => Status::LaunchFailed,
    }
}

fn native_status(error: &native::Error) -> Status {
    match error {
        native::Error::LaunchConfig(_) | native::Error::Nested => Status::InvalidValue,
        native::Error::TooManyLanes { .. } | native::Error::Stack { .. } => Status::OutOfMemory,
        native::Error::TimeLimit { .. } => Status::LaunchFailed,
        native::Error::Deadlock(_)
        | native::Error::Divergence { .. }
        | native::Error::WarpMask { .. }
        | native::Error::Panicked { .. } => Status::Kernel,
    }
}

/// Returns a sentence that explains an error of a call in a kernel.
pub fn meaning_of(code: Code) -> &'static str {
    match code {
        Code::Layout => "The kernel and the runtime were built from different layouts.",
        Code::Timeout => "The deadline of a blocking call passed.",
        Code::Aborted => "The job has ended: a PE died or ended it.",
        Code::Completion => "The NIC completed a work request with an error; its QP is in the error state.",
        Code::Poisoned => "The QP was already in the error state.",
        Code::BadPe => "The job has no PE with this number.",
        Code::OutOfRange => "An address or an index is outside its object or the heap.",
        Code::LengthMismatch => "Two lengths that must be equal are not.",
        Code::NoQp => "The job has no QP of this sharing for this block or index.",
        Code::Busy => "The exclusive QP set is in use.",
        Code::WaitTimeout => "The deadline of a wait for a signal, a word or a team passed.",
        Code::InGroup => "Another thread of the calling group met the error and recorded it.",
        Code::Unconnected => "The host did not connect the QP before the deadline.",
        Code::BadTeam => "The handle names no team, or a destroyed one.",
        Code::TeamMismatch => {
            "Another member of the team made a different collective call, or gave different arguments."
        }
        Code::TeamBusy => "Another group of this PE is in a collective call of the team.",
        Code::TeamFailed => {
            "An earlier collective call of the team failed half way, and left its members out of step."
        }
        Code::Overlap => "The source and the destination of a call overlap in a way that it does not allow.",
        Code::BadReduction => "The reduction does not exist, or not for this type.",
        Code::BadStride => "A stride is 0, or shorter than its blocks.",
        Code::BadLock => "A PE cleared a lock that it does not hold, or set a lock that it holds.",
        Code::BadConstant => {
            "A number that selects a comparison or a signal operation is none of the call's constants."
        }
        Code::PeerLost => "The peer, or a member of the team, was lost. Only in jobs with live membership.",
        Code::ResultLost => {
            "A fetching atomic was executed, but its result was lost with the connection. Only in jobs with failover."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_complete_and_unique() {
        for (code, status) in (1..).zip(Status::ALL) {
            assert_eq!((status.code(), Status::from_code(code)), (code, Some(status)));
            assert!(status.meaning().ends_with('.'));
            assert!(status.name().chars().all(|c| c.is_ascii_lowercase() || c == '_'));
        }
        let mut names = Status::ALL.map(Status::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Status::ALL.len());
        assert_eq!(Status::from_code(0), None);
        assert_eq!(Status::from_code(Status::ALL.len() as i32 + 1), None);
    }
}
