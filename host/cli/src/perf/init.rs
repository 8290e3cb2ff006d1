//! What starting a job costs, by number of PEs.

use std::time::Instant;

use rushmem::config::Config;
use rushmem::{Job, Ptx};

use super::bench::Bench;
use super::measure::Measured;
use super::plan::Shape;
use super::results::Row;

/// Starts jobs, again and again. None if PE 0 lives in another process.
pub(super) fn measure(
    config: &Config,
    ptx: Ptx,
    shapes: &[Shape],
    runs: usize,
) -> Result<Option<Measured>, rushmem::Error> {
    let mut numbers: Vec<u32> = shapes.iter().map(|shape| shape.pes).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut all: Vec<(u32, Vec<Start>)> = Vec::new();
    for pes in numbers {
        // One that does not count.
        start(config, ptx, pes)?;
        let starts = (0..runs).map(|_| start(config, ptx, pes)).collect::<Result<_, _>>()?;
        all.push((pes, starts));
    }
    let starts_of = |shape: &Shape| all.iter().find(|(pes, _)| *pes == shape.pes).map_or(&[][..], |(_, s)| s);
    let row = |shape: &Shape| {
        let value = |start: &Start| if shape.bench == Bench::Init { start.ms } else { start.mib };
        Row::new(shape, starts_of(shape).iter().map(value).collect())
    };
    let first = all.iter().flat_map(|(_, starts)| starts).find(|start| start.first);
    Ok(first.map(|start| Measured { machine: start.machine.clone(), rows: shapes.iter().map(row).collect() }))
}

/// What one start took.
struct Start {
    /// Milliseconds until the last PE of this process had begun its work.
    ms: f64,
    /// MiB that the process had grown by then, for each of its PEs.
    mib: f64,
    /// PE 0 is one of them.
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

/// Bytes of this process that are in memory; 0 where the system does not say.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
