//! The type [`Job`]: finds the PEs, prepares the machine and the NICs of this process, and runs the application.

use std::io::Write;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rushmem_base::boot_id;
use rushmem_machine::{
    Gpu, KernelLine, Machine, Native, Output, available_memory, end_process, kernel_limit, waits,
};
use rushmem_observe::sanitize::{self, PeWatch, Sanitizer};
use rushmem_observe::trace::{JobTrace, PeTrace, TraceFile};

use crate::bootstrap::{self, Bootstrap, Exchange, UniqueId};
use crate::build::build_id;
use crate::config::{Config, DeviceKind, HeapKind, PeerPath, Switch};
use crate::cuda::{Cuda, Device, driver_gate};
use crate::life::Up;
use crate::modules::{Modules, RUNTIME, check_dc};
use crate::nics::Nics;
use crate::queues::Shape;
use crate::sanitizer::Finding;
use crate::{Error, Pe, Ptx, Result, deadlines, log, native};

/// A job: the PEs that run one application, in one process or in many.
///
/// A `Job` holds the settings and the kernels of this process. [`run`](Job::run) finds the other processes, runs the
/// application on every PE of this process, and ends the job. The settings come from the environment and a file
/// (docs/settings.md). OpenSHMEM 1.6 section 9.1: `shmem_init` and `shmem_finalize`.
///
/// # Examples
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
    rendezvous: Rendezvous,
    output: Output,
}

/// The method by which this process finds the other PEs.
#[derive(Clone, Copy, Debug)]
enum Rendezvous {
    /// The settings, and the variables of a launcher.
    Environment,
    /// An id that the program has distributed.
    Id { id: UniqueId, pe: u32, n_pes: u32 },
}

impl Job {
    /// Creates a job with the settings of the environment and of the settings file.
    ///
    /// # Errors
    /// - [`Error::Config`] for an unknown setting or an invalid value.
    pub fn new() -> Result<Self> {
        Ok(Self::with_config(Config::load()?))
    }

    /// Creates a job with these settings.
    pub fn with_config(config: Config) -> Self {
        Self { config, ptx: Vec::new(), rendezvous: Rendezvous::Environment, output: Output::default() }
    }

    /// Returns the settings of the job.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Adds kernels for GPUs: a module or a crate that `build.rs` has compiled.
    ///
    /// The kernels are loaded before the job starts and stay loaded until the process ends. [`Pe::load`] loads more
    /// kernels while the job runs. [`Job::run`] returns [`Error::Misuse`] if two kernels have the same name.
    ///
    /// A job without them runs its kernels natively, unless `RUSHMEM_DEVICE=gpu` is set. With that setting,
    /// the operations of the host and the kernels of [`Pe::load`] run on the GPU.
    #[must_use]
    pub fn kernels(mut self, ptx: Ptx) -> Self {
        self.ptx.push(ptx);
        self
    }

    /// Passes the lines that kernels print with [`kprintln!`](rushmem_device::kprintln) to `receive`, instead of standard
    /// output.
    ///
    /// The threads of the runtime call it while kernels run, and each wait for a launch before it returns. The lines of a
    /// GPU thread come in order. It must not call the runtime.
    #[must_use]
    pub fn kernel_output(mut self, receive: impl Fn(KernelLine) + Send + Sync + 'static) -> Self {
        self.output = Output::new(receive);
        self
    }

    /// Makes this process PE `pe` of a job of `n_pes` PEs. The processes find each other by `id`, without a launcher.
    ///
    /// One of the PEs creates the id, and the program distributes it. NVSHMEM: `nvshmemx_set_attr_uniqueid_args`.
    ///
    /// # Examples
    /// ```no_run
    /// use rushmem::bootstrap::UniqueId;
    /// use rushmem::{Error, Job};
    ///
    /// /// Runs a job. PE 0 passes the id to `send`; the other PEs get it from `receive`.
    /// fn run(pe: u32, n_pes: u32, send: impl Fn(&str), receive: impl Fn() -> String) -> Result<(), Error> {
    ///     let id = if pe == 0 {
    ///         let id = UniqueId::new()?;
    ///         send(&id.to_hex());
    ///         id
    ///     } else {
    ///         UniqueId::from_hex(&receive())?
    ///     };
    ///     Job::new()?.with_id(id, pe, n_pes).run(|pe| pe.host_sync())?;
    ///     Ok(())
    /// }
    /// ```
    #[must_use]
    pub fn with_id(mut self, id: UniqueId, pe: u32, n_pes: u32) -> Self {
        self.rendezvous = Rendezvous::Id { id, pe, n_pes };
        self
    }

