//! A GPU as a machine: kernels run as PTX. Queues live in page-locked host memory, the heap in host or GPU memory.
#![allow(unsafe_code, reason = "registers user memory with the driver and launches kernels")]

use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use cudarc::driver::CudaStream;
use rushmem_base::Ptx;
use rushmem_base::lock;
use rushmem_config::HeapKind;
use rushmem_cuda::{
    self as cuda, Capability, CopyEngine, CudaMemory, Device, DeviceBuffer, Event, Function, GraphExec,
    GraphNode, HostKind, Image, PeerBuffer, PeerMappings, RegisteredHost, SharedMemory, Stream,
    driver_gate::{self, DRIVER_GATE, KernelQueue},
};
use rushmem_error::{Error, Result};
use rushmem_native::LaunchConfig;

use rushmem_device::abi::CtxParts;
use rushmem_device::abi::DevAddr;
use rushmem_device::kernel::Call;
use rushmem_softnic::{HostMemory, Memory, MemoryAddr, MemoryKind, page_size};

use super::{
    Code, ExecGraph, ExportedMemory, HEAP_ALIGN, HeapWindow, KernelLaunch, KernelStream, Layout, Machine,
    Mapping, Module, PageKind, PeerMemory, Queued, Region, RuntimePtx, other_machine,
};
use crate::buffer::MemoryLocation;

/// Runs the kernels of one PE on a GPU.
pub struct Gpu {
    device: Arc<Device>,
    /// For fills and copies while no kernel of this PE runs, such as zeroing new allocations.
    stream: Arc<Stream>,
    copies: Arc<CopyEngine>,
    /// Streams of past [`Machine::run`] calls, for reuse. Each concurrent call takes its own.
    idle: Mutex<Vec<GpuStream>>,
    heap: HeapKind,
    sharers: u32,
    /// Overrides the GPU's architecture in the choice of PTX.
    arch: Option<Capability>,
    job: driver_gate::JobId,
    runtime: Ptx,
}

impl Gpu {
    /// Creates one PE's share of `device`, which `sharers` PEs use. `own` has the kernels of the runtime. If given,
    /// `arch` overrides the GPU's architecture in the choice of PTX.
    ///
    /// # Errors
    /// The errors of the driver.
    pub fn new(
        device: Arc<Device>,
        heap: HeapKind,
        sharers: u32,
        arch: Option<Capability>,
        job: driver_gate::JobId,
        own: RuntimePtx,
    ) -> Result<Self> {
        let stream = Arc::new(Stream::new(&device)?);
        let Ptx { name, image: ptx, code, .. } = own.service;
        let copies = CopyEngine::shared(&device, Some(&Image { name, ptx, code, arch }))?;
        let idle = Mutex::default();
        Ok(Self {
            device,
            stream,
            copies,
            idle,
            heap,
            sharers: sharers.max(1),
            arch,
            job,
            runtime: own.operations,
        })
    }

    fn region(&self, addr: DevAddr, buffer: Arc<DeviceBuffer>, file: Option<Arc<OwnedFd>>) -> Region {
        let memory = CudaMemory::new(Arc::clone(&buffer), Arc::clone(&self.copies));
        let host = Arc::new(memory.for_host());
        Region { addr, memory: Arc::new(memory), host: Some(host), gpu: Some(buffer), locked_for: None, file }
    }

    fn device_memory(&self, bytes: u64) -> Result<Region> {
        let buffer = Arc::new(DeviceBuffer::zeroed_pages(&self.stream, bytes as usize)?);
        let addr = DevAddr(buffer.address());
        Ok(self.region(addr, buffer, None))
    }

    fn shared_memory(&self, bytes: u64) -> Result<Region> {
        if !self.device.attributes().virtual_memory_fds {
            // Fail here, with a remedy, since the driver's own error does not say what is missing.
            let why =
                "its driver cannot export memory as a file descriptor; set RUSHMEM_PEER_PATH=auto".into();
            return Err(Error::Unavailable { what: format!("{} with mapped peers", self.describe()), why });
        }
        let buffer = Arc::new(DeviceBuffer::zeroed_shared(&self.stream, bytes as usize)?);
        let file = buffer.shared().map(SharedMemory::export).transpose()?.map(Arc::new);
        Ok(self.region(DevAddr(buffer.address()), buffer, file))
    }

    fn locked_memory(&self, bytes: u64, align: u64) -> Result<Region> {
        let buffer = super::host_buffer(bytes, align)?;
        let mapping = register(&self.device, buffer.as_ptr(), buffer.len() as usize, HostKind::Memory)?;
        Ok(locked(buffer, 0, mapping))
    }

