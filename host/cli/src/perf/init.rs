//! Cost of starting a job, by number of PEs.

use std::time::Instant;

use rushmem::config::Config;
use rushmem::{Job, Ptx};

use super::bench::Bench;
use super::measure::Measured;
use super::plan::Case;
use super::results::Row;

/// Starts jobs repeatedly. Returns `None` if PE 0 is in another process.
pub(super) fn measure(
    config: &Config,
    ptx: Ptx,
    cases: &[Case],
    runs: usize,
) -> Result<Option<Measured>, rushmem::Error> {
    let mut numbers: Vec<u32> = cases.iter().map(|case| case.pes).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut all: Vec<(u32, Vec<Start>)> = Vec::new();
    for pes in numbers {
        // The first start is not counted.
        start(config, ptx, pes)?;
        let starts = (0..runs).map(|_| start(config, ptx, pes)).collect::<Result<_, _>>()?;
        all.push((pes, starts));
    }
    let starts_of = |case: &Case| all.iter().find(|(pes, _)| *pes == case.pes).map_or(&[][..], |(_, s)| s);
    let row = |case: &Case| {
        let value = |start: &Start| if case.bench == Bench::Init { start.ms } else { start.mib };
        Row::new(case, starts_of(case).iter().map(value).collect())
    };
    let first = all.iter().flat_map(|(_, starts)| starts).find(|start| start.first);
    Ok(first.map(|start| Measured { machine: start.machine.clone(), rows: cases.iter().map(row).collect() }))
}

/// The cost of one start.
struct Start {
    /// Milliseconds until the last PE of this process began its work.
    ms: f64,
    /// Growth of the process by then, in MiB for each of its PEs.
    mib: f64,
    /// Whether PE 0 is in this process.
    first: bool,
    machine: String,
}

fn start(config: &Config, ptx: Ptx, pes: u32) -> Result<Start, rushmem::Error> {
    let mut config = config.clone();
    config.set("pes", &pes.to_string())?;
    let (before, begin) = (resident(), Instant::now());
    let seen = Job::with_config(config).kernels(ptx).run(|pe| {
        let took = begin.elapsed();
        pe.host_sync()?;
        let bytes = resident();
        pe.host_sync()?;
        Ok::<_, rushmem::Error>((took, bytes, pe.my_pe(), pe.machine()))
    })?;
    let ms = seen.iter().map(|(took, ..)| took.as_secs_f64() * 1e3).fold(0.0, f64::max);
    let most = seen.iter().map(|(_, bytes, ..)| *bytes).max().unwrap_or(before);
    let mib = most.saturating_sub(before) as f64 / seen.len() as f64 / f64::from(1 << 20);
    let (first, machine) =
        seen.into_iter().next().map_or((false, String::new()), |(_, _, pe, machine)| (pe == 0, machine));
    Ok(Start { ms, mib, first, machine })
}

/// Returns the resident bytes of this process, or 0 if the system does not report them.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
