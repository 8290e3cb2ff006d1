//! Small kernels for tests between kernels and the host.

use rushmem_device::prelude::*;

/// Puts a value to a word of `pe`, and completes it if `complete` is not 0.
#[kernel]
pub fn poke(ctx: &Ctx, word: Sym<u64>, value: u64, pe: u32, complete: u32) -> Result {
    ctx.p(word, value, pe)?;
    if complete != 0 { ctx.quiet(Thread) } else { Ok(()) }
}

/// Waits until a word has a value.
#[kernel]
pub fn await_word(ctx: &Ctx, word: Sym<u64>, value: u64) -> Result {
    ctx.wait_until(Thread, word, Cmp::Eq, value)
}

/// Puts a value to its cell on all PEs, and calls a barrier.
#[kernel]
pub fn meet_all(ctx: &Ctx, cells: SymSlice<u64>, value: u64) -> Result {
    let mut pe = 0;
    while pe < ctx.n_pes() {
        ctx.p(cells.at(ctx.my_pe() as usize), value, pe)?;
        pe += 1;
    }
    ctx.barrier_all(Thread)
}
