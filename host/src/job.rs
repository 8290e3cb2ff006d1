//! A job: from settings to running PEs and back.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::bootstrap::{self, Bootstrap};
use crate::build::build_id;
use crate::config::{Config, DeviceKind, HeapKind};
use crate::cuda::Cuda;
use crate::machine::{Gpu, Machine, Native};
use crate::nics::Nics;
use crate::queues::Shape;
use crate::{Error, Pe, Result, native};

/// The PTX of a kernel crate, as `rushmem-ptx` built it. Made by [`ptx!`](crate::ptx).
#[derive(Clone, Copy, Debug)]
pub struct Ptx {
    /// The kernel crate.
    pub name: &'static str,
    /// PTX text; empty if it was built with `RUSHMEM_PTX=none`.
    pub image: &'static str,
}

/// The PTX that the application's `build.rs` made of the kernel crate `$name` (with `_` for `-`).
#[macro_export]
macro_rules! ptx {
    ($name:literal) => {
        $crate::Ptx { name: $name, image: include_str!(concat!(env!("OUT_DIR"), "/", $name, ".ptx")) }
    };
}

/// What the host initiates, as kernels.
const RUNTIME: Ptx = ptx!("rushmem_runtime_kernels");

/// A job, or this process's part of one.
///
/// ```no_run
/// use rushmem::Job;
///
/// fn main() -> Result<(), rushmem::Error> {
///     Job::new()?.run(|pe| {
///         println!("PE {} of {} on {}", pe.my_pe(), pe.n_pes(), pe.machine());
///         Ok::<_, rushmem::Error>(())
///     })?;
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Job {
    config: Config,
    ptx: Vec<Ptx>,
}

impl Job {
    /// A job with the settings of file and environment.
    ///
    /// # Errors
    /// [`Error::Config`] for an unknown or malformed setting.
    pub fn new() -> Result<Self> {
        Ok(Self::with_config(Config::load()?))
    }

    /// A job with these settings.
    pub fn with_config(config: Config) -> Self {
        Self { config, ptx: Vec::new() }
    }

    /// Its settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The job with kernels for GPUs. Without any, kernels run natively.
    #[must_use]
    pub fn kernels(mut self, ptx: Ptx) -> Self {
        self.ptx.push(ptx);
        self
    }

    /// Runs `app` once for each PE that lives in this process, and returns what each one returned.
    ///
    /// Started by `rushmem run`, the process is one PE; by itself, it is a job of `RUSHMEM_PES` PEs as threads.
    ///
    /// # Errors
    /// What kept the job from starting, or the first error of a PE. The other PEs, here and elsewhere, are ended: a
    /// kernel of theirs that waits returns [`rushmem_device::Error::Aborted`].
    pub fn run<R, E>(self, app: impl Fn(&Pe) -> Result<R, E> + Send + Sync) -> Result<Vec<R>>
    where
        R: Send,
        E: Into<AppError>,
    {
        // First of all: loading CUDA sets its environment, which only a process of one thread may do.
        let on_node = self.config.local_pes.unwrap_or(self.config.pes).get();
        let gpus = find_gpus(&self.config, &self.ptx, on_node)?;
        let found = bootstrap::from_env(&self.config, build_id())?;
        let pes: Vec<Arc<dyn Bootstrap>> = match found.job {
            bootstrap::Job::Process(pe) => vec![Arc::new(pe)],
            bootstrap::Job::Threads(pes) => pes.into_iter().map(|pe| Arc::new(pe) as _).collect(),
        };
        let site = Site::prepare(&self.config, gpus, on_node)?;
        let results: Vec<Result<R>> = std::thread::scope(|scope| {
            let (site, app) = (&site, &app);
            let start = |(i, pe): (usize, Arc<dyn Bootstrap>)| {
                let name = format!("rushmem-pe-{}", pe.pe());
                let job = self.clone();
                let run = move || job.one(site, i as u32, pe, app);
                std::thread::Builder::new().name(name).spawn_scoped(scope, run).map_err(Error::Thread)
            };
            let threads: Vec<_> = pes.into_iter().enumerate().map(start).collect();
            threads
                .into_iter()
                .map(|thread| match thread?.join() {
                    Ok(result) => result,
                    Err(panic) => std::panic::resume_unwind(panic),
                })
                .collect()
        });
        let failed = |(i, result): (usize, &Result<R>)| result.as_ref().err().map(|e| (e.distance(), i));
        match results.iter().enumerate().filter_map(failed).min() {
            Some((_, cause)) => results.into_iter().nth(cause).into_iter().collect(),
            None => results.into_iter().collect(),
        }
    }

    /// One PE, from start to end.
    fn one<R, E>(
        self,
        site: &Site,
        local: u32,
        bootstrap: Arc<dyn Bootstrap>,
        app: &(impl Fn(&Pe) -> Result<R, E> + Sync),
    ) -> Result<R>
    where
        E: Into<AppError>,
    {
        let machine = site.machine(&self.config, &self.ptx, local);
        let started = machine.and_then(|machine| {
            let nics = site.nics.of(&self.config, site.first + local)?;
            Pe::start(self.config, Arc::clone(&bootstrap), machine, nics)
        });
        let pe = match started {
            Ok(pe) => pe,
            Err(error) => {
                bootstrap.abort(&error.to_string());
                return Err(error);
            }
        };
        let outcome = match catch_unwind(AssertUnwindSafe(|| app(&pe))) {
            Ok(result) => result.map_err(|e| e.into().0),
            Err(panic) => Err(Error::Panic(panic_text(&*panic))),
        };
        pe.finish(outcome)
    }
}

