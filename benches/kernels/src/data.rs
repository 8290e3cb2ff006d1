//! Test data of the benchmarks: a pattern that kernels write and verify.

use rushmem_device::prelude::*;

/// Returns element `i` of the pseudo-random test data with this seed.
#[inline(always)]
pub fn pattern(seed: u64, i: u64) -> u64 {
    let x = (seed.wrapping_shl(40) ^ i).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Fills this PE's copy of `data` with the [`pattern`] of `seed`.
#[kernel]
pub fn fill(ctx: &Ctx, data: SymSlice<u64>, seed: u64) {
    let data = ctx.local(data);
    let (mut i, step) = (Thread::index(), Thread::count());
    while i < data.len() {
        data.store(i, pattern(seed, i as u64));
        i += step;
    }
}

/// Counts the elements of this PE's copy of `data` that differ from the output of [`fill`].
///
/// Each thread stores its count in its element of `wrong`.
#[kernel]
pub fn check(ctx: &Ctx, data: SymSlice<u64>, seed: u64, wrong: SymSlice<u64>) {
    let (data, wrong) = (ctx.local(data), ctx.local(wrong));
    let (mut i, step, mut n) = (Thread::index(), Thread::count(), 0);
    while i < data.len() {
        n += u64::from(data.load(i) != pattern(seed, i as u64));
        i += step;
    }
    wrong.store(Thread::index(), n);
}

/// Returns the term that PE `pe` adds to element `i` of a sum. Terms are small whole numbers, so sums are exact.
#[inline(always)]
fn term(pe: u32, run: u64, i: u64) -> f32 {
    (i % 97) as f32 + pe as f32 * (run + 1) as f32
}

/// Fills this PE's copy of `data` with the values that it contributes to a sum reduction, to be checked by
/// [`check_sums`].
#[kernel]
pub fn fill_terms(ctx: &Ctx, data: SymSlice<f32>, run: u64) {
    let data = ctx.local(data);
    let (mut i, step) = (Thread::index(), Thread::count());
    while i < data.len() {
        data.store(i, term(ctx.my_pe(), run, i as u64));
        i += step;
    }
}

/// Counts the elements of this PE's copy of `data`, from element `first` on, that differ from the sum of all PEs'
/// contributions.
///
/// Each thread stores its count in its element of `wrong`.
#[kernel]
pub fn check_sums(ctx: &Ctx, data: SymSlice<f32>, first: u64, run: u64, wrong: SymSlice<u64>) {
    let (data, wrong) = (ctx.local(data), ctx.local(wrong));
    let (mut i, step, mut n) = (Thread::index(), Thread::count(), 0);
    while i < data.len() {
        let (mut sum, mut pe) = (0.0, 0);
        while pe < ctx.n_pes() {
            sum += term(pe, run, first + i as u64);
            pe += 1;
        }
        n += u64::from(data.load(i) != sum);
        i += step;
    }
    wrong.store(Thread::index(), n);
}
