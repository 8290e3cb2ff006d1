//! Runs litmus tests, in new jobs or in an existing one.

use rushmem::{Error, Job, LaunchConfig, Operations, Pe};
use rushmem_device::{Lock, Signal, Sym, SymSlice};
use rushmem_litmus_kernels::{BYTES, HALVES, PLAN_WORDS, PROGRAM_WORDS, REGS, WORDS, Who, litmus};

use crate::cast::Cast;
use crate::path::{self, Path};
use crate::program::{Outcome, Test};
use crate::report::Row;

/// Maximum number of rounds per launch, because each round has separate memory.
const MAX_ROUNDS_PER_LAUNCH: u64 = 512;
const MAX_ACTORS: usize = 8;
/// Number of words that all rounds of a launch share.
const KEPT: usize = 64;
const ROUNDS_PER_SYNC: u64 = 8;
/// Maximum pause before an operation, in turns of a wait loop.
const JITTER: u64 = 12;

/// Number of rounds of each test on each path: `RUSHMEM_LITMUS_ROUNDS`, or a default that suits CI.
///
/// # Panics
/// If the variable is not a number.
pub fn rounds() -> u64 {
    match std::env::var("RUSHMEM_LITMUS_ROUNDS") {
        Ok(rounds) => rounds.parse().expect("RUSHMEM_LITMUS_ROUNDS is a number of rounds"),
        Err(_) => 48,
    }
}

/// Whether this machine runs the kernels on a GPU.
///
/// # Panics
/// If the job fails.
pub fn on_gpu() -> bool {
    let job = Job::new().expect("settings").kernels(rushmem::ptx!("rushmem_litmus_kernels"));
    job.run(|pe| Ok::<_, Error>(pe.is_gpu())).expect("a job").contains(&true)
}

/// A test with an assignment of its roles to PEs.
struct Play {
    test: Test,
    cast: Cast,
    /// Title of the path, and the assignment's label.
    title: String,
}

/// Returns each test with each of its role assignments, for a job of `n_pes` PEs.
fn plays(tests: &[Test], n_pes: u32, path: &str, casts: impl Fn(&Test) -> Vec<Cast>) -> Vec<Play> {
    let mut plays = Vec::new();
    for test in tests {
        for cast in casts(test) {
            let title = path.to_owned() + &cast.label(n_pes);
            plays.push(Play { test: test.clone().with_bystanders(n_pes), cast, title });
        }
    }
    plays
}

/// Symmetric objects that the interpreter kernel uses.
struct Memory {
    plan: SymSlice<u64>,
    programs: SymSlice<u64>,
    words: SymSlice<u64>,
    kept: SymSlice<u64>,
    halves: SymSlice<u32>,
    bytes: SymSlice<u8>,
    floats: SymSlice<f32>,
    lock: Sym<Lock>,
    registers: SymSlice<u64>,
    gate: SymSlice<Signal>,
}

impl Memory {
    fn new(pe: &Pe) -> Result<Self, Error> {
        let rounds = MAX_ROUNDS_PER_LAUNCH as usize;
        Ok(Self {
            plan: pe.alloc(PLAN_WORDS)?,
            programs: pe.alloc(MAX_ACTORS * PROGRAM_WORDS)?,
            words: pe.alloc(rounds * WORDS)?,
            kept: pe.alloc(KEPT)?,
            halves: pe.alloc(rounds * HALVES)?,
            bytes: pe.alloc(rounds * BYTES)?,
            floats: pe.alloc(rounds * HALVES)?,
            lock: pe.alloc_one()?,
            registers: pe.alloc(rounds * MAX_ACTORS * REGS)?,
            gate: pe.alloc(1)?,
        })
    }

