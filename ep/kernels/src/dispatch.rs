//! Kernels of the first half of dispatch, which rank the choices, store rows at their experts and signal their arrival.

use rushmem_device::arch;
use rushmem_device::prelude::*;

use crate::buffers::{
    Batch, Buffers, Exchange, Fault, NIC_PE, NO_PE, NO_RANK, Table, get, put_remote, refusal, rows_of, state,
    word_of,
};
use crate::numbers::{SCALED, amax_bits, inverse_scale, quantized, scale_of};
use crate::post::{Announcement, announce_to};
use crate::warp::{Crew, LANES, count, lane, warps_of_block};

/// Stores each token at the experts that it chose. A block, or a warp, processes one token at a time and loads it once.
///
/// If no [`ep_place`](crate::ep_place) ran before (`placed` is false), also ranks the (token, choice) pairs and counts
/// the rows of each expert. Rows for NIC peers go to the outbox.
#[kernel(max_threads = 512)]
pub fn ep_send(ctx: &Ctx, buffers: Buffers, batch: Batch, placed: bool) -> Result {
    let (x, block) = (Exchange::new(ctx, &buffers), Block::current());
    let call = if placed { x.call() } else { x.begin() };
    let Some(outbox) = ctx.ptr(buffers.outbox, ctx.my_pe()) else { return Err(Error::OutOfRange) };
    let (tokens, choices) = (ctx.local(batch.tokens), ctx.local(batch.choices));
    let sender = Sender { x, tokens, choices, outbox };
    if !placed {
        sender.count_rows(batch.count as u32 * buffers.top_k);
    }
    let crew = if placed { Crew::of(batch.count as u32) } else { Crew::block() };
    let mut token = crew.id;
    while token < batch.count as u32 {
        if !placed {
            sender.rank(token, call);
            block.sync();
        }
        let routes = sender.routes(token);
        if buffers.quantizes != 0 {
            sender.store_quantized(token, crew, routes);
        } else {
            sender.store(token, crew, routes);
        }
        token += crew.count;
    }
    Ok(())
}

/// Destination of a dispatched row. The PE is [`NIC_PE`] if the row goes to the outbox.
#[derive(Clone, Copy)]
struct Route {
    pe: u32,
    /// Low half: index of the row in the inbox of the destination PE. High half: index of the row in the outbox.
    rows: u64,
}

#[derive(Clone, Copy)]
struct Sender<'a, 'k> {
    x: Exchange<'a, 'k>,
    tokens: View<'k, u128>,
    choices: View<'k, i32>,
    outbox: RemoteView<'k, u128>,
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

    /// Ranks the (token, choice) pairs of a token, with one warp per pair.
    #[inline(always)]
    fn rank(self, token: u32, call: u64) {
        let (x, warp, top_k) = (self.x, Warp::current(), self.x.b.top_k);
        let mut choice = warp.id();
        while choice < top_k {
            let pair = token * top_k + choice;
            let expert = get(self.choices, pair as usize);
            let (mut rank, mut fault) = (NO_RANK, None);
            if expert >= 0 && (expert as u32) < x.b.experts {
                rank = count(self.choices, 0..pair, expert as u32);
                if rank >= x.b.capacity {
                    (rank, fault) = (NO_RANK, Some(Fault::FullExpert { expert: expert as u32 }));
                }
            } else if expert != -1 {
                fault = Some(Fault::BadChoice { pair, expert });
            }
            if warp.leader() {
                x.set_rank(pair, rank);
                if let Some(fault) = fault {
                    x.record(call, fault);
                }
            }
            choice += warps_of_block();
        }
    }

    /// Returns the destinations of a token's rows: lane `i` gets the one for choice `i`.
    #[inline(always)]
    fn routes(self, token: u32) -> Route {
        let (x, lane) = (self.x, lane());
        let pair = token * x.b.top_k + lane;
        let rank = if lane < x.b.top_k { x.rank(pair) } else { NO_RANK };
        if rank == NO_RANK {
            return Route { pe: NO_PE, rows: 0 };
        }
        let expert = get(self.choices, pair as usize) as u32;
        let (there, here) = (x.table(Table::To, expert) + rank, x.table(Table::BackFrom, expert) + rank);
        let (pe, _) = x.owner(expert);
        let pe = if x.ctx.ptr(x.b.inbox, pe).is_some() { pe } else { NIC_PE };
        Route { pe, rows: there as u64 | (here as u64) << 32 }
    }

