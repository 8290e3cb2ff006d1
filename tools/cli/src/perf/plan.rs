//! Selects the benchmark cases to measure: operation, message size, grid and number of rounds.

use std::fmt::Write;

use super::bench::{Bench, JobKind};

/// A benchmark run that produces one row of results. Other programs can read it from `--list` to do the same work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) bench: Bench,
    /// Message size in bytes, at least 8.
    pub(super) bytes: u64,
    pub(super) blocks: u32,
    pub(super) threads: u32,
    /// Number of repetitions in one run.
    pub(super) rounds: u32,
    pub(super) pes: u32,
}

/// Selects cases, according to the command line and the machine.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    pub(super) gpu: bool,
    /// Prefixes of benchmark names. Empty selects all.
    pub(super) names: Vec<String>,
    pub(super) sizes: Option<Vec<u64>>,
    pub(super) max_bytes: u64,
    pub(super) blocks: Vec<u32>,
    pub(super) threads: Vec<u32>,
    pub(super) max_rounds: u32,
    pub(super) pes: u32,
    /// Whether a launcher fixes the number of PEs.
    pub(super) launched: bool,
}

/// Maximum number of threads in a grid. Each thread has a word in the benchmarks' symmetric objects.
pub(super) const MAX_THREADS: u32 = 1 << 18;

impl Selection {
    /// Returns the selected cases, in the order of the benchmarks.
    pub(super) fn cases(&self) -> Result<Vec<Case>, String> {
        if let Some(name) =
            self.names.iter().find(|name| !Bench::ALL.iter().any(|b| b.name().starts_with(*name)))
        {
            let all: Vec<_> = Bench::ALL.iter().map(|bench| bench.name()).collect();
            return Err(format!("no benchmark name starts with `{name}`; the names are {}", all.join(", ")));
        }
        let mut cases = Vec::new();
        for bench in Bench::ALL.into_iter().filter(|bench| self.takes(bench.name())) {
            self.rows(bench, &mut cases);
        }
        for case in &mut cases {
            case.rounds = case.rounds.min(self.max_rounds);
            if u64::from(case.blocks) * u64::from(case.threads) > u64::from(MAX_THREADS) {
                let Case { blocks, threads, .. } = case;
                return Err(format!(
                    "{blocks} x {threads} threads exceed {MAX_THREADS}; lower --blocks or --threads"
                ));
            }
        }
        match cases.is_empty() {
            true => Err("no row is left to measure; raise --max-bytes, or select other benchmarks".into()),
            false => Ok(cases),
        }
    }

