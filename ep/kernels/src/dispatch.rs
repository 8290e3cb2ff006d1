//! The start of dispatch: ranks, rows and signals.

use rushmem_device::arch;
use rushmem_device::prelude::*;

use crate::buffers::{Batch, Buffers, Exchange, Fault, NO_RANK, refusal, state, word_of};
use crate::numbers::{SCALED, amax_bits, inverse_scale, quantized, scale_of};
use crate::post::{Announcement, announce_to};
use crate::warp::{LANES, count, warps_of_block};

/// Stores each token at the experts of its choices. A block takes one token at a time and loads it once.
///
/// If no [`place`](crate::place) came before (`placed` is false), it also ranks the pairs and counts the rows of each
/// expert. Rows for NIC peers go to the outbox.
#[kernel(max_threads = 512)]
pub fn send(ctx: &Ctx, buffers: Buffers, batch: Batch, placed: bool) -> Result {
    let (x, block) = (Exchange { ctx, b: &buffers }, Block::current());
    let pairs = batch.count as usize * buffers.top_k as usize;
    let call = if placed { x.call() } else { x.begin() };
    if !placed {
        count_rows(x, batch, pairs);
    }
    let mut token = block.id() as usize;
    while token < batch.count as usize {
        if !placed {
            rank(x, batch, token, call);
            block.sync();
        }
        let row = Row { x, batch, token };
        if buffers.quantizes != 0 { row.store_quantized(block) } else { row.store(block) }
        token += block.count() as usize;
    }
    Ok(())
}

/// Counts the rows of the block's share of the experts, a warp for each.
#[inline(always)]
fn count_rows(x: Exchange, batch: Batch, pairs: usize) {
    let (choices, warp) = (x.ctx.local(batch.choices), Warp::current());
    let share = Block::current().share(x.b.experts as usize);
    let mut expert = share.start + warp.id() as usize;
    while expert < share.end {
        let rows = count(choices, 0..pairs, expert as u32);
        if warp.leader() {
            x.ctx.local(x.b.counts).store(expert, rows);
        }
        expert += warps_of_block();
    }
}

/// Ranks the pairs of a token, a warp for each.
#[inline(always)]
fn rank(x: Exchange, batch: Batch, token: usize, call: u64) {
    let (choices, warp, top_k) = (x.ctx.local(batch.choices), Warp::current(), x.b.top_k as usize);
    let mut choice = warp.id() as usize;
    while choice < top_k {
        let pair = token * top_k + choice;
        let expert = choices.load(pair);
        let mut rank = NO_RANK;
        let fault = if expert == -1 {
            None
        } else if expert < 0 || expert as u32 >= x.b.experts {
            Some(Fault::BadChoice { pair: pair as u32, expert })
        } else {
            rank = count(choices, 0..pair, expert as u32);
            if rank < x.b.capacity { None } else { Some(Fault::FullExpert { expert: expert as u32 }) }
        };
        if warp.leader() {
            let stored = if fault.is_some() { NO_RANK } else { rank };
            x.ctx.local(x.b.ranks).store(pair, stored);
            if let Some(fault) = fault {
                x.record(call, fault);
            }
        }
        choice += warps_of_block();
    }
}

/// A token on its way to its experts.
#[derive(Clone, Copy)]
struct Row<'a, 'k> {
    x: Exchange<'a, 'k>,
    batch: Batch,
    token: usize,
}

