//! Machines: the CPU or GPU that executes kernels, and the memory that kernels use.
//!
//! Launches and memory management go through the [`Machine`] trait, which [`Native`] and [`Gpu`] implement.
#![allow(unsafe_code, reason = "adopting user memory and mapping NIC pages depend on promises of the caller")]
mod exported;
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

pub use exported::{ExportedMemory, Layout, PeerMemory};
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

/// Memory that kernels can access. Clones share it, and the last one frees it.
#[derive(Clone)]
pub struct Region {
    /// Address of the memory for kernels.
    pub addr: DevAddr,
    /// Accessor through which the software ConnectX reads and writes this memory. The host uses it, too, unless `host`
    /// is set.
    pub memory: Arc<dyn Memory>,
    /// Accessor for the host, if it differs from `memory`. The accessor of GPU memory does not use the service kernel.
    pub(crate) host: Option<Arc<dyn Memory>>,
    /// The GPU allocation, for memory on a GPU. RDMA devices register it, and other GPUs map it.
    pub gpu: Option<Arc<DeviceBuffer>>,
    /// Ordinal of the GPU that page-locked this memory. `None` for other memory.
    pub(crate) locked_for: Option<u32>,
    /// File descriptor through which other processes can map the memory.
    pub file: Option<Arc<OwnedFd>>,
}

impl Region {
    /// Allocates zeroed, page-aligned memory of this process.
    ///
    /// # Errors
    /// [`Error::HostMemory`]
    pub fn host(bytes: u64) -> Result<Self> {
        Self::host_aligned(bytes, PAGE as u64)
    }

    /// Like [`Region::host`], but aligned to `align`, a power of two of at least a page.
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

    /// Copies `bytes` to the region at `offset`. They are visible to kernels when the call returns.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.for_host().write(offset, bytes)?;
        Ok(self.for_host().flush()?)
    }

    /// Copies the bytes at `offset` out of the region.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        Ok(self.for_host().read(offset, bytes)?)
    }

    fn for_host(&self) -> &dyn Memory {
        self.host.as_deref().unwrap_or(&*self.memory)
    }
}

/// Kernels that the runtime itself runs on a GPU.
#[derive(Clone, Copy, Debug)]
pub struct RuntimePtx {
    /// Operations of hosts and streams, and the probe that tests whether kernels reach a NIC.
    pub operations: Ptx,
    /// The kernel that accesses GPU memory on behalf of the software ConnectX.
    pub service: Ptx,
}

/// An address range into which heaps of other PEs are mapped, at a fixed stride. Kernels compute a peer's address as
/// `base + slot * stride + offset`.
pub trait HeapWindow: Send + Sync {
    /// Address of slot 0.
    fn base(&self) -> DevAddr;
    /// Distance between two slots, in bytes.
    fn stride(&self) -> u64;
    /// Maps a heap at slot `slot` for the lifetime of the window. Returns whether atomics on it are atomic across all
    /// processors that map the heap.
    fn map(&mut self, slot: u32, heap: PeerMemory) -> Result<bool>;
}

/// Memory mapped for kernels, such as a page of a NIC, until the value is dropped.
pub trait Mapping: Send + Sync {
    /// Address of the mapping for kernels.
    fn addr(&self) -> DevAddr;
}

/// Memory of this process that kernels access at its own address.
impl Mapping for Region {
    fn addr(&self) -> DevAddr {
        self.addr
    }
}

/// What a page of a NIC consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// Memory that a software device polls.
    Memory,
    /// Device registers.
    Registers,
}

/// A stream: its kernels run in order, concurrently with kernels of other streams.
///
/// Dropping it waits for all its kernels.
pub trait KernelStream: Send + Sync {
    /// Appends a kernel.
    fn launch(&self, step: KernelLaunch) -> Result<Queued>;
    /// Appends the kernels of a graph.
    fn launch_graph(&self, recording: &ExecGraph) -> Result<()>;
    /// Records an event after everything appended so far.
    fn record_event(&self) -> Result<Event>;
    /// Orders everything appended from now on after `event`, which may belong to any stream.
    fn wait_event(&self, event: &Event) -> Result<()>;
    /// Blocks until `event`, which belongs to this stream, has passed.
    fn wait(&self, event: &Event) -> Result<()>;
    /// Returns whether the application is capturing the stream into a graph.
    fn is_capturing(&self) -> Result<bool> {
        Ok(false)
    }
    /// Returns whether kernels are running or queued. Never blocks.
    fn is_busy(&self) -> bool;
    /// Returns the launch ID of the first native launch that failed: it could not start, or a lane panicked. Kernels
    /// after it are skipped.
    fn failed(&self) -> Option<u64> {
        None
    }
    /// Takes the error of the failed launch, after which new launches run again.
    fn take_failure(&self) -> Option<Error> {
        None
    }
}

/// Outcome of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queued {
    /// The kernel runs after earlier work of the stream.
    Runs,
    /// The application is capturing the stream: the kernel becomes part of that graph and runs whenever the graph does.
    Captured,
}

/// A point in a stream.
#[derive(Clone)]
pub enum Event {
    /// An event of a native stream.
    Native(Arc<native::Completion>),
    /// A CUDA event.
    Gpu(Arc<cuda::Event>),
}

impl Event {
    /// Returns whether all work before the event has completed.
    pub fn has_passed(&self) -> Result<bool> {
        match self {
            Event::Native(event) => Ok(event.has_passed()),
            Event::Gpu(event) => Ok(event.query()?),
        }
    }
}

