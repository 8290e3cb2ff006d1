//! The CPU as a machine: kernels run as native code on the cores of this process.
#![allow(unsafe_code, reason = "adopts user memory at its own address")]

mod queue;

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::CudaStream;
use rushmem_base::Ptx;
use rushmem_base::{cores, pes_per_core};
use rushmem_device::abi::DevAddr;
use rushmem_error::{Error, Result};
use rushmem_native::{self as native, LaunchConfig, Observer, Options, WaitChannel};
use rushmem_observe::sanitize::{LaunchObserver, LaunchWatch, PeWatch};
use rushmem_observe::trace::{LaunchTrace, PeTrace, StreamTrace, TraceObserver};
use rushmem_softnic::HostMemory;

use super::{
    Code, ExecGraph, ExportedMemory, HEAP_ALIGN, HeapWindow, KernelLaunch, KernelStream, Machine, Mapping,
    Module, PageKind, PeerMemory, Region, available_memory, file,
};

use crate::buffer::MemoryLocation;

use queue::NativeStream;
pub(crate) use queue::{Completion, NativeGraph};

/// Largest number of PEs per core at which the default launch shape still has several blocks.
const MAX_PES_PER_CORE_WITH_SEVERAL_BLOCKS: u32 = 16;

/// Runs the kernels of one PE on the native GPU emulator.
pub struct Native {
    options: Options,
    channel: Arc<WaitChannel>,
    watch: PeWatch,
    trace: PeTrace,
    /// Timeline of the launches by [`Machine::run`], which use no stream.
    own: StreamTrace,
}

impl Native {
    /// Creates a machine with these emulator options. No sanitizer or timeline observes it.
    pub fn new(options: Options) -> Self {
        let channel = Arc::<WaitChannel>::default();
        let options = Options { channel: Some(Arc::clone(&channel)), ..options };
        Self {
            options,
            channel,
            watch: PeWatch::default(),
            trace: PeTrace::default(),
            own: PeTrace::default().operations(),
        }
    }

    /// Reports all launches to the sanitizer.
    pub fn watched_by(self, watch: PeWatch) -> Self {
        Self { watch, ..self }
    }

    /// Records all launches on the timeline.
    pub fn traced_by(self, trace: PeTrace) -> Self {
        let own = trace.operations();
        Self { trace, own, ..self }
    }

    fn sharers(&self) -> u32 {
        self.options.sharers.max(1)
    }
}

impl Machine for Native {
    fn describe(&self) -> String {
        format!("native kernels on {} CPU cores", cores())
    }

    fn gpu(&self) -> Option<u32> {
        None
    }

    fn wait_channel(&self) -> Option<&Arc<WaitChannel>> {
        Some(&self.channel)
    }

    fn grid(&self, _: bool) -> LaunchConfig {
        // Every lane needs a stack, so PEs that share a core with many others get a single block.
        let blocks = match pes_per_core(self.sharers()) {
            0..=MAX_PES_PER_CORE_WITH_SEVERAL_BLOCKS => cores().div_ceil(self.sharers()).clamp(1, 16) * 2,
            _ => 1,
        };
        LaunchConfig::new(blocks, 32)
    }

    fn shared(&self, bytes: u64) -> Result<Region> {
        Region::host(bytes)
    }

    fn local(&self, bytes: u64) -> Result<Region> {
        Region::host(bytes)
    }

    fn heap(&self, bytes: u64, shared: bool) -> Result<Region> {
        if let Some(available) = available_memory().filter(|&available| bytes > available) {
            let memory = "this machine's memory".into();
            return Err(Error::HeapTooLarge { wanted: bytes, pes: 1, memory, available });
        }
        if shared { file::region(bytes) } else { Region::host_aligned(bytes, HEAP_ALIGN) }
    }

    fn inherit(&self, exported: &ExportedMemory, bytes: u64) -> Result<Region> {
        file::inherit(exported.file()?, bytes)
    }

    fn clear(&self, heap: &Region, from: u64) -> Result<()> {
        heap.file.as_ref().map_or(Ok(()), |file| file::clear(file, from, heap.memory.len()))
    }

