//! Collective calls of teams.

use rushmem_device::prelude::*;

use crate::code::Collective;

/// Does `what`, a [`Collective`], with the other members of `team`. What is computed says `op`, a `Reduce` or a `Scan`,
/// and of which elements `kind`, an `ElementKind`; `extra` is the root of a broadcast, or the size of an element of an
/// all-to-all.
#[kernel]
#[allow(clippy::too_many_arguments)] // what all of them have, together
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
