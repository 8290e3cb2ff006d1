//! Collective calls. Every member of the team makes the same call, with one group of threads.

use core::ffi::c_void;

use rushmem_device::{Group, Result, Team};
use rushmem_macros::export;

use crate::call::{Ctx, TeamBits, symmetric_at, team_of};

/// Completes the group's operations, and waits until all PEs have made the call.
#[export(thread, warp, block)]
fn barrier_all(ctx: &Ctx<'_>, group: impl Group) -> Result {
    ctx.barrier_all(group)
}

/// Waits until all PEs have made the call, without completing operations.
#[export(thread, warp, block)]
fn sync_all(ctx: &Ctx<'_>, group: impl Group) -> Result {
    ctx.sync_all(group)
}

/// Completes the group's operations, and waits until all members of `team` have made the call.
#[export(thread, warp, block)]
fn barrier(ctx: &Ctx<'_>, group: impl Group, team: TeamBits) -> Result {
    ctx.barrier(group, team_of(team))
}

/// Waits until all members of `team` have made the call, without completing operations.
#[export(thread, warp, block)]
fn team_sync(ctx: &Ctx<'_>, group: impl Group, team: TeamBits) -> Result {
    ctx.team_sync(group, team_of(team))
}

/// Copies `bytes` bytes from `src` of the member `root` to `dst` of every member.
#[export(warp, block)]
fn broadcastmem(
    ctx: &Ctx<'_>,
    group: impl Group,
    team: TeamBits,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    root: i32,
) -> Result {
    ctx.broadcast(
        group,
        team_of(team),
        symmetric_at(ctx, group, dst, bytes)?,
        symmetric_at(ctx, group, src, bytes)?,
        root as u32,
    )
}

/// Concatenates `bytes` bytes of `src` of every member in `dst`, in team order.
#[export(warp, block)]
fn fcollectmem(
    ctx: &Ctx<'_>,
    group: impl Group,
    team: TeamBits,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
) -> Result {
    let team = team_of(team);
    let all = bytes.saturating_mul(members(ctx, team));
    ctx.fcollect(group, team, symmetric_at(ctx, group, dst, all)?, symmetric_at(ctx, group, src, bytes)?)
}

/// Sends part `i` of `src`, of `bytes` bytes, to member `i`, which stores the part from member `j` as part `j` of its `dst`.
#[export(warp, block)]
fn alltoallmem(
    ctx: &Ctx<'_>,
    group: impl Group,
    team: TeamBits,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
) -> Result {
    let team = team_of(team);
    let all = bytes.saturating_mul(members(ctx, team));
    ctx.alltoall(group, team, symmetric_at(ctx, group, dst, all)?, symmetric_at(ctx, group, src, all)?)
}

/// Combines `bytes` bytes of `src` of all members, elements of `type` by `op`, and stores the result in `dst` of each.
#[export(warp, block)]
fn reduce(
    ctx: &Ctx<'_>,
    group: impl Group,
    team: TeamBits,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    r#type: i32,
    op: i32,
) -> Result {
    let (dst, src) = (symmetric_at(ctx, group, dst, bytes)?, symmetric_at(ctx, group, src, bytes)?);
    ctx.reduce_bytes(group, team_of(team), op as u32, r#type as u32, dst, src)
}

/// Combines `src` of all members, of which each receives its `bytes` bytes of the result in `dst`: member `i` the `i`th
/// part.
#[export(warp, block)]
fn reduce_scatter(
    ctx: &Ctx<'_>,
    group: impl Group,
    team: TeamBits,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    r#type: i32,
    op: i32,
) -> Result {
    let team = team_of(team);
    let all = bytes.saturating_mul(members(ctx, team));
    let (dst, src) = (symmetric_at(ctx, group, dst, bytes)?, symmetric_at(ctx, group, src, all)?);
    ctx.reduce_scatter_bytes(group, team, op as u32, r#type as u32, dst, src)
}

/// Returns the number of members of a team, or 1 if there is no such team, which the call itself then reports.
#[inline(always)]
fn members(ctx: &Ctx<'_>, team: Team) -> usize {
    ctx.team_n_pes(team).map_or(1, |n| n as usize)
}
