//! Tests of collective calls of teams, compared with a sequential model.

mod grid;
mod misuse;
mod model;
mod program;
mod types;

use rushmem::TeamConfig;
use rushmem_device::{ElementKind, Reduce, Scan, Team};
use rushmem_test_kernels::{GroupKind, Step, barriers, scattered, words_with_flags};
use rushmem_tests::{Setup, grid};

use self::model::{Plan, TeamStep};
use super::setups;

const U32: u64 = ElementKind::U32 as u64;

const GROUPS: [(GroupKind, u32); 3] = [(GroupKind::Thread, 1), (GroupKind::Warp, 32), (GroupKind::Block, 40)];

/// Returns a step for every collective call with blocks of `n` bytes, which must be a multiple of 4. The calls use a
/// region at `at` with space for three times the members' blocks and one more.
fn every_call(team: usize, members: u64, at: u64, n: u64) -> Vec<TeamStep> {
    let (src, dst) = (at, at + (members + 1) * n);
    let (max, xor) = (Reduce::Max as u64, Reduce::Xor as u64);
    let step = |code, dst, src, n, a, b| TeamStep::new(code, team, dst, src, n, a, b);
    let varying = |i: u64| if i % 3 == 1 { 0 } else { n / (i % 3 + 1) };
    vec![
        step(Step::Broadcast, dst, src, n, members - 1, 0),
        step(Step::Broadcast, src, src, n, 0, 0),
        step(Step::Fcollect, dst, src, n, 0, 0),
        TeamStep {
            n: (0..members).map(varying).collect(),
            ..step(Step::Collect, dst, src, 0, members * n, 0)
        },
        step(Step::Alltoall, dst, src, n, 0, 0),
        step(Step::Reduce, dst, src, n, Reduce::Sum as u64, U32),
        step(Step::Reduce, dst, dst, members * n, max, U32),
        step(Step::ReduceScatter, dst, src, n, xor, U32),
        step(Step::Scan, dst, src, n, Scan::Inclusive as u64, U32),
        step(Step::Scan, src, src, n, Scan::Exclusive as u64, U32),
        step(Step::Alltoall, src, dst, n, 0, 0),
        step(Step::Barrier, 0, 0, 0, 0, 0),
    ]
}

/// Returns a subset of the PEs of a job, in descending order.
fn some(pes: u32) -> Vec<u32> {
    (0..pes).rev().filter(|pe| pe % 3 != 1).collect()
}

#[test]
fn every_call_by_every_group_of_any_length() {
    for (i, setup) in setups::all().enumerate() {
        let setup = setup.with("team_scratch", "1KiB");
        let pes = setup.pes();
        let teams = vec![some(pes), vec![pes - 1]];
        // Rotate the group kinds over the setups, so each kind gets most job sizes.
        for (group_kind, threads) in [GROUPS[i % 3]] {
            let mut steps = Vec::new();
            let mut at = 0;
            for n in [0, 4, 148, if threads == 32 { 6000 } else { 1300 }] {
                for team in [0, 1, 3] {
                    let members = teams.get(team).map_or(u64::from(pes), |team| team.len() as u64);
                    steps.extend(every_call(team, members, at, n));
                    at += 2 * (members + 1) * n;
                }
            }
            let plan = Plan {
                group_kind,
                threads,
                blocks: vec![steps],
                teams: teams.clone(),
                bytes: at as usize,
                signals: 0,
            };
            setup.run(|pe| plan.check(&format!("{setup}, {group_kind:?}"), pe));
        }
    }
}

/// Returns a job with both P2P and NIC peers, whose NICs are slow and whose NIC atomics are not atomic with processors.
fn mixed(pes: u32, node: u32) -> Setup {
    let setup = Setup::new(pes).with("peer_path", "p2p").with("p2p_group", node).with("team_scratch", "1KiB");
    setup.with("softnic_fault", "loose_atomic=0.5 skip_qp=0.3 completion_delay=0.3")
}

#[test]
fn teams_of_one_node_need_no_queues() {
    for (pes, node) in [(4, 2), (5, 3)] {
        let teams = vec![(0..node).collect::<Vec<u32>>(), (node..pes).rev().collect()];
        let calls = |team: usize, n| every_call(team, teams[team].len() as u64, 0, n);
        let steps = [4, 148, 3000].iter().flat_map(|&n| [calls(0, n), calls(1, n)].concat());
        let plan = Plan {
            group_kind: GroupKind::Block,
            threads: 40,
            blocks: vec![steps.collect()],
            teams: teams.clone(),
            bytes: 2 * (pes as usize + 1) * 3000,
            signals: 0,
        };
        let setup = mixed(pes, node);
        let queues = setup.run(|pe| {
            plan.check(&setup.to_string(), pe)?;
            Ok(pe.connected_qps())
        });
        assert_eq!(queues, vec![0; pes as usize], "{setup}");
    }
}

