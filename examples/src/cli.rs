//! Options, settings and the end of a program.

use std::num::NonZeroU32;
use std::process::ExitCode;

use rushmem::config::{Bytes, Config};

/// A result with any error.
pub type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// Options that every example has.
#[derive(clap::Args, Debug)]
pub struct JobArgs {
    /// Number of PEs, as threads of this process; PEs as processes are started by `rushmem run -n N`
    #[arg(long, value_name = "N")]
    pes: Option<NonZeroU32>,
}

impl JobArgs {
    /// Loads the settings of the job and starts the log that they describe.
    ///
    /// # Errors
    /// - A setting is wrong.
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

/// Returns the number of PEs of a job with these settings.
///
/// # Errors
/// - The variables of launchers are incomplete, or do not tell the number.
pub fn n_pes(config: &Config) -> Result<u32> {
    let told = rushmem::bootstrap::n_pes(config)?;
    told.ok_or_else(|| {
        "the launcher does not tell the number of PEs: use Open MPI, Slurm or `rushmem run`".into()
    })
}

/// Makes the symmetric heap large enough for `bytes` in `objects` objects, unless the user has chosen its size.
pub fn need_heap(config: &mut Config, bytes: u64, objects: u64) {
    const ALIGNMENT: u64 = 128;
    if config.is_default("heap_bytes") {
        let needed = (bytes + objects * ALIGNMENT).next_multiple_of(1 << 20);
        config.heap_bytes = Bytes(config.heap_bytes.0.max(needed));
    }
}

/// Returns the exit code of a program. Prints an error as one line on standard error.
pub fn exit_code(program: &str, result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}
