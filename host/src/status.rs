//! Stable numbers and names of all that can go wrong, for programs and for scripts. `docs/errors.md` is made of this.

use rushmem_device::Error as Code;

use crate::bootstrap::{Error as Bootstrap, Failure};
use crate::{Error, cuda, native};

/// `CUDA_ERROR_OUT_OF_MEMORY`.
const CUDA_OUT_OF_MEMORY: u32 = 2;

/// What kind of failure an [`Error`] is: a number and a name that do not change from version to version, while texts
/// may. The first seven are those of NVSHMEM's `nvshmemx_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum Status {
    /// An argument, a setting or an order of calls is wrong.
    InvalidValue = 1,
    /// The symmetric heap, host memory or GPU memory is full.
    OutOfMemory = 2,
    /// This machine or this build lacks what was asked for.
    NotSupported = 3,
    /// PEs of one job made different collective calls, or were built or set differently.
    Asymmetric = 4,
    /// There is no GPU, or not the one that was asked for.
    NoGpu = 5,
    /// A kernel could not be launched, or was ended from outside.
    LaunchFailed = 6,
    /// A promise of this library was broken.
    Internal = 7,
    /// A kernel met an error; its own code tells which.
    Kernel = 8,
    /// A NIC refused something, or did not do it.
    Nic = 9,
    /// Others did not come in time.
    Timeout = 10,
    /// A PE, or the job's server, was lost.
    PeerLost = 11,
    /// The PEs of a job could not find each other.
    Bootstrap = 12,
    /// The operating system refused something.
    System = 13,
    /// The application's own error, or its panic.
    Application = 14,
}

impl Status {
    /// All of them, in order.
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

    /// Its number; 0 is success and stands for no failure.
    pub fn code(self) -> i32 {
        self as i32
    }

    /// The failure with this number.
    pub fn from_code(code: i32) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.code() == code)
    }

    /// Its name, such as `out_of_memory`.
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

    /// What it means, as a sentence. NVSHMEM: `nvshmemx_status_string`.
    pub fn meaning(self) -> &'static str {
        match self {
            Status::InvalidValue => "An argument, a setting or an order of calls is wrong.",
            Status::OutOfMemory => "The symmetric heap, host memory or GPU memory is full.",
            Status::NotSupported => "This machine or this build lacks what was asked for.",
            Status::Asymmetric => {
                "PEs of one job made different collective calls, or were built or set differently."
            }
            Status::NoGpu => "There is no GPU, or not the one that was asked for.",
            Status::LaunchFailed => "A kernel could not be launched, or was ended from outside.",
            Status::Internal => "A promise of this library was broken.",
            Status::Kernel => "A kernel met an error; its own code tells which.",
            Status::Nic => "A NIC refused something, or did not do it.",
            Status::Timeout => "Others did not come in time.",
            Status::PeerLost => "A PE, or the job's server, was lost.",
            Status::Bootstrap => "The PEs of a job could not find each other.",
            Status::System => "The operating system refused something.",
            Status::Application => "The application's own error, or its panic.",
        }
    }
}

impl Error {
    /// What kind of failure this is.
    pub fn status(&self) -> Status {
        match self {
            Error::Config(_) | Error::Misuse { .. } => Status::InvalidValue,
            Error::HeapFull { .. } | Error::HeapTooLarge { .. } | Error::QueueMemory { .. } => {
                Status::OutOfMemory
            }
            Error::Unavailable { .. } => Status::NotSupported,
            Error::Operation { cause, .. } => cause.status(),
            Error::NotRun { .. } | Error::GridTooLarge { .. } => Status::LaunchFailed,
            Error::Unrecorded | Error::Poisoned { .. } => Status::Kernel,
            Error::Mismatch { .. } | Error::MixedNics { .. } | Error::Elsewhere { .. } => Status::Asymmetric,
            Error::Device { .. } => Status::Kernel,
            Error::Nic(_) | Error::SoftNic(_) | Error::Probe { .. } | Error::NoConnection { .. } => {
                Status::Nic
            }
            Error::Memory(_) => Status::Internal,
            Error::Absent { .. } => Status::Timeout,
            Error::PeerLost(_) => Status::PeerLost,
            Error::Thread(_) => Status::System,
            Error::App(_) | Error::Panic(_) => Status::Application,
            Error::Bootstrap(error) => of_bootstrap(error),
            Error::Cuda(error) => of_cuda(error),
            Error::Native(error) => of_native(error),
        }
    }
}

