//! The end of dispatch: waits, and copies rows together.

use rushmem_device::prelude::*;

use crate::buffers::{Buffers, Exchange, Fault, count_of, is_refusal, state, word_of};
use crate::warp::{copy_chunks, each_row};

/// Waits until the rows of all sources are here. Then the rows of each local expert lie one after the other.
///
/// If `compacts`, rows are in the inbox, at the place of their source, and the kernel copies them to `rows`. It also
/// stores the numbers of rows. Otherwise [`plan`](crate::plan) has done both.
#[kernel(max_threads = 512)]
pub fn receive(ctx: &Ctx, buffers: Buffers, compacts: bool) -> Result {
    let (x, block) = (Exchange { ctx, b: &buffers }, Block::current());
    let call = x.call();
    if Thread::index() == 0 {
        ctx.local(buffers.state).store(state::RECEIVED, call);
    }
    ctx.wait_until_all(block, &WaitWords::new(buffers.arrived, Cmp::Ge, word_of(call)))?;
    let words = ctx.local(buffers.arrived);
    let (mut i, mut is_refused) = (block.rank() as usize, false);
    while i < words.len() {
        if is_refusal(words.load(i)) {
            is_refused = true;
            x.record(call, Fault::Refused { pe: x.expert_and_source(i).1 });
        }
        i += block.size() as usize;
    }
    if block.any(is_refused) {
        return Err(Error::OutOfRange);
    }
    if compacts {
        if block.id() == 0 {
            store_places(x, words);
        }
        each_row(words, |word, row| {
            let (local, source) = x.expert_and_source(word);
            let slot = word as u32 * buffers.capacity + row;
            let from = ctx.local(x.rows_of(buffers.inbox, slot, 1));
            let to = first_row(x, words, local, source) + row;
            let to = ctx.local(x.rows_of(buffers.rows, to, 1));
            copy_chunks(Warp::current(), from.len(), |i| from.load(i), |i, chunk| to.store(i, chunk));
        });
    }
    Ok(())
}

/// Stores the first row of each source, and the number of rows of each expert.
#[inline(always)]
fn store_places(x: Exchange, words: View<u64>) {
    let (block, n_pes) = (Block::current(), x.ctx.n_pes());
    let mut word = block.rank() as usize;
    while word < words.len() {
        let (local, source) = x.expert_and_source(word);
        let first = first_row(x, words, local, source);
        x.ctx.local(x.b.from).store(word, first);
        if source + 1 == n_pes {
            let rows = first + count_of(words.load(word)) - local * n_pes * x.b.capacity;
            x.ctx.local(x.b.totals).store(local as usize, rows);
        }
        word += block.size() as usize;
    }
}

/// Returns the first row of a source among the rows of a local expert. Experts are as far apart as all sources need.
#[inline(always)]
fn first_row(x: Exchange, words: View<u64>, local: u32, source: u32) -> u32 {
    let mut row = local * x.ctx.n_pes() * x.b.capacity;
    let mut earlier = 0;
    while earlier < source {
        row += count_of(words.load(x.arrived_word(local, earlier)));
        earlier += 1;
    }
    row
}
