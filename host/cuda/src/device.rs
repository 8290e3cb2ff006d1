//! GPUs in use: their primary contexts and attributes.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUcontext, CUdevice, CUdevice_attribute, CUresult};
use serde::{Deserialize, Serialize};

use crate::driver_gate::{self, DRIVER_GATE};
use crate::environment::{DEFAULT_QUEUES, MAX_CONNECTIONS};
use crate::error::{check, check_with, log_drop};
use crate::stream_pool::StreamPool;
use crate::{Cuda, Error};

/// A GPU of this machine. Keeps its primary context alive.
pub struct Device {
    cuda: Cuda,
    ordinal: u32,
    raw: CUdevice,
    context: CUcontext,
    attributes: Attributes,
    pub(crate) stream_pool: StreamPool,
}

// SAFETY: any thread may use a context, and `make_current` makes it current on the calling thread.
unsafe impl Send for Device {}
// SAFETY: see above. The driver does its own locking.
unsafe impl Sync for Device {}

/// The properties and capabilities of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// Product name.
    pub name: String,
    /// Compute capability, as (major, minor).
    pub compute_capability: (u32, u32),
    /// Number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// Total memory in bytes.
    pub memory: u64,
    /// Largest dynamic shared memory of a block, in bytes.
    pub shared_bytes_per_block: u32,
    /// Whether the GPU shares one address space with the CPU.
    pub unified_addressing: bool,
    /// Whether registered host memory has the same address on the GPU as on the CPU.
    pub host_pointers_on_device: bool,
    /// Whether atomic operations of the GPU on host memory are atomic with respect to the CPU.
    pub host_native_atomics: bool,
    /// Whether NICs can access GPU memory (GPUDirect RDMA).
    pub gpu_direct_rdma: bool,
    /// Who sees a NIC's writes to GPU memory in order, without a flush (`CUGPUDirectRDMAWritesOrdering`).
    ///
    /// - 0: none
    /// - 100: kernels of this GPU
    /// - 200: kernels of all GPUs
    pub gpu_direct_rdma_writes_ordering: u32,
    /// Whether this process runs under MPS. Without MPS, processes that share a GPU are time-sliced.
    #[serde(default)]
    pub mps: bool,
    /// Whether GPU memory can be exported as a dma-buf.
    pub dma_buf: bool,
    /// Whether virtual memory management can export allocations as file descriptors.
    pub virtual_memory_fds: bool,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({}: {})", self.ordinal, self.attributes.name)
    }
}

impl Device {
    /// Opens a GPU and retains its primary context, which other CUDA code in this process shares.
    ///
    /// # Errors
    /// - [`Error::NoDevice`] if no GPU has this ordinal
    /// - [`Error::MpsFull`] if MPS accepts no further process on the GPU
    /// - [`Error::Call`] if the driver refuses
    pub fn open(cuda: Cuda, ordinal: u32) -> Result<Arc<Self>, Error> {
        let count = cuda.device_count()?;
        if ordinal >= count {
            return Err(Error::NoDevice { ordinal, count });
        }
        let mut raw: CUdevice = 0;
        let mut context: CUcontext = ptr::null_mut();
        // SAFETY: the driver is initialized. The device is written to a live variable.
        check("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut raw, ordinal as c_int) })?;
        let attributes = Attributes::of(raw)?;
        // SAFETY: a device of this driver, and a live variable. Released in `drop`.
        let retained = unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, raw) };
        let retained = check_with("cuDevicePrimaryCtxRetain", retained, || format!("of GPU {ordinal}"));
        retained.map_err(|error| explain_mps(error, ordinal, attributes.mps))?;
        let stream_pool = StreamPool::default();
        Ok(Arc::new(Self { cuda, ordinal, raw, context, attributes, stream_pool }))
    }

    /// Returns the driver through which the GPU was opened.
    pub fn cuda(&self) -> Cuda {
        self.cuda
    }

    pub(crate) fn raw(&self) -> CUdevice {
        self.raw
    }

    /// Returns the ordinal of the GPU among those that the driver shows.
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Returns the properties and capabilities of the GPU.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Returns how much memory is free at this moment, in bytes.
    ///
    /// # Errors
    /// - [`Error::Call`] if the context is lost
    pub fn free_memory(&self) -> Result<u64, Error> {
        let _current = self.make_current()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the context is current. Both numbers are written to live variables.
        check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok(free as u64)
    }

    pub(crate) fn context(&self) -> CUcontext {
        self.context
    }

    /// Passes the driver gate and makes the context current, for a driver call that may block until all kernels have
    /// completed.
    ///
    /// Blocks until no PE of this process runs a kernel. No kernel is launched while the guard exists. Do not nest
    /// guards: see [`Stream::new`](crate::Stream::new).
    pub(crate) fn exclusive(&self) -> Result<ExclusiveContext, Error> {
        let call = DRIVER_GATE.begin_blocking_call();
        Ok(ExclusiveContext { _current: self.make_current()?, _call: call })
    }

    /// Pushes the context on this thread, unless it is current already. Dropping the guard restores the previous
    /// context.
    pub(crate) fn make_current(&self) -> Result<CurrentContext, Error> {
        let mut previous: CUcontext = ptr::null_mut();
        // SAFETY: the driver is initialized, the variable is live, and `self` retains the context.
        unsafe {
            check("cuCtxGetCurrent", sys::cuCtxGetCurrent(&mut previous))?;
            let pushed = previous != self.context;
            if pushed {
                check("cuCtxPushCurrent", sys::cuCtxPushCurrent_v2(self.context))?;
            }
            Ok(CurrentContext { pushed, _not_send: PhantomData })
        }
    }
}

