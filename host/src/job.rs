//! Runs a job in this process: finds the other PEs, prepares the machine and NICs, and runs the application.

mod app_error;
mod gpus;
mod memory_check;
mod resources;
mod running;

use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rushmem_base::{boot_id, panic_text};
use rushmem_device::abi::MAX_LIVE_TEAMS;
use rushmem_fabric::queues::Shape;
use rushmem_machine::{KernelLine, Output, waits};
use rushmem_observe::sanitize::{self, PeWatch};
use rushmem_observe::trace::{JobTrace, PeTrace};

use crate::bootstrap::{self, Bootstrap, Exchange, UniqueId};
use crate::build::build_id;
use crate::config::{Config, Membership, PeerPath, Switch};
use crate::membership::unsupported;
use crate::modules::{Modules, RUNTIME, check_features};
use crate::{Error, Pe, Ptx, Result, deadlines, log};

pub use app_error::AppError;
pub(crate) use gpus::share_gpus;
pub(crate) use memory_check::queue_memory;
pub use running::RunningPe;

use gpus::count_gpus;
use memory_check::check_memory;
use resources::ProcessResources;
use running::StartedPe;

/// A job: the PEs that run an application, in one or more processes.
///
/// A `Job` holds the settings and kernels of this process. [`run`](Job::run) finds the other processes, runs the
/// application on every PE of this process, and shuts the job down. Settings come from the environment and a file
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

/// The connections of this process's PEs to the other PEs of the job.
type ProcessPes = Vec<Arc<dyn Bootstrap>>;

/// The way in which this process finds the other PEs of its job.
#[derive(Clone, Copy, Debug)]
enum Rendezvous {
    /// From the settings and the launcher's environment variables.
    Environment,
    /// Through a unique ID that the program has distributed.
    Id { id: UniqueId, pe: u32, n_pes: u32 },
}

impl Job {
    /// Creates a job with the settings from the environment and the settings file.
    ///
    /// # Errors
    /// - [`Error::Config`] for an unknown setting or an invalid value.
    pub fn new() -> Result<Self> {
        Ok(Self::with_config(Config::load()?))
    }

    /// Creates a job with the settings `config`, rather than those of the environment and the settings file.
    pub fn with_config(config: Config) -> Self {
        Self { config, ptx: Vec::new(), rendezvous: Rendezvous::Environment, output: Output::default() }
    }

    /// Returns the job's settings. [`run`](Job::run) adds the values that a launcher supplies: see [`Pe::config`].
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Adds kernels for GPUs: a module or crate compiled by `build.rs`.
    ///
    /// The kernels are loaded before the job starts, and stay loaded until the process exits. [`Pe::load`] loads more
    /// kernels while the job runs. [`Job::run`] returns [`Error::Misuse`] if two kernels have the same name.
    ///
    /// Without this call, a job runs its kernels natively, unless `RUSHMEM_DEVICE=gpu` is set. With that setting, host
    /// operations and the kernels of [`Pe::load`] run on the GPU.
    #[must_use]
    pub fn kernels(mut self, ptx: Ptx) -> Self {
        self.ptx.push(ptx);
        self
    }

    /// Passes the lines that kernels print with [`kprintln!`](rushmem_device::kprintln) to `receive` instead of
    /// standard output.
    ///
    /// Threads of the runtime call `receive` while kernels run, and again when a launch is waited for, before the wait
    /// returns. The lines of a GPU thread arrive in order. `receive` must not call the runtime.
    #[must_use]
    pub fn kernel_output(mut self, receive: impl Fn(KernelLine) + Send + Sync + 'static) -> Self {
        self.output = Output::new(receive);
        self
    }

    /// Makes this process PE `pe` in a job of `n_pes` PEs. The processes find each other by `id`, without a launcher.
    ///
    /// One of the PEs creates the ID, and the program distributes it. NVSHMEM: `nvshmemx_set_attr_uniqueid_args`.
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