#[test]
fn teams_of_several_nodes_of_any_size() {
    let sizes = [(4, 2), (5, 3), (6, 3), (7, 2), (6, 4)];
    for (i, (pes, node)) in sizes.into_iter().take(setups::repetitions(5) as usize).enumerate() {
        let setup = mixed(pes, node);
        // The second team interleaves the nodes and takes different numbers of PEs from each.
        let teams = vec![
            some(pes),
            (0..pes)
                .rev()
                .step_by(2)
                .chain((0..pes - 1).step_by(2).filter(|pe| pe % 2 != (pes - 1) % 2))
                .collect(),
        ];
        let (group_kind, threads) = GROUPS[i % 3];
        let mut steps = Vec::new();
        for n in [4, 148, 1300] {
            for team in [0, 1, 3] {
                let members = teams.get(team).map_or(u64::from(pes), |team: &Vec<u32>| team.len() as u64);
                steps.extend(every_call(team, members, 0, n));
            }
        }
        let plan = Plan {
            group_kind,
            threads,
            blocks: vec![[steps.clone(), steps].concat()],
            teams,
            bytes: 2 * (pes as usize + 1) * 1300,
            signals: 0,
        };
        setup.run(|pe| plan.check(&format!("{setup}, {group_kind:?}"), pe));
    }
}

#[test]
fn teams_of_different_blocks_do_not_interfere() {
    for (pes, depth, nics) in [(3, 1024, 1), (4, 2, 1), (5, 8, 2)] {
        let setup = Setup::new(pes).with("sq_depth", depth).with("nics_per_pe", nics);
        let teams = vec![some(pes), (0..pes).collect(), (1..pes).collect()];
        for (group_kind, threads) in GROUPS {
            let blocks = (0..4).map(|team| {
                let members = teams.get(team).map_or(u64::from(pes), |team| team.len() as u64);
                let at = team as u64 * 2 * (u64::from(pes) + 1) * 148;
                let all = every_call(team, members, at, 148);
                // Blocks progress at different speeds.
                let delay = TeamStep::new(Step::Delay, team, 0, 0, team as u64 * 20, 0, 0);
                [all.clone(), vec![delay], all].concat()
            });
            let plan = Plan {
                group_kind,
                threads,
                blocks: blocks.collect(),
                teams: teams.clone(),
                bytes: 4 * 2 * (pes as usize + 1) * 148,
                signals: 0,
            };
            setup.run(|pe| plan.check(&format!("{setup}, {group_kind:?}"), pe));
        }
    }
}

#[test]
fn back_to_back_calls_with_a_slow_member() {
    let paths = [("nic", 15), ("p2p", 300)];
    for ((pes, slow), (path, rounds)) in
        [(2, 0), (3, 2), (4, 1)].into_iter().flat_map(|job| paths.map(|path| (job, path)))
    {
        let setup = Setup::new(pes).with("team_scratch", "1KiB").with("peer_path", path);
        let setup = setup.with("softnic_fault", "skip_qp=0.3");
        let delay = |turns: u64| TeamStep {
            n: (0..u64::from(pes)).map(|pe| if pe == slow { turns } else { 0 }).collect(),
            ..TeamStep::new(Step::Delay, 3, 0, 0, 0, 0, 0)
        };
        let round = |i: u64| {
            let calls = every_call(3, u64::from(pes), 0, [4, 36, 148][i as usize % 3]);
            calls.into_iter().flat_map(move |call| [delay(i % 7), call]).collect::<Vec<_>>()
        };
        let plan = Plan {
            group_kind: GroupKind::Warp,
            threads: 32,
            blocks: vec![(0..setups::repetitions(rounds).into()).flat_map(round).collect()],
            teams: Vec::new(),
            bytes: 2 * (pes as usize + 1) * 148,
            signals: 0,
        };
        setup.run(|pe| plan.check(&setup.to_string(), pe));
    }
}

