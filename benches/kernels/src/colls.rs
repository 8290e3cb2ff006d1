//! Collective calls, by one block of each PE.

use rushmem_device::prelude::*;

use crate::span::Span;

/// `rounds` times `barrier_all`, or `sync_all` if `complete` is 0.
///
/// `checked` other than 0 takes no time: it shows that the call does what it says. Each PE puts the number of the round
/// to its right neighbour before, and finds its left neighbour's after; the thread that does not adds to `wrong`.
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
    let once = || if complete != 0 { ctx.barrier_all(block) } else { ctx.sync_all(block) };
    once()?;
    let span = Span::begin(ctx, spans);
    let mut round = 0;
    while round < rounds {
        round += 1;
        if checked != 0 && block.leader() {
            ctx.p(word, round as u64, ctx.pe_after(1))?;
            if complete == 0 {
                ctx.quiet(Thread)?;
            }
        }
        once()?;
        if checked != 0 {
            if block.leader() && !ctx.test(word, Cmp::Eq, round as u64)? {
                let counted = ctx.local_one(wrong);
                counted.store(0, counted.load(0) + 1);
            }
            once()?;
        }
    }
    span.end();
    Ok(())
}
