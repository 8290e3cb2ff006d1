//! Litmus test kernels that make sequences of collective team calls and check their results.

use rushmem_device::prelude::*;

use crate::pause;

/// Number of checks in [`one_after_another`], and so the number of words of its `bad`.
pub const CHECKS: usize = 5;

/// Makes five collective calls per round without synchronization in between.
///
/// The first two team members broadcast to different buffers. A sum follows, then a sum in place. The last call is a
/// broadcast, after a `team_sync`, over words that were stored before the sync. PE 2 is late. `bad` counts the wrong
/// elements of each call.
#[kernel]
pub fn one_after_another(
    ctx: &Ctx,
    team: Team,
    buffers: SymSlice<u64>,
    bad: SymSlice<u64>,
    rounds: u64,
) -> Result {
    let (block, me) = (Block::current(), ctx.my_pe() as u64);
    let n = ctx.team_n_pes(team).unwrap_or(0) as u64;
    let part = buffers.len() / 6;
    let [source, first, second, sum, place, over] =
        [0, 1, 2, 3, 4, 5].map(|i| buffers.slice(i * part..(i + 1) * part));
    let fill = |array: SymSlice<u64>, value: u64| {
        let (view, mut i) = (ctx.local(array), block.rank() as usize);
        while i < view.len() {
            view.store(i, value);
            i += block.size() as usize;
        }
    };
    let check = |what: usize, array: SymSlice<u64>, value: u64| -> Result {
        let (view, mut i, mut wrong) = (ctx.local(array), block.rank() as usize, 0);
        while i < view.len() {
            wrong += (view.load(i) != value) as u64;
            i += block.size() as usize;
        }
        if wrong != 0 { ctx.atomic_add(bad.at(what), wrong, ctx.my_pe()) } else { Ok(()) }
    };
    let mut round = 1;
    while round <= rounds {
        let base = round * 1000;
        let all = n * base + n * (n - 1) / 2;
        if me == 2 {
            pause(round << 13, 50);
        }
        fill(source, base + me);
        fill(place, base + me);
        ctx.broadcast(block, team, first, source, 0)?;
        ctx.broadcast(block, team, second, source, 1)?;
        ctx.reduce(block, team, Reduce::Sum, sum, source)?;
        ctx.reduce(block, team, Reduce::Sum, place, place)?;
        check(0, first, base)?;
        check(1, second, base + 1)?;
        check(2, sum, all)?;
        check(3, place, all)?;
        if me == 1 {
            fill(over, 0);
        }
        ctx.team_sync(block, team)?;
        ctx.broadcast(block, team, over, source, 0)?;
        check(4, over, base)?;
        round += 1;
    }
    ctx.quiet(block)
}

/// Calls a sum reduction of one team in block 0 while block 1 calls a barrier of another team. `bad` counts wrong sums.
#[kernel]
pub fn two_teams(
    ctx: &Ctx,
    sums: Team,
    meetings: Team,
    source: SymSlice<u64>,
    sum: SymSlice<u64>,
    bad: Sym<u64>,
    rounds: u64,
) -> Result {
    let block = Block::current();
    let n = ctx.n_pes() as u64;
    let mut round = 1;
    while round <= rounds {
        if block.id() == 0 {
            if block.leader() {
                ctx.local(source).store(0, round + ctx.my_pe() as u64);
            }
            ctx.reduce(block, sums, Reduce::Sum, sum, source)?;
            if block.leader() && ctx.local(sum).load(0) != n * round + n * (n - 1) / 2 {
                ctx.atomic_inc(bad, ctx.my_pe())?;
            }
            block.sync();
        } else if block.id() == 1 {
            ctx.barrier(block, meetings)?;
        }
        round += 1;
    }
    ctx.quiet(block)
}

/// Calls collectives with zero elements, then a barrier.
#[kernel]
pub fn nothing_together(ctx: &Ctx, team: Team, words: SymSlice<u64>) -> Result {
    let (block, none) = (Block::current(), words.slice(0..0));
    ctx.broadcast(block, team, none, none, 0)?;
    ctx.fcollect(block, team, none, none)?;
    ctx.collect(block, team, none, none)?;
    ctx.alltoall(block, team, none, none)?;
    ctx.reduce(block, team, Reduce::Sum, none, none)?;
    ctx.barrier(block, team)
}

/// Checks that a broadcast and a sum in a team of one PE are copies. `bad` counts wrong elements.
#[kernel]
pub fn on_its_own(ctx: &Ctx, team: Team, buffers: SymSlice<u64>, bad: SymSlice<u64>) -> Result {
    let block = Block::current();
    let part = buffers.len() / 3;
    let [source, copy, sum] = [0, 1, 2].map(|i| buffers.slice(i * part..(i + 1) * part));
    let mut i = block.rank() as usize;
    while i < part {
        ctx.local(source).store(i, 7 + i as u64);
        i += block.size() as usize;
    }
    ctx.broadcast(block, team, copy, source, 0)?;
    ctx.reduce(block, team, Reduce::Sum, sum, source)?;
    let mut i = block.rank() as usize;
    while i < part {
        let wanted = 7 + i as u64;
        if ctx.local(copy).load(i) != wanted || ctx.local(sum).load(i) != wanted {
            ctx.atomic_inc(bad.at(0), ctx.my_pe())?;
        }
        i += block.size() as usize;
    }
    ctx.quiet(block)
}
