//! Test kernels that make collective calls with invalid or mismatched arguments.

use rushmem_device::prelude::*;

use crate::units::GroupKind;

/// A collective call that the PEs may disagree on, or whose arguments are invalid, as a kernel argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Disagreement {
    /// Calls `team_sync`.
    Sync,
    /// Calls `fcollect`.
    Fcollect,
    /// Calls `collect`.
    Collect,
    /// Calls `alltoall`.
    Alltoall,
    /// Calls `broadcast` from member 0.
    Broadcast,
    /// Calls `broadcast` from member 1.
    OtherRoot,
    /// Calls `reduce` with the operation `Sum`.
    Sum,
    /// Calls `reduce` with the operation `Max`.
    Largest,
    /// Calls `reduce` with the operation `Sum` on 3 words instead of 4.
    Fewer,
    /// Calls `reduce` with the operation `Sum` on words of another type.
    OtherType,
    /// Calls `scan`.
    Scan,
    /// Calls `reduce_scatter` with the operation `Sum`.
    ScatteredSum,
    /// Calls `fcollect` with a destination that is too short.
    Shorter,
    /// Calls `alltoall` with an overlapping source and destination.
    Overlapping,
    /// Calls `broadcast` from a member that does not exist.
    NoSuchRoot,
    /// Calls `reduce` with the bitwise operation `And` on floating-point numbers.
    BitsOfFloats,
    /// Calls `fcollect` with a destination longer than its object.
    Outside,
}

/// Makes the collective call that `which` (a [`Disagreement`]) selects, then a valid `fcollect` from `src` to `dst`.
/// Stores both error codes in `codes`, or 1000 for success.
#[kernel]
#[allow(clippy::too_many_arguments)] // a kernel's
pub fn disagree(
    ctx: &Ctx,
    which: u32,
    group_kind: u32,
    team: Team,
    dst: SymSlice<u32>,
    src: SymSlice<u32>,
    wide: SymSlice<u32>,
    floats: SymSlice<f32>,
    codes: SymSlice<u32>,
) {
    if group_kind == GroupKind::Block as u32 {
        disagree_as(ctx, Block::current(), which, team, dst, src, wide, floats, codes);
    } else if group_kind == GroupKind::Warp as u32 {
        disagree_as(ctx, Warp::current(), which, team, dst, src, wide, floats, codes);
    } else if Thread::index() == 0 {
        disagree_as(ctx, Thread, which, team, dst, src, wide, floats, codes);
    }
}

#[inline(always)]
#[allow(clippy::too_many_arguments)] // a kernel's
fn disagree_as<G: Group>(
    ctx: &Ctx,
    group: G,
    which: u32,
    team: Team,
    dst: SymSlice<u32>,
    src: SymSlice<u32>,
    wide: SymSlice<u32>,
    floats: SymSlice<f32>,
    codes: SymSlice<u32>,
) {
    let first = call(ctx, group, which, team, src, wide, floats);
    let second = ctx.fcollect(group, team, dst, src);
    if group.leader() {
        ctx.local(codes).store(0, code_of(first));
        ctx.local(codes).store(1, code_of(second));
    }
}

#[inline(always)]
fn call<G: Group>(
    ctx: &Ctx,
    group: G,
    which: u32,
    team: Team,
    src: SymSlice<u32>,
    wide: SymSlice<u32>,
    floats: SymSlice<f32>,
) -> Result {
    use Disagreement as D;
    let (four, n) = (wide.slice(0..4), ctx.team_n_pes(team).unwrap_or(0) as usize);
    if which == D::Sync as u32 {
        ctx.team_sync(group, team)
    } else if which == D::Fcollect as u32 {
        ctx.fcollect(group, team, wide, src)
    } else if which == D::Collect as u32 {
        ctx.collect(group, team, wide, src)
    } else if which == D::Alltoall as u32 {
        ctx.alltoall(group, team, wide.slice(0..n), wide.slice(n..2 * n))
    } else if which == D::Broadcast as u32 {
        ctx.broadcast(group, team, four, src, 0)
    } else if which == D::OtherRoot as u32 {
        ctx.broadcast(group, team, four, src, 1)
    } else if which == D::Sum as u32 {
        ctx.reduce(group, team, Reduce::Sum, four, src)
    } else if which == D::Largest as u32 {
        ctx.reduce(group, team, Reduce::Max, four, src)
    } else if which == D::Fewer as u32 {
        ctx.reduce(group, team, Reduce::Sum, wide.slice(0..3), src.slice(0..3))
    } else if which == D::Scan as u32 {
        ctx.sum_scan(group, team, Scan::Inclusive, four, src)
    } else if which == D::ScatteredSum as u32 {
        ctx.reduce_scatter(group, team, Reduce::Sum, src, wide)
    } else {
        wrong(ctx, group, which, team, src, wide, floats)
    }
}

#[inline(always)]
fn wrong<G: Group>(
    ctx: &Ctx,
    group: G,
    which: u32,
    team: Team,
    src: SymSlice<u32>,
    wide: SymSlice<u32>,
    floats: SymSlice<f32>,
) -> Result {
    use Disagreement as D;
    if which == D::OtherType as u32 {
        ctx.reduce(group, team, Reduce::Sum, floats, floats)
    } else if which == D::Shorter as u32 {
        ctx.fcollect(group, team, wide.slice(0..2), src)
    } else if which == D::Overlapping as u32 {
        ctx.alltoall(group, team, wide.slice(0..6), wide.slice(3..9))
    } else if which == D::NoSuchRoot as u32 {
        ctx.broadcast(group, team, wide.slice(0..4), src, 99)
    } else if which == D::BitsOfFloats as u32 {
        ctx.reduce(group, team, Reduce::And, floats, floats)
    } else {
        ctx.fcollect(group, team, wide.slice(0..wide.len() + 1), src)
    }
}

/// Makes two blocks of PE 0 enter the team's sync at the same time. The rejected block signals PE 1, which waits for
/// that signal before it enters. Stores the error code of each call in `codes`.
#[kernel]
pub fn team_twice(ctx: &Ctx, team: Team, signal: Sym<Signal>, codes: SymSlice<u32>) -> Result {
    let block = Block::current();
    if ctx.my_pe() == 1 {
        ctx.signal_wait_until(block, signal, Cmp::Eq, 1)?;
        return ctx.team_sync(block, team);
    }
    let synced = ctx.team_sync(block, team);
    if block.leader() {
        ctx.local(codes).store(block.id() as usize, code_of(synced));
        if synced == Err(Error::TeamBusy) {
            ctx.signal_op(signal.set(1), 1)?;
        }
    }
    Ok(())
}

/// Calls `sync_wait` too early, `sync_arrive`, `sync_arrive` once too often, and then the valid calls that complete the
/// sync. Stores the error codes in `codes`.
#[kernel]
pub fn half_barriers(ctx: &Ctx, team: Team, codes: SymSlice<u32>) {
    let block = Block::current();
    let out = ctx.local(codes);
    let keep = |i: usize, result: Result| {
        if block.leader() {
            out.store(i, code_of(result));
        }
    };
    keep(0, ctx.sync_wait(block, team));
    keep(1, ctx.sync_arrive(block, team));
    keep(2, ctx.sync_arrive(block, team));
    keep(3, ctx.sync_wait(block, team));
    keep(4, ctx.team_sync(block, team));
}

#[inline(always)]
fn code_of(result: Result) -> u32 {
    match result {
        Ok(()) => 1000,
        Err(error) => error as u32,
    }
}
