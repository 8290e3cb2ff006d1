//! Which rows are measured: operation, bytes, grid, rounds.

use std::fmt::Write;

use super::bench::{Bench, Stage};

/// What is done in one row, apart from the number of PEs. Another program that does the same work gets it from `--list`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) bench: Bench,
    /// Bytes of each message, at least 8.
    pub(super) bytes: u64,
    pub(super) blocks: u32,
    pub(super) threads: u32,
    /// How often it is done in one run.
    pub(super) rounds: u32,
    /// PEs of the job.
    pub(super) pes: u32,
}

/// What the command line and the machine say of the rows.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) gpu: bool,
    /// Beginnings of names; none for all.
    pub(super) names: Vec<String>,
    pub(super) sizes: Option<Vec<u64>>,
    pub(super) max_bytes: u64,
    pub(super) blocks: Vec<u32>,
    pub(super) threads: Vec<u32>,
    pub(super) max_rounds: u32,
    pub(super) pes: u32,
    /// True where a launcher has decided how many PEs there are.
    pub(super) launched: bool,
}

/// Words that one thread each has: no grid is larger.
pub(super) const MOST_THREADS: u32 = 1 << 18;

impl Choice {
    /// The rows, in the order of the benchmarks.
    pub(super) fn shapes(&self) -> Result<Vec<Shape>, String> {
        if let Some(name) =
            self.names.iter().find(|name| !Bench::ALL.iter().any(|b| b.name().starts_with(*name)))
        {
            let all: Vec<_> = Bench::ALL.iter().map(|bench| bench.name()).collect();
            return Err(format!("no benchmark begins with `{name}`; there are {}", all.join(", ")));
        }
        let mut shapes = Vec::new();
        for bench in Bench::ALL.into_iter().filter(|bench| self.takes(bench.name())) {
            self.rows(bench, &mut shapes);
        }
        for shape in &mut shapes {
            shape.rounds = shape.rounds.min(self.max_rounds);
            if u64::from(shape.blocks) * u64::from(shape.threads) > u64::from(MOST_THREADS) {
                let Shape { blocks, threads, .. } = shape;
                return Err(format!("{blocks} x {threads} threads are more than {MOST_THREADS}"));
            }
        }
        match shapes.is_empty() {
            true => Err("nothing is left to measure: raise --max-bytes, or choose other rows".into()),
            false => Ok(shapes),
        }
    }

