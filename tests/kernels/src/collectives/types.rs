//! Test kernels of typed reductions, of the collectives' OpenSHMEM names, and of the LL protocol.

use rushmem_device::prelude::*;
use rushmem_device::shmem::*;

/// Stores the sum, product, minimum and maximum of the PEs' `src` in `dst`, one after another.
#[kernel]
pub fn reduce_floats(ctx: &Ctx, dst: SymSlice<f32>, src: SymSlice<f32>) -> Result {
    let (block, n) = (Block::current(), src.len());
    ctx.reduce(block, Team::WORLD, Reduce::Sum, dst.slice(0..n), src)?;
    ctx.reduce(block, Team::WORLD, Reduce::Prod, dst.slice(n..2 * n), src)?;
    ctx.reduce(block, Team::WORLD, Reduce::Min, dst.slice(2 * n..3 * n), src)?;
    ctx.reduce(block, Team::WORLD, Reduce::Max, dst.slice(3 * n..4 * n), src)
}

/// Exchanges words over the LL protocol for `epochs` epochs. Each word encodes its epoch, sender, receiver and index,
/// and the receiver counts wrong words in `bad`. Different PEs pause in
/// different epochs, to vary the timing.
#[kernel]
#[allow(clippy::too_many_arguments)] // a kernel's
pub fn words_with_flags(
    ctx: &Ctx,
    team: Team,
    slots: SymSlice<u64>,
    dst: SymSlice<u32>,
    src: SymSlice<u32>,
    bad: Sym<u32>,
    group_kind: u32,
    epochs: u32,
) -> Result {
    if group_kind == 0 {
        return if Thread::index() == 0 {
            flags_of(ctx, Thread, team, slots, dst, src, bad, epochs)
        } else {
            Ok(())
        };
    }
    flags_of(ctx, Block::current(), team, slots, dst, src, bad, epochs)
}

#[inline(always)]
#[allow(clippy::too_many_arguments)] // a kernel's
fn flags_of<G: Group>(
    ctx: &Ctx,
    group: G,
    team: Team,
    slots: SymSlice<u64>,
    dst: SymSlice<u32>,
    src: SymSlice<u32>,
    bad: Sym<u32>,
    epochs: u32,
) -> Result {
    let (Some(me), Some(n)) = (ctx.team_my_pe(team), ctx.team_n_pes(team)) else { return Ok(()) };
    let (out, into, len) = (ctx.local(src), ctx.local(dst), src.len().checked_div(n as usize).unwrap_or(0));
    let word = |epoch: u32, from: u32, to: u32, i: usize| epoch << 16 ^ from << 12 ^ to << 8 ^ i as u32;
    let mut epoch = 0;
    while epoch < epochs {
        let mut at = group.rank() as usize;
        while at < n as usize * len {
            let to = at.checked_div(len).unwrap_or(0);
            out.store(at, word(epoch, me, to as u32, at - to * len));
            at += group.size() as usize;
        }
        group.sync();
        let mut delay = if epoch & 7 == me & 7 { epoch & 63 } else { 0 };
        while delay > 0 {
            ctx.test(bad, Cmp::Eq, 0)?;
            group.sync();
            delay -= 1;
        }
        ctx.alltoall_ll(group, team, epoch, slots, dst, src)?;
        let mut at = group.rank() as usize;
        while at < n as usize * len {
            let from = at.checked_div(len).unwrap_or(0);
            if into.load(at) != word(epoch, from as u32, me, at - from * len) {
                ctx.atomic_inc(bad, ctx.my_pe())?;
            }
            at += group.size() as usize;
        }
        group.sync();
        epoch += 1;
    }
    ctx.quiet(group)
}

/// Calls every collective by its OpenSHMEM name. `src` has one word per PE. Result `i` starts at word `i * n` of `dst`,
/// where `n` is the number of PEs.
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
