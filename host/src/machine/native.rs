//! The CPU as a GPU: kernels run as native code on this process's cores.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rushmem_device::Ctx;
use rushmem_device::abi::DevAddr;
use rushmem_device::kernel::Call;
use rushmem_softnic::HostMemory;

use super::{Exported, HEAP_ALIGN, Machine, Mapped, Mapping, PageKind, Region, Running, file};
use crate::job::available_memory;
use crate::memory::Place;
use crate::native::{self, Grid, Options};
use crate::{Error, Result};

/// Runs kernels natively.
pub(crate) struct Native {
    options: Options,
    /// PEs that share the cores.
    sharers: u32,
}

impl Native {
    pub(crate) fn new(options: Options, sharers: u32) -> Self {
        Self { options, sharers: sharers.max(1) }
    }

    fn cores() -> u32 {
        std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
    }
}

impl Machine for Native {
    fn describe(&self) -> String {
        format!("native kernels on {} CPU cores", Self::cores())
    }

    fn is_gpu(&self) -> bool {
        false
    }

    fn grid(&self) -> Grid {
        let blocks = Self::cores().div_ceil(self.sharers).clamp(1, 16) * 2;
        Grid { blocks, threads: 32, shared_bytes: 0 }
    }

    fn shared(&self, bytes: u64) -> Result<Region> {
        Ok(Region::host(bytes))
    }

    fn local(&self, bytes: u64) -> Result<Region> {
        Ok(Region::host(bytes))
    }

    fn heap(&self, bytes: u64, shared: bool) -> Result<Region> {
        if let Some(available) = available_memory().filter(|&available| bytes > available) {
            let place = "this machine's memory".into();
            return Err(Error::HeapTooLarge { wanted: bytes, pes: 1, place, available });
        }
        if shared { file::region(bytes) } else { Ok(Region::host_aligned(bytes, HEAP_ALIGN)) }
    }

    fn map_heap(&self, heap: Exported) -> Result<Mapped> {
        let mapping: Box<dyn Mapping> = match heap {
            Exported::Here(region) => Box::new(region),
            Exported::File { file, bytes } => Box::new(file::map(&file, bytes)?),
        };
        Ok(Mapped { mapping, atomics: true })
    }

    unsafe fn adopt(&self, place: Place, bytes: u64) -> Result<Region> {
        match place {
            Place::Host(start) => {
                // SAFETY: the caller's promise.
                let memory = unsafe { HostMemory::new(start, bytes) };
                let (addr, memory) = (DevAddr(start.as_ptr() as u64), Arc::new(memory));
                Ok(Region { addr, memory, gpu: None, file: None })
            }
            Place::Gpu(_) => Err(Error::Unavailable {
                what: "a buffer in GPU memory".into(),
                why: "kernels run natively here, and cannot reach it".into(),
            }),
        }
    }

    unsafe fn map_page(&self, page: *mut u8, _: PageKind) -> Result<Box<dyn Mapping>> {
        Ok(Box::new(Own(DevAddr(page as u64))))
    }

    fn launch(&self, ctx: Ctx, grid: Grid, call: Call) -> Result<Box<dyn Running>> {
        let options = self.options.clone();
        let run = move || native::launch(grid, &options, || (call.native)(&ctx));
        let name = "rushmem-kernel".to_string();
        let thread = std::thread::Builder::new().name(name).spawn(run).map_err(Error::Thread)?;
        Ok(Box::new(Thread(thread)))
    }
}

/// A page at its own address.
struct Own(DevAddr);

impl Mapping for Own {
    fn addr(&self) -> DevAddr {
        self.0
    }
}

struct Thread(JoinHandle<Result<(), native::Error>>);

impl Running for Thread {
    fn wait(self: Box<Self>, _: Duration) -> Result<()> {
        match self.0.join() {
            Ok(result) => Ok(result?),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}
