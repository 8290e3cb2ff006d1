//! What starting a job costs, by number of PEs.

use std::time::Instant;

use rushmem::config::Config;
use rushmem::{Job, Ptx};

use super::bench::Bench;
use super::plan::Shape;
use super::results::Row;

/// Starts jobs of PEs as threads; the rows are two for each number of PEs, where both are wanted.
pub(super) fn measure(
    config: &Config,
    ptx: Ptx,
    shapes: &[Shape],
    runs: usize,
) -> Result<Vec<Row>, rushmem::Error> {
    let mut rows = Vec::new();
    let mut numbers: Vec<u32> = shapes.iter().map(|shape| shape.pes).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut measured = Vec::new();
    for &pes in &numbers {
        let (mut times, mut memory) = (Vec::new(), Vec::new());
        for run in 0..=runs {
            let (ms, mib) = start(config, ptx, pes)?;
            if run > 0 {
                times.push(ms);
                memory.push(mib);
            }
        }
        measured.push((pes, times, memory));
    }
    for shape in shapes {
        if let Some((_, times, memory)) = measured.iter().find(|(pes, ..)| *pes == shape.pes) {
            let values = if shape.bench == Bench::Init { times } else { memory };
            rows.push(Row::new(shape, values.clone()));
        }
    }
    Ok(rows)
}

/// Milliseconds until the last PE has begun its work, and MiB that the process has grown by then, for each PE.
fn start(config: &Config, ptx: Ptx, pes: u32) -> Result<(f64, f64), rushmem::Error> {
    let mut config = config.clone();
    config.set("pes", &pes.to_string())?;
    let (before, begin) = (resident(), Instant::now());
    let seen = Job::with_config(config).kernels(ptx).run(|pe| {
        let took = begin.elapsed();
        pe.barrier()?;
        let seen = (took, resident());
        pe.barrier()?;
        Ok::<_, rushmem::Error>(seen)
    })?;
    let last = seen.iter().map(|(took, _)| took.as_secs_f64() * 1e3).fold(0.0, f64::max);
    let most = seen.iter().map(|(_, bytes)| *bytes).max().unwrap_or(before);
    Ok((last, most.saturating_sub(before) as f64 / f64::from(pes) / f64::from(1 << 20)))
}

/// Bytes of this process that are in memory; 0 where the system does not say.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
