//! Errors of the CUDA layer, and the conversion of driver results to errors.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::ffi::{CStr, c_char};
use std::fmt;
use std::ptr;
use std::time::Duration;

use cudarc::driver::sys::{self, CUresult};

use crate::environment::{MAX_CONNECTIONS, MPS_QUEUES};

/// A compute capability: major and minor version.
pub type Capability = (u32, u32);

/// Errors of the CUDA layer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The driver library could not be loaded.
    #[error(
        "no CUDA driver: {reason} (tried {tried}). Install the NVIDIA driver of this machine's GPU, or add the \
         folder of libcuda.so.1 to LD_LIBRARY_PATH. To run without a GPU, set RUSHMEM_DEVICE=native"
    )]
    NoDriver {
        /// Message of the dynamic loader about the driver's library.
        reason: String,
        /// File names tried for the driver's library, as text.
        tried: String,
    },
    /// The driver is too old: it lacks a function that this crate calls.
    #[error(
        "the CUDA driver is too old: its library lacks {symbol}. Install a driver for CUDA 12.0 or newer"
    )]
    OldDriver {
        /// Name of the missing function.
        symbol: &'static str,
    },
    /// The driver shows no GPU with the requested ordinal.
    #[error(
        "there is no GPU {ordinal}: the CUDA driver shows {count}. Choose a smaller number, or check \
         CUDA_VISIBLE_DEVICES, which selects the GPUs that the driver shows"
    )]
    NoDevice {
        /// Requested ordinal.
        ordinal: u32,
        /// Number of GPUs that the driver shows.
        count: u32,
    },
    /// MPS accepts no further process on the GPU.
    #[error(
        "MPS accepts no further process on GPU {ordinal} ({cause}). All processes on a GPU share {MPS_QUEUES} hardware \
         queues, and this process requests {queues}. Set {MAX_CONNECTIONS} to {MPS_QUEUES} divided by the number of \
         processes"
    )]
    MpsFull {
        /// Ordinal of the GPU that MPS refuses.
        ordinal: u32,
        /// Number of hardware queues that this process requests.
        queues: u32,
        /// Driver call that MPS refused.
        cause: CallError,
    },
    /// A page of the host memory is already registered.
    #[error(
        "the {len} bytes of host memory at {start:#x} have a page that is registered already, and a GPU maps whole pages. \
         Give each buffer pages of its own, as `rushmem::Pages` does"
    )]
    SharedPage {
        /// Address of the first page to register.
        start: usize,
        /// Total length of the pages to register, in bytes.
        len: usize,
    },
    /// A GPU cannot access the memory of another GPU.
    #[error(
        "GPU {gpu} cannot access the memory of GPU {other}. `nvidia-smi topo -p2p r` lists the GPUs that can; choose \
         them with RUSHMEM_GPUS"
    )]
    NoPeerAccess {
        /// GPU that accesses the memory.
        gpu: u32,
        /// GPU that owns the memory.
        other: u32,
    },
    /// Other processes cannot map GPU memory of the application.
    #[error("other processes cannot map the GPU memory at {address:#x}, because {why}")]
    NotShareable {
        /// Address of the memory.
        address: u64,
        /// Property of its allocation that prevents it.
        why: &'static str,
    },
    /// A driver call failed.
    #[error("{0}")]
    Call(CallError),
    /// The PTX targets newer GPUs than this one.
    #[error(
        "the kernels of {module} are for GPUs of {} and newer, but this GPU is {}. Use a newer GPU, build the kernels \
         for older ones (rushmem_ptx::Builder::arch), or set RUSHMEM_DEVICE=native", arch(.wanted), arch(.found)
    )]
    OldGpu {
        /// Name of the module that needs a newer GPU.
        module: String,
        /// Oldest compute capability that the PTX supports.
        wanted: Capability,
        /// Compute capability of the GPU in use.
        found: Capability,
    },
    /// The driver rejected PTX. The log is complete.
    #[error("the CUDA driver rejects the PTX of {module}: {cause}\n{log}")]
    Ptx {
        /// Name of the module with the rejected PTX.
        module: String,
        /// Driver call that rejected the PTX.
        cause: CallError,
        /// Messages of the driver's compiler.
        log: String,
    },
    /// A name or a PTX text contains a zero byte.
    #[error("{text} contains a zero byte")]
    ZeroByte {
        /// Description of the text that contains the zero byte.
        text: String,
    },
    /// The module has no kernel of the requested name.
    #[error("{module} has no kernel named {name}")]
    NoFunction {
        /// Name of the module that lacks the kernel.
        module: String,
        /// Name of the requested kernel.
        name: String,
    },
    /// The arguments of a launch do not match the parameters of the kernel.
    #[error(
        "kernel {kernel} has parameters of {expected:?} bytes, but the launch passes arguments of {given:?} bytes"
    )]
    WrongArguments {
        /// Name of the launched kernel.
        kernel: String,
        /// Sizes of the kernel's parameters, in bytes.
        expected: Vec<usize>,
        /// Sizes of the launch's arguments, in bytes.
        given: Vec<usize>,
    },
    /// The blocks of a launch cannot all be resident together.
    #[error(
        "all {blocks} blocks of kernel {kernel} must run at once, but the GPU has room for {room} blocks of {threads} \
         threads{}. Launch fewer or smaller blocks", sharing(.sharers)
    )]
    NotResident {
        /// Name of the kernel with too many blocks.
        kernel: String,
        /// Number of blocks of the launch.
        blocks: u32,
        /// Number of threads per block.
        threads: u32,
        /// Number of blocks that can be resident on the GPU together.
        room: u32,
        /// Number of launches that share the GPU.
        sharers: u32,
    },
    /// A stream belongs to another GPU, or to a context that is not the primary one.
    #[error(
        "the stream belongs to GPU {stream} or to a non-primary context, but the PE uses the primary context of GPU \
         {pe}. Create the stream from cudarc's CudaContext::new({pe})"
    )]
    WrongStreamGpu {
        /// Ordinal of the GPU that the stream belongs to.
        stream: u32,
        /// Ordinal of the GPU that the PE uses.
        pe: u32,
    },
    /// An address belongs to the memory of another GPU.
    #[error("the memory at {address:#x} belongs to GPU {gpu}, but must belong to GPU {wanted}")]
    WrongMemoryGpu {
        /// Address in the memory of the other GPU.
        address: u64,
        /// Index of the GPU that owns the memory.
        gpu: i32,
        /// Index of the GPU that must own it.
        wanted: u32,
    },
    /// An access exceeds the bounds of a buffer.
    #[error("an access of {len} bytes at offset {offset} exceeds the buffer of {size} bytes")]
    OutOfRange {
        /// Offset of the access in bytes.
        offset: usize,
        /// Length of the access in bytes.
        len: usize,
        /// Length of the buffer in bytes.
        size: usize,
    },
    /// Work on the GPU did not complete before the deadline. It continues.
    #[error("{work} did not end within {limit:?}")]
    Deadline {
        /// Description of the work, as part of a sentence.
        work: &'static str,
        /// How long the caller waited for the work.
        limit: Duration,
    },
}

