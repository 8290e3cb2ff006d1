//! Runs the benchmark cases on the PEs of a job, and verifies the data of each run.

use rushmem::{Job, LaunchConfig, Operations, Pe, Stream};
use rushmem_bench_kernels::{self as kernels, Exchange};
use rushmem_device::kernel::Call;
use rushmem_device::{Reduce, Signal, Sym, SymSlice, Team};

use super::bench::Bench;
use super::plan::{Case, MAX_THREADS};
use super::recorder::Recorder;
use super::results::Row;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Heap space that the benchmarks need in addition to the two data buffers, in bytes.
pub(super) const OTHER_BYTES: u64 = 8 << 20;
/// Maximum number of blocks in a grid that is timed by its blocks.
const MAX_BLOCKS: usize = 1 << 12;
/// Maximum number of elements in a reduction by a kernel.
const MAX_FLOATS: usize = 1 << 18;
/// Number of rounds in which a barrier is verified before it is timed.
const CHECKED_ROUNDS: u32 = 10;

/// Runs a job that measures `cases`, each `runs` times. PE 0 records the results.
///
/// Each PE spreads the data of a case over `window` bytes.
pub(super) fn measure(
    job: Job,
    cases: &[Case],
    runs: usize,
    window: u64,
    recorder: &Recorder,
) -> Result<(), rushmem::Error> {
    job.run(|pe| {
        check_n_pes(pe, cases)?;
        let bed = TestBed::new(pe, window)?;
        let path = pe.peer_routes().into_iter().find(|path| path.pe == 1).map(|path| path.via);
        let machine = format!("{}, peers by {}", pe.machine(), path.as_deref().unwrap_or("nothing"));
        for case in cases {
            recorder.start(case.bench);
            let values = bed.row(case, runs)?;
            // Record a result only after all PEs have verified it.
            pe.host_sync()?;
            if pe.my_pe() == 0 {
                recorder.add(&machine, Row::new(case, values))?;
            }
            tracing::info!("{} {} B, {} x {}", case.bench.name(), case.bytes, case.blocks, case.threads);
        }
        Ok::<_, AnyError>(())
    })?;
    Ok(())
}

/// Checks that the cases match the number of PEs of this job.
fn check_n_pes(pe: &Pe, cases: &[Case]) -> Result<(), AnyError> {
    match cases.iter().find(|case| case.pes != pe.n_pes()) {
        None => Ok(()),
        Some(case) => {
            Err(format!("the job has {} PEs, and the launcher promised {}", pe.n_pes(), case.pes).into())
        }
    }
}

/// A PE and its symmetric objects for the benchmarks.
struct TestBed<'a> {
    pe: &'a Pe,
    /// Source buffer of transfers.
    src: SymSlice<u64>,
    /// Destination buffer of transfers.
    dst: SymSlice<u64>,
    /// One word per thread of a peer, at each of [`WORD_LOCATIONS`] offsets.
    words: SymSlice<u64>,
    /// One word per thread, for the results of the thread's gets or fetches.
    sums: SymSlice<u64>,
    /// Timestamps that the kernel records per block: when it started and when it finished.
    spans: SymSlice<u64>,
    /// One signal at each of [`WORD_LOCATIONS`] offsets.
    signals: SymSlice<Signal>,
    /// Destination and source buffer of reductions.
    floats: [SymSlice<f32>; 2],
    /// Number of checks that have failed in a kernel.
    wrong: Sym<u64>,
}

/// Number of offsets in the arrays of words and signals that runs use in turn. The latency of a word depends on its
/// cache line in GPU memory: the near lines of an H200 take 0.6 of the time of the far ones. So each run visits several
/// lines.
const WORD_LOCATIONS: usize = 64;
/// Distance between two consecutive word offsets, in words: 37 lines of 128 bytes.
const LOCATION_STRIDE: usize = 37 * 16;

/// Returns the index of the first word that launch number `run` uses.
fn word_offset(run: u64) -> usize {
    run as usize % WORD_LOCATIONS * LOCATION_STRIDE
}

