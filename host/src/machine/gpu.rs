//! A GPU: kernels run as PTX, queues lie in page-locked host memory, the heap in either.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use rushmem_device::Ctx;
use rushmem_device::abi::DevAddr;
use rushmem_device::kernel::Call;
use rushmem_softnic::{AtomicOp, HostBuffer, HostMemory, Memory, MemoryError, Width};

use super::{Exported, HEAP_ALIGN, Machine, Mapped, Mapping, PageKind, Region, Running};
use crate::config::HeapKind;
use crate::cuda::gate;
use crate::cuda::{
    CopyEngine, CudaMemory, Device, DeviceBuffer, Function, HostKind, Module, RegisteredHost, SharedMemory,
    Stream,
};
use crate::memory::Place;
use crate::native::Grid;
use crate::{Error, Ptx, Result};

const PAGE: usize = 4096;

/// Runs kernels on one GPU.
pub(crate) struct Gpu {
    device: Arc<Device>,
    stream: Arc<Stream>,
    copies: Arc<CopyEngine>,
    /// Kernels by name. All modules are loaded before anything runs: a module that is loaded lazily would wait for
    /// the kernel that waits for it.
    kernels: HashMap<String, Function>,
    heap: HeapKind,
    /// PEs that share this GPU.
    sharers: u32,
}

impl Gpu {
    /// Makes a PE's part of `device`, with the kernels of `ptx`.
    ///
    /// # Errors
    /// What the driver refuses, JIT errors of the PTX included.
    pub(crate) fn new(device: Arc<Device>, ptx: &[Ptx], heap: HeapKind, sharers: u32) -> Result<Self> {
        let mut kernels = HashMap::new();
        for ptx in ptx {
            let module = Module::load(&device, ptx.name, ptx.image)?;
            for name in module.kernels() {
                kernels.insert(name.to_string(), module.function(name)?);
            }
        }
        let stream = Arc::new(Stream::new(&device)?);
        let copies = Arc::new(CopyEngine::new(&device)?);
        Ok(Self { device, stream, copies, kernels, heap, sharers: sharers.max(1) })
    }

    fn device_memory(&self, bytes: u64) -> Result<Region> {
        let buffer = Arc::new(DeviceBuffer::zeroed_pages(&self.stream, bytes as usize)?);
        let addr = DevAddr(buffer.address());
        let memory = Arc::new(CudaMemory::new(Arc::clone(&buffer), Arc::clone(&self.copies)));
        Ok(Region { addr, memory, gpu: Some(buffer), file: None })
    }

    fn shared_memory(&self, bytes: u64) -> Result<Region> {
        if !self.device.attributes().virtual_memory_fds {
            let why =
                "its driver cannot export memory as a file descriptor; set RUSHMEM_PEER_PATH=auto".into();
            return Err(Error::Unavailable { what: format!("{} with mapped peers", self.describe()), why });
        }
        let buffer = Arc::new(DeviceBuffer::zeroed_shared(&self.stream, bytes as usize)?);
        let file = buffer.shared().map(SharedMemory::export).transpose()?.map(Arc::new);
        let memory = Arc::new(CudaMemory::new(Arc::clone(&buffer), Arc::clone(&self.copies)));
        Ok(Region { addr: DevAddr(buffer.address()), memory, gpu: Some(buffer), file })
    }

    fn locked_memory(&self, bytes: u64, align: u64) -> Result<Region> {
        let buffer = HostBuffer::aligned(bytes as usize, align as usize);
        let (start, len) = (buffer.as_ptr(), buffer.len() as usize);
        let mapping = register(&self.device, start, len, HostKind::Memory)?;
        Ok(locked(Locked { mapping, memory: buffer }))
    }

    /// Host memory of the user's.
    fn host_buffer(&self, memory: HostMemory) -> Result<Region> {
        let start = memory.host_ptr().map_or(std::ptr::null_mut(), NonNull::as_ptr);
        if !start.addr().is_multiple_of(PAGE) {
            return Err(Error::Unavailable {
                what: format!("a buffer at {start:p} for a GPU"),
                why: "a GPU knows host memory by whole pages; use `Pages`, or memory that begins with a page"
                    .into(),
            });
        }
        let len = (memory.len() as usize).next_multiple_of(PAGE);
        let mapping = register(&self.device, start, len, HostKind::Memory)?;
        Ok(locked(Locked { mapping, memory }))
    }
}

fn locked<M: Memory + 'static>(locked: Locked<M>) -> Region {
    Region { addr: DevAddr(locked.mapping.address()), memory: Arc::new(locked), gpu: None, file: None }
}

fn not_shared() -> Error {
    let why = "only GPU memory is mapped; set RUSHMEM_HEAP=auto, or RUSHMEM_PEER_PATH=auto".into();
    Error::Unavailable { what: "a direct path to a heap in host memory".into(), why }
}

fn register(device: &Arc<Device>, start: *mut u8, bytes: usize, kind: HostKind) -> Result<RegisteredHost> {
    let start = NonNull::new(start).ok_or(Error::Misuse { call: "register", what: "a null page".into() })?;
    // SAFETY: callers keep the pages mapped for longer than the registration.
    Ok(unsafe { RegisteredHost::new(device, start, bytes, kind) }?)
}

impl Machine for Gpu {
    fn describe(&self) -> String {
        let a = self.device.attributes();
        format!("GPU {} ({})", self.device.ordinal(), a.name)
    }

