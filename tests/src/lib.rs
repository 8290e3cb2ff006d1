//! What the whole-system suites share: jobs with settings, and tests that say why they were skipped.

pub mod app;
pub mod files;
pub mod launch;
pub mod mpi;
pub mod repository;
pub mod rust_source;

use std::fmt;

use rushmem::config::Config;
use rushmem::{AppError, Error, Grid, Job, Pe, Ptx};

/// A job of the test kernels, on whatever `RUSHMEM_DEVICE` and the machine say: CPU or GPU.
#[derive(Clone)]
pub struct Setup {
    config: Config,
    name: String,
}

impl Setup {
    /// A job of `pes` PEs as threads of this process.
    ///
    /// # Panics
    /// If the environment has settings that are no settings.
    pub fn new(pes: u32) -> Self {
        let config = Config::load().expect("the settings of this test's environment");
        Self { config, name: String::new() }
            .with("pes", pes)
            .with("heap_bytes", "4MiB")
            // Long, for a busy machine: nothing waits so long unless it fails.
            .with("timeout", "60s")
    }

    /// The job with another setting.
    ///
    /// # Panics
    /// If there is no such setting.
    pub fn with(mut self, key: &str, value: impl fmt::Display) -> Self {
        self.config.set(key, &value.to_string()).expect("a setting of a test");
        self.name += &format!(" {key}={value}");
        self
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// PEs of the job.
    pub fn pes(&self) -> u32 {
        self.config.pes.get()
    }

    /// The job.
    pub fn job(&self) -> Job {
        Job::with_config(self.config.clone()).kernels(kernels())
    }

    /// Runs `app` on every PE, and returns what each returned.
    ///
    /// # Errors
    /// The job's.
    pub fn try_run<R: Send, E: Into<AppError>>(
        &self,
        app: impl Fn(&Pe) -> Result<R, E> + Send + Sync,
    ) -> Result<Vec<R>, Error> {
        self.job().run(app)
    }

    /// Runs `app` on every PE, and returns what each returned.
    ///
    /// # Panics
    /// If the job fails; the message names the settings.
    pub fn run<R: Send>(&self, app: impl Fn(&Pe) -> Result<R, Error> + Send + Sync) -> Vec<R> {
        self.try_run(app).unwrap_or_else(|error| panic!("{self}: {error}"))
    }

    /// Whether this machine runs the kernels on a GPU.
    pub fn on_gpu() -> bool {
        let setup = Self::new(1);
        setup.run(|pe| Ok(pe.is_gpu())) == [true]
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.trim())
    }
}

/// The test kernels, for GPUs.
pub fn kernels() -> Ptx {
    rushmem::ptx!("rushmem_test_kernels")
}

/// A grid without shared memory.
pub const fn grid(blocks: u32, threads: u32) -> Grid {
    Grid { blocks, threads, shared_bytes: 0 }
}

/// Says that a test cannot run here, and why. Where `CI_REQUIRE_ALL` is set, that is a failure.
///
/// # Panics
/// Where `CI_REQUIRE_ALL` is set.
pub fn skip(test: &str, reason: &str) {
    assert!(
        std::env::var_os("CI_REQUIRE_ALL").is_none(),
        "{test} cannot run, and CI_REQUIRE_ALL is set: {reason}"
    );
    eprintln!("SKIPPED {test}: {reason}");
}
