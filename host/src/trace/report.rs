//! The file and the tables of a job, at its end.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rushmem_base::lock;
use rushmem_device::watch;
use rushmem_trace::{Recorder, Summary, Trace};

use crate::config::{Config, Switch};
use crate::{Error, Result};

/// The spans of the earlier jobs of this process.
static EARLIER: Mutex<Trace> = Mutex::new(Trace { spans: Vec::new(), dropped: 0, clock_error_ns: 0 });

/// The timeline of a job in this process.
#[derive(Clone, Debug)]
pub(crate) struct JobTrace {
    pub(crate) recorder: Arc<Recorder>,
    file: String,
    has_tables: bool,
}

impl JobTrace {
    /// Returns the timeline, if the settings ask for one.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] under the sanitizer.
    pub(crate) fn new(config: &Config, is_native: bool) -> Result<Option<Self>> {
        let (file, has_tables) = (config.trace.clone(), config.stats == Switch::On);
        if file.is_empty() && !has_tables {
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
        Ok(Some(Self { recorder: Arc::new(Recorder::new(config.trace_limit as usize)), file, has_tables }))
    }

    /// Writes the file and prints the tables. `pe` is this process's PE if there are others.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if the file cannot be written.
    pub(crate) fn finish(&self, pe: Option<u32>) -> Result<()> {
        let trace = self.recorder.trace();
        if self.has_tables {
            let about = pe.map_or_else(String::new, |pe| format!("PE {pe}: "));
            // Nobody reads a closed standard error.
            let _ = write!(std::io::stderr(), "rushmem: {about}{}", Summary::new(&trace));
        }
        if self.file.is_empty() {
            return Ok(());
        }
        let mut all = lock(&EARLIER);
        all.merge(trace);
        let file = pe.map_or_else(|| self.file.clone(), |pe| format!("{}.pe{pe}", self.file));
        let unwritten = |why: String| Error::Unavailable { what: format!("the timeline, {file},"), why };
        let to = File::create(Path::new(&file)).map_err(|error| unwritten(error.to_string()))?;
        all.write(to).map_err(|error| unwritten(error.to_string()))
    }
}
