//! The CUDA driver that the program has loaded.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;

/// Name of the driver's shared library.
const LIBRARY: &CStr = c"libcuda.so.1";

/// `CUcontext`.
pub(super) type Context = *mut c_void;
/// `CUstream`.
pub(super) type Stream = *mut c_void;

/// Flag of a stream that does not synchronize with the legacy default stream.
pub(super) const NON_BLOCKING: c_uint = 1;

/// Capture mode in which a thread may call any function while other threads capture streams.
const RELAXED: c_uint = 2;

/// An error code of the driver, and the function that returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CudaError {
    function: &'static str,
    pub(super) code: c_int,
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CudaError { function, code } = self;
        match Driver::get().and_then(|driver| driver.error_name(*code)) {
            Some(name) => write!(f, "{function} returned {name}"),
            None => write!(f, "{function} returned {code}"),
        }
    }
}

/// Attributes of a pointer.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(super) enum Attribute {
    Context = 1,
    MemoryType = 2,
    IsManaged = 8,
    DeviceOrdinal = 9,
    RangeStart = 11,
    RangeSize = 12,
}

/// Defines [`Driver`]. Each function checks the driver's return code.
macro_rules! functions {
    ($($name:ident = $symbol:literal($($argument:ident: $type:ty),*);)*) => {
        /// Functions of the driver.
        pub(super) struct Driver {
            $($name: unsafe extern "C" fn($($type),*) -> c_int,)*
        }

        impl Driver {
            /// Resolves the functions. Returns the name of a missing one as the error.
            fn find(library: NonNull<c_void>) -> Result<Driver, &'static str> {
                Ok(Driver {
                    $($name: {
                        let address = symbol(library, $symbol).ok_or($symbol)?;
                        type Function = unsafe extern "C" fn($($type),*) -> c_int;
                        // SAFETY: the driver's function of this name has this type.
                        unsafe { std::mem::transmute::<NonNull<c_void>, Function>(address) }
                    },)*
                })
            }

            $(
                /// Calls the driver's function and checks its return code.
                ///
                /// # Safety
                ///
                /// The same as for the driver's function.
                pub(super) unsafe fn $name(&self, $($argument: $type),*) -> Result<(), CudaError> {
                    // SAFETY: promised by the caller.
                    match unsafe { (self.$name)($($argument),*) } {
                        0 => Ok(()),
                        code => Err(CudaError { function: $symbol, code }),
                    }
                }
            )*
        }
    };
}

functions! {
    pointer_attribute = "cuPointerGetAttribute"(to: *mut c_void, attribute: c_int, address: u64);
    push_context = "cuCtxPushCurrent_v2"(context: Context);
    pop_context = "cuCtxPopCurrent_v2"(context: *mut Context);
    current_context = "cuCtxGetCurrent"(context: *mut Context);
    current_device = "cuCtxGetDevice"(device: *mut c_int);
    device = "cuDeviceGet"(device: *mut c_int, ordinal: c_int);
    primary_state = "cuDevicePrimaryCtxGetState"(device: c_int, flags: *mut c_uint, active: *mut c_int);
    retain_primary = "cuDevicePrimaryCtxRetain"(context: *mut Context, device: c_int);
    release_primary = "cuDevicePrimaryCtxRelease_v2"(device: c_int);
    priorities = "cuCtxGetStreamPriorityRange"(least: *mut c_int, greatest: *mut c_int);
    create_stream = "cuStreamCreateWithPriority"(stream: *mut Stream, flags: c_uint, priority: c_int);
    destroy_stream = "cuStreamDestroy_v2"(stream: Stream);
    synchronize_stream = "cuStreamSynchronize"(stream: Stream);
    allocate_host = "cuMemHostAlloc"(to: *mut *mut c_void, len: usize, flags: c_uint);
    free_host = "cuMemFreeHost"(at: *mut c_void);
    copy_to_host = "cuMemcpyDtoHAsync_v2"(to: *mut c_void, from: u64, len: usize, stream: Stream);
    copy_to_gpu = "cuMemcpyHtoDAsync_v2"(to: u64, from: *const c_void, len: usize, stream: Stream);
    exchange_capture_mode = "cuThreadExchangeStreamCaptureMode"(mode: *mut c_uint);
    name_error = "cuGetErrorName"(code: c_int, name: *mut *const c_char);
}

