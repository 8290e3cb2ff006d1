//! The kernel of the second half of dispatch, which waits for the rows of all PEs and compacts them.

use rushmem_device::prelude::*;

use crate::buffers::{Buffers, Exchange, Fault, Table, get, is_refusal, put, state, word_of};
use crate::warp::{copy_row, each_row};

/// Waits until the rows of all sources have arrived. Afterwards, the rows of each local expert are contiguous.
///
/// If `compacts`, rows are in the inbox, in the slots of their source, and the kernel copies them to `rows`. It also
/// stores the row counts. Otherwise, [`ep_plan`](crate::ep_plan) has taken care of both.
#[kernel(max_threads = 512)]
pub fn ep_receive(ctx: &Ctx, buffers: Buffers, compacts: bool) -> Result {
    let (x, block) = (Exchange::new(ctx, &buffers), Block::current());
    let call = x.call();
    if Thread::index() == 0 {
        x.set_state(state::RECEIVED, call);
    }
    let arrived = x.signals(buffers.arrived(0), x.n_words());
    ctx.wait_until_all(block, &WaitWords::new(arrived, Cmp::Ge, word_of(call)))?;
    let (mut word, mut is_refused) = (block.rank(), false);
    while word < x.n_words() {
        if is_refusal(x.arrived(word)) {
            is_refused = true;
            x.record(call, Fault::Refused { pe: x.expert_and_source(word).1 });
        }
        word += block.size();
    }
    if block.any(is_refused) {
        return Err(Error::OutOfRange);
    }
    if compacts {
        if block.id() == 0 {
            store_places(x);
        }
        let (inbox, rows) = (ctx.local(buffers.inbox), ctx.local(buffers.rows));
        let chunks = buffers.row_chunks as usize;
        each_row(x, |word, row| {
            let (local, source) = x.expert_and_source(word);
            let from = (word * buffers.capacity + row) as usize * chunks;
            let to = (first_row(x, local, source) + row) as usize * chunks;
            copy_row(chunks, |i| get(inbox, from + i), |i, chunk| put(rows, to + i, chunk));
        });
    }
    Ok(())
}

/// Stores the index of the first row from each source PE, and the number of rows of each local expert.
#[inline(always)]
fn store_places(x: Exchange) {
    let (block, n_pes) = (Block::current(), x.b.n_pes);
    let mut word = block.rank();
    while word < x.n_words() {
        let (local, source) = x.expert_and_source(word);
        let first = first_row(x, local, source);
        x.set_table(Table::From, word, first);
        if source + 1 == n_pes {
            x.set_table(Table::Totals, local, first + x.rows(word) - local * n_pes * x.b.capacity);
        }
        word += block.size();
    }
}

/// Returns the index of the first row that `source` sent to a local expert. Each expert has room for the rows of all
/// sources.
#[inline(always)]
fn first_row(x: Exchange, local: u32, source: u32) -> u32 {
    let mut row = local * x.b.n_pes * x.b.capacity;
    let mut earlier = 0;
    while earlier < source {
        row += x.rows(x.word(local, earlier));
        earlier += 1;
    }
    row
}
