//! Kernels of the first steps of dispatch in the throughput form: PEs exchange row counts, which determine the final
//! position of each row.

use rushmem_device::arch;
use rushmem_device::prelude::*;

use crate::buffers::{Batch, Buffers, Exchange, Fault, NO_RANK, Table, get, put};
use crate::warp::{LANES, count, lane, sum, sum_before, warps_of_block};

/// Ranks all (token, choice) pairs and counts the rows of each expert. Each block processes one expert at a time.
#[kernel(max_threads = 512)]
pub fn ep_place(ctx: &Ctx, buffers: Buffers, batch: Batch) -> Result {
    let (x, block) = (Exchange::new(ctx, &buffers), Block::current());
    let (call, pairs) = (x.begin(), batch.count as u32 * buffers.top_k);
    let choices = ctx.local(batch.choices);
    let share = block.share(pairs as usize);
    let mut pair = share.start as u32 + block.rank();
    while pair < share.end as u32 {
        let expert = get(choices, pair as usize);
        if expert < 0 || expert as u32 >= buffers.experts {
            x.set_rank(pair, NO_RANK);
            if expert != -1 {
                x.record(call, Fault::BadChoice { pair, expert });
                x.set_table(Table::Counts, buffers.experts, call as u32);
            }
        }
        pair += block.size();
    }
    let mut expert = block.id();
    while expert < buffers.experts {
        rank_pairs(x, choices, pairs, expert);
        expert += block.count();
    }
    Ok(())
}

/// Ranks the (token, choice) pairs that chose `expert`. Each warp of the block processes a range of the pairs.
#[inline(always)]
fn rank_pairs(x: Exchange, choices: View<i32>, pairs: u32, expert: u32) {
    let (block, warp, warps) = (Block::current(), Warp::current(), warps_of_block());
    let each = pairs.div_ceil(LANES).checked_div(warps).unwrap_or(0) * LANES + LANES;
    let (start, end) = ((warp.id() * each).min(pairs), (warp.id() * each + each).min(pairs));
    let mine = count(choices, start..end, expert);
    let first = x.b.scratch_at(block.id() * warps);
    if warp.leader() {
        put(x.tables, first + warp.id() as usize, mine);
    }
    block.sync();
    let (mut rank, mut earlier) = (0, 0);
    while earlier < warp.id() {
        rank += get(x.tables, first + earlier as usize);
        earlier += 1;
    }
    if warp.id() + 1 == warps && warp.leader() {
        x.set_table(Table::Counts, expert, rank + mine);
    }
    let mut at = start;
    while at < end {
        // Issue all loads before the first ballot, which waits for its operand.
        let is_hit = |pair: u32| pair < end && get(choices, pair as usize) == expert as i32;
        let pair = at + lane();
        let (a, b) = (is_hit(pair), is_hit(pair + LANES));
        let (c, d) = (is_hit(pair + 2 * LANES), is_hit(pair + 3 * LANES));
        rank = rank_hits(x, pair, a, rank);
        rank = rank_hits(x, pair + LANES, b, rank);
        rank = rank_hits(x, pair + 2 * LANES, c, rank);
        rank = rank_hits(x, pair + 3 * LANES, d, rank);
        at += 4 * LANES;
    }
    // All warps must have read the scratch before any writes it again.
    block.sync();
}

/// Assigns ranks, starting at `rank`, to the pairs of those lanes for which `is_hit`. Returns the next rank.
#[inline(always)]
fn rank_hits(x: Exchange, pair: u32, is_hit: bool, rank: u32) -> u32 {
    let lanes = arch::ballot(u32::MAX, is_hit);
    if is_hit {
        x.set_rank(pair, rank + (lanes & ((1 << lane()) - 1)).count_ones());
    }
    rank + lanes.count_ones()
}

