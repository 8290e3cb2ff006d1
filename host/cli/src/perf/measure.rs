//! Runs the rows on the PEs of a job, and verifies what each run did.

use rushmem::{Grid, Job, Pe};
use rushmem_bench_kernels::{self as kernels, Exchange};
use rushmem_device::kernel::Call;
use rushmem_device::{Signal, Sym, SymSlice};

use super::bench::Bench;
use super::plan::{MOST_THREADS, Shape};
use super::results::Row;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// What PE 0 has measured, and on what.
pub(super) struct Measured {
    pub(super) machine: String,
    pub(super) rows: Vec<Row>,
}

/// Bytes of the heap beside the two windows.
pub(super) const OTHER_BYTES: u64 = 8 << 20;
/// Blocks whose time is taken.
const MOST_BLOCKS: usize = 1 << 12;
/// Numbers that are summed, at most.
const MOST_FLOATS: usize = 1 << 18;
/// Rounds in which a barrier is verified.
const CHECKED: u32 = 10;

/// Runs a job with the rows in it. `window` is what data of a row is spread over, on each PE. None if PE 0 lives in
/// another process.
pub(super) fn measure(
    job: Job,
    shapes: &[Shape],
    runs: usize,
    window: u64,
) -> Result<Option<Measured>, rushmem::Error> {
    let measured = job.run(|pe| {
        agree(pe, shapes)?;
        let bed = Bed::new(pe, window)?;
        let mut rows = Vec::new();
        for shape in shapes {
            let values = bed.row(shape, runs)?;
            rows.push(Row::new(shape, values));
            tracing::info!("{} {} B, {} x {}", shape.bench.name(), shape.bytes, shape.blocks, shape.threads);
        }
        let path = pe.paths().into_iter().find(|path| path.pe == 1).map(|path| path.via);
        let machine = format!("{}, peers by {}", pe.machine(), path.as_deref().unwrap_or("nothing"));
        Ok::<_, AnyError>((pe.my_pe() == 0).then_some(Measured { machine, rows }))
    })?;
    Ok(measured.into_iter().flatten().next())
}

/// The rows are for as many PEs as there are.
fn agree(pe: &Pe, shapes: &[Shape]) -> Result<(), AnyError> {
    match shapes.iter().find(|shape| shape.pes != pe.n_pes()) {
        None => Ok(()),
        Some(shape) => {
            Err(format!("there are {} PEs, not {}: say so by --pes", pe.n_pes(), shape.pes).into())
        }
    }
}

/// The memory of a PE that benchmarks use.
struct Bed<'a> {
    pe: &'a Pe,
    /// What is sent.
    src: SymSlice<u64>,
    /// Where it arrives.
    dst: SymSlice<u64>,
    /// A word for each thread, of a peer, in [`LINES`] places.
    words: SymSlice<u64>,
    /// A word for each thread: what it has got.
    sums: SymSlice<u64>,
    spans: SymSlice<u64>,
    /// One in each of [`LINES`] places.
    signals: SymSlice<Signal>,
    /// Sums, and what is summed.
    floats: [SymSlice<f32>; 2],
    wrong: Sym<u64>,
}

/// How far it is to a word depends on its line of the GPU's memory: words of each run lie in other ones, so many in turn, and
/// the median is of all.
const LINES: usize = 16;
/// Words from one place to the next: lines of 128 bytes.
const PLACE: usize = 37 * 16;

/// Where the words of a run begin.
fn place(run: u64) -> usize {
    run as usize % LINES * PLACE
}

impl<'a> Bed<'a> {
    fn new(pe: &'a Pe, window: u64) -> Result<Self, rushmem::Error> {
        let len = (window / 8) as usize;
        Ok(Self {
            pe,
            src: pe.alloc(len)?,
            dst: pe.alloc(len)?,
            words: pe.alloc(MOST_THREADS as usize + LINES * PLACE)?,
            sums: pe.alloc(MOST_THREADS as usize)?,
            spans: pe.alloc(2 * MOST_BLOCKS)?,
            signals: pe.alloc(LINES * PLACE)?,
            floats: [pe.alloc(MOST_FLOATS)?, pe.alloc(MOST_FLOATS)?],
            wrong: pe.alloc_one()?,
        })
    }

    /// The results of `runs` runs, after one that does not count.
    fn row(&self, shape: &Shape, runs: usize) -> Result<Vec<f64>, AnyError> {
        let mut values = Vec::new();
        for run in 0..=runs {
            let ns = self.once(shape, run as u64).map_err(|error| -> AnyError {
                let Shape { bytes, blocks, threads, .. } = shape;
                match error.downcast::<Wrong>() {
                    Ok(wrong) => {
                        format!("{} of {bytes} B by {blocks} x {threads}: {wrong}", shape.bench.name()).into()
                    }
                    Err(other) => other,
                }
            })?;
            if run > 0 {
                values.push(value(shape, ns));
            }
        }
        Ok(values)
    }