    /// Makes the processes of `exchange` the PEs of the job, with the same numbers. All of them must call it.
    ///
    /// PE 0 creates a [`UniqueId`], and the exchange distributes it. The call starts the log like [`run`](Job::run).
    ///
    /// # Errors
    /// - [`Error::Config`] if the settings of the log are invalid.
    /// - [`Error::Bootstrap`] if the exchange fails, or PE 0 cannot listen.
    pub fn with_exchange(self, exchange: &dyn Exchange) -> Result<Self> {
        log::init_if_unset(&self.config)?;
        let id = bootstrap::agree_on_id(exchange, &self.config)?;
        Ok(self.with_id(id, exchange.pe(), exchange.n_pes()))
    }

    /// Runs `app` on each PE of this process, each on its own thread. Returns their results in the order of the PEs.
    ///
    /// Under a launcher (`rushmem run`, `mpirun`, `srun`, `torchrun`) or with an id, this process is one PE. Without
    /// one, it is a whole job of `RUSHMEM_PES` PEs. docs/launching.md describes the launchers. A process may run
    /// several jobs one after another, if all processes of the job do the same.
    ///
    /// All PEs must come to the start of the job and to its end. If a PE fails, the runtime ends the other PEs, in this
    /// process and in others. Their waiting kernels return [`rushmem_device::Error::Aborted`].
    ///
    /// # Errors
    /// - [`Error::App`] or [`Error::Panic`] if `app` fails or panics. An [`Error`] that `app` returns is passed on.
    /// - [`Error::Config`] if the settings of the log are invalid.
    /// - [`Error::Bootstrap`] if the PEs do not find each other, [`Error::Mismatch`] if their settings differ.
    /// - [`Error::Unavailable`], [`Error::HeapTooLarge`], [`Error::Cuda`] if the machine lacks a requested resource.
    /// - [`Error::Unavailable`] if another running job of this process writes the file of the timeline.
    /// - [`Error::Nic`], [`Error::SoftNic`], [`Error::Probe`], [`Error::MixedNics`] if a NIC does not work.
    /// - [`Error::Misuse`] if two kernels have the same name.
    /// - [`Error::Sanitizer`] with the findings, if the setting `sanitize` is on.
    ///
    /// The errors of launches and streams that `app` has dropped are errors of the PE, too. If several PEs of this
    /// process fail, the error closest to the cause is returned.
    ///
    /// # Log
    /// If the program has set no subscriber of `tracing`, the call starts the log like [`init_log`](crate::init_log).
    /// The log shows warnings and errors, unless `RUSHMEM_LOG` says otherwise.
    pub fn run<R, E>(mut self, app: impl Fn(&Pe) -> Result<R, E> + Send + Sync) -> Result<Vec<R>>
    where
        R: Send,
        E: Into<AppError>,
    {
        log::init_if_unset(&self.config)?;
        // Must come first: loading CUDA sets environment variables, which is safe only before other threads exist.
        let gpus = count_gpus(&self.config, &self.ptx)?;
        deadlines::extend(&mut self.config, gpus == 0);
        let is_threads = self.is_threads()?;
        self.prepare_sanitizer(gpus == 0)?;
        let trace = JobTrace::new(&self.config, gpus == 0, &self.ptx)?;
        waits::listen();
        // PEs as threads share this memory: an absurd number is refused before they are made.
        if gpus == 0 && is_threads {
            check_memory(&self.config, self.config.pes.get())?;
        }
        let (job, pes) = self.join()?;
        let prepared = ProcessResources::prepare(&job.config, gpus, is_threads, trace);
        let mut resources =
            match prepared.and_then(|resources| resources.sanitized(&job.config, &pes, is_threads)) {
                Ok(resources) => resources,
                Err(error) => {
                    pes.iter().for_each(|pe| pe.abort(&error.to_string()));
                    return Err(error);
                }
            };
        let results: Vec<Result<R>> = std::thread::scope(|scope| {
            let (resources, app) = (&resources, &app);
            let (running, has_ended) = std::sync::mpsc::channel::<()>();
            if let Some(sanitizer) = &resources.sanitizer {
                let deadline = job.config.timeout;
                scope.spawn(move || sanitizer.look_for_deadlocks(&has_ended, deadline));
            }
            let start = |(i, pe): (usize, Arc<dyn Bootstrap>)| {
                let name = format!("rushmem-pe-{}", pe.pe());
                let job = job.clone();
                let run = move || job.run_pe(resources, i as u32, pe, app);
                std::thread::Builder::new().name(name).spawn_scoped(scope, run).map_err(Error::Thread)
            };
            let threads: Vec<_> = pes.into_iter().enumerate().map(start).collect();
            let results = threads.into_iter().map(|thread| match thread?.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            let results = results.collect();
            drop(running);
            results
        });
        let written = resources.finish_trace(&job.config);
        let has_timed_out = results.iter().any(|result| result.as_ref().is_err_and(Error::is_deadline));
        let findings = resources.findings(&job.config, has_timed_out)?;
        if !findings.is_empty() && !results.iter().any(is_own_error) {
            return Err(Error::Sanitizer(findings));
        }
        let failed = |(i, result): (usize, &Result<R>)| result.as_ref().err().map(|e| (e.distance(), i));
        match results.iter().enumerate().filter_map(failed).min() {
            Some((_, cause)) => {
                // The failure of the PE tells more.
                written.unwrap_or_else(|error| tracing::warn!("{error}"));
                results.into_iter().nth(cause).into_iter().collect()
            }
            None => written.and_then(|()| results.into_iter().collect()),
        }
    }

    /// Returns whether this process is a whole job, with its PEs as threads.
    fn is_threads(&self) -> Result<bool> {
        Ok(match self.rendezvous {
            Rendezvous::Environment => !bootstrap::is_launched(&self.config)?,
            Rendezvous::Id { .. } => false,
        })
    }

    /// Prepares the settings for the sanitizer, if they ask for it. It needs all PEs to map each other's memory.
    fn prepare_sanitizer(&mut self, is_native: bool) -> Result<()> {
        if self.config.sanitize == Switch::On {
            sanitize::check_supported("the sanitizer", is_native)?;
            sanitize::check_report(&self.config.sanitize_report)?;
            self.config.peer_path = PeerPath::P2p;
        }
        if self.config.weak_memory == Switch::On {
            sanitize::check_supported("weak memory", is_native)?;
        }
        Ok(())
    }

    /// Finds the other PEs. Returns the job, with this process's numbers in its settings, and the PEs of this process.
    fn join(mut self) -> Result<(Self, Vec<Arc<dyn Bootstrap>>)> {
        let config = &mut self.config;
        let found = match self.rendezvous {
            Rendezvous::Environment => bootstrap::from_env(config, build_id())?,
            Rendezvous::Id { id, pe, n_pes } => bootstrap::with_id(id, pe, n_pes, config, build_id())?,
        };
        let pe = match found.pes {
            bootstrap::LocalPes::Threads(pes) => {
                let pes = pes.into_iter().map(|pe| Arc::new(pe) as _).collect();
                return Ok((self, pes));
            }
            bootstrap::LocalPes::Process(pe) => pe,
        };
        let (local, locals) = match found.local {
            Some(local) => local,
            None => local_number(&pe)?,
        };
        config.server = Some(pe.server().into());
        (config.pe, config.n_pes) = (Some(pe.pe()), NonZeroU32::new(pe.n_pes()));
        (config.local_pe, config.local_pes) = (Some(local), NonZeroU32::new(locals));
        Ok((self, vec![Arc::new(pe)]))
    }

    /// Runs `app` on one PE, from its bring-up to its end. `local` is its number in this process.
    fn run_pe<R, E>(
        self,
        resources: &ProcessResources,
        local: u32,
        bootstrap: Arc<dyn Bootstrap>,
        app: &(impl Fn(&Pe) -> Result<R, E> + Sync),
    ) -> Result<R>
    where
        E: Into<AppError>,
    {
        let watch = PeWatch::new(resources.sanitizer.as_ref(), bootstrap.pe());
        let trace = PeTrace::new(resources.trace.as_ref(), bootstrap.pe());
        let machine = resources.machine(&self.config, local, &watch, &trace);
        let started = machine.and_then(|machine| {
            // Load all kernels before any kernel runs: loading waits for running kernels, which may wait for this PE.
            let ptx = [&[RUNTIME.operations], &*self.ptx].concat();
            if Shape::new(&self.config, bootstrap.n_pes()).is_dc() {
                ptx.iter().try_for_each(|ptx| check_dc(&*machine, ptx))?;
            }
            let modules = Modules::of_job(&*machine, &ptx)?;
            let nics = resources.nics.of(&self.config, bootstrap.pe(), resources.first + local)?;
            Pe::start(
                self.config,
                Arc::clone(&bootstrap),
                machine,
                modules,
                nics,
                (watch, trace),
                self.output,
            )
        });
        let pe = match started {
            Ok(pe) => pe,
            Err(error) => {
                bootstrap.abort(&error.abort_reason());
                return Err(error);
            }
        };
        let _up = Up::new();
        if let Err(error) = pe.compare_clocks() {
            return pe.finish(Err(error));
        }
        let process = std::process::id();
        let outcome = catch_unwind(AssertUnwindSafe(|| app(&pe)));
        if std::process::id() != process {
            end_forked_child(pe.my_pe());
        }
        let outcome = match outcome {
            Ok(result) => result.map_err(|e| e.into().0),
            Err(panic) => Err(Error::Panic(panic_text(&*panic))),
        };
        pe.finish(outcome)
    }
}

/// Ends a forked child that has returned from the function of the application. It has neither the threads nor the queues of
/// its parent, so it cannot leave the job in an orderly way, nor return from [`Job::run`].
fn end_forked_child(pe: u32) -> ! {
    // Nothing can be done about a standard error that is closed.
    let _ = writeln!(
        std::io::stderr(),
        "Error: PE {pe}: a forked child returned from the function of the application; end it by `std::process::exit` or \
         `exec` inside of that function"
    );
    end_process(1)
}

/// The error of an application. An [`Error`] stays the same; any other error becomes [`Error::App`].
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

/// Returns whether an application has failed for a reason of its own. Races and deadlocks make kernels and PEs fail.
fn is_own_error<R>(result: &Result<R>) -> bool {
    matches!(result, Err(Error::App(_) | Error::Panic(_) | Error::Misuse { .. }))
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| s.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "unknown cause".into())
}

