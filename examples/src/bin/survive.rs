//! Survive example: a persistent kernel exchanges messages with all PEs, and the hosts add numbers up beside it. Killed PEs
//! are left out.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use rushmem::config::Membership;
use rushmem::{Error, Job, LaunchConfig, Operations, Pe};
use rushmem_device::{Reduce, Signal, SymSlice, Team};
use rushmem_example_kernels::{LONGEST, ROUNDS, WRONG, survive};
use rushmem_examples::{JobArgs, Result, exit_code};

/// Exchanges messages in a persistent kernel, and skips PEs that are killed. Start it with
/// `rushmem run -n 8 survive`, and kill a process.
#[derive(Parser)]
#[command(name = "survive")]
struct Args {
    /// Number of rounds, in each of which every PE sends a message to all others
    #[arg(long, value_name = "N", default_value = "100000")]
    rounds: u64,
    /// Number of 8-byte words in a message
    #[arg(long, value_name = "N", default_value = "64")]
    words: usize,
    #[command(flatten)]
    job: JobArgs,
}

fn main() -> ExitCode {
    let args = Args::parse();
    exit_code("survive", start(&args))
}

fn start(args: &Args) -> Result<()> {
    let mut config = args.job.config()?;
    config.membership = Membership::Live;
    Job::with_config(config)
        .kernels(rushmem::ptx!("rushmem_example_kernels"))
        .run(|pe| app(pe, args.rounds, args.words))?;
    Ok(())
}

fn app(pe: &Pe, rounds: u64, words: usize) -> Result<()> {
    let n = pe.n_pes() as usize;
    let (inbox, outbox) = (pe.alloc::<u64>(2 * n * words)?, pe.alloc::<u64>(words)?);
    let (arrived, lost, facts) = (pe.alloc::<Signal>(n)?, pe.alloc::<u64>(n)?, pe.alloc::<u64>(3)?);
    let sums = Sums { mine: pe.alloc(2)?, all: pe.alloc(2)? };
    pe.host_sync()?;
    println!("ready {} {}", pe.my_pe(), std::process::id());

    // In its own stream, so operations of the host run beside it.
    let exchange = pe.stream()?;
    exchange.launch(LaunchConfig::new(1, 128), survive(inbox, outbox, arrived, lost, facts, rounds))?;
    let mut team = Team::WORLD;
    let mut additions = 0u64;
    loop {
        let is_done = pe.read(facts)?[ROUNDS] == rounds;
        match sums.add(pe, team, is_done) {
            Ok(true) => break,
            Ok(false) => additions += 1,
            Err(Error::PeerLost(_)) => team = pe.shrink()?,
            Err(other) => return Err(other.into()),
        }
    }
    exchange.wait()?;
    let (facts, lost) = (pe.read(facts)?, pe.read(lost)?);
    let gone = (0..n).filter(|&pe| lost[pe] != 0).map(|pe| pe.to_string()).collect::<Vec<_>>().join(" ");
    println!(
        "PE {}: {} rounds, {} wrong words, {additions} sums, lost {gone}, longest wait {:.1} ms",
        pe.my_pe(),
        facts[ROUNDS],
        facts[WRONG],
        facts[LONGEST] as f64 / 1e6,
    );
    if facts[WRONG] != 0 { Err(format!("{} words were wrong", facts[WRONG]).into()) } else { Ok(()) }
}

/// The operands of the sums of the hosts: the number of members, and of those whose kernel is done.
struct Sums {
    mine: SymSlice<u64>,
    all: SymSlice<u64>,
}

impl Sums {
    /// Adds up the numbers of all members. Returns whether all their kernels are done.
    fn add(&self, pe: &Pe, team: Team, is_done: bool) -> Result<bool, Error> {
        pe.write(self.mine, &[1, is_done.into()])?;
        let added = pe.reduce(team, Reduce::Sum, self.all, self.mine);
        // A sum may have succeeded on some members only. This call succeeds on all or on none.
        pe.host_sync()?;
        added?;
        let all = pe.read(self.all)?;
        std::thread::sleep(Duration::from_millis(1));
        Ok(all[0] == all[1])
    }
}