/// Returns a handle of the CUDA driver library, or `None` if the program has not loaded it. Each call adds a reference.
fn library() -> Option<NonNull<c_void>> {
    // SAFETY: a C string. With this flag nothing is loaded that is not there already.
    NonNull::new(unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) })
}

fn symbol(library: NonNull<c_void>, name: &str) -> Option<NonNull<c_void>> {
    let name = std::ffi::CString::new(name).ok()?;
    // SAFETY: a loaded library and a C string.
    NonNull::new(unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) })
}

/// Whether the program has loaded the driver.
pub(super) fn is_loaded() -> bool {
    match library() {
        Some(library) => {
            // SAFETY: `library` opened it once more, so that it stays loaded for its other users.
            unsafe { libc::dlclose(library.as_ptr()) };
            true
        }
        None => false,
    }
}

impl Driver {
    /// Returns the driver if the program has loaded it, and keeps it loaded.
    pub(super) fn get() -> Option<&'static Driver> {
        static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
        if let Some(found) = DRIVER.get() {
            return found.as_ref();
        }
        let library = library()?;
        DRIVER
            .get_or_init(|| {
                let found = Driver::find(library);
                found
                    .inspect_err(|symbol| {
                        tracing::error!("GPU memory is unreachable: libcuda.so.1 lacks {symbol}")
                    })
                    .ok()
            })
            .as_ref()
    }

    /// Returns an attribute of an address, or `None` if it is unknown to the driver. `T` is the attribute's type.
    pub(super) fn attribute<T: bytemuck::Pod>(&self, attribute: Attribute, address: u64) -> Option<T> {
        // All attributes here have at most eight bytes.
        const { assert!(size_of::<T>() <= size_of::<u64>()) };
        let mut value = 0u64;
        // SAFETY: room for every attribute of the list. The driver checks the address.
        unsafe { self.pointer_attribute((&raw mut value).cast(), attribute as c_int, address) }.ok()?;
        Some(bytemuck::pod_read_unaligned(&value.to_ne_bytes()[..size_of::<T>()]))
    }

    fn error_name(&self, code: c_int) -> Option<&'static str> {
        let mut name = std::ptr::null();
        // SAFETY: a live variable for the result.
        unsafe { self.name_error(code, &raw mut name) }.ok()?;
        if name.is_null() {
            return None;
        }
        // SAFETY: the driver's names are C strings that stay.
        unsafe { CStr::from_ptr(name) }.to_str().ok()
    }

    /// Pushes a context as current until the result is dropped.
    pub(super) fn enter(&self, context: Context) -> Result<Entered<'_>, CudaError> {
        let mut mode = RELAXED;
        // SAFETY: the driver checks the context, and the mode is a live variable.
        unsafe {
            self.push_context(context)?;
            // A thread that captures a stream may forbid some calls to other threads.
            let _ = self.exchange_capture_mode(&raw mut mode);
        }
        Ok(Entered { driver: self, mode })
    }
}

/// A pushed context. Dropping it restores the thread's earlier context.
pub(super) struct Entered<'a> {
    driver: &'a Driver,
    /// The thread's earlier capture mode.
    mode: c_uint,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut context = null_mut();
        // SAFETY: live variables. `enter` has pushed the context on this thread.
        let popped = unsafe {
            let _ = self.driver.exchange_capture_mode(&raw mut self.mode);
            self.driver.pop_context(&raw mut context)
        };
        if let Err(error) = popped {
            tracing::error!("the CUDA context of this thread is lost: {error}");
        }
    }
}
