//! Fences and barriers.

use rushmem_device::prelude::*;

use crate::units::Together;

/// Even PEs put an array, fence, and put a flag; their partners count in `bad` what they see of the array too late, and
/// answer in `ack`.
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
                ctx.atomic_set(ack, round, partner)?;
            }
        }
        round += 1;
    }
    ctx.quiet(block)
}

/// `rounds` times: the group's leader puts the round to its own cell on every PE, `barrier_all`, all cells must show it,
/// `sync_all`.
#[kernel]
pub fn barriers(ctx: &Ctx, together: u32, cells: SymSlice<u32>, bad: Sym<u32>, rounds: u32) -> Result {
    if together == Together::Block as u32 {
        return if Block::current().id() == 0 {
            rounds_of(ctx, Block::current(), cells, bad, rounds)
        } else {
            Ok(())
        };
    }
    if Block::current().id() != 0 || Warp::current().id() != 0 {
        return Ok(());
    }
    if together == Together::Warp as u32 {
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

/// `rounds` times: every thread writes the round to its cell, `sync_grid`, and looks at a cell of the next block.
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
