#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::ffi::{CStr, c_int};
use std::path::Path;
use std::sync::Arc;

use cudarc::driver::sys;

use crate::error::check;
use crate::{Device, Error};
use rushmem_base::local_processes;

/// The variable that says how many hardware queues a process has on each GPU.
pub(crate) const CONNECTIONS: &str = "CUDA_DEVICE_MAX_CONNECTIONS";

/// Hardware queues of a process that has a GPU to itself, or takes turns on it.
const QUEUES: u32 = 32;
/// What the driver gives a process that does not ask.
pub(crate) const DEFAULT_QUEUES: u32 = 8;
/// Those that all processes have together that MPS serves on one GPU (H100, driver 580: 3 x 32, 6 x 16, 12 x 8 or 48 x 2).
pub(crate) const MPS_QUEUES: u32 = 96;

/// Environment variables that processes with waiting kernels need, read by the driver when it starts.
///
/// - `CUDA_MODULE_LOADING=EAGER`: a kernel that is loaded when it is first launched waits for the kernels that run.
/// - `CUDA_DEVICE_MAX_CONNECTIONS=32`: streams share 8 hardware queues by default, and work behind a waiting kernel in
///   the same queue waits for it, though it be in another stream. Where MPS runs, all processes on a GPU share 96 of them, and
///   each gets its part, if `processes` of this node are spread evenly over its GPUs.
///
/// [`Cuda::load`] sets those that are unset where that is safe; a launcher of processes sets them for its children.
pub fn environment(processes: u32) -> [(&'static str, String); 2] {
    let queues = if mps_runs() { share_of_mps(processes, gpus_of_node()) } else { QUEUES };
    [("CUDA_MODULE_LOADING", "EAGER".into()), (CONNECTIONS, queues.to_string())]
}

fn share_of_mps(processes: u32, gpus: u32) -> u32 {
    let of_one = processes.div_ceil(gpus.max(1)).max(1);
    (MPS_QUEUES / of_one).clamp(1, QUEUES)
}

/// GPUs that the kernel's driver has, whichever of them this process is shown.
fn gpus_of_node() -> u32 {
    std::fs::read_dir("/proc/driver/nvidia/gpus").map_or(0, |gpus| gpus.count() as u32)
}

/// Whether the driver of this process will find the control daemon of MPS.
fn mps_runs() -> bool {
    let folder = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").unwrap_or_else(|| "/tmp/nvidia-mps".into());
    Path::new(&folder).join("control").exists()
}

/// The library under the name that the driver installs it by.
const LIBRARY: &CStr = c"libcuda.so.1";

/// Functions of the driver that this layer calls, by their names in the library.
const SYMBOLS: &[&str] = &[
    "cuCtxGetCurrent",
    "cuCtxGetLimit",
    "cuCtxPopCurrent_v2",
    "cuCtxPushCurrent_v2",
    "cuCtxSetLimit",
    "cuDeviceCanAccessPeer",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetP2PAttribute",
    "cuDeviceGetPCIBusId",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGraphAddKernelNode_v2",
    "cuGraphCreate",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphUpload",
    "cuInit",
    "cuLaunchKernel",
    "cuMemAddressFree",
    "cuMemAddressReserve",
    "cuMemAlloc_v2",
    "cuMemCreate",
    "cuMemExportToShareableHandle",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetAllocationGranularity",
    "cuMemGetAllocationPropertiesFromHandle",
    "cuMemGetHandleForAddressRange",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemHostGetDevicePointer_v2",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemImportFromShareableHandle",
    "cuMemMap",
    "cuMemRelease",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemcpyAsync",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuPointerSetAttribute",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamIsCapturing",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
];

/// The CUDA driver, loaded and initialized.
#[derive(Clone, Copy, Debug)]
pub struct Cuda {
    version: u32,
}

impl Cuda {
    /// Loads the driver (`cuInit`).
    ///
    /// Before that it sets the variables of [`environment`] that are unset, if this process has one thread: with
    /// more, another might be reading the environment, and a warning is logged. So call it early in `main`.
    ///
    /// # Errors
    /// [`Error::NoDriver`] on a machine without a driver, [`Error::OldDriver`], and whatever `cuInit` says.
    pub fn load() -> Result<Self, Error> {
        // SAFETY: loading the driver runs its initializers, which is what is wanted.
        if !unsafe { sys::is_culib_present() } {
            return Err(no_driver());
        }
        let alone = threads() == Some(1);
        for (name, value) in environment(local_processes()) {
            if std::env::var_os(name).is_some() {
                continue;
            }
            if alone {
                // SAFETY: this is the only thread, so nobody else reads or writes the environment.
                unsafe { std::env::set_var(name, value) };
            } else {
                tracing::warn!(
                    "kernels that wait may stall: set {name}={value}. This process has several threads already, \
                     so it cannot be set here"
                );
            }
        }
        for &symbol in SYMBOLS {
            // SAFETY: the library is there, as has just been seen; the symbol is looked up and not used.
            if unsafe { sys::culib().get::<unsafe extern "C" fn()>(symbol.as_bytes()) }.is_err() {
                return Err(Error::OldDriver { symbol });
            }
        }
        let mut version = 0;
        // SAFETY: the functions exist, and the version is written to a live variable.
        unsafe {
            check("cuInit", sys::cuInit(0))?;
            check("cuDriverGetVersion", sys::cuDriverGetVersion(&mut version))?;
        }
        Ok(Self { version: version as u32 })
    }

    /// The newest CUDA version that the driver knows, as (major, minor).
    pub fn version(self) -> (u32, u32) {
        (self.version / 1000, self.version % 1000 / 10)
    }

    /// How many GPUs the driver shows.
    ///
    /// # Errors
    /// What the driver says.
    pub fn device_count(self) -> Result<u32, Error> {
        let mut count: c_int = 0;
        // SAFETY: the driver is initialized, and the count is written to a live variable.
        check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
        Ok(count as u32)
    }

    /// Opens the GPU with this index: retains its primary context, which other users of CUDA in this process share.
    ///
    /// # Errors
    /// [`Error::NoDevice`], or what the driver says.
    pub fn device(self, ordinal: u32) -> Result<Arc<Device>, Error> {
        let count = self.device_count()?;
        if ordinal >= count {
            return Err(Error::NoDevice { ordinal, count });
        }
        Device::open(self, ordinal)
    }
}

/// Threads of this process.
fn threads() -> Option<usize> {
    Some(std::fs::read_dir("/proc/self/task").ok()?.count())
}

fn no_driver() -> Error {
    // SAFETY: the name is a C string. It fails, as loading the driver has just failed.
    let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    let reason = if library.is_null() {
        // SAFETY: returns null or a string that this thread may read until its next call of the loader.
        let said = unsafe { libc::dlerror() };
        match said.is_null() {
            true => "it cannot be loaded".to_owned(),
            // SAFETY: not null, see above.
            false => unsafe { CStr::from_ptr(said) }.to_string_lossy().into_owned(),
        }
    } else {
        "it appeared while it was looked for; try again".to_owned()
    };
    let names = cudarc::get_lib_name_candidates("cuda");
    let last = names.last().cloned().unwrap_or_default();
    let tried = match names.first() {
        Some(first) => format!("{first}, {last} and {} names with version numbers", names.len() - 2),
        None => LIBRARY.to_string_lossy().into_owned(),
    };
    Error::NoDriver { reason, tried }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_driver_the_error_names_what_was_tried_and_what_to_do() {
        // SAFETY: only looks for the library.
        if unsafe { sys::is_culib_present() } {
            eprintln!("SKIPPED without_a_driver_the_error_names_...: this machine has a CUDA driver");
            return;
        }
        let error = Cuda::load().unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::NoDriver { .. }), "{text}");
        assert!(text.contains("libcuda.so, libcuda.so.1 and"), "{text}");
        assert!(text.contains("cannot open shared object file"), "{text}");
        assert!(text.contains("Install the NVIDIA driver"), "{text}");
    }

    #[test]
    fn a_process_that_runs_tests_has_several_threads() {
        assert!(threads().is_some_and(|threads| threads > 1));
    }

    #[test]
    fn processes_that_mps_serves_share_its_queues() {
        let shares = [(1, 1), (3, 1), (4, 1), (8, 1), (48, 1), (200, 1), (8, 8), (9, 8), (4, 0)];
        let queues = shares.map(|(processes, gpus)| share_of_mps(processes, gpus));
        assert_eq!(queues, [32, 32, 24, 12, 2, 1, 32, 32, 24]);
        let (_, queues) = environment(1).into_iter().find(|(name, _)| *name == CONNECTIONS).unwrap();
        assert_eq!(queues, "32");
    }

    #[test]
    fn the_symbols_are_sorted_and_named_once() {
        assert!(SYMBOLS.is_sorted() && SYMBOLS.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