impl<'a> TestBed<'a> {
    fn new(pe: &'a Pe, window: u64) -> Result<Self, rushmem::Error> {
        let len = (window / 8) as usize;
        Ok(Self {
            pe,
            src: pe.alloc(len)?,
            dst: pe.alloc(len)?,
            words: pe.alloc(MAX_THREADS as usize + WORD_LOCATIONS * LOCATION_STRIDE)?,
            sums: pe.alloc(MAX_THREADS as usize)?,
            spans: pe.alloc(2 * MAX_BLOCKS)?,
            signals: pe.alloc(WORD_LOCATIONS * LOCATION_STRIDE)?,
            floats: [pe.alloc(MAX_FLOATS)?, pe.alloc(MAX_FLOATS)?],
            wrong: pe.alloc_one()?,
        })
    }

    /// Returns the results of `runs` runs, after a warm-up run.
    fn row(&self, case: &Case, runs: usize) -> Result<Vec<f64>, AnyError> {
        let launches = if case.bench.is_on_words() { WORD_LOCATIONS as u64 } else { 1 };
        let mut values = Vec::new();
        for run in 0..=runs as u64 {
            let mut ns = 0.0;
            for launch in run * launches..(run + 1) * launches {
                ns += self.launch(case, launch).map_err(|error| -> AnyError {
                    let Case { bytes, blocks, threads, .. } = case;
                    match error.downcast::<Mismatch>() {
                        Ok(wrong) => {
                            format!("{} of {bytes} B by {blocks} x {threads}: {wrong}", case.bench.name())
                                .into()
                        }
                        Err(other) => other,
                    }
                })?;
            }
            if run > 0 {
                values.push(value(case, ns / launches as f64));
            }
        }
        Ok(values)
    }

    /// Prepares, launches and verifies the kernel of one run, or its part for one location. Returns the time on this PE
    /// in nanoseconds.
    fn launch(&self, case: &Case, run: u64) -> Result<f64, AnyError> {
        let rounds = case.rounds;
        let n = (case.blocks * case.threads) as usize;
        let all = u64::from(rounds);
        let (spans, sums) = (self.spans, self.sums);
        let words = self.words.slice(word_offset(run)..word_offset(run) + n);
        match case.bench {
            Bench::PutBandwidth | Bench::GetBandwidth | Bench::PutQuiet => self.transfer(case, run),
            Bench::PQuiet | Bench::PRate => {
                let each = u32::from(case.bench == Bench::PQuiet);
                let value = (run + 1) << 32;
                let ns = self.timed(case, kernels::p(spans, words, value, rounds, each))?;
                self.on(1, || self.expect(words, n, |_| value + all - 1))?;
                Ok(ns)
            }
            Bench::G | Bench::GRate => {
                self.fill(words, run)?;
                let ns = self.timed(case, kernels::g(spans, words, sums, rounds))?;
                self.on(0, || self.expect(sums, n, |i| kernels::pattern(run, i).wrapping_mul(all)))?;
                Ok(ns)
            }
            Bench::AddRate => {
                self.zero(words, n)?;
                let ns = self.timed(case, kernels::add(spans, words, rounds))?;
                self.on(1, || self.expect(words, n, |_| all))?;
                Ok(ns)
            }
            Bench::FetchAdd | Bench::FetchAddRate | Bench::CompareSwap => {
                self.zero(words, n)?;
                let call = match case.bench {
                    Bench::CompareSwap => kernels::compare_swap(spans, words, sums, rounds),
                    _ => kernels::fetch_add(spans, words, sums, rounds),
                };
                let ns = self.timed(case, call)?;
                self.on(1, || self.expect(words, n, |_| all))?;
                self.on(0, || self.expect(sums, n, |_| all * (all - 1) / 2))?;
                Ok(ns)
            }
            Bench::Signal => {
                let signal = self.signal(run)?;
                let ns = self.timed(case, kernels::ping_pong(spans, signal.at(0), rounds))?;
                self.below(2, || self.expect(signal, 1, |_| all))?;
                Ok(ns)
            }
            Bench::PutSignal => self.put_signal(case, run),
            Bench::Barrier | Bench::Sync => self.barrier(case, Team::WORLD),
            Bench::NodeBarrier | Bench::NodeSync => self.barrier(case, Team::SHARED),
            Bench::Broadcast => self.exchange(case, run, Exchange::Broadcast),
            Bench::Fcollect => self.exchange(case, run, Exchange::Fcollect),
            Bench::Alltoall => self.exchange(case, run, Exchange::Alltoall),
            Bench::Reduce => self.reduce(case, run),
            Bench::StreamBroadcast => self.exchange(case, run, Exchange::Broadcast),
            Bench::StreamFcollect => self.exchange(case, run, Exchange::Fcollect),
            Bench::StreamAlltoall => self.exchange(case, run, Exchange::Alltoall),
            Bench::StreamReduce | Bench::StreamReduceScatter => self.reduce_on_stream(case, run),
            Bench::PostExclusive => self.post(case, run, kernels::post_exclusive),
            Bench::PostPerBlock | Bench::PostWarpPerBlock => self.post(case, run, kernels::post_per_block),
            Bench::PostShared | Bench::PostWarp => self.post(case, run, kernels::post_shared),
            Bench::Init | Bench::InitMemory => unreachable!("no kernel runs in these: see init.rs"),
        }
    }

