//! A native [`Machine`] for tests that refuses to map peers' heaps or NIC pages.
#![allow(unsafe_code, reason = "forwards unsafe calls to the native machine")]

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::CudaStream;
use rushmem_base::Ptx;
use rushmem_error::{Error, Result};
use rushmem_native::WaitChannel;

use super::{
    Code, ExecGraph, ExportedMemory, HeapWindow, KernelLaunch, KernelStream, LaunchConfig, Machine, Mapping,
    Module, Native, PageKind, PeerMemory, Region,
};
use crate::buffer::MemoryLocation;

/// A native machine that refuses to map peers' heaps or NIC pages, as its constructors say.
pub struct LimitedMachine {
    native: Native,
    windows: bool,
    direct: bool,
    pages: fn(PageKind) -> bool,
    gpu: Option<u32>,
}

impl LimitedMachine {
    /// Creates a machine that refuses to map the heaps of other PEs.
    pub fn without_windows() -> Self {
        Self {
            native: Native::new(Default::default()),
            windows: false,
            direct: true,
            pages: |_| true,
            gpu: None,
        }
    }

    /// Creates a machine that maps other PEs' heaps into windows, but no other memory of theirs.
    pub fn without_direct_memory() -> Self {
        Self { windows: true, direct: false, ..Self::without_windows() }
    }

    /// Creates a machine that claims to be GPU 0, although its memory is host memory.
    pub fn like_a_gpu() -> Self {
        Self { gpu: Some(0), ..Self::without_windows() }
    }

    /// Creates a machine that maps only the NIC pages for which `pages` returns `true`.
    pub fn with_pages(pages: fn(PageKind) -> bool) -> Self {
        Self { pages, windows: true, ..Self::without_windows() }
    }
}

fn no_map<M>() -> Result<M> {
    Err(Error::Unavailable { what: "a mapping".into(), why: "this machine maps nothing".into() })
}

impl Machine for LimitedMachine {
    fn describe(&self) -> String {
        self.native.describe()
    }
    fn gpu(&self) -> Option<u32> {
        self.gpu
    }
    fn wait_channel(&self) -> Option<&Arc<WaitChannel>> {
        self.native.wait_channel()
    }
    fn grid(&self, beside_nic: bool) -> LaunchConfig {
        self.native.grid(beside_nic)
    }
    fn shared(&self, bytes: u64) -> Result<Region> {
        self.native.shared(bytes)
    }
    fn local(&self, bytes: u64) -> Result<Region> {
        self.native.local(bytes)
    }
    fn heap(&self, bytes: u64, shared: bool) -> Result<Region> {
        self.native.heap(bytes, shared)
    }
    fn inherit(&self, exported: &ExportedMemory, bytes: u64) -> Result<Region> {
        self.native.inherit(exported, bytes)
    }
    fn clear(&self, heap: &Region, from: u64) -> Result<()> {
        self.native.clear(heap, from)
    }
    fn map(&self, memory: PeerMemory) -> Result<Box<dyn Mapping>> {
        if self.direct { self.native.map(memory) } else { no_map() }
    }
    fn window(&self, slots: u32, bytes: u64) -> Result<Box<dyn HeapWindow>> {
        if self.windows { self.native.window(slots, bytes) } else { no_map() }
    }
    unsafe fn adopt(&self, location: MemoryLocation, bytes: u64) -> Result<Region> {
        // SAFETY: promised by the caller.
        unsafe { self.native.adopt(location, bytes) }
    }
    unsafe fn map_page(&self, page: *mut u8, kind: PageKind) -> Result<Box<dyn Mapping>> {
        if !(self.pages)(kind) {
            return no_map();
        }
        // SAFETY: promised by the caller.
        unsafe { self.native.map_page(page, kind) }
    }
    fn load(&self, ptx: &Ptx) -> Result<Code> {
        self.native.load(ptx)
    }
    fn run(&self, step: KernelLaunch) -> Result<()> {
        self.native.run(step)
    }
    fn queue(&self) -> Result<Box<dyn KernelStream>> {
        self.native.queue()
    }
    fn queue_of(&self, stream: &Arc<CudaStream>) -> Result<Box<dyn KernelStream>> {
        self.native.queue_of(stream)
    }
    unsafe fn queue_of_raw(&self, stream: *mut c_void) -> Result<Box<dyn KernelStream>> {
        // SAFETY: promised by the caller.
        unsafe { self.native.queue_of_raw(stream) }
    }
    fn record(&self, steps: Vec<KernelLaunch>) -> Result<ExecGraph> {
        self.native.record(steps)
    }
    fn room(&self, kernel: &str, module: Option<&Module>, grid: LaunchConfig) -> Result<u32> {
        self.native.room(kernel, module, grid)
    }
}
