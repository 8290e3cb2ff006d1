//! Steps that the lanes of a warp make together. All warps are whole.

use rushmem_device::arch;
use rushmem_device::prelude::*;

use crate::buffers::{Exchange, get};

/// Lanes of a warp.
pub(crate) const LANES: u32 = 32;

/// Returns the index of this lane.
#[inline(always)]
pub(crate) fn lane() -> u32 {
    Warp::current().rank()
}

/// Returns the number of warps in a block.
#[inline(always)]
pub(crate) fn warps_of_block() -> u32 {
    Block::current().size() / LANES
}

/// Returns the index of this warp in the grid, and the number of warps.
#[inline(always)]
pub(crate) fn warp_of_grid() -> (u32, u32) {
    let (block, warps) = (Block::current(), warps_of_block());
    (block.id() * warps + Warp::current().id(), block.count() * warps)
}

/// Combines the values of all lanes pair by pair; `fold` is associative and commutative.
#[inline(always)]
fn fold(mut value: u32, fold: impl Fn(u32, u32) -> u32) -> u32 {
    let mut distance = LANES / 2;
    while distance > 0 {
        let other = arch::shuffle(u32::MAX, value as u64, Warp::current().rank() ^ distance) as u32;
        value = fold(value, other);
        distance /= 2;
    }
    value
}

/// Returns the sum over the lanes.
#[inline(always)]
pub(crate) fn sum(value: u32) -> u32 {
    fold(value, |a, b| a.wrapping_add(b))
}

/// Returns the sum over earlier lanes, and over all lanes.
#[inline(always)]
pub(crate) fn sum_before(value: u32) -> (u32, u32) {
    let (lane, mut through) = (Warp::current().rank(), value);
    let mut distance = 1;
    while distance < LANES {
        let from = lane.saturating_sub(distance);
        let other = arch::shuffle(u32::MAX, through as u64, from) as u32;
        if lane >= distance {
            through = through.wrapping_add(other);
        }
        distance *= 2;
    }
    let all = arch::shuffle(u32::MAX, through as u64, LANES - 1) as u32;
    (through.wrapping_sub(value), all)
}

/// Returns the number of elements `range` of `choices` that are `expert`.
#[inline(always)]
pub(crate) fn count(choices: View<i32>, range: core::ops::Range<u32>, expert: u32) -> u32 {
    let (mut found, mut i, end) = (0, range.start + lane(), range.end);
    let hit = |i: u32| (i < end && get(choices, i as usize) == expert as i32) as u32;
    while i < end {
        found += hit(i) + hit(i + LANES) + hit(i + 2 * LANES) + hit(i + 3 * LANES);
        i += 4 * LANES;
    }
    sum(found)
}

/// Calls `f` with each row that has arrived: the index of its signal word, and its number behind it. The warps of the
/// grid divide the rows.
///
/// Neighbouring warps take rows of different words. So they share the work equally if one word announces most rows.
#[inline(always)]
pub(crate) fn each_row(x: Exchange, f: impl Fn(u32, u32)) {
    let (lane, (first, step), words) = (lane(), warp_of_grid(), x.n_words());
    let (mut most, mut i) = (0, lane);
    while i < words {
        most = x.rows(i).max(most);
        i += LANES;
    }
    let all = fold(most, |a, b| a.max(b)) as u64 * words as u64;
    let split = |at: u64| {
        let row = at.checked_div(words as u64).unwrap_or(0) as u32;
        ((at - row as u64 * words as u64) as u32, row)
    };
    let mut at = first as u64;
    while at < all {
        let mine = at + (lane * step) as u64;
        let (word, row) = split(mine);
        let mut hits = arch::ballot(u32::MAX, mine < all && row < x.rows(word));
        while hits != 0 {
            let (word, row) = split(at + (hits.trailing_zeros() * step) as u64);
            f(word, row);
            hits &= hits - 1;
        }
        at += (LANES * step) as u64;
    }
}

/// Copies chunks, by all threads of a group.
#[inline(always)]
pub(crate) fn copy_chunks<G: Group>(
    group: G,
    len: usize,
    load: impl Fn(usize) -> u128,
    store: impl Fn(usize, u128),
) {
    let (mut i, step) = (group.rank() as usize, group.size() as usize);
    while i + 3 * step < len {
        let (a, b, c, d) = (load(i), load(i + step), load(i + 2 * step), load(i + 3 * step));
        store(i, a);
        store(i + step, b);
        store(i + 2 * step, c);
        store(i + 3 * step, d);
        i += 4 * step;
    }
    while i < len {
        store(i, load(i));
        i += step;
    }
}
