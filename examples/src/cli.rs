//! Options, settings and exit codes shared by all examples.

use std::num::NonZeroU32;
use std::process::ExitCode;

use rushmem::config::{Bytes, Config};

/// The result of an example's functions, with any error type.
pub type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// Command-line options that all examples accept.
#[derive(clap::Args, Debug)]
pub struct JobArgs {
    /// Number of PEs, as threads of this process; `rushmem run -n N` starts PEs as processes
    #[arg(long, value_name = "N")]
    pes: Option<NonZeroU32>,
}

impl JobArgs {
    /// Loads the settings of the job and starts the log that they configure.
    ///
    /// # Errors
    /// - A setting is invalid.
    /// - `--pes` is given in a process that a launcher has started.
    pub fn config(&self) -> Result<Config> {
        let mut config = Config::load()?;
        if let Some(pes) = self.pes {
            if let (Some(pe), Some(n_pes)) = (config.pe, config.n_pes) {
                return Err(format!(
                    "--pes {pes} asks for PEs as threads, but this process is PE {pe} of {n_pes} already: leave it out \
                     under a launcher"
                )
                .into());
            }
            config.set("pes", &pes.to_string())?;
        }
        config.check()?;
        rushmem::init_log(&config)?;
        Ok(config)
    }
}

/// Returns the number of PEs of the job, from its settings or from the launcher's environment variables.
///
/// # Errors
/// - The launcher's variables are incomplete or do not contain the number.
pub fn n_pes(config: &Config) -> Result<u32> {
    let told = rushmem::bootstrap::n_pes(config)?;
    told.ok_or_else(|| {
        "the launcher does not tell the number of PEs: use Open MPI, Slurm or `rushmem run`".into()
    })
}

/// Raises the symmetric heap size in `config` to fit `bytes` in `objects` objects, unless the user has set it.
pub fn need_heap(config: &mut Config, bytes: u64, objects: u64) {
    const ALIGNMENT: u64 = 128;
    if config.is_default("heap_bytes") {
        let needed = (bytes + objects * ALIGNMENT).next_multiple_of(1 << 20);
        config.heap_bytes = Bytes(config.heap_bytes.0.max(needed));
    }
}

/// Converts the result of a program to its exit code. Prints an error as one line on standard error.
pub fn exit_code(program: &str, result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}
