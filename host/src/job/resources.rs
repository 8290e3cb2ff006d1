//! Resources that the PEs of a process share: NICs and GPUs, the sanitizer, and the timeline.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rushmem_fabric::nics::Nics;
use rushmem_machine::{Gpu, Machine, Native, kernel_limit};
use rushmem_observe::sanitize::{PeWatch, Sanitizer};
use rushmem_observe::trace::{JobTrace, PeTrace, TraceFile};

use super::gpus::share_gpus;
use super::memory_check::check_memory;
use crate::bootstrap::Bootstrap;
use crate::config::{Config, HeapKind, Switch};
use crate::cuda::{Cuda, Device, driver_gate};
use crate::modules::RUNTIME;
use crate::sanitizer::Finding;
use crate::{Error, Result, native};

pub(super) struct ProcessResources {
    pub(super) nics: Nics,
    /// For each PE of this node, the ordinal of its GPU. Empty if kernels run natively.
    gpus: Vec<u32>,
    /// Number of PEs on this node.
    on_node: u32,
    /// Index of this process's first PE among the PEs of the node.
    pub(super) first: u32,
    /// ID of this job, unique within the process.
    job: driver_gate::JobId,
    pub(super) sanitizer: Option<Arc<Sanitizer>>,
    search: Option<DeadlockSearch>,
    pub(super) trace: Option<JobTrace>,
    trace_file: Option<TraceFile>,
}

impl ProcessResources {
    pub(super) fn prepare(
        config: &Config,
        gpus: u32,
        is_threads: bool,
        trace: Option<JobTrace>,
    ) -> Result<Self> {
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
            search: None,
            trace,
            trace_file,
        })
    }

    /// Returns the resources with a sanitizer added, if the settings ask for it. Collective if PEs are processes.
    pub(super) fn sanitized(
        self,
        config: &Config,
        pes: &[Arc<dyn Bootstrap>],
        is_threads: bool,
    ) -> Result<Self> {
        let sanitizer = match pes {
            _ if config.sanitize == Switch::Off => None,
            [pe] if !is_threads => Some(Sanitizer::of_process(&**pe)?),
            pes => Some(Sanitizer::of_threads(pes.len() as u32)),
        };
        let search = sanitizer.as_ref().map(|sanitizer| DeadlockSearch::start(sanitizer, config.timeout));
        Ok(Self { search: search.transpose()?, sanitizer, ..self })
    }

    /// Stops the search for deadlocks. All PEs of this process must have been shut down.
    pub(super) fn stop_search(&mut self) {
        if let Some(search) = self.search.take() {
            search.stop();
        }
    }

    /// Reports and returns the findings of the sanitizer. `has_timed_out` is true if a deadline has stopped the job.
    pub(super) fn findings(&self, config: &Config, has_timed_out: bool) -> Result<Vec<Finding>> {
        match &self.sanitizer {
            Some(sanitizer) => sanitizer.findings(&config.sanitize_report, has_timed_out),
            None => Ok(Vec::new()),
        }
    }

    /// Writes the timeline of this process. All its PEs must have been shut down.
    pub(super) fn finish_trace(&mut self, config: &Config) -> Result<()> {
        self.nics.close();
        let file = self.trace_file.as_ref();
        self.trace.as_ref().map_or(Ok(()), |trace| trace.finish(file, config.pe))
    }

    /// Returns the machine that runs the kernels of PE number `i` of this process, counted from 0.
    pub(super) fn machine(
        &self,
        config: &Config,
        i: u32,
        watch: &PeWatch,
        trace: &PeTrace,
    ) -> Result<Arc<dyn Machine>> {
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
            workers: NonZeroUsize::new(config.native_workers as usize),
            sharers: self.on_node,
            time_limit: kernel_limit(config),
            weak_memory: config.weak_memory == Switch::On,
            ..Default::default()
        };
        Ok(Arc::new(Native::new(options).watched_by(watch.clone()).traced_by(trace.clone())))
    }

    /// Warns that `sharers` processes take turns on `gpu`. Only the first of these processes logs the warning.
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

/// A thread that searches the running job for deadlocks, on behalf of the sanitizer.
struct DeadlockSearch {
    /// Disconnected to stop the thread. Nothing is sent.
    running: Sender<()>,
    thread: JoinHandle<()>,
}

impl DeadlockSearch {
    fn start(sanitizer: &Arc<Sanitizer>, deadline: Duration) -> Result<Self> {
        let (running, has_ended) = channel();
        let sanitizer = Arc::clone(sanitizer);
        let search = move || sanitizer.look_for_deadlocks(&has_ended, deadline);
        let thread = std::thread::Builder::new().name("rushmem-deadlocks".into()).spawn(search);
        Ok(Self { running, thread: thread.map_err(Error::Thread)? })
    }

    fn stop(self) {
        drop(self.running);
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}