    /// One run: prepares, runs, verifies; gives the nanoseconds on this PE.
    fn once(&self, shape: &Shape, run: u64) -> Result<f64, AnyError> {
        let rounds = shape.rounds;
        let n = (shape.blocks * shape.threads) as usize;
        let all = u64::from(rounds);
        let (spans, sums) = (self.spans, self.sums);
        let words = self.words.slice(place(run)..place(run) + n);
        match shape.bench {
            Bench::PutBandwidth | Bench::GetBandwidth | Bench::PutQuiet => self.transfer(shape, run),
            Bench::PQuiet | Bench::PRate => {
                let each = u32::from(shape.bench == Bench::PQuiet);
                let value = (run + 1) << 32;
                let ns = self.timed(shape, kernels::p(spans, words, value, rounds, each))?;
                self.on(1, || self.expect(words, n, |_| value + all - 1))?;
                Ok(ns)
            }
            Bench::G | Bench::GRate => {
                self.fill(words, run)?;
                let ns = self.timed(shape, kernels::g(spans, words, sums, rounds))?;
                self.on(0, || self.expect(sums, n, |i| kernels::pattern(run, i).wrapping_mul(all)))?;
                Ok(ns)
            }
            Bench::AddRate => {
                self.zero(words, n)?;
                let ns = self.timed(shape, kernels::add(spans, words, rounds))?;
                self.on(1, || self.expect(words, n, |_| all))?;
                Ok(ns)
            }
            Bench::FetchAdd | Bench::FetchAddRate | Bench::CompareSwap => {
                self.zero(words, n)?;
                let call = match shape.bench {
                    Bench::CompareSwap => kernels::compare_swap(spans, words, sums, rounds),
                    _ => kernels::fetch_add(spans, words, sums, rounds),
                };
                let ns = self.timed(shape, call)?;
                self.on(1, || self.expect(words, n, |_| all))?;
                self.on(0, || self.expect(sums, n, |_| all * (all - 1) / 2))?;
                Ok(ns)
            }
            Bench::Signal => {
                let signal = self.signal(run)?;
                let ns = self.timed(shape, kernels::ping_pong(spans, signal.at(0), rounds))?;
                self.below(2, || self.expect(signal, 1, |_| all))?;
                Ok(ns)
            }
            Bench::PutSignal => self.put_signal(shape, run),
            Bench::Barrier | Bench::Sync => self.meet(shape),
            Bench::Broadcast => self.exchange(shape, run, Exchange::Broadcast),
            Bench::Fcollect => self.exchange(shape, run, Exchange::Fcollect),
            Bench::Alltoall => self.exchange(shape, run, Exchange::Alltoall),
            Bench::Reduce => self.reduce(shape, run),
            Bench::PostExclusive => self.post(shape, run, kernels::post_exclusive),
            Bench::PostPerBlock | Bench::PostWarpPerBlock => self.post(shape, run, kernels::post_per_block),
            Bench::PostShared | Bench::PostWarp => self.post(shape, run, kernels::post_shared),
            Bench::Init | Bench::InitMemory => unreachable!("no kernel runs in these: see init.rs"),
        }
    }

    fn transfer(&self, shape: &Shape, run: u64) -> Result<f64, AnyError> {
        let len = shape.bytes / 8;
        let places = (self.src.len() as u64 / len).clamp(1, shape.rounds.into());
        let touched = (places * len) as usize;
        // PEs send different things.
        let seed = |pe: u32| 2 * run + 1 + u64::from(pe);
        self.fill(self.src.slice(0..touched), seed(self.pe.my_pe()))?;
        let each = u32::from(shape.bench == Bench::PutQuiet);
        let (dst, src) = (self.dst.slice(0..touched), self.src.slice(0..touched));
        let (spans, rounds) = (self.spans, shape.rounds);
        let (call, from, to) = match shape.bench {
            Bench::GetBandwidth => (kernels::get(spans, dst, src, len, rounds, each), 1, 0),
            _ => (kernels::put(spans, dst, src, len, rounds, each), 0, 1),
        };
        let ns = self.timed(shape, call)?;
        self.on(to, || self.check(dst, seed(from)))?;
        Ok(ns)
    }

