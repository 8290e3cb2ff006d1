//! Test kernels of fences and barriers.

use rushmem_device::prelude::*;

use crate::units::GroupKind;

/// Puts an array from even PEs, followed by a fence and the put of a flag. Their partners, the next PEs, count stale
/// elements in `bad` and answer in `ack`.
#[kernel]
pub fn fence_then_flag(
    ctx: &Ctx,
    inbox: SymSlice<u64>,
    outbox: SymSlice<u64>,
    flag: Sym<u64>,
    ack: Sym<u64>,
    bad: Sym<u64>,
    rounds: u32,
) -> Result {
    let (block, me) = (Block::current(), ctx.my_pe());
    let partner = me ^ 1;
    if partner >= ctx.n_pes() || block.id() != 0 {
        return Ok(());
    }
    let (mine, theirs) = (ctx.local(outbox), ctx.local(inbox));
    let mut round = 1;
    while round <= rounds as u64 {
        let mut i = block.rank() as usize;
        if me & 1 == 0 {
            while i < mine.len() {
                mine.store(i, round << 32 | i as u64);
                i += block.size() as usize;
            }
            ctx.put_nbi(block, inbox, outbox, partner)?;
            if block.leader() {
                ctx.fence()?;
                ctx.p(flag, round, partner)?;
            }
            ctx.wait_until(block, ack, Cmp::Eq, round)?;
        } else {
            ctx.wait_until(block, flag, Cmp::Ge, round)?;
            let mut wrong = 0;
            while i < theirs.len() {
                wrong += (theirs.load(i) != (round << 32 | i as u64)) as u64;
                i += block.size() as usize;
            }
            if wrong != 0 {
                ctx.atomic_add(bad, wrong, me)?;
            }
            block.sync();
            if block.leader() {
                ctx.fence()?;
                ctx.atomic_set(ack, round, partner)?;
            }
        }
        round += 1;
    }
    ctx.quiet(block)
}

/// Checks `barrier_all` for `rounds` rounds. The group's leader puts the round number to its cell on every PE. After
/// the barrier, all cells must hold the round number. A `sync_all` separates the rounds.
#[kernel]
pub fn barriers(ctx: &Ctx, group_kind: u32, cells: SymSlice<u32>, bad: Sym<u32>, rounds: u32) -> Result {
    if group_kind == GroupKind::Block as u32 {
        return if Block::current().id() == 0 {
            rounds_of(ctx, Block::current(), cells, bad, rounds)
        } else {
            Ok(())
        };
    }
    if Block::current().id() != 0 || Warp::current().id() != 0 {
        return Ok(());
    }
    if group_kind == GroupKind::Warp as u32 {
        return rounds_of(ctx, Warp::current(), cells, bad, rounds);
    }
    if Thread::index() == 0 { rounds_of(ctx, Thread, cells, bad, rounds) } else { Ok(()) }
}

#[inline(always)]
fn rounds_of<G: Group>(ctx: &Ctx, group: G, cells: SymSlice<u32>, bad: Sym<u32>, rounds: u32) -> Result {
    let mine = ctx.local(cells);
    let mut round = 1;
    while round <= rounds {
        if group.leader() {
            let mut pe = 0;
            while pe < ctx.n_pes() {
                ctx.p(cells.at(ctx.my_pe() as usize), round, pe)?;
                pe += 1;
            }
        }
        ctx.barrier_all(group)?;
        let mut i = group.rank() as usize;
        while i < mine.len() {
            if mine.load(i) != round {
                ctx.atomic_inc(bad, ctx.my_pe())?;
            }
            i += group.size() as usize;
        }
        ctx.sync_all(group)?;
        round += 1;
    }
    Ok(())
}

