//! Tests with random programs of collective calls, puts with signals, and puts with fences.
//!
//! Teams have arbitrary members in arbitrary order, and the calls use arbitrary parts of one memory. All calls are
//! complete when they return, so a sequential model yields the result.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rushmem_test_kernels::{GroupKind, Step};
use rushmem_tests::Setup;

use super::super::setups;
use super::model::{Plan, TeamStep};

/// Size of the memory that a program uses on each PE, in bytes.
const BYTES: u64 = 1024;
/// Maximum number of steps per program. Each may use a signal.
const STEPS: usize = 14;

/// A random step, before it is fitted to the size of its team.
#[derive(Clone, Copy, Debug)]
struct Raw {
    code: Step,
    team: usize,
    places: (u64, u64),
    n: u64,
    a: u64,
    b: u64,
    kind: u64,
}

fn raw() -> impl Strategy<Value = Raw> {
    use Step::*;
    let moves = prop::sample::select(vec![Broadcast, Fcollect, Collect, Alltoall]);
    let reductions = prop::sample::select(vec![Reduce, ReduceScatter, Scan]);
    let between = prop::sample::select(vec![PutSignal, PutFence]);
    let others = prop::sample::select(vec![Sync, Barrier, Delay]);
    let code = prop_oneof![4 => moves, 4 => reductions, 3 => between, 2 => others];
    let places = (0..BYTES, 0..BYTES);
    // Mostly small lengths, sometimes more than a piece of the scratch.
    let n = prop_oneof![4 => 0u64..50, 1 => 0..BYTES];
    // Integers only: random bytes include NaNs, and the bits of their sums are unspecified.
    (code, 0usize..4, places, n, 0u64..56, any::<u64>(), 0u64..8)
        .prop_map(|(code, team, places, n, a, b, kind)| Raw { code, team, places, n, a, b, kind })
}

/// Returns a strategy for teams: random subsets of the PEs, in random order.
fn team(pes: u32) -> impl Strategy<Value = Vec<u32>> {
    let all: Vec<u32> = (0..pes).collect();
    let few = prop::sample::subsequence(all, 1..=pes as usize);
    few.prop_shuffle()
}

impl Raw {
    /// Fits the step to a team of `members`: all parts are within the memory, and are disjoint if the call requires it.
    fn fitted(self, members: u64, signal: usize) -> TeamStep {
        use Step::*;
        let log = [0, 0, 1, 1, 2, 2, 3, 3][self.kind as usize];
        let reduces = matches!(self.code, Reduce | ReduceScatter | Scan);
        let unit = if reduces { 1 << log } else { 1 };
        let (from, to) = match self.code {
            Fcollect | Collect => (1, members),
            Alltoall => (members, members),
            ReduceScatter => (members, 1),
            _ => (1, 1),
        };
        let half = BYTES / 2;
        let n = self.n.min(half / members) / unit * unit;
        // Source and destination use alternating halves, or the same location where the call allows it.
        let place =
            |random: u64, blocks: u64, half_at: u64| half_at + random % (half - blocks * n + 1) / unit * unit;
        let upper = self.b & 1;
        let mut src = place(self.places.1, from, half * upper);
        let mut dst = place(self.places.0, to, half * (1 - upper));
        let in_place = self.b & 6 == 0;
        match self.code {
            Broadcast | Reduce | Scan if in_place => dst = src,
            PutSignal | PutFence | Sync | Barrier | Delay if n == 0 => (dst, src) = (0, 0),
            _ => {}
        }
        if self.code == Delay {
            (dst, src) = (0, 0);
        }
        let count = |i: u64| match self.code {
            Collect => n * ((self.b >> (8 + i)) & 1) / (1 + (self.b >> (16 + i) & 1)),
            // Only one member pauses.
            Delay => (self.b % members == i) as u64 * self.n,
            _ => n,
        };
        let (a, b) = match self.code {
            Broadcast => (self.a % members, 0),
            Collect => (members * n, 0),
            Reduce | ReduceScatter => (self.a % 7, self.kind),
            Scan => (self.a % 2, self.kind),
            PutSignal | PutFence => (self.a % members, self.b % members),
            _ => (0, 0),
        };
        let counts = (0..members).map(count).collect();
        TeamStep { n: counts, c: signal as u64, ..TeamStep::new(self.code, self.team, dst, src, 0, a, b) }
    }
}

fn plan(group_kind: GroupKind, teams: &[Vec<u32>], steps: &[Raw], pes: u32) -> Plan {
    let fit = |(signal, raw): (usize, &Raw)| {
        let members = teams.get(raw.team).map_or(u64::from(pes), |team| team.len() as u64);
        raw.fitted(members, signal)
    };
    Plan {
        group_kind,
        threads: if group_kind == GroupKind::Block { 40 } else { 32 },
        blocks: vec![steps.iter().enumerate().map(fit).collect()],
        teams: teams.to_vec(),
        bytes: BYTES as usize,
        signals: STEPS,
    }
}

/// Compares `cases` random programs, or as many as `PROPTEST_CASES` says, with the model.
fn agrees(setup: &Setup, cases: u32) {
    let setup = setup.clone().with("team_scratch", "1KiB");
    let pes = setup.pes();
    let wanted = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let cases = wanted.unwrap_or_else(|| setups::repetitions(cases));
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 400, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[9; 32]));
    let group_kind = prop::sample::select(vec![GroupKind::Thread, GroupKind::Warp, GroupKind::Block]);
    let programs = (group_kind, prop::collection::vec(team(pes), 3), prop::collection::vec(raw(), 1..=STEPS));
    let result = runner.run(&programs, |(group_kind, teams, steps)| {
        let plan = plan(group_kind, &teams, &steps, pes);
        let found = setup.try_run(|pe| plan.run(pe));
        let found = found.map_err(|error| TestCaseError::fail(error.to_string()))?;
        for (pe, (found, wanted)) in found.iter().zip(plan.model(pes)).enumerate() {
            let first = found.iter().zip(&wanted).position(|(a, b)| a != b);
            prop_assert!(first.is_none(), "PE {pe}, byte {first:?}: {:?}", plan.blocks);
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{setup}: {error}");
    }
}

#[test]
fn random_collectives_of_few_pes() {
    agrees(&Setup::new(2).with("sq_depth", 2).with("peer_path", "nic"), 40);
    agrees(&Setup::new(3).with("cq", "collapsed").with("qps_per_peer", 3), 40);
    agrees(&Setup::new(2).with("peer_path", "p2p"), 60);
    agrees(&Setup::new(4).with("peer_path", "p2p"), 60);
    agrees(&Setup::new(4).with("nics_per_pe", 2).with("peer_path", "nic").with("sq_depth", 8), 30);
}

#[test]
fn random_collectives_of_many_pes() {
    agrees(&Setup::new(5).with("peer_path", "nic"), 20);
    agrees(&Setup::new(6), 15);
    agrees(&Setup::new(7).with("peer_path", "p2p"), 40);
    agrees(&Setup::new(8).with("sq_depth", 8).with("peer_path", "nic"), 15);
}

#[test]
fn random_collectives_with_a_slow_nic() {
    let faults = "skip_qp=0.4,completion_delay=0.3";
    agrees(&Setup::new(3).with("peer_path", "nic").with("softnic_fault", faults), 20);
    agrees(&Setup::new(4).with("nics_per_pe", 2).with("peer_path", "nic").with("softnic_fault", faults), 20);
}