/// An application's error: a runtime error as it is, anything else wrapped.
pub struct AppError(Error);

impl From<Error> for AppError {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl From<Box<dyn std::error::Error + Send + Sync>> for AppError {
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        match error.downcast::<Error>() {
            Ok(ours) => Self(*ours),
            Err(other) => Self(Error::App(other)),
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| s.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "of unknown cause".into())
}

/// What this process has, shared by its PEs.
struct Site {
    nics: Nics,
    /// The GPUs of this node that the job may use, by PE; empty when kernels run natively.
    gpus: Vec<u32>,
    /// PEs of this node.
    on_node: u32,
    /// Number on this node of the process's first PE.
    first: u32,
}

impl Site {
    fn prepare(config: &Config, gpus: Vec<u32>, on_node: u32) -> Result<Self> {
        if gpus.is_empty() && config.heap == HeapKind::Device {
            return Err(Error::Unavailable {
                what: "a symmetric heap in GPU memory".into(),
                why: "kernels run natively here; set RUSHMEM_HEAP=auto".into(),
            });
        }
        if gpus.is_empty() || config.heap == HeapKind::Host {
            check_memory(config, on_node)?;
        }
        let nics = Nics::prepare(config, &gpus, on_node)?;
        Ok(Self { nics, gpus, on_node, first: config.local_pe.unwrap_or(0) })
    }

    /// What executes the kernels of this process's PE number `i`.
    fn machine(&self, config: &Config, ptx: &[Ptx], i: u32) -> Result<Arc<dyn Machine>> {
        if let Some(&gpu) = self.gpus.get((self.first + i) as usize) {
            let sharers = self.gpus.iter().filter(|&&other| other == gpu).count() as u32;
            let device = Cuda::load()?.device(gpu)?;
            let heap = self.nics.heap(config.heap, device.attributes())?;
            let ptx = [&[RUNTIME], ptx].concat();
            return Ok(Arc::new(Gpu::new(device, &ptx, heap, sharers)?));
        }
        let options = native::Options {
            stack_bytes: config.native_stack.0 as usize,
            workers: std::num::NonZeroUsize::new(config.native_workers as usize),
            ..Default::default()
        };
        Ok(Arc::new(Native::new(options, self.on_node)))
    }
}

/// The GPU of each PE of this node, in turn; none when kernels are to run natively, and always for the same reason
/// that `rushmem info` prints.
fn find_gpus(config: &Config, ptx: &[Ptx], on_node: u32) -> Result<Vec<u32>> {
    let wanted = config.device == DeviceKind::Gpu;
    if config.device == DeviceKind::Native {
        return Ok(Vec::new());
    }
    let missing = match ptx.iter().chain([&RUNTIME]).find(|ptx| ptx.image.is_empty()) {
        Some(ptx) => Some(format!("{} was built with RUSHMEM_PTX=none", ptx.name)),
        None if ptx.is_empty() => Some("the application gave the job no PTX; see Job::kernels".into()),
        None => None,
    };
    if let Some(why) = missing {
        return if wanted {
            Err(Error::Unavailable { what: "running kernels on a GPU".into(), why })
        } else {
            Ok(Vec::new())
        };
    }
    let found = match Cuda::load().and_then(|cuda| cuda.device_count()) {
        Ok(found) => found,
        Err(error) if wanted => return Err(error.into()),
        Err(error) => {
            tracing::info!("kernels run natively: {error}");
            0
        }
    };
    if found == 0 {
        return if wanted {
            let why = "the driver reports no device; check nvidia-smi and CUDA_VISIBLE_DEVICES".into();
            Err(Error::Unavailable { what: "a GPU".into(), why })
        } else {
            Ok(Vec::new())
        };
    }
    let gpu_of = |pe: u32| match config.gpus.of(pe, found) {
        Some(gpu) if gpu < found => Ok(gpu),
        Some(gpu) => {
            let why = format!("there are {found} on this node, numbered from 0; change RUSHMEM_GPUS");
            Err(Error::Unavailable { what: format!("GPU {gpu}"), why })
        }
        None => Err(Error::Unavailable { what: "a GPU".into(), why: "RUSHMEM_GPUS names none".into() }),
    };
    (0..on_node).map(gpu_of).collect()
}

/// Refuses heaps and queues that the machine's memory cannot hold.
fn check_memory(config: &Config, pes: u32) -> Result<()> {
    let Some(available) = available_memory() else { return Ok(()) };
    let n_pes = config.n_pes.unwrap_or(config.pes).get();
    let wanted = config.heap_bytes.0.saturating_add(Shape::new(config, n_pes).memory());
    if wanted.saturating_mul(pes.into()) > available {
        return Err(Error::HeapTooLarge { wanted, pes, place: "this machine's memory".into(), available });
    }
    Ok(())
}

/// Bytes that the system could give without swapping.
pub(crate) fn available_memory() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}
