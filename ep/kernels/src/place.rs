//! The kernel that ranks the (token, choice) pairs of a large batch.

use rushmem_device::arch;
use rushmem_device::prelude::*;

use crate::buffers::{Batch, Buffers, Exchange, NO_RANK, Table, get, put};
use crate::warp::{LANES, count, lane, warps_of_block};

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
                x.reject(call, pair, expert);
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