/// The lengths lie around the limit at which P2P calls switch protocols (when the data for one member exceeds an eighth
/// of the scratch), and around multiples of 8 and 16 bytes.
#[test]
fn lengths_around_protocol_and_alignment_limits() {
    for (pes, path) in [(2, "p2p"), (3, "p2p"), (4, "p2p"), (3, "nic")] {
        let setup = Setup::new(pes).with("team_scratch", "4KiB").with("peer_path", path);
        for (group_kind, threads) in GROUPS {
            let (mut steps, mut at) = (Vec::new(), 0);
            for most in [512, (512 / u64::from(pes)) & !7] {
                for n in [most - 20, most - 16, most - 4, most, most + 4, most + 16] {
                    // Some sources are aligned to 16 bytes, some are not.
                    let from = at + n % 8;
                    steps.extend(every_call(3, u64::from(pes), from, n));
                    at = (from + (2 * u64::from(pes) + 2) * n).next_multiple_of(16);
                }
            }
            let plan = Plan {
                group_kind,
                threads,
                blocks: vec![steps],
                teams: Vec::new(),
                bytes: at as usize,
                signals: 0,
            };
            setup.run(|pe| plan.check(&format!("{setup}, {group_kind:?}"), pe));
        }
    }
}

/// Uses objects in segments of the heap beyond the initial one.
#[test]
fn collectives_on_objects_in_heap_segments() {
    for (pes, path) in [(2, "p2p"), (3, "p2p"), (3, "nic")] {
        let setup =
            Setup::new(pes).with("peer_path", path).with("heap_bytes", "1MiB").with("heap_max", "16MiB");
        let setup = setup.with("teams", 5).with("team_scratch", "4KiB");
        for (group_kind, threads) in GROUPS {
            let mut steps = Vec::new();
            for (i, n) in [4, 148, 1300].into_iter().enumerate() {
                steps.extend(every_call(3, u64::from(pes), i as u64 * 16384, n));
            }
            let plan = Plan {
                group_kind,
                threads,
                blocks: vec![steps],
                teams: Vec::new(),
                bytes: 1 << 20,
                signals: 0,
            };
            setup.run(|pe| plan.check(&format!("{setup}, {group_kind:?}"), pe));
        }
    }
}

/// Uses more members than a warp has lanes, over the NIC and over P2P.
#[test]
#[ignore = "slow: runs with --ignored"]
fn teams_of_many_members() {
    for (pes, path) in [(33, "nic"), (40, "p2p")] {
        let setup = Setup::new(pes).with("peer_path", path).with("heap_bytes", "1MiB").with("teams", 6);
        let teams = vec![(0..pes).rev().collect(), some(pes)];
        for (group_kind, threads) in GROUPS {
            let mut steps = Vec::new();
            for (team, members) in [(0, u64::from(pes)), (1, teams[1].len() as u64), (3, u64::from(pes))] {
                steps.extend(every_call(team, members, 0, 36));
            }
            let bytes = 2 * (pes as usize + 1) * 36;
            let plan =
                Plan { group_kind, threads, blocks: vec![steps], teams: teams.clone(), bytes, signals: 0 };
            setup.run(|pe| plan.check(&format!("{setup}, {group_kind:?}"), pe));
        }
    }
}

#[test]
fn other_calls_may_run_between_sync_arrive_and_sync_wait() {
    for setup in setups::all() {
        let (pes, world) = (setup.pes(), 3);
        let step = |code| TeamStep::new(code, world, 0, 0, 0, 0, 0);
        // Between arrival and wait, the team makes other calls, and some members pause.
        let late = TeamStep { n: (0..u64::from(pes)).map(|pe| pe * 10).collect(), ..step(Step::Delay) };
        let inner = TeamStep::new(Step::Fcollect, world, 256, 0, 36, 0, 0);
        let round = [late, step(Step::Arrive), inner, step(Step::Wait)];
        let plan = Plan {
            group_kind: GroupKind::Block,
            threads: 40,
            blocks: vec![round.into_iter().cycle().take(20).collect()],
            teams: Vec::new(),
            bytes: 512,
            signals: 0,
        };
        setup.run(|pe| plan.check(&setup.to_string(), pe));
    }
}

#[test]
fn ll_words_never_leak_into_another_epoch() {
    for (i, setup) in setups::all().enumerate() {
        let members = some(setup.pes());
        let (group_kind, threads, len) = [(0, 1, 3), (2, 40, 5), (2, 32, 37)][i % 3];
        // The limit keeps the test short. Each slot serves every second epoch.
        let epochs = if group_kind == 0 { 300 } else { 60 };
        let bad = setup.run(|pe| {
            let all = len * members.len();
            let (slots, dst, src) = (pe.alloc::<u64>(2 * all)?, pe.alloc::<u32>(all)?, pe.alloc::<u32>(all)?);
            let bad = pe.alloc_one::<u32>()?;
            if members.contains(&pe.my_pe()) {
                let team = pe.team_from_pes(&members, TeamConfig::new())?;
                let call = words_with_flags(team, slots, dst, src, bad, group_kind, epochs);
                pe.run(grid(1, threads), call)?;
                // Guards against a kernel that did nothing: the words of the last epoch have arrived.
                assert_ne!(pe.read(dst)?, vec![0; all]);
            }
            pe.host_sync()?;
            pe.read_one(bad)
        });
        assert_eq!(bad, vec![0; bad.len()], "{setup}");
    }
}