    fn transfer(&self, case: &Case, run: u64) -> Result<f64, AnyError> {
        let len = case.bytes / 8;
        let places = (self.src.len() as u64 / len).clamp(1, case.rounds.into());
        let touched = (places * len) as usize;
        // Each PE sends different data, so a mix-up is detected.
        let seed = |pe: u32| 2 * run + 1 + u64::from(pe);
        self.fill(self.src.slice(0..touched), seed(self.pe.my_pe()))?;
        let (dst, src) = (self.dst.slice(0..touched), self.src.slice(0..touched));
        let (spans, rounds) = (self.spans, case.rounds);
        let (call, from, to) = match case.bench {
            Bench::GetBandwidth => (kernels::get(spans, dst, src, len, rounds), 1, 0),
            Bench::PutQuiet => (kernels::put_quiet(spans, dst, src, len, rounds), 0, 1),
            _ => (kernels::put(spans, dst, src, len, rounds), 0, 1),
        };
        let ns = self.timed(case, call)?;
        self.on(to, || self.check(dst, seed(from)))?;
        Ok(ns)
    }

    fn put_signal(&self, case: &Case, run: u64) -> Result<f64, AnyError> {
        let len = (case.bytes / 8) as usize;
        let (dst, src) = (self.dst.slice(0..len), self.src.slice(0..len));
        let seed = |pe: u32| 2 * run + 1 + u64::from(pe);
        self.fill(src, seed(self.pe.my_pe()))?;
        let signal = self.signal(run)?;
        let call = kernels::put_signal_ping_pong(self.spans, dst, src, signal.at(0), case.rounds);
        let ns = self.timed(case, call)?;
        self.below(2, || {
            self.expect(signal, 1, |_| u64::from(case.rounds))?;
            self.check(dst, seed(1 - self.pe.my_pe()))
        })?;
        Ok(ns)
    }

    /// Returns the signal that launch number `run` uses, after setting it to 0.
    fn signal(&self, run: u64) -> Result<SymSlice<Signal>, AnyError> {
        let signal = self.signals.slice(word_offset(run)..word_offset(run) + 1);
        self.zero(signal, 1)?;
        Ok(signal)
    }

    fn barrier(&self, case: &Case, team: Team) -> Result<f64, AnyError> {
        let complete = u32::from(matches!(case.bench, Bench::Barrier | Bench::NodeBarrier));
        let (spans, word, wrong) = (self.spans, self.words.at(0), self.wrong);
        self.zero(self.words, 1)?;
        self.together(case, kernels::meet_checked(word, wrong, team, complete, CHECKED_ROUNDS))?;
        if self.pe.read_one(wrong)? != 0 {
            return Err(Mismatch("a PE left the barrier before all PEs arrived".into()).into());
        }
        if team == Team::WORLD {
            self.timed(case, kernels::meet(spans, complete, case.rounds))
        } else {
            self.timed(case, kernels::meet_team(spans, team, complete, case.rounds))
        }
    }

