//! Small kernels for litmus tests that involve the host.

use rushmem_device::prelude::*;

/// Puts `value` to a word of `pe`, and completes the put if `complete` is not 0.
#[kernel]
pub fn poke(ctx: &Ctx, word: Sym<u64>, value: u64, pe: u32, complete: u32) -> Result {
    ctx.p(word, value, pe)?;
    if complete != 0 { ctx.quiet(Thread) } else { Ok(()) }
}

/// Waits until `word` equals `value`.
#[kernel]
pub fn await_word(ctx: &Ctx, word: Sym<u64>, value: u64) -> Result {
    ctx.wait_until(Thread, word, Cmp::Eq, value)
}

/// Puts `value` to this PE's cell on all PEs, then calls a barrier.
#[kernel]
pub fn meet_all(ctx: &Ctx, cells: SymSlice<u64>, value: u64) -> Result {
    let mut pe = 0;
    while pe < ctx.n_pes() {
        ctx.p(cells.at(ctx.my_pe() as usize), value, pe)?;
        pe += 1;
    }
    ctx.barrier_all(Thread)
}

/// Writes `value` to `data` of `pe`, by a store if `pe` is a P2P peer, then fences, and puts `value` to `flag`.
#[kernel]
pub fn poke_two(ctx: &Ctx, data: Sym<u64>, flag: Sym<u64>, value: u64, pe: u32) -> Result {
    match ctx.ptr(data.as_slice(), pe) {
        Some(there) => there.store(0, value),
        None => ctx.p(data, value, pe)?,
    }
    ctx.fence()?;
    ctx.p(flag, value, pe)?;
    ctx.quiet(Thread)
}

/// Stores `value` to all words of this PE's `data`, without a fence.
#[kernel]
pub fn leave(ctx: &Ctx, data: SymSlice<u64>, value: u64) -> Result {
    let (view, mut i) = (ctx.local(data), Thread::index());
    while i < view.len() {
        view.store(i, value);
        i += Thread::count();
    }
    Ok(())
}

/// Waits until `flag` is at least `value`, then gets the `data` of `pe` into `copy`.
#[kernel]
pub fn get_after(
    ctx: &Ctx,
    flag: Sym<u64>,
    value: u64,
    copy: SymSlice<u64>,
    data: SymSlice<u64>,
    pe: u32,
) -> Result {
    let block = Block::current();
    ctx.wait_until(block, flag, Cmp::Ge, value)?;
    ctx.get(block, copy, data, pe)
}