    fn put_signal(&self, shape: &Shape, run: u64) -> Result<f64, AnyError> {
        let len = (shape.bytes / 8) as usize;
        let (dst, src) = (self.dst.slice(0..len), self.src.slice(0..len));
        let seed = |pe: u32| 2 * run + 1 + u64::from(pe);
        self.fill(src, seed(self.pe.my_pe()))?;
        let signal = self.signal(run)?;
        let call = kernels::put_signal_ping_pong(self.spans, dst, src, signal.at(0), shape.rounds);
        let ns = self.timed(shape, call)?;
        self.below(2, || {
            self.expect(signal, 1, |_| u64::from(shape.rounds))?;
            self.check(dst, seed(1 - self.pe.my_pe()))
        })?;
        Ok(ns)
    }

    /// The signal of a run, which has counted nothing.
    fn signal(&self, run: u64) -> Result<SymSlice<Signal>, AnyError> {
        let signal = self.signals.slice(place(run)..place(run) + 1);
        self.zero(signal, 1)?;
        Ok(signal)
    }

    fn meet(&self, shape: &Shape) -> Result<f64, AnyError> {
        let complete = u32::from(shape.bench == Bench::Barrier);
        let (spans, word, wrong) = (self.spans, self.words.at(0), self.wrong);
        self.zero(self.words, 1)?;
        self.together(shape, kernels::meet_checked(word, wrong, complete, CHECKED))?;
        if self.pe.read_one(wrong)? != 0 {
            return Err(Wrong("a PE left before all had come".into()).into());
        }
        self.timed(shape, kernels::meet(spans, complete, shape.rounds))
    }

    fn exchange(&self, shape: &Shape, run: u64, kind: Exchange) -> Result<f64, AnyError> {
        let (me, n, len) = (self.pe.my_pe() as usize, self.pe.n_pes() as usize, shape.bytes as usize / 8);
        let block = |of: SymSlice<u64>, i: usize| of.slice(i * len..(i + 1) * len);
        // Of what `from` sends to `to`.
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
        let ns = self.timed(shape, kernels::exchange(self.spans, dst, src, kind as u32, shape.rounds))?;
        for (part, seed) in receives {
            self.check(part, seed)?;
        }
        Ok(ns)
    }

    fn reduce(&self, shape: &Shape, run: u64) -> Result<f64, AnyError> {
        let len = shape.bytes as usize / 4;
        let (dst, src) = (self.floats[0].slice(0..len), self.floats[1].slice(0..len));
        // Small whole numbers, whose sums are exact.
        let value = |pe: u32, i: usize| (i % 97) as f32 + pe as f32 * (run + 1) as f32;
        let mine: Vec<f32> = (0..len).map(|i| value(self.pe.my_pe(), i)).collect();
        self.pe.write(src, &mine)?;
        let ns = self.timed(shape, kernels::sum(self.spans, dst, src, shape.rounds))?;
        let wanted = |i: usize| (0..self.pe.n_pes()).map(|pe| value(pe, i)).sum::<f32>();
        match self.pe.read(dst)?.iter().enumerate().find(|&(i, &found)| found != wanted(i)) {
            None => Ok(ns),
            Some((i, found)) => Err(Wrong(format!("sum {i} is {found}, not {}", wanted(i))).into()),
        }
    }

    fn post(
        &self,
        shape: &Shape,
        run: u64,
        kernel: impl Fn(SymSlice<u64>, SymSlice<u64>, SymSlice<u64>, u32, u32) -> Call,
    ) -> Result<f64, AnyError> {
        let n = (shape.blocks * shape.threads) as usize;
        self.fill(self.sums.slice(0..n), run + 1)?;
        let ns = self.timed(shape, kernel(self.spans, self.words, self.sums, shape.rounds, 1))?;
        self.on(1, || self.check(self.words.slice(0..n), run + 1))?;
        Ok(ns)
    }

    /// Runs a kernel on all PEs. Nanoseconds from the first block's begin to the last one's end, on this PE.
    fn timed(&self, shape: &Shape, call: Call) -> Result<f64, AnyError> {
        self.together(shape, call)?;
        self.pe.host_sync()?;
        let spans = self.pe.read(self.spans.slice(0..2 * shape.blocks as usize))?;
        let (begin, end) = (spans.iter().step_by(2).min(), spans.iter().skip(1).step_by(2).max());
        let ns = end.zip(begin).map_or(0, |(end, begin)| end.saturating_sub(*begin));
        // The clock of a GPU may stand still for a while; nothing here is that fast.
        Ok(ns.max(1) as f64)
    }

    /// Runs a kernel once all PEs are here.
    fn together(&self, shape: &Shape, call: Call) -> Result<(), AnyError> {
        self.pe.host_sync()?;
        Ok(self.pe.run(Grid { blocks: shape.blocks, threads: shape.threads, shared_bytes: 0 }, call)?)
    }

