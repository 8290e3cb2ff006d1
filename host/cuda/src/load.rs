//! The CUDA driver: loads its library, checks that its functions exist and initializes it.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::NonNull;

use cudarc::driver::sys;

use crate::Error;
use crate::environment::environment;
use crate::error::check;
use rushmem_base::local_processes;

/// File names of the driver's library: its soname, and the name that linkers use.
const LIBRARIES: [&CStr; 2] = [c"libcuda.so.1", c"libcuda.so"];

/// Driver functions without which loading fails. Newer functions are checked by version where they are called.
const SYMBOLS: &[&str] = &[
    "cuCtxEnablePeerAccess",
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
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
    "cuGraphAddDependencies_v2",
    "cuGraphAddKernelNode_v2",
    "cuGraphCreate",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphUpload",
    "cuInit",
    "cuIpcCloseMemHandle",
    "cuIpcGetMemHandle",
    "cuIpcOpenMemHandle_v2",
    "cuLaunchKernelEx",
    "cuMemAddressFree",
    "cuMemAddressReserve",
    "cuMemAlloc_v2",
    "cuMemCreate",
    "cuMemExportToShareableHandle",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetAddressRange_v2",
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
    "cuMemPoolSetAccess",
    "cuMemRelease",
    "cuMemRetainAllocationHandle",
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
    "cuPointerGetAttribute",
    "cuPointerSetAttribute",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamGetCtx",
    "cuStreamIsCapturing",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
];

/// Handle of the CUDA driver, which is loaded and initialized.
#[derive(Clone, Copy, Debug)]
pub struct Cuda {
    version: u32,
}

impl Cuda {
    /// Loads and initializes the driver (`cuInit`).
    ///
    /// Before that, it sets those variables of [`environment`] that are unset. This is safe only while the process has
    /// a single thread, since another thread might read the environment. With several threads, it logs a warning
    /// instead. So call it early in `main`.
    ///
    /// # Errors
    /// - [`Error::NoDriver`] if the machine has no driver
    /// - [`Error::OldDriver`] if the driver lacks a function that this crate calls
    /// - [`Error::Call`] if the driver cannot be initialized
    pub fn load() -> Result<Self, Error> {
        let library = Library::open()?;
        let single_threaded = threads() == Some(1);
        for (name, value) in environment(local_processes(), None) {
            if std::env::var_os(name).is_some() {
                continue;
            }
            if single_threaded {
                // SAFETY: this is the only thread, so no other thread reads or writes the environment.
                unsafe { std::env::set_var(name, value) };
            } else {
                tracing::warn!(
                    "kernels that wait may stall, because {name} is unset. Set {name}={value}: this process \
                     already has several threads, so Rushmem cannot set it"
                );
            }
        }
        for &symbol in SYMBOLS {
            if !library.has(symbol) {
                return Err(Error::OldDriver { symbol });
            }
        }
        let mut version = 0;
        // SAFETY: the functions exist. The version is written to a live variable.
        unsafe {
            check("cuInit", sys::cuInit(0))?;
            check("cuDriverGetVersion", sys::cuDriverGetVersion(&mut version))?;
        }
        Ok(Self { version: version as u32 })
    }

    /// Returns the newest CUDA version that the driver supports, as (major, minor).
    pub fn version(self) -> (u32, u32) {
        (self.version / 1000, self.version % 1000 / 10)
    }

    /// Returns the number of GPUs that the driver shows.
    ///
    /// # Errors
    /// - [`Error::Call`] if the driver refuses
    pub fn device_count(self) -> Result<u32, Error> {
        let mut count: c_int = 0;
        // SAFETY: the driver is initialized. The count is written to a live variable.
        check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
        Ok(count as u32)
    }

    /// Returns the PCI address of a GPU in the form that Linux uses, such as `0000:3b:00.0`.
    ///
    /// The call creates no context.
    ///
    /// # Errors
    /// - [`Error::Call`] if no GPU has this ordinal
    pub fn pci_address(self, ordinal: u32) -> Result<String, Error> {
        let mut device = 0;
        let mut text = [0 as c_char; 32];
        // SAFETY: the driver is initialized. The device is written to a live variable, and the text to a buffer of the
        // given length. The driver terminates the text with a zero byte.
        let text = unsafe {
            check("cuDeviceGet", sys::cuDeviceGet(&mut device, ordinal as c_int))?;
            let result = sys::cuDeviceGetPCIBusId(text.as_mut_ptr(), text.len() as c_int, device);
            check("cuDeviceGetPCIBusId", result)?;
            CStr::from_ptr(text.as_ptr()).to_string_lossy().to_ascii_lowercase()
        };
        // The driver may write the PCI domain with eight digits. Linux uses four.
        Ok(match text.split_once(':') {
            Some((domain, rest)) if domain.len() > 4 => format!("{}:{rest}", &domain[domain.len() - 4..]),
            _ => text,
        })
    }
}

fn threads() -> Option<usize> {
    Some(std::fs::read_dir("/proc/self/task").ok()?.count())
}

/// The driver's library. It is never unloaded, since cudarc uses it.
struct Library(NonNull<c_void>);

impl Library {
    /// Loads the driver's library.
    ///
    /// cudarc loads it by itself, or the program is linked to it. A separate handle is needed to check for functions.
    ///
    /// # Errors
    /// - [`Error::NoDriver`] with the reason of the dynamic loader for the first name
    fn open() -> Result<Self, Error> {
        let mut reasons = Vec::new();
        for name in LIBRARIES {
            // SAFETY: the name is a C string. Loading the driver runs its initializers, as intended.
            match NonNull::new(unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) }) {
                Some(library) => return Ok(Self(library)),
                None => reasons.push(loader_message()),
            }
        }
        let tried = LIBRARIES.map(CStr::to_string_lossy).join(" and ");
        Err(Error::NoDriver { reason: reasons.swap_remove(0), tried })
    }

    /// Returns whether the library has this function.
    fn has(&self, symbol: &str) -> bool {
        // SAFETY: the library is loaded, and the name is a C string. The function is found but not called.
        CString::new(symbol)
            .is_ok_and(|name| !unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) }.is_null())
    }
}

/// Returns the dynamic loader's message about the call that has just failed.
fn loader_message() -> String {
    // SAFETY: returns null, or a string that this thread may read until it calls the dynamic loader again.
    let message = unsafe { libc::dlerror() };
    match message.is_null() {
        true => "the library cannot be loaded".to_owned(),
        // SAFETY: not null, see above.
        false => unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_the_attempts_and_the_remedy_without_a_driver() {
        if Library::open().is_ok() {
            eprintln!("SKIPPED reports_the_attempts_and_the_remedy_without_a_driver: this machine has one");
            return;
        }
        let error = Cuda::load().unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::NoDriver { .. }), "{text}");
        assert!(text.contains("libcuda.so.1 and libcuda.so"), "{text}");
        assert!(text.contains("cannot open shared object file"), "{text}");
        assert!(text.contains("Install the NVIDIA driver"), "{text}");
    }

    #[test]
    fn counts_the_threads_of_a_test_process() {
        assert!(threads().is_some_and(|threads| threads > 1));
    }

    #[test]
    fn symbols_are_sorted_and_unique() {
        assert!(SYMBOLS.is_sorted() && SYMBOLS.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
