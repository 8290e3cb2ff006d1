//! Kernels for collective calls that the host starts.

use rushmem_device::prelude::*;
use rushmem_device::{ChannelWords, SmallCall};

use crate::code::Collective;

/// Performs `what`, a [`Collective`] that a whole grid can perform. The arguments are those of [`rushmem_collective`],
/// and the `channels` of `team`. The grid has at most as many blocks as it has channels.
///
/// # Errors
/// - The errors of the collective call, such as [`Ctx::broadcast`].
#[kernel]
#[allow(clippy::too_many_arguments)] // the union of all their arguments
pub fn rushmem_grid_collective(
    ctx: &Ctx,
    what: u32,
    team: Team,
    op: u32,
    kind: u32,
    dst: SymSlice<u8>,
    src: SymSlice<u8>,
    extra: u32,
    channels: ChannelWords,
) -> Result {
    // Earlier kernels of the stream have completed, so the grid needs no barrier first.
    let grid = WholeGrid::current().of_channels(channels);
    by_callers(ctx, grid, what, team, op, kind, dst, src, extra)
}

/// Performs a small collective call whose arguments the host has checked, by a single block.
///
/// # Errors
/// - The errors of the collective call, such as [`Ctx::broadcast`].
#[kernel(after_failure)]
pub fn rushmem_small_collective(ctx: &Ctx, team: Team, call: SmallCall) -> Result {
    ctx.small_collective(Block::current(), team, call)
}

/// Like [`rushmem_small_collective`], by several blocks: at most as many as `team` has `channels`.
///
/// # Errors
/// - The errors of the collective call, such as [`Ctx::broadcast`].
#[kernel(after_failure)]
pub fn rushmem_small_grid_collective(
    ctx: &Ctx,
    team: Team,
    call: SmallCall,
    channels: ChannelWords,
) -> Result {
    ctx.small_collective(WholeGrid::current().of_channels(channels), team, call)
}

/// Performs a collective that both blocks and whole grids can call, as coded by `what`.
#[inline(always)]
#[allow(clippy::too_many_arguments)] // the union of all their arguments
fn by_callers<C: CollectiveGroup>(
    ctx: &Ctx,
    callers: C,
    what: u32,
    team: Team,
    op: u32,
    kind: u32,
    dst: SymSlice<u8>,
    src: SymSlice<u8>,
    extra: u32,
) -> Result {
    if what == Collective::Broadcast as u32 {
        ctx.broadcast(callers, team, dst, src, extra)
    } else if what == Collective::Fcollect as u32 {
        ctx.fcollect(callers, team, dst, src)
    } else if what == Collective::Alltoall as u32 {
        alltoall(ctx, callers, team, dst, src, extra)
    } else if what == Collective::Reduce as u32 {
        ctx.reduce_bytes(callers, team, op, kind, dst, src)
    } else {
        ctx.reduce_scatter_bytes(callers, team, op, kind, dst, src)
    }
}

/// Calls `alltoall` with elements of `size` bytes, because the members compare their element sizes.
#[inline(always)]
fn alltoall<C: CollectiveGroup>(
    ctx: &Ctx,
    callers: C,
    team: Team,
    dst: SymSlice<u8>,
    src: SymSlice<u8>,
    size: u32,
) -> Result {
    match size {
        2 => ctx.alltoall::<_, u16>(callers, team, dst.cast(), src.cast()),
        4 => ctx.alltoall::<_, u32>(callers, team, dst.cast(), src.cast()),
        8 => ctx.alltoall::<_, u64>(callers, team, dst.cast(), src.cast()),
        _ => ctx.alltoall(callers, team, dst, src),
    }
}

/// Performs `what`, a [`Collective`], together with the other members of `team`. `op` is a `Reduce` or a `Scan`, and
/// `kind` an `ElementKind`. `extra` is the root of a broadcast, or the element size of an all-to-all in bytes.
///
/// # Errors
/// - The errors of the collective call, such as [`Ctx::broadcast`].
#[kernel]
#[allow(clippy::too_many_arguments)] // the union of all their arguments
pub fn rushmem_collective(
    ctx: &Ctx,
    what: u32,
    team: Team,
    op: u32,
    kind: u32,
    dst: SymSlice<u8>,
    src: SymSlice<u8>,
    extra: u32,
) -> Result {
    let block = Block::current();
    if what == Collective::Sync as u32 {
        ctx.team_sync(block, team)
    } else if what == Collective::Barrier as u32 {
        ctx.barrier(block, team)
    } else if what == Collective::Collect as u32 {
        ctx.collect(block, team, dst, src)
    } else if what == Collective::Scan as u32 {
        ctx.sum_scan_bytes(block, team, op, kind, dst, src)
    } else {
        by_callers(ctx, block, what, team, op, kind, dst, src, extra)
    }
}
