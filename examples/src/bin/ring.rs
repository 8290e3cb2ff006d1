//! Ring example: every PE sends an array to its right neighbour and receives the array of its left neighbour.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use rushmem::{Job, Pe};
use rushmem_device::Signal;
use rushmem_example_kernels::ring;
use rushmem_examples::{JobArgs, Result, exit_code, need_heap, pattern};

/// Sends an array around the ring of PEs, step by step, and verifies it.
#[derive(Parser)]
#[command(name = "ring")]
struct Args {
    /// Number of 4-byte elements in the array
    #[arg(long, value_name = "N", default_value = "65536")]
    count: NonZeroUsize,
    #[command(flatten)]
    job: JobArgs,
}

fn main() -> ExitCode {
    let args = Args::parse();
    exit_code("ring", start(&args))
}

fn start(args: &Args) -> Result<()> {
    let mut config = args.job.config()?;
    need_heap(&mut config, 8 * args.count.get() as u64, 3);
    Job::with_config(config)
        .kernels(rushmem::ptx!("rushmem_example_kernels"))
        .run(|pe| app(pe, args.count.get()))?;
    Ok(())
}

fn app(pe: &Pe, count: usize) -> Result<()> {
    let (me, n_pes) = (pe.my_pe(), pe.n_pes());
    let arrays = [pe.alloc::<u32>(count)?, pe.alloc::<u32>(count)?];
    let arrived = pe.alloc::<Signal>(n_pes as usize)?;
    let array_of = |pe: u32| -> Vec<u32> { (0..count).map(|i| pattern(pe.into(), i as u64)).collect() };
    pe.write(arrays[0], &array_of(me))?;

    // In each step a PE sends the array that it received in the previous step. After `n_pes` steps its own array has
    // returned.
    let mut took = Duration::ZERO;
    for step in 0..n_pes as usize {
        let (src, dst) = (arrays[step % 2], arrays[(step + 1) % 2]);
        pe.host_sync()?;
        let start = Instant::now();
        pe.run(pe.grid(), ring(dst, src, arrived.at(step)))?;
        took += start.elapsed();

        let origin = (me + n_pes - 1 - step as u32) % n_pes;
        let (found, wanted) = (pe.read(dst)?, array_of(origin));
        if let Some(i) = (0..count).find(|&i| found[i] != wanted[i]) {
            return Err(format!(
                "after step {step} element {i} of PE {me} is {:#010x}, not the {:#010x} of PE {origin}",
                found[i], wanted[i]
            )
            .into());
        }
    }

    // Keep the memory alive until all PEs have verified their arrays.
    pe.host_sync()?;
    if me == 0 {
        println!(
            "PASS ring: {count} elements went round {n_pes} PEs ({}), {:.2} ms a step, every element verified after each",
            pe.machine(),
            took.as_secs_f64() * 1e3 / f64::from(n_pes)
        );
    }
    Ok(())
}