    /// Makes the processes of `exchange` the PEs of the job, with the same numbers. All of them must make the call.
    ///
    /// PE 0 creates a [`UniqueId`], which the exchange distributes. The call starts the log as [`run`](Job::run) does.
    ///
    /// # Errors
    /// - [`Error::Config`] if the settings for the log are invalid.
    /// - [`Error::Bootstrap`] if the exchange fails, or PE 0 cannot listen.
    pub fn with_exchange(self, exchange: &dyn Exchange) -> Result<Self> {
        log::init_if_unset(&self.config)?;
        let id = bootstrap::agree_on_id(exchange, &self.config)?;
        Ok(self.with_id(id, exchange.pe(), exchange.n_pes()))
    }

    /// Runs `app` on each PE of this process, in a separate thread each. Returns their results by PE number.
    ///
    /// Under a launcher (`rushmem run`, `mpirun`, `srun`, `torchrun`) or with a unique ID, this process is one PE.
    /// Otherwise it is a whole job of `RUSHMEM_PES` PEs. docs/launching.md describes the launchers. A process may run
    /// several jobs in sequence, provided that all processes of the job do.
    ///
    /// All PEs must reach the start of the job and its end. If a PE fails, the runtime aborts the others, in this and
    /// in other processes. Kernels that wait on them return [`rushmem_device::Error::Aborted`].
    ///
    /// # Errors
    /// - [`Error::App`] or [`Error::Panic`] if `app` fails or panics. If `app` returns an [`Error`], that error.
    /// - [`Error::Config`] if the settings for the log are invalid.
    /// - [`Error::Bootstrap`] if the PEs do not find each other, [`Error::Mismatch`] if their settings differ.
    /// - [`Error::Unavailable`], [`Error::HeapTooLarge`], [`Error::Cuda`] if the machine lacks a requested resource.
    /// - [`Error::Unavailable`] if another running job of this process writes to the timeline file.
    /// - [`Error::Nic`], [`Error::SoftNic`], [`Error::Probe`], [`Error::MixedNics`] if a NIC does not work.
    /// - [`Error::Misuse`] if two kernels have the same name.
    /// - [`Error::Sanitizer`] with the findings, if the setting `sanitize` is on.
    ///
    /// Errors of launches and streams that `app` has dropped count as errors of the PE. If several PEs of this process
    /// fail, the error closest to the cause is returned.
    ///
    /// # Log
    /// If the program has not set a `tracing` subscriber, the call starts the log as [`init_log`](crate::init_log)
    /// does. By default, the log shows warnings and errors; the setting `RUSHMEM_LOG` changes that.
    pub fn run<R, E>(self, app: impl Fn(&Pe) -> Result<R, E> + Send + Sync) -> Result<Vec<R>>
    where
        R: Send,
        E: Into<AppError>,
    {
        let (job, resources, pes) = self.prepare()?;
        let results = job.run_pes(&resources, pes, &app);
        job.conclude(resources, results)
    }

    /// Starts the only PE of this process, and returns it. [`RunningPe::finish`] shuts it down.
    ///
    /// For libraries and bindings whose initialization and finalization are separate calls. Programs use
    /// [`run`](Job::run), which shuts the PE down on every path. This process is one PE under a launcher or with a
    /// unique ID, or the whole job if `RUSHMEM_PES` is 1. All PEs must start and finish the job, whichever of
    /// the two calls they use.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if this process is a job of several PEs.
    /// - The errors of [`run`](Job::run) that are not about the application.
    ///
    /// # Examples
    /// ```no_run
    /// use rushmem::{Error, Job};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let pe = Job::new()?.start()?;
    ///     let numbers = pe.alloc::<u64>(16)?;
    ///     pe.free(numbers)?;
    ///     pe.finish()
    /// }
    /// ```
    pub fn start(self) -> Result<RunningPe> {
        let pes = self.config.pes.get();
        if pes > 1 && self.is_threads()? {
            let what = format!(
                "this process is a job of {pes} PEs; use `Job::run`, start each PE as a process with `rushmem run`, \
                 or set RUSHMEM_PES=1"
            );
            return Err(Error::misuse("start", what));
        }
        let (job, resources, pes) = self.prepare()?;
        RunningPe::start(job, resources, pes)
    }