/// The resources that the PEs of this process share.
struct ProcessResources {
    nics: Nics,
    /// The GPU of each PE of this node; empty when kernels run natively.
    gpus: Vec<u32>,
    /// The number of PEs on this node.
    on_node: u32,
    /// The number of the process's first PE among the PEs of this node.
    first: u32,
    /// The number of this job among the jobs of the process.
    job: driver_gate::JobId,
    sanitizer: Option<Arc<Sanitizer>>,
    trace: Option<JobTrace>,
    trace_file: Option<TraceFile>,
}

impl ProcessResources {
    fn prepare(config: &Config, gpus: u32, is_threads: bool, trace: Option<JobTrace>) -> Result<Self> {
        let trace_file = TraceFile::of(config)?;
        let on_node = config.pes_on_node();
        let is_checked = gpus == 0 && is_threads;
        let gpus = share_gpus(config, gpus, on_node)?;
        if gpus.is_empty() && config.heap == HeapKind::Device {
            return Err(Error::Unavailable {
                what: "a symmetric heap in GPU memory".into(),
                why: "kernels run natively here; set RUSHMEM_HEAP=auto".into(),
            });
        }
        if !is_checked && (gpus.is_empty() || config.heap == HeapKind::Host) {
            check_memory(config, on_node)?;
        }
        let nics = Nics::prepare(config, &gpus, on_node, trace.as_ref())?;
        Ok(Self {
            nics,
            gpus,
            on_node,
            first: config.local_pe.unwrap_or(0),
            job: driver_gate::JobId::unique(),
            sanitizer: None,
            trace,
            trace_file,
        })
    }

