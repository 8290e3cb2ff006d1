//! A distributed integer sort like ISx: a bucket sort with one bucket per PE.
//!
//! [`exchange_keys`] sends each key to the PE that owns its range, and [`sort_keys`] sorts the keys that a PE owns.
//! Both *split* keys by a digit, which is the owner of a key or one of its bytes. A split is stable. Each warp takes a
//! contiguous share:
//!
//! ```text
//! count    a warp counts its keys of each digit                   counts[digit][warp]
//! add up   a warp for each digit adds the counts of all warps     counts[digit][warp] of earlier warps, totals[digit]
//! place    a warp stores its keys after those of lower digits, and after those of earlier warps
//! ```
//!
//! A PE reserves space in each owner's inbox with one atomic, so the keys of different PEs do not overlap.

use core::ops::Range;

use rushmem_device::arch;
use rushmem_device::prelude::*;

use crate::element::{get, set};

/// Number of digits by which keys are split: the values of a byte. It also limits the number of PEs.
pub const DIGITS: usize = 256;

/// Maximum number of warps that take a share of the keys. Further warps of a grid stay idle.
pub const MAX_WARPS: usize = 4096;

/// The unit of the PE count in the upper bits of [`SortBuffers::reserved`]; the lower bits count keys.
pub const ONE_PE: u64 = 1 << 40;

/// Number of lanes per warp. Blocks consist of whole warps.
const LANES: usize = 32;

/// Number of digits that each lane of a warp handles.
const OWN_DIGITS: usize = DIGITS / LANES;

/// Minimum size of a put, in keys: 16 KiB. Only the last piece of a bucket may be smaller.
const PIECE: usize = 4096;

/// Scratch tables for splitting keys by a digit, local to the PE.
#[repr(C)]
#[derive(Clone, Copy, KernelArg)]
pub struct SplitTables {
    /// Number of keys per digit and warp: [`DIGITS`] rows of [`MAX_WARPS`] elements.
    pub counts: SymSlice<u32>,
    /// Number of this PE's keys per digit.
    pub totals: SymSlice<u32>,
    /// Index of the first key of each digit in the sorted order.
    pub starts: SymSlice<u32>,
}

/// Symmetric memory of the key exchange, as a kernel argument.
#[repr(C)]
#[derive(Clone, Copy, KernelArg)]
pub struct SortBuffers {
    /// The keys to sort that this PE starts with.
    pub keys: SymSlice<u32>,
    /// The input keys, grouped by the PE that owns them.
    pub outbox: SymSlice<u32>,
    /// Receive buffer for the keys that this PE owns.
    pub inbox: SymSlice<u32>,
    /// Low bits: keys for which the PEs have requested space in the inbox, possibly more than it holds. Upper bits: the
    /// number of PEs that have requested space, in units of [`ONE_PE`].
    pub reserved: Sym<u64>,
    /// Counts the keys that have arrived in this PE's inbox.
    pub arrived: Sym<Signal>,
    /// For each owner, the index of this PE's keys in the owner's inbox.
    pub places: SymSlice<u64>,
    /// Scratch tables for splitting the keys by owner.
    pub tables: SplitTables,
}

/// Returns the PE that owns a key. PEs own equal ranges of keys, in ascending order.
#[inline(always)]
pub fn owner(key: u32, n_pes: u32) -> u32 {
    ((key as u64 * n_pes as u64) >> 32) as u32
}

/// Dynamic shared memory that a block of `threads` threads needs in either sort kernel, in bytes.
pub fn sort_shared_bytes(threads: u32) -> u32 {
    threads / LANES as u32 * (DIGITS * size_of::<u32>()) as u32
}

