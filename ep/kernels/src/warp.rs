//! Operations that the lanes of a warp perform together. They require that all 32 lanes take part.

use rushmem_device::arch;
use rushmem_device::prelude::*;

use crate::buffers::{Exchange, divided, get};

/// Number of lanes per warp.
pub(crate) const LANES: u32 = 32;

#[inline(always)]
pub(crate) fn lane() -> u32 {
    Warp::current().rank()
}

#[inline(always)]
pub(crate) fn warps_of_block() -> u32 {
    Block::current().size() / LANES
}

/// Returns the index of this warp in the grid, and the number of warps in the grid.
#[inline(always)]
pub(crate) fn warp_of_grid() -> (u32, u32) {
    let (block, warps) = (Block::current(), warps_of_block());
    (block.id() * warps + Warp::current().id(), block.count() * warps)
}

/// Reduces the values of all lanes by a butterfly exchange. `fold` must be associative and commutative.
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

/// Returns the sum of `value` over all lanes of the warp.
#[inline(always)]
pub(crate) fn sum(value: u32) -> u32 {
    fold(value, |a, b| a.wrapping_add(b))
}

/// Returns the sum of `value` over the lower lanes of the warp, and the sum over all its lanes.
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

/// Counts the elements in `range` of `choices` that equal `expert`, with all lanes of a warp.
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

/// Calls `f` for each received row, with the index of its dispatch signal and the row's index among those announced by
/// that signal. The warps of the grid divide the rows.
///
/// Consecutive warps process rows of different signals, which balances the work even if one signal announces most rows.
#[inline(always)]
pub(crate) fn each_row(x: Exchange, f: impl Fn(u32, u32)) {
    let (lane, (first, step), words) = (lane(), warp_of_grid(), x.n_words());
    let (mut most, mut i) = (0, lane);
    while i < words {
        most = x.rows(i).max(most);
        i += LANES;
    }
    // Enumerate all (row, word) up to the largest count, and let each lane test one candidate at a time.
    let all = fold(most, |a, b| a.max(b)) * words;
    let split = |at: u32| {
        let (row, word) = divided(at, words);
        (word, row)
    };
    let mut at = first;
    while at < all {
        let mine = at + lane * step;
        let (word, row) = split(mine);
        let mut hits = arch::ballot(u32::MAX, mine < all && row < x.rows(word));
        while hits != 0 {
            let (word, row) = split(at + hits.trailing_zeros() * step);
            f(word, row);
            hits &= hits - 1;
        }
        at += LANES * step;
    }
}

/// Copies the `len` chunks of a row. Each lane keeps 8 loads in flight, to hide the latency of memory.
#[inline(always)]
pub(crate) fn copy_row(len: usize, load: impl Fn(usize) -> u128, store: impl Fn(usize, u128)) {
    const STEP: usize = LANES as usize;
    let mut i = lane() as usize;
    let load = |i: usize| if i < len { load(i) } else { 0 };
    let store = |i: usize, chunk: u128| {
        if i < len {
            store(i, chunk);
        }
    };
    while i < len {
        let (a, b, c, d) = (load(i), load(i + STEP), load(i + 2 * STEP), load(i + 3 * STEP));
        let next = i + 4 * STEP;
        let (e, f, g, h) = (load(next), load(next + STEP), load(next + 2 * STEP), load(next + 3 * STEP));
        store(i, a);
        store(i + STEP, b);
        store(i + 2 * STEP, c);
        store(i + 3 * STEP, d);
        store(next, e);
        store(next + STEP, f);
        store(next + 2 * STEP, g);
        store(next + 3 * STEP, h);
        i += 8 * STEP;
    }
}

/// The threads that process one token at a time: a warp if there are enough tokens for all warps, otherwise a block.
#[derive(Clone, Copy)]
pub(crate) struct Crew {
    /// Index of the crew in the grid.
    pub(crate) id: u32,
    pub(crate) count: u32,
    /// Rank of the calling thread in its crew.
    pub(crate) rank: u32,
    /// Number of threads per crew.
    pub(crate) size: u32,
}

impl Crew {
    #[inline(always)]
    pub(crate) fn block() -> Self {
        let block = Block::current();
        Self { id: block.id(), count: block.count(), rank: block.rank(), size: block.size() }
    }

    /// Returns the crew of the calling thread, given the number of tokens in the batch.
    #[inline(always)]
    pub(crate) fn of(tokens: u32) -> Self {
        let (id, count) = warp_of_grid();
        if tokens >= count { Self { id, count, rank: lane(), size: LANES } } else { Self::block() }
    }
}
