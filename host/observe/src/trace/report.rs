//! Writes the timeline file and prints the tables of statistics when a job has finished.

use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock};

use rushmem_base::Ptx;
use rushmem_base::lock;
use rushmem_config::{Config, Switch};
use rushmem_device::watch;
use rushmem_error::{Error, ObjectNames, Result};
use rushmem_trace::{Recorder, Summary};

use super::gpu::{self, GpuCalls};
use super::offsets::WireOffsets;
use super::{NicTrace, TraceFile};

/// This process's part of a job's timeline.
#[derive(Clone, Debug)]
pub struct JobTrace {
    /// The spans of this process.
    pub recorder: Arc<Recorder>,
    pub(super) offsets: Arc<WireOffsets>,
    /// Device calls recorded on GPUs by the PEs that have finished.
    pub(super) gpu_calls: Arc<Mutex<Vec<GpuCalls>>>,
    /// Names of the symmetric objects, saved by the first PE that finishes. All PEs have the same objects.
    pub(super) names: Arc<OnceLock<ObjectNames>>,
    /// Whether any of the job's PTX records device calls for the timeline.
    pub(super) has_traced_kernels: bool,
    pub(super) is_native: bool,
    has_tables: bool,
}

/// Text that only PTX built with a timeline contains.
const IN_PTX: &str = " rushmem_trace[";

impl JobTrace {
    /// Creates the timeline if `config` enables the timeline file or the tables. Returns `None` otherwise.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if the sanitizer is enabled, too.
    pub fn new(config: &Config, is_native: bool, ptx: &[Ptx]) -> Result<Option<Self>> {
        let has_tables = config.stats == Switch::On;
        if config.trace.is_empty() && !has_tables {
            return Ok(None);
        }
        if config.sanitize == Switch::On {
            let why = "the sanitizer watches the same calls; set RUSHMEM_TRACE or RUSHMEM_SANITIZE".into();
            return Err(Error::Unavailable { what: "a timeline".into(), why });
        }
        if is_native && !watch::ENABLED {
            tracing::warn!(
                "the timeline has no calls of kernels: this release build has no hooks; build without --release, or \
                 with `--features rushmem/sanitize`"
            );
        }
        let has_traced_kernels = ptx.iter().any(has_timeline);
        if !is_native && !has_traced_kernels {
            tracing::warn!(
                "the timeline has no calls of kernels: their PTX has no timeline; build with RUSHMEM_PTX_TRACE=1"
            );
        }
        Ok(Some(Self {
            recorder: Arc::new(Recorder::new(config.trace_limit as usize)),
            offsets: Arc::default(),
            gpu_calls: Arc::default(),
            names: Arc::default(),
            has_traced_kernels,
            is_native,
            has_tables,
        }))
    }

    /// Creates a recorder for the events of a software ConnectX.
    pub fn nic(&self) -> Arc<NicTrace> {
        Arc::new(NicTrace::new(Arc::clone(&self.recorder), Arc::clone(&self.offsets)))
    }

    /// Writes the job's timeline to `file` and prints the tables. `pe` is the PE of this process, or `None` if all PEs
    /// are in this process.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if the file cannot be written.
    pub fn finish(&self, file: Option<&TraceFile>, pe: Option<u32>) -> Result<()> {
        let gpu_calls = std::mem::take(&mut *lock(&self.gpu_calls));
        gpu::spans(&gpu_calls).into_iter().for_each(|span| self.recorder.add(span));
        self.recorder.add_dropped(gpu_calls.iter().map(|calls| calls.dropped).sum());
        let mut trace = self.recorder.trace();
        if let Some(names) = self.names.get() {
            trace.name_objects(|offset| names.at(offset).map(|place| place.to_string()));
        }
        if self.has_tables {
            let about = pe.map_or_else(String::new, |pe| format!("PE {pe}: "));
            // A closed standard error has no reader.
            let _ = write!(std::io::stderr(), "rushmem: {about}{}", Summary::new(&trace));
        }
        file.map_or(Ok(()), |file| file.write(trace))
    }
}

/// Returns whether the kernels write their calls to a timeline.
pub fn has_timeline(ptx: &Ptx) -> bool {
    ptx.image.contains(IN_PTX)
}