    fn exchange(&self, case: &Case, run: u64, kind: Exchange) -> Result<f64, AnyError> {
        let (me, n, len) = (self.pe.my_pe() as usize, self.pe.n_pes() as usize, case.bytes as usize / 8);
        let block = |of: SymSlice<u64>, i: usize| of.slice(i * len..(i + 1) * len);
        // Seed of the data that `from` sends to `to`.
        let seed = |from: usize, to: usize| ((run + 1) * n as u64 + from as u64) * n as u64 + to as u64;
        let (all, one) = (self.dst.slice(0..n * len), self.dst.slice(0..len));
        let (sends, receives) = match kind {
            Exchange::Broadcast => (vec![0], vec![(one, seed(0, 0))]),
            Exchange::Fcollect => (vec![0], (0..n).map(|i| (block(self.dst, i), seed(i, 0))).collect()),
            Exchange::Alltoall => {
                ((0..n).collect(), (0..n).map(|i| (block(self.dst, i), seed(i, me))).collect())
            }
        };
        for &to in &sends {
            self.fill(block(self.src, to), seed(me, to))?;
        }
        let dst = if kind == Exchange::Broadcast { one } else { all };
        let src = self.src.slice(0..sends.len() * len);
        let ns = if case.blocks > 0 {
            self.timed(case, kernels::exchange(self.spans, dst, src, kind as u32, case.rounds))?
        } else {
            self.timed_on_stream(case, |stream| match kind {
                Exchange::Broadcast => stream.broadcast(Team::WORLD, dst, src, 0),
                Exchange::Fcollect => stream.fcollect(Team::WORLD, dst, src),
                Exchange::Alltoall => stream.alltoall(Team::WORLD, dst, src),
            })?
        };
        for (part, seed) in receives {
            self.check(part, seed)?;
        }
        Ok(ns)
    }

    fn reduce(&self, case: &Case, run: u64) -> Result<f64, AnyError> {
        let len = case.bytes as usize / 4;
        let (dst, src) = (self.floats[0].slice(0..len), self.floats[1].slice(0..len));
        // Small whole numbers, because their sums are exact.
        let value = |pe: u32, i: usize| (i % 97) as f32 + pe as f32 * (run + 1) as f32;
        let mine: Vec<f32> = (0..len).map(|i| value(self.pe.my_pe(), i)).collect();
        self.pe.write(src, &mine)?;
        let ns = self.timed(case, kernels::sum(self.spans, dst, src, case.rounds))?;
        let wanted = |i: usize| (0..self.pe.n_pes()).map(|pe| value(pe, i)).sum::<f32>();
        match self.pe.read(dst)?.iter().enumerate().find(|&(i, &found)| found != wanted(i)) {
            None => Ok(ns),
            Some((i, found)) => Err(Mismatch(format!("sum {i} is {found}, not {}", wanted(i))).into()),
        }
    }

    fn reduce_on_stream(&self, case: &Case, run: u64) -> Result<f64, AnyError> {
        let (me, pes, len) = (self.pe.my_pe(), self.pe.n_pes(), case.bytes as usize / 4);
        let scatters = case.bench == Bench::StreamReduceScatter;
        let all = if scatters { pes as usize * len } else { len };
        let (dst, src) = (self.dst.cast::<f32>().slice(0..len), self.src.cast::<f32>().slice(0..all));
        self.pe.run(self.pe.grid(), kernels::fill_terms(src, run))?;
        let ns = self.timed_on_stream(case, |stream| match scatters {
            true => stream.reduce_scatter(Team::WORLD, Reduce::Sum, dst, src),
            false => stream.reduce(Team::WORLD, Reduce::Sum, dst, src),
        })?;
        let first = if scatters { me as usize * len } else { 0 };
        self.check_with(dst.len(), |counts| kernels::check_sums(dst, first as u64, run, counts))?;
        Ok(ns)
    }

