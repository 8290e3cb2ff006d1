//! Tests of host-initiated collective calls, and of collective calls on streams.

use rushmem::{Error, Operations, Pe, TeamConfig};
use rushmem_device::{Element, Reduce, Scan, Team};
use rushmem_test_kernels::expect;
use rushmem_tests::{Setup, grid};

use super::setups;

/// Creates a team of all PEs in descending order.
fn reversed(pe: &Pe) -> Result<Team, Error> {
    let n = pe.n_pes();
    pe.team_split_strided(Team::WORLD, n - 1, -1, n, TeamConfig::default())
}

#[test]
fn host_collectives_match_the_expected_results() {
    for setup in setups::all() {
        setup.run(|pe| {
            let n = pe.n_pes() as usize;
            let backwards = reversed(pe)?;
            for team in [Team::WORLD, backwards] {
                let me = pe.team_my_pe(team).expect("it is a member") as usize;
                let (src, dst) = (pe.alloc::<u32>(3 * n)?, pe.alloc::<u32>(3 * n)?);
                let of = |member: usize, i: usize| (member * 100 + i) as u32;
                let mine: Vec<u32> = (0..3 * n).map(|i| of(me, i)).collect();
                pe.write(src, &mine)?;
                pe.team_barrier(team)?;

                let root = n - 1;
                pe.broadcast(team, dst, src, root as u32)?;
                assert_eq!(pe.read(dst)?, (0..3 * n).map(|i| of(root, i)).collect::<Vec<_>>(), "{setup}");
                pe.team_barrier(team)?;

                pe.fcollect(team, dst, src.slice(0..3))?;
                let all: Vec<u32> = (0..n).flat_map(|m| (0..3).map(move |i| of(m, i))).collect();
                assert_eq!(pe.read(dst)?, all, "{setup}");
                pe.team_barrier(team)?;

                // Member `m` contributes `m % 4` elements.
                pe.write(dst, &vec![7; 3 * n])?;
                pe.team_barrier(team)?;
                pe.collect(team, dst, src.slice(0..me % 4))?;
                let mut all: Vec<u32> = (0..n).flat_map(|m| (0..m % 4).map(move |i| of(m, i))).collect();
                all.resize(3 * n, 7);
                assert_eq!(pe.read(dst)?, all, "{setup}");
                pe.team_barrier(team)?;

                pe.alltoall(team, dst, src)?;
                let all: Vec<u32> = (0..n).flat_map(|m| (0..3).map(move |i| of(m, me * 3 + i))).collect();
                assert_eq!(pe.read(dst)?, all, "{setup}");
                pe.team_barrier(team)?;

                pe.reduce(team, Reduce::Sum, dst, src)?;
                let sum = |i: usize| (0..n).map(|m| of(m, i)).sum::<u32>();
                assert_eq!(pe.read(dst)?, (0..3 * n).map(sum).collect::<Vec<_>>(), "{setup}");
                pe.team_barrier(team)?;

                pe.reduce_scatter(team, Reduce::Sum, dst.slice(0..3), src)?;
                assert_eq!(pe.read(dst)?[..3], (me * 3..me * 3 + 3).map(sum).collect::<Vec<_>>(), "{setup}");
                pe.team_barrier(team)?;

                for (which, last) in [(Scan::Inclusive, me + 1), (Scan::Exclusive, me)] {
                    pe.sum_scan(team, which, dst, src)?;
                    let sum = |i: usize| (0..last).map(|m| of(m, i)).sum::<u32>();
                    assert_eq!(pe.read(dst)?, (0..3 * n).map(sum).collect::<Vec<_>>(), "{setup}");
                    pe.team_sync(team)?;
                }
                pe.free(src)?;
                pe.free(dst)?;
            }
            pe.team_destroy(backwards)
        });
    }
}

/// Reduces with the operation `op` on a stream, and compares the result with a `fold` in member order.
fn reduces<T: Element + PartialEq + std::fmt::Debug>(
    pe: &Pe,
    op: Reduce,
    of: impl Fn(u8) -> T,
    fold: impl Fn(T, T) -> T,
) -> Result<(), Error> {
    const LEN: usize = 9;
    let n = pe.n_pes() as usize;
    let (src, dst) = (pe.alloc::<T>(LEN * n)?, pe.alloc::<T>(LEN * n)?);
    let part = pe.alloc::<T>(LEN)?;
    let value = |m: usize, i: usize| of((i % 4 + m + 1) as u8);
    pe.write(src, &(0..LEN * n).map(|i| value(pe.my_pe() as usize, i)).collect::<Vec<_>>())?;
    let stream = pe.stream()?;
    stream.barrier_all()?;
    stream.reduce(Team::WORLD, op, dst, src)?;
    stream.reduce_scatter(Team::WORLD, op, part, src)?;
    // The result is the source of the next operation, which works in place.
    stream.reduce(Team::WORLD, Reduce::Max, src, dst)?;
    stream.wait()?;
    let wanted = |i: usize| (1..n).map(|m| value(m, i)).fold(value(0, i), &fold);
    let all: Vec<T> = (0..LEN * n).map(wanted).collect();
    assert_eq!(pe.read(dst)?, all, "{op:?} of {}", std::any::type_name::<T>());
    assert_eq!(pe.read(src)?, all);
    let mine = pe.my_pe() as usize * LEN;
    assert_eq!(pe.read(part)?, all[mine..mine + LEN]);
    pe.host_sync()?;
    pe.free(part)?;
    pe.free(dst)?;
    pe.free(src)
}

