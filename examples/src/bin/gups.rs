//! Random updates of a distributed table: HPCC's RandomAccess, which measures giga-updates per second (GUPS).

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use rushmem::{Job, Pe};
use rushmem_example_kernels::{next, number, update};
use rushmem_examples::{JobArgs, Result, exit_code, n_pes, need_heap};

/// Changes random words of a table on all PEs by remote atomics, and verifies every word.
///
/// The rules are those of HPCC's RandomAccess: four updates per word, and at most 1 % wrong words. Atomics lose no
/// updates, so this program allows no wrong words.
#[derive(Parser)]
#[command(name = "gups")]
struct Args {
    /// Number of 8-byte words in the table, as log2
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u32).range(0..=40))]
    log2_words: u32,
    /// Number of updates by all PEs [default: four per word]
    #[arg(long, value_name = "N")]
    updates: Option<u64>,
    #[command(flatten)]
    job: JobArgs,
}

fn main() -> ExitCode {
    let args = Args::parse();
    exit_code("gups", start(&args))
}

fn start(args: &Args) -> Result<()> {
    let mut config = args.job.config()?;
    let words = 1 << args.log2_words;
    let updates = args.updates.unwrap_or(4 * words);
    let part = words.div_ceil(n_pes(&config)?.into());
    need_heap(&mut config, 8 * part, 1);
    Job::with_config(config)
        .kernels(rushmem::ptx!("rushmem_example_kernels"))
        .run(|pe| app(pe, words, updates))?;
    Ok(())
}

fn app(pe: &Pe, words: u64, updates: u64) -> Result<()> {
    let (me, n_pes) = (u64::from(pe.my_pe()), u64::from(pe.n_pes()));
    let part = pe.alloc::<u64>(words.div_ceil(n_pes) as usize)?;
    let first_word = part.len() as u64 * me;
    let mut wanted: Vec<u64> = (first_word..first_word + part.len() as u64).collect();
    pe.write(part, &wanted)?;

    let cut = |pe: u64| (u128::from(updates) * u128::from(pe) / u128::from(n_pes)) as u64;
    pe.host_sync()?;
    let start = Instant::now();
    pe.run(pe.grid(), update(part, words, cut(me), cut(me + 1) - cut(me)))?;
    // A PE's `quiet` covers its own updates only. After the barrier the updates of all PEs are complete.
    pe.host_sync()?;
    let took = start.elapsed().as_secs_f64();

    // Replay all updates of this PE's part serially.
    let mut x = number(0);
    for _ in 0..updates {
        if let Some(word) = wanted.get_mut((x & (words - 1)).wrapping_sub(first_word) as usize) {
            *word ^= x;
        }
        x = next(x);
    }
    let found = pe.read(part)?;
    let wrong = found.iter().zip(&wanted).filter(|(found, wanted)| found != wanted).count();
    if wrong > 0 {
        return Err(format!("{wrong} of the {} words of PE {me} are wrong", part.len()).into());
    }

    // Keep the memory alive until all PEs have verified their parts.
    pe.host_sync()?;
    if me == 0 {
        println!(
            "PASS gups: {updates} updates of {words} words by {n_pes} PEs ({}) in {:.2} ms, {:.6} GUPS, every word verified",
            pe.machine(),
            took * 1e3,
            updates as f64 / took / 1e9
        );
    }
    Ok(())
}
