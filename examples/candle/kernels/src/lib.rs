//! The kernel of the Candle example, which passes a tensor to the next PE.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]
#![forbid(unsafe_code)]

use rushmem_device::prelude::*;

/// Puts `tensor` into `inbox` of the next PE, signals it, and waits for the tensor of the previous PE.
///
/// All blocks of the grid share the copy, and each signals its own part; `arrived` counts elements.
#[kernel]
pub fn pass_on(ctx: &Ctx, inbox: SymSlice<f32>, tensor: SymSlice<f32>, arrived: Sym<Signal>) -> Result {
    let (block, next) = (Block::current(), ctx.pe_after(1));
    let part = block.share(tensor.len());
    let count = part.len() as u64;
    ctx.put_signal_nbi(
        block,
        inbox.slice(part.clone()),
        tensor.slice(part),
        arrived.add(count),
        next,
    )?;
    ctx.signal_wait_until(block, arrived, Cmp::Eq, tensor.len() as u64)?;
    ctx.quiet(block)
}
