//! The kernel of the first half of dispatch, which ranks the choices, sends rows to the PEs of their experts and signals
//! their arrival.

use rushmem_device::arch;
use rushmem_device::prelude::*;

use crate::announce::{announce_rows, is_last_block};
use crate::buffers::{Batch, Buffers, Exchange, NO_PE, NO_RANK, Table, get, put_remote};
use crate::numbers::{SCALED, amax_bits, inverse_scale, quantized, scale_of};
use crate::record::{self, CHOICES};
use crate::warp::{AT_ONCE, Crew, LANES, count, is_first_of_equals, lane, load_row, of_lane, warps_of_block};

/// Sends each token once to each PE that has an expert of it, and announces the rows of the batch.
///
/// If no [`ep_place`](crate::ep_place) ran before (`placed` is false), also ranks the (token, choice) pairs and counts
/// the rows of each expert.
#[kernel(max_threads = 512)]
pub fn ep_send(ctx: &Ctx, buffers: Buffers, batch: Batch, placed: bool) -> Result {
    let (x, block, tokens) = (Exchange::new(ctx, &buffers), Block::current(), batch.count as u32);
    let call = if placed { x.call() } else { x.begin() };
    if Thread::index() == 0 {
        x.set_table(Table::Counts, buffers.experts + 1, tokens);
    }
    let sender = Sender {
        x,
        call,
        tokens: ctx.local(batch.tokens),
        choices: ctx.local(batch.choices),
        weights: ctx.local(batch.weights),
    };
    // Rows travel while the pairs are ranked.
    let crew = Crew::of(x, tokens);
    let (mut token, mut outcome) = (crew.id, Ok(()));
    while token < tokens {
        outcome = outcome.and(sender.send_row(token, crew));
        token += crew.count;
    }
    if !placed {
        sender.count_rows(tokens * buffers.top_k);
        sender.rank(tokens);
        block.sync();
    }
    token = block.id() + Warp::current().id() * block.count();
    while token < tokens {
        outcome = outcome.and(sender.send_record(token));
        token += warps_of_block() * block.count();
    }
    block.agree(outcome)?;
    if is_last_block(x)? { announce_rows(x, call) } else { Ok(()) }
}

#[derive(Clone, Copy)]
struct Sender<'a, 'k> {
    x: Exchange<'a, 'k>,
    call: u64,
    tokens: View<'k, u128>,
    choices: View<'k, i32>,
    weights: View<'k, f32>,
}

