//! Small kernels for tests of what is between kernels.

use rushmem_device::prelude::*;

/// One thread puts a value to a word of `pe`, and completes it where `complete` is not 0.
#[kernel]
pub fn poke(ctx: &Ctx, word: Sym<u64>, value: u64, pe: u32, complete: u32) -> Result {
    ctx.p(word, value, pe)?;
    if complete != 0 { ctx.quiet(Thread) } else { Ok(()) }
}

/// One thread waits until a word has a value.
#[kernel]
pub fn await_word(ctx: &Ctx, word: Sym<u64>, value: u64) -> Result {
    ctx.wait_until(Thread, word, Cmp::Eq, value)
}

/// One thread puts a value to its cell of all PEs, and meets the others.
#[kernel]
pub fn meet_all(ctx: &Ctx, cells: SymSlice<u64>, value: u64) -> Result {
    let mut pe = 0;
    while pe < ctx.n_pes() {
        ctx.p(cells.at(ctx.my_pe() as usize), value, pe)?;
        pe += 1;
    }
    ctx.barrier_all(Thread)
}
