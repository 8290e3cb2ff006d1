//! Benchmark kernels of collective calls, which one block of each PE makes.

use rushmem_device::prelude::*;

use crate::span::Span;

#[inline(always)]
fn repeat(ctx: &Ctx, spans: SymSlice<u64>, rounds: u32, call: impl Fn() -> Result) -> Result {
    let span = Span::begin(ctx, spans);
    let mut round = 0;
    while round <= rounds {
        call()?;
        if round == 0 {
            span.again();
        }
        round += 1;
    }
    span.end();
    Ok(())
}

/// Measures `rounds` calls of `barrier_all`, or of `sync_all` if `complete` is 0, after a warm-up call.
#[kernel]
pub fn meet(ctx: &Ctx, spans: SymSlice<u64>, complete: u32, rounds: u32) -> Result {
    let block = Block::current();
    if complete != 0 {
        repeat(ctx, spans, rounds, || ctx.barrier_all(block))
    } else {
        repeat(ctx, spans, rounds, || ctx.sync_all(block))
    }
}

/// Measures `rounds` calls of `barrier` on `team`, or of `team_sync` if `complete` is 0, after a warm-up call.
#[kernel]
pub fn meet_team(ctx: &Ctx, spans: SymSlice<u64>, team: Team, complete: u32, rounds: u32) -> Result {
    let block = Block::current();
    if complete != 0 {
        repeat(ctx, spans, rounds, || ctx.barrier(block, team))
    } else {
        repeat(ctx, spans, rounds, || ctx.team_sync(block, team))
    }
}

/// Verifies `barrier` on `team`, or `team_sync` if `complete` is 0.
///
/// Before every second call, each PE puts the round number to its right neighbour in the team. After the call it
/// expects the left neighbour's value. `wrong` counts the failures.
#[kernel]
pub fn meet_checked(
    ctx: &Ctx,
    word: Sym<u64>,
    wrong: Sym<u64>,
    team: Team,
    complete: u32,
    rounds: u32,
) -> Result {
    let block = Block::current();
    let me = ctx.team_my_pe(team).unwrap_or(0);
    let right =
        ctx.translate_pe(team, me + 1, Team::WORLD).or_else(|| ctx.translate_pe(team, 0, Team::WORLD));
    let right = right.unwrap_or(ctx.my_pe());
    let mut round = 0;
    while round <= rounds {
        let tells = round & 1 == 1 && block.leader();
        if tells {
            ctx.p(word, round as u64, right)?;
            if complete == 0 {
                ctx.quiet(Thread)?;
            }
        }
        if complete != 0 {
            ctx.barrier(block, team)?;
        } else {
            ctx.team_sync(block, team)?;
        }
        if tells && !ctx.test(word, Cmp::Eq, round as u64)? {
            let counted = ctx.local_one(wrong);
            counted.store(0, counted.load(0) + 1);
        }
        round += 1;
    }
    Ok(())
}

/// The collective operation that the kernel [`exchange`] measures, as a kernel argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// Calls `broadcast` from PE 0.
    Broadcast = 0,
    /// Calls `fcollect`.
    Fcollect = 1,
    /// Calls `alltoall`.
    Alltoall = 2,
}

/// Measures `rounds` calls of a broadcast, fcollect or alltoall, after a warm-up call. `kind` is an [`Exchange`].
#[kernel]
pub fn exchange(
    ctx: &Ctx,
    spans: SymSlice<u64>,
    dst: SymSlice<u64>,
    src: SymSlice<u64>,
    kind: u32,
    rounds: u32,
) -> Result {
    let (block, team) = (Block::current(), Team::WORLD);
    if kind == Exchange::Broadcast as u32 {
        repeat(ctx, spans, rounds, || ctx.broadcast(block, team, dst, src, 0))
    } else if kind == Exchange::Fcollect as u32 {
        repeat(ctx, spans, rounds, || ctx.fcollect(block, team, dst, src))
    } else {
        repeat(ctx, spans, rounds, || ctx.alltoall(block, team, dst, src))
    }
}

/// Measures `rounds` sum reductions over all PEs, after a warm-up call.
#[kernel]
pub fn sum(ctx: &Ctx, spans: SymSlice<u64>, dst: SymSlice<f32>, src: SymSlice<f32>, rounds: u32) -> Result {
    let (block, team) = (Block::current(), Team::WORLD);
    repeat(ctx, spans, rounds, || ctx.reduce(block, team, Reduce::Sum, dst, src))
}
