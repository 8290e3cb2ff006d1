//! Tests of collective calls by all blocks of a grid, and by the grids that the runtime launches for streams.

use rushmem::{Error, Operations};
use rushmem_device::{ElementKind, Error as Code, Reduce, Team};
use rushmem_test_kernels::{GroupKind, Step, grid_fails, many_sums};
use rushmem_tests::{Setup, grid};

use super::model::{Plan, TeamStep};
use super::{mixed, some};
use crate::suite::setups;

const U32: u64 = ElementKind::U32 as u64;

/// Returns a step for every collective call that a grid can make, with blocks of `n` bytes, which must be a multiple of
/// 4.
fn every_call(team: usize, members: u64, n: u64) -> Vec<TeamStep> {
    let (src, dst) = (0, (members + 1) * n);
    let (max, xor) = (Reduce::Max as u64, Reduce::Xor as u64);
    let step = |code, dst, src, n, a, b| TeamStep::new(code, team, dst, src, n, a, b);
    vec![
        step(Step::Broadcast, dst, src, n, members - 1, 0),
        step(Step::Broadcast, src, src, n, 0, 0),
        step(Step::Fcollect, dst, src, n, 0, 0),
        step(Step::Alltoall, dst, src, n, 0, 0),
        step(Step::Reduce, dst, src, n, Reduce::Sum as u64, U32),
        step(Step::Reduce, dst, dst, members * n, max, U32),
        step(Step::ReduceScatter, dst, src, n, xor, U32),
        step(Step::Barrier, 0, 0, 0, 0, 0),
    ]
}

/// Checks all collective calls on several teams, by grids of `blocks` blocks.
fn check(setup: &Setup, blocks: u32, ready: bool, sizes: &[u64]) {
    let pes = setup.pes();
    let teams = vec![some(pes), vec![pes - 1]];
    let mut steps = Vec::new();
    for &n in sizes {
        for team in [3, 0, 1] {
            let members = teams.get(team).map_or(u64::from(pes), |team| team.len() as u64);
            steps.extend(every_call(team, members, n));
        }
    }
    let most = sizes.iter().copied().max().unwrap_or(0) as usize;
    let bytes = 2 * (pes as usize + 1) * most;
    let plan =
        Plan { group_kind: GroupKind::Block, threads: 40, blocks: vec![steps], teams, bytes, signals: 0 };
    setup.run(|pe| {
        plan.check_by_grid(&format!("{setup}, {blocks} blocks, ready: {ready}"), pe, blocks, ready)
    });
}

#[test]
fn every_call_by_grids_of_any_size() {
    for (i, setup) in setups::all().enumerate() {
        let blocks = [1, 2, 3, 5, 8][i % 5];
        check(&setup, blocks, i % 2 == 1, &[0, 4, 148, 8196, 40_004]);
    }
}

#[test]
fn grid_collectives_work_with_little_scratch() {
    for path in ["p2p", "nic"] {
        let setup = Setup::new(3).with("peer_path", path).with("grid_scratch", "1KiB");
        check(&setup, 4, false, &[148, 20_000]);
    }
}

#[test]
fn grid_collectives_in_mixed_jobs() {
    for (pes, node) in [(4, 2), (5, 3)] {
        check(&mixed(pes, node), 3, false, &[148, 20_000]);
    }
}

#[test]
fn blocks_without_a_team_channel_wait_for_the_others() {
    check(&Setup::new(2).with("peer_path", "nic"), 11, false, &[100_000]);
}

#[test]
fn grid_collectives_synchronise_sources_and_results_across_blocks() {
    for (pes, path) in [(1, "p2p"), (2, "p2p"), (3, "nic"), (4, "p2p")] {
        let wrong = Setup::new(pes).with("peer_path", path).run(|pe| {
            let (blocks, threads) = (4, 33);
            let (dst, src) = (pe.alloc::<u64>(9000)?, pe.alloc::<u64>(9000)?);
            let wrong = pe.alloc::<u64>((blocks * threads) as usize)?;
            pe.launch_collective(grid(blocks, threads), many_sums(dst, src, wrong, 5))?.wait()?;
            Ok(pe.read(wrong)?.iter().sum::<u64>())
        });
        assert_eq!(wrong, vec![0; pes as usize], "{pes} PEs, {path}");
    }
}

#[test]
fn failed_grid_call_fails_in_all_blocks_and_leaves_the_team_usable() {
    for path in ["p2p", "nic"] {
        Setup::new(2).with("peer_path", path).run(|pe| {
            let (dst, src) = (pe.alloc::<u32>(20_000)?, pe.alloc::<u32>(20_000)?);
            let codes = pe.alloc::<u32>(3)?;
            pe.write(src, &[pe.my_pe() + 1; 20_000])?;
            pe.host_sync()?;
            let launch = pe.launch_collective(grid(3, 40), grid_fails(Team::WORLD, dst, src, codes))?;
            let error = launch.wait().expect_err("the lengths differ").to_string();
            assert!(error.contains("collectives/grid.rs:"), "{error}");
            assert_eq!(pe.read(codes)?, [Code::LengthMismatch as u32; 3]);
            assert_eq!(pe.read(dst)?, [3; 20_000]);
            pe.host_sync()
        });
    }
}