    /// Finds the other PEs and prepares what the PEs of this process share. Returns the job with its final settings,
    /// these resources, and the PEs of this process.
    fn prepare(mut self) -> Result<(Self, ProcessResources, ProcessPes)> {
        log::init_if_unset(&self.config)?;
        // First of all: loading CUDA sets environment variables, which is safe only before other threads exist.
        let gpus = count_gpus(&self.config, &self.ptx)?;
        deadlines::extend(&mut self.config, gpus == 0);
        let is_threads = self.is_threads()?;
        self.prepare_sanitizer(gpus == 0)?;
        self.check_membership(is_threads)?;
        let trace = JobTrace::new(&self.config, gpus == 0, &self.ptx)?;
        waits::listen();
        // PEs as threads share the memory of this process. Refuse an absurd number of them before creating any.
        if gpus == 0 && is_threads {
            check_memory(&self.config, self.config.pes.get())?;
        }
        // From here on the other PEs know this one, so failures must be reported to them.
        let (job, pes) = self.join()?;
        let prepared = ProcessResources::prepare(&job.config, gpus, is_threads, trace);
        match prepared.and_then(|resources| resources.sanitized(&job.config, &pes, is_threads)) {
            Ok(resources) => Ok((job, resources, pes)),
            Err(error) => {
                pes.iter().for_each(|pe| pe.abort(&error.to_string()));
                Err(error)
            }
        }
    }

    /// Finishes the reports on the job, after its PEs in this process have been shut down with `results`. Returns the
    /// results, or the error closest to the cause.
    fn conclude<R>(&self, mut resources: ProcessResources, results: Vec<Result<R>>) -> Result<Vec<R>> {
        resources.stop_search();
        let written = resources.finish_trace(&self.config);
        let has_timed_out = results.iter().any(|result| result.as_ref().is_err_and(Error::is_deadline));
        let findings = resources.findings(&self.config, has_timed_out)?;
        if !findings.is_empty() && !results.iter().any(is_own_error) {
            return Err(Error::Sanitizer(findings));
        }
        let failed = |(i, result): (usize, &Result<R>)| result.as_ref().err().map(|e| (e.distance(), i));
        match results.iter().enumerate().filter_map(failed).min() {
            Some((_, cause)) => {
                // The PE's failure is more informative.
                written.unwrap_or_else(|error| tracing::warn!("{error}"));
                results.into_iter().nth(cause).into_iter().collect()
            }
            None => written.and_then(|()| results.into_iter().collect()),
        }
    }