    /// Calls `f` with each destination of a token: a buffer, and the row's first chunk in it. The buffer is the inbox
    /// of the expert's PE, or for a NIC peer, this PE's outbox.
    #[inline(always)]
    fn each_place(self, routes: Route, f: impl Fn(RemoteView<'k, u128>, usize)) {
        let (x, mut choice) = (self.x, 0);
        while choice < x.b.top_k {
            let pe = arch::shuffle(u32::MAX, routes.pe as u64, choice) as u32;
            let rows = arch::shuffle(u32::MAX, routes.rows, choice);
            if pe != NO_PE {
                let near = if pe == NIC_PE { None } else { x.ctx.ptr(x.b.inbox, pe) };
                let (buffer, row) = match near {
                    Some(there) => (there, rows as u32),
                    None => (self.outbox, (rows >> 32) as u32),
                };
                f(buffer, row as usize * x.b.row_chunks as usize);
            }
            choice += 1;
        }
    }

    /// Stores a token at all experts that it chose.
    #[inline(always)]
    fn store(self, token: u32, crew: Crew, routes: Route) {
        let (len, step) = (self.x.b.row_chunks as usize, crew.size as usize);
        let (first, mut i) = (token as usize * len, crew.rank as usize);
        let lane = lane() as usize;
        // Keep all lanes of a warp in the loop: `each_place` shuffles.
        while i - lane < len {
            let load = |i: usize| if i < len { get(self.tokens, first + i) } else { 0 };
            let (a, b, c, d) = (load(i), load(i + step), load(i + 2 * step), load(i + 3 * step));
            self.each_place(routes, |to, at| {
                let put = |i: usize, chunk: u128| {
                    if i < len {
                        put_remote(to, at + i, chunk);
                    }
                };
                put(i, a);
                put(i + step, b);
                put(i + 2 * step, c);
                put(i + 3 * step, d);
            });
            i += 4 * step;
        }
    }

    /// Stores a token in e4m3, followed by its scales, at all experts that it chose.
    ///
    /// Each thread converts 16 elements. The 8 threads that share a scale are neighbours. The 4 scales of a warp form
    /// one chunk, which lane 0 stores.
    #[inline(always)]
    fn store_quantized(self, token: u32, crew: Crew, routes: Route) {
        const LANES_OF_SCALE: u32 = SCALED / 16;
        let (len, lane) = (self.x.b.hidden / 16, lane());
        let first = token as usize * self.x.bf16_chunks();
        let mut i = crew.rank;
        // Keep all lanes of a warp in the loop: `each_place` shuffles.
        while i - lane < len {
            let load = |at: u32| if i < len { get(self.tokens, first + at as usize) } else { 0 };
            let (a, b) = (load(2 * i), load(2 * i + 1));
            let mut amax = amax_bits(a).max(amax_bits(b));
            let mut distance = LANES_OF_SCALE / 2;
            while distance > 0 {
                amax = amax.max(arch::shuffle(u32::MAX, amax as u64, lane ^ distance) as u32);
                distance /= 2;
            }
            let (factor, scale) = (inverse_scale(f32::from_bits(amax)), scale_of(f32::from_bits(amax)));
            let numbers = quantized(a, factor) as u128 | (quantized(b, factor) as u128) << 64;
            let scale_of_lane =
                |from: u32| arch::shuffle(u32::MAX, scale.to_bits() as u64, from * LANES_OF_SCALE) as u32;
            let (s, t) = (scale_of_lane(0) as u64, scale_of_lane(1) as u64);
            let (u, v) = (scale_of_lane(2) as u64, scale_of_lane(3) as u64);
            let scales = (s | t << 32) as u128 | ((u | v << 32) as u128) << 64;
            self.each_place(routes, |to, at| {
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

/// Signals to each expert's PE how many rows it gets. A NIC peer also gets the rows: one put with signal per expert.
///
/// Each thread serves one expert. If the call has a fault, all experts get a rejection instead.
#[kernel(max_threads = 128)]
pub fn ep_announce(ctx: &Ctx, buffers: Buffers) -> Result {
    let x = Exchange::new(ctx, &buffers);
    let (call, chunks) = (x.call(), buffers.row_chunks as usize);
    let is_refused = x.state(state::FAULT_CALL) == call;
    let mut expert = Thread::index() as u32;
    while expert < buffers.experts {
        let count = if is_refused { 0 } else { x.table(Table::Counts, expert) };
        let (pe, local) = x.owner(expert);
        let (to, from) = (x.table(Table::To, expert), x.table(Table::BackFrom, expert));
        let announcement = Announcement {
            dst: rows_of(buffers.inbox, chunks, to, count),
            src: buffers.outbox,
            first: from as usize * chunks,
            is_p2p: ctx.ptr(buffers.inbox, pe).is_some(),
            word: buffers.words.at(buffers.arrived(x.word(local, ctx.my_pe()))),
            value: if is_refused { refusal(call) } else { word_of(call) | count as u64 },
        };
        announce_to(ctx, pe, announcement)?;
        expert += Thread::count() as u32;
    }
    if is_refused { Err(Error::OutOfRange) } else { Ok(()) }
}
