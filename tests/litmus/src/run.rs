//! Runs tests on a path.

use rushmem::{Error, Grid, Job, Pe};
use rushmem_device::{Lock, Signal, Sym, SymSlice};
use rushmem_litmus_kernels::{BYTES, HALVES, PLAN_WORDS, PROGRAM_WORDS, REGS, WORDS, Who, litmus};

use crate::path::Path;
use crate::program::{Needs, Outcome, Test};
use crate::report::Row;

/// Rounds of one launch, at most: each has memory of its own.
const LAUNCH: u64 = 512;
/// Actors of one test, at most.
const ACTORS: usize = 8;
/// Words that all rounds have in common.
const KEPT: usize = 64;
/// Rounds between two meetings of the actors.
const EVERY: u64 = 8;
/// Longest pause before an operation, in turns of a waiting loop.
const JITTER: u64 = 12;

/// Rounds of each test on each path: `RUSHMEM_LITMUS_ROUNDS`, or what CI has time for.
///
/// # Panics
/// If the variable is no number.
pub fn rounds() -> u64 {
    match std::env::var("RUSHMEM_LITMUS_ROUNDS") {
        Ok(rounds) => rounds.parse().expect("RUSHMEM_LITMUS_ROUNDS is a number of rounds"),
        Err(_) => 48,
    }
}

/// Whether this machine runs the kernels on a GPU.
///
/// # Panics
/// If there can be no job.
pub fn on_gpu() -> bool {
    let job = Job::new().expect("settings").kernels(rushmem::ptx!("rushmem_litmus_kernels"));
    job.run(|pe| Ok::<_, Error>(pe.is_gpu())).expect("a job").contains(&true)
}

/// Which PEs the roles are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cast {
    /// Each its own.
    Apart,
    /// All the first.
    Folded,
}

impl Cast {
    fn pe_of(self, role: u32) -> u32 {
        match self {
            Self::Apart => role,
            Self::Folded => 0,
        }
    }
}

/// The casts of a test on a path.
fn casts(test: &Test, path: &Path) -> Vec<Cast> {
    let apart = path.pes >= 3 && test.needs != Needs::OnePe;
    let folded = path.folded && test.needs != Needs::ThreePes || path.pes == 3 && test.needs == Needs::OnePe;
    [(apart, Cast::Apart), (folded, Cast::Folded)]
        .into_iter()
        .filter_map(|(on, cast)| on.then_some(cast))
        .collect()
}

/// What the interpreter works with.
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
        let rounds = LAUNCH as usize;
        Ok(Self {
            plan: pe.alloc(PLAN_WORDS)?,
            programs: pe.alloc(ACTORS * PROGRAM_WORDS)?,
            words: pe.alloc(rounds * WORDS)?,
            kept: pe.alloc(KEPT)?,
            halves: pe.alloc(rounds * HALVES)?,
            bytes: pe.alloc(rounds * BYTES)?,
            floats: pe.alloc(rounds * HALVES)?,
            lock: pe.alloc_one()?,
            registers: pe.alloc(rounds * ACTORS * REGS)?,
            gate: pe.alloc(1)?,
        })
    }

    /// Runs some rounds; gives this PE's registers.
    fn launch(&self, pe: &Pe, test: &Test, cast: Cast, rounds: u64, seed: u64) -> Result<Vec<u64>, Error> {
        let actors = test.actors.len();
        assert!(actors <= ACTORS, "{} has {actors} actors", test.id);
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
        pe.write(self.plan, &[rounds, actors as u64, test.who as u64, EVERY, seed, JITTER])?;
        let programs = test.encode(|role| cast.pe_of(role));
        pe.write(self.programs.slice(0..programs.len()), &programs)?;
        pe.barrier()?;
        let threads = match test.who {
            Who::Thread => 1,
            Who::Warp => 32,
            Who::Block => 64,
        };
        let grid = Grid { blocks: actors as u32, threads, shared_bytes: 0 };
        let Self { plan, programs, kept, lock, gate, .. } = *self;
        let call = litmus(plan, programs, words, kept, halves, bytes, floats, lock, registers, gate.at(0));
        pe.run(grid, call)?;
        pe.barrier()?;
        pe.read(registers)
    }
}

/// Runs every test that makes sense on the path.
///
/// # Errors
/// The job's: a test that cannot go on, such as one with a wait that does not end.
pub fn run(path: &Path, tests: &[Test], rounds: u64) -> Result<Vec<Row>, Error> {
    let job = Job::with_config(path.config(1)).kernels(rushmem::ptx!("rushmem_litmus_kernels"));
    let mut work = Vec::new();
    for test in tests {
        work.extend(casts(test, path).into_iter().map(|cast| (test, cast)));
    }
    let found = job.run(|pe| -> Result<_, Error> {
        let memory = Memory::new(pe)?;
        let mut all = Vec::new();
        for (i, (test, cast)) in work.iter().enumerate() {
            let mut registers = Vec::new();
            let mut done = 0;
            while done < rounds {
                let some = LAUNCH.min(rounds - done);
                let seed = (i as u64) << 40 | done << 8;
                registers.extend(memory.launch(pe, test, *cast, some, seed)?);
                done += some;
            }
            all.push(registers);
        }
        Ok(all)
    })?;
    let rows = work.iter().enumerate().map(|(i, (test, cast))| {
        let of_pes: Vec<&[u64]> = found.iter().map(|all| all[i].as_slice()).collect();
        judge(test, *cast, path, rounds, &of_pes)
    });
    Ok(rows.collect())
}

/// Looks at every round.
fn judge(test: &Test, cast: Cast, path: &Path, rounds: u64, of_pes: &[&[u64]]) -> Row {
    let mut row = Row::new(test, path, cast == Cast::Folded && path.pes > 1, rounds);
    let actors = test.actors.len();
    let mut registers = vec![[0; REGS]; actors];
    for round in 0..rounds {
        for (actor, (role, _)) in test.actors.iter().enumerate() {
            let from = (round as usize * actors + actor) * REGS;
            registers[actor].copy_from_slice(&of_pes[cast.pe_of(*role) as usize][from..from + REGS]);
        }
        // Rounds of a launch are counted from 0.
        row.count(test, &Outcome { round: round % LAUNCH, registers: &registers });
    }
    row
}