    fn is_gpu(&self) -> bool {
        true
    }

    fn grid(&self) -> Grid {
        let blocks = (self.device.attributes().multiprocessors / self.sharers).max(1);
        Grid { blocks, threads: 256, shared_bytes: 0 }
    }

    fn shared(&self, bytes: u64) -> Result<Region> {
        self.locked_memory(bytes, PAGE as u64)
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
                    let place = self.describe();
                    return Err(Error::HeapTooLarge { wanted: bytes, pes: self.sharers, place, available });
                }
                if shared { self.shared_memory(bytes) } else { self.device_memory(bytes) }
            }
        }
    }

    fn map_heap(&self, heap: Exported) -> Result<Mapped> {
        let (mapping, atomics) = match heap {
            Exported::Here(region) => {
                let Some(memory) = region.gpu.as_ref().and_then(|buffer| buffer.shared()) else {
                    return Err(not_shared());
                };
                // One address space: where its own GPU has it, every GPU that is let in has it.
                memory.let_in(&self.device)?;
                let atomics = memory.native_atomics(&self.device)?;
                (Box::new(region) as Box<dyn Mapping>, atomics)
            }
            Exported::File { file, bytes } => {
                let memory = SharedMemory::import(&self.device, &file, bytes as usize)?;
                let atomics = memory.native_atomics(&self.device)?;
                (Box::new(memory) as Box<dyn Mapping>, atomics)
            }
        };
        Ok(Mapped { mapping, atomics })
    }

    unsafe fn adopt(&self, place: Place, bytes: u64) -> Result<Region> {
        match place {
            // SAFETY: the caller's promise.
            Place::Host(start) => self.host_buffer(unsafe { HostMemory::new(start, bytes) }),
            Place::Gpu(address) => {
                // SAFETY: the caller's promise, but for the GPU, which is checked.
                let buffer = Arc::new(unsafe { DeviceBuffer::of(&self.device, address, bytes as usize) }?);
                let memory = Arc::new(CudaMemory::new(Arc::clone(&buffer), Arc::clone(&self.copies)));
                Ok(Region { addr: DevAddr(address), memory, gpu: Some(buffer), file: None })
            }
        }
    }

    unsafe fn map_page(&self, page: *mut u8, kind: PageKind) -> Result<Box<dyn Mapping>> {
        let kind = match kind {
            PageKind::Memory => HostKind::Memory,
            PageKind::Registers => HostKind::Io,
        };
        Ok(Box::new(Page(register(&self.device, page, PAGE, kind)?)))
    }

    fn launch(&self, ctx: Ctx, grid: Grid, call: Call) -> Result<Box<dyn Running>> {
        let kernel = self.kernels.get(call.name).ok_or_else(|| {
            let mut known: Vec<_> = self.kernels.keys().map(String::as_str).collect();
            known.sort_unstable();
            let why = format!(
                "the PTX given to the job has {}; add its crate with Job::kernels",
                if known.is_empty() { "no kernels".into() } else { known.join(", ") }
            );
            Error::Unavailable { what: format!("kernel {}", call.name), why }
        })?;
        kernel.check_resident(grid, self.sharers)?;
        if grid.shared_bytes > 48 << 10 {
            kernel.set_dynamic_shared(grid.shared_bytes)?;
        }
        let running = gate::kernel();
        let mut arguments: Vec<&[u8]> = vec![bytemuck::bytes_of(ctx.parts())];
        arguments.extend(call.args.iter().map(|argument| &**argument));
        // SAFETY: `#[kernel]` made the arguments from the kernel's own signature, the context first; the PE that they
        // belong to outlives the launch, which `Launch` waits for.
        unsafe { kernel.launch(&self.stream, grid, &arguments) }?;
        Ok(Box::new(OnStream { stream: Arc::clone(&self.stream), _running: running }))
    }
}

/// What runs on the PE's stream.
struct OnStream {
    stream: Arc<Stream>,
    _running: gate::Kernel,
}

impl Running for OnStream {
    fn wait(self: Box<Self>, patience: Duration) -> Result<()> {
        Ok(self.stream.wait(patience)?)
    }
}

impl Mapping for SharedMemory {
    fn addr(&self) -> DevAddr {
        DevAddr(self.address())
    }
}

/// A page of a NIC's, mapped for the GPU.
struct Page(RegisteredHost);

impl Mapping for Page {
    fn addr(&self) -> DevAddr {
        DevAddr(self.0.address())
    }
}

/// Host memory that the GPU sees too. Unlocked before it is freed: fields drop in order.
struct Locked<M> {
    mapping: RegisteredHost,
    memory: M,
}

// SAFETY: the memory is a `Memory` of its own; the registration changes nothing about it.
unsafe impl<M: Memory> Memory for Locked<M> {
    fn len(&self) -> u64 {
        self.memory.len()
    }
    fn host_ptr(&self) -> Option<NonNull<u8>> {
        self.memory.host_ptr()
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), MemoryError> {
        self.memory.read(offset, buf)
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MemoryError> {
        self.memory.write(offset, data)
    }
    fn atomic(&self, offset: u64, width: Width, op: AtomicOp) -> Result<u64, MemoryError> {
        self.memory.atomic(offset, width, op)
    }
    fn flush(&self) -> Result<(), MemoryError> {
        self.memory.flush()
    }
}
