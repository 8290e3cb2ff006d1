//! Test kernels of strided puts and gets.

use rushmem_device::prelude::*;

use crate::units::GroupKind;

/// A strided call, as a kernel argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum StridedCall {
    /// Calls `iput`.
    Put,
    /// Calls `iput_nbi`.
    PutNbi,
    /// Calls `iget`.
    Get,
    /// Calls `iget_nbi`.
    GetNbi,
}

/// Transfers `n` strided blocks of `block` elements to or from the next PE, with the first group of the grid.
#[kernel]
#[allow(clippy::too_many_arguments)] // what goes and how
pub fn move_strided(
    ctx: &Ctx,
    call: u32,
    group_kind: u32,
    dst: SymSlice<u16>,
    src: SymSlice<u16>,
    dst_stride: u32,
    src_stride: u32,
    block: u32,
    n: u32,
) -> Result {
    let dst = dst.blocks(block as usize, dst_stride as usize).first(n as usize);
    let src = src.blocks(block as usize, src_stride as usize).first(n as usize);
    if Block::current().id() != 0 {
        return Ok(());
    }
    if group_kind == GroupKind::Block as u32 {
        moved(ctx, Block::current(), call, dst, src)
    } else if group_kind == GroupKind::Warp as u32 && Warp::current().id() == 0 {
        moved(ctx, Warp::current(), call, dst, src)
    } else if group_kind == GroupKind::Thread as u32 && Thread::index() == 0 {
        moved(ctx, Thread, call, dst, src)
    } else {
        Ok(())
    }
}

#[inline(always)]
fn moved<G: Group>(ctx: &Ctx, group: G, call: u32, dst: Strided<u16>, src: Strided<u16>) -> Result {
    let pe = ctx.pe_after(1);
    if call == StridedCall::Put as u32 {
        ctx.iput(group, dst, src, pe)?;
    } else if call == StridedCall::PutNbi as u32 {
        ctx.iput_nbi(group, dst, src, pe)?;
    } else if call == StridedCall::Get as u32 {
        return ctx.iget(group, dst, src, pe);
    } else {
        ctx.iget_nbi(group, dst, src, pe)?;
    }
    ctx.quiet(group)
}

/// Puts every third of each thread's elements to every second element of its destination on the next PE.
#[kernel]
pub fn thread_strides(ctx: &Ctx, dst: SymSlice<u64>, src: SymSlice<u64>, each: u32) -> Result {
    let (i, each) = (Thread::index(), each as usize);
    let from = src.slice(i * each * 3..(i + 1) * each * 3);
    let to = dst.slice(i * each * 2..(i + 1) * each * 2);
    ctx.iput_nbi(Thread, to.every(2), from.every(3), ctx.pe_after(1))?;
    ctx.quiet(Thread)
}
