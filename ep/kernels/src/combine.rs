//! Combine: rows go back to the PEs of their tokens, which sum them.

use rushmem_device::arch;
use rushmem_device::prelude::*;

use crate::buffers::{
    Batch, Buffers, Exchange, NIC_PE, NO_PE, NO_RANK, Table, count_of, get, get_remote, put, rows_of, word_of,
};
use crate::numbers::{chunk, elements};
use crate::post::{Announcement, announce_to};
use crate::warp::{Crew, lane};

/// Tells each source that the rows of its tokens are ready. They are in `results`, which is like the rows that experts
/// got. A NIC peer gets the rows too, straight from `results`: one put with signal for each expert.
///
/// The word carries the first row of the source, behind the first row of the expert. So a P2P peer can read the rows.
#[kernel(max_threads = 128)]
pub fn ep_announce_back(ctx: &Ctx, buffers: Buffers, results: SymSlice<u128>) -> Result {
    let x = Exchange::new(ctx, &buffers);
    let (call, chunks) = (x.call(), x.bf16_chunks());
    let mut word = Thread::index() as u32;
    while word < x.n_words() {
        let (local, source) = x.expert_and_source(word);
        let (from, to) = (x.table(Table::From, word), x.table(Table::BackTo, word));
        let expert = ctx.my_pe() * buffers.local_experts + local;
        let announcement = Announcement {
            dst: rows_of(buffers.back, chunks, to, x.rows(word)),
            src: results,
            first: from as usize * chunks,
            is_p2p: ctx.ptr(results, source).is_some(),
            word: buffers.words.at(buffers.returned(expert)),
            value: word_of(call) | (from - x.table(Table::Offsets, local)) as u64,
        };
        announce_to(ctx, source, announcement)?;
        word += Thread::count() as u32;
    }
    Ok(())
}

/// Waits for all experts. Then sums the rows of each token with their weights, in order of choice, in binary32, and
/// rounds the sum once to bf16.
///
/// It reads the rows of P2P peers from their `results`, and the rows of NIC peers from `back`. `compacted` is the
/// argument of [`ep_receive`](crate::ep_receive). All puts of this PE are complete at the end.
#[kernel(max_threads = 384)]
pub fn ep_reduce(
    ctx: &Ctx,
    buffers: Buffers,
    batch: Batch,
    results: SymSlice<u128>,
    sums: SymSlice<u128>,
    compacted: bool,
) -> Result {
    let (x, block) = (Exchange::new(ctx, &buffers), Block::current());
    let returned = x.signals(buffers.returned(0), buffers.experts);
    ctx.wait_until_all(block, &WaitWords::new(returned, Cmp::Ge, word_of(x.call())))?;
    if block.id() == 0 {
        ctx.quiet(block)?;
    }
    let Some(back) = ctx.ptr(buffers.back, ctx.my_pe()) else { return Err(Error::OutOfRange) };
    let summer = Summer { x, batch, results, back, compacted };
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

/// A row of a token, with its PE and its weight. The PE is [`NIC_PE`] if the row is in `back`.
#[derive(Clone, Copy)]
struct Source {
    /// The PE, and in the upper half the row there.
    row: u64,
    weight: f32,
}

/// The operands of the sums.
#[derive(Clone, Copy)]
struct Summer<'a, 'k> {
    x: Exchange<'a, 'k>,
    batch: Batch,
    results: SymSlice<u128>,
    back: RemoteView<'k, u128>,
    compacted: bool,
}

/// A chunk of a row, and its weight; `false` for a choice without an expert.
type Term = (bool, f32, u128);

impl Summer<'_, '_> {
    /// Returns the rows of a token: lane `k` has the row of choice `k`.
    #[inline(always)]
    fn sources(self, token: u32) -> Source {
        let (x, lane) = (self.x, lane());
        let pair = token * x.b.top_k + lane;
        let rank = if lane < x.b.top_k { x.rank(pair) } else { NO_RANK };
        if rank == NO_RANK {
            return Source { row: NO_PE as u64, weight: 0.0 };
        }
        let weight = get(x.ctx.local(self.batch.weights), pair as usize);
        let expert = get(x.ctx.local(self.batch.choices), pair as usize) as u32;
        let (pe, local) = x.owner(expert);
        let (pe, first) = if x.ctx.ptr(self.results, pe).is_none() {
            (NIC_PE, x.table(Table::BackFrom, expert))
        } else if self.compacted {
            (pe, local * x.b.n_pes * x.b.capacity + count_of(x.returned(expert)))
        } else {
            (pe, x.table(Table::To, expert))
        };
        Source { row: pe as u64 | ((first + rank) as u64) << 32, weight }
    }

    /// Returns chunk `i` of the sum of the rows.
    #[inline(always)]
    fn sum(self, sources: Source, i: usize) -> u128 {
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
    fn term(self, sources: Source, choice: u32, i: usize) -> Term {
        // Lanes from `top_k` on have no row.
        let source = arch::shuffle(u32::MAX, sources.row, choice);
        let weight = f32::from_bits(arch::shuffle(u32::MAX, sources.weight.to_bits() as u64, choice) as u32);
        let (pe, row) = (source as u32, (source >> 32) as usize);
        if pe == NO_PE {
            return (false, 0.0, 0);
        }
        let near = if pe == NIC_PE { None } else { self.x.ctx.ptr(self.results, pe) };
        let rows = near.unwrap_or(self.back);
        (true, weight, get_remote(rows, row * self.x.bf16_chunks() + i))
    }
}

#[inline(always)]
fn add(sum: [f32; 8], (is_there, weight, chunk): Term) -> [f32; 8] {
    let [a, b, c, d, e, f, g, h] = elements(chunk);
    let [s, t, u, v, w, x, y, z] = sum;
    let add = |sum: f32, element: f32| if is_there { sum + weight * element } else { sum };
    [add(s, a), add(t, b), add(u, c), add(v, d), add(w, e), add(x, f), add(y, g), add(z, h)]
}
