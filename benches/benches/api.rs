//! What the calls of the device API cost from end to end, on whatever this machine has:
//!
//! ```sh
//! cargo bench -p rushmem-benches
//! RUSHMEM_DEVICE=native cargo bench -p rushmem-benches
//! ```
//!
//! Two PEs as threads of this process, medians of several runs. Machines are noisy: compare within one run.

use std::time::{Duration, Instant};

use rushmem::config::Config;
use rushmem::{Error, Grid, Job, Pe};
use rushmem_bench_kernels as kernels;
use rushmem_device::kernel::Call;

const RUNS: usize = 7;

fn main() -> Result<(), Error> {
    let mut config = Config::load()?;
    config.set("pes", "2")?;
    Job::with_config(config).kernels(rushmem::ptx!("rushmem_bench_kernels")).run(bench)?;
    Ok(())
}

fn bench(pe: &Pe) -> Result<(), Error> {
    let say = |what: &str, value: String| {
        if pe.my_pe() == 0 {
            println!("{what:<52} {value:>16}");
        }
    };
    say(&format!("2 PEs on {}", pe.machine()), String::new());
    let src = pe.alloc::<u8>(8 << 20)?;
    let dst = pe.alloc::<u8>(8 << 20)?;
    let word = pe.alloc_one::<u64>()?;
    let signal = pe.alloc_one::<u64>()?;
    let words = pe.alloc::<u64>(4096)?;
    let one = Grid { blocks: 1, threads: 32, shared_bytes: 0 };
    let each = |took: Duration, n: u32| format!("{:.2} us", took.as_secs_f64() * 1e6 / f64::from(n));

    const ROUNDS: u32 = 500;
    for bytes in [8, 1 << 10, 32 << 10] {
        let (to, from) = (dst.slice(0..bytes), src.slice(0..bytes));
        let took = median(pe, one, |_| kernels::put_quiet(to, from, ROUNDS))?;
        say(&format!("put and quiet, {bytes} B, 1 thread"), each(took, ROUNDS));
    }
    say("fetch_add, 1 thread", each(median(pe, one, |_| kernels::fetch_add(word, ROUNDS))?, ROUNDS));
    let hops = |run: usize| kernels::ping_pong(signal, run as u64 * u64::from(ROUNDS), ROUNDS);
    say("signal ping-pong, round trip", each(median(pe, one, hops)?, ROUNDS));
    say("barrier_all, 1 block", each(median(pe, one, |_| kernels::barriers(ROUNDS))?, ROUNDS));

    for (blocks, threads) in [(1, 32), (4, 256)] {
        let grid = Grid { blocks, threads, shared_bytes: 0 };
        let n = f64::from(blocks * threads) * f64::from(ROUNDS);
        let took = median(pe, grid, |_| kernels::put_lanes(words, ROUNDS))?;
        let rate = format!("{:.2} M/s", n / took.as_secs_f64() / 1e6);
        say(&format!("p of 8 B, every lane of {blocks} x {threads} threads"), rate);
    }
    for bytes in [1 << 10, 64 << 10] {
        let grid = Grid { blocks: 4, threads: 128, shared_bytes: 0 };
        let n = 16.0 * f64::from(ROUNDS) * bytes as f64;
        let took = median(pe, grid, |_| kernels::put_warps(dst, src, bytes, ROUNDS))?;
        let rate = format!("{:.2} GB/s", n / took.as_secs_f64() / 1e9);
        say(&format!("put of {} KiB by each of 16 warps", bytes >> 10), rate);
    }
    Ok(())
}

/// The median time of a kernel on all PEs, after one run that does not count.
fn median(pe: &Pe, grid: Grid, kernel: impl Fn(usize) -> Call) -> Result<Duration, Error> {
    let mut times = Vec::new();
    for run in 0..=RUNS {
        pe.barrier()?;
        let start = Instant::now();
        pe.run(grid, kernel(run))?;
        times.push(start.elapsed());
    }
    let counted = &mut times[1..];
    counted.sort();
    Ok(counted[RUNS / 2])
}
