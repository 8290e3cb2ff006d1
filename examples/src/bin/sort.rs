//! Sort example: sorts integers that are distributed over the PEs, like ISx.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use rushmem::{Job, Pe};
use rushmem_device::Signal;
use rushmem_example_kernels::{
    DIGITS, MAX_WARPS, ONE_PE, SortBuffers, SplitTables, exchange_keys, owner, sort_keys, sort_shared_bytes,
};
use rushmem_examples::{JobArgs, Result, exit_code, median, n_pes, need_heap, pattern};

/// Sorts random keys that are distributed over the PEs, and verifies every key.
///
/// Each PE owns an equal range of keys. All PEs send each key to its owner, then sort the keys that they own.
#[derive(Parser)]
#[command(name = "sort")]
struct Args {
    /// Number of 4-byte keys per PE, as log2
    #[arg(long, value_name = "N", default_value = "14", value_parser = clap::value_parser!(u32).range(0..=30))]
    log2_keys: u32,
    /// Number of sorts, each of different keys; the medians of their times are reported
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    /// Capacity of a PE, in keys [default: a quarter more than the average, plus 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    capacity: Option<u32>,
    #[command(flatten)]
    job: JobArgs,
}

impl Args {
    fn keys(&self) -> usize {
        1 << self.log2_keys
    }

    /// Returns the number of keys for which each PE has room. The default is at least eight standard deviations above
    /// the mean.
    fn capacity(&self) -> usize {
        self.capacity.map_or(self.keys() + self.keys() / 4 + 64, |keys| keys as usize)
    }

    /// Returns the length of the outbox, in keys. It also serves as the spare memory of the local sort.
    fn outbox(&self) -> usize {
        self.keys().max(self.capacity())
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    exit_code("sort", start(&args))
}

fn start(args: &Args) -> Result<()> {
    let mut config = args.job.config()?;
    let n_pes = n_pes(&config)?;
    if n_pes as usize > DIGITS {
        return Err(format!("{n_pes} PEs are too many: the keys are split among at most {DIGITS}").into());
    }
    let keys = args.keys() + args.capacity() + args.outbox();
    let tables = DIGITS * (MAX_WARPS + 2);
    need_heap(&mut config, 4 * (keys + tables) as u64 + 8 * u64::from(n_pes + 2), 9);
    Job::with_config(config).kernels(rushmem::ptx!("rushmem_example_kernels")).run(|pe| app(pe, args))?;
    Ok(())
}

fn app(pe: &Pe, args: &Args) -> Result<()> {
    let buffers = SortBuffers {
        keys: pe.alloc(args.keys())?,
        outbox: pe.alloc(args.outbox())?,
        inbox: pe.alloc(args.capacity())?,
        reserved: pe.alloc_one()?,
        arrived: pe.alloc_one::<Signal>()?,
        places: pe.alloc(pe.n_pes() as usize)?,
        tables: SplitTables {
            counts: pe.alloc(DIGITS * MAX_WARPS)?,
            totals: pe.alloc(DIGITS)?,
            starts: pe.alloc(DIGITS)?,
        },
    };
    let (mut exchanges, mut totals) = (Vec::new(), Vec::new());
    for iteration in 0..args.iterations {
        let keys: Vec<u32> = keys(pe, args, iteration, pe.my_pe()).collect();
        pe.write(buffers.keys, &keys)?;
        pe.write(buffers.reserved.as_slice(), &[0])?;
        pe.write(buffers.arrived.as_slice(), &[0])?;
        let times = sort(pe, &buffers)?;
        verify(pe, args, &buffers, iteration)?;
        exchanges.push(times.exchange);
        totals.push(times.exchange + times.sort);
    }
    if pe.my_pe() == 0 {
        let keys = args.keys() as f64 * f64::from(pe.n_pes());
        let (exchange, total) = (median(exchanges), median(totals));
        println!(
            "PASS sort: {keys} keys on {} PEs ({}) in {:.2} ms, {:.2} M keys/s; exchange in {:.2} ms, {:.3} GB/s; every \
             key verified",
            pe.n_pes(),
            pe.machine(),
            total * 1e3,
            keys / total / 1e6,
            exchange * 1e3,
            4.0 * keys / exchange / 1e9
        );
    }
    Ok(())
}

/// Returns the unsorted input keys of PE `of_pe`.
fn keys(pe: &Pe, args: &Args, iteration: u32, of_pe: u32) -> impl Iterator<Item = u32> + use<> {
    let seed = u64::from(iteration) * u64::from(pe.n_pes()) + u64::from(of_pe);
    (0..args.keys() as u64).map(move |i| pattern(seed, i))
}

/// Duration of each sort step in seconds. A step lasts until the slowest PE has finished it.
struct Seconds {
    exchange: f64,
    sort: f64,
}

fn sort(pe: &Pe, buffers: &SortBuffers) -> Result<Seconds> {
    let grid = pe.grid();
    let grid = grid.with_shared_bytes(sort_shared_bytes(grid.threads()));
    pe.host_sync()?;
    let start = Instant::now();
    pe.run(grid, exchange_keys(*buffers))?;
    pe.host_sync()?;
    let exchange = start.elapsed().as_secs_f64();

    let found = owned_keys(pe, buffers)?;
    let start = Instant::now();
    pe.run(grid, sort_keys(buffers.inbox.slice(0..found), buffers.outbox.slice(0..found), buffers.tables))?;
    pe.host_sync()?;
    Ok(Seconds { exchange, sort: start.elapsed().as_secs_f64() })
}

/// Returns the number of keys that this PE owns. Fails on all PEs if any PE has insufficient capacity. Collective.
fn owned_keys(pe: &Pe, buffers: &SortBuffers) -> Result<usize> {
    let (found, capacity) = (pe.read(buffers.reserved.as_slice())?[0] % ONE_PE, buffers.inbox.len() as u64);
    let all = pe.allgather(&found.to_le_bytes())?;
    let all = all.iter().filter_map(|keys| Some(u64::from_le_bytes(keys.as_slice().try_into().ok()?)));
    match (0u32..).zip(all).max_by_key(|&(_, keys)| keys) {
        Some((fullest, keys)) if keys > capacity => Err(format!(
            "PE {fullest} owns {keys} keys, but a PE has room for {capacity}: use --capacity {keys} or more"
        )
        .into()),
        _ => Ok(found as usize),
    }
}

/// Compares this PE's sorted keys with a serial sort of all keys in its range. Collective.
fn verify(pe: &Pe, args: &Args, buffers: &SortBuffers, iteration: u32) -> Result<()> {
    let owned = owned_keys(pe, buffers)?;
    let all = (0..pe.n_pes()).flat_map(|of_pe| keys(pe, args, iteration, of_pe));
    let mut wanted: Vec<u32> = all.filter(|&key| owner(key, pe.n_pes()) == pe.my_pe()).collect();
    wanted.sort_unstable();
    let found = pe.read(buffers.inbox.slice(0..owned))?;
    if found.len() != wanted.len() {
        return Err(format!("PE {} has {} keys, not {}", pe.my_pe(), found.len(), wanted.len()).into());
    }
    if let Some(i) = found.iter().zip(&wanted).position(|(found, wanted)| found != wanted) {
        let (found, wanted) = (found[i], wanted[i]);
        return Err(format!("key {i} of PE {} is {found:#010x}, not {wanted:#010x}", pe.my_pe()).into());
    }
    // Keep the memory alive until all PEs have verified their keys.
    Ok(pe.host_sync()?)
}