    fn fill(&self, data: SymSlice<u64>, seed: u64) -> Result<(), AnyError> {
        Ok(self.pe.run(self.pe.grid(), kernels::fill(data, seed))?)
    }

    fn zero(&self, words: SymSlice<u64>, n: usize) -> Result<(), AnyError> {
        Ok(self.pe.write(words.slice(0..n), &vec![0; n])?)
    }

    /// Verifies what `fill` has written on another PE.
    fn check(&self, data: SymSlice<u64>, seed: u64) -> Result<(), AnyError> {
        let grid = self.pe.grid();
        let threads = (grid.blocks * grid.threads) as usize;
        // Counts of a run that may have gone wrong are no counts.
        let counts = self.sums.slice(0..threads);
        self.pe.run(grid, kernels::check(data, seed, counts))?;
        match self.pe.read(counts)?.iter().sum::<u64>() {
            0 => Ok(()),
            wrong => Err(Wrong(format!("{wrong} of {} words are wrong", data.len())).into()),
        }
    }

    /// Verifies the first `n` words of this PE's own.
    fn expect(&self, words: SymSlice<u64>, n: usize, wanted: impl Fn(u64) -> u64) -> Result<(), AnyError> {
        let found = self.pe.read(words.slice(0..n))?;
        match (0..).zip(&found).find(|&(i, &word)| word != wanted(i)) {
            None => Ok(()),
            Some((i, word)) => Err(Wrong(format!("word {i} is {word:#x}, not {:#x}", wanted(i))).into()),
        }
    }

    /// What only PE `pe` does; what it finds others may change only after the next barrier.
    fn on(&self, pe: u32, f: impl FnOnce() -> Result<(), AnyError>) -> Result<(), AnyError> {
        if self.pe.my_pe() == pe { f() } else { Ok(()) }
    }

    fn below(&self, pes: u32, f: impl FnOnce() -> Result<(), AnyError>) -> Result<(), AnyError> {
        if self.pe.my_pe() < pes { f() } else { Ok(()) }
    }
}

/// Data that is not what it should be.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Wrong(String);

/// The result of a run that took so long.
fn value(shape: &Shape, ns: f64) -> f64 {
    use super::bench::Unit;
    let rounds = f64::from(shape.rounds);
    match shape.bench.unit() {
        Unit::Bandwidth => shape.bytes as f64 * rounds / ns,
        Unit::Rate => f64::from(shape.blocks) * f64::from(shape.threads) * rounds / ns * 1e3,
        Unit::Microseconds => ns / rounds / 1e3,
        Unit::Milliseconds => ns / 1e6,
        Unit::Memory => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushmem::config::Config;

    /// What `f` says on each of two PEs.
    fn says(f: impl Fn(&Bed<'_>) -> Result<(), AnyError> + Sync + Send) -> Vec<Option<String>> {
        let mut config = Config::load().unwrap();
        for (key, value) in [("pes", "2"), ("device", "native"), ("heap_bytes", "16MiB"), ("timeout", "60s")]
        {
            config.set(key, value).unwrap();
        }
        let said = |pe: &Pe| -> Result<Option<String>, AnyError> {
            let bed = Bed::new(pe, 4096)?;
            Ok(f(&bed).err().map(|error| error.to_string()))
        };
        Job::with_config(config).run(said).unwrap()
    }

    #[test]
    fn data_that_did_not_arrive_is_an_error() {
        let said = says(|bed| {
            bed.fill(bed.dst, 1)?;
            bed.check(bed.dst, 1)
        });
        assert_eq!(said, [None, None]);
        let said = says(|bed| {
            bed.fill(bed.dst, 1)?;
            bed.zero(bed.dst.slice(3..5), 2)?;
            bed.check(bed.dst, 1)
        });
        assert!(said.iter().all(|said| said.as_deref() == Some("2 of 512 words are wrong")), "{said:?}");
        let said = says(|bed| {
            bed.fill(bed.dst, 1)?;
            bed.check(bed.dst, 2)
        });
        assert!(said.iter().all(|said| said.as_deref() == Some("512 of 512 words are wrong")), "{said:?}");
    }

    #[test]
    fn a_word_that_is_not_as_it_should_be_is_named() {
        let said = says(|bed| {
            bed.pe.write(bed.words.slice(0..2), &[5, 6])?;
            bed.expect(bed.words, 2, |_| 5)
        });
        assert!(said.iter().all(|said| said.as_deref() == Some("word 1 is 0x6, not 0x5")), "{said:?}");
    }
}
