//! Tests of all atomics, alone and under contention.

use std::fmt::Debug;

use rushmem::{Error, Pe};
use rushmem_device::SymSlice;
use rushmem_device::kernel::Call;
use rushmem_device::prelude::{Amo, Fetched};
use rushmem_test_kernels::{
    ATOMICS, atomics_i32, atomics_i64, atomics_u32, atomics_u64, atomics_usize, contend, float_atomics,
    many_tickets, masked, starting_u32, starting_u64,
};
use rushmem_tests::{Setup, grid};

use super::setups;

/// A type of word that the model of the atomics supports.
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

/// Applies every atomic to its word of `before`. Returns the resulting words and the value that each atomic returned.
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

/// Returns the words of PE `pe` before the atomics. Word 3 holds the value that the compare-and-swap expects; word 4
/// does not.
fn before<T: Word>(pe: u32, a: T) -> Vec<T> {
    let word = |i: usize| T::of((i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(pe));
    (0..ATOMICS).map(|i| if i == 3 { a } else { word(i) }).collect()
}

/// Performs the atomics by `call`, and compares the words in `which` with the model.
fn check<T: Word>(
    pe: &Pe,
    [a, b]: [u64; 2],
    which: &[usize],
    call: impl FnOnce(SymSlice<T>, SymSlice<T>, T, T) -> Call,
) -> Result<(), Error> {
    let (a, b) = (T::of(a), T::of(b));
    let (words, olds) = (pe.alloc::<T>(ATOMICS)?, pe.alloc::<T>(ATOMICS)?);
    pe.write(words, &before(pe.my_pe(), a))?;
    pe.host_sync()?;
    pe.run(grid(2, 32), call(words, olds, a, b))?;
    pe.host_sync()?;
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
        // The first pair carries out of every bit, the second out of none.
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
fn contended_atomics_lose_no_updates() {
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
            pe.host_sync()?;
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

#[test]
fn nonblocking_atomics_fetch_the_same_values() {
    // Indices of all atomics that return a value.
    let fetching = [0, 2, 3, 4, 6, 8, 10, 12, 14];
    for setup in setups::all() {
        setup.run(|pe| {
            for ab in [[0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210], [u64::MAX, 1]] {
                let narrow = pe.alloc::<Fetched<u32>>(ATOMICS)?;
                let wide = pe.alloc::<Fetched<u64>>(ATOMICS)?;
                check::<u32>(pe, ab, &fetching, |words, olds, a, b| starting_u32(words, narrow, olds, a, b))?;
                check::<u64>(pe, ab, &fetching, |words, olds, a, b| starting_u64(words, wide, olds, a, b))?;
            }
            Ok(())
        });
    }
}

#[test]
fn many_fetches_may_be_outstanding() {
    let (blocks, threads, each) = (2, 33, 9);
    for setup in setups::all() {
        let drawn = setup.run(|pe| {
            let n = (blocks * threads * each) as usize;
            let (tickets, results, drawn) =
                (pe.alloc_one::<u64>()?, pe.alloc::<Fetched<u64>>(n)?, pe.alloc::<u64>(n)?);
            pe.run(grid(blocks, threads), many_tickets(tickets, results, drawn, each))?;
            pe.read(drawn)
        });
        let mut all = drawn.concat();
        all.sort_unstable();
        assert_eq!(all, (0..all.len() as u64).collect::<Vec<_>>(), "{setup}");
    }
}

#[test]
fn float_atomics_preserve_bits_and_sum_exactly() {
    // A signalling NaN with a payload, in both widths; -0.0; a denormal.
    let patterns = [0x7ff0_dead_7fa0_beef, 0x8000_0000_8000_0000, 0x000f_1234_0000_0001];
    let (blocks, threads, rounds) = (2, 8, 2);
    for setup in setups::all() {
        for bits in patterns {
            let found = setup.run(|pe| {
                let (narrow, wide) = (pe.alloc::<f32>(2)?, pe.alloc::<f64>(2)?);
                let all = (pe.n_pes() * blocks * threads * rounds) as usize;
                let (found, drawn) = (pe.alloc::<u64>(4)?, pe.alloc::<u32>(all)?);
                let call = float_atomics(narrow, wide, bits, found, drawn, rounds);
                pe.run(grid(blocks, threads), call)?;
                pe.host_sync()?;
                if pe.my_pe() == 0 {
                    assert_eq!((pe.read(narrow)?[1], pe.read(wide)?[1]), (all as f32, all as f64), "{setup}");
                    // Every intermediate sum must have been returned exactly once.
                    assert_eq!(pe.read(drawn)?, vec![1; all], "{setup}");
                }
                assert_eq!((pe.read(narrow)?[0], pe.read(wide)?[0]), (1.5, -2.5), "{setup}");
                pe.read(found)
            });
            let low = bits & u64::from(u32::MAX);
            assert!(found.iter().all(|found| *found == [low, bits, low, bits]), "{setup}: {found:x?}");
        }
    }
}

#[test]
fn masked_atomics_change_only_their_fields() {
    let compare = 0x0011_2233_4455_6677u64;
    let compare_mask = 0x00ff_0000_00ff_00ffu64;
    let value = 0xfedc_ba98_8765_43f1u64;
    let mask = 0x8080_0800_8080_8008u64;
    // The bits outside the comparison mask differ. The second word also differs inside it.
    let first = compare ^ 0xff00_ff0f_ff00_ff00;
    let words = [first, first ^ 1, 0xffff_7f7f_80ff_ff7f];
    let swapped = |old: u64| (old & !mask) | (value & mask);
    // Add field by field, from the lowest one up. Each field ends at its top bit in the mask.
    let added = |old: u64, mask: u64, bits: u32| {
        let (mut sum, mut from) = (0, 0);
        for top in (0..bits).filter(|&i| mask >> i & 1 == 1 || i + 1 == bits) {
            let field = |x: u64| u128::from(x >> from) & ((1u128 << (top + 1 - from)) - 1);
            let kept = (field(old) + field(value)) & ((1u128 << (top + 1 - from)) - 1);
            sum |= (kept as u64) << from;
            from = top + 1;
        }
        sum
    };
    for setup in setups::all() {
        setup.run(|pe| {
            let (narrow, wide) = (pe.alloc::<u32>(3)?, pe.alloc::<u64>(3)?);
            let (olds, operands) = (pe.alloc::<u64>(6)?, pe.alloc::<u64>(4)?);
            pe.write(wide, &words)?;
            pe.write(narrow, &words.map(|w| w as u32))?;
            pe.write(operands, &[compare, compare_mask, value, mask])?;
            pe.host_sync()?;
            pe.run(grid(1, 32), masked(narrow, wide, olds, operands))?;
            pe.host_sync()?;
            assert_eq!(pe.read(wide)?, [swapped(words[0]), words[1], added(words[2], mask, 64)], "{setup}");
            let low = |w: u64| w as u32;
            let sum = added(words[2] & 0xffff_ffff, mask & 0xffff_ffff, 32);
            assert_eq!(pe.read(narrow)?, [low(swapped(words[0])), low(words[1]), low(sum)], "{setup}");
            let narrow = words.map(|w| u64::from(low(w)));
            assert_eq!(pe.read(olds)?, [words, narrow].concat(), "{setup}");
            Ok(())
        });
    }
}
