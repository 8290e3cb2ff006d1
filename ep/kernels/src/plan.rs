//! The start of dispatch in the throughput form: all PEs exchange counts, so that each row has its final place.

use rushmem_device::arch;
use rushmem_device::prelude::*;

use crate::buffers::{Batch, Buffers, Exchange, Fault, NO_RANK};
use crate::warp::{LANES, count, lane, sum, sum_before, warps_of_block};

/// Ranks all pairs and counts the rows of each expert. A block takes one expert at a time.
#[kernel(max_threads = 512)]
pub fn place(ctx: &Ctx, buffers: Buffers, batch: Batch) -> Result {
    let (x, block) = (Exchange { ctx, b: &buffers }, Block::current());
    let (call, pairs) = (x.begin(), batch.count as usize * buffers.top_k as usize);
    let choices = ctx.local(batch.choices);
    let share = block.share(pairs);
    let mut pair = share.start + block.rank() as usize;
    while pair < share.end {
        let expert = choices.load(pair);
        if expert < 0 || expert as u32 >= buffers.experts {
            ctx.local(buffers.ranks).store(pair, NO_RANK);
            if expert != -1 {
                x.record(call, Fault::BadChoice { pair: pair as u32, expert });
                ctx.local(buffers.counts).store(buffers.experts as usize, call as u32);
            }
        }
        pair += block.size() as usize;
    }
    let mut expert = block.id();
    while expert < buffers.experts {
        rank_pairs(x, choices, pairs, expert);
        expert += block.count();
    }
    Ok(())
}

/// Ranks the pairs of an expert. Each warp of the block takes a range of the pairs.
#[inline(always)]
fn rank_pairs(x: Exchange, choices: View<i32>, pairs: usize, expert: u32) {
    let (block, warp, warps) = (Block::current(), Warp::current(), warps_of_block());
    let each = pairs.div_ceil(LANES).checked_div(warps).unwrap_or(0) * LANES + LANES;
    let (id, partial) = (warp.id() as usize, x.ctx.local(x.b.partial));
    let (start, end) = ((id * each).min(pairs), (id * each + each).min(pairs));
    let mine = count(choices, start..end, expert);
    let first = block.id() as usize * warps;
    if warp.leader() {
        partial.store(first + id, mine);
    }
    block.sync();
    let mut rank = 0;
    let mut earlier = 0;
    while earlier < id {
        rank += partial.load(first + earlier);
        earlier += 1;
    }
    if id + 1 == warps && warp.leader() {
        x.ctx.local(x.b.counts).store(expert as usize, rank + mine);
    }
    let mut at = start;
    while at < end {
        let pair = at + lane();
        let is_hit = pair < end && choices.load(pair) == expert as i32;
        let hits = arch::ballot(u32::MAX, is_hit);
        if is_hit {
            let before = (hits & ((1 << lane()) - 1)).count_ones();
            x.ctx.local(x.b.ranks).store(pair, rank + before);
        }
        rank += hits.count_ones();
        at += LANES;
    }
    // Nobody may write `partial` again before all have read it.
    block.sync();
}

/// Sends this PE's counts to all PEs, waits for theirs, and computes the place of every row. One block runs it.
///
/// All PEs see the same counts. So all of them refuse a call that does not fit. By then nobody has sent a row or changed
/// a table of received rows.
#[kernel(max_threads = 512)]
pub fn plan(ctx: &Ctx, buffers: Buffers) -> Result {
    let (x, block) = (Exchange { ctx, b: &buffers }, Block::current());
    let call = x.call();
    block.agree(send_counts(x, call))?;
    ctx.wait_until_all(block, &WaitWords::new(buffers.met, Cmp::Ge, call))?;
    let fault = each_pe(x, None, |fault, pe| fault.or(fault_of(x, pe, call)));
    // A PE with a mark has recorded the reason of its own.
    let is_mine = is_marked(x, ctx.my_pe(), call);
    if let Some(fault) = fault
        && !is_mine
        && Warp::current().leader()
    {
        x.record(call, fault);
    }
    if block.any(fault.is_some()) {
        return Err(Error::OutOfRange);
    }
    each_pe(x, (), |(), pe| {
        place_sources(x, pe);
        place_owner(x, pe);
    });
    Ok(())
}

/// Calls `f` for each PE, a warp for each.
#[inline(always)]
fn each_pe<R>(x: Exchange, mut value: R, f: impl Fn(R, u32) -> R) -> R {
    let mut pe = Warp::current().id();
    while pe < x.ctx.n_pes() {
        value = f(value, pe);
        pe += warps_of_block() as u32;
    }
    value
}