fn elements(pe: u32, len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| pe << 16 | i).collect()
}

#[test]
fn alltoalls_leaves_gaps_unchanged() {
    for setup in setups::all() {
        let pes = setup.pes() as usize;
        for ((group_kind, threads), (dst_stride, src_stride, len)) in
            GROUPS.into_iter().zip([(1, 1, 5), (2, 3, 7), (5, 1, 1)])
        {
            let size = |stride: usize| (pes * len - 1) * stride + 1;
            let found = setup.run(|pe| {
                let (dst, src) = (pe.alloc::<u32>(size(dst_stride))?, pe.alloc::<u32>(size(src_stride))?);
                let parts = pe.alloc::<u64>(1)?;
                pe.write(src, &elements(pe.my_pe(), src.len()))?;
                pe.host_sync()?;
                let call = scattered(
                    group_kind as u32,
                    Team::WORLD,
                    dst,
                    src,
                    dst_stride as u32,
                    src_stride as u32,
                    len as u32,
                    parts,
                );
                pe.run(grid(1, threads), call)?;
                pe.read(dst)
            });
            for (me, found) in found.into_iter().enumerate() {
                let mut wanted = vec![0; size(dst_stride)];
                for i in 0..pes * len {
                    let (from, at) = (i / len, i % len);
                    wanted[i * dst_stride] =
                        elements(from as u32, size(src_stride))[(me * len + at) * src_stride];
                }
                assert_eq!(found, wanted, "{setup}, {group_kind:?}, PE {me}");
            }
        }
    }
}

#[test]
fn alltoallv_delivers_blocks_of_any_length() {
    for setup in setups::all() {
        let members = some(setup.pes());
        let n = members.len();
        // The number of elements that member `i` sends to member `j`, sometimes 0. The receiver stores the last
        // sender's block first.
        let count = |i: usize, j: usize| (i * 5 + j * 3) % 7;
        for (group_kind, threads) in GROUPS {
            let found = setup.run(|pe| {
                let (dst, src) = (pe.alloc::<u32>(7 * n)?, pe.alloc::<u32>(7 * n)?);
                let parts = pe.alloc::<u64>(4 * n)?;
                let Some(me) = members.iter().position(|&member| member == pe.my_pe()) else {
                    pe.host_sync()?;
                    return Ok(Vec::new());
                };
                let comes: Vec<u64> = (0..n).map(|i| count(i, me) as u64).collect();
                let goes: Vec<u64> = (0..n).map(|j| count(me, j) as u64).collect();
                let to: Vec<u64> = (0..n).map(|i| comes[i + 1..].iter().sum()).collect();
                let from: Vec<u64> = (0..n as u64).map(|j| j * 7).collect();
                pe.write(parts, &[comes, to, goes, from].concat())?;
                pe.write(src, &elements(me as u32, 7 * n))?;
                let team = pe.team_from_pes(&members, TeamConfig::new())?;
                pe.run(grid(1, threads), scattered(group_kind as u32, team, dst, src, 0, 0, 0, parts))?;
                pe.host_sync()?;
                pe.read(dst)
            });
            for (me, &pe) in members.iter().enumerate() {
                let sent = |i: usize| elements(i as u32, 7 * n)[me * 7..][..count(i, me)].to_vec();
                let mut wanted = (0..n).rev().flat_map(sent).collect::<Vec<_>>();
                wanted.resize(7 * n, 0);
                assert_eq!(found[pe as usize], wanted, "{setup}, {group_kind:?}, PE {pe}");
            }
        }
    }
}

/// Repeats [`no_pe_leaves_a_barrier_early`](super::signals) with a hundred thousand barriers.
#[test]
#[ignore = "slow: runs with --ignored"]
fn no_pe_gets_two_barriers_ahead() {
    for (pes, path) in [(2, "auto"), (3, "nic")] {
        let setup = Setup::new(pes).with("peer_path", path).with("softnic_fault", "skip_qp=0.1");
        let bad = setup.run(|pe| {
            let (cells, bad) = (pe.alloc::<u32>(pe.n_pes() as usize)?, pe.alloc_one::<u32>()?);
            // Each of the 25,000 rounds per launch has two barriers.
            pe.run(grid(1, 1), barriers(GroupKind::Thread as u32, cells, bad, 25_000))?;
            pe.host_sync()?;
            pe.read_one(bad)
        });
        assert_eq!(bad, vec![0; bad.len()], "{setup}");
    }
}