/// Turns a failure to create the context into [`Error::MpsFull`] if MPS has run out of hardware queues.
fn explain_mps(error: Error, ordinal: u32, mps: bool) -> Error {
    use CUresult::{
        CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED, CUDA_ERROR_OUT_OF_MEMORY,
    };
    let full = [
        CUDA_ERROR_OUT_OF_MEMORY,
        CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
        CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED,
    ];
    match error {
        Error::Call(cause) if mps && full.iter().any(|&result| result as u32 == cause.code) => {
            let requested = std::env::var(MAX_CONNECTIONS).ok().and_then(|queues| queues.parse().ok());
            Error::MpsFull { ordinal, queues: requested.unwrap_or(DEFAULT_QUEUES), cause }
        }
        error => error,
    }
}

impl Device {
    /// Destroys all streams. No [`Stream`](crate::Stream) may be left.
    fn destroy_streams(&self) -> Result<(), Error> {
        let streams = self.stream_pool.take_all();
        if streams.is_empty() {
            return Ok(());
        }
        let _exclusive = self.exclusive()?;
        for stream in streams {
            // SAFETY: a live stream, destroyed once.
            log_drop("a stream", check("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(stream) }));
        }
        Ok(())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Every stream in use holds an `Arc` of this device, so all streams are in the pool now.
        log_drop("unused streams", self.destroy_streams());
        // SAFETY: retained in `open`. All objects of the context hold an `Arc` of this device, so none is left.
        log_drop(
            "the primary context",
            check("cuDevicePrimaryCtxRelease", unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.raw) }),
        );
    }
}

/// A current context for a blocking driver call. No PE of this process launches a kernel while it exists.
pub(crate) struct ExclusiveContext {
    _current: CurrentContext,
    _call: driver_gate::BlockingCallGuard<'static>,
}

/// A context that is current on this thread until the guard is dropped.
pub(crate) struct CurrentContext {
    /// Whether the context must be popped on drop.
    pushed: bool,
    /// Makes the type `!Send`: the context must be popped on the same thread.
    _not_send: PhantomData<*const ()>,
}

impl Drop for CurrentContext {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped: CUcontext = ptr::null_mut();
            // SAFETY: pops the context that `make_current` pushed on this thread.
            log_drop(
                "the current context",
                check("cuCtxPopCurrent", unsafe { sys::cuCtxPopCurrent_v2(&mut popped) }),
            );
        }
    }
}

/// Smallest `CUGPUDirectRDMAWritesOrdering` at which the GPU's own kernels see a NIC's writes in order (`OWNER`).
const ORDERED_FOR_OWNER: u32 = 100;

impl Attributes {
    /// Returns the attributes of a GPU with every capability that this runtime uses, for tests.
    pub fn sample() -> Self {
        Self {
            name: "NVIDIA H200".into(),
            compute_capability: (9, 0),
            multiprocessors: 132,
            memory: 140 << 30,
            shared_bytes_per_block: 232_448,
            unified_addressing: true,
            host_pointers_on_device: true,
            host_native_atomics: false,
            gpu_direct_rdma: true,
            gpu_direct_rdma_writes_ordering: 200,
            mps: false,
            dma_buf: true,
            virtual_memory_fds: true,
        }
    }

    /// Returns whether the GPU's own kernels see a NIC's writes to its memory in order, without a flush.
    pub fn orders_rdma_writes(&self) -> bool {
        self.gpu_direct_rdma_writes_ordering >= ORDERED_FOR_OWNER
    }

    fn of(device: CUdevice) -> Result<Self, Error> {
        use CUdevice_attribute::*;
        let get = |attribute: CUdevice_attribute| {
            let mut value: c_int = 0;
            // SAFETY: a device of this driver, and a live variable.
            let result = unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) };
            check_with("cuDeviceGetAttribute", result, || format!("{attribute:?}"))?;
            Ok::<u32, Error>(value.max(0) as u32)
        };
        let mut name = [0 as c_char; 256];
        let mut memory = 0;
        // SAFETY: the buffer has the given length, and the driver terminates the name with a zero byte.
        let name = unsafe {
            check("cuDeviceGetName", sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, device))?;
            CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
        };
        // SAFETY: a device of this driver, and a live variable.
        check("cuDeviceTotalMem", unsafe { sys::cuDeviceTotalMem_v2(&mut memory, device) })?;
        Ok(Self {
            name,
            compute_capability: (
                get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            multiprocessors: get(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            memory: memory as u64,
            shared_bytes_per_block: get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            unified_addressing: get(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)? != 0,
            host_pointers_on_device: get(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM)? != 0,
            host_native_atomics: get(CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED)? != 0,
            gpu_direct_rdma: get(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED)? != 0,
            gpu_direct_rdma_writes_ordering: get(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING)?,
            // Drivers before CUDA 12.3 do not have this attribute.
            mps: get(CU_DEVICE_ATTRIBUTE_MPS_ENABLED).is_ok_and(|mps| mps != 0),
            dma_buf: get(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED)? != 0,
            virtual_memory_fds: get(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)? != 0,
        })
    }
}
