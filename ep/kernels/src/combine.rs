//! Combine: rows go back to the PEs of their tokens, which sum them.

use rushmem_device::arch;
use rushmem_device::prelude::*;

use crate::buffers::{Batch, Buffers, Exchange, NO_RANK, Table, get, put, put_remote, rows_of, word_of};
use crate::numbers::{chunk, elements};
use crate::post::{Announcement, announce_to};
use crate::warp::{Crew, copy_row, each_row, lane};

/// Stores the rows `results`, which lie like the rows that experts got, at P2P peers. A warp copies a row.
#[kernel(max_threads = 512)]
pub fn give_back(ctx: &Ctx, buffers: Buffers, results: SymSlice<u128>) -> Result {
    let (x, results) = (Exchange::new(ctx, &buffers), ctx.local(results));
    let chunks = x.bf16_chunks();
    each_row(x, |word, row| {
        let (_, source) = x.expert_and_source(word);
        if let Some(back) = ctx.ptr(buffers.back, source) {
            let from = (x.table(Table::From, word) + row) as usize * chunks;
            let to = (x.table(Table::BackTo, word) + row) as usize * chunks;
            copy_row(chunks, |i| get(results, from + i), |i, chunk| put_remote(back, to + i, chunk));
        }
    });
    Ok(())
}

/// Tells each source that its rows are back. A NIC peer gets the rows too, straight from `results`: one put with signal
/// for each expert.
#[kernel(max_threads = 128)]
pub fn announce_back(ctx: &Ctx, buffers: Buffers, results: SymSlice<u128>) -> Result {
    let x = Exchange::new(ctx, &buffers);
    let (call, chunks) = (x.call(), x.bf16_chunks());
    let mut word = Thread::index() as u32;
    while word < x.n_words() {
        let (local, source) = x.expert_and_source(word);
        let count = x.rows(word);
        let (from, to) = (x.table(Table::From, word), x.table(Table::BackTo, word));
        let expert = ctx.my_pe() * buffers.local_experts + local;
        let announcement = Announcement {
            dst: rows_of(buffers.back, chunks, to, count),
            src: results,
            first: from as usize * chunks,
            word: buffers.words.at(buffers.returned(expert)),
            value: word_of(call) | count as u64,
        };
        announce_to(ctx, source, announcement)?;
        word += Thread::count() as u32;
    }
    Ok(())
}

/// Waits for the rows of all experts. Then sums the rows of each token with their weights, in order of choice, in
/// binary32, and rounds the sum once to bf16.
///
/// All puts of this PE are complete at the end. So the results of its experts may be overwritten.
#[kernel(max_threads = 512)]
pub fn reduce(ctx: &Ctx, buffers: Buffers, batch: Batch, sums: SymSlice<u128>) -> Result {
    let (x, block) = (Exchange::new(ctx, &buffers), Block::current());
    let returned = x.signals(buffers.returned(0), buffers.experts);
    ctx.wait_until_all(block, &WaitWords::new(returned, Cmp::Ge, word_of(x.call())))?;
    if block.id() == 0 {
        ctx.quiet(block)?;
    }
    let (choices, weights) = (ctx.local(batch.choices), ctx.local(batch.weights));
    let summer = Summer { x, choices, weights, back: ctx.local(buffers.back) };
    let (sums, chunks, lane) = (ctx.local(sums), x.bf16_chunks(), lane());
    let crew = Crew::of(batch.count as u32);
    let mut token = crew.id;
    while token < batch.count as u32 {
        let sources = summer.sources(token);
        let mut i = crew.rank;
        // All lanes of a warp stay together.
        while i - lane < chunks as u32 {
            let sum = summer.sum(sources, i as usize);
            if i < chunks as u32 {
                put(sums, token as usize * chunks + i as usize, sum);
            }
            i += crew.size;
        }
        token += crew.count;
    }
    Ok(())
}

/// The row of a lane without one.
const NO_ROW: u32 = u32::MAX;

/// The operands of the sums.
#[derive(Clone, Copy)]
struct Summer<'a, 'k> {
    x: Exchange<'a, 'k>,
    choices: View<'k, i32>,
    weights: View<'k, f32>,
    back: View<'k, u128>,
}

/// A chunk of a row, and its weight; `false` for a choice without an expert.
type Term = (bool, f32, u128);

impl Summer<'_, '_> {
    /// Returns the rows of a token and their weights: lane `k` has the row of choice `k`, and above it the weight.
    #[inline(always)]
    fn sources(self, token: u32) -> u64 {
        let (x, lane) = (self.x, lane());
        let pair = token * x.b.top_k + lane;
        let rank = if lane < x.b.top_k { x.rank(pair) } else { NO_RANK };
        if rank == NO_RANK {
            return NO_ROW as u64;
        }
        let expert = get(self.choices, pair as usize) as u32;
        let weight = get(self.weights, pair as usize);
        (x.table(Table::BackFrom, expert) + rank) as u64 | (weight.to_bits() as u64) << 32
    }

    /// Returns chunk `i` of the sum of the rows.
    #[inline(always)]
    fn sum(self, sources: u64, i: usize) -> u128 {
        let (mut choice, mut sum) = (0, [0.0; 8]);
        while choice < self.x.b.top_k {
            // All loads come before the first addition, which waits for one.
            let (a, b) = (self.term(sources, choice, i), self.term(sources, choice + 1, i));
            let (c, d) = (self.term(sources, choice + 2, i), self.term(sources, choice + 3, i));
            sum = add(add(add(add(sum, a), b), c), d);
            choice += 4;
        }
        chunk(sum)
    }

    /// Returns chunk `i` of the row of a choice.
    #[inline(always)]
    fn term(self, sources: u64, choice: u32, i: usize) -> Term {
        // Lanes from `top_k` on have no row.
        let source = arch::shuffle(u32::MAX, sources, choice);
        let row = source as u32;
        if row == NO_ROW {
            return (false, 0.0, 0);
        }
        let chunk = get(self.back, row as usize * self.x.bf16_chunks() + i);
        (true, f32::from_bits((source >> 32) as u32), chunk)
    }
}

#[inline(always)]
fn add(sum: [f32; 8], (is_there, weight, chunk): Term) -> [f32; 8] {
    let [a, b, c, d, e, f, g, h] = elements(chunk);
    let [s, t, u, v, w, x, y, z] = sum;
    let add = |sum: f32, element: f32| if is_there { sum + weight * element } else { sum };
    [add(s, a), add(t, b), add(u, c), add(v, d), add(w, e), add(x, f), add(y, g), add(z, h)]
}
