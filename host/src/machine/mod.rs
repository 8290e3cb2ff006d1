//! What executes kernels, and the memory that they see.

mod file;
mod gpu;
mod host_memory;
#[cfg(test)]
mod limited;
mod module;
mod native;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rushmem_device::Ctx;
use rushmem_device::abi::DevAddr;
use rushmem_device::kernel::Call;
use rushmem_softnic::{HostBuffer, Memory};

use cudarc::driver::CudaStream;

use crate::buffer::MemoryLocation;
use crate::cuda::{self, DeviceBuffer, GraphExec};
use crate::{Error, Ptx, Result};

pub use crate::native::Grid;
pub(crate) use gpu::Gpu;
pub(crate) use host_memory::{available_memory, parse_available};
#[cfg(test)]
pub(crate) use limited::LimitedMachine;
pub(crate) use module::{Code, Module};
pub(crate) use native::Native;

/// What pieces of the symmetric heap are aligned to.
pub(crate) const HEAP_ALIGN: u64 = 2 << 20;

/// Memory that kernels see.
#[derive(Clone)]
pub(crate) struct Region {
    /// Its address for kernels.
    pub(crate) addr: DevAddr,
    /// The memory, as the host and a software NIC reach it. Freed with the last handle.
    pub(crate) memory: Arc<dyn Memory>,
    /// The same, if it is a GPU's: what an RDMA device registers, and another GPU maps.
    pub(crate) gpu: Option<Arc<DeviceBuffer>>,
    /// The same as a file, if other processes can map it.
    pub(crate) file: Option<Arc<OwnedFd>>,
}

impl Region {
    /// Page-aligned, zeroed host memory of this process, at its own address.
    pub(crate) fn host(bytes: u64) -> Self {
        let buffer = HostBuffer::new(bytes as usize);
        Self { addr: DevAddr(buffer.as_ptr() as u64), memory: Arc::new(buffer), gpu: None, file: None }
    }

    /// As [`Region::host`], aligned to `align`, a power of two.
    pub(crate) fn host_aligned(bytes: u64, align: u64) -> Self {
        let buffer = HostBuffer::aligned(bytes as usize, align as usize);
        Self { addr: DevAddr(buffer.as_ptr() as u64), memory: Arc::new(buffer), gpu: None, file: None }
    }

    /// Copies bytes in; they are there when it returns.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.memory.write(offset, bytes)?;
        Ok(self.memory.flush()?)
    }

    /// Copies bytes out.
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        Ok(self.memory.read(offset, bytes)?)
    }
}

/// The heap of another PE.
pub(crate) enum PeerHeap {
    /// Of this process.
    Local(Region),
    /// Of another process.
    File {
        /// [`Region::file`] there.
        file: OwnedFd,
        /// Its length.
        bytes: u64,
    },
}

/// Addresses at which kernels find heaps of other PEs, in places of equal size.
pub(crate) trait HeapWindow: Send + Sync {
    /// The address of its first place.
    fn base(&self) -> DevAddr;
    /// Bytes from one place to the next.
    fn stride(&self) -> u64;
    /// Maps a heap at place number `slot`, for as long as the window lives. True if the atomics of all processors that
    /// map it exclude each other.
    fn map(&mut self, slot: u32, heap: PeerHeap) -> Result<bool>;
}

/// Memory of somebody else, such as a page of the NIC's, mapped for kernels for as long as it lives.
pub(crate) trait Mapping: Send + Sync {
    /// Its address for kernels.
    fn addr(&self) -> DevAddr;
}

/// What lies behind a page of the NIC's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageKind {
    /// Memory, which a software NIC looks at.
    Memory,
    /// Registers of a device.
    #[cfg_attr(not(feature = "rdma"), expect(dead_code, reason = "the software ConnectX has none"))]
    Registers,
}