    fn takes(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|prefix| name.starts_with(prefix))
    }

    fn rows(&self, bench: Bench, to: &mut Vec<Shape>) {
        let mut row = |bytes: u64, blocks: u32, threads: u32, rounds: u32| {
            to.push(Shape { bench, bytes, blocks, threads, rounds, pes: self.pes });
        };
        let pick = |gpu: u32, native: u32| if self.gpu { gpu } else { native };
        let threads = self.threads.first().copied().unwrap_or(1);
        let most = self.blocks.iter().copied().max().unwrap_or(1);
        match bench {
            Bench::PutBandwidth | Bench::GetBandwidth => {
                for bytes in self.sizes() {
                    for &blocks in &self.blocks {
                        // Less for a block than its smallest useful part is no question that anybody has.
                        for &threads in
                            self.threads.iter().filter(|_| blocks == 1 || bytes >= 128 * u64::from(blocks))
                        {
                            row(bytes, blocks, threads, self.rounds_of(bytes));
                        }
                    }
                }
            }
            Bench::PutQuiet => {
                for bytes in self.among([8, 1 << 10, 32 << 10]) {
                    row(bytes, 1, threads, pick(1000, 50));
                }
            }
            Bench::PQuiet | Bench::G | Bench::FetchAdd | Bench::CompareSwap => row(8, 1, 1, pick(1000, 100)),
            Bench::PRate | Bench::GRate | Bench::AddRate | Bench::FetchAddRate => {
                row(8, 1, threads, pick(500, 20));
                if most > 1 {
                    row(8, most, threads, pick(200, 10));
                }
            }
            Bench::Signal => row(8, 1, 32, pick(1000, 50)),
            Bench::PutSignal => {
                for bytes in self.among([8, 1 << 10, 64 << 10]) {
                    row(bytes, 1, threads, pick(500, 30));
                }
            }
            Bench::Barrier | Bench::Sync => row(8, 1, threads, pick(500, 30)),
            Bench::Broadcast | Bench::Fcollect | Bench::Alltoall => {
                for bytes in self.among([1 << 10, 64 << 10].map(|bytes| bytes * u64::from(self.pes))) {
                    row(bytes / u64::from(self.pes), 1, threads, pick(200, 20));
                }
            }
            Bench::Reduce => {
                for bytes in self.among([4 << 10, pick(1 << 20, 64 << 10).into()]) {
                    row(bytes, 1, threads, pick(100, 10));
                }
            }
            Bench::PostExclusive => row(8, 1, 1, self.depth(Stage::Shared).min(8192)),
            Bench::PostShared => {
                for threads in [1, 32, 256] {
                    row(8, 1, threads, (self.depth(Stage::Shared) / threads).min(8192));
                }
            }
            Bench::PostWarp => {
                for (blocks, threads) in [(1, 32), (1, 256), (self.many(), 32)] {
                    row(8, blocks, threads, self.depth(Stage::Shared) / (blocks * threads));
                }
            }
            Bench::PostPerBlock => {
                for threads in [1, 256] {
                    row(8, 1, threads, self.depth(Stage::PerBlock) / threads);
                }
            }
            // Few rounds: what is posted is executed afterwards, which takes far longer.
            Bench::PostWarpPerBlock => row(8, self.many(), 256, (self.depth(Stage::PerBlock) / 256).min(4)),
            Bench::Init | Bench::InitMemory => {
                let numbers: &[u32] = match (self.launched, self.gpu) {
                    (true, _) => &[self.pes],
                    (false, true) => &[1, 2, 4, 8],
                    (false, false) => &[1, 2, 4],
                };
                to.extend(numbers.iter().map(|&pes| Shape {
                    bench,
                    bytes: 0,
                    blocks: 0,
                    threads: 0,
                    rounds: 1,
                    pes,
                }));
            }
        }
    }

    /// Entries of the queues that postings go to. All that a row posts has room.
    pub(super) fn depth(&self, stage: Stage) -> u32 {
        match (self.gpu, stage) {
            (true, Stage::Shared) => 16384,
            (true, _) => 4096,
            (false, _) => 1024,
        }
    }

    /// Blocks that fill the machine.
    pub(super) fn many(&self) -> u32 {
        if self.gpu { 132 } else { 4 }
    }

    fn sizes(&self) -> Vec<u64> {
        match &self.sizes {
            Some(sizes) => sizes.clone(),
            None => self.among((0..14).map(|i| if i == 0 { 8 } else { 1 << (4 + 2 * i) })),
        }
    }

    fn among(&self, sizes: impl IntoIterator<Item = u64>) -> Vec<u64> {
        sizes.into_iter().filter(|&bytes| bytes <= self.max_bytes).collect()
    }

    /// Messages of a bandwidth row: enough bytes that the clock does not matter.
    fn rounds_of(&self, bytes: u64) -> u32 {
        let (all, least, most) = if self.gpu { (4 << 30, 8, 2000) } else { (8 << 20, 4, 64) };
        (all / bytes).clamp(least, most) as u32
    }
}

/// What other programs read: a row a line, fields separated by tabs.
pub(super) fn list(shapes: &[Shape], runs: usize) -> String {
    let mut text = String::from("#bench\tbytes\tblocks\tthreads\trounds\tpes\truns\n");
    for Shape { bench, bytes, blocks, threads, rounds, pes } in shapes {
        let _ = writeln!(text, "{}\t{bytes}\t{blocks}\t{threads}\t{rounds}\t{pes}\t{runs}", bench.name());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(gpu: bool) -> Choice {
        Choice {
            gpu,
            names: Vec::new(),
            sizes: None,
            max_bytes: 256 << 20,
            blocks: vec![1, 64],
            threads: vec![256],
            max_rounds: u32::MAX,
            pes: 2,
            launched: false,
        }
    }

    #[test]
    fn what_is_posted_has_room_in_the_queue() {
        for choice in [choice(true), choice(false)] {
            for shape in choice.shapes().unwrap() {
                let stage = shape.bench.stage();
                let posters = match stage {
                    Stage::Shared => shape.blocks * shape.threads,
                    Stage::PerBlock => shape.threads,
                    _ => continue,
                };
                let posted = posters * shape.rounds;
                assert!(posted > 0 && posted <= choice.depth(stage), "{shape:?}");
            }
        }
    }

    #[test]
    fn sizes_go_from_eight_bytes_to_the_bound() {
        let sizes = choice(true).sizes();
        assert_eq!(sizes.first(), Some(&8));
        assert_eq!(sizes.last(), Some(&(256 << 20)));
        assert!(sizes.contains(&(64 << 10)) && sizes.contains(&(1 << 20)), "{sizes:?}");
        assert!(sizes.is_sorted());
    }

    #[test]
    fn the_number_of_launched_pes_is_what_it_is() {
        let choice = Choice { launched: true, pes: 3, ..choice(false) };
        assert!(choice.shapes().unwrap().iter().all(|shape| shape.pes == 3));
    }

    #[test]
    fn names_are_beginnings() {
        let named = |name: &str| Choice { names: vec![name.into()], ..choice(false) }.shapes();
        assert!(named("post_").unwrap().iter().all(|shape| shape.bench.name().starts_with("post_")));
        assert!(named("pots").unwrap_err().contains("put_bw"));
    }
}
