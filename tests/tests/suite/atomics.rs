//! Atomics, alone and under contention.

use std::fmt::Debug;

use rushmem::{Error, Pe};
use rushmem_device::SymSlice;
use rushmem_device::kernel::Call;
use rushmem_device::prelude::Amo;
use rushmem_test_kernels::{
    ATOMICS, atomics_i32, atomics_i64, atomics_u32, atomics_u64, atomics_usize, contend,
};
use rushmem_tests::{Setup, grid};

use super::setups;

/// What the atomics do, for the model.
trait Word: Amo + PartialEq + Debug {
    fn of(bits: u64) -> Self;
    fn add(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
}

macro_rules! word {
    ($($t:ty)*) => {$(
        impl Word for $t {
            fn of(bits: u64) -> Self { bits as $t }
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            fn and(self, other: Self) -> Self { self & other }
            fn or(self, other: Self) -> Self { self | other }
            fn xor(self, other: Self) -> Self { self ^ other }
        }
    )*};
}
word!(u32 i32 u64 i64 usize);

/// The words before, their values after all of the atomics, and what was returned; `None` where nothing is.
fn model<T: Word>(before: &[T], a: T, b: T) -> (Vec<T>, Vec<Option<T>>) {
    let one = T::of(1);
    let after = |i: usize| match i {
        0 | 4 => before[i],
        1 | 2 => a,
        3 => b,
        5 | 6 => before[i].add(a),
        7 | 8 => before[i].add(one),
        9 | 10 => before[i].and(a),
        11 | 12 => before[i].or(a),
        _ => before[i].xor(a),
    };
    let fetches = [0, 2, 3, 4, 6, 8, 10, 12, 14];
    let old = (0..ATOMICS).map(|i| fetches.contains(&i).then(|| before[i])).collect();
    ((0..ATOMICS).map(after).collect(), old)
}

/// Words of PE `pe` before the atomics: word 3 holds what the compare and swap looks for, word 4 does not.
fn before<T: Word>(pe: u32, a: T) -> Vec<T> {
    let word = |i: usize| T::of((i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(pe));
    (0..ATOMICS).map(|i| if i == 3 { a } else { word(i) }).collect()
}

/// Carries out `call`, and compares with the model the words in `which`.
fn check<T: Word>(
    pe: &Pe,
    [a, b]: [u64; 2],
    which: &[usize],
    call: impl FnOnce(SymSlice<T>, SymSlice<T>, T, T) -> Call,
) -> Result<(), Error> {
    let (a, b) = (T::of(a), T::of(b));
    let (words, olds) = (pe.alloc::<T>(ATOMICS)?, pe.alloc::<T>(ATOMICS)?);
    pe.write(words, &before(pe.my_pe(), a))?;
    pe.barrier()?;
    pe.run(grid(2, 32), call(words, olds, a, b))?;
    pe.barrier()?;
    let (after, _) = model(&before(pe.my_pe(), a), a, b);
    let (_, old) = model(&before((pe.my_pe() + 1) % pe.n_pes(), a), a, b);
    let (found, fetched) = (pe.read(words)?, pe.read(olds)?);
    let name = std::any::type_name::<T>();
    for &i in which {
        assert_eq!(found[i], after[i], "{name}, word {i} of PE {}", pe.my_pe());
        if let Some(old) = old[i] {
            assert_eq!(fetched[i], old, "{name}, result {i} of PE {}", pe.my_pe());
        }
    }
    Ok(())
}

#[test]
fn every_atomic_of_every_type() {
    let operands = [
        [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210],
        // Carries out of every bit, and none.
        [u64::MAX, 1],
        [0, u64::MAX],
        [1 << 63 | 1 << 31, 1 << 32],
    ];
    let all: Vec<usize> = (0..ATOMICS).collect();
    for setup in setups::all() {
        setup.with("exclusive_qps", 1).with("block_qps", 1).run(|pe| {
            for ab in operands {
                check::<u32>(pe, ab, &all, atomics_u32)?;
                check::<i32>(pe, ab, &all, atomics_i32)?;
                check::<u64>(pe, ab, &all, atomics_u64)?;
                check::<i64>(pe, ab, &all, atomics_i64)?;
                check::<usize>(pe, ab, &[2, 6, 14], |words, olds, a, _| {
                    atomics_usize(words, olds, a as u64)
                })?;
            }
            Ok(())
        });
    }
}

#[test]
fn contended_words_lose_nothing() {
    const ROUNDS: u32 = 4;
    for (pes, depth, qps) in [(1, 8, 1), (2, 2, 1), (3, 8, 3), (4, 1024, 1), (5, 8, 1)] {
        let setup = Setup::new(pes).with("sq_depth", depth).with("qps_per_peer", qps);
        let (blocks, threads) = (2, 40);
        let count = u64::from(blocks * threads);
        let all = count * u64::from(pes);
        setup.run(|pe| {
            let tickets = pe.alloc_one::<u64>()?;
            let drawn = pe.alloc::<u32>((all * u64::from(ROUNDS)) as usize)?;
            let (wide, narrow) = (pe.alloc_one::<u64>()?, pe.alloc_one::<u32>()?);
            let bits = pe.alloc::<u64>(all.div_ceil(64) as usize)?;
            let swapped = pe.alloc_one::<u32>()?;
            pe.run(grid(blocks, threads), contend(tickets, drawn, wide, narrow, bits, swapped, ROUNDS))?;
            pe.barrier()?;
            let rounds = u64::from(ROUNDS);
            assert_eq!(pe.read_one(wide)?, rounds * (all * (1 << 33) + all * (all - 1) / 2), "{setup}");
            assert_eq!(u64::from(pe.read_one(narrow)?), rounds * all, "{setup}");
            if pe.my_pe() == 0 {
                assert_eq!(pe.read_one(tickets)?, rounds * all, "{setup}");
                assert!(pe.read(drawn)?.iter().all(|&n| n == 1), "a ticket was drawn twice: {setup}");
                assert_eq!(pe.read_one(swapped)?, ROUNDS * blocks * pes, "{setup}");
                let bits = pe.read(bits)?;
                assert_eq!(bits.iter().map(|word| u64::from(word.count_ones())).sum::<u64>(), all, "{setup}");
            }
            Ok(())
        });
    }
}