    fn host_buffer(&self, memory: HostMemory) -> Result<Region> {
        let start = memory.as_ptr();
        // GPUs map whole pages, so register the pages around the memory.
        let (before, len) = pages_around(start.addr(), memory.len() as usize, page_size());
        let mapping = register(&self.device, start.wrapping_sub(before), len, HostKind::Memory)?;
        Ok(locked(memory, before as u64, mapping))
    }
}

/// Returns how far into its page `start` is, and the length of the pages that contain the `len` bytes from there.
const fn pages_around(start: usize, len: usize, page: usize) -> (usize, usize) {
    let before = start % page;
    (before, (before + len).next_multiple_of(page))
}

/// Returns the region of host memory that starts `before` bytes into a mapping for the GPU.
fn locked<P: Send + Sync + 'static>(memory: HostMemory<P>, before: u64, mapping: RegisteredHost) -> Region {
    let (address, locked_for) = (mapping.address() + before, Some(mapping.device().ordinal()));
    let place = MemoryAddr { address, kind: MemoryKind::PageLocked };
    let memory = Arc::new(memory.registered(place, mapping));
    Region { addr: DevAddr(address), memory, host: None, gpu: None, locked_for, file: None }
}

fn not_shared() -> Error {
    let why = "only GPU memory is mapped; set RUSHMEM_HEAP=auto, or RUSHMEM_PEER_PATH=auto".into();
    Error::Unavailable { what: "a P2P mapping of a heap in host memory".into(), why }
}

/// Returns the error for a P2P mapping of host memory that is page-locked for another GPU.
fn not_atomic() -> Error {
    let why = "several GPUs lose each other's atomic updates there; use GPU memory".into();
    Error::Unavailable { what: "a P2P mapping of host memory".into(), why }
}

/// Returns the error for a heap in GPU memory that was not allocated as shared memory.
fn not_allocated() -> Error {
    Error::Unavailable { what: "a mapping of this heap".into(), why: "it is not shared memory".into() }
}

fn register(device: &Arc<Device>, start: *mut u8, bytes: usize, kind: HostKind) -> Result<RegisteredHost> {
    let start = NonNull::new(start).ok_or(Error::misuse("register", "a null page"))?;
    // SAFETY: callers keep the pages mapped for longer than the registration.
    Ok(unsafe { RegisteredHost::new(device, start, bytes, kind) }?)
}

impl Machine for Gpu {
    fn describe(&self) -> String {
        let a = self.device.attributes();
        format!("GPU {} ({})", self.device.ordinal(), a.name)
    }

    fn gpu(&self) -> Option<u32> {
        Some(self.device.ordinal())
    }

    fn grid(&self, beside_nic: bool) -> LaunchConfig {
        // The service kernel needs a multiprocessor to access a heap in GPU memory for the NIC. If the application's
        // kernels occupied all of them and waited for that access, both would wait forever.
        let spare = u32::from(beside_nic && self.heap != HeapKind::Host);
        let blocks = ((self.device.attributes().multiprocessors - spare) / self.sharers).max(1);
        LaunchConfig::new(blocks, 256)
    }

    fn shared(&self, bytes: u64) -> Result<Region> {
        self.locked_memory(bytes, page_size() as u64)
    }

    fn local(&self, bytes: u64) -> Result<Region> {
        self.device_memory(bytes)
    }

    fn heap(&self, bytes: u64, shared: bool) -> Result<Region> {
        match self.heap {
            HeapKind::Host if shared => Err(not_shared()),
            HeapKind::Host => self.locked_memory(bytes, HEAP_ALIGN),
            HeapKind::Auto | HeapKind::Device => {
                let available = self.device.free_memory()?;
                if bytes > available {
                    let memory = self.describe();
                    return Err(Error::HeapTooLarge { wanted: bytes, pes: self.sharers, memory, available });
                }
                if shared { self.shared_memory(bytes) } else { self.device_memory(bytes) }
            }
        }
    }

    fn inherit(&self, exported: &ExportedMemory, bytes: u64) -> Result<Region> {
        let file = exported.file()?;
        let buffer = Arc::new(DeviceBuffer::inherited(&self.stream, file, bytes as usize)?);
        Ok(self.region(DevAddr(buffer.address()), buffer, Some(Arc::clone(file))))
    }

