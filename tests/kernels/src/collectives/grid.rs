//! Test kernel of collective calls by all blocks of a grid.

use rushmem_device::prelude::*;

use super::{STEP_WORDS, Step, by_callers};

/// Performs `steps` with the teams `one`, `two` and `three`, by all blocks. Only block 0 enters barriers of PEs. If
/// `ready` is not 0, the collective calls are made without barriers, and the kernel synchronises the blocks itself.
#[kernel]
#[allow(clippy::too_many_arguments)] // a kernel's
pub fn grid_collectives(
    ctx: &Ctx,
    ready: u32,
    one: Team,
    two: Team,
    three: Team,
    steps: SymSlice<u64>,
    bytes: SymSlice<u8>,
) -> Result {
    let (block, grid) = (Block::current(), WholeGrid::current());
    let list = ctx.local(steps);
    let mut at = 0;
    while at + STEP_WORDS <= list.len() && list.load(at) != Step::End as u64 {
        let team = match list.load(at + 1) {
            0 => one,
            1 => two,
            2 => three,
            _ => Team::WORLD,
        };
        let words = [0, 2, 3, 4, 5, 6].map(|i| list.load(at + i));
        if words[0] == Step::Barrier as u64 {
            if block.id() == 0 {
                ctx.barrier(block, team)?;
            }
            ctx.sync_grid(block)?;
        } else if ready != 0 {
            by_callers(ctx, grid.without_barrier(), team, words, bytes)?;
            ctx.sync_grid(block)?;
        } else {
            by_callers(ctx, grid, team, words, bytes)?;
        }
        at += STEP_WORDS;
    }
    Ok(())
}

/// Sums with all blocks, `rounds` times. Before each call, every thread changes its elements of `src`.
/// After it, every thread checks the elements of another block, and counts wrong ones in its element of `wrong`.
#[kernel]
pub fn many_sums(
    ctx: &Ctx,
    dst: SymSlice<u64>,
    src: SymSlice<u64>,
    wrong: SymSlice<u64>,
    rounds: u32,
) -> Result {
    let (pes, me) = (ctx.n_pes() as u64, ctx.my_pe() as u64);
    let (mine, sums, counts) = (ctx.local(src), ctx.local(dst), ctx.local(wrong));
    let (index, threads) = (Thread::index(), Thread::count());
    let (mut round, mut found) = (1, 0);
    while round <= rounds as u64 {
        let mut i = index;
        while i < mine.len() {
            mine.store(i, round * (me + 1) + i as u64);
            i += threads;
        }
        ctx.reduce(WholeGrid::current(), Team::WORLD, Reduce::Sum, dst, src)?;
        let mut i = threads - 1 - index;
        while i < sums.len() {
            let wanted = round * (pes * (pes + 1) / 2) + pes * i as u64;
            found += u64::from(sums.load(i) != wanted);
            i += threads;
        }
        // The next call overwrites the sums only after its first barrier.
        round += 1;
    }
    counts.store(index, found);
    Ok(())
}

/// Sums objects of different lengths with all blocks, which must fail, then makes a valid call. Each
/// block stores the error code in its element of `codes`.
#[kernel]
pub fn grid_fails(
    ctx: &Ctx,
    team: Team,
    dst: SymSlice<u32>,
    src: SymSlice<u32>,
    codes: SymSlice<u32>,
) -> Result {
    let (block, grid) = (Block::current(), WholeGrid::current());
    let short = src.slice(0..src.len() - 1);
    let bad = ctx.reduce(grid, team, Reduce::Sum, dst, short);
    let good = ctx.reduce(grid, team, Reduce::Sum, dst, src);
    if block.leader() {
        let code = match bad {
            Ok(()) => 0,
            Err(error) => error as u32,
        };
        ctx.local(codes).store(block.id() as usize, code);
    }
    good
}
