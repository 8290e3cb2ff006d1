//! OpenSHMEM names of puts and gets.

use bytemuck::Pod;

use crate::{Ctx, Group, LocalBuffer, Result, Scalar, Sharing, Sym, SymSlice};

names! {
    shmem_put = put [G: Group, T: Pod] (group: G, dst: SymSlice<T>, src: impl LocalBuffer<T>, pe: u32) -> Result;
    shmem_put_nbi = put_nbi [G: Group, T: Pod] (group: G, dst: SymSlice<T>, src: impl LocalBuffer<T>, pe: u32) -> Result;
    shmem_get = get [G: Group, T: Pod] (group: G, dst: impl LocalBuffer<T>, src: SymSlice<T>, pe: u32) -> Result;
    shmem_get_nbi = get_nbi [G: Group, T: Pod] (group: G, dst: impl LocalBuffer<T>, src: SymSlice<T>, pe: u32) -> Result;
    shmem_p = p [T: Scalar] (dst: Sym<T>, value: T, pe: u32) -> Result;
    shmem_g = g [T: Scalar] (src: Sym<T>, pe: u32) -> Result<T>;
}

/// Calls [`Ctx::iput`] for `n` elements, `dst_stride` and `src_stride` elements apart.
///
/// # Errors
/// - The errors of [`Ctx::iput`].
#[inline(always)]
#[track_caller]
#[allow(clippy::too_many_arguments, reason = "the signature of OpenSHMEM")]
pub fn shmem_iput<S: Sharing, G: Group, T: Pod>(
    ctx: &Ctx<S>,
    group: G,
    dst: SymSlice<T>,
    src: SymSlice<T>,
    dst_stride: usize,
    src_stride: usize,
    n: usize,
    pe: u32,
) -> Result {
    shmem_ibput(ctx, group, dst, src, dst_stride, src_stride, 1, n, pe)
}

/// Calls [`Ctx::iget`] for `n` elements, `dst_stride` and `src_stride` elements apart.
///
/// # Errors
/// - The errors of [`Ctx::iget`].
#[inline(always)]
#[track_caller]
#[allow(clippy::too_many_arguments, reason = "the signature of OpenSHMEM")]
pub fn shmem_iget<S: Sharing, G: Group, T: Pod>(
    ctx: &Ctx<S>,
    group: G,
    dst: SymSlice<T>,
    src: SymSlice<T>,
    dst_stride: usize,
    src_stride: usize,
    n: usize,
    pe: u32,
) -> Result {
    shmem_ibget(ctx, group, dst, src, dst_stride, src_stride, 1, n, pe)
}

/// Calls [`Ctx::iput`] for `n` blocks of `block` elements. Strides are in elements.
///
/// # Errors
/// - The errors of [`Ctx::iput`].
#[inline(always)]
#[track_caller]
#[allow(clippy::too_many_arguments, reason = "the signature of OpenSHMEM")]
pub fn shmem_ibput<S: Sharing, G: Group, T: Pod>(
    ctx: &Ctx<S>,
    group: G,
    dst: SymSlice<T>,
    src: SymSlice<T>,
    dst_stride: usize,
    src_stride: usize,
    block: usize,
    n: usize,
    pe: u32,
) -> Result {
    let (dst, src) = (dst.blocks(block, dst_stride), src.blocks(block, src_stride));
    ctx.iput(group, dst.first(n), src.first(n), pe)
}

/// Calls [`Ctx::iget`] for `n` blocks of `block` elements. Strides are in elements.
///
/// # Errors
/// - The errors of [`Ctx::iget`].
#[inline(always)]
#[track_caller]
#[allow(clippy::too_many_arguments, reason = "the signature of OpenSHMEM")]
pub fn shmem_ibget<S: Sharing, G: Group, T: Pod>(
    ctx: &Ctx<S>,
    group: G,
    dst: SymSlice<T>,
    src: SymSlice<T>,
    dst_stride: usize,
    src_stride: usize,
    block: usize,
    n: usize,
    pe: u32,
) -> Result {
    let (dst, src) = (dst.blocks(block, dst_stride), src.blocks(block, src_stride));
    ctx.iget(group, dst.first(n), src.first(n), pe)
}
