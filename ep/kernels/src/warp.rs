//! Operations that the lanes of a warp perform together. They require that all 32 lanes take part.

use rushmem_device::arch;
use rushmem_device::prelude::*;

use crate::buffers::{Exchange, get};

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

/// Returns the sum of `value` over all lanes of the warp.
#[inline(always)]
pub(crate) fn sum(value: u32) -> u32 {
    sum_before(value).1
}

/// Returns the value of lane `from`.
#[inline(always)]
pub(crate) fn of_lane(value: u32, from: u32) -> u32 {
    arch::shuffle(u32::MAX, value as u64, from) as u32
}

/// Returns whether no lower lane has the same value. Of each set of lanes with equal values, this is one lane.
#[inline(always)]
pub(crate) fn is_first_of_equals(value: u32) -> bool {
    arch::match_any(u32::MAX, value as u64).trailing_zeros() == lane()
}

/// Returns the sum of `value` over the lower lanes of the warp, and the sum over all its lanes.
#[inline(always)]
pub(crate) fn sum_before(value: u32) -> (u32, u32) {
    let (lane, mut through) = (Warp::current().rank(), value);
    let mut distance = 1;
    while distance < LANES {
        let from = lane.saturating_sub(distance);
        let other = of_lane(through, from);
        if lane >= distance {
            through = through.wrapping_add(other);
        }
        distance *= 2;
    }
    let all = of_lane(through, LANES - 1);
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

/// Number of 16-byte chunks of a row that a thread processes at once, so as to overlap their loads.
pub(crate) const AT_ONCE: usize = 4;

/// Loads chunk `i` of a row of `len` chunks that begins at `first`, and those `step`, `2 * step` and `3 * step` after
/// it. Where the row has no such chunk, loads its first one.
///
/// Checks all bounds before the first load. With a check before each, the compiler would not overlap the loads.
#[inline(always)]
pub(crate) fn load_row(from: View<u128>, first: usize, len: usize, i: usize, step: usize) -> [u128; AT_ONCE] {
    let at = |i: usize| if i < len { first + i } else { first };
    let (a, b, c, d) = (at(i), at(i + step), at(i + 2 * step), at(i + 3 * step));
    let end = from.len();
    if !((a < end) & (b < end) & (c < end) & (d < end)) {
        return [0; AT_ONCE];
    }
    [from.load(a), from.load(b), from.load(c), from.load(d)]
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

/// The threads that process one token at a time: a warp, a block, or without NIC peers also a part of a block.
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
    /// Returns the crew of the calling thread, such that all tokens are processed at once if there are enough threads.
    #[inline(always)]
    pub(crate) fn of(x: Exchange, tokens: u32) -> Self {
        let ((id, count), warps, block) = (warp_of_grid(), warps_of_block(), Block::current());
        let wanted = count.checked_div(tokens).unwrap_or(1);
        if wanted >= warps || wanted > 1 && x.b.has_nic_peers != 0 {
            return Self { id: block.id(), count: block.count(), rank: block.rank(), size: block.size() };
        }
        // A power of two, so that crews do not span blocks.
        let shift = (wanted | 1).ilog2().min(warps.trailing_zeros());
        let warp = Warp::current().id() & ((1 << shift) - 1);
        Self { id: id >> shift, count: count >> shift, rank: warp * LANES + lane(), size: LANES << shift }
    }

    /// Synchronises the threads of the crew, if the job has NIC peers.
    #[inline(always)]
    pub(crate) fn sync(self) {
        if self.size == LANES { Warp::current().sync() } else { Block::current().sync() }
    }
}