/// Formats a compute capability: `sm_75` for `(7, 5)`.
fn arch((major, minor): &Capability) -> String {
    format!("sm_{major}{minor}")
}

fn sharing(sharers: &u32) -> String {
    match sharers {
        0 | 1 => String::new(),
        n => format!(" for each of the {n} launches that share it"),
    }
}

/// A failed call of the CUDA driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    /// Name of the driver function that failed.
    pub call: &'static str,
    /// Arguments or purpose of the call, in words. May be empty.
    pub detail: String,
    /// The `CUresult` that the driver returned, as a number.
    pub code: u32,
    /// Name and description of the code, from the driver.
    pub text: String,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, detail, code, text } = self;
        let space = if detail.is_empty() { "" } else { " " };
        write!(f, "{call}{space}{detail} failed: {text} ({code})")?;
        if loses_context(*code) {
            let remedy = "every later call of this process fails in the same way. Start a new process";
            write!(f, ". The GPU's context is lost: {remedy}")?;
        }
        Ok(())
    }
}

impl Error {
    /// Returns the `CUresult` of the driver call that caused the error, if any.
    pub fn code(&self) -> Option<u32> {
        match self {
            Error::Call(call) | Error::Ptx { cause: call, .. } => Some(call.code),
            _ => None,
        }
    }