impl<'k> Row<'_, 'k> {
    /// Returns the token's chunks.
    #[inline(always)]
    fn source(&self) -> View<'k, u128> {
        self.x.ctx.local(self.x.bf16_rows_of(self.batch.tokens, self.token as u32, 1))
    }

    /// Returns the place of the row of a choice: at the PE of its expert, or in the outbox. `None` if the choice has no
    /// expert.
    #[inline(always)]
    fn place<T: Pod>(&self, choice: usize) -> Option<RemoteView<'k, T>> {
        let (x, pair) = (self.x, self.token * self.x.b.top_k as usize + choice);
        let rank = x.ctx.local(x.b.ranks).load(pair);
        if rank == NO_RANK {
            return None;
        }
        let expert = x.ctx.local(self.batch.choices).load(pair) as u32;
        let first = x.ctx.local(x.b.to).load(expert as usize);
        let (pe, _) = x.owner(expert);
        let there = x.ctx.ptr(x.rows_of(x.b.inbox, first + rank, 1).cast(), pe);
        if there.is_some() {
            return there;
        }
        let first = x.ctx.local(x.b.back_from).load(expert as usize);
        x.ctx.ptr(x.rows_of(x.b.outbox, first + rank, 1).cast(), x.ctx.my_pe())
    }

    /// Stores the row at all experts of the token.
    #[inline(always)]
    fn store(&self, block: Block) {
        let (from, len, step) = (self.source(), self.x.b.row_chunks as usize, block.size() as usize);
        let mut i = block.rank() as usize;
        while i < len {
            let second = i + step;
            let a = from.load(i);
            let b = if second < len { from.load(second) } else { 0 };
            let mut choice = 0;
            while choice < self.x.b.top_k as usize {
                if let Some(to) = self.place(choice) {
                    to.store(i, a);
                    if second < len {
                        to.store(second, b);
                    }
                }
                choice += 1;
            }
            i += 2 * step;
        }
    }

    /// Stores the row in e4m3 at all experts of the token, with its scales behind it.
    ///
    /// A thread converts 16 elements. The 8 threads with the elements of a scale are neighbours.
    #[inline(always)]
    fn store_quantized(&self, block: Block) {
        const LANES_OF_SCALE: usize = SCALED / 16;
        let (from, len) = (self.source(), self.x.b.hidden as usize / 16);
        let (step, lane) = (block.size() as usize, block.rank() % LANES as u32);
        let lanes = 0xff << (lane & !(LANES_OF_SCALE as u32 - 1));
        let mut i = block.rank() as usize;
        // The threads of a scale are all inside, or all outside.
        while i < len {
            let (a, b) = (from.load(2 * i), from.load(2 * i + 1));
            let mut amax = amax_bits(a).max(amax_bits(b));
            let mut distance = LANES_OF_SCALE as u32 / 2;
            while distance > 0 {
                amax = amax.max(arch::shuffle(lanes, amax as u64, lane ^ distance) as u32);
                distance /= 2;
            }
            let amax = f32::from_bits(amax);
            let factor = inverse_scale(amax);
            let numbers = quantized(a, factor) as u128 | (quantized(b, factor) as u128) << 64;
            let mut choice = 0;
            while choice < self.x.b.top_k as usize {
                if let Some(to) = self.place(choice) {
                    to.store(i, numbers);
                    if i.is_multiple_of(LANES_OF_SCALE) {
                        self.store_scale(choice, i / LANES_OF_SCALE, scale_of(amax));
                    }
                }
                choice += 1;
            }
            i += step;
        }
    }

    /// Stores a scale behind the numbers of a row.
    #[inline(always)]
    fn store_scale(&self, choice: usize, index: usize, scale: f32) {
        if let Some(to) = self.place::<f32>(choice) {
            to.store(self.x.b.hidden as usize / 4 + index, scale);
        }
    }
}

/// Tells the PE of each expert how many rows it gets. A NIC peer gets the rows too: one put with signal for each expert.
///
/// A thread serves an expert. If the call has a fault, every expert gets a refusal instead.
#[kernel(max_threads = 512)]
pub fn announce(ctx: &Ctx, buffers: Buffers) -> Result {
    let x = Exchange { ctx, b: &buffers };
    let call = x.call();
    let is_refused = x.state(state::FAULT_CALL) == call;
    let mut expert = Thread::index() as u32;
    while expert < buffers.experts {
        let at = expert as usize;
        let count = if is_refused { 0 } else { ctx.local(buffers.counts).load(at) };
        let value = if is_refused { refusal(call) } else { word_of(call) | count as u64 };
        let (pe, local) = x.owner(expert);
        let (to, from) = (ctx.local(buffers.to).load(at), ctx.local(buffers.back_from).load(at));
        let src = if ctx.ptr(buffers.inbox, pe).is_some() { 0 } else { count };
        let announcement = Announcement {
            dst: x.rows_of(buffers.inbox, to, count),
            src: x.rows_of(buffers.outbox, from, src),
            word: buffers.arrived.at(x.arrived_word(local, ctx.my_pe())),
            value,
        };
        announce_to(ctx, pe, announcement)?;
        expert += Thread::count() as u32;
    }
    if is_refused { Err(Error::OutOfRange) } else { Ok(()) }
}