    /// Runs `rounds` operations on a stream, as a graph, after a warm-up operation. Returns their time on this PE in
    /// nanoseconds.
    fn timed_on_stream(
        &self,
        case: &Case,
        queue: impl Fn(&Stream<'_>) -> Result<(), rushmem::Error>,
    ) -> Result<f64, AnyError> {
        let stream = self.pe.stream()?;
        let stamp = |stream: &Stream<'_>, which| {
            stream.launch(LaunchConfig::new(1, 1), kernels::stamp(self.spans, which))
        };
        let graph = stream.capture(|stream| {
            stream.barrier_all()?;
            queue(stream)?;
            stamp(stream, 0)?;
            (0..case.rounds).try_for_each(|_| queue(stream))?;
            stamp(stream, 1)
        })?;
        self.pe.host_sync()?;
        graph.launch(&stream)?;
        stream.wait()?;
        self.pe.host_sync()?;
        self.span(1)
    }

    fn post(
        &self,
        case: &Case,
        run: u64,
        kernel: impl Fn(SymSlice<u64>, SymSlice<u64>, SymSlice<u64>, u32, u32) -> Call,
    ) -> Result<f64, AnyError> {
        let n = (case.blocks * case.threads) as usize;
        self.fill(self.sums.slice(0..n), run + 1)?;
        let ns = self.timed(case, kernel(self.spans, self.words, self.sums, case.rounds, 1))?;
        self.on(1, || self.check(self.words.slice(0..n), run + 1))?;
        Ok(ns)
    }

    /// Runs a kernel on all PEs. Returns the nanoseconds from the first block's start to the last block's end on this
    /// PE.
    fn timed(&self, case: &Case, call: Call) -> Result<f64, AnyError> {
        self.together(case, call)?;
        self.pe.host_sync()?;
        self.span(case.blocks)
    }

    /// Returns the nanoseconds from the first block's start to the last block's end on this PE.
    fn span(&self, blocks: u32) -> Result<f64, AnyError> {
        let spans = self.pe.read(self.spans.slice(0..2 * blocks as usize))?;
        let (begin, end) = (spans.iter().step_by(2).min(), spans.iter().skip(1).step_by(2).max());
        let ns = end.zip(begin).map_or(0, |(end, begin)| end.saturating_sub(*begin));
        // With a coarse GPU clock, the difference may be 0.
        Ok(ns.max(1) as f64)
    }

    /// Runs a kernel on all PEs at about the same time, after a barrier.
    fn together(&self, case: &Case, call: Call) -> Result<(), AnyError> {
        self.pe.host_sync()?;
        Ok(self.pe.run(LaunchConfig::new(case.blocks, case.threads), call)?)
    }

    fn fill(&self, data: SymSlice<u64>, seed: u64) -> Result<(), AnyError> {
        Ok(self.pe.run(self.pe.grid(), kernels::fill(data, seed))?)
    }

    fn zero(&self, words: SymSlice<u64>, n: usize) -> Result<(), AnyError> {
        Ok(self.pe.write(words.slice(0..n), &vec![0; n])?)
    }

    /// Verifies that `data` holds the pattern that another PE wrote with `fill`.
    fn check(&self, data: SymSlice<u64>, seed: u64) -> Result<(), AnyError> {
        self.check_with(data.len(), |counts| kernels::check(data, seed, counts))
    }

    /// Runs a kernel in which each thread counts wrong elements, and checks that there are none among `len`.
    fn check_with(&self, len: usize, kernel: impl FnOnce(SymSlice<u64>) -> Call) -> Result<(), AnyError> {
        let grid = self.pe.grid();
        let threads = (grid.blocks() * grid.threads()) as usize;
        // Reuse `sums` for the counts: no other kernel reads it now.
        let counts = self.sums.slice(0..threads);
        self.pe.run(grid, kernel(counts))?;
        match self.pe.read(counts)?.iter().sum::<u64>() {
            0 => Ok(()),
            wrong => Err(Mismatch(format!("{wrong} of {len} words are wrong")).into()),
        }
    }