    fn takes(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|prefix| name.starts_with(prefix))
    }

    fn rows(&self, bench: Bench, to: &mut Vec<Case>) {
        let mut row =
            |bytes, blocks, threads, rounds| to.push(self.case(bench, bytes, blocks, threads, rounds));
        let pick = |gpu: u32, native: u32| if self.gpu { gpu } else { native };
        let threads = self.threads.first().copied().unwrap_or(1);
        let most = self.blocks.iter().copied().max().unwrap_or(1);
        match bench {
            Bench::PutBandwidth | Bench::GetBandwidth => self.bandwidth_rows(bench, to),
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
            Bench::Barrier | Bench::Sync | Bench::NodeBarrier | Bench::NodeSync => {
                row(8, 1, threads, pick(500, 30))
            }
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
            Bench::StreamBroadcast
            | Bench::StreamFcollect
            | Bench::StreamAlltoall
            | Bench::StreamReduce
            | Bench::StreamReduceScatter => self.stream_rows(bench, to),
            Bench::PostExclusive
            | Bench::PostShared
            | Bench::PostWarp
            | Bench::PostPerBlock
            | Bench::PostWarpPerBlock => self.post_rows(bench, to),
            Bench::Init | Bench::InitMemory => {
                let numbers: &[u32] = match (self.launched, self.gpu) {
                    (true, _) => &[self.pes],
                    (false, true) => &[1, 2, 4, 8],
                    (false, false) => &[1, 2, 4],
                };
                to.extend(numbers.iter().map(|&pes| Case { pes, ..self.case(bench, 0, 0, 0, 1) }));
            }
        }
    }

    fn case(&self, bench: Bench, bytes: u64, blocks: u32, threads: u32, rounds: u32) -> Case {
        Case { bench, bytes, blocks, threads, rounds, pes: self.pes }
    }

    fn bandwidth_rows(&self, bench: Bench, to: &mut Vec<Case>) {
        for bytes in self.sizes() {
            // Several blocks are measured only if each moves at least 128 bytes.
            let suits = |blocks: u32| blocks == 1 || bytes >= 128 * u64::from(blocks);
            for &blocks in self.blocks.iter().filter(|&&blocks| suits(blocks)) {
                let rounds = self.rounds_of(bytes);
                to.extend(
                    self.threads.iter().map(|&threads| self.case(bench, bytes, blocks, threads, rounds)),
                );
            }
        }
    }

    /// Adds the cases of a collective call on a stream, for which the runtime chooses the grid.
    fn stream_rows(&self, bench: Bench, to: &mut Vec<Case>) {
        let parts = match bench {
            Bench::StreamBroadcast | Bench::StreamReduce => 1,
            _ => u64::from(self.pes).next_power_of_two(),
        };
        let largest = if self.gpu { 256 << 20 } else { 64 << 10 };
        let (all, least, most) = if self.gpu { (1 << 30, 8, 100) } else { (1 << 20, 2, 10) };
        for bytes in self.among((0..10).map(|i| 1024 << (2 * i)).filter(|&bytes| bytes <= largest)) {
            let rounds = (all / bytes).clamp(least, most) as u32;
            to.push(self.case(bench, bytes / parts, 0, 0, rounds));
        }
    }

    /// Adds the cases that measure posting. All WQEs of a run fit into the send queue.
    fn post_rows(&self, bench: Bench, to: &mut Vec<Case>) {
        let (shared, per_block) = (self.depth(JobKind::Shared), self.depth(JobKind::PerBlock));
        let mut row = |blocks, threads, rounds| to.push(self.case(bench, 8, blocks, threads, rounds));
        match bench {
            Bench::PostShared => {
                for threads in [1, 32, 256] {
                    row(1, threads, (shared / threads).min(8192));
                }
            }
            Bench::PostWarp => {
                for (blocks, threads) in [(1, 32), (1, 256), (self.many(), 32)] {
                    row(blocks, threads, shared / (blocks * threads));
                }
            }
            Bench::PostPerBlock => {
                for threads in [1, 256] {
                    row(1, threads, per_block / threads);
                }
            }
            // Few rounds, because executing the posted WQEs takes far longer than posting them.
            Bench::PostWarpPerBlock => row(self.many(), 256, (per_block / 256).min(4)),
            _ => row(1, 1, shared.min(8192)),
        }
    }

    /// Returns the depth of send queues that has room for all WQEs of a run.
    pub(super) fn depth(&self, kind: JobKind) -> u32 {
        match (self.gpu, kind) {
            (true, JobKind::Shared) => 16384,
            (true, _) => 4096,
            (false, _) => 1024,
        }
    }

    /// Returns a number of blocks that fills the GPU.
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

    /// Returns how many messages a bandwidth case sends: enough to hide the resolution of the clock.
    fn rounds_of(&self, bytes: u64) -> u32 {
        let (all, least, most) = if self.gpu { (4 << 30, 8, 2000) } else { (8 << 20, 4, 64) };
        (all / bytes).clamp(least, most) as u32
    }
}

/// Formats the cases for other programs: one line per case, fields separated by tabs.
pub(super) fn list(cases: &[Case], runs: usize) -> String {
    let mut text = String::from("#bench\tbytes\tblocks\tthreads\trounds\tpes\truns\n");
    for Case { bench, bytes, blocks, threads, rounds, pes } in cases {
        let _ = writeln!(text, "{}\t{bytes}\t{blocks}\t{threads}\t{rounds}\t{pes}\t{runs}", bench.name());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(gpu: bool) -> Selection {
        Selection {
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
    fn postings_fit_into_the_queue() {
        for selection in [selection(true), selection(false)] {
            for case in selection.cases().unwrap() {
                let kind = case.bench.job_kind();
                let posters = match kind {
                    JobKind::Shared => case.blocks * case.threads,
                    JobKind::PerBlock => case.threads,
                    _ => continue,
                };
                let posted = posters * case.rounds;
                assert!(posted > 0 && posted <= selection.depth(kind), "{case:?}");
            }
        }
    }

    #[test]
    fn sizes_range_from_8_bytes_to_the_maximum() {
        let sizes = selection(true).sizes();
        assert_eq!(sizes.first(), Some(&8));
        assert_eq!(sizes.last(), Some(&(256 << 20)));
        assert!(sizes.contains(&(64 << 10)) && sizes.contains(&(1 << 20)), "{sizes:?}");
        assert!(sizes.is_sorted());
    }

    #[test]
    fn launched_pes_are_kept() {
        let selection = Selection { launched: true, pes: 3, ..selection(false) };
        assert!(selection.cases().unwrap().iter().all(|case| case.pes == 3));
    }

    #[test]
    fn names_are_prefixes() {
        let named = |name: &str| Selection { names: vec![name.into()], ..selection(false) }.cases();
        assert!(named("post_").unwrap().iter().all(|case| case.bench.name().starts_with("post_")));
        assert!(named("pots").unwrap_err().contains("put_bw"));
    }
}
