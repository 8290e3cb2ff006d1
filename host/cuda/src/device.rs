#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUcontext, CUdevice, CUdevice_attribute, CUresult};
use serde::{Deserialize, Serialize};

use crate::driver_gate::{self, LAUNCH_GATE};
use crate::error::{check, check_about, log_drop};
use crate::load::{CONNECTIONS, DEFAULT_QUEUES};
use crate::reserve::Reserve;
use crate::{Cuda, Error};

/// One GPU: its primary context, retained as long as this object lives.
pub struct Device {
    cuda: Cuda,
    ordinal: u32,
    raw: CUdevice,
    context: CUcontext,
    attributes: Attributes,
    pub(crate) streams: Reserve,
}

// SAFETY: a context may be used by any thread, and `current` makes it current on the one that calls.
unsafe impl Send for Device {}
// SAFETY: as above; the driver locks for itself.
unsafe impl Sync for Device {}

/// What a GPU can do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// Its name.
    pub name: String,
    /// Compute capability as (major, minor).
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// The most dynamic shared memory that a block can have, in bytes.
    pub shared_bytes_per_block: u32,
    /// One address space with the CPU.
    pub unified_addressing: bool,
    /// Registered host memory has the same address on the GPU as on the CPU.
    pub host_pointers_on_device: bool,
    /// The CPU and the GPU can do atomics on the same host memory.
    pub host_native_atomics: bool,
    /// NICs can reach GPU memory (GPUDirect RDMA).
    pub gpu_direct_rdma: bool,
    /// Who sees a NIC's writes to GPU memory in order without a flush: 0 nobody, 100 this GPU, 200 all GPUs
    /// (`CUGPUDirectRDMAWritesOrdering`).
    pub gpu_direct_rdma_writes_ordering: u32,
    /// MPS serves this process: it runs beside others, and does not take turns with them.
    #[serde(default)]
    pub mps: bool,
    /// GPU memory can be exported as a dma-buf.
    pub dma_buf: bool,
    /// Virtual memory management, and allocations that can be exported as file descriptors.
    pub virtual_memory_fds: bool,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({}: {})", self.ordinal, self.attributes.name)
    }
}

impl Device {
    pub(crate) fn open(cuda: Cuda, ordinal: u32) -> Result<Arc<Self>, Error> {
        let mut raw: CUdevice = 0;
        let mut context: CUcontext = ptr::null_mut();
        // SAFETY: the driver is initialized, and the device is written to a live variable.
        check("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut raw, ordinal as c_int) })?;
        let attributes = Attributes::of(raw)?;
        // SAFETY: a device of this driver, and a live variable. Released in `drop`.
        let retained = unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, raw) };
        let retained = check_about("cuDevicePrimaryCtxRetain", retained, || format!("of GPU {ordinal}"));
        retained.map_err(|error| explained(error, ordinal, attributes.mps))?;
        let streams = Reserve::default();
        Ok(Arc::new(Self { cuda, ordinal, raw, context, attributes, streams }))
    }

    /// The driver that it belongs to.
    pub fn cuda(&self) -> Cuda {
        self.cuda
    }

    /// The driver's own number for it.
    pub(crate) fn raw(&self) -> CUdevice {
        self.raw
    }

    /// Its index among the GPUs that the driver shows.
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// What it can do.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Memory that is free at the moment, in bytes.
    ///
    /// # Errors
    /// What the driver says.
    pub fn free_memory(&self) -> Result<u64, Error> {
        let _current = self.current()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the context is current, and both numbers are written to live variables.
        check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok(free as u64)
    }

    pub(crate) fn context(&self) -> CUcontext {
        self.context
    }

    /// [`current`](Self::current) for a call that may wait for kernels: made while none of the process's PEs runs.
    pub(crate) fn alone(&self) -> Result<ExclusiveContext, Error> {
        let call = LAUNCH_GATE.begin_call();
        Ok(ExclusiveContext { _current: self.current()?, _call: call })
    }

    /// Makes the context current on this thread until the guard is dropped, which restores the one before.
    pub(crate) fn current(&self) -> Result<Current, Error> {
        let mut before: CUcontext = ptr::null_mut();
        // SAFETY: the driver is initialized, the variable is live, and the context is retained as long as `self`.
        unsafe {
            check("cuCtxGetCurrent", sys::cuCtxGetCurrent(&mut before))?;
            let push = before != self.context;
            if push {
                check("cuCtxPushCurrent", sys::cuCtxPushCurrent_v2(self.context))?;
            }
            Ok(Current { pushed: push })
        }
    }
}

/// An error of making a context, with its reason where MPS has run out of queues.
fn explained(error: Error, ordinal: u32, mps: bool) -> Error {
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
            let asked = std::env::var(CONNECTIONS).ok().and_then(|queues| queues.parse().ok());
            Error::MpsFull { ordinal, queues: asked.unwrap_or(DEFAULT_QUEUES), cause }
        }
        error => error,
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Those who were lent some held an Arc of this one.
        log_drop("streams", self.streams.end(self));
        // SAFETY: retained in `open`; all objects made in it hold an Arc of this one, so they are gone.
        log_drop(
            "a context",
            check("cuDevicePrimaryCtxRelease", unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.raw) }),
        );
    }
}

/// A context is current, and no kernel of the process's PEs runs.
pub(crate) struct ExclusiveContext {
    _current: Current,
    _call: driver_gate::CallGuard<'static>,
}

/// A context is current. Stays on the thread that it was made on: it is not Send.
pub(crate) struct Current {
    pushed: bool,
}

impl Drop for Current {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped: CUcontext = ptr::null_mut();
            // SAFETY: pops what `current` pushed on this thread.
            log_drop(
                "the current context",
                check("cuCtxPopCurrent", unsafe { sys::cuCtxPopCurrent_v2(&mut popped) }),
            );
        }
    }
}

/// Least `CUGPUDirectRDMAWritesOrdering` with which a kernel sees a NIC's writes in their order (`OWNER`).
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

    /// Whether the GPU's own kernels see what a NIC writes into its memory in order, without a flush.
    pub fn orders_rdma_writes(&self) -> bool {
        self.gpu_direct_rdma_writes_ordering >= ORDERED_FOR_OWNER
    }

    fn of(device: CUdevice) -> Result<Self, Error> {
        use CUdevice_attribute::*;
        let get = |attribute: CUdevice_attribute| {
            let mut value: c_int = 0;
            // SAFETY: a device of this driver, and a live variable.
            let result = unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) };
            check_about("cuDeviceGetAttribute", result, || format!("{attribute:?}"))?;
            Ok::<u32, Error>(value.max(0) as u32)
        };
        let mut name = [0 as c_char; 256];
        let mut memory = 0;
        // SAFETY: the buffer has the length that is told, and the driver ends the name with a zero.
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
            // Drivers before CUDA 12.3 do not know it.
            mps: get(CU_DEVICE_ATTRIBUTE_MPS_ENABLED).is_ok_and(|mps| mps != 0),
            dma_buf: get(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED)? != 0,
            virtual_memory_fds: get(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)? != 0,
        })
    }
}