fn of_bootstrap(error: &Bootstrap) -> Status {
    match error {
        Bootstrap::Failed(Failure::Lost(_)) => Status::PeerLost,
        Bootstrap::Failed(Failure::Missing { .. }) | Bootstrap::Silent { .. } => Status::Timeout,
        Bootstrap::Failed(Failure::Mismatch { .. } | Failure::Left { .. } | Failure::Builds { .. }) => {
            Status::Asymmetric
        }
        Bootstrap::Left { .. }
        | Bootstrap::Watched
        | Bootstrap::NoPe { .. }
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
        | Bootstrap::Stranger { .. }
        | Bootstrap::Listen { .. }
        | Bootstrap::Exchange { .. } => Status::Bootstrap,
        Bootstrap::Interfaces(_) | Bootstrap::Random(_) | Bootstrap::Thread { .. } => Status::System,
    }
}

fn of_cuda(error: &cuda::Error) -> Status {
    match error {
        cuda::Error::NoDriver { .. } | cuda::Error::OldDriver { .. } | cuda::Error::NoDevice { .. } => {
            Status::NoGpu
        }
        cuda::Error::NoPeerAccess { .. } | cuda::Error::MpsFull { .. } => Status::NotSupported,
        cuda::Error::Call(call) if call.code == CUDA_OUT_OF_MEMORY => Status::OutOfMemory,
        cuda::Error::ZeroByte { .. }
        | cuda::Error::NoFunction { .. }
        | cuda::Error::WrongArguments { .. }
        | cuda::Error::NotResident { .. }
        | cuda::Error::WrongStreamGpu { .. }
        | cuda::Error::WrongMemoryGpu { .. }
        | cuda::Error::OutOfRange { .. } => Status::InvalidValue,
        cuda::Error::Call(_) | cuda::Error::Ptx { .. } | cuda::Error::Deadline { .. } => Status::LaunchFailed,
    }
}

fn of_native(error: &native::Error) -> Status {
    match error {
        native::Error::Grid(_) | native::Error::Nested => Status::InvalidValue,
        native::Error::TooManyLanes { .. } | native::Error::Stack { .. } => Status::OutOfMemory,
        native::Error::TimeLimit { .. } => Status::LaunchFailed,
        native::Error::Deadlock(_)
        | native::Error::Divergence { .. }
        | native::Error::WarpMask { .. }
        | native::Error::Panicked { .. } => Status::Kernel,
    }
}

/// What an error of a kernel's call means, as a sentence.
pub fn meaning_of(code: Code) -> &'static str {
    match code {
        Code::Layout => "The kernel and the runtime were built from different layouts.",
        Code::Timeout => "The deadline of a blocking call passed.",
        Code::Aborted => "The job is over: a PE died, or one ended it.",
        Code::Completion => "The NIC completed a work request with an error; its QP is in the error state.",
        Code::Poisoned => "The QP was already in the error state.",
        Code::BadPe => "There is no such PE.",
        Code::OutOfRange => "An address or an index is outside of its object, or of the heap.",
        Code::LengthMismatch => "Two lengths that must be equal are not.",
        Code::NoQp => "No QP of the wanted sharing was set up for this block or index.",
        Code::Busy => "The exclusive QP set is in use.",
        Code::WaitTimeout => "A signal or word was waited for past the deadline.",
        Code::InGroup => "Another thread of the calling group met the error, and knows which.",
        Code::Unconnected => "The host did not connect the QP before the deadline.",
        Code::BadTeam => "The handle names no team, or a destroyed one.",
        Code::TeamMismatch => {
            "Another member of the team is in another collective call, or in the same one with other arguments."
        }
        Code::TeamBusy => "Another group of this PE is in a collective call of the team.",
        Code::TeamFailed => {
            "An earlier collective call of the team failed half way, and left its members out of step."
        }
        Code::Overlap => "Memory that a call reads and writes overlaps in a way that it does not allow.",
        Code::BadReduction => "There is no such reduction, or not for this type.",
        Code::BadStride => "A stride is 0, or shorter than its blocks.",
        Code::BadLock => "A lock was cleared by a PE that does not hold it, or set by one that does.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_complete_and_differ() {
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
