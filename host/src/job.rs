//! A job: from settings to running PEs and back.

use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::bootstrap::{self, Bootstrap, Exchange, UniqueId};
use crate::build::build_id;
use crate::config::{Config, DeviceKind, HeapKind};
use crate::cuda::{Cuda, driver_gate};
use crate::life::Up;
use crate::machine::{Gpu, Machine, Native, available_memory};
use crate::modules::Modules;
use crate::nics::Nics;
use crate::queues::Shape;
use crate::{Error, Pe, Result, native};

/// The PTX of a kernel crate, as `rushmem-ptx` built it. Made by [`ptx!`](crate::ptx).
#[derive(Clone, Copy, Debug)]
pub struct Ptx {
    /// The kernel crate.
    pub name: &'static str,
    /// PTX text; empty if the build left it out.
    pub image: &'static str,
    /// The reason why the build left the PTX out, with the remedy; empty if there is PTX.
    pub omitted: &'static str,
    /// Machine code of the same kernels; empty unless it was built with `RUSHMEM_PTX_CUBIN`. GPUs that it is not for get
    /// the PTX.
    pub code: &'static [u8],
}

/// The PTX that the application's `build.rs` made of the kernel crate `$name` (with `_` for `-`).
#[macro_export]
macro_rules! ptx {
    ($name:literal) => {{
        // Statics are in a program once, however often a function with this is inlined.
        static IMAGE: &str = include_str!(concat!(env!("OUT_DIR"), "/", $name, ".ptx"));
        static CODE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".cubin"));
        const OMITTED: &str = include_str!(concat!(env!("OUT_DIR"), "/", $name, ".omitted"));
        $crate::Ptx { name: $name, image: IMAGE, omitted: OMITTED, code: CODE }
    }};
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
    meeting: Meeting,
}