    /// Returns whether the context of the GPU is lost, for example after a fault in a kernel. Only a new process can
    /// recover.
    pub fn is_sticky(&self) -> bool {
        self.code().is_some_and(loses_context)
    }
}

/// Returns whether `code` is a `CUresult` after which the context is lost, so only a new process can use the GPU.
fn loses_context(code: u32) -> bool {
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

/// Converts the result of the driver function `call`.
pub(crate) fn check(call: &'static str, result: CUresult) -> Result<(), Error> {
    check_with(call, result, String::new)
}

/// Converts the result of the driver function `call`. `detail` describes the arguments or the purpose of the call, for
/// the error message.
pub(crate) fn check_with(
    call: &'static str,
    result: CUresult,
    detail: impl FnOnce() -> String,
) -> Result<(), Error> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        failed => Err(Error::Call(call_error(call, failed, detail()))),
    }
}

pub(crate) fn call_error(call: &'static str, result: CUresult, detail: String) -> CallError {
    CallError { call, detail, code: result as u32, text: text(result) }
}

/// Returns the driver's name and description of a result code. The driver must be loaded.
fn text(result: CUresult) -> String {
    let (mut name, mut text) = (ptr::null(), ptr::null());
    // SAFETY: each call only sets a live pointer variable, to a static string or to null.
    unsafe {
        let _ = sys::cuGetErrorName(result, &mut name);
        let _ = sys::cuGetErrorString(result, &mut text);
    }
    let string = |pointer: *const c_char| {
        if pointer.is_null() {
            return "unknown error".to_owned();
        }
        // SAFETY: not null, so the driver has set it to a static string, which it never frees.
        unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
    };
    format!("{}: {}", string(name), string(text))
}

/// Logs the error of a destructor, which cannot return it. `object` describes what was to be freed.
pub(crate) fn log_drop(object: &'static str, result: Result<(), Error>) {
    match result {
        // The process is exiting. The driver has already shut down and freed everything.
        Err(error) if error.code() == Some(CUresult::CUDA_ERROR_DEINITIALIZED as u32) => {}
        Err(error) => tracing::warn!(%error, "could not free {object}"),
        Ok(()) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(code: CUresult, text: &str) -> CallError {
        CallError { call: "cuStreamQuery", detail: String::new(), code: code as u32, text: text.to_owned() }
    }

    #[test]
    fn formats_a_failed_call_in_one_line() {
        let mut error = call(CUresult::CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY: out of memory");
        error.call = "cuMemAlloc";
        error.detail = "of 12 bytes".to_owned();
        assert_eq!(
            Error::Call(error).to_string(),
            "cuMemAlloc of 12 bytes failed: CUDA_ERROR_OUT_OF_MEMORY: out of memory (2)"
        );
    }

    #[test]
    fn reports_a_lost_context() {
        let lost = Error::Call(call(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, "X: x"));
        assert!(lost.is_sticky());
        assert_eq!(
            lost.to_string(),
            "cuStreamQuery failed: X: x (700). The GPU's context is lost: every later call of this process fails in \
             the same way. Start a new process"
        );
        assert!(!Error::Call(call(CUresult::CUDA_ERROR_INVALID_VALUE, "Y: y")).is_sticky());
    }
}