    /// Runs `rounds` rounds of a test, and returns the actors' registers of each PE.
    fn launch(&self, pe: &Pe, play: &Play, rounds: u64, seed: u64) -> Result<Vec<Vec<u64>>, Error> {
        let Play { test, cast, .. } = play;
        let actors = test.actors.len();
        assert!(actors <= MAX_ACTORS, "{} has {actors} actors", test.id);
        let part = |per_round: usize| 0..rounds as usize * per_round;
        let registers = self.registers.slice(part(actors * REGS));
        let (words, halves) = (self.words.slice(part(WORDS)), self.halves.slice(part(HALVES)));
        let (bytes, floats) = (self.bytes.slice(part(BYTES)), self.floats.slice(part(HALVES)));
        pe.write(words, &vec![0; words.len()])?;
        pe.write(halves, &vec![0; halves.len()])?;
        pe.write(bytes, &vec![0; bytes.len()])?;
        pe.write(floats, &vec![0.0; floats.len()])?;
        pe.write(registers, &vec![0; registers.len()])?;
        pe.write(self.kept, &[0; KEPT])?;
        pe.write(self.gate, &[0])?;
        pe.write(self.plan, &[rounds, actors as u64, test.who as u64, ROUNDS_PER_SYNC, seed, JITTER])?;
        let programs = test.encode(|role| cast.pe_of(role));
        pe.write(self.programs.slice(0..programs.len()), &programs)?;
        pe.host_sync()?;
        let threads = match test.who {
            Who::Thread => 1,
            Who::Warp => 32,
            Who::Block => 64,
        };
        let grid = LaunchConfig::new(actors as u32, threads);
        let Self { plan, programs, kept, lock, gate, .. } = *self;
        let call = litmus(plan, programs, words, kept, halves, bytes, floats, lock, registers, gate.at(0));
        pe.run(grid, call)?;
        // The next launch starts with stores by the host. Without a barrier through the NICs, acknowledged WRITEs could
        // land after them.
        pe.barrier_all()?;
        // The allgather also keeps any PE from starting again before all have read their registers.
        let mine: Vec<u8> = pe.read(registers)?.iter().flat_map(|word| word.to_le_bytes()).collect();
        let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        let words = |bytes: Vec<u8>| bytes.as_chunks().0.iter().map(word).collect();
        Ok(pe.allgather(&mine)?.into_iter().map(words).collect())
    }

    fn play(&self, pe: &Pe, play: &Play, rounds: u64, seed: u64) -> Result<Row, Error> {
        let mut row = Row::new(&play.test, play.title.clone(), rounds);
        let mut done = 0;
        while done < rounds {
            let some = MAX_ROUNDS_PER_LAUNCH.min(rounds - done);
            let of_pes = self.launch(pe, play, some, seed | done << 8)?;
            judge(&mut row, play, some, &of_pes);
            done += some;
        }
        Ok(row)
    }
}

/// Runs every test that the path allows, in a new job.
///
/// # Errors
/// - the error of the job, such as a wait that times out
pub fn run(path: &Path, tests: &[Test], rounds: u64) -> Result<Vec<Row>, Error> {
    let job = Job::with_config(path.config(1)).kernels(rushmem::ptx!("rushmem_litmus_kernels"));
    let plays = plays(tests, path.pes, &path.title(), |test| Cast::on_path(test, path));
    // All PEs return the same rows.
    Ok(job.run(|pe| play_all(pe, &plays, rounds))?.swap_remove(0))
}

/// Runs a test under the sanitizer, in a new job.
///
/// # Errors
/// - [`Error::Sanitizer`] with the findings
/// - the error of the job
pub fn run_sanitized(test: &Test, rounds: u64) -> Result<Vec<Row>, Error> {
    let path = &path::SANITIZED;
    let job = Job::with_config(path::sanitized()).kernels(rushmem::ptx!("rushmem_litmus_kernels"));
    let plays = plays(std::slice::from_ref(test), path.pes, path.name, |test| Cast::on_path(test, path));
    Ok(job.run(|pe| play_all(pe, &plays, rounds))?.swap_remove(0))
}

/// Runs every test that this number of PEs allows, with all PEs together. Every PE returns all rows.
///
/// # Errors
/// - [`Error::Misuse`] if there are more PEs than a test can have actors
/// - the error of a launch, such as a wait that times out
pub fn run_in(pe: &Pe, tests: &[Test], rounds: u64) -> Result<Vec<Row>, Error> {
    let n_pes = pe.n_pes();
    if n_pes as usize > MAX_ACTORS {
        let what = format!("{n_pes} PEs, but the tests allow {MAX_ACTORS} at most");
        return Err(Error::misuse("litmus", what));
    }
    let plays = plays(tests, n_pes, &format!("{n_pes} PEs"), |test| Cast::in_job(test, n_pes));
    play_all(pe, &plays, rounds)
}

fn play_all(pe: &Pe, plays: &[Play], rounds: u64) -> Result<Vec<Row>, Error> {
    let memory = Memory::new(pe)?;
    plays.iter().zip(0u64..).map(|(play, i)| memory.play(pe, play, rounds, i << 40)).collect()
}

/// Counts the outcome of every round of a launch in `row`.
fn judge(row: &mut Row, play: &Play, rounds: u64, of_pes: &[Vec<u64>]) {
    let Play { test, cast, .. } = play;
    let actors = test.actors.len();
    let mut registers = vec![[0; REGS]; actors];
    for round in 0..rounds {
        for (actor, (role, _)) in test.actors.iter().enumerate() {
            let from = (round as usize * actors + actor) * REGS;
            registers[actor].copy_from_slice(&of_pes[cast.pe_of(*role) as usize][from..from + REGS]);
        }
        // Rounds are numbered from 0 in each launch.
        row.count(test, &Outcome { round, registers: &registers });
    }
}