/// By what this process finds the others.
#[derive(Clone, Copy, Debug)]
enum Meeting {
    /// By settings and environment.
    Environment,
    /// By an id that the program has.
    Id { id: UniqueId, pe: u32, n_pes: u32 },
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
        Self { config, ptx: Vec::new(), meeting: Meeting::Environment }
    }

    /// Its settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The job with kernels for GPUs. Without any, kernels run natively, unless `RUSHMEM_DEVICE=gpu` is set: then there are
    /// those of the runtime, which do what the host initiates, and what [`Pe::load`] loads.
    ///
    /// They are loaded before the job starts, and stay until the process ends. [`Job::run`] returns [`Error::Misuse`] if
    /// two have the same name.
    #[must_use]
    pub fn kernels(mut self, ptx: Ptx) -> Self {
        self.ptx.push(ptx);
        self
    }

    /// The job with this process as PE `pe` of `n_pes`, which meet by `id` and need no launcher. NVSHMEM:
    /// `nvshmemx_set_attr_uniqueid_args`.
    ///
    /// ```no_run
    /// use rushmem::bootstrap::UniqueId;
    /// use rushmem::{Error, Job};
    ///
    /// /// `tell` gives the others what PE 0 has, by any means; `told` is what PE 0 gave.
    /// fn meet(pe: u32, n_pes: u32, tell: impl Fn(&str), told: impl Fn() -> String) -> Result<(), Error> {
    ///     let id = if pe == 0 {
    ///         let id = UniqueId::new()?;
    ///         tell(&id.to_hex());
    ///         id
    ///     } else {
    ///         UniqueId::from_hex(&told())?
    ///     };
    ///     Job::new()?.with_id(id, pe, n_pes).run(|pe| pe.host_sync())?;
    ///     Ok(())
    /// }
    /// ```
    #[must_use]
    pub fn with_id(mut self, id: UniqueId, pe: u32, n_pes: u32) -> Self {
        self.meeting = Meeting::Id { id, pe, n_pes };
        self
    }

    /// The job with the processes of `exchange` as its PEs, numbered as there. Collective among them: PE 0 makes a
    /// unique id, and the exchange gives it to the others.
    ///
    /// # Errors
    /// [`Error::Bootstrap`] if the exchange fails, or PE 0 cannot listen.
    pub fn with_exchange(self, exchange: &dyn Exchange) -> Result<Self> {
        let id = bootstrap::agree_on_id(exchange, &self.config)?;
        Ok(self.with_id(id, exchange.pe(), exchange.n_pes()))
    }

    /// Runs `app` once for each PE in this process, and returns their results.
    ///
    /// Started by `rushmem run`, by `mpirun`, `srun` or `torchrun`, or with an id, the process is one PE; by itself, it
    /// is a job of `RUSHMEM_PES` PEs as threads. docs/launching.md tells more. A process may run several jobs, one
    /// after another, if all processes of the job do.
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
        let gpus = count_gpus(&self.config, &self.ptx)?;
        let (job, pes) = self.meet()?;
        let site = match Site::prepare(&job.config, gpus) {
            Ok(site) => site,
            Err(error) => {
                pes.iter().for_each(|pe| pe.abort(&error.to_string()));
                return Err(error);
            }
        };
        let results: Vec<Result<R>> = std::thread::scope(|scope| {
            let (site, app) = (&site, &app);
            let start = |(i, pe): (usize, Arc<dyn Bootstrap>)| {
                let name = format!("rushmem-pe-{}", pe.pe());
                let job = job.clone();
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

    /// Finds the other PEs. The settings then tell this process's place, however it was found.
    fn meet(mut self) -> Result<(Self, Vec<Arc<dyn Bootstrap>>)> {
        let config = &mut self.config;
        let found = match self.meeting {
            Meeting::Environment => bootstrap::from_env(config, build_id())?,
            Meeting::Id { id, pe, n_pes } => bootstrap::with_id(id, pe, n_pes, config, build_id())?,
        };
        let pe = match found.job {
            bootstrap::Job::Threads(pes) => {
                let pes = pes.into_iter().map(|pe| Arc::new(pe) as _).collect();
                return Ok((self, pes));
            }
            bootstrap::Job::Process(pe) => pe,
        };
        let (local, locals) = match found.local {
            Some(local) => local,
            None => neighbours(&pe)?,
        };
        config.server = Some(pe.server().into());
        (config.pe, config.n_pes) = (Some(pe.pe()), NonZeroU32::new(pe.n_pes()));
        (config.local_pe, config.local_pes) = (Some(local), NonZeroU32::new(locals));
        Ok((self, vec![Arc::new(pe)]))
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
        let machine = site.machine(&self.config, local);
        let started = machine.and_then(|machine| {
            // Before anything runs: one that was loaded lazily would wait for the kernel that waits for it.
            let modules = Modules::of_job(&*machine, &[&[RUNTIME], &*self.ptx].concat())?;
            let nics = site.nics.of(&self.config, site.first + local)?;
            Pe::start(self.config, Arc::clone(&bootstrap), machine, modules, nics)
        });
        let pe = match started {
            Ok(pe) => pe,
            Err(error) => {
                bootstrap.abort(&error.to_string());
                return Err(error);
            }
        };
        let _up = Up::new();
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
    /// This job, among those of the process.
    job: driver_gate::JobId,
}

impl Site {
    fn prepare(config: &Config, gpus: u32) -> Result<Self> {
        let on_node = config.local_pes.unwrap_or(config.pes).get();
        let gpus = share_gpus(config, gpus, on_node)?;
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
        Ok(Self {
            nics,
            gpus,
            on_node,
            first: config.local_pe.unwrap_or(0),
            job: driver_gate::JobId::unique(),
        })
    }

    /// What executes the kernels of this process's PE number `i`.
    fn machine(&self, config: &Config, i: u32) -> Result<Arc<dyn Machine>> {
        if let Some(&gpu) = self.gpus.get((self.first + i) as usize) {
            let sharers = self.gpus.iter().filter(|&&other| other == gpu).count() as u32;
            let device = Cuda::load()?.device(gpu)?;
            if config.local_pes.is_some() && sharers > 1 && !device.attributes().mps {
                self.tell_of_turns(gpu, sharers);
            }
            let heap = self.nics.heap(config.heap, device.attributes())?;
            return Ok(Arc::new(Gpu::new(device, heap, sharers, self.job)?));
        }
        let options = native::Options {
            stack_bytes: config.native_stack.0 as usize,
            workers: std::num::NonZeroUsize::new(config.native_workers as usize),
            ..Default::default()
        };
        Ok(Arc::new(Native::new(options, self.on_node)))
    }

    /// The first of the processes that share a GPU says that they take turns on it.
    fn tell_of_turns(&self, gpu: u32, sharers: u32) {
        if self.gpus.iter().position(|&other| other == gpu) == Some(self.first as usize) {
            tracing::warn!(
                "{sharers} processes share GPU {gpu} and take turns of milliseconds, so that each waits long for what another \
                 does: start MPS (`nvidia-cuda-mps-control -d`), and they run side by side; or run PEs as threads of one process"
            );
        }
    }
}

/// GPUs of this node that the job may use; none when kernels are to run natively, and always for the same reason that
/// `rushmem info` prints.
fn count_gpus(config: &Config, ptx: &[Ptx]) -> Result<u32> {
    let wanted = config.device == DeviceKind::Gpu;
    if config.device == DeviceKind::Native {
        return Ok(0);
    }
    if !wanted && ptx.is_empty() {
        return Ok(0);
    }
    if let Some(none) = ptx.iter().chain([&RUNTIME]).find(|ptx| ptx.image.is_empty()) {
        let why = format!("there is no PTX of {}: {}", none.name, none.omitted);
        if wanted {
            return Err(Error::Unavailable { what: "running kernels on a GPU".into(), why });
        }
        if Cuda::load().and_then(|cuda| cuda.device_count()).is_ok_and(|found| found > 0) {
            tracing::warn!("kernels run natively, although there is a GPU: {why}");
        }
        return Ok(0);
    }
    match Cuda::load().and_then(|cuda| cuda.device_count()) {
        Ok(0) if wanted => {
            let why = "the driver reports no device; check nvidia-smi and CUDA_VISIBLE_DEVICES".into();
            Err(Error::Unavailable { what: "a GPU".into(), why })
        }
        Ok(found) => Ok(found),
        Err(error) if wanted => Err(error.into()),
        Err(error) => {
            tracing::info!("kernels run natively: {error}");
            Ok(0)
        }
    }
}

/// The GPU of each PE of this node, in turn, where so many were found.
pub(crate) fn share_gpus(config: &Config, found: u32, on_node: u32) -> Result<Vec<u32>> {
    if found == 0 {
        return Ok(Vec::new());
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

/// The number of this PE among those of its machine, and how many those are. Collective.
fn neighbours(pe: &dyn Bootstrap) -> Result<(u32, u32)> {
    let machine = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let machines = pe.allgather("rushmem.machines", &machine)?;
    let here = |of: &[Vec<u8>]| of.iter().filter(|other| **other == machine).count() as u32;
    Ok((here(&machines[..pe.pe() as usize]), here(&machines)))
}

/// Refuses heaps and queues that the machine's memory cannot hold.
fn check_memory(config: &Config, pes: u32) -> Result<()> {
    let Some(available) = available_memory() else { return Ok(()) };
    let wanted = config.heap_bytes.0.saturating_add(queue_memory(config));
    if wanted.saturating_mul(pes.into()) > available {
        return Err(Error::HeapTooLarge { wanted, pes, place: "this machine's memory".into(), available });
    }
    Ok(())
}

/// Bytes that the queues of a PE take, of host memory at most.
pub(crate) fn queue_memory(config: &Config) -> u64 {
    Shape::new(config, config.n_pes.unwrap_or(config.pes).get()).memory()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pe_of_a_node_gets_the_gpu_that_was_asked_for() {
        let with = |gpus: &str| {
            let mut config = Config::default();
            config.set("gpus", gpus).unwrap();
            config
        };
        // In turn, and never the first for all; several PEs share one where there are more of them.
        assert_eq!(share_gpus(&with("auto"), 4, 4).unwrap(), [0, 1, 2, 3]);
        assert_eq!(share_gpus(&with("auto"), 2, 4).unwrap(), [0, 1, 0, 1]);
        assert_eq!(share_gpus(&with("3,1"), 4, 3).unwrap(), [3, 1, 3]);
        assert!(share_gpus(&with("auto"), 0, 2).unwrap().is_empty());
        let error = share_gpus(&with("0,4"), 4, 2).unwrap_err().to_string();
        assert!(error.starts_with("GPU 4 is not available: there are 4 on this node"), "{error}");
    }

    #[test]
    fn a_job_that_asks_for_a_gpu_and_cannot_use_one_is_told_why() {
        let mut config = Config::default();
        assert_eq!(count_gpus(&config, &[]).unwrap(), 0);
        config.set("device", "gpu").unwrap();
        let none = Ptx { name: "mine", image: "", omitted: "it was left out", code: &[] };
        let error = count_gpus(&config, &[none]).unwrap_err().to_string();
        assert!(error.contains("there is no PTX of mine: it was left out"), "{error}");
        config.set("device", "native").unwrap();
        assert_eq!(count_gpus(&config, &[none]).unwrap(), 0);
    }
}
