//! Collective calls of teams.

use rushmem_device::prelude::*;

use crate::code::Collective;

/// Performs `what`, a [`Collective`], with the other members of `team`. `op` is a `Reduce` or a `Scan`, and `kind` an
/// `ElementKind`. `extra` is the root of a broadcast, or the element size of an all-to-all in bytes.
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
    } else if what == Collective::Broadcast as u32 {
        ctx.broadcast(block, team, dst, src, extra)
    } else if what == Collective::Fcollect as u32 {
        ctx.fcollect(block, team, dst, src)
    } else if what == Collective::Collect as u32 {
        ctx.collect(block, team, dst, src)
    } else if what == Collective::Alltoall as u32 {
        // The members compare the sizes of their elements.
        match extra {
            2 => ctx.alltoall::<_, u16>(block, team, dst.cast(), src.cast()),
            4 => ctx.alltoall::<_, u32>(block, team, dst.cast(), src.cast()),
            8 => ctx.alltoall::<_, u64>(block, team, dst.cast(), src.cast()),
            _ => ctx.alltoall(block, team, dst, src),
        }
    } else if what == Collective::Reduce as u32 {
        ctx.reduce_bytes(block, team, op, kind, dst, src)
    } else if what == Collective::ReduceScatter as u32 {
        ctx.reduce_scatter_bytes(block, team, op, kind, dst, src)
    } else {
        ctx.sum_scan_bytes(block, team, op, kind, dst, src)
    }
}