    /// Verifies that word `i` of this PE is `wanted(i)`, for the first `n` words.
    fn expect(&self, words: SymSlice<u64>, n: usize, wanted: impl Fn(u64) -> u64) -> Result<(), AnyError> {
        let found = self.pe.read(words.slice(0..n))?;
        match (0..).zip(&found).find(|&(i, &word)| word != wanted(i)) {
            None => Ok(()),
            Some((i, word)) => Err(Mismatch(format!("word {i} is {word:#x}, not {:#x}", wanted(i))).into()),
        }
    }

    /// Runs the check `f` on PE `pe` only. Other PEs must not change the checked data before the next barrier.
    fn on(&self, pe: u32, f: impl FnOnce() -> Result<(), AnyError>) -> Result<(), AnyError> {
        if self.pe.my_pe() == pe { f() } else { Ok(()) }
    }

    /// Runs `f` on the first `pes` PEs only.
    fn below(&self, pes: u32, f: impl FnOnce() -> Result<(), AnyError>) -> Result<(), AnyError> {
        if self.pe.my_pe() < pes { f() } else { Ok(()) }
    }
}

/// The data that a benchmark has transferred differ from what is expected.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Mismatch(String);

/// Returns the result of a run of `case` that took `ns` nanoseconds, in the unit of the benchmark.
fn value(case: &Case, ns: f64) -> f64 {
    use super::bench::Unit;
    let rounds = f64::from(case.rounds);
    match case.bench.unit() {
        Unit::Bandwidth => case.bytes as f64 * rounds / ns,
        Unit::Rate => f64::from(case.blocks) * f64::from(case.threads) * rounds / ns * 1e3,
        Unit::Microseconds => ns / rounds / 1e3,
        Unit::Milliseconds => ns / 1e6,
        Unit::Memory => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushmem::config::Config;

    /// Runs `f` on each of two PEs and returns the error texts.
    fn errors_of(f: impl Fn(&TestBed<'_>) -> Result<(), AnyError> + Sync + Send) -> Vec<Option<String>> {
        let mut config = Config::load().unwrap();
        for (key, value) in [("pes", "2"), ("device", "native"), ("heap_bytes", "16MiB"), ("timeout", "60s")]
        {
            config.set(key, value).unwrap();
        }
        let error = |pe: &Pe| -> Result<Option<String>, AnyError> {
            let bed = TestBed::new(pe, 4096)?;
            Ok(f(&bed).err().map(|error| error.to_string()))
        };
        Job::with_config(config).run(error).unwrap()
    }

    #[test]
    fn missing_data_is_an_error() {
        let errors = errors_of(|bed| {
            bed.fill(bed.dst, 1)?;
            bed.check(bed.dst, 1)
        });
        assert_eq!(errors, [None, None]);
        let errors = errors_of(|bed| {
            bed.fill(bed.dst, 1)?;
            bed.zero(bed.dst.slice(3..5), 2)?;
            bed.check(bed.dst, 1)
        });
        assert!(
            errors.iter().all(|error| error.as_deref() == Some("2 of 512 words are wrong")),
            "{errors:?}"
        );
        let errors = errors_of(|bed| {
            bed.fill(bed.dst, 1)?;
            bed.check(bed.dst, 2)
        });
        assert!(
            errors.iter().all(|error| error.as_deref() == Some("512 of 512 words are wrong")),
            "{errors:?}"
        );
    }

    #[test]
    fn wrong_word_is_reported_with_its_index() {
        let errors = errors_of(|bed| {
            bed.pe.write(bed.words.slice(0..2), &[5, 6])?;
            bed.expect(bed.words, 2, |_| 5)
        });
        assert!(errors.iter().all(|error| error.as_deref() == Some("word 1 is 0x6, not 0x5")), "{errors:?}");
    }
}
