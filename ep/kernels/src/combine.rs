//! Combine: rows go back to the PEs of their tokens, which sum them.

use rushmem_device::prelude::*;

use crate::buffers::{Batch, Buffers, Exchange, NO_RANK, count_of, word_of};
use crate::numbers::{chunk, elements};
use crate::post::{Announcement, announce_to};
use crate::warp::{copy_chunks, each_row};

/// Stores the rows `results`, which lie like the rows that experts got, at P2P peers. A warp copies a row.
#[kernel(max_threads = 512)]
pub fn give_back(ctx: &Ctx, buffers: Buffers, results: SymSlice<u128>) -> Result {
    let x = Exchange { ctx, b: &buffers };
    each_row(ctx.local(buffers.arrived), |word, row| {
        let (_, source) = x.expert_and_source(word);
        let to = ctx.local(buffers.back_to).load(word) + row;
        if let Some(to) = ctx.ptr(x.bf16_rows_of(buffers.back, to, 1), source) {
            let from = ctx.local(buffers.from).load(word) + row;
            let from = ctx.local(x.bf16_rows_of(results, from, 1));
            copy_chunks(Warp::current(), from.len(), |i| from.load(i), |i, chunk| to.store(i, chunk));
        }
    });
    Ok(())
}

/// Tells each source that its rows are back. A NIC peer gets the rows too, straight from `results`: one put with signal
/// for each expert.
#[kernel(max_threads = 512)]
pub fn announce_back(ctx: &Ctx, buffers: Buffers, results: SymSlice<u128>) -> Result {
    let x = Exchange { ctx, b: &buffers };
    let (call, words) = (x.call(), ctx.local(buffers.arrived));
    let mut word = Thread::index();
    while word < words.len() {
        let (local, source) = x.expert_and_source(word);
        let count = count_of(words.load(word));
        let (from, to) = (ctx.local(buffers.from).load(word), ctx.local(buffers.back_to).load(word));
        let expert = ctx.my_pe() * buffers.local_experts + local;
        let src = if ctx.ptr(buffers.back, source).is_some() { 0 } else { count };
        let announcement = Announcement {
            dst: x.bf16_rows_of(buffers.back, to, count),
            src: x.bf16_rows_of(results, from, src),
            word: buffers.returned.at(expert as usize),
            value: word_of(call) | count as u64,
        };
        announce_to(ctx, source, announcement)?;
        word += Thread::count();
    }
    Ok(())
}

/// Waits for the rows of all experts. Then sums the rows of each token with their weights, in order of choice, in
/// binary32, and rounds the sum once to bf16.
///
/// All puts of this PE are complete at the end. So the results of its experts may be overwritten.
#[kernel(max_threads = 512)]
pub fn reduce(ctx: &Ctx, buffers: Buffers, batch: Batch, sums: SymSlice<u128>) -> Result {
    let (x, block) = (Exchange { ctx, b: &buffers }, Block::current());
    ctx.wait_until_all(block, &WaitWords::new(buffers.returned, Cmp::Ge, word_of(x.call())))?;
    let back = ctx.local(buffers.back);
    let mut token = block.id() as usize;
    while token < batch.count as usize {
        let to = ctx.local(x.bf16_rows_of(sums, token as u32, 1));
        let mut i = block.rank() as usize;
        while i < to.len() {
            let pair = Pair { x, batch, first: token * buffers.top_k as usize };
            to.store(i, pair.sum(back, i));
            i += block.size() as usize;
        }
        token += block.count() as usize;
    }
    if block.id() == 0 { ctx.quiet(block) } else { Ok(()) }
}

/// The pairs of a token.
#[derive(Clone, Copy)]
struct Pair<'a, 'k> {
    x: Exchange<'a, 'k>,
    batch: Batch,
    first: usize,
}

/// A chunk of a row, and its weight; `None` for a choice without an expert.
type Term = Option<(f32, u128)>;

impl Pair<'_, '_> {
    /// Returns chunk `i` of the sum of the token's rows.
    #[inline(always)]
    fn sum(self, back: View<u128>, i: usize) -> u128 {
        let (mut sum, mut choice, top_k) = ([0.0; 8], 0, self.x.b.top_k as usize);
        while choice < top_k {
            // All loads come before the first addition, which waits for one.
            let [a, b, c, d] = [0, 1, 2, 3].map(|k| self.term(back, choice + k, i));
            sum = add(add(add(add(sum, a), b), c), d);
            choice += 4;
        }
        chunk(sum)
    }

    /// Returns chunk `i` of the row of a choice.
    #[inline(always)]
    fn term(self, back: View<u128>, choice: usize, i: usize) -> Term {
        let (x, pair) = (self.x, self.first + choice);
        if choice >= x.b.top_k as usize {
            return None;
        }
        let rank = x.ctx.local(x.b.ranks).load(pair);
        if rank == NO_RANK {
            return None;
        }
        let expert = x.ctx.local(self.batch.choices).load(pair) as usize;
        let row = x.ctx.local(x.b.back_from).load(expert) + rank;
        let weight = x.ctx.local(self.batch.weights).load(pair);
        Some((weight, back.load(row as usize * (x.b.hidden as usize / 8) + i)))
    }
}

#[inline(always)]
fn add(sum: [f32; 8], term: Term) -> [f32; 8] {
    let Some((weight, chunk)) = term else { return sum };
    let [a, b, c, d, e, f, g, h] = elements(chunk);
    let [s, t, u, v, w, x, y, z] = sum;
    [
        s + weight * a,
        t + weight * b,
        u + weight * c,
        v + weight * d,
        w + weight * e,
        x + weight * f,
        y + weight * g,
        z + weight * h,
    ]
}
