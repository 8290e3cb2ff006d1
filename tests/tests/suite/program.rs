//! Tests with random programs, compared with a model that performs each thread's operations in order.
//!
//! Every thread has separate memory on every PE, so its results do not depend on other threads. All threads add to
//! shared words. If two unordered operations of a thread touch the same memory, the program gets a `quiet` between
//! them, or a `fence` where that suffices.

use std::ops::Range;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rushmem::{Error, Pe};
use rushmem_device::Signal;
use rushmem_test_kernels::{OP_WORDS, Operation, interpret};
use rushmem_tests::{Setup, grid};

use super::setups;

const BLOCKS: u32 = 2;
const THREADS: u32 = 7;
/// Number of threads per PE.
const LANES: usize = (BLOCKS * THREADS) as usize;
/// Size of the memory that each thread has on each PE, in bytes and in words.
const BYTES: u64 = 40;
const WORDS: u64 = 3;
/// Number of words that all threads share. They follow the threads' own words.
const SHARED: u64 = 2;
/// Maximum number of operations per thread. Each may need one more before it, for ordering.
const OPS: usize = 12;
const SLOTS: usize = 2 * OPS;

/// A random operation before it is assigned to a thread.
#[derive(Clone, Copy, Debug)]
struct Op {
    code: Operation,
    pe: u32,
    /// Destination offset of a transfer, within the thread's bytes.
    to: u64,
    from: u64,
    len: u64,
    /// Index of one of the thread's own words, or of a shared word.
    word: u64,
    value: u64,
    /// Whether to order the operation with a `fence` rather than a `quiet` if that suffices.
    fence: bool,
}

fn op(pes: u32) -> impl Strategy<Value = Op> {
    use Operation::*;
    let transfers = prop::sample::select(vec![Put, PutNbi, Get, GetNbi, PutSignal, PutSignalNbi]);
    let words = prop::sample::select(vec![P, G, Add, FetchAdd, Swap, CompareSwap, FetchOr, Xor, Signal]);
    let order = prop::sample::select(vec![Fence, Quiet]);
    let code = prop_oneof![6 => transfers, 8 => words, 1 => order];
    let place = (0..BYTES, 0..BYTES, 0..=BYTES);
    let value = prop_oneof![0u64..4, any::<u64>()];
    (code, 0..pes, place, 0..WORDS + SHARED, value, any::<bool>()).prop_map(
        |(code, pe, (to, from, len), word, value, fence)| {
            let len = len.min(BYTES - to).min(BYTES - from);
            // Shared words allow additions only: other results would depend on the order of the threads.
            let word = if code == Add { word } else { word.min(WORDS - 1) };
            Op { code, pe, to, from, len, word, value, fence }
        },
    )
}

/// A range of some PE's memory that an operation reads or writes.
#[derive(Clone, Debug)]
struct Access {
    pe: u32,
    words: bool,
    range: Range<u64>,
    writes: bool,
    /// Whether fences order the access. They order accesses by the NIC and by stores at the peer, but not the local end
    /// of a transfer.
    ordered: bool,
}

impl Access {
    fn conflicts(&self, other: &Self) -> bool {
        self.pe == other.pe
            && self.words == other.words
            && (self.writes || other.writes)
            && self.range.start < other.range.end
            && other.range.start < self.range.end
    }
}

impl Op {
    /// Makes source and destination of a transfer disjoint if both are on this PE.
    fn apart(self, me: u32) -> Self {
        let len = if self.pe == me { self.len.min(self.to.abs_diff(self.from)) } else { self.len };
        // A compare-and-swap uses `len` as the expected value, so leave it alone.
        if self.code == Operation::CompareSwap { self } else { Self { len, ..self } }
    }

    /// Returns the operation's accesses to the thread's memory on each PE, and whether fences order them.
    fn accesses(&self, me: u32) -> Vec<Access> {
        use Operation::*;
        let bytes = |pe, at: u64, writes, ordered| Access {
            pe,
            words: false,
            range: at..at + self.len,
            writes,
            ordered,
        };
        let word = |writes| Access {
            pe: self.pe,
            words: true,
            range: self.word..self.word + 1,
            writes,
            ordered: writes,
        };
        match self.code {
            Put | PutNbi | PutSignal | PutSignalNbi => {
                vec![bytes(self.pe, self.to, true, true), bytes(me, self.from, false, false)]
            }
            Get | GetNbi => vec![bytes(self.pe, self.from, false, false), bytes(me, self.to, true, false)],
            // The sum in a shared word does not depend on the order.
            Add if self.word >= WORDS => vec![],
            P | Add | FetchAdd | Swap | CompareSwap | FetchOr | Xor => vec![word(true)],
            G => vec![word(false)],
            _ => vec![],
        }
    }

