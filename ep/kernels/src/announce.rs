//! Announces the rows or partial sums that a kernel has stored or posted.

use rushmem_device::prelude::*;

use crate::buffers::{Buffers, Exchange, Table, state};
use crate::warp::{LANES, lane, warps_of_block};

/// Returns whether all other blocks of the grid have called this function before. The last block then sees the stores
/// of all blocks, and its fences order the puts of all.
///
/// No block waits for another one.
#[inline(always)]
pub(crate) fn is_last_block(x: Exchange) -> Result<bool> {
    let (ctx, block) = (x.ctx, Block::current());
    let word = x.b.words.at(state::FINISHED);
    block.sync();
    let mut mine = Ok(false);
    if block.leader() {
        ctx.fence_release(FenceScope::System);
        let before = ctx.for_node_words().atomic_fetch_inc(word, ctx.my_pe());
        mine = before.map(|before| before + 1 == block.count() as u64);
    }
    block.agree(mine.map(|_| ()))?;
    let is_last = block.any(matches!(mine, Ok(true)));
    if is_last {
        ctx.fence_acquire(FenceScope::System);
        if block.leader() {
            x.set_state(state::FINISHED, 0);
        }
    }
    Ok(is_last)
}

/// Sends this PE's row counts to all PEs and signals that its rows are there.
#[inline(always)]
pub(crate) fn announce_rows(x: Exchange, call: u64) -> Result {
    let (b, me) = (x.b, x.ctx.my_pe());
    let len = Buffers::table_len(b.experts);
    let part = |at: usize| b.tables.slice(at..at + len as usize);
    let (dst, src) = (part(b.at(Table::Matrix, me * len)), part(b.at(Table::Counts, 0)));
    each_pe(x, |pe| {
        if pe != me {
            return x.ctx.put_signal_nbi(Warp::current(), dst, src, x.signal(b.arrived(me), call), pe);
        }
        let mut i = lane();
        while i < len {
            x.set_table(Table::Matrix, me * len + i, x.table(Table::Counts, i));
            i += LANES;
        }
        signal_self(x, b.arrived(me), call);
        Ok(())
    })
}

/// Signals to all PEs that this PE's partial sums for them are there.
#[inline(always)]
pub(crate) fn announce_partials(x: Exchange, call: u64) -> Result {
    let (ctx, me) = (x.ctx, x.ctx.my_pe());
    each_pe(x, |pe| {
        if pe == me {
            signal_self(x, x.b.returned(me), call);
        } else if lane() == 0 {
            ctx.fence_release(FenceScope::System);
            return ctx.signal_op(x.signal(x.b.returned(me), call), pe);
        }
        Ok(())
    })
}

/// Calls `f` for each PE that is not masked, in one warp each, after all puts of the grid. PEs start with different PEs.
#[inline(always)]
fn each_pe(x: Exchange, f: impl Fn(u32) -> Result) -> Result {
    let block = Block::current();
    if x.b.has_nic_peers != 0 {
        unless_lost(x.ctx.fence_group(block))?;
    }
    let (mut k, mut outcome) = (Warp::current().id(), Ok(()));
    while k < x.b.n_pes {
        let pe = x.ctx.pe_after(k);
        if !x.is_masked(pe) {
            outcome = outcome.and(f(pe));
        }
        k += warps_of_block();
    }
    block.agree(outcome)
}

/// Ignores the loss of a PE to which this or an earlier call has posted. If the PE is still a member of the team, a wait for
/// signals reports the loss.
#[inline(always)]
pub(crate) fn unless_lost(outcome: Result) -> Result {
    match outcome {
        Err(Error::PeerLost) => Ok(()),
        outcome => outcome,
    }
}

#[inline(always)]
fn signal_self(x: Exchange, word: usize, call: u64) {
    let warp = Warp::current();
    warp.sync();
    if warp.leader() {
        x.ctx.fence_release(FenceScope::System);
        x.ctx.local_one(x.b.words.at(word)).store_relaxed(0, call);
    }
}