    /// Adds the sanitizer, if the settings ask for it. Collective if PEs are processes.
    fn sanitized(self, config: &Config, pes: &[Arc<dyn Bootstrap>], is_threads: bool) -> Result<Self> {
        let sanitizer = match pes {
            _ if config.sanitize == Switch::Off => None,
            [pe] if !is_threads => Some(Sanitizer::of_process(&**pe)?),
            pes => Some(Sanitizer::of_threads(pes.len() as u32)),
        };
        Ok(Self { sanitizer, ..self })
    }

    /// Reports what the sanitizer has found, and returns it. `has_timed_out` tells that a deadline has ended the job.
    fn findings(&self, config: &Config, has_timed_out: bool) -> Result<Vec<Finding>> {
        match &self.sanitizer {
            Some(sanitizer) => sanitizer.findings(&config.sanitize_report, has_timed_out),
            None => Ok(Vec::new()),
        }
    }

    /// Writes the timeline of this process. Its PEs have ended.
    fn finish_trace(&mut self, config: &Config) -> Result<()> {
        self.nics.close();
        let file = self.trace_file.as_ref();
        self.trace.as_ref().map_or(Ok(()), |trace| trace.finish(file, config.pe))
    }

    /// Returns the machine that runs the kernels of PE number `i` of this process.
    fn machine(&self, config: &Config, i: u32, watch: &PeWatch, trace: &PeTrace) -> Result<Arc<dyn Machine>> {
        if let Some(&gpu) = self.gpus.get((self.first + i) as usize) {
            let sharers = self.gpus.iter().filter(|&&other| other == gpu).count() as u32;
            let device = Device::open(Cuda::load()?, gpu)?;
            if config.local_pes.is_some() && sharers > 1 && !device.attributes().mps {
                self.warn_about_turns(gpu, sharers);
            }
            let heap = self.nics.heap(config.heap, device.attributes())?;
            let arch = config.gpu_arch.0;
            return Ok(Arc::new(Gpu::new(device, heap, sharers, arch, self.job, RUNTIME)?));
        }
        let options = native::Options {
            stack_bytes: config.native_stack.0 as usize,
            workers: std::num::NonZeroUsize::new(config.native_workers as usize),
            sharers: self.on_node,
            time_limit: kernel_limit(config),
            weak_memory: config.weak_memory == Switch::On,
            ..Default::default()
        };
        Ok(Arc::new(Native::new(options).watched_by(watch.clone()).traced_by(trace.clone())))
    }

