//! Machines: the CPU or GPU that executes kernels, and the memory that kernels use.
//!
//! The launch path and the memory code call the [`Machine`] trait. [`Native`] and [`Gpu`] implement it.
#![allow(unsafe_code, reason = "adopting user memory and mapping NIC pages depend on promises of the caller")]
mod file;
mod gpu;
mod host_memory;
#[cfg(any(test, feature = "limited"))]
mod limited;
mod module;
mod native;

use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rushmem_base::Ptx;
use rushmem_cuda::{self as cuda, DeviceBuffer};
use rushmem_device::abi::CtxParts;
use rushmem_device::abi::DevAddr;
use rushmem_device::kernel::Call;
use rushmem_error::{Error, Result};
pub use rushmem_native::LaunchConfig;
use rushmem_native::WaitChannel;
use rushmem_softnic::{HostBuffer, Memory, PAGE};

use cudarc::driver::CudaStream;

use crate::buffer::MemoryLocation;

pub use gpu::Gpu;
pub use host_memory::{available_memory, parse_available};
#[cfg(any(test, feature = "limited"))]
pub use limited::LimitedMachine;
pub use module::{Code, Module};
pub use native::Native;

/// Alignment of the first heap and of every segment, in bytes.
pub const HEAP_ALIGN: u64 = 2 << 20;

/// Allocates zeroed host memory, aligned to `align`, a power of two of at least a page.
///
/// # Errors
/// [`Error::HostMemory`]
fn host_buffer(bytes: u64, align: u64) -> Result<HostBuffer> {
    HostBuffer::try_aligned(bytes as usize, align as usize).ok_or(Error::HostMemory { bytes })
}

/// Memory that kernels can access.
#[derive(Clone)]
pub struct Region {
    /// Address for kernels.
    pub addr: DevAddr,
    /// The memory as the software ConnectX accesses it, and the host, unless `host` is set. The last handle frees it.
    pub memory: Arc<dyn Memory>,
    /// The same memory as the host accesses it, if it takes another way.
    pub(crate) host: Option<Arc<dyn Memory>>,
    /// The GPU memory, if it is on a GPU. RDMA devices register it, and other GPUs map it.
    pub gpu: Option<Arc<DeviceBuffer>>,
    /// The number of the GPU that uses it, if it is page-locked host memory.
    pub(crate) locked_for: Option<u32>,
    /// The file of the memory, if other processes can map it.
    pub file: Option<Arc<OwnedFd>>,
}

impl Region {
    /// Allocates page-aligned, zeroed host memory of this process.
    ///
    /// # Errors
    /// [`Error::HostMemory`]
    pub fn host(bytes: u64) -> Result<Self> {
        Self::host_aligned(bytes, PAGE as u64)
    }

    /// Allocates host memory like [`Region::host`], aligned to `align`, a power of two of at least a page.
    ///
    /// # Errors
    /// [`Error::HostMemory`]
    pub(crate) fn host_aligned(bytes: u64, align: u64) -> Result<Self> {
        let buffer = host_buffer(bytes, align)?;
        Ok(Self {
            addr: DevAddr(buffer.as_ptr() as u64),
            memory: Arc::new(buffer),
            host: None,
            gpu: None,
            locked_for: None,
            file: None,
        })
    }

    /// Copies bytes into the memory. They are visible when the call returns.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.for_host().write(offset, bytes)?;
        Ok(self.for_host().flush()?)
    }

    /// Copies bytes out of the memory.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        Ok(self.for_host().read(offset, bytes)?)
    }

    fn for_host(&self) -> &dyn Memory {
        self.host.as_deref().unwrap_or(&*self.memory)
    }
}

/// The kernels that the runtime itself needs on a GPU.
#[derive(Clone, Copy, Debug)]
pub struct RuntimePtx {
    /// The operations of hosts and streams, and the probe of a NIC.
    pub operations: Ptx,
    /// The kernel that accesses GPU memory for the software ConnectX.
    pub service: Ptx,
}

/// The heap of another PE.
pub enum PeerHeap {
    /// A heap in this process.
    Local(Region),
    /// A heap in another process.
    File {
        /// The heap's [`Region::file`], received from that process.
        file: OwnedFd,
        /// Length of the heap in bytes.
        bytes: u64,
    },
}

/// An address range in which kernels find heaps of other PEs, at a fixed stride.
pub trait HeapWindow: Send + Sync {
    /// Returns the address of slot 0.
    fn base(&self) -> DevAddr;
    /// Returns the distance between two slots in bytes.
    fn stride(&self) -> u64;
    /// Maps a heap at slot number `slot` for as long as the window lives. Returns whether atomics are atomic across all
    /// processors that map the heap.
    fn map(&mut self, slot: u32, heap: PeerHeap) -> Result<bool>;
}

/// Foreign memory mapped for kernels, such as a page of the NIC. The mapping ends when the value is dropped.
pub trait Mapping: Send + Sync {
    /// Returns the address for kernels.
    fn addr(&self) -> DevAddr;
}

/// The kind of memory behind a page of the NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// Memory that a software device polls.
    Memory,
    /// Device registers.
    Registers,
}