    fn clear(&self, heap: &Region, from: u64) -> Result<()> {
        match &heap.gpu {
            Some(buffer) if heap.file.is_some() => {
                Ok(buffer.fill(&self.stream, from as usize, buffer.len() - from as usize, 0)?)
            }
            _ => Ok(()),
        }
    }

    fn export(&self, region: &Region) -> Result<ExportedMemory, String> {
        match &region.gpu {
            Some(buffer) if region.file.is_none() => {
                let exported = buffer.export().map_err(|error| error.to_string())?;
                ExportedMemory::of_buffer(exported).map_err(|error| error.to_string())
            }
            _ => ExportedMemory::whole(region),
        }
    }

    fn map(&self, memory: PeerMemory) -> Result<Box<dyn Mapping>> {
        match &memory {
            PeerMemory::Local(region) => match &region.gpu {
                Some(buffer) if buffer.shared().is_some() => self.map_whole(region.memory.len(), memory),
                Some(buffer) => Ok(Box::new(PeerBuffer::of_process(&self.device, buffer)?)),
                None if self.reaches_locked(region) => Ok(Box::new(region.clone())),
                None => Err(not_atomic()),
            },
            PeerMemory::Remote { exported, bytes } if exported.layout == Layout::Whole => {
                self.map_whole(*bytes, memory)
            }
            PeerMemory::Remote { exported, .. } => {
                Ok(Box::new(PeerBuffer::open(&self.device, &exported.buffer()?)?))
            }
        }
    }

    fn window(&self, slots: u32, bytes: u64) -> Result<Box<dyn HeapWindow>> {
        Ok(Box::new(PeerMappings::new(&self.device, slots as usize, bytes as usize)?))
    }

    unsafe fn adopt(&self, location: MemoryLocation, bytes: u64) -> Result<Region> {
        match location {
            MemoryLocation::Host(start) => {
                // SAFETY: promised by the caller.
                self.host_buffer(unsafe { HostMemory::from_raw_parts(start, bytes, ()) })
            }
            MemoryLocation::PageLocked(start) => {
                // SAFETY: promised by the caller.
                let memory = unsafe { HostMemory::from_raw_parts(start, bytes, ()) };
                // SAFETY: as above. The owner of the memory keeps it page-locked.
                let mapping = unsafe { RegisteredHost::page_locked(&self.device, start, bytes as usize) }?;
                Ok(locked(memory, 0, mapping))
            }
            MemoryLocation::Gpu(address) => {
                // SAFETY: promised by the caller, except for the GPU, which is checked.
                let buffer =
                    Arc::new(unsafe { DeviceBuffer::from_address(&self.device, address, bytes as usize) }?);
                Ok(self.region(DevAddr(address), buffer, None))
            }
        }
    }

    unsafe fn map_page(&self, page: *mut u8, kind: PageKind) -> Result<Box<dyn Mapping>> {
        let kind = match kind {
            PageKind::Memory => HostKind::Memory,
            PageKind::Registers => HostKind::Io,
        };
        Ok(Box::new(Page(register(&self.device, page, page_size(), kind)?)))
    }

    fn runtime_ptx(&self) -> Option<&Ptx> {
        Some(&self.runtime)
    }

    fn load(&self, ptx: &Ptx) -> Result<Code> {
        let &Ptx { name, image: ptx, omitted, code } = ptx;
        if ptx.is_empty() {
            let why = format!("there is no PTX of it: {omitted}");
            return Err(Error::Unavailable { what: format!("{name} on a GPU"), why });
        }
        Ok(Code::Gpu(cuda::Module::load_kernels(&self.device, &Image { name, ptx, code, arch: self.arch })?))
    }

    fn run(&self, step: KernelLaunch) -> Result<()> {
        let kept = self.idle().pop();
        let queue = match kept {
            Some(queue) => queue,
            None => self.kernel_stream(Stream::new(&self.device)?),
        };
        let outcome = queue.launch(step);
        let outcome = outcome.and_then(|_| Ok(queue.stream.wait(Duration::MAX)?));
        self.idle().push(queue);
        outcome
    }

    fn queue(&self) -> Result<Box<dyn KernelStream>> {
        Ok(Box::new(self.kernel_stream(Stream::new(&self.device)?)))
    }

    fn queue_of(&self, stream: &Arc<CudaStream>) -> Result<Box<dyn KernelStream>> {
        Ok(Box::new(self.kernel_stream(Stream::from_cudarc(&self.device, stream)?)))
    }

    unsafe fn queue_of_raw(&self, stream: *mut c_void) -> Result<Box<dyn KernelStream>> {
        // SAFETY: promised by the caller.
        let stream = unsafe { Stream::from_raw(&self.device, stream) }?;
        Ok(Box::new(self.kernel_stream(stream)))
    }