    /// Runs `app` on the PEs of this process, each on a separate thread, and returns their results.
    fn run_pes<R, E>(
        &self,
        resources: &ProcessResources,
        pes: ProcessPes,
        app: &(impl Fn(&Pe) -> Result<R, E> + Sync),
    ) -> Vec<Result<R>>
    where
        R: Send,
        E: Into<AppError>,
    {
        std::thread::scope(|scope| {
            let start = |(i, pe): (usize, Arc<dyn Bootstrap>)| {
                let name = format!("rushmem-pe-{}", pe.pe());
                let job = self.clone();
                let run = move || job.run_pe(resources, i as u32, pe, app);
                std::thread::Builder::new().name(name).spawn_scoped(scope, run).map_err(Error::Thread)
            };
            let threads: Vec<_> = pes.into_iter().enumerate().map(start).collect();
            let results = threads.into_iter().map(|thread| match thread?.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            results.collect()
        })
    }

    /// Returns whether the whole job runs in this process, with its PEs as threads.
    fn is_threads(&self) -> Result<bool> {
        Ok(match self.rendezvous {
            Rendezvous::Environment => !bootstrap::is_launched(&self.config)?,
            Rendezvous::Id { .. } => false,
        })
    }

    /// Checks and adapts the settings for the sanitizer, if it is on. The sanitizer needs all PEs to map each other's
    /// memory.
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

    /// Checks that live membership is supported with the other settings.
    fn check_membership(&self, is_threads: bool) -> Result<()> {
        let config = &self.config;
        let why = if config.membership == Membership::Fixed {
            if config.vacant_pes == 0 {
                return Ok(());
            }
            let why = "set RUSHMEM_MEMBERSHIP=live, or RUSHMEM_VACANT_PES=0".into();
            return Err(Error::Unavailable { what: "a job with vacant PEs".into(), why });
        } else if is_threads && config.pes.get() > 1 {
            "the PEs are threads of one process, which all end with it; start processes with `rushmem run`"
        } else if config.sanitize == Switch::On {
            "the sanitizer follows all PEs of a job to its end; set RUSHMEM_SANITIZE=off"
        } else if config.teams.get() > MAX_LIVE_TEAMS {
            "kernels learn of losses in up to 1024 teams; lower RUSHMEM_TEAMS"
        } else {
            return Ok(());
        };
        Err(unsupported(why))
    }

    /// Finds the other PEs. Returns the job, with the PE numbers of this process added to its settings, and the PEs of
    /// this process.
    fn join(mut self) -> Result<(Self, ProcessPes)> {
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

    /// Starts a PE, runs `app` on it, and shuts it down. `local` is the PE's index in this process.
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
        let started = self.start_pe(resources, local, bootstrap)?;
        let outcome = match catch_unwind(AssertUnwindSafe(|| app(started.pe()))) {
            Ok(result) => result.map_err(|e| e.into().0),
            Err(panic) => Err(Error::Panic(panic_text(&*panic).unwrap_or("unknown cause").into())),
        };
        started.finish(outcome)
    }

    /// Starts a PE. `local` is its index in this process. If that fails, the other PEs are aborted.
    fn start_pe(
        self,
        resources: &ProcessResources,
        local: u32,
        bootstrap: Arc<dyn Bootstrap>,
    ) -> Result<StartedPe> {
        let watch = PeWatch::new(resources.sanitizer.as_ref(), bootstrap.pe());
        let trace = PeTrace::new(resources.trace.as_ref(), bootstrap.pe());
        let machine = resources.machine(&self.config, local, &watch, &trace);
        let started = machine.and_then(|machine| {
            // Before any kernel runs: loading waits for running kernels, and these may wait for this PE.
            let ptx = [&[RUNTIME.operations], &*self.ptx].concat();
            let shape = Shape::new(&self.config, bootstrap.n_pes());
            ptx.iter().try_for_each(|ptx| check_features(&*machine, shape, ptx))?;
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
        match started {
            Ok(Some(pe)) => StartedPe::new(pe),
            // The program has nothing to do, whichever call has started the PE.
            Ok(None) => std::process::exit(0),
            Err(error) => {
                bootstrap.abort(&error.abort_reason());
                Err(error)
            }
        }
    }
}

/// Returns whether a PE failed because of an error in the application. If the sanitizer has found races or deadlocks,
/// all other failures of kernels and PEs are only symptoms.
fn is_own_error<R>(result: &Result<R>) -> bool {
    matches!(result, Err(Error::App(_) | Error::Panic(_) | Error::Misuse { .. }))
}

/// Returns this PE's index on its machine, and the number of PEs there. Collective.
fn local_number(pe: &dyn Bootstrap) -> Result<(u32, u32)> {
    let machine = boot_id().unwrap_or_default().into_bytes();
    let machines = pe.allgather("the exchange of machines", &machine)?;
    let here = |of: &[Vec<u8>]| of.iter().filter(|other| **other == machine).count() as u32;
    Ok((here(&machines[..pe.pe() as usize]), here(&machines)))
}
