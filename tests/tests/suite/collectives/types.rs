//! Tests of reductions of every type, and of the guarantees for floating-point numbers.

use rushmem::Operations;
use rushmem_device::{ElementKind, Reduce, Team, ValueIndex};
use rushmem_test_kernels::{GroupKind, Step, collective_names, reduce_floats};
use rushmem_tests::{Setup, grid};

use super::model::{Plan, TeamStep};

/// Element type, its size in bytes, and the number of reduction operations for it.
const KINDS: [(ElementKind, u64, u64); 12] = [
    (ElementKind::U8, 1, 7),
    (ElementKind::I8, 1, 7),
    (ElementKind::U16, 2, 7),
    (ElementKind::I16, 2, 7),
    (ElementKind::U32, 4, 7),
    (ElementKind::I32, 4, 7),
    (ElementKind::U64, 8, 7),
    (ElementKind::I64, 8, 7),
    (ElementKind::F16, 2, 4),
    (ElementKind::Bf16, 2, 4),
    (ElementKind::F32, 4, 4),
    (ElementKind::F64, 8, 4),
];

#[test]
#[ignore = "slow: runs with --ignored"]
fn every_reduction_of_every_type() {
    for pes in [2, 5] {
        let (mut steps, mut at) = (Vec::new(), 0);
        let mut add = |code, size: u64, a, b| {
            // Odd numbers of elements: slightly more than one or two vectors, or many.
            let n = if a % 2 == 0 { 13 } else { 1201 } * size;
            let room = (u64::from(pes) * n).next_multiple_of(16);
            steps.push(TeamStep::new(code, 3, at + room, at, n, a, b));
            at += room + n.next_multiple_of(16);
        };
        for (kind, size, ops) in KINDS {
            for op in 0..ops {
                add(Step::Reduce, size, op, kind as u64);
                add(Step::ReduceScatter, size, op, kind as u64);
            }
            add(Step::Scan, size, 0, kind as u64);
            add(Step::Scan, size, 1, kind as u64);
        }
        // The largest value with its index, and the smallest.
        add(Step::Reduce, 16, 3, ElementKind::ValueIndex as u64);
        add(Step::ReduceScatter, 16, 2, ElementKind::ValueIndex as u64);
        let plan = Plan {
            group_kind: GroupKind::Warp,
            threads: 32,
            blocks: vec![steps],
            teams: Vec::new(),
            bytes: at as usize,
            signals: 0,
        };
        for path in ["nic", "p2p"] {
            Setup::new(pes).with("peer_path", path).run(|pe| plan.check(path, pe));
        }
    }
}

#[test]
fn ties_select_the_lowest_index() {
    // The largest or smallest value of each column, on the first PE that has it.
    let of = |pe: u32| {
        [(5.0, 9), (1.0, 4), (f64::from(pe), 7), (-0.5, 8)]
            .map(|(value, index): (f64, i64)| ValueIndex { value, index: index - i64::from(pe) })
    };
    for path in ["nic", "p2p"] {
        Setup::new(3).with("peer_path", path).run(|pe| {
            let (dst, src) = (pe.alloc::<ValueIndex>(4)?, pe.alloc::<ValueIndex>(4)?);
            pe.write(src, &of(pe.my_pe()))?;
            for (op, third) in [(Reduce::Max, (2.0, 5)), (Reduce::Min, (0.0, 7))] {
                pe.reduce(Team::WORLD, op, dst, src)?;
                let wanted = [(5.0, 7), (1.0, 2), third, (-0.5, 6)];
                assert_eq!(
                    pe.read(dst)?,
                    wanted.map(|(value, index)| ValueIndex { value, index }),
                    "{path} {op:?}"
                );
            }
            Ok(())
        });
    }
}

