//! Determines the PEs that run the benchmarks: threads of this process, or processes of a launcher.

use std::num::NonZeroU32;

use rushmem::config::Config;
use rushmem::{Job, bootstrap};

use crate::error::Error;

/// The PEs of the measured jobs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pes {
    pub(super) n: u32,
    /// Whether a launcher started the PEs, which fixes their number.
    pub(super) is_launched: bool,
    /// Whether PE 0, which collects the results, runs in this process.
    pub(super) has_pe_0: bool,
}

impl Pes {
    /// Determines the PEs of the launcher. Without a launcher, configures `asked` PEs.
    ///
    /// # Errors
    /// - [`Error::Usage`] if there are fewer than two PEs, or a number is given although a launcher fixes it.
    /// - [`Error::Bootstrap`], [`Error::Job`] if the variables of the launcher are invalid, or the job cannot be
    ///   joined.
    pub(super) fn find(asked: Option<u32>, config: &mut Config) -> Result<Self, Error> {
        if !bootstrap::is_launched(config)? {
            let n = asked.unwrap_or(2);
            config.set("pes", &n.to_string())?;
            return Ok(Self { n, is_launched: false, has_pe_0: true });
        }
        let (pe, n) = match config.pe.zip(config.n_pes.map(NonZeroU32::get)) {
            Some(given) => given,
            None => in_first_job(config)?,
        };
        match asked {
            Some(asked) => Err(Error::Usage(format!(
                "--pes {asked}: the launcher has already started {n} PEs; remove the option"
            ))),
            None if n < 2 => Err(Error::Usage("measuring needs at least two PEs; start two or more".into())),
            None => Ok(Self { n, is_launched: true, has_pe_0: pe == 0 }),
        }
    }
}

/// Returns this process's PE and the number of PEs, by running a job. MPI launchers and torchrun reveal them only to a
/// job.
fn in_first_job(config: &Config) -> Result<(u32, u32), Error> {
    let job = Job::with_config(config.clone());
    let found = job.run(|pe| Ok::<_, rushmem::Error>((pe.my_pe(), pe.n_pes())))?;
    found.first().copied().ok_or_else(|| Error::Internal("a launched process without a PE".into()))
}
