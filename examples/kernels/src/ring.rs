//! The ring example: every PE sends its array to its right neighbour and receives the left neighbour's array.

use rushmem_device::prelude::*;

/// Sends `src` to `dst` of the right neighbour, and waits for the data of the left neighbour.
///
/// The blocks divide the array, and each signals its own part. `arrived` must be 0 at the launch. It counts elements
/// rather than blocks, so the PEs may use different grids.
#[kernel]
pub fn ring(ctx: &Ctx, dst: SymSlice<u32>, src: SymSlice<u32>, arrived: Sym<Signal>) -> Result {
    let block = Block::current();
    let right = ctx.pe_after(1);

    let part = block.share(src.len());
    let n = part.len() as u64;
    ctx.put_signal_nbi(block, dst.slice(part.clone()), src.slice(part), arrived.add(n), right)?;

    // Once the puts have completed, the caller may overwrite `src`.
    ctx.quiet(block)?;

    // `dst` is complete once the left neighbour has signalled all of its elements.
    ctx.signal_wait_until(block, arrived, Cmp::Ge, dst.len() as u64)?;
    Ok(())
}
