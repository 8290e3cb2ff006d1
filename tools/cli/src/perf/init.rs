//! Measures the time and the memory that it costs to start a job, by number of PEs.

use std::time::Instant;

use rushmem::config::Config;
use rushmem::{Job, Ptx, bootstrap};
use rushmem_base::status_bytes;

use super::bench::Bench;
use super::plan::Case;
use super::recorder::Recorder;
use super::results::Row;
use crate::error::Error;

/// Starts jobs repeatedly, and records the cost for each number of PEs.
///
/// Under a launcher, the number of PEs is fixed, and all processes start the same jobs.
pub(super) fn measure(
    config: &Config,
    ptx: Ptx,
    cases: &[Case],
    runs: usize,
    recorder: &Recorder,
) -> Result<(), Error> {
    let mut numbers: Vec<u32> = cases.iter().map(|case| case.pes).collect();
    numbers.sort_unstable();
    numbers.dedup();
    for pes in numbers {
        let mut config = config.clone();
        if !bootstrap::is_launched(&config)? {
            config.set("pes", &pes.to_string())?;
        }
        // The first start is a warm-up.
        let first = start(&config, ptx)?;
        let starts: Vec<Start> = (0..runs).map(|_| start(&config, ptx)).collect::<Result<_, _>>()?;
        for case in cases.iter().filter(|case| case.pes == pes) {
            let value = |start: &Start| if case.bench == Bench::Init { start.ms } else { start.mib };
            recorder.add(&first.machine, Row::new(case, starts.iter().map(value).collect()))?;
        }
    }
    Ok(())
}

/// Time and memory that one start of a job costs.
struct Start {
    /// Milliseconds until the last PE of this process started its work.
    ms: f64,
    /// Growth of the process's resident memory until all its PEs have started, in MiB per PE.
    mib: f64,
    machine: String,
}

fn start(config: &Config, ptx: Ptx) -> Result<Start, rushmem::Error> {
    let (before, begin) = (resident(), Instant::now());
    let seen = Job::with_config(config.clone()).kernels(ptx).run(|pe| {
        let took = begin.elapsed();
        pe.host_sync()?;
        let bytes = resident();
        pe.host_sync()?;
        Ok::<_, rushmem::Error>((took, bytes, pe.machine()))
    })?;
    let ms = seen.iter().map(|(took, ..)| took.as_secs_f64() * 1e3).fold(0.0, f64::max);
    let most = seen.iter().map(|(_, bytes, ..)| *bytes).max().unwrap_or(before);
    let mib = most.saturating_sub(before) as f64 / seen.len() as f64 / f64::from(1 << 20);
    let machine = seen.into_iter().next().map_or(String::new(), |(_, _, machine)| machine);
    Ok(Start { ms, mib, machine })
}

/// Returns the resident bytes of this process, or 0 if the system does not report them.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status_bytes(&status, "VmRSS").unwrap_or(0)
}