#[test]
fn kernels_without_a_team_fail_in_all_blocks() {
    Setup::new(2).with("peer_path", "p2p").run(|pe| {
        let (dst, src) = (pe.alloc::<u32>(16)?, pe.alloc::<u32>(16)?);
        let codes = pe.alloc::<u32>(3)?;
        let launch = pe.launch_collective(grid(3, 40), grid_fails(Team::INVALID, dst, src, codes))?;
        let error = launch.wait().expect_err("there is no team").to_string();
        assert!(error.contains("team"), "{error}");
        let codes = pe.read(codes)?;
        assert_eq!(codes, [Code::BadTeam as u32, Code::InGroup as u32, Code::InGroup as u32]);
        pe.host_sync()
    });
}

/// Fills `len` elements of each PE with distinct numbers, and makes all collective calls on a stream.
fn on_stream(setup: &Setup, len: usize) {
    setup.run(|pe| {
        let (n, me) = (pe.n_pes() as usize, pe.my_pe() as usize);
        let of = |member: usize, i: usize| (member * 1_000_000 + i) as u32;
        let (src, dst) = (pe.alloc::<u32>(n * len)?, pe.alloc::<u32>(n * len)?);
        pe.write(src, &(0..n * len).map(|i| of(me, i)).collect::<Vec<_>>())?;
        let stream = pe.stream()?;
        let done = |wanted: Vec<u32>| -> Result<(), Error> {
            stream.wait()?;
            assert!(pe.read(dst)?[..wanted.len()] == wanted, "{setup}");
            pe.barrier_all()
        };
        stream.barrier_all()?;
        stream.broadcast(Team::WORLD, dst, src, 0)?;
        done((0..n * len).map(|i| of(0, i)).collect())?;
        stream.fcollect(Team::WORLD, dst, src.slice(0..len))?;
        done((0..n).flat_map(|member| (0..len).map(move |i| of(member, i))).collect())?;
        stream.alltoall(Team::WORLD, dst, src)?;
        done((0..n).flat_map(|member| (0..len).map(move |i| of(member, me * len + i))).collect())?;
        let sum = |i: usize| (0..n).map(|member| of(member, i)).fold(0, u32::wrapping_add);
        stream.reduce(Team::WORLD, Reduce::Sum, dst, src)?;
        done((0..n * len).map(sum).collect())?;
        stream.reduce_scatter(Team::WORLD, Reduce::Sum, dst.slice(0..len), src)?;
        done((me * len..(me + 1) * len).map(sum).collect())?;
        // In place.
        stream.reduce(Team::WORLD, Reduce::Max, src, src)?;
        stream.broadcast(Team::WORLD, dst, src, n as u32 - 1)?;
        done((0..n * len).map(|i| of(n - 1, i)).collect())
    });
}

#[test]
fn streams_launch_grids_for_large_data() {
    for (pes, path) in [(1, "p2p"), (2, "p2p"), (2, "nic"), (3, "p2p"), (4, "nic")] {
        on_stream(&Setup::new(pes).with("peer_path", path), 30_001);
    }
    on_stream(&mixed(4, 2), 10_001);
    // Long enough for members to read a broadcast from its root, and aligned throughout.
    on_stream(&Setup::new(2).with("peer_path", "p2p").with("heap_bytes", "16MiB"), 400_000);
    on_stream(&Setup::new(3).with("peer_path", "p2p").with("heap_bytes", "16MiB"), 100_000);
}

#[test]
fn broadcast_from_a_later_segment_reaches_all_members() {
    const LEN: usize = 50_000;
    for pes in [2, 3] {
        let setup = Setup::new(pes).with("peer_path", "p2p");
        setup.with("heap_bytes", "512KiB").with("heap_max", "8MiB").run(|pe| {
            // Other members cannot read the source by its offset in the heap, because the heap has grown for it.
            let (dst, src) = (pe.alloc::<u32>(LEN)?, pe.alloc::<u32>(1 << 18)?.slice(0..LEN));
            pe.write(src, &(pe.my_pe() * 1_000_000..).take(LEN).collect::<Vec<_>>())?;
            let stream = pe.stream()?;
            stream.broadcast(Team::WORLD, dst, src, 1)?;
            stream.wait()?;
            assert!(pe.read(dst)?.into_iter().eq((1_000_000..).take(LEN)), "{pes} PEs");
            pe.barrier_all()
        });
    }
}