/// Sends each key to the PE that owns it.
///
/// `reserved` and `arrived` must be 0 on all PEs at the launch. If an owner's inbox is too small, some of its keys are
/// not sent, and `reserved` there exceeds the size of the inbox. Supports at most [`DIGITS`] PEs. Each block needs
/// [`sort_shared_bytes`]. The PEs may use different grids.
#[kernel(max_threads = 256)]
pub fn exchange_keys(ctx: &Ctx, buffers: SortBuffers) -> Result {
    let SortBuffers { keys, outbox, inbox, reserved, arrived, .. } = buffers;
    let (block, n_pes) = (Block::current(), ctx.n_pes());
    let split = Split::new(ctx, keys, buffers.tables, |key| owner(key, n_pes) as usize);
    split.count();
    ctx.sync_grid(block)?;
    split.add_up();
    ctx.sync_grid(block)?;
    // The atomics of the first blocks overlap with the other blocks' work below.
    block.agree(reserve(ctx, &buffers))?;
    split.place(ctx.local(outbox));
    ctx.sync_grid(block)?;

    let places = ctx.local(buffers.places);
    for k in 0..n_pes {
        // Every PE starts with a different owner, to spread the traffic.
        let pe = ctx.pe_after(k);
        let (start, count) = split.bucket(pe as usize);
        let place = places.load(pe as usize) as usize;
        if place + count > inbox.len() {
            continue;
        }
        let pieces = block.share(count.div_ceil(PIECE));
        let (first, end) = (pieces.start * PIECE, (pieces.end * PIECE).min(count));
        if first < end {
            let (dst, src) =
                (inbox.slice(place + first..place + end), outbox.slice(start + first..start + end));
            let sent = (end - first) as u64;
            ctx.put_signal_nbi(block, dst, src, arrived.add(sent), pe)?;
        }
    }

    // A launch is complete when its last block is, so it suffices that one block waits.
    if block.id() == 0 {
        ctx.wait_until(block, reserved, Cmp::Ge, n_pes as u64 * ONE_PE)?;
        let wanted = ctx.local_one(reserved).load(0) % ONE_PE;
        if wanted <= inbox.len() as u64 {
            ctx.signal_wait_until(block, arrived, Cmp::Ge, wanted)?;
        }
    }
    // Wait for the puts: the caller may overwrite the outbox after this kernel.
    ctx.quiet(block)
}

/// Reserves space in each owner's inbox for this PE's keys, one thread per owner.
#[inline(always)]
fn reserve(ctx: &Ctx, buffers: &SortBuffers) -> Result {
    let (totals, places) = (ctx.local(buffers.tables.totals), ctx.local(buffers.places));
    let mut pe = Thread::index();
    while pe < ctx.n_pes() as usize {
        let request = ONE_PE + totals.load(pe) as u64;
        let before = ctx.atomic_fetch_add(buffers.reserved, request, pe as u32)?;
        places.store(pe, before % ONE_PE);
        pe += Thread::count();
    }
    Ok(())
}

/// Sorts `keys` by a radix sort with 8-bit digits. `spare` must have the same length.
///
/// Each block needs [`sort_shared_bytes`].
#[kernel(max_threads = 256)]
pub fn sort_keys(ctx: &Ctx, keys: SymSlice<u32>, spare: SymSlice<u32>, tables: SplitTables) -> Result {
    let block = Block::current();
    let (mut from, mut to) = (keys, spare);
    // The number of splits is even, so the last one writes to `keys`.
    for byte in 0..size_of::<u32>() {
        let split = Split::new(ctx, from, tables, |key| (key >> (8 * byte)) as usize % DIGITS);
        split.count();
        ctx.sync_grid(block)?;
        split.add_up();
        ctx.sync_grid(block)?;
        split.place(ctx.local(to));
        ctx.sync_grid(block)?;
        (from, to) = (to, from);
    }
    Ok(())
}

/// A stable split of keys by the digit that `digit` returns. The whole grid must synchronise between its steps.
struct Split<'a, F> {
    keys: View<'a, u32>,
    counts: View<'a, u32>,
    totals: View<'a, u32>,
    starts: View<'a, u32>,
    /// Counters in shared memory: one for each warp of the block and each digit.
    counters: View<'a, u32>,
    digit: F,
    /// Index of this warp in the grid.
    warp: usize,
    /// Number of warps in the grid.
    warps: usize,
}

impl<'a, F: Fn(u32) -> usize> Split<'a, F> {
    #[inline(always)]
    fn new(ctx: &'a Ctx<'a>, keys: SymSlice<u32>, tables: SplitTables, digit: F) -> Self {
        let (counts, totals) = (ctx.local(tables.counts), ctx.local(tables.totals));
        let (keys, starts, counters) = (ctx.local(keys), ctx.local(tables.starts), ctx.shared());
        let (warp, warps) = (Thread::index() / LANES, Thread::count() / LANES);
        Self { keys, counts, totals, starts, counters, digit, warp, warps }
    }

    /// Returns the index range of this warp's keys.
    #[inline(always)]
    fn share(&self) -> Range<usize> {
        let warps = self.warps.min(MAX_WARPS);
        let cut = |warp: usize| (self.keys.len() * warp.min(warps)).checked_div(warps).unwrap_or(0);
        cut(self.warp)..cut(self.warp + 1)
    }

    /// Returns the index in `counters` of this warp's counter for a digit.
    #[inline(always)]
    fn counter(&self, digit: usize) -> usize {
        Warp::current().id() as usize * DIGITS + digit
    }

    /// Returns the index of the first key of a digit, and how many keys have that digit.
    #[inline(always)]
    fn bucket(&self, digit: usize) -> (usize, usize) {
        (self.starts.load(digit) as usize, self.totals.load(digit) as usize)
    }