/// Kernels that run one after the other, beside those of other queues.
///
/// Dropping it lets them run to their end first.
pub(crate) trait KernelStream: Send + Sync {
    /// Appends a kernel.
    fn launch(&self, step: KernelLaunch) -> Result<()>;
    /// Appends the kernels of a recording.
    fn launch_graph(&self, recording: &ExecGraph) -> Result<()>;
    /// A mark behind all that is in it now.
    fn record_event(&self) -> Result<Event>;
    /// What is appended from now on begins after all that is before the mark, in whatever queue.
    fn wait_event(&self, mark: &Event) -> Result<()>;
    /// Waits until all that is before a mark of this queue has ended, or until `patience` is over.
    fn wait(&self, mark: &Event, patience: Duration) -> Result<()>;
    /// The mark of a launch that the machine could not run; what follows it does not run.
    fn failed(&self) -> Option<u64> {
        None
    }
    /// Why, once; what is appended afterwards runs again.
    fn take_failure(&self) -> Option<Error> {
        None
    }
}

/// A place in a queue.
#[derive(Clone)]
pub(crate) enum Event {
    Native(Arc<native::Completion>),
    Gpu(Arc<cuda::Event>),
}

/// A kernel with all that its launch needs.
pub(crate) struct KernelLaunch {
    pub(crate) ctx: Ctx,
    pub(crate) grid: Grid,
    pub(crate) call: Call,
    /// Where the kernel is; none for a function of the program that is of no module.
    pub(crate) module: Option<Arc<Module>>,
}

/// Kernels that can be launched again and again.
#[derive(Clone)]
pub(crate) enum ExecGraph {
    Native(Arc<native::NativeGraph>),
    Gpu(Arc<GraphExec>),
}

/// What is wrong with a mark or a recording of a PE with another machine.
fn other_machine() -> Error {
    Error::Misuse { call: "stream", what: "it belongs to a PE that runs on another machine".into() }
}

/// Executes kernels for one PE.
pub(crate) trait Machine: Send + Sync {
    /// A line for users.
    fn describe(&self) -> String;
    /// Its number, if it is a GPU.
    fn gpu(&self) -> Option<u32>;
    /// True for a GPU.
    fn is_gpu(&self) -> bool {
        self.gpu().is_some()
    }
    /// A grid that fills its share of the machine, all blocks of which run at once.
    fn grid(&self) -> Grid;
    /// Host memory that kernels see too, zeroed and page-aligned: queues, the control page.
    fn shared(&self, bytes: u64) -> Result<Region>;
    /// Memory where kernels reach it fastest, zeroed: counters, descriptors.
    fn local(&self, bytes: u64) -> Result<Region>;
    /// A piece of the symmetric heap, zeroed, at a multiple of [`HEAP_ALIGN`] where the machine can do that; `shared` if
    /// other PEs are to map it.
    fn heap(&self, bytes: u64, shared: bool) -> Result<Region>;
    /// NativeHeapWindow for `slots` heaps of other PEs, of `bytes` bytes each.
    fn window(&self, slots: u32, bytes: u64) -> Result<Box<dyn HeapWindow>>;
    /// Makes memory of the user's, which is not copied, known to kernels and to NICs.
    ///
    /// # Safety
    /// The memory is that of a [`Buffer`](crate::buffer::Buffer), which is kept for longer than the region.
    unsafe fn adopt(&self, location: MemoryLocation, bytes: u64) -> Result<Region>;
    /// Maps a page of the NIC's for kernels.
    ///
    /// # Safety
    /// `page` is 4096 bytes of this kind that stay mapped while the mapping lives.
    unsafe fn map_page(&self, page: *mut u8, kind: PageKind) -> Result<Box<dyn Mapping>>;
    /// Makes kernels ready to be launched. It may wait until no kernel of this process's PEs runs.
    fn load(&self, ptx: &Ptx) -> Result<Code>;
    /// Runs a kernel to its end, beside all queues.
    fn run(&self, step: KernelLaunch, patience: Duration) -> Result<()>;
    /// A queue of its own.
    fn queue(&self) -> Result<Box<dyn KernelStream>>;
    /// A queue that is a stream of the application's.
    fn queue_of(&self, stream: &Arc<CudaStream>) -> Result<Box<dyn KernelStream>>;
    /// Makes kernels ready to be launched together, in this order.
    fn record(&self, steps: Vec<KernelLaunch>) -> Result<ExecGraph>;
    /// Blocks of this shape of a kernel that all run at once, while every PE that shares the machine has as many.
    fn room(&self, kernel: &str, module: Option<&Module>, grid: Grid) -> Result<u32>;
}