/// A stream: kernels that run in order, concurrently with kernels of other streams.
///
/// Dropping it waits until its kernels have ended.
pub trait KernelStream: Send + Sync {
    /// Appends a kernel.
    fn launch(&self, step: KernelLaunch) -> Result<Queued>;
    /// Appends the kernels of a graph.
    fn launch_graph(&self, recording: &ExecGraph) -> Result<()>;
    /// Records an event after everything appended so far.
    fn record_event(&self) -> Result<Event>;
    /// Makes everything appended from now on wait for `event`, which may belong to any stream.
    fn wait_event(&self, event: &Event) -> Result<()>;
    /// Waits until `event` of this stream is complete.
    fn wait(&self, event: &Event) -> Result<()>;
    /// Returns whether the application is capturing the stream into a graph of its own.
    fn is_capturing(&self) -> Result<bool> {
        Ok(false)
    }
    /// Returns whether kernels run or wait to run. It does not block.
    fn is_busy(&self) -> bool;
    /// Returns the launch id of a launch that the machine could not run. Later launches do not run either.
    fn failed(&self) -> Option<u64> {
        None
    }
    /// Takes the error of the failed launch. Launches appended after this call run again.
    fn take_failure(&self) -> Option<Error> {
        None
    }
}

/// The effect of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queued {
    /// The kernel runs after earlier work of the stream.
    Runs,
    /// The application is capturing the stream, and its graph will run the kernel.
    Captured,
}

/// A point in a stream.
#[derive(Clone)]
pub enum Event {
    /// A point in a native stream.
    Native(Arc<native::Completion>),
    /// An event of CUDA.
    Gpu(Arc<cuda::Event>),
}

impl Event {
    /// Returns whether everything before it has ended.
    pub fn has_passed(&self) -> Result<bool> {
        match self {
            Event::Native(event) => Ok(event.has_passed()),
            Event::Gpu(event) => Ok(event.query()?),
        }
    }
}

/// A kernel with everything that its launch needs.
pub struct KernelLaunch {
    /// The context, with addresses that stay valid until the launch ends.
    pub ctx: CtxParts,
    /// The shape of the launch.
    pub grid: LaunchConfig,
    /// The kernel and its arguments.
    pub call: Call,
    /// The module of the kernel. `None` for a function of the program outside any module.
    pub module: Option<Arc<Module>>,
}

/// A graph: kernels that can be launched repeatedly.
#[derive(Clone)]
pub enum ExecGraph {
    /// A list of native launches.
    Native(Arc<native::NativeGraph>),
    /// A graph of CUDA.
    Gpu(Arc<gpu::GpuGraph>),
}

/// Returns the error for an event or graph that belongs to a PE on another machine.
fn other_machine() -> Error {
    Error::misuse("stream", "it belongs to a PE that runs on another machine")
}

/// Executes kernels for one PE.
pub trait Machine: Send + Sync {
    /// Returns a one-line description for users.
    fn describe(&self) -> String;
    /// Returns the device number, if the machine is a GPU.
    fn gpu(&self) -> Option<u32>;
    /// Returns whether the machine is a GPU.
    fn is_gpu(&self) -> bool {
        self.gpu().is_some()
    }
    /// Returns the wait channel of the PE's kernels; `None` for kernels on a GPU, which never sleep.
    fn wait_channel(&self) -> Option<&Arc<WaitChannel>> {
        None
    }
    /// Returns a grid that fills this PE's share of the machine. All its blocks run at once. `beside_nic` says that the
    /// software ConnectX accesses the heap meanwhile.
    fn grid(&self, beside_nic: bool) -> LaunchConfig;
    /// Allocates zeroed, page-aligned host memory that kernels can access, for queues and the control page.
    fn shared(&self, bytes: u64) -> Result<Region>;
    /// Allocates zeroed memory with the fastest access for kernels, for counters and descriptors.
    fn local(&self, bytes: u64) -> Result<Region>;
    /// Allocates a zeroed part of the symmetric heap, aligned to [`HEAP_ALIGN`] where the machine can do that. With
    /// `shared`, other PEs can map it.
    fn heap(&self, bytes: u64, shared: bool) -> Result<Region>;
    /// Returns whether kernels access this memory of another PE of the process at its own address.
    fn is_direct(&self, region: &Region) -> bool;
    /// Reserves a window for `slots` heaps of other PEs, of `bytes` bytes each.
    fn window(&self, slots: u32, bytes: u64) -> Result<Box<dyn HeapWindow>>;
    /// Makes user memory accessible to kernels and NICs without copying it.
    ///
    /// # Safety
    /// The memory belongs to a [`Buffer`](crate::buffer::Buffer) that outlives the region.
    unsafe fn adopt(&self, location: MemoryLocation, bytes: u64) -> Result<Region>;
    /// Maps a page of the NIC for kernels.
    ///
    /// # Safety
    /// `page` points to 4096 bytes of this kind that stay mapped while the mapping lives.
    unsafe fn map_page(&self, page: *mut u8, kind: PageKind) -> Result<Box<dyn Mapping>>;
    /// Returns the kernels of the runtime. Native machines run them as functions of the program.
    fn runtime_ptx(&self) -> Option<&Ptx> {
        None
    }
    /// Loads kernels. The call may wait until no kernel of this process's PEs runs.
    fn load(&self, ptx: &Ptx) -> Result<Code>;
    /// Runs a kernel to its end, concurrently with all streams.
    fn run(&self, step: KernelLaunch) -> Result<()>;
    /// Creates a stream.
    fn queue(&self) -> Result<Box<dyn KernelStream>>;
    /// Wraps a stream of the application.
    fn queue_of(&self, stream: &Arc<CudaStream>) -> Result<Box<dyn KernelStream>>;
    /// Wraps a stream of the application by its `CUstream`.
    ///
    /// # Safety
    /// The stream exists until the result is dropped.
    unsafe fn queue_of_raw(&self, stream: *mut c_void) -> Result<Box<dyn KernelStream>>;
    /// Builds a graph that launches these kernels in this order.
    fn record(&self, steps: Vec<KernelLaunch>) -> Result<ExecGraph>;
    /// Returns how many blocks of this shape run at once if every PE that shares the machine has as many.
    fn room(&self, kernel: &str, module: Option<&Module>, grid: LaunchConfig) -> Result<u32>;
}
