//! Kernels of combine: the PEs of the experts send partial sums back to the PEs of the tokens, which add them.

use rushmem_device::prelude::*;

use crate::announce::{announce_partials, is_last_block, unless_lost};
use crate::buffers::{Buffers, Exchange, NO_PE, get, put, put_remote, state};
use crate::numbers::{chunk, elements, join};
use crate::record::{Arrival, CHOICES, each_arrival, expert_of};
use crate::warp::{AT_ONCE, Crew, LANES, is_first_of_equals, lane, load_row, of_lane};

/// Consecutive elements of a sum in binary32, for each of the chunks that a thread computes at once.
type Sums = [[f32; 8]; AT_ONCE];

/// Sends the weighted sum of the results of this PE's experts for each token to the PE of the token, and announces the
/// sums. `results` has the rows at the positions that [`ep_receive`](crate::ep_receive) computed.
#[kernel(max_threads = 512)]
pub fn ep_combine(ctx: &Ctx, buffers: Buffers, results: SymSlice<u128>) -> Result {
    let x = Exchange::new(ctx, &buffers);
    // The sums would be wrong. Peers that wait for them learn of the loss, or reach their deadline.
    if x.state(state::FAILED) == x.call() {
        return Err(Error::InGroup);
    }
    let (results, outbox) = (ctx.local(results), ctx.ptr(buffers.outbox, ctx.my_pe()));
    let Some(outbox) = outbox else { return Err(Error::OutOfRange) };
    let (chunks, mut outcome) = (x.bf16_chunks(), Ok(()));
    each_arrival(x, |crew, arrival| {
        let there = ctx.ptr(buffers.back, arrival.source);
        let to_row = match there {
            Some(_) => x.token_at(ctx.my_pe(), arrival.token),
            None => x.token_at(arrival.source, arrival.token),
        };
        let partial = Partial { to: there.unwrap_or(outbox), x, row: to_row };
        let (mut i, step) = (crew.rank as usize, crew.size as usize);
        // Keep all lanes of a warp in the loop, which shuffles.
        while i - (lane() as usize) < chunks {
            partial.store(i, step, weighted(results, chunks, i, step, arrival));
            i += AT_ONCE * step;
        }
        if there.is_none() {
            crew.sync();
            if crew.rank == 0 {
                outcome = outcome.and(post(x, to_row, arrival));
            }
        }
    });
    Block::current().agree(outcome)?;
    if is_last_block(x)? { announce_partials(x, x.call()) } else { Ok(()) }
}

/// Returns the weighted sums of the results for an arrival, in order of choice: chunk `i` and those `step`, `2 * step`
/// and `3 * step` after it.
#[inline(always)]
fn weighted(results: View<u128>, chunks: usize, i: usize, step: usize, arrival: Arrival) -> Sums {
    let load = |choice: u32| {
        let first = of_lane(arrival.row, choice) as usize * chunks;
        load_row(results, first, chunks, i, step)
    };
    let (mut sums, mut hits) = ([[0.0; 8]; AT_ONCE], arrival.hits);
    let mut next = load(hits.trailing_zeros());
    while hits != 0 {
        let (rows, weight) = (next, of_lane(arrival.weight.to_bits(), hits.trailing_zeros()));
        hits &= hits - 1;
        // Load the next result before this one is needed.
        if hits != 0 {
            next = load(hits.trailing_zeros());
        }
        let weight = f32::from_bits(weight);
        sums = each(sums, rows, |sum, row| add(sum, elements(row).map(|element| weight * element)));
    }
    sums
}

#[inline(always)]
fn each<T: Copy>(
    [a, b, c, d]: Sums,
    [e, f, g, h]: [T; AT_ONCE],
    add: impl Fn([f32; 8], T) -> [f32; 8],
) -> Sums {
    [add(a, e), add(b, f), add(c, g), add(d, h)]
}

#[inline(always)]
fn add(sum: [f32; 8], terms: [f32; 8]) -> [f32; 8] {
    let [a, b, c, d, e, f, g, h] = sum;
    let [s, t, u, v, w, x, y, z] = terms;
    [a + s, b + t, c + u, d + v, e + w, f + x, g + y, h + z]
}

/// The partial sum of a token, in row `row` of a buffer. In binary32, chunk `i` of the row has the first half of
/// elements `8 * i ..`, and the second half of the row has their second halves.
#[derive(Clone, Copy)]
struct Partial<'a, 'k> {
    to: RemoteView<'k, u128>,
    x: Exchange<'a, 'k>,
    row: u32,
}

impl Partial<'_, '_> {
    #[inline(always)]
    fn store(self, i: usize, step: usize, [a, b, c, d]: Sums) {
        let chunks = self.x.bf16_chunks();
        let first = self.row as usize * self.x.b.partial_chunks() as usize;
        let is_wide = self.x.b.wide_partials != 0;
        let put = |i: usize, sum: [f32; 8]| {
            if i >= chunks {
                return;
            }
            if is_wide {
                let [a, b, c, d, e, f, g, h] = sum.map(f32::to_bits);
                put_remote(self.to, first + i, join([a, b, c, d]));
                put_remote(self.to, first + chunks + i, join([e, f, g, h]));
            } else {
                put_remote(self.to, first + i, chunk(sum));
            }
        };
        put(i, a);
        put(i + step, b);
        put(i + 2 * step, c);
        put(i + 3 * step, d);
    }
}