impl<'k> Sender<'_, 'k> {
    /// Counts this PE's rows for each expert in the block's share of the experts, with one warp per expert.
    #[inline(always)]
    fn count_rows(self, pairs: u32) {
        let warp = Warp::current();
        let share = Block::current().share(self.x.b.experts as usize);
        let mut expert = share.start as u32 + warp.id();
        while expert < share.end as u32 {
            let rows = count(self.choices, 0..pairs, expert);
            if warp.leader() {
                self.x.set_table(Table::Counts, expert, rows);
            }
            expert += warps_of_block();
        }
    }

    /// Ranks the (token, choice) pairs of the block's tokens, with one warp per pair.
    #[inline(always)]
    fn rank(self, tokens: u32) {
        let (x, block, warp) = (self.x, Block::current(), Warp::current());
        let mut slot = warp.id();
        loop {
            let (token, choice) = (block.id() + slot / CHOICES * block.count(), slot % CHOICES);
            if token >= tokens {
                return;
            }
            if choice < x.b.top_k {
                self.rank_pair(token * x.b.top_k + choice);
            }
            slot += warps_of_block();
        }
    }

    #[inline(always)]
    fn rank_pair(self, pair: u32) {
        let x = self.x;
        let expert = get(self.choices, pair as usize);
        let is_expert = expert >= 0 && (expert as u32) < x.b.experts;
        let rank = if is_expert { count(self.choices, 0..pair, expert as u32) } else { NO_RANK };
        if Warp::current().leader() {
            x.set_rank(pair, rank);
            if !is_expert && expert != -1 {
                x.reject(self.call, pair, expert);
            }
        }
    }

    /// Sends a token to the PEs of its experts.
    #[inline(always)]
    fn send_row(self, token: u32, crew: Crew) -> Result {
        let (x, me) = (self.x, self.x.ctx.my_pe());
        let (pe, at) = (self.owner(token), x.token_at(me, token));
        let is_far = self.is_far(pe);
        // A row for a NIC peer is put from here.
        let has_far = arch::ballot(u32::MAX, is_far) != 0;
        let near = if lane() == CHOICES && has_far { me } else { pe };
        let near = if is_first_of_equals(near) && !is_far { near } else { NO_PE };
        if x.b.quantizes != 0 {
            self.store_quantized(token, crew, near, at);
        } else {
            self.store(token, crew, near, at);
        }
        if !has_far {
            return Ok(());
        }
        crew.sync();
        let is_poster = is_first_of_equals(pe) && is_far && crew.rank < LANES;
        if is_poster { post(x, x.b.inbox, at, x.b.row_chunks, pe) } else { Ok(()) }
    }

    /// Sends the record of a token to the PEs of its experts, and keeps it for [`ep_reduce`](crate::ep_reduce). Called
    /// by one warp.
    #[inline(always)]
    fn send_record(self, token: u32) -> Result {
        let (x, me, warp) = (self.x, self.x.ctx.my_pe(), Warp::current());
        let (pe, at) = (self.owner(token), x.token_at(me, token));
        let is_far = self.is_far(pe);
        let near = if lane() == CHOICES { me } else { pe };
        let near = if is_first_of_equals(near) && !is_far { near } else { NO_PE };
        let word = record::word_of(x, self.choices, self.weights, token, self.call);
        each_near(x, near, x.b.records, |to| put_remote(to, (at * LANES + lane()) as usize, word));
        warp.sync();
        let is_poster = is_first_of_equals(pe) && is_far;
        if is_poster { post(x, x.b.records, at, LANES, pe) } else { Ok(()) }
    }

    /// Returns the PE that has the expert of the token's choice whose index is this lane, or [`NO_PE`] if it has none or
    /// is masked.
    #[inline(always)]
    fn owner(self, token: u32) -> u32 {
        let (b, choice) = (self.x.b, lane());
        if choice >= b.top_k {
            return NO_PE;
        }
        let expert = get(self.choices, (token * b.top_k + choice) as usize);
        let is_expert = expert >= 0 && (expert as u32) < b.experts;
        let pe = if is_expert { self.x.owner(expert as u32) } else { NO_PE };
        if pe == NO_PE || self.x.is_masked(pe) { NO_PE } else { pe }
    }

    #[inline(always)]
    fn is_far(self, pe: u32) -> bool {
        pe != NO_PE && self.x.ctx.ptr(self.x.b.inbox, pe).is_none()
    }

    /// Stores a token in row `at` of the inbox of each PE in `near`.
    #[inline(always)]
    fn store(self, token: u32, crew: Crew, near: u32, at: u32) {
        let (len, step) = (self.x.b.row_chunks as usize, crew.size as usize);
        let (from, to_first) = (token as usize * len, at as usize * len);
        let (mut i, lane) = (crew.rank as usize, lane() as usize);
        // Keep all lanes of a warp in the loop: `each_near` shuffles.
        while i - lane < len {
            let [a, b, c, d] = load_row(self.tokens, from, len, i, step);
            each_near(self.x, near, self.x.b.inbox, |to| {
                let put = |i: usize, chunk: u128| {
                    if i < len {
                        put_remote(to, to_first + i, chunk);
                    }
                };
                put(i, a);
                put(i + step, b);
                put(i + 2 * step, c);
                put(i + 3 * step, d);
            });
            i += AT_ONCE * step;
        }
    }

    /// Stores a token in e4m3, followed by its scales, in row `at` of the inbox of each PE in `near`.
    ///
    /// Each thread converts 16 elements. The 8 threads that share a scale are neighbours. The 4 scales of a warp form
    /// one chunk, which lane 0 stores.
    #[inline(always)]
    fn store_quantized(self, token: u32, crew: Crew, near: u32, at: u32) {
        const LANES_OF_SCALE: u32 = SCALED / 16;
        let (len, lane) = (self.x.b.hidden / 16, lane());
        let first = token as usize * self.x.bf16_chunks();
        let at = at as usize * self.x.b.row_chunks as usize;
        let mut i = crew.rank;
        // Keep all lanes of a warp in the loop: `each_near` shuffles.
        while i - lane < len {
            let load = |at: u32| if i < len { get(self.tokens, first + at as usize) } else { 0 };
            let (a, b) = (load(2 * i), load(2 * i + 1));
            let mut amax = amax_bits(a).max(amax_bits(b));
            let mut distance = LANES_OF_SCALE / 2;
            while distance > 0 {
                amax = amax.max(of_lane(amax, lane ^ distance));
                distance /= 2;
            }
            let (factor, scale) = (inverse_scale(f32::from_bits(amax)), scale_of(f32::from_bits(amax)));
            let numbers = quantized(a, factor) as u128 | (quantized(b, factor) as u128) << 64;
            let scale_of_lane = |from: u32| of_lane(scale.to_bits(), from * LANES_OF_SCALE);
            let (s, t) = (scale_of_lane(0) as u64, scale_of_lane(1) as u64);
            let (u, v) = (scale_of_lane(2) as u64, scale_of_lane(3) as u64);
            let scales = (s | t << 32) as u128 | ((u | v << 32) as u128) << 64;
            each_near(self.x, near, self.x.b.inbox, |to| {
                if i < len {
                    put_remote(to, at + i as usize, numbers);
                }
                if lane == 0 {
                    put_remote(to, at + (len + i / LANES) as usize, scales);
                }
            });
            i += crew.size;
        }
    }
}

/// Calls `f` with the copy of `object` on each PE in the `near` of a lane.
#[inline(always)]
fn each_near<'k, T: Pod>(x: Exchange<'_, 'k>, near: u32, object: SymSlice<T>, f: impl Fn(RemoteView<'k, T>)) {
    let mut lanes = arch::ballot(u32::MAX, near != NO_PE);
    while lanes != 0 {
        if let Some(there) = x.ctx.ptr(object, of_lane(near, lanes.trailing_zeros())) {
            f(there);
        }
        lanes &= lanes - 1;
    }
}

/// Puts row `at` of `object`, with `len` elements, from this PE's copy to that of a NIC peer.
#[inline(always)]
fn post<T: Pod>(x: Exchange, object: SymSlice<T>, at: u32, len: u32, pe: u32) -> Result {
    let (at, len) = (at as usize, len as usize);
    let row = object.slice(at * len..(at + 1) * len);
    x.ctx.put_nbi(Thread, row, row, pe)
}
