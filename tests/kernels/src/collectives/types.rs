//! Reductions of typed objects, and the field's own names.

use rushmem_device::prelude::*;
use rushmem_device::shmem::*;

/// Sum, product, smallest and largest of the PEs' `src`, one after another in `dst`.
#[kernel]
pub fn reduce_floats(ctx: &Ctx, dst: SymSlice<f32>, src: SymSlice<f32>) -> Result {
    let (block, n) = (Block::current(), src.len());
    ctx.reduce(block, Team::WORLD, Reduce::Sum, dst.slice(0..n), src)?;
    ctx.reduce(block, Team::WORLD, Reduce::Prod, dst.slice(n..2 * n), src)?;
    ctx.reduce(block, Team::WORLD, Reduce::Min, dst.slice(2 * n..3 * n), src)?;
    ctx.reduce(block, Team::WORLD, Reduce::Max, dst.slice(3 * n..4 * n), src)
}

/// Calls every name of a collective call with `src`, of as many words as there are PEs. Result `i` begins at `i` times
/// as many words of `dst`.
#[kernel]
pub fn collective_names(ctx: &Ctx, team: Team, dst: SymSlice<i64>, src: SymSlice<i64>) -> Result {
    let (warp, n) = (Warp::current(), src.len());
    let to = |i: usize| dst.slice(i * n..(i + 1) * n);
    let (one, mine) = (|i: usize| dst.slice(i * n..i * n + 1), src.slice(0..1));
    shmem_team_sync(ctx, warp, team)?;
    shmem_broadcast(ctx, warp, team, to(0), src, 1)?;
    shmem_fcollect(ctx, warp, team, to(1), mine)?;
    shmem_collect(ctx, warp, team, to(2), mine)?;
    shmem_alltoall(ctx, warp, team, to(3), src)?;
    shmem_alltoalls(ctx, warp, team, to(4), src, 1, 1, 1)?;
    shmem_sum_reduce(ctx, warp, team, to(5), src)?;
    shmem_prod_reduce(ctx, warp, team, to(6), src)?;
    shmem_min_reduce(ctx, warp, team, to(7), src)?;
    shmem_max_reduce(ctx, warp, team, to(8), src)?;
    shmem_and_reduce(ctx, warp, team, to(9), src)?;
    shmem_or_reduce(ctx, warp, team, to(10), src)?;
    shmem_xor_reduce(ctx, warp, team, to(11), src)?;
    shmem_sum_inscan(ctx, warp, team, to(12), src)?;
    shmem_sum_exscan(ctx, warp, team, to(13), src)?;
    shmem_sum_reducescatter(ctx, warp, team, one(14), src)?;
    shmem_prod_reducescatter(ctx, warp, team, one(15), src)?;
    shmem_min_reducescatter(ctx, warp, team, one(16), src)?;
    shmem_max_reducescatter(ctx, warp, team, one(17), src)?;
    shmem_and_reducescatter(ctx, warp, team, one(18), src)?;
    shmem_or_reducescatter(ctx, warp, team, one(19), src)?;
    shmem_xor_reducescatter(ctx, warp, team, one(20), src)?;
    shmem_barrier(ctx, warp, team)
}