/// Returns the reason why the call must be refused, as far as it concerns `pe`.
#[inline(always)]
fn fault_of(x: Exchange, pe: u32, call: u64) -> Option<Fault> {
    if is_marked(x, pe, call) {
        return Some(Fault::Refused { pe });
    }
    let (mut rows, mut local) = (0_u64, lane() as u32);
    while local < x.b.local_experts {
        let mut source = 0;
        while source < x.ctx.n_pes() {
            rows += counts_of(x, source).load((pe * x.b.local_experts + local) as usize) as u64;
            source += 1;
        }
        local += LANES as u32;
    }
    // Sums of halves cannot overflow. A lane has fewer than 2^48 rows.
    let rows = ((sum((rows >> 24) as u32) as u64) << 24) + sum(rows as u32 & 0xff_ffff) as u64;
    let fits = rows <= x.b.max_rows as u64;
    if fits { None } else { Some(Fault::FullPe { pe, rows: rows.min(u32::MAX as u64) as u32 }) }
}

/// Returns whether a PE has refused the call.
#[inline(always)]
fn is_marked(x: Exchange, pe: u32, call: u64) -> bool {
    counts_of(x, pe).load(x.b.experts as usize) == call as u32
}

/// Returns the row of the matrix with the counts of a PE.
#[inline(always)]
fn row_of_matrix(x: Exchange, pe: u32) -> SymSlice<u32> {
    let len = x.b.counts.len();
    x.b.matrix.slice(pe as usize * len..(pe as usize + 1) * len)
}

#[inline(always)]
fn counts_of<'k>(x: Exchange<'_, 'k>, pe: u32) -> View<'k, u32> {
    x.ctx.local(row_of_matrix(x, pe))
}

/// Sends this PE's counts to all PEs, a warp for each.
#[inline(always)]
fn send_counts(x: Exchange, call: u64) -> Result {
    let (ctx, warp, me) = (x.ctx, Warp::current(), x.ctx.my_pe());
    let (dst, word) = (row_of_matrix(x, me), x.b.met.at(me as usize));
    let mut k = warp.id();
    while k < ctx.n_pes() {
        let pe = ctx.pe_after(k);
        if pe == me {
            let (from, to) = (ctx.local(x.b.counts), ctx.local(dst));
            let mut i = lane();
            while i < from.len() {
                to.store(i, from.load(i));
                i += LANES;
            }
            warp.sync();
            if warp.leader() {
                ctx.fence_release(FenceScope::System);
                ctx.local_one(word).store_relaxed(0, call);
            }
        } else {
            ctx.put_signal_nbi(warp, dst, x.b.counts, word, SignalOp::Set, call, pe)?;
        }
        k += warps_of_block() as u32;
    }
    Ok(())
}

/// Computes where rows of a source lie in its `back`: for this PE's experts, or for all experts if it is this PE.
#[inline(always)]
fn place_sources(x: Exchange, source: u32) {
    let (counts, experts, me) = (counts_of(x, source), x.b.experts as usize, x.ctx.my_pe());
    let (mut first, mut at) = (0, 0);
    while at < experts {
        let expert = at + lane();
        let rows = if expert < experts { counts.load(expert) } else { 0 };
        let (before, all) = sum_before(rows);
        if expert < experts {
            let (pe, local) = x.owner(expert as u32);
            if source == me {
                x.ctx.local(x.b.back_from).store(expert, first + before);
            }
            if pe == me {
                x.ctx.local(x.b.back_to).store(x.arrived_word(local, source), first + before);
            }
        }
        first += all;
        at += LANES;
    }
}

/// Computes where rows lie in the packed buffer of `owner`: of this PE, or of all sources if it is this PE.
#[inline(always)]
fn place_owner(x: Exchange, owner: u32) {
    let (experts, me, n_pes) = (x.b.local_experts, x.ctx.my_pe(), x.ctx.n_pes());
    let (mut first, mut at) = (0, 0);
    while at < experts {
        let local = at + lane() as u32;
        let (mut total, mut earlier, expert) = (0, 0, (owner * experts + local) as usize);
        let mut source = 0;
        while source < n_pes && local < experts {
            if source == me {
                earlier = total;
            }
            total += counts_of(x, source).load(expert);
            source += 1;
        }
        let (before, all) = sum_before(total);
        if local < experts {
            x.ctx.local(x.b.to).store(expert, first + before + earlier);
            if owner == me {
                store_local(x, local, first + before, total);
            }
        }
        first += all;
        at += LANES as u32;
    }
}

/// Stores where the rows of a local expert begin, in all and from each source.
#[inline(always)]
fn store_local(x: Exchange, local: u32, first: u32, total: u32) {
    x.ctx.local(x.b.offsets).store(local as usize, first);
    x.ctx.local(x.b.totals).store(local as usize, total);
    let (mut source, mut at) = (0, first);
    let expert = (x.ctx.my_pe() * x.b.local_experts + local) as usize;
    while source < x.ctx.n_pes() {
        x.ctx.local(x.b.from).store(x.arrived_word(local, source), at);
        at += counts_of(x, source).load(expert);
        source += 1;
    }
}
