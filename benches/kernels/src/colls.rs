//! Collective calls, by one block of each PE.

use rushmem_device::prelude::*;

use crate::span::Span;

/// `rounds` times `barrier_all`, or `sync_all` if `complete` is 0, after one that takes no time.
///
/// `checked` other than 0 shows that the call does what it says: before every other one each PE puts its number to its
/// right neighbour, and finds its left neighbour's after it. What it does not find adds to `wrong`.
#[kernel]
pub fn meet(
    ctx: &Ctx,
    spans: SymSlice<u64>,
    word: Sym<u64>,
    wrong: Sym<u64>,
    complete: u32,
    rounds: u32,
    checked: u32,
) -> Result {
    let block = Block::current();
    let mut span = Span::begin(ctx, spans);
    let mut round = 0;
    while round <= rounds {
        let tells = checked != 0 && round & 1 == 1 && block.leader();
        if tells {
            ctx.p(word, round as u64, ctx.pe_after(1))?;
            if complete == 0 {
                ctx.quiet(Thread)?;
            }
        }
        if complete != 0 {
            ctx.barrier_all(block)?;
        } else {
            ctx.sync_all(block)?;
        }
        if tells && !ctx.test(word, Cmp::Eq, round as u64)? {
            let counted = ctx.local_one(wrong);
            counted.store(0, counted.load(0) + 1);
        }
        if round == 0 {
            span.again();
        }
        round += 1;
    }
    span.end();
    Ok(())
}

/// What [`exchange`] does: its argument is the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// `broadcast` from PE 0.
    Broadcast = 0,
    /// `fcollect`.
    Fcollect = 1,
    /// `alltoall`.
    Alltoall = 2,
}

/// `rounds` times a call that moves data, as [`Exchange`] says, after one that takes no time.
#[kernel]
pub fn exchange(
    ctx: &Ctx,
    spans: SymSlice<u64>,
    dst: SymSlice<u64>,
    src: SymSlice<u64>,
    kind: u32,
    rounds: u32,
) -> Result {
    let block = Block::current();
    let mut span = Span::begin(ctx, spans);
    let mut round = 0;
    while round <= rounds {
        if kind == Exchange::Broadcast as u32 {
            ctx.broadcast(block, Team::WORLD, dst, src, 0)?;
        } else if kind == Exchange::Fcollect as u32 {
            ctx.fcollect(block, Team::WORLD, dst, src)?;
        } else {
            ctx.alltoall(block, Team::WORLD, dst, src)?;
        }
        if round == 0 {
            span.again();
        }
        round += 1;
    }
    span.end();
    Ok(())
}

/// `rounds` times a sum over all PEs, after one that takes no time.
#[kernel]
pub fn sum(ctx: &Ctx, spans: SymSlice<u64>, dst: SymSlice<f32>, src: SymSlice<f32>, rounds: u32) -> Result {
    let block = Block::current();
    let mut span = Span::begin(ctx, spans);
    let mut round = 0;
    while round <= rounds {
        ctx.reduce(block, Team::WORLD, Reduce::Sum, dst, src)?;
        if round == 0 {
            span.again();
        }
        round += 1;
    }
    span.end();
    Ok(())
}
