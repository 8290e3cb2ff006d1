#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::ffi::{CStr, c_char};
use std::fmt;
use std::ptr;
use std::time::Duration;

use cudarc::driver::sys::{self, CUresult};

use crate::load::{CONNECTIONS, MPS_QUEUES};

/// Why something about CUDA failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The driver library could not be loaded.
    #[error(
        "no CUDA driver: {reason} (tried {tried}). Install the NVIDIA driver of this machine's GPU, or name the \
         folder of libcuda.so.1 in LD_LIBRARY_PATH; without a GPU, kernels run natively"
    )]
    NoDriver {
        /// What the loader said.
        reason: String,
        /// The names that were tried.
        tried: String,
    },
    /// The driver is too old to have a function that is needed.
    #[error(
        "the CUDA driver is too old: its library lacks {symbol}. Install a driver for CUDA 12.0 or newer"
    )]
    OldDriver {
        /// The function.
        symbol: &'static str,
    },
    /// There is no such GPU.
    #[error(
        "there is no GPU {ordinal}: the CUDA driver shows {count} (CUDA_VISIBLE_DEVICES decides which it shows)"
    )]
    NoDevice {
        /// The index asked for.
        ordinal: u32,
        /// GPUs that there are.
        count: u32,
    },
    /// MPS serves no more processes on the GPU.
    #[error(
        "GPU {ordinal} takes no further process by MPS ({cause}): all on a GPU share {MPS_QUEUES} hardware queues, of which this one asks \
         for {queues}; set {CONNECTIONS} to {MPS_QUEUES} divided by their number"
    )]
    MpsFull {
        /// The GPU.
        ordinal: u32,
        /// How many queues this process wants.
        queues: u32,
        /// The call's own error.
        cause: CallError,
    },
    /// Two GPUs that do not reach each other's memory.
    #[error(
        "GPU {gpu} cannot reach the memory of GPU {other}: `nvidia-smi topo -p2p r` tells which GPUs can; choose others \
         with RUSHMEM_GPUS"
    )]
    NoPeer {
        /// The one whose kernels are to reach it.
        gpu: u32,
        /// The one whose memory it is.
        other: u32,
    },
    /// A call of the driver failed.
    #[error("{0}")]
    Call(CallError),
    /// PTX was refused. The log is complete.
    #[error("the CUDA driver refuses the PTX of {module}: {cause}\n{log}")]
    Ptx {
        /// The name given with the PTX.
        module: String,
        /// The call's own error.
        cause: CallError,
        /// What the compiler in the driver said.
        log: String,
    },
    /// A name with a zero byte, or PTX with one inside.
    #[error("{what} holds a zero byte")]
    ZeroByte {
        /// What was given.
        what: String,
    },
    /// The module has no such kernel.
    #[error("{module} has no kernel named {name}")]
    NoFunction {
        /// The module.
        module: String,
        /// The name asked for.
        name: String,
    },
    /// A kernel was launched with arguments that are not its own.
    #[error("kernel {kernel} takes parameters of {expected:?} bytes, but was given {given:?}")]
    Arguments {
        /// The kernel.
        kernel: String,
        /// Sizes of its parameters.
        expected: Vec<usize>,
        /// Sizes of the arguments.
        given: Vec<usize>,
    },
    /// A launch is larger than what can run at once.
    #[error(
        "kernel {kernel} waits, so all of its {blocks} blocks must run at once, but the GPU has room for {room} blocks \
         of {threads} threads{}. Launch fewer blocks or smaller ones", sharing(.sharers)
    )]
    NotResident {
        /// The kernel.
        kernel: String,
        /// Blocks asked for.
        blocks: u32,
        /// Threads in each.
        threads: u32,
        /// Blocks that there is room for.
        room: u32,
        /// Launches that share the GPU.
        sharers: u32,
    },
    /// A stream of another GPU, or of a context that is not its primary one.
    #[error(
        "the stream belongs to GPU {stream}, or not to its primary context, and the PE to GPU {pe}; make it from \
         cudarc's CudaContext::new({pe})"
    )]
    OtherGpu {
        /// The stream's GPU.
        stream: u32,
        /// The PE's GPU.
        pe: u32,
    },
    /// An address that is not one of the GPU's memory.
    #[error("the memory at {address:#x} is that of GPU {gpu}, and must be that of GPU {wanted}")]
    Elsewhere {
        /// The address.
        address: u64,
        /// The GPU that has it.
        gpu: i32,
        /// The GPU that was meant.
        wanted: u32,
    },
    /// An access outside of a buffer.
    #[error("{len} bytes at offset {offset} leave a buffer of {size} bytes")]
    Range {
        /// First byte of the access.
        offset: usize,
        /// Its length.
        len: usize,
        /// The buffer's length.
        size: usize,
    },
    /// A wait passed its deadline. What was waited for goes on.
    #[error("{what} did not end within {limit:?}")]
    Deadline {
        /// What was waited for.
        what: &'static str,
        /// How long.
        limit: Duration,
    },
}

