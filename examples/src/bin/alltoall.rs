//! All-to-all example: transposes a matrix whose rows are distributed over the PEs.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use rushmem::{Job, Pe};
use rushmem_device::Signal;
use rushmem_example_kernels::{TILE_BYTES, bands, transpose};
use rushmem_examples::{JobArgs, Result, exit_code, n_pes, need_heap, pattern};

/// Transposes an N x N matrix, distributed over the PEs by rows, and verifies every element.
#[derive(Parser)]
#[command(name = "alltoall")]
struct Args {
    /// Number of rows and columns of the matrix
    #[arg(short, long, value_name = "N", default_value = "1024", value_parser = clap::value_parser!(u32).range(1..))]
    n: u32,
    #[command(flatten)]
    job: JobArgs,
}

fn main() -> ExitCode {
    let args = Args::parse();
    exit_code("alltoall", start(&args))
}

fn start(args: &Args) -> Result<()> {
    let mut config = args.job.config()?;
    let n_pes = n_pes(&config)?;
    if args.n < n_pes {
        return Err(format!(
            "a matrix of {} rows is too small for {n_pes} PEs: each needs at least one",
            args.n
        )
        .into());
    }
    let tallest = u64::from(args.n.div_ceil(n_pes));
    need_heap(&mut config, 4 * 4 * u64::from(args.n) * tallest + 8 * u64::from(n_pes), 5);
    Job::with_config(config)
        .kernels(rushmem::ptx!("rushmem_example_kernels"))
        .run(|pe| app(pe, args.n as usize))?;
    Ok(())
}

fn app(pe: &Pe, n: usize) -> Result<()> {
    let (me, n_pes) = (pe.my_pe(), pe.n_pes());
    let band = bands(n, me, n_pes);

    // A symmetric object has the same size on all PEs, so it must fit the tallest band.
    let most = n * n.div_ceil(n_pes as usize);
    let own = band.rows * n;
    let (matrix, result) = (pe.alloc::<u32>(most)?, pe.alloc::<u32>(most)?);
    let (outbox, inbox) = (pe.alloc::<u32>(most)?, pe.alloc::<u32>(most)?);
    let arrived = pe.alloc::<Signal>(n_pes as usize)?;

    let element = |row: usize, column: usize| pattern(row as u64, column as u64);
    let rows = || band.first..band.first + band.rows;
    let values: Vec<u32> = rows().flat_map(|row| (0..n).map(move |column| element(row, column))).collect();
    pe.write(matrix.slice(0..own), &values)?;

    pe.host_sync()?;
    let start = Instant::now();
    let grid = pe.grid().with_shared_bytes(TILE_BYTES);
    pe.run(grid, transpose(result, matrix, outbox, inbox, arrived, n as u64))?;
    let took = start.elapsed().as_secs_f64();

    let found = pe.read(result.slice(0..own))?;
    let mut wanted = rows().flat_map(|row| (0..n).map(move |column| (row, column)));
    if let Some(((row, column), found)) =
        wanted.by_ref().zip(found).find(|&((row, column), found)| found != element(column, row))
    {
        let wanted = element(column, row);
        return Err(format!("element ({row}, {column}) is {found:#010x}, not {wanted:#010x}").into());
    }

    // Keep the memory alive until all PEs have verified their bands.
    pe.host_sync()?;
    if me == 0 {
        println!(
            "PASS alltoall: {n} x {n} matrix of u32 transposed by {n_pes} PEs ({}) in {:.2} ms, {:.2} GB/s, every \
             element verified",
            pe.machine(),
            took * 1e3,
            (n * n * 4) as f64 / took / 1e9
        );
    }
    Ok(())
}