/// Checks grid barriers for `rounds` rounds. Every thread stores the round number in its cell, calls `sync_grid`, and
/// loads a cell of the next block.
#[kernel]
pub fn grid_barriers(ctx: &Ctx, cells: SymSlice<u32>, bad: Sym<u32>, rounds: u32) -> Result {
    let (block, mine) = (Block::current(), ctx.local(cells));
    let i = Thread::index();
    let other = i + block.size() as usize;
    let other = if other < Thread::count() { other } else { other - Thread::count() };
    let mut round = 1;
    while round <= rounds {
        mine.store(i, round);
        ctx.sync_grid(block)?;
        if mine.load(other) != round {
            ctx.atomic_inc(bad, ctx.my_pe())?;
        }
        ctx.sync_grid(block)?;
        round += 1;
    }
    ctx.quiet(block)
}

/// Loads a word with a relaxed load. Natively, first waits a microsecond at most for the word to reach `wanted`.
#[inline(always)]
fn look(ctx: &Ctx, word: Sym<u64>, wanted: u64) -> Result<u64> {
    // On a CPU, other lanes only run while this one waits.
    if cfg!(not(target_arch = "nvptx64")) {
        let _ = ctx.wait_until_for(Thread, word, Cmp::Ge, wanted, 1_000)?;
    }
    Ok(ctx.local_one(word).load_relaxed(0))
}

/// Hands source data from one block to another by relaxed words and fences.
///
/// The first block writes `src`. The second block, which has read the old values, puts `src` to the next PE and gets it
/// back. The blocks synchronise through the relaxed words `asked` and `written`, with fences if `fences` is set. Stale
/// values are counted in `stale`. A block that has polled `patience` times in a round returns an error.
#[kernel]
#[allow(clippy::too_many_arguments)] // the test's objects
pub fn hand_over(
    ctx: &Ctx,
    dst: SymSlice<u64>,
    src: SymSlice<u64>,
    back: SymSlice<u64>,
    asked: Sym<u64>,
    written: Sym<u64>,
    stale: Sym<u64>,
    fences: u32,
    rounds: u32,
    patience: u64,
) -> Result {
    let (block, views) = (Block::current(), (ctx.local(src), ctx.local(back)));
    if !block.leader() {
        return Ok(());
    }
    let (writes, next) = (block.id() == 0, ctx.pe_after(1));
    let (awaited, told) = if writes { (asked, written) } else { (written, asked) };
    let (mut wrong, mut round) = (0, 1);
    while round <= rounds as u64 {
        if !writes {
            // The L1 cache of this block's multiprocessor holds the values just read.
            wrong += differ(views.0, round - 1);
            if fences != 0 {
                // The reads must be performed before the other block stores the next values.
                ctx.fence_release(FenceScope::Gpu);
            }
            ctx.local_one(told).store_relaxed(0, round);
        }
        let mut turns = 0;
        while look(ctx, awaited, round)? < round {
            turns += 1;
            if turns > patience {
                return Err(Error::Timeout);
            }
        }
        if fences != 0 {
            ctx.fence_acquire(FenceScope::Gpu);
        }
        if writes {
            let mut i = 0;
            while i < views.0.len() {
                views.0.store(i, round << 32 | i as u64);
                i += 1;
            }
            if fences != 0 {
                ctx.fence_release(FenceScope::Gpu);
            }
            ctx.local_one(told).store_relaxed(0, round);
        } else {
            ctx.put(Thread, dst, src, next)?;
            ctx.quiet(Thread)?;
            ctx.get(Thread, back, dst, next)?;
            wrong += differ(views.1, round);
        }
        round += 1;
    }
    if !writes {
        ctx.local_one(stale).store(0, wrong);
    }
    Ok(())
}

/// Counts elements that do not have their value of round `round`. In round 0, any value is accepted.
#[inline(always)]
fn differ(view: View<u64>, round: u64) -> u64 {
    let (mut wrong, mut i) = (0, 0);
    while i < view.len() {
        wrong += (round != 0 && view.load(i) != round << 32 | i as u64) as u64;
        i += 1;
    }
    wrong
}
