//! Survive example: a persistent kernel exchanges messages with all PEs, and the hosts add numbers up beside it. Killed PEs
//! are left out, until other processes replace them.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use rushmem::config::Membership;
use rushmem::{Error, Job, LaunchConfig, Operations, Pe};
use rushmem_device::{Reduce, Signal, SymSlice, Team};
use rushmem_example_kernels::{
    FINISHED, GONE, LONGEST, RECORD_WORDS, ROUNDS, SINCE, STATE, WRONG, finished_stamp, survive,
};
use rushmem_examples::{JobArgs, Result, exit_code};

/// Exchanges messages in a persistent kernel, skips PEs that are killed, and goes on with their replacements. Start it with
/// `rushmem run -n 8 --respawn 100 survive`, and kill a process.
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
    let (inbox, outbox) = (pe.alloc::<u64>(2 * n * words)?, pe.alloc::<u64>(n * words)?);
    let signals = pe.alloc::<Signal>(2 * n)?;
    let (peers, facts) = (pe.alloc::<u64>(n * RECORD_WORDS)?, pe.alloc::<u64>(4)?);
    let sums = Sums { mine: pe.alloc(2)?, all: pe.alloc(2)? };
    println!("ready {} {}", pe.my_pe(), std::process::id());

    // In its own stream, so operations of the host run beside it.
    let exchange = pe.stream()?;
    // All kernels of the first processes finish in the same round, so nobody has to be told.
    let (arrived, together) = (signals.slice(0..n), signals.slice(n..2 * n));
    let mut others = Introductions { arrived, together, known: vec![0; n], told: vec![1; n] };
    let (mut team, mut additions, mut runs) = (Team::WORLD, 0u64, false);
    loop {
        let members = pe.grow()?;
        if members != team {
            pe.team_destroy(std::mem::replace(&mut team, members))?;
        }
        if runs {
            wait_for_notice(pe, team, &others.known, peers, facts)?;
        }
        let is_done = pe.read(facts)?[FINISHED] != 0;
        if is_done {
            // Returns the error if it has failed.
            exchange.wait()?;
        }
        let met = others.make(pe, is_done);
        if !runs {
            // Before any call that waits for others, whose kernels may wait for this one.
            let kernel = survive(inbox, outbox, signals, peers, facts, rounds);
            exchange.launch(LaunchConfig::new(1, 128), kernel)?;
            runs = true;
        }
        match met.and_then(|()| sums.add(pe, team, is_done)) {
            Ok(true) => break,
            Ok(false) => additions += 1,
            Err(Error::PeerLost(_)) => {}
            Err(other) => return Err(other.into()),
        }
    }
    let (facts, peers) = (pe.read(facts)?, pe.read(peers)?);
    let is_gone = |pe: &usize| peers[pe * RECORD_WORDS + STATE] == GONE;
    let gone = (0..n).filter(is_gone).map(|pe| pe.to_string()).collect::<Vec<_>>().join(" ");
    println!(
        "PE {}: {} rounds, {} wrong words, {additions} sums, lost {gone}, longest wait {:.1} ms",
        pe.my_pe(),
        facts[ROUNDS],
        facts[WRONG],
        facts[LONGEST] as f64 / 1e6,
    );
    if facts[WRONG] != 0 { Err(format!("{} words were wrong", facts[WRONG]).into()) } else { Ok(()) }
}

/// Waits until the kernel has noticed that the processes of PEs that are not in `team` are lost: those of the epochs `known`. Only
/// then may the next call replace them.
fn wait_for_notice(
    pe: &Pe,
    team: Team,
    known: &[u32],
    peers: SymSlice<u64>,
    facts: SymSlice<u64>,
) -> Result<(), Error> {
    let members = pe.team_pes(team).unwrap_or_default();
    let lost: Vec<u32> = (0..pe.n_pes()).filter(|other| !members.contains(other)).collect();
    loop {
        let (peers, facts) = (pe.read(peers)?, pe.read(facts)?);
        let knows = |lost: &u32| {
            let (record, since) = (&peers[*lost as usize * RECORD_WORDS..], known[*lost as usize]);
            since == 0 || record[SINCE] == u64::from(since) && record[STATE] != 0
        };
        if facts[FINISHED] != 0 || lost.iter().all(knows) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// What the kernel and the other PEs know of the processes in the job.
struct Introductions {
    arrived: SymSlice<Signal>,
    together: SymSlice<Signal>,
    /// For each PE, the epoch of its process that the kernel knows, or 0.
    known: Vec<u32>,
    /// For each PE, the epoch of its process that knows that this kernel has finished.
    told: Vec<u32>,
}

impl Introductions {
    /// Informs the kernel of processes that have joined. Once the kernel has finished, informs those processes, which it may never
    /// have met.
    fn make(&mut self, pe: &Pe, is_done: bool) -> Result<(), Error> {
        for (other, at) in (0..pe.n_pes()).zip(0..) {
            let since = pe.together_since(other).unwrap_or(1);
            if pe.is_lost(other) {
                continue;
            }
            if self.known[at] != since {
                pe.write(self.together.slice(at..at + 1), &[since.into()])?;
                self.known[at] = since;
            }
            if is_done && self.told[at] != since && other != pe.my_pe() {
                let last = self.arrived.at(pe.my_pe() as usize).set(finished_stamp(since.into()));
                pe.signal_op(last, other)?;
                self.told[at] = since;
            }
        }
        Ok(())
    }
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