/// A kernel with everything needed to launch it.
pub struct KernelLaunch {
    /// Context that the kernel receives. Its addresses must stay valid until the kernel has completed.
    pub ctx: CtxParts,
    /// Number of blocks, number of threads per block, and size of the shared memory.
    pub grid: LaunchConfig,
    /// The kernel and its arguments.
    pub call: Call,
    /// Keeps the kernel's module loaded. `None` for a native kernel outside any module.
    pub module: Option<Arc<Module>>,
}

/// An executable graph: a chain of kernels that can be launched repeatedly.
#[derive(Clone)]
pub enum ExecGraph {
    /// Native launches, which the stream's thread runs one after another.
    Native(Arc<native::NativeGraph>),
    /// A CUDA graph.
    Gpu(Arc<gpu::GpuGraph>),
}

/// Returns the error for an event or graph that belongs to a PE on another machine.
fn other_machine() -> Error {
    Error::misuse("stream", "it belongs to a PE that runs on another machine")
}

/// Executes the kernels of one PE.
pub trait Machine: Send + Sync {
    /// Returns a one-line description for users.
    fn describe(&self) -> String;
    /// Returns the ordinal of the GPU, or `None` if kernels run natively.
    fn gpu(&self) -> Option<u32>;
    /// Returns whether kernels run on a GPU.
    fn is_gpu(&self) -> bool {
        self.gpu().is_some()
    }
    /// Returns the channel through which native kernels sleep until memory changes. `None` on a GPU, whose kernels only
    /// poll.
    fn wait_channel(&self) -> Option<&Arc<WaitChannel>> {
        None
    }
    /// Returns a launch shape that fills this PE's share of the machine, with all blocks resident. With `beside_nic`,
    /// it leaves room for the service kernel of the software ConnectX.
    fn grid(&self, beside_nic: bool) -> LaunchConfig;
    /// Allocates zeroed, page-aligned host memory that kernels can access. Holds queues and the control page.
    fn shared(&self, bytes: u64) -> Result<Region>;
    /// Allocates zeroed memory in the place that kernels access fastest. Holds counters and descriptors.
    fn local(&self, bytes: u64) -> Result<Region>;
    /// Allocates a zeroed part of the symmetric heap, aligned to [`HEAP_ALIGN`] where the machine supports that. With
    /// `shared`, other PEs can map it.
    fn heap(&self, bytes: u64, shared: bool) -> Result<Region>;
    /// Takes over the heap that a lost PE on the same node and GPU had [exported](Self::export), and which others still have
    /// mapped. Its bytes become zero.
    ///
    /// # Errors
    /// An error if the memory cannot be mapped, or belongs to another GPU.
    fn inherit(&self, exported: &ExportedMemory, bytes: u64) -> Result<Region>;
    /// Sets the bytes of a heap from offset `from` on to 0, if other processes can map it. `from` is a multiple of 128.
    fn clear(&self, heap: &Region, from: u64) -> Result<()>;
    /// Exports `region` for other processes of the node.
    ///
    /// # Errors
    /// The reason why they cannot map it.
    fn export(&self, region: &Region) -> Result<ExportedMemory, String> {
        ExportedMemory::whole(region)
    }
    /// Maps memory of another PE for kernels. Memory of this process may keep its address.
    fn map(&self, memory: PeerMemory) -> Result<Box<dyn Mapping>>;
    /// Reserves a window with `slots` slots for heaps of `bytes` bytes.
    fn window(&self, slots: u32, bytes: u64) -> Result<Box<dyn HeapWindow>>;
    /// Makes user memory accessible to kernels and NICs, without copying it.
    ///
    /// # Safety
    /// The memory belongs to a [`Buffer`](crate::buffer::Buffer) that outlives the region.
    unsafe fn adopt(&self, location: MemoryLocation, bytes: u64) -> Result<Region>;
    /// Maps the page of the system that has a UAR page of a NIC for kernels.
    ///
    /// # Safety
    /// `page` points to the start of a page of this kind that stay mapped while the mapping lives.
    unsafe fn map_page(&self, page: *mut u8, kind: PageKind) -> Result<Box<dyn Mapping>>;
    /// Returns the kernels of the runtime, or `None` if they run as functions of the program.
    fn runtime_ptx(&self) -> Option<&Ptx> {
        None
    }
    /// Loads kernels. The call may block until no kernel of any PE in this process is running.
    fn load(&self, ptx: &Ptx) -> Result<Code>;
    /// Runs a kernel to completion, concurrently with all streams.
    fn run(&self, step: KernelLaunch) -> Result<()>;
    /// Creates a stream.
    fn queue(&self) -> Result<Box<dyn KernelStream>>;
    /// Wraps a cudarc stream of the application.
    fn queue_of(&self, stream: &Arc<CudaStream>) -> Result<Box<dyn KernelStream>>;
    /// Wraps a stream of the application, given as a `CUstream`.
    ///
    /// # Safety
    /// The stream exists until the result is dropped.
    unsafe fn queue_of_raw(&self, stream: *mut c_void) -> Result<Box<dyn KernelStream>>;
    /// Builds a graph that runs these kernels in order.
    fn record(&self, steps: Vec<KernelLaunch>) -> Result<ExecGraph>;
    /// Returns how many blocks of this shape can be resident if every PE that shares the machine launches as many.
    fn room(&self, kernel: &str, module: Option<&Module>, grid: LaunchConfig) -> Result<u32>;
}