/// Sends this PE's row counts to all PEs, waits for theirs, and computes the position of every row. Runs as a single
/// block.
///
/// All PEs see the same counts, so all of them reject a call that does not fit. At that point, nobody has sent a row or
/// changed a table of received rows.
#[kernel(max_threads = 256)]
pub fn ep_plan(ctx: &Ctx, buffers: Buffers) -> Result {
    let (x, block) = (Exchange::new(ctx, &buffers), Block::current());
    let call = x.call();
    block.agree(send_counts(x, call))?;
    let met = x.signals(buffers.met(0), buffers.n_pes);
    ctx.wait_until_all(block, &WaitWords::new(met, Cmp::Ge, call))?;
    let fault = each_pe(x, None, |fault, pe| fault.or(fault_of(x, pe, call)));
    // A PE that marked the call has already recorded its own reason.
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

/// Folds `f` over the PEs that the calling warp handles. The warps of the block divide the PEs.
#[inline(always)]
fn each_pe<R>(x: Exchange, mut value: R, f: impl Fn(R, u32) -> R) -> R {
    let mut pe = Warp::current().id();
    while pe < x.b.n_pes {
        value = f(value, pe);
        pe += warps_of_block();
    }
    value
}

/// Returns the reason why the dispatch must be rejected, as far as it concerns `pe`.
#[inline(always)]
fn fault_of(x: Exchange, pe: u32, call: u64) -> Option<Fault> {
    if is_marked(x, pe, call) {
        return Some(Fault::Refused { pe });
    }
    let (mut rows, mut local) = (0_u64, lane());
    while local < x.b.local_experts {
        let mut source = 0;
        while source < x.b.n_pes {
            rows += count_at(x, source, pe * x.b.local_experts + local) as u64;
            source += 1;
        }
        local += LANES;
    }
    // Sum 24-bit halves, which cannot overflow: a lane has fewer than 2^48 rows.
    let rows = ((sum((rows >> 24) as u32) as u64) << 24) + sum(rows as u32 & 0xff_ffff) as u64;
    let fits = rows <= x.b.max_rows as u64;
    if fits { None } else { Some(Fault::FullPe { pe, rows: rows.min(u32::MAX as u64) as u32 }) }
}

/// Returns whether `pe` marked its row counts to reject the dispatch.
#[inline(always)]
fn is_marked(x: Exchange, pe: u32, call: u64) -> bool {
    count_at(x, pe, x.b.experts) == call as u32
}

/// Returns the number of rows that the PE `source` sends to an expert.
#[inline(always)]
fn count_at(x: Exchange, source: u32, expert: u32) -> u32 {
    x.table(Table::Matrix, source * Buffers::table_len(x.b.experts) + expert)
}

/// Sends this PE's row counts to all PEs, with one warp per PE.
#[inline(always)]
fn send_counts(x: Exchange, call: u64) -> Result {
    let (ctx, b, warp, me) = (x.ctx, x.b, Warp::current(), x.ctx.my_pe());
    let (len, word) = (Buffers::table_len(b.experts), b.words.at(b.met(me)));
    let mut k = warp.id();
    while k < b.n_pes {
        let pe = ctx.pe_after(k);
        if pe == me {
            let mut i = lane();
            while i < len {
                x.set_table(Table::Matrix, me * len + i, x.table(Table::Counts, i));
                i += LANES;
            }
            warp.sync();
            if warp.leader() {
                ctx.fence_release(FenceScope::System);
                ctx.local_one(word).store_relaxed(0, call);
            }
        } else {
            let part = |at: usize| b.tables.slice(at..at + len as usize);
            let (dst, src) = (part(b.at(Table::Matrix, me * len)), part(b.at(Table::Counts, 0)));
            ctx.put_signal_nbi(warp, dst, src, word.set(call), pe)?;
        }
        k += warps_of_block();
    }
    Ok(())
}

/// Computes the positions of returned rows in the [`Buffers::back`] of the PE `source`: those of this PE's experts or,
/// if `source` is this PE, those of all experts.
#[inline(always)]
fn place_sources(x: Exchange, source: u32) {
    let (experts, me) = (x.b.experts, x.ctx.my_pe());
    let (mut first, mut at) = (0, 0);
    while at < experts {
        let expert = at + lane();
        let rows = if expert < experts { count_at(x, source, expert) } else { 0 };
        let (before, all) = sum_before(rows);
        if expert < experts {
            let (pe, local) = x.owner(expert);
            if source == me {
                x.set_table(Table::BackFrom, expert, first + before);
            }
            if pe == me {
                x.set_table(Table::BackTo, x.word(local, source), first + before);
            }
        }
        first += all;
        at += LANES;
    }
}

/// Computes the positions of dispatched rows in the packed buffer of the PE `owner`: those that this PE sends or, if
/// `owner` is this PE, those of all sources.
#[inline(always)]
fn place_owner(x: Exchange, owner: u32) {
    let (experts, me, n_pes) = (x.b.local_experts, x.ctx.my_pe(), x.b.n_pes);
    let (mut first, mut at) = (0, 0);
    while at < experts {
        let local = at + lane();
        let (mut total, mut earlier, expert) = (0, 0, owner * experts + local);
        let mut source = 0;
        while source < n_pes && local < experts {
            if source == me {
                earlier = total;
            }
            total += count_at(x, source, expert);
            source += 1;
        }
        let (before, all) = sum_before(total);
        if local < experts {
            x.set_table(Table::To, expert, first + before + earlier);
            if owner == me {
                store_local(x, local, first + before, total);
            }
        }
        first += all;
        at += LANES;
    }
}

/// Stores the positions of a local expert's first row, and of its first row from each source PE.
#[inline(always)]
fn store_local(x: Exchange, local: u32, first: u32, total: u32) {
    x.set_table(Table::Offsets, local, first);
    x.set_table(Table::Totals, local, total);
    let (mut source, mut at) = (0, first);
    while source < x.b.n_pes {
        x.set_table(Table::From, x.word(local, source), at);
        at += count_at(x, source, x.ctx.my_pe() * x.b.local_experts + local);
        source += 1;
    }
}
