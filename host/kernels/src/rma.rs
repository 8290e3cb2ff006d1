//! Kernels for puts and gets that the host starts.

use rushmem_device::prelude::*;

use crate::code::Transfer;

/// Alignment of each block's share of a transfer, in bytes: blocks transfer whole cache lines.
const LINE_BYTES: usize = 128;

/// Performs `what`, a [`Transfer`], between `remote` on `pe` and `local` on this PE. The blocks share the work.
///
/// # Errors
/// - The errors of [`Ctx::put`] or [`Ctx::get`].
#[kernel]
pub fn rushmem_transfer(ctx: &Ctx, what: u32, remote: SymSlice<u8>, local: SymSlice<u8>, pe: u32) -> Result {
    let block = Block::current();
    let (remote, local) = if block.count() > 1 {
        let lines = block.share(local.len().div_ceil(LINE_BYTES));
        let part = (lines.start * LINE_BYTES).min(local.len())..(lines.end * LINE_BYTES).min(local.len());
        (remote.slice(part.clone()), local.slice(part))
    } else {
        (remote, local)
    };
    if what == Transfer::Put as u32 {
        ctx.put(block, remote, local, pe)
    } else if what == Transfer::PutNbi as u32 {
        ctx.put_nbi(block, remote, local, pe)
    } else if what == Transfer::Get as u32 {
        ctx.get(block, local, remote, pe)
    } else {
        ctx.get_nbi(block, local, remote, pe)
    }
}

/// Performs `what`, a [`Transfer`], on `count` blocks of `block` bytes between `remote` on `pe` and `local` on this PE.
/// Strides are in bytes.
///
/// # Errors
/// - The errors of [`Ctx::iput`] or [`Ctx::iget`].
#[kernel]
#[allow(clippy::too_many_arguments)] // two strided ends and an operation
pub fn rushmem_strided(
    ctx: &Ctx,
    what: u32,
    remote: SymSlice<u8>,
    remote_stride: u64,
    local: SymSlice<u8>,
    local_stride: u64,
    block: u64,
    count: u64,
    pe: u32,
) -> Result {
    let (group, bytes, count) = (Block::current(), block as usize, count as usize);
    let remote = remote.blocks(bytes, remote_stride as usize).first(count);
    let local = local.blocks(bytes, local_stride as usize).first(count);
    if what == Transfer::Put as u32 {
        ctx.iput(group, remote, local, pe)
    } else if what == Transfer::PutNbi as u32 {
        ctx.iput_nbi(group, remote, local, pe)
    } else if what == Transfer::Get as u32 {
        ctx.iget(group, local, remote, pe)
    } else {
        ctx.iget_nbi(group, local, remote, pe)
    }
}

/// Writes the low bytes of `value` to `dst` on `pe`, which has 1, 2, 4 or 8 bytes.
///
/// # Errors
/// - The errors of [`Ctx::p`].
#[kernel]
pub fn rushmem_p(ctx: &Ctx, dst: SymSlice<u8>, value: u64, pe: u32) -> Result {
    if Thread::index() != 0 {
        return Ok(());
    }
    // Earlier kernels of the stream and the host may have written data that this put announces. Publish their stores.
    ctx.fence_system();
    match dst.len() {
        1 => ctx.p(dst.at(0), value as u8, pe),
        2 => ctx.p(dst.cast().at(0), value as u16, pe),
        4 => ctx.p(dst.cast().at(0), value as u32, pe),
        _ => ctx.p(dst.cast().at(0), value, pe),
    }
}

/// Performs `put_signal`, or `put_signal_nbi` if `nbi` is nonzero. Sets the signal if `set` is nonzero, and otherwise
/// adds to it.
///
/// # Errors
/// - The errors of [`Ctx::put_signal`].
#[kernel]
#[allow(clippy::too_many_arguments)] // OpenSHMEM's signature
pub fn rushmem_put_signal(
    ctx: &Ctx,
    nbi: u32,
    set: u32,
    dst: SymSlice<u8>,
    src: SymSlice<u8>,
    signal: Sym<Signal>,
    value: u64,
    pe: u32,
) -> Result {
    let block = Block::current();
    let update = if set != 0 { signal.set(value) } else { signal.add(value) };
    if nbi != 0 {
        ctx.put_signal_nbi(block, dst, src, update, pe)
    } else {
        ctx.put_signal(block, dst, src, update, pe)
    }
}