    fn map(&self, memory: PeerMemory) -> Result<Box<dyn Mapping>> {
        match memory {
            PeerMemory::Local(region) => Ok(Box::new(region)),
            PeerMemory::Remote { bytes, .. } => {
                let mut window = file::NativeHeapWindow::new(1, bytes)?;
                window.map(0, memory)?;
                Ok(Box::new(window))
            }
        }
    }

    fn window(&self, slots: u32, bytes: u64) -> Result<Box<dyn HeapWindow>> {
        Ok(Box::new(file::NativeHeapWindow::new(slots, bytes)?))
    }

    unsafe fn adopt(&self, location: MemoryLocation, bytes: u64) -> Result<Region> {
        match location {
            MemoryLocation::Host(start) | MemoryLocation::PageLocked(start) => {
                // SAFETY: promised by the caller.
                let memory = unsafe { HostMemory::from_raw_parts(start, bytes, ()) };
                let (addr, memory) = (DevAddr(start.as_ptr() as u64), Arc::new(memory));
                Ok(Region { addr, memory, host: None, gpu: None, locked_for: None, file: None })
            }
            MemoryLocation::Gpu(_) => Err(Error::Unavailable {
                what: "a buffer in GPU memory".into(),
                why: "native kernels cannot access it".into(),
            }),
        }
    }

    unsafe fn map_page(&self, page: *mut u8, _: PageKind) -> Result<Box<dyn Mapping>> {
        Ok(Box::new(IdentityMapping(DevAddr(page as u64))))
    }

    fn load(&self, _: &Ptx) -> Result<Code> {
        Ok(Code::Native)
    }

    fn run(&self, step: KernelLaunch) -> Result<()> {
        let trace = self.own.launch(step.grid, &step.call);
        run(&step, &self.options, self.watch.launch(step.grid, &step.call), trace)
    }

    fn queue(&self) -> Result<Box<dyn KernelStream>> {
        Ok(Box::new(NativeStream::start(self.options.clone(), self.watch.clone(), self.trace.stream())?))
    }

    fn queue_of(&self, _: &Arc<CudaStream>) -> Result<Box<dyn KernelStream>> {
        Err(no_cuda_stream())
    }

    unsafe fn queue_of_raw(&self, _: *mut c_void) -> Result<Box<dyn KernelStream>> {
        Err(no_cuda_stream())
    }

    fn record(&self, steps: Vec<KernelLaunch>) -> Result<ExecGraph> {
        Ok(ExecGraph::Native(Arc::new(NativeGraph::new(steps))))
    }

    fn room(&self, _: &str, _: Option<&Module>, grid: LaunchConfig) -> Result<u32> {
        let (threads, shared_bytes) = (grid.threads(), grid.shared_bytes());
        if !(1..=native::MAX_THREADS).contains(&threads) || shared_bytes > native::MAX_SHARED_BYTES {
            return Err(native::Error::LaunchConfig(grid).into());
        }
        Ok(native::max_lanes() / self.sharers() / threads)
    }
}

fn no_cuda_stream() -> Error {
    let why = "kernels run natively; set RUSHMEM_DEVICE=gpu".into();
    Error::Unavailable { what: "a CUDA stream for kernels".into(), why }
}

/// Runs a kernel to completion on the native emulator. The calling thread executes lanes, too.
fn run(
    step: &KernelLaunch,
    options: &Options,
    watch: Option<Arc<LaunchWatch>>,
    trace: Option<Arc<LaunchTrace>>,
) -> Result<()> {
    let observer = watch.clone().map(|watch| Arc::new(LaunchObserver(watch)) as Arc<dyn Observer>);
    // A launch has one observer. The sanitizer takes precedence over the timeline.
    let observer = observer.or_else(|| Some(Arc::new(TraceObserver(trace.clone()?)) as _));
    let (pe, kernel) = (Some(step.ctx.pe), Some(step.call.name()));
    let options = Options { pe, kernel, observer, ..options.clone() };
    // SAFETY: the PE keeps the memory at the addresses of the context, and the launch keeps its segment table.
    let ran = native::launch(step.grid, &options, || unsafe { step.call.run_native(&step.ctx) });
    watch.iter().for_each(|watch| watch.end());
    Ok(ran?)
}

/// A page that kernels access at its own address.
struct IdentityMapping(DevAddr);

impl Mapping for IdentityMapping {
    fn addr(&self) -> DevAddr {
        self.0
    }
}