/// Puts row `row` of the outbox to a NIC peer.
#[inline(always)]
fn post(x: Exchange, row: u32, arrival: Arrival) -> Result {
    let len = x.b.partial_chunks() as usize;
    let part = |row: u32| row as usize * len..(row as usize + 1) * len;
    let to = x.b.back.slice(part(x.token_at(x.ctx.my_pe(), arrival.token)));
    x.ctx.put_nbi(Thread, to, x.b.outbox.slice(part(row)), arrival.source)
}

/// Waits for the partial sums of all PEs, adds those of each token in order of PE, in binary32, and rounds the sum to
/// bf16. When the kernel returns, all puts of this PE are complete.
#[kernel(max_threads = 512)]
pub fn ep_reduce(ctx: &Ctx, buffers: Buffers, sums: SymSlice<u128>) -> Result {
    let (x, block, me) = (Exchange::new(ctx, &buffers), Block::current(), ctx.my_pe());
    x.await_signals(buffers.returned(0), x.call())?;
    if block.id() == 0 {
        unless_lost(ctx.quiet(block))?;
    }
    let (records, sums, chunks) = (ctx.local(buffers.records), ctx.local(sums), x.bf16_chunks());
    let tokens = x.tokens_of(me);
    let crew = Crew::of(x, tokens);
    let mut token = crew.id;
    while token < tokens {
        let word = get(records, (x.token_at(me, token) * LANES + lane()) as usize);
        let owners = owners(x, word);
        let (mut i, step) = (crew.rank as usize, crew.size as usize);
        // Keep all lanes of a warp in the loop, which shuffles.
        while i - (lane() as usize) < chunks {
            let [a, b, c, d] = total(x, token, owners, i, step);
            let store = |i: usize, sum: [f32; 8]| {
                if i < chunks {
                    put(sums, token as usize * chunks + i, chunk(sum));
                }
            };
            store(i, a);
            store(i + step, b);
            store(i + 2 * step, c);
            store(i + 3 * step, d);
            i += AT_ONCE * step;
        }
        token += crew.count;
    }
    Ok(())
}

/// PEs that have an expert of a token, in ascending order: lane `i` has the one of index `i`.
#[derive(Clone, Copy)]
struct Owners {
    pe: u32,
    count: u32,
}

/// Returns the PEs that have an expert of a token, given this lane's word of its record.
#[inline(always)]
fn owners(x: Exchange, word: u32) -> Owners {
    let pe = expert_of(word).map_or(NO_PE, |expert| x.owner(expert));
    let pe = if is_first_of_equals(pe) { pe } else { NO_PE };
    let (mut order, mut lane_of) = (0, 0);
    while lane_of < CHOICES {
        order += (of_lane(pe, lane_of) < pe) as u32;
        lane_of += 1;
    }
    let (mut owners, mut at) = (Owners { pe: NO_PE, count: 0 }, 0);
    while at < CHOICES {
        let (found, its_order) = (of_lane(pe, at), of_lane(order, at));
        if found != NO_PE {
            owners.count += 1;
            if its_order == lane() {
                owners.pe = found;
            }
        }
        at += 1;
    }
    owners
}

/// Returns the sum of a token's partial sums: chunk `i` and those `step`, `2 * step` and `3 * step` after it.
#[inline(always)]
fn total(x: Exchange, token: u32, owners: Owners, i: usize, step: usize) -> Sums {
    let (back, chunks) = (x.ctx.local(x.b.back), x.bf16_chunks());
    let (mut sums, mut at) = ([[0.0; 8]; AT_ONCE], 0);
    while at < owners.count {
        let pe = of_lane(owners.pe, at);
        let first = x.token_at(pe, token) as usize * x.b.partial_chunks() as usize;
        let low = load_row(back, first, chunks, i, step);
        if x.b.wide_partials != 0 {
            let high = load_row(back, first + chunks, chunks, i, step);
            let [a, b, c, d] = low;
            let [e, f, g, h] = high;
            sums = each(sums, [(a, e), (b, f), (c, g), (d, h)], |sum, halves| add(sum, wide(halves)));
        } else {
            sums = each(sums, low, |sum, row| add(sum, elements(row)));
        }
        at += 1;
    }
    sums
}

/// Unpacks 8 elements in binary32.
#[inline(always)]
fn wide((low, high): (u128, u128)) -> [f32; 8] {
    let at = |chunk: u128, i: u32| f32::from_bits((chunk >> (32 * i)) as u32);
    let (low, high) = (|i| at(low, i), |i| at(high, i));
    [low(0), low(1), low(2), low(3), high(0), high(1), high(2), high(3)]
}