    fn record(&self, steps: Vec<KernelLaunch>) -> Result<ExecGraph> {
        let mut nodes = Vec::with_capacity(steps.len());
        let mut fills_gpu = false;
        // A graph counts as filling the GPU if any of its kernels does.
        for KernelLaunch { ctx, grid, call, module } in &steps {
            let function = prepare(module.as_deref(), call.name(), *grid)?;
            fills_gpu |= function.fills_gpu(*grid, self.sharers)?;
            nodes.push(GraphNode { function, grid: *grid, arguments: arguments(ctx, call) });
        }
        // SAFETY: see `launch`; the graph borrows the PE that the arguments belong to.
        let graph = unsafe { GraphExec::new(&Stream::new(&self.device)?, &nodes) }?;
        Ok(ExecGraph::Gpu(Arc::new(GpuGraph { graph, fills_gpu })))
    }

    fn room(&self, kernel: &str, module: Option<&Module>, grid: LaunchConfig) -> Result<u32> {
        Ok(prepare(module, kernel, grid)?.max_resident_blocks(grid.threads(), grid.shared_bytes())?
            / self.sharers)
    }
}

impl Gpu {
    /// Maps shared memory of `bytes` bytes.
    fn map_whole(&self, bytes: u64, memory: PeerMemory) -> Result<Box<dyn Mapping>> {
        let mut window = PeerMappings::new(&self.device, 1, bytes as usize)?;
        HeapWindow::map(&mut window, 0, memory)?;
        Ok(Box::new(window))
    }

    /// Returns whether kernels may access this page-locked memory of another PE. All GPUs reach it, but without native
    /// host atomics two GPUs would lose each other's updates.
    fn reaches_locked(&self, region: &Region) -> bool {
        self.device.attributes().host_native_atomics || region.locked_for == Some(self.device.ordinal())
    }

    fn idle(&self) -> MutexGuard<'_, Vec<GpuStream>> {
        lock(&self.idle)
    }

    fn kernel_stream(&self, stream: Stream) -> GpuStream {
        let (copies, sharers, job) = (Arc::clone(&self.copies), self.sharers, self.job);
        GpuStream { stream: Arc::new(stream), copies, sharers, job }
    }
}

/// Finds a kernel and checks that it can be launched with this shape.
fn prepare<'a>(module: Option<&'a Module>, name: &str, grid: LaunchConfig) -> Result<&'a Function> {
    let kernel = module.and_then(|module| module.function(name)).ok_or_else(other_machine)?;
    let attributes = kernel.attributes();
    if grid.threads() > attributes.max_threads {
        let (what, most) =
            (format!("{name} with {} threads a block", grid.threads()), attributes.max_threads);
        let why = format!("it uses {} registers a thread: a block has {most} at most", attributes.registers);
        return Err(Error::Unavailable { what, why });
    }
    // Above the default limit of 48 KiB, a kernel needs an explicit opt-in.
    if grid.shared_bytes() > 48 << 10 {
        kernel.set_dynamic_shared(grid.shared_bytes())?;
    }
    Ok(kernel)
}

/// Returns the bytes of the kernel's arguments. The context comes first, as `#[kernel]` expects.
fn arguments<'a>(ctx: &'a CtxParts, call: &'a Call) -> Vec<&'a [u8]> {
    let mut arguments: Vec<&[u8]> = vec![bytemuck::bytes_of(ctx)];
    arguments.extend(call.args());
    arguments
}

/// A CUDA graph of kernels.
pub struct GpuGraph {
    graph: GraphExec,
    /// Whether one of its kernels occupies all multiprocessors.
    fills_gpu: bool,
}

struct GpuStream {
    stream: Arc<Stream>,
    copies: Arc<CopyEngine>,
    sharers: u32,
    job: driver_gate::JobId,
}

impl GpuStream {
    /// Runs `launch` with the driver gate held open for this job. If the launch fills the GPU, no service kernel starts
    /// until it has completed, since the two could block each other.
    fn guarded(&self, fills_gpu: bool, launch: impl FnOnce() -> Result<(), cuda::Error>) -> Result<Queued> {
        let launching = DRIVER_GATE.begin_launch(self.job);
        // Before the launch: once it runs, nothing may fail until the gate knows of it.
        let is_captured = self.stream.is_capturing()?;
        let bar = if fills_gpu { self.copies.bar() } else { None };
        if let Err(error) = launch() {
            if let Some(bar) = bar {
                bar.cancel();
            }
            return Err(error.into());
        }
        // A captured launch does not run now. Querying a capturing stream is an error, so the gate must not poll it.
        if !is_captured {
            // Register the stream before `launching` is dropped: until then, the gate counts the launch itself as
            // running.
            launching.watch(&self.stream);
            bar.map(|bar| bar.end_after(&self.stream)).transpose()?;
            return Ok(Queued::Runs);
        }
        if bar.is_some() {
            tracing::debug!(
                "a captured kernel may run at any time and fills the GPU: no service kernel runs from now on"
            );
        }
        Ok(Queued::Captured)
    }
}

