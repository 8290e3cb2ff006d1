//! Once round the ring: every PE hands its array to its right neighbour, and waits for its left neighbour's.

use rushmem_device::prelude::*;

/// Sends this PE's `src` into its right neighbour's `dst`, and waits until its left neighbour's is in its own.
///
/// The blocks split the array between them, and each announces its own part: `arrived` counts elements, so that the
/// PEs may run different grids. It is 0 at the launch.
#[kernel]
pub fn ring(ctx: &Ctx, dst: SymSlice<u32>, src: SymSlice<u32>, arrived: Sym<Signal>) -> Result {
    let block = Block::current();
    let right = ctx.pe_after(1);

    let part = block.share(src.len());
    let n = part.len() as u64;
    ctx.put_signal_nbi(block, dst.slice(part.clone()), src.slice(part), arrived, SignalOp::Add, n, right)?;

    // `src` is free again once the puts have completed.
    ctx.quiet(block)?;

    // All of the left neighbour's elements have been announced: all of `dst` is here.
    ctx.signal_wait_until(block, arrived, Cmp::Ge, dst.len() as u64)?;
    Ok(())
}