#[test]
fn float_reductions_are_identical_on_all_members_and_ignore_nan() {
    let nan = f32::NAN;
    let sources = [
        [nan, 1.0, nan, -0.0, f32::INFINITY, 0.1, 1e8, 3.0],
        [2.0, nan, nan, 0.0, -1.0, 0.2, 1.0, 3.0],
        [-5.0, 7.0, nan, -0.0, 1.0, 0.3, -1e8, -3.0],
    ];
    let by = |path: &str| {
        Setup::new(3).with("peer_path", path).run(|pe| {
            let (dst, src) = (pe.alloc::<f32>(32)?, pe.alloc::<f32>(8)?);
            pe.write(src, &sources[pe.my_pe() as usize])?;
            pe.host_sync()?;
            pe.run(grid(1, 64), reduce_floats(dst, src))?;
            Ok(pe.read(dst)?.into_iter().map(f32::to_bits).collect::<Vec<_>>())
        })
    };
    let found = by("nic");
    assert_eq!(by("p2p"), found);
    // All members must have the same bits.
    assert_eq!(found[1], found[0]);
    assert_eq!(found[2], found[0]);
    let results: Vec<f32> = found[0].iter().map(|&bits| f32::from_bits(bits)).collect();
    let [sums, products, least, most] = [0, 8, 16, 24].map(|at| &results[at..at + 8]);
    let column = |i: usize| [sources[0][i], sources[1][i], sources[2][i]];
    // Combined in team order; NaN if any operand is NaN.
    for i in 3..8 {
        let [a, b, c] = column(i);
        assert_eq!((sums[i], products[i]), (a + b + c, a * b * c), "{i}");
    }
    assert!(sums[..3].iter().chain(&products[..3]).all(|x| x.is_nan()));
    // Numbers win over NaN, and the result is NaN only if all operands are. Of equal values, the first one wins.
    assert_eq!((least[0], most[0], least[1], most[1]), (-5.0, 2.0, 1.0, 7.0));
    assert!(least[2].is_nan() && most[2].is_nan());
    assert_eq!((least[3].to_bits(), most[3].to_bits()), ((-0.0f32).to_bits(), (-0.0f32).to_bits()));
    assert_eq!((least[4], most[4]), (-1.0, f32::INFINITY));
}

#[test]
fn reductions_larger_than_the_scratch() {
    // Not a multiple of the default scratch's pieces. Both in place and out of place.
    let n = 1_000_004;
    let kind = ElementKind::U64 as u64;
    let steps = vec![
        TeamStep::new(Step::Reduce, 3, 0, 1 << 20, n - n % 8, 0, kind),
        TeamStep::new(Step::Reduce, 3, 0, 0, n - n % 8, 6, kind),
        TeamStep::new(Step::Broadcast, 3, 1 << 20, 0, n, 2, 0),
        TeamStep::new(Step::Scan, 3, 0, 1 << 20, n - n % 8, 1, kind),
    ];
    let plan = Plan {
        group_kind: GroupKind::Block,
        threads: 64,
        blocks: vec![steps],
        teams: Vec::new(),
        bytes: (1 << 20) + n as usize,
        signals: 0,
    };
    for path in ["nic", "p2p"] {
        Setup::new(3).with("heap_bytes", "8MiB").with("peer_path", path).run(|pe| plan.check(path, pe));
    }
}

#[test]
fn openshmem_names_work() {
    let n = 3;
    let source = |pe: i64| [5 * pe - 3, 7 + pe, 6 * (pe + 1)];
    let found = Setup::new(n as u32).run(|pe| {
        let (dst, src) = (pe.alloc::<i64>(21 * n)?, pe.alloc::<i64>(n)?);
        pe.write(src, &source(pe.my_pe().into()))?;
        pe.host_sync()?;
        pe.run(grid(1, 32), collective_names(Team::WORLD, dst, src))?;
        pe.read(dst)
    });
    for (me, found) in found.iter().enumerate() {
        let fold = |f: &dyn Fn(i64, i64) -> i64, until: usize| -> Vec<i64> {
            let column = |i: usize| (0..until as i64).map(|pe| source(pe)[i]).reduce(f).unwrap_or(0);
            (0..n).map(column).collect()
        };
        let ops: [&dyn Fn(i64, i64) -> i64; 7] =
            [&|a, b| a + b, &|a, b| a * b, &i64::min, &i64::max, &|a, b| a & b, &|a, b| a | b, &|a, b| a ^ b];
        let firsts = (0..n as i64).map(|pe| source(pe)[0]).collect::<Vec<_>>();
        let mine = (0..n as i64).map(|pe| source(pe)[me]).collect::<Vec<_>>();
        let mut wanted = vec![source(1).to_vec(), firsts.clone(), firsts, mine.clone(), mine];
        wanted.extend(ops.iter().map(|op| fold(op, n)));
        wanted.extend([fold(ops[0], me + 1), fold(ops[0], me)]);
        wanted.extend(ops.iter().map(|op| vec![fold(op, n)[me], 0, 0]));
        assert_eq!(*found, wanted.concat(), "PE {me}");
    }
}