    /// Counts the keys per digit in this warp's share.
    #[inline(always)]
    fn count(&self) {
        let lane = Warp::current().rank() as usize;
        for i in 0..OWN_DIGITS {
            self.counters.store(self.counter(lane + i * LANES), 0);
        }
        Warp::current().sync();
        self.walk(|_, _| ());
        if self.warp < MAX_WARPS {
            for i in 0..OWN_DIGITS {
                let digit = lane + i * LANES;
                self.counts.store(digit * MAX_WARPS + self.warp, self.counters.load(self.counter(digit)));
            }
        }
    }

    /// Replaces each warp's count of a digit by the exclusive prefix sum over the warps. The warps divide the digits.
    #[inline(always)]
    fn add_up(&self) {
        let lane = Warp::current().rank() as usize;
        let mut digit = self.warp;
        while digit < DIGITS {
            let (mut first, mut sum) = (0, 0);
            while first < self.warps.min(MAX_WARPS) {
                let warp = first + lane;
                let has_count = warp < self.warps.min(MAX_WARPS);
                let count = if has_count { self.counts.load(digit * MAX_WARPS + warp) } else { 0 };
                let (earlier, all) = add_lanes(count);
                if has_count {
                    self.counts.store(digit * MAX_WARPS + warp, sum + earlier);
                }
                sum += all;
                first += LANES;
            }
            if lane == 0 {
                self.totals.store(digit, sum);
            }
            digit += self.warps;
        }
    }

    /// Moves the keys of this warp's share to their sorted positions.
    #[inline(always)]
    fn place(&self, to: View<u32>) {
        let lane = Warp::current().rank() as usize;
        let own = lane * OWN_DIGITS..(lane + 1) * OWN_DIGITS;
        let (mut start, _) = add_lanes(own.clone().map(|digit| self.totals.load(digit)).sum());
        for digit in own {
            if self.warp == 0 {
                self.starts.store(digit, start);
            }
            if self.warp < MAX_WARPS {
                let place = start + self.counts.load(digit * MAX_WARPS + self.warp);
                self.counters.store(self.counter(digit), place);
            }
            start += self.totals.load(digit);
        }
        Warp::current().sync();
        self.walk(|key, place| set(to, place as usize, key));
    }

    /// Calls `f` with each key of this warp's share and the current value of its counter, then increments the counter.
    ///
    /// Each lane issues four loads before it counts the first key, to overlap their latency.
    #[inline(always)]
    fn walk(&self, f: impl Fn(u32, u32)) {
        let share = self.share();
        let mut at = share.start;
        while at < share.end {
            let first = at + Warp::current().rank() as usize;
            let load = |i: usize| {
                let i = first + i * LANES;
                if i < share.end { Some(get(self.keys, i)) } else { None }
            };
            let (a, b, c, d) = (load(0), load(1), load(2), load(3));
            self.step(a, &f);
            self.step(b, &f);
            self.step(c, &f);
            self.step(d, &f);
            at += 4 * LANES;
        }
    }

    /// Increments the counters for one key per lane. The first of the lanes with the same digit counts for all of them.
    #[inline(always)]
    fn step(&self, key: Option<u32>, f: &impl Fn(u32, u32)) {
        let warp = Warp::current();
        let digit = key.map_or(DIGITS, &self.digit);
        let same = arch::match_any(u32::MAX, digit as u64);
        let earlier = (same & !(u32::MAX << warp.rank())).count_ones();
        // All lanes must read the counters before a group's first lane updates one, and the updates must precede the
        // reads of the next step.
        let found = key.map_or(0, |_| get(self.counters, self.counter(digit)));
        warp.sync();
        if key.is_some() && earlier == 0 {
            set(self.counters, self.counter(digit), found + same.count_ones());
        }
        warp.sync();
        if let Some(key) = key {
            f(key, found + earlier);
        }
    }
}

/// Returns the exclusive prefix sum of `value` over the lanes of the warp, and the total.
#[inline(always)]
fn add_lanes(value: u32) -> (u32, u32) {
    let lane = Warp::current().rank();
    let (mut sum, mut distance) = (value, 1);
    while distance < LANES as u32 {
        let other = arch::shuffle(u32::MAX, sum as u64, lane.wrapping_sub(distance) % LANES as u32) as u32;
        if lane >= distance {
            sum += other;
        }
        distance *= 2;
    }
    (sum - value, arch::shuffle(u32::MAX, sum as u64, LANES as u32 - 1) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_ranges_ascend_with_pe_number() {
        for n_pes in [1, 2, 3, 7, 256] {
            assert_eq!((owner(0, n_pes), owner(u32::MAX, n_pes)), (0, n_pes - 1));
            for pe in 1..n_pes {
                let first = ((u64::from(pe) << 32).div_ceil(n_pes.into())) as u32;
                assert_eq!((owner(first - 1, n_pes), owner(first, n_pes)), (pe - 1, pe));
            }
        }
    }
}
