//! Shared code of the system tests: jobs with settings, reports of skipped tests, and access to sources.

pub mod app;
mod cuts;
mod experts;
pub mod files;
pub mod fork;
pub mod hosts;
pub mod launch;
mod losses;
pub mod mpi;
pub mod nodes;
mod replacements;
pub mod repository;
pub mod rust_source;
pub mod slurm;
pub mod sshd;

use std::fmt;

use rushmem::config::{Config, Switch};
use rushmem::{AppError, Error, Job, LaunchConfig, Pe, Ptx};

/// Returns the text of a host error without its source location. Asserts that the location is a line of a test.
pub fn without_line(error: &Error) -> String {
    let text = error.to_string();
    let (before, line) = text.rsplit_once(", at ").unwrap_or_else(|| panic!("no line: {text}"));
    let (file, number) = line.rsplit_once(':').unwrap_or_default();
    assert!(
        file.starts_with("tests/tests/") && number.parse::<u32>().is_ok(),
        "not a line of a test: {text}"
    );
    before.to_owned()
}

/// A job of the test kernels. `RUSHMEM_DEVICE` and the machine decide whether it runs on the CPU or on GPUs.
#[derive(Clone)]
pub struct Setup {
    config: Config,
    name: String,
}

impl Setup {
    /// Creates a job of `pes` PEs as threads of this process.
    ///
    /// # Panics
    /// If the environment has an invalid setting.
    pub fn new(pes: u32) -> Self {
        let config = Config::load().expect("the settings of this test's environment");
        Self { config, name: String::new() }
            .with("pes", pes)
            .with("heap_bytes", "4MiB")
            // Long enough for a busy machine. Only a failing test waits this long.
            .with("timeout", "60s")
    }

    /// Changes a setting of the job.
    ///
    /// # Panics
    /// If the setting is invalid.
    pub fn with(mut self, key: &str, value: impl fmt::Display) -> Self {
        self.config.set(key, &value.to_string()).expect("a setting of a test");
        self.name += &format!(" {key}={value}");
        self
    }

    /// Runs the job without the sanitizer even if `RUSHMEM_SANITIZE` asks for it. `reason` completes the sentence "the
    /// job runs without the sanitizer because".
    pub fn without_sanitizer(mut self, reason: &str) -> Self {
        if self.config.sanitize == Switch::On {
            eprintln!("WITHOUT SANITIZER: {reason}");
            self.config.sanitize = Switch::Off;
        }
        self
    }

    /// Returns the settings with which jobs are created.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the number of PEs of the job.
    pub fn pes(&self) -> u32 {
        self.config.pes.get()
    }

    /// Creates a job of the test kernels with these settings.
    pub fn job(&self) -> Job {
        Job::with_config(self.config.clone()).kernels(kernels())
    }

    /// Runs `app` on every PE of a new job and returns the results in PE order.
    ///
    /// # Errors
    /// - the error of the job
    pub fn try_run<R: Send, E: Into<AppError>>(
        &self,
        app: impl Fn(&Pe) -> Result<R, E> + Send + Sync,
    ) -> Result<Vec<R>, Error> {
        self.job().run(app)
    }

    /// Runs `app` on every PE of a new job and returns the results in PE order.
    ///
    /// # Panics
    /// If the job fails; the message names the settings.
    pub fn run<R: Send>(&self, app: impl Fn(&Pe) -> Result<R, Error> + Send + Sync) -> Vec<R> {
        self.try_run(app).unwrap_or_else(|error| panic!("{self}: {error}"))
    }

    /// Whether the settings and this machine make test kernels run on a GPU.
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

/// Returns the PTX of the test kernels, for a job that runs them on GPUs.
pub fn kernels() -> Ptx {
    rushmem::ptx!("rushmem_test_kernels")
}

/// Returns a launch configuration of `blocks` blocks with `threads` threads each, without shared memory.
pub const fn grid(blocks: u32, threads: u32) -> LaunchConfig {
    LaunchConfig::new(blocks, threads)
}

/// Returns how often a test repeats its work: `usual` times, or as often as the environment variable says.
///
/// # Panics
/// If the variable is not a number.
pub fn repetitions(variable: &str, usual: usize) -> usize {
    std::env::var(variable)
        .map_or(usual, |times| times.parse().unwrap_or_else(|_| panic!("{variable} is not a number")))
}

/// Reports that a test cannot run on this machine, and why. With `CI_REQUIRE_ALL` set, this fails the test.
///
/// # Panics
/// If `CI_REQUIRE_ALL` is set.
pub fn skip(test: &str, reason: &str) {
    assert!(
        std::env::var_os("CI_REQUIRE_ALL").is_none(),
        "{test} cannot run, and CI_REQUIRE_ALL is set: {reason}"
    );
    eprintln!("SKIPPED {test}: {reason}");
}