impl KernelStream for GpuStream {
    fn launch(&self, step: KernelLaunch) -> Result<Queued> {
        let KernelLaunch { ctx, grid, call, module } = step;
        let kernel = prepare(module.as_deref(), call.name(), grid)?;
        let fills_gpu = kernel.fills_gpu(grid, self.sharers)?;
        // SAFETY: `#[kernel]` made the arguments from the kernel's own signature, the context first. The PE that they
        // belong to waits for all queued launches before it is dropped.
        let launch = || unsafe { kernel.launch(&self.stream, grid, &arguments(&ctx, &call)) };
        self.guarded(fills_gpu, launch)
    }

    fn launch_graph(&self, recording: &ExecGraph) -> Result<()> {
        let ExecGraph::Gpu(graph) = recording else { return Err(other_machine()) };
        // SAFETY: see `launch`; the launcher keeps the graph until it has waited for the stream.
        self.guarded(graph.fills_gpu, || unsafe { graph.graph.launch(&self.stream) }).map(drop)
    }

    fn record_event(&self) -> Result<super::Event> {
        let event = Event::new(self.stream.device())?;
        event.record(&self.stream)?;
        Ok(super::Event::Gpu(Arc::new(event)))
    }

    fn wait_event(&self, event: &super::Event) -> Result<()> {
        let super::Event::Gpu(event) = event else { return Err(other_machine()) };
        Ok(self.stream.wait_event(event)?)
    }

    fn wait(&self, event: &super::Event) -> Result<()> {
        let super::Event::Gpu(event) = event else { return Err(other_machine()) };
        // No deadline: kernels return, or the watchdog terminates the process.
        Ok(event.wait(Duration::MAX)?)
    }

    fn is_capturing(&self) -> Result<bool> {
        Ok(self.stream.is_capturing()?)
    }

    fn is_busy(&self) -> bool {
        self.stream.is_busy()
    }
}

impl Drop for GpuStream {
    fn drop(&mut self) {
        // Synchronizing would invalidate the user's capture.
        let captured = self.stream.is_capturing().unwrap_or(false);
        if !captured && let Err(error) = self.stream.synchronize() {
            tracing::debug!("a stream ended with an error: {error}");
        }
        DRIVER_GATE.forget(&self.stream);
    }
}

impl HeapWindow for PeerMappings {
    fn base(&self) -> DevAddr {
        DevAddr(self.address())
    }

    fn stride(&self) -> u64 {
        PeerMappings::stride(self)
    }

    fn map(&mut self, slot: u32, heap: PeerMemory) -> Result<bool> {
        match heap {
            PeerMemory::Local(region) => {
                let buffer = region.gpu.as_ref().ok_or_else(not_atomic)?;
                let memory = buffer.shared().ok_or_else(not_allocated)?;
                Ok(self.map_memory(slot as usize, memory)?)
            }
            PeerMemory::Remote { exported, .. } => Ok(self.map_file(slot as usize, exported.file()?)?),
        }
    }
}

impl Mapping for PeerMappings {
    fn addr(&self) -> DevAddr {
        DevAddr(self.address())
    }
}

impl Mapping for PeerBuffer {
    fn addr(&self) -> DevAddr {
        DevAddr(self.address())
    }
}

/// A page of a NIC, registered with the GPU.
struct Page(RegisteredHost);

impl Mapping for Page {
    fn addr(&self) -> DevAddr {
        DevAddr(self.0.address())
    }
}

#[cfg(test)]
mod tests {
    use super::pages_around;

    #[test]
    fn whole_pages_of_the_system_are_registered() {
        let (small, large) = (4 << 10, 64 << 10);
        assert_eq!(pages_around(0x1_2345, 100, small), (0x345, small));
        assert_eq!(pages_around(0x1_2345, 100, large), (0x2345, large));
        assert_eq!(pages_around(0x1_ff00, 0x101, large), (0xff00, 2 * large));
    }
}