fn sharing(sharers: &u32) -> String {
    match sharers {
        0 | 1 => String::new(),
        n => format!(" for each of {n} launches that share it"),
    }
}

/// A failed call of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    /// The function of the driver API.
    pub call: &'static str,
    /// What it was called for, where that helps.
    pub about: String,
    /// The `CUresult`.
    pub code: u32,
    /// The driver's name and text for it.
    pub text: String,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, about, code, text } = self;
        let space = if about.is_empty() { "" } else { " " };
        write!(f, "{call}{space}{about} failed: {text} ({code})")?;
        if sticky(*code) {
            write!(f, ". The GPU's context is lost: every later call of this process fails in the same way")?;
        }
        Ok(())
    }
}

impl Error {
    /// The driver's code, if the error came from a call of it.
    pub fn code(&self) -> Option<u32> {
        match self {
            Error::Call(call) | Error::Ptx { cause: call, .. } => Some(call.code),
            _ => None,
        }
    }

    /// Whether the context is lost: a kernel has done something from which only a new process recovers.
    pub fn is_sticky(&self) -> bool {
        self.code().is_some_and(sticky)
    }
}

fn sticky(code: u32) -> bool {
    use CUresult::*;
    let lost = [
        CUDA_ERROR_ECC_UNCORRECTABLE,
        CUDA_ERROR_NVLINK_UNCORRECTABLE,
        CUDA_ERROR_ILLEGAL_ADDRESS,
        CUDA_ERROR_LAUNCH_TIMEOUT,
        CUDA_ERROR_CONTEXT_IS_DESTROYED,
        CUDA_ERROR_ASSERT,
        CUDA_ERROR_HARDWARE_STACK_ERROR,
        CUDA_ERROR_ILLEGAL_INSTRUCTION,
        CUDA_ERROR_MISALIGNED_ADDRESS,
        CUDA_ERROR_INVALID_ADDRESS_SPACE,
        CUDA_ERROR_INVALID_PC,
        CUDA_ERROR_LAUNCH_FAILED,
    ];
    lost.iter().any(|known| *known as u32 == code)
}

/// The result of a call as ours.
pub(crate) fn check(call: &'static str, result: CUresult) -> Result<(), Error> {
    check_about(call, result, String::new)
}

/// As [`check`], with words on what the call was for.
pub(crate) fn check_about(
    call: &'static str,
    result: CUresult,
    about: impl FnOnce() -> String,
) -> Result<(), Error> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        failed => Err(Error::Call(call_error(call, failed, about()))),
    }
}

pub(crate) fn call_error(call: &'static str, result: CUresult, about: String) -> CallError {
    CallError { call, about, code: result as u32, text: text(result) }
}

/// The driver's name and text for a code. Only called with the driver loaded: it gave the code.
fn text(result: CUresult) -> String {
    let (mut name, mut text) = (ptr::null(), ptr::null());
    // SAFETY: both calls only write the pointer, to a static string or null.
    unsafe {
        let _ = sys::cuGetErrorName(result, &mut name);
        let _ = sys::cuGetErrorString(result, &mut text);
    }
    let string = |pointer: *const c_char| {
        if pointer.is_null() {
            return "unknown error".to_owned();
        }
        // SAFETY: not null, so the driver has set it to a string of its own that is never freed.
        unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
    };
    format!("{}: {}", string(name), string(text))
}

/// For destructors: what they cannot return they log.
pub(crate) fn log_drop(what: &'static str, result: Result<(), Error>) {
    match result {
        // The process is ending and the driver has gone first; it has freed everything.
        Err(error) if error.code() == Some(CUresult::CUDA_ERROR_DEINITIALIZED as u32) => {}
        Err(error) => tracing::warn!(%error, "{what} could not be freed"),
        Ok(()) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(code: CUresult, text: &str) -> CallError {
        CallError { call: "cuStreamQuery", about: String::new(), code: code as u32, text: text.to_owned() }
    }

    #[test]
    fn a_failed_call_is_told_in_one_line() {
        let mut error = call(CUresult::CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY: out of memory");
        error.call = "cuMemAlloc";
        error.about = "of 12 bytes".to_owned();
        assert_eq!(
            Error::Call(error).to_string(),
            "cuMemAlloc of 12 bytes failed: CUDA_ERROR_OUT_OF_MEMORY: out of memory (2)"
        );
    }

    #[test]
    fn errors_that_lose_the_context_say_so() {
        let lost = Error::Call(call(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, "X: x"));
        assert!(lost.is_sticky());
        assert_eq!(
            lost.to_string(),
            "cuStreamQuery failed: X: x (700). The GPU's context is lost: every later call of this process fails in \
             the same way"
        );
        assert!(!Error::Call(call(CUresult::CUDA_ERROR_INVALID_VALUE, "Y: y")).is_sticky());
    }
}
