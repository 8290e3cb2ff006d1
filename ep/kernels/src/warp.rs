//! Steps that the lanes of a warp make together. All warps are whole.

use rushmem_device::arch;
use rushmem_device::prelude::*;

use crate::buffers::count_of;

/// Lanes of a warp.
pub(crate) const LANES: usize = 32;

/// Returns the index of this lane.
#[inline(always)]
pub(crate) fn lane() -> usize {
    Warp::current().rank() as usize
}

/// Returns the number of warps in a block.
#[inline(always)]
pub(crate) fn warps_of_block() -> usize {
    Block::current().size() as usize / LANES
}

/// Returns the index of this warp in the grid, and the number of warps.
#[inline(always)]
pub(crate) fn warp_of_grid() -> (usize, usize) {
    let (block, warps) = (Block::current(), warps_of_block());
    (block.id() as usize * warps + Warp::current().id() as usize, block.count() as usize * warps)
}

/// Combines the values of all lanes pair by pair; `fold` is associative and commutative.
#[inline(always)]
fn fold(mut value: u32, fold: impl Fn(u32, u32) -> u32) -> u32 {
    let mut distance = LANES as u32 / 2;
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
    while distance < LANES as u32 {
        let from = lane.saturating_sub(distance);
        let other = arch::shuffle(u32::MAX, through as u64, from) as u32;
        if lane >= distance {
            through = through.wrapping_add(other);
        }
        distance *= 2;
    }
    let all = arch::shuffle(u32::MAX, through as u64, LANES as u32 - 1) as u32;
    (through.wrapping_sub(value), all)
}

/// Returns the number of elements `range` of `choices` that are `expert`.
#[inline(always)]
pub(crate) fn count(choices: View<i32>, range: core::ops::Range<usize>, expert: u32) -> u32 {
    let (mut found, mut i, end) = (0, range.start + lane(), range.end);
    let hit = |i: usize| (choices.load(i) == expert as i32) as u32;
    while i + 3 * LANES < end {
        found += hit(i) + hit(i + LANES) + hit(i + 2 * LANES) + hit(i + 3 * LANES);
        i += 4 * LANES;
    }
    while i < end {
        found += hit(i);
        i += LANES;
    }
    sum(found)
}

/// Calls `f` with each row that `words` announce: the index of the word, and the number of the row. The warps of the
/// grid divide the rows.
///
/// Neighbouring warps take rows of different words. So they share the work equally if one word announces most rows.
#[inline(always)]
pub(crate) fn each_row(words: View<u64>, f: impl Fn(usize, u32)) {
    let (lane, (first, step)) = (lane(), warp_of_grid());
    let len = words.len();
    let mut most = 0;
    let mut i = lane;
    while i < len {
        most = count_of(words.load(i)).max(most);
        i += LANES;
    }
    let all = fold(most, |a, b| a.max(b)) as usize * len;
    let split = |at: usize| {
        let row = at.checked_div(len).unwrap_or(0);
        (at - row * len, row as u32)
    };
    let mut at = first;
    while at < all {
        let mine = at + lane * step;
        let (word, row) = split(mine);
        let mut hits = arch::ballot(u32::MAX, mine < all && row < count_of(words.load(word)));
        while hits != 0 {
            let (word, row) = split(at + hits.trailing_zeros() as usize * step);
            f(word, row);
            hits &= hits - 1;
        }
        at += LANES * step;
    }
}

/// Copies chunks, by all threads of a group.
#[inline(always)]
pub(crate) fn copy_chunks<G: Group>(group: G, len: usize, load: impl Fn(usize) -> u128, store: impl Fn(usize, u128)) {
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