    /// Logs a warning that `sharers` processes take turns on `gpu`. Only the first of these processes logs it.
    fn warn_about_turns(&self, gpu: u32, sharers: u32) {
        if self.gpus.iter().position(|&other| other == gpu) == Some(self.first as usize) {
            tracing::warn!(
                "{sharers} processes share GPU {gpu} and take turns of milliseconds, which makes their kernels wait \
                 long for each other; start MPS (`nvidia-cuda-mps-control -d`), or run the PEs as threads of one \
                 process"
            );
        }
    }
}

/// Returns the number of GPUs that the job may use. It is 0 when kernels run natively, by the same rules as in
/// `rushmem info`.
///
/// # Errors
/// - [`Error::Unavailable`] or [`Error::Cuda`] if `RUSHMEM_DEVICE=gpu` is set, but there is no GPU or no PTX.
fn count_gpus(config: &Config, ptx: &[Ptx]) -> Result<u32> {
    let wanted = config.device == DeviceKind::Gpu;
    if config.device == DeviceKind::Native {
        return Ok(0);
    }
    if !wanted && ptx.is_empty() {
        return Ok(0);
    }
    if let Some(none) = ptx.iter().chain([&RUNTIME.operations]).find(|ptx| ptx.image.is_empty()) {
        let why = format!("there is no PTX of {}: {}", none.name, none.omitted);
        if wanted {
            return Err(Error::Unavailable { what: "a GPU for kernels".into(), why });
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

/// Returns the GPU of each of the `on_node` PEs of this node, which has `found` GPUs. Empty if `found` is 0.
///
/// # Errors
/// - [`Error::Unavailable`] if the setting `gpus` names a GPU that does not exist, or none at all.
pub(crate) fn share_gpus(config: &Config, found: u32, on_node: u32) -> Result<Vec<u32>> {
    if found == 0 {
        return Ok(Vec::new());
    }
    let gpu_of = |pe: u32| match config.gpus.of(pe, found) {
        Some(gpu) if gpu < found => Ok(gpu),
        Some(gpu) => {
            let why = format!("this node has {found}, numbered from 0; change RUSHMEM_GPUS");
            Err(Error::Unavailable { what: format!("GPU {gpu}"), why })
        }
        None => Err(Error::Unavailable { what: "a GPU".into(), why: "RUSHMEM_GPUS names no GPU".into() }),
    };
    (0..on_node).map(gpu_of).collect()
}

/// Returns the number of this PE on its machine, and the number of PEs there. Collective.
fn local_number(pe: &dyn Bootstrap) -> Result<(u32, u32)> {
    let machine = boot_id().unwrap_or_default().into_bytes();
    let machines = pe.allgather("the exchange of machines", &machine)?;
    let here = |of: &[Vec<u8>]| of.iter().filter(|other| **other == machine).count() as u32;
    Ok((here(&machines[..pe.pe() as usize]), here(&machines)))
}

/// The part of their heaps and queues that PEs must be able to use at the same time: one in so many bytes.
///
/// The system provides pages at their first use, and few PEs use all of theirs.
const SHARE_IN_USE: u64 = 4;

/// Checks that this machine can hold the heap, queues and teams of one PE, and the share that `pes` PEs use at a time.
///
/// # Errors
/// - [`Error::HeapTooLarge`] if it cannot.
fn check_memory(config: &Config, pes: u32) -> Result<()> {
    let Some(available) = available_memory() else { return Ok(()) };
    let wanted = config.heap_bytes.0.saturating_add(queue_memory(config));
    tracing::debug!(wanted, pes, available, "bytes of heap, queues and teams for each PE of this node");
    if wanted > available || wanted.saturating_mul(pes.into()) / SHARE_IN_USE > available {
        return Err(Error::HeapTooLarge { wanted, pes, memory: "this machine's memory".into(), available });
    }
    Ok(())
}

/// Returns the bytes that the queues and teams of a PE need. They are in host memory or in GPU memory.
pub(crate) fn queue_memory(config: &Config) -> u64 {
    Shape::new(config, config.n_pes.unwrap_or(config.pes).get()).memory()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assigns_gpus_by_the_setting() {
        let with = |gpus: &str| {
            let mut config = Config::default();
            config.set("gpus", gpus).unwrap();
            config
        };
        // `auto` assigns the GPUs in turn. PEs share GPUs if there are more PEs than GPUs.
        assert_eq!(share_gpus(&with("auto"), 4, 4).unwrap(), [0, 1, 2, 3]);
        assert_eq!(share_gpus(&with("auto"), 2, 4).unwrap(), [0, 1, 0, 1]);
        assert_eq!(share_gpus(&with("3,1"), 4, 3).unwrap(), [3, 1, 3]);
        assert!(share_gpus(&with("auto"), 0, 2).unwrap().is_empty());
        let error = share_gpus(&with("0,4"), 4, 2).unwrap_err().to_string();
        assert!(error.starts_with("GPU 4 is not available: this node has 4"), "{error}");
    }

    #[test]
    fn refuses_device_gpu_without_ptx() {
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
