//! The hello example's kernel, the smallest one that communicates.

use rushmem_device::prelude::*;

/// Puts `message` into the `inbox` of the next PE, signals it, and waits for the message of the previous PE.
#[kernel]
pub fn hello(ctx: &Ctx, inbox: SymSlice<u32>, message: SymSlice<u32>, arrived: Sym<Signal>) -> Result {
    let (block, next) = (Block::current(), ctx.pe_after(1));
    ctx.put_signal_nbi(block, inbox, message, arrived.set(1), next)?;
    ctx.signal_wait_until(block, arrived, Cmp::Eq, 1)?;
    ctx.quiet(block)
}