    /// Whether the operation has completed when it returns.
    fn is_complete(&self) -> bool {
        use Operation::*;
        matches!(self.code, Get | G | FetchAdd | Swap | CompareSwap | FetchOr)
    }
}

/// Inserts the `quiet` and `fence` calls that the order of conflicting operations requires.
fn ordered(ops: &[Op], me: u32) -> Vec<Op> {
    let mut out: Vec<Op> = Vec::new();
    let mut pending: Vec<Access> = Vec::new();
    // Number of accesses at the start of `pending` that a fence has already ordered.
    let mut fenced = 0;
    for op in ops {
        let op = &op.apart(me);
        let accesses = op.accesses(me);
        // Whether `op` conflicts with a pending access. Pairs that fences order count only from index `skip` on, and
        // not at all with `only_unordered`.
        let conflict = |skip: usize, only_unordered: bool| {
            accesses.iter().any(|a| {
                pending.iter().enumerate().any(|(i, p)| {
                    let by_fence = a.ordered && p.ordered && (i < skip || only_unordered);
                    a.conflicts(p) && !by_fence
                })
            })
        };
        // No fence helps, or a `quiet` is to be tested instead of one.
        if conflict(usize::MAX, true) || (conflict(fenced, false) && !op.fence) {
            out.push(Op { code: Operation::Quiet, ..*op });
            pending.clear();
            fenced = 0;
        } else if conflict(fenced, false) {
            out.push(Op { code: Operation::Fence, ..*op });
        }
        if out.last().is_some_and(|last| last.code == Operation::Fence) {
            fenced = pending.len();
        }
        match op.code {
            Operation::Quiet => pending.clear(),
            Operation::Fence => fenced = pending.len(),
            _ if op.is_complete() => {}
            _ => pending.extend(accesses),
        }
        fenced = fenced.min(pending.len());
        out.push(*op);
    }
    out
}

#[derive(Clone, Debug, PartialEq)]
struct Memory {
    bytes: Vec<u8>,
    words: Vec<u64>,
    signals: Vec<u64>,
    results: Vec<u64>,
}

impl Memory {
    fn new(pe: u32, pes: u32) -> Self {
        let threads = u64::from(pes) * LANES as u64;
        Self {
            bytes: (0..threads * BYTES).map(|i| (i * 7 + u64::from(pe) * 13) as u8).collect(),
            words: (0..threads * WORDS + SHARED).map(|i| i % 5 + u64::from(pe)).collect(),
            signals: vec![0; 2],
            results: vec![0; LANES * SLOTS],
        }
    }
}

/// Returns the global index of the thread with index `lane` on PE `me`.
fn thread(me: u32, lane: usize) -> u64 {
    u64::from(me) * LANES as u64 + lane as u64
}

/// Returns the index of an operation's word in the array of all words.
fn word_of(op: &Op, thread: u64, pes: u32) -> u64 {
    if op.word < WORDS {
        thread * WORDS + op.word
    } else {
        u64::from(pes) * LANES as u64 * WORDS + op.word - WORDS
    }
}

fn model(programs: &[Vec<Op>], pes: u32) -> Vec<Memory> {
    use Operation::*;
    let mut all: Vec<Memory> = (0..pes).map(|pe| Memory::new(pe, pes)).collect();
    for (at, ops) in programs.iter().enumerate() {
        let (me, lane) = (at / LANES, at % LANES);
        let thread = thread(me as u32, lane);
        for (slot, op) in ops.iter().enumerate() {
            let there = op.pe as usize;
            let range = |at: u64| ((thread * BYTES + at) as usize)..((thread * BYTES + at + op.len) as usize);
            match op.code {
                Put | PutNbi | PutSignal | PutSignalNbi => {
                    let data = all[me].bytes[range(op.from)].to_vec();
                    all[there].bytes[range(op.to)].copy_from_slice(&data);
                }
                Get | GetNbi => {
                    let data = all[there].bytes[range(op.from)].to_vec();
                    all[me].bytes[range(op.to)].copy_from_slice(&data);
                }
                _ => {}
            }
            match op.code {
                PutSignal | PutSignalNbi => {
                    all[there].signals[0] = all[there].signals[0].wrapping_add(op.value)
                }
                Signal => all[there].signals[1] = all[there].signals[1].wrapping_add(op.value),
                _ => {}
            }
            let word = &mut all[there].words[word_of(op, thread, pes) as usize];
            let old = *word;
            *word = match op.code {
                P | Swap => op.value,
                Add | FetchAdd => old.wrapping_add(op.value),
                CompareSwap if old == op.len => op.value,
                FetchOr => old | op.value,
                Xor => old ^ op.value,
                _ => old,
            };
            if matches!(op.code, G | FetchAdd | Swap | CompareSwap | FetchOr) {
                all[me].results[lane * SLOTS + slot] = old;
            }
        }
    }
    all
}

