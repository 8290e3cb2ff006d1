//! Contexts with queues of their own.

use rushmem_device::prelude::*;

/// Every block puts its share of `src` to every PE through queues of its own; PE `s` lands in part `s` of `dst`.
#[kernel]
pub fn private_puts(ctx: &Ctx, dst: SymSlice<u16>, src: SymSlice<u16>) -> Result {
    let (block, own) = (Block::current(), ctx.per_block()?);
    let (share, base) = (block.share(src.len()), own.my_pe() as usize * src.len());
    let mut pe = 0;
    while pe < own.n_pes() {
        let there = dst.slice(base + share.start..base + share.end);
        own.put_nbi(block, there, src.slice(share.clone()), pe)?;
        own.fence()?;
        pe += 1;
    }
    // One block may be in the barrier of all PEs; the others complete their own.
    if block.id() == 0 { own.barrier_all(block) } else { own.quiet(block) }
}

/// Each thread takes its exclusive queues `turns` times, adds 1 to its own word of the next PE, reads it back, and gives
/// them back; `wrong` counts the words that were not what they should be.
#[kernel]
pub fn exclusive_turns(ctx: &Ctx, words: SymSlice<u64>, wrong: SymSlice<u32>, turns: u32) -> Result {
    let (i, pe) = (Thread::index(), ctx.pe_after(1));
    let wrong = ctx.local(wrong);
    let mut turn = 0;
    while turn < turns {
        let own = ctx.exclusive(i as u32)?;
        let before = own.atomic_fetch_add(words.at(i), 1, pe)?;
        own.p(words.at(i), before + 1, pe)?;
        own.fence()?;
        let now = own.g(words.at(i), pe)?;
        if before != turn as u64 || now != turn as u64 + 1 {
            wrong.store(i, wrong.load(i) + 1);
        }
        own.quiet(Thread)?;
        own.release();
        turn += 1;
    }
    Ok(())
}
