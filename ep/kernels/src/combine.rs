//! Kernels of the combine step: experts send their rows back to the PEs of the tokens, which sum them.

use rushmem_device::arch;
use rushmem_device::prelude::*;

use crate::buffers::{
    Batch, Buffers, Exchange, NIC_PE, NO_RANK, Table, count_of, get, put, rows_of, word_of,
};
use crate::numbers::{chunk, elements};
use crate::post::{Announcement, announce_to};
use crate::warp::{Crew, lane};

/// Signals to each source PE that its tokens' rows are ready. They are in `results`, at the same positions as the rows
/// that experts received. A NIC peer also gets the rows, directly from `results`: one put with signal per expert.
///
/// The signal word carries the source's first row, relative to the expert's first row, which a P2P peer needs to read
/// the rows.
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

/// Waits for the signals of all experts. Then computes the weighted sum of each token's rows, in order of choice, in
/// binary32, and rounds the sum once to bf16.
///
/// Reads rows of P2P peers from their `results`, and rows of NIC peers from `back`. `compacted` is the argument of
/// [`ep_receive`](crate::ep_receive). When the kernel returns, all puts of this PE are complete.
#[kernel(max_threads = 256)]
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
    let (sums, chunks) = (ctx.local(sums), x.bf16_chunks());
    let crew = Crew::of(batch.count as u32);
    let mut token = crew.id;
    while token < batch.count as u32 {
        let rows = summer.rows(token);
        let mut i = crew.rank as usize;
        while i < chunks {
            put(sums, token as usize * chunks + i, sum(&rows, i));
            i += crew.size as usize;
        }
        token += crew.count;
    }
    Ok(())
}

/// Maximum number of experts that a token can choose.
const CHOICES: usize = 8;

/// The row that an expert returned for one choice of a token. If the token chose no expert, it is an arbitrary row, and
/// `is_there` is false.
#[derive(Clone, Copy)]
struct Row<'k> {
    buffer: RemoteView<'k, u128>,
    /// Index of the row's first 16-byte chunk in `buffer`.
    first: usize,
    weight: f32,
    is_there: bool,
}

/// Where the row for one choice of a token is, and its weight. The PE is [`NIC_PE`] if the row is in `back`.
#[derive(Clone, Copy)]
struct Choice {
    pe: u32,
    row: u32,
    weight: f32,
}

#[derive(Clone, Copy)]
struct Summer<'a, 'k> {
    x: Exchange<'a, 'k>,
    batch: Batch,
    results: SymSlice<u128>,
    back: RemoteView<'k, u128>,
    compacted: bool,
}

impl<'k> Summer<'_, 'k> {
    /// Returns the rows that a token's experts returned, in order of choice. All lanes of a warp must pass the same
    /// token.
    #[inline(always)]
    fn rows(self, token: u32) -> [Row<'k>; CHOICES] {
        let choice = self.choice(token);
        let there = arch::ballot(u32::MAX, choice.is_some());
        // Substitute a row that exists, so loads need no branch.
        let choice = choice.unwrap_or(Choice { pe: self.x.ctx.my_pe(), row: 0, weight: 0.0 });
        let row = |lane| self.row(choice, there, lane);
        [row(0), row(1), row(2), row(3), row(4), row(5), row(6), row(7)]
    }

    /// Returns the token's choice whose index is this lane, or `None` if it has no expert.
    #[inline(always)]
    fn choice(self, token: u32) -> Option<Choice> {
        let (x, lane) = (self.x, lane());
        let pair = token * x.b.top_k + lane;
        let rank = if lane < x.b.top_k { x.rank(pair) } else { NO_RANK };
        if rank == NO_RANK {
            return None;
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
        Some(Choice { pe, row: first + rank, weight })
    }

    /// Returns the row for the choice held by `lane`. Bit `lane` of `there` says whether the choice has an expert.
    #[inline(always)]
    fn row(self, choice: Choice, there: u32, lane: u32) -> Row<'k> {
        let of_lane = |value: u64| arch::shuffle(u32::MAX, value, lane);
        let place = of_lane(choice.pe as u64 | (choice.row as u64) << 32);
        let (pe, row) = (place as u32, (place >> 32) as usize);
        let near = if pe == NIC_PE { None } else { self.x.ctx.ptr(self.results, pe) };
        Row {
            buffer: near.unwrap_or(self.back),
            first: row * self.x.bf16_chunks(),
            weight: f32::from_bits(of_lane(choice.weight.to_bits() as u64) as u32),
            is_there: there >> lane & 1 == 1,
        }
    }
}

/// Computes 16-byte chunk `i` of the weighted sum of rows.
#[inline(always)]
fn sum(rows: &[Row; CHOICES], i: usize) -> u128 {
    let [a, b, c, d, e, f, g, h] = *rows;
    let [s, t, u, v, w, x, y, z] = load(rows, i);
    let first_half = add(add(add(add([0.0; 8], a, s), b, t), c, u), d, v);
    chunk(add(add(add(add(first_half, e, w), f, x), g, y), h, z))
}

/// Loads 16-byte chunk `i` of all rows.
///
/// Checks all bounds before the first load. With a check before each, the compiler would not overlap the loads.
#[inline(always)]
fn load(rows: &[Row; CHOICES], i: usize) -> [u128; CHOICES] {
    let has = |row: Row| row.first + i < row.buffer.len();
    let [a, b, c, d, e, f, g, h] = *rows;
    if !(has(a) & has(b) & has(c) & has(d) & has(e) & has(f) & has(g) & has(h)) {
        return [0; CHOICES];
    }
    let load = |row: Row| row.buffer.load(row.first + i);
    [load(a), load(b), load(c), load(d), load(e), load(f), load(g), load(h)]
}

#[inline(always)]
fn add(sum: [f32; 8], row: Row, chunk: u128) -> [f32; 8] {
    let [a, b, c, d, e, f, g, h] = elements(chunk);
    let [s, t, u, v, w, x, y, z] = sum;
    let add = |sum: f32, element: f32| if row.is_there { sum + row.weight * element } else { sum };
    [add(s, a), add(t, b), add(u, c), add(v, d), add(w, e), add(x, f), add(y, g), add(z, h)]
}