#[test]
fn stream_reductions_of_every_type() {
    Setup::new(3).run(|pe| {
        macro_rules! all {
            ($($t:ident)*) => {$(
                let of = |v: u8| v as $t;
                reduces(pe, Reduce::Sum, of, |a, b| a + b)?;
                reduces(pe, Reduce::Prod, of, |a, b| a * b)?;
                reduces(pe, Reduce::Min, of, |a, b| if a < b { a } else { b })?;
                reduces(pe, Reduce::Max, of, |a, b| if a > b { a } else { b })?;
            )*};
        }
        macro_rules! bits {
            ($($t:ident)*) => {$(
                reduces(pe, Reduce::And, |v| v as $t, |a, b| a & b)?;
                reduces(pe, Reduce::Or, |v| v as $t, |a, b| a | b)?;
                reduces(pe, Reduce::Xor, |v| v as $t, |a, b| a ^ b)?;
            )*};
        }
        all!(u8 i8 u16 i16 u32 i32 u64 i64 usize isize f32 f64);
        bits!(u8 i8 u16 i16 u32 i32 u64 i64 usize isize);
        Ok(())
    });
}

/// Uses two teams of all PEs with a stream each. Even PEs queue the first team's calls first, odd PEs the second
/// team's.
#[test]
fn collectives_of_two_teams_run_concurrently() {
    const ROUNDS: u64 = 5;
    for setup in setups::all() {
        let bad = setup.run(|pe| {
            let n = pe.n_pes() as usize;
            let config = TeamConfig::default();
            let teams = [reversed(pe)?, pe.team_split_strided(Team::WORLD, 0, 1, n as u32, config)?];
            let (src, dst) = (pe.alloc::<u64>(2 * n)?, pe.alloc::<u64>(2 * n)?);
            let (all, bad) = (pe.alloc::<u64>(2 * n)?, pe.alloc_one::<u64>()?);
            let mut streams = Vec::new();
            for (which, team) in teams.into_iter().enumerate() {
                streams.push((which, team, pe.stream()?));
            }
            pe.write(src, &vec![3; 2 * n])?;
            pe.host_sync()?;
            if pe.my_pe() & 1 == 1 {
                streams.reverse();
            }
            for (which, team, stream) in &streams {
                let part = which * n..(which + 1) * n;
                let (src, dst, all) =
                    (src.slice(part.clone()), dst.slice(part.clone()), all.slice(part.clone()));
                for _ in 0..ROUNDS {
                    stream.reduce(*team, Reduce::Sum, dst, src)?;
                    stream.launch(grid(1, 1), expect(dst, 3 * n as u64, bad))?;
                    stream.team_barrier(*team)?;
                    stream.alltoall(*team, dst, src)?;
                    stream.fcollect(*team, all, src.slice(0..1))?;
                    stream.team_sync(*team)?;
                    stream.broadcast(*team, dst, src, 0)?;
                    stream.launch(grid(1, 1), expect(dst, 3, bad))?;
                    stream.launch(grid(1, 1), expect(all, 3, bad))?;
                    stream.team_barrier(*team)?;
                }
            }
            for (_, _, stream) in &streams {
                stream.quiet()?;
                stream.wait()?;
            }
            pe.host_sync()?;
            for team in teams {
                pe.team_destroy(team)?;
            }
            pe.read_one(bad)
        });
        assert_eq!(bad, vec![0; bad.len()], "{setup}");
    }
}

#[test]
fn rejects_mismatched_host_collectives() {
    for path in ["nic", "p2p"] {
        Setup::new(2).with("peer_path", path).run(|pe| {
            let data = pe.alloc::<u32>(4)?;
            let other = pe.alloc::<u32>(4)?;
            let error = if pe.my_pe() == 0 {
                pe.reduce(Team::WORLD, Reduce::Sum, other, data)
            } else {
                pe.reduce(Team::WORLD, Reduce::Prod, other, data)
            };
            let error = error.expect_err("sum and product");
            assert!(matches!(&error, Error::Operation { what: "reduce", .. }), "{error}");
            // The rejected calls did not start, so the team still works.
            pe.host_sync()?;
            pe.reduce(Team::WORLD, Reduce::Sum, other, data)?;
            let none = pe.team_sync(Team::INVALID).expect_err("no team");
            assert!(matches!(&none, Error::Operation { what: "team_sync", .. }), "{none}");
            pe.host_sync()
        });
    }
}