fn encode(op: &Op, thread: u64, lane: usize, slot: usize, pes: u32) -> [u64; OP_WORDS] {
    use Operation::*;
    let result = (lane * SLOTS + slot) as u64;
    let (a, b) = match op.code {
        Put | PutNbi | PutSignal | PutSignalNbi | Get | GetNbi => {
            (thread * BYTES + op.to, thread * BYTES + op.from)
        }
        _ => (word_of(op, thread, pes), result),
    };
    [op.code as u64, op.pe.into(), a, b, op.len, op.value]
}

/// Runs the programs of this PE's threads and returns the PE's memory afterwards.
fn run(pe: &Pe, programs: &[Vec<Op>]) -> Result<Memory, Error> {
    let (me, pes) = (pe.my_pe(), pe.n_pes());
    let before = Memory::new(me, pes);
    let bytes = pe.alloc::<u8>(before.bytes.len())?;
    let words = pe.alloc::<u64>(before.words.len())?;
    let signals = pe.alloc::<Signal>(2)?;
    let results = pe.alloc::<u64>(before.results.len())?;
    let program = pe.alloc::<u64>(LANES * SLOTS * OP_WORDS)?;
    pe.write(bytes, &before.bytes)?;
    pe.write(words, &before.words)?;
    let mut text = vec![0; program.len()];
    for lane in 0..LANES {
        for (slot, op) in programs[me as usize * LANES + lane].iter().enumerate() {
            let at = (lane * SLOTS + slot) * OP_WORDS;
            text[at..at + OP_WORDS].copy_from_slice(&encode(op, thread(me, lane), lane, slot, pes));
        }
    }
    pe.write(program, &text)?;
    pe.host_sync()?;
    pe.run(grid(BLOCKS, THREADS), interpret(program, bytes, words, signals, results))?;
    pe.host_sync()?;
    Ok(Memory {
        bytes: pe.read(bytes)?,
        words: pe.read(words)?,
        signals: pe.read(signals)?,
        results: pe.read(results)?,
    })
}

/// Compares `cases` random programs, or as many as `PROPTEST_CASES` says, with the model.
fn agrees(setup: &Setup, cases: u32) {
    let pes = setup.pes();
    let wanted = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let cases = wanted.unwrap_or_else(|| setups::repetitions(cases));
    let seed = [7; 32];
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 400, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let programs = prop::collection::vec(prop::collection::vec(op(pes), 0..=OPS), pes as usize * LANES);
    let result = runner.run(&programs, |programs| {
        let programs: Vec<Vec<Op>> =
            programs.iter().enumerate().map(|(at, ops)| ordered(ops, (at / LANES) as u32)).collect();
        let found = setup.try_run(|pe| run(pe, &programs));
        let found = found.map_err(|error| TestCaseError::fail(error.to_string()))?;
        for (pe, (found, wanted)) in found.iter().zip(model(&programs, pes)).enumerate() {
            prop_assert!(*found == wanted, "PE {pe}: {}", difference(found, &wanted));
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{setup}: {error}");
    }
}

fn difference(found: &Memory, wanted: &Memory) -> String {
    fn first<T: PartialEq + std::fmt::Debug>(name: &str, found: &[T], wanted: &[T]) -> Option<String> {
        let at = (0..wanted.len()).find(|&i| found[i] != wanted[i])?;
        Some(format!("{name} {at} is {:?}, wanted {:?}", found[at], wanted[at]))
    }
    let parts = [
        first("byte", &found.bytes, &wanted.bytes),
        first("word", &found.words, &wanted.words),
        first("signal", &found.signals, &wanted.signals),
        first("result", &found.results, &wanted.results),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

#[test]
fn random_programs_in_queues_of_2() {
    agrees(&Setup::new(2).with("sq_depth", 2), 75);
    agrees(&Setup::new(3).with("sq_depth", 2).with("cq", "collapsed").with("qps_per_peer", 2), 45);
}

#[test]
fn random_programs_in_queues_of_8() {
    agrees(&Setup::new(3).with("sq_depth", 8), 60);
    agrees(&Setup::new(1).with("sq_depth", 8).with("cq", "collapsed").with("peer_path", "nic"), 60);
}

#[test]
fn random_programs_in_queues_of_1024() {
    agrees(&Setup::new(2).with("peer_path", "nic").with("qps_per_peer", 2), 60);
    agrees(&Setup::new(4).with("cq", "collapsed"), 30);
}

#[test]
fn random_programs_with_a_slow_nic() {
    let faults = "skip_qp=0.4,completion_delay=0.3";
    agrees(&Setup::new(3).with("sq_depth", 2).with("softnic_fault", faults), 30);
    agrees(&Setup::new(2).with("sq_depth", 8).with("qps_per_peer", 3).with("softnic_fault", faults), 30);
}
