//! Test kernel that interprets collective calls: each block performs a list of steps that the host generated.

mod grid;
mod misuse;
mod types;

pub use grid::{grid_collectives, grid_fails, many_sums};
pub use misuse::{Disagreement, disagree, half_barriers, team_twice};
pub use types::{collective_names, reduce_floats, words_with_flags};

use rushmem_device::prelude::*;

use crate::units::GroupKind;

/// Number of words per step: a [`Step`], the index of a team, `dst`, `src`, `n`, `a`, `b`, `c`.
pub const STEP_WORDS: usize = 8;

/// A step of the interpreter. `dst` and `src` are byte offsets, and lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Step {
    /// Terminates the list of steps.
    End,
    /// Calls `team_sync`.
    Sync,
    /// Calls `barrier`.
    Barrier,
    /// Calls `sync_arrive`.
    Arrive,
    /// Calls `sync_wait`.
    Wait,
    /// Calls `broadcast` of `n` bytes from member `a`.
    Broadcast,
    /// Calls `fcollect` of `n` bytes from each member.
    Fcollect,
    /// Calls `collect` of `n` bytes from this member, into `a` bytes.
    Collect,
    /// Calls `alltoall` with blocks of `n` bytes.
    Alltoall,
    /// Calls `reduce` of `n` bytes with operation `a` on type `b`.
    Reduce,
    /// Calls `reduce_scatter` into `n` bytes, with operation `a` on type `b`.
    ReduceScatter,
    /// Calls `scan` of `n` bytes, with kind `a` on type `b`.
    Scan,
    /// Calls `team_sync`, then `put_signal` of `n` bytes from member `a` to member `b`, which waits for signal `c`.
    PutSignal,
    /// Like `PutSignal`, but with a `put_nbi`, a `fence` and an atomic on the signal.
    PutFence,
    /// Delays the PE by `n` loads of a local word.
    Delay,
}

/// Performs the collective calls that `steps` lists for each block, with the block's first group and the teams `one`,
/// `two` and `three`.
#[kernel]
#[allow(clippy::too_many_arguments)] // a kernel's
pub fn collectives(
    ctx: &Ctx,
    group_kind: u32,
    one: Team,
    two: Team,
    three: Team,
    steps: SymSlice<u64>,
    bytes: SymSlice<u8>,
    signals: SymSlice<Signal>,
) -> Result {
    let teams = [one, two, three];
    let memory = Memory { steps, bytes, signals };
    if group_kind == GroupKind::Block as u32 {
        return follow(ctx, Block::current(), teams, memory);
    }
    if Warp::current().id() != 0 {
        return Ok(());
    }
    if group_kind == GroupKind::Warp as u32 {
        return follow(ctx, Warp::current(), teams, memory);
    }
    if Block::current().rank() == 0 { follow(ctx, Thread, teams, memory) } else { Ok(()) }
}

#[derive(Clone, Copy)]
struct Memory {
    steps: SymSlice<u64>,
    bytes: SymSlice<u8>,
    signals: SymSlice<Signal>,
}

#[inline(always)]
fn follow<G: Group>(ctx: &Ctx, group: G, [one, two, three]: [Team; 3], memory: Memory) -> Result {
    let block = Block::current();
    let share = memory.steps.len().checked_div(block.count() as usize).unwrap_or(0);
    let list = ctx.local(memory.steps);
    let mut at = block.id() as usize * share;
    let end = at + share;
    while at + STEP_WORDS <= end && list.load(at) != Step::End as u64 {
        let team = match list.load(at + 1) {
            0 => one,
            1 => two,
            2 => three,
            _ => Team::WORLD,
        };
        let words = [0, 2, 3, 4, 5, 6, 7].map(|i| list.load(at + i));
        step(ctx, group, team, words, memory)?;
        at += STEP_WORDS;
    }
    Ok(())
}

#[inline(always)]
fn step<G: Group>(
    ctx: &Ctx,
    group: G,
    team: Team,
    [code, dst, src, n, a, b, c]: [u64; STEP_WORDS - 1],
    memory: Memory,
) -> Result {
    let part = |from: u64, len: u64| memory.bytes.slice(from as usize..(from + len) as usize);
    if code == Step::Sync as u64 {
        ctx.team_sync(group, team)
    } else if code == Step::Barrier as u64 {
        ctx.barrier(group, team)
    } else if code == Step::Arrive as u64 {
        ctx.sync_arrive(group, team)
    } else if code == Step::Wait as u64 {
        ctx.sync_wait(group, team)
    } else if code == Step::Collect as u64 {
        ctx.collect(group, team, part(dst, a), part(src, n))
    } else if code == Step::Scan as u64 {
        ctx.sum_scan_bytes(group, team, a as u32, b as u32, part(dst, n), part(src, n))
    } else if code == Step::Delay as u64 {
        let mut turn = 0;
        while turn < n {
            ctx.test(memory.signals.at(0), Cmp::Eq, 1)?;
            group.sync();
            turn += 1;
        }
        Ok(())
    } else if code == Step::PutSignal as u64 || code == Step::PutFence as u64 {
        between_two(ctx, group, team, code, part(dst, n), part(src, n), [a, b, c], memory.signals)
    } else {
        by_callers(ctx, group, team, [code, dst, src, n, a, b], memory.bytes)
    }
}

/// Performs a step that is the same for a group of threads and for a whole grid.
#[inline(always)]
fn by_callers<C: CollectiveGroup>(
    ctx: &Ctx,
    callers: C,
    team: Team,
    [code, dst, src, n, a, b]: [u64; 6],
    bytes: SymSlice<u8>,
) -> Result {
    let members = ctx.team_n_pes(team).unwrap_or(0) as u64;
    let part = |from: u64, len: u64| bytes.slice(from as usize..(from + len) as usize);
    let (of_one, of_all) = (n, n * members);
    if code == Step::Broadcast as u64 {
        ctx.broadcast(callers, team, part(dst, of_one), part(src, of_one), a as u32)
    } else if code == Step::Fcollect as u64 {
        ctx.fcollect(callers, team, part(dst, of_all), part(src, of_one))
    } else if code == Step::Alltoall as u64 {
        ctx.alltoall(callers, team, part(dst, of_all), part(src, of_all))
    } else if code == Step::Reduce as u64 {
        ctx.reduce_bytes(callers, team, a as u32, b as u32, part(dst, of_one), part(src, of_one))
    } else {
        ctx.reduce_scatter_bytes(callers, team, a as u32, b as u32, part(dst, of_one), part(src, of_all))
    }
}

#[inline(always)]
#[allow(clippy::too_many_arguments)] // a step's
fn between_two<G: Group>(
    ctx: &Ctx,
    group: G,
    team: Team,
    code: u64,
    dst: SymSlice<u8>,
    src: SymSlice<u8>,
    [from, to, signal]: [u64; 3],
    signals: SymSlice<Signal>,
) -> Result {
    let me = ctx.team_my_pe(team).unwrap_or(u32::MAX) as u64;
    let (Some(pe), signal) = (ctx.translate_pe(team, to as u32, Team::WORLD), signals.at(signal as usize))
    else {
        return Ok(());
    };
    // After this, the receiver has finished its earlier steps and no longer uses the destination.
    ctx.team_sync(group, team)?;
    if me == from && code == Step::PutSignal as u64 {
        ctx.put_signal(group, dst, src, signal.add(1), pe)?;
    } else if me == from {
        ctx.put_nbi(group, dst, src, pe)?;
        if group.leader() {
            ctx.fence()?;
            ctx.atomic_add(signal, 1, pe)?;
        }
        ctx.quiet(group)?;
    }
    if me == to { ctx.wait_until(group, signal, Cmp::Eq, 1) } else { Ok(()) }
}

/// Calls `alltoalls` or `alltoallv` on words of 4 bytes, by the first block. `parts` holds the counts and offsets of
/// the destination, then those of the source.
#[kernel]
#[allow(clippy::too_many_arguments)] // a kernel's
pub fn scattered(
    ctx: &Ctx,
    group_kind: u32,
    team: Team,
    dst: SymSlice<u32>,
    src: SymSlice<u32>,
    dst_stride: u32,
    src_stride: u32,
    len: u32,
    parts: SymSlice<u64>,
) -> Result {
    let strides = (dst_stride as usize, src_stride as usize, len as usize);
    if group_kind == GroupKind::Block as u32 {
        return scattered_by(ctx, Block::current(), team, dst, src, strides, parts);
    }
    if Warp::current().id() != 0 {
        return Ok(());
    }
    if group_kind == GroupKind::Warp as u32 {
        return scattered_by(ctx, Warp::current(), team, dst, src, strides, parts);
    }
    if Block::current().rank() == 0 {
        scattered_by(ctx, Thread, team, dst, src, strides, parts)
    } else {
        Ok(())
    }
}

#[inline(always)]
fn scattered_by<G: Group>(
    ctx: &Ctx,
    group: G,
    team: Team,
    dst: SymSlice<u32>,
    src: SymSlice<u32>,
    (dst_stride, src_stride, len): (usize, usize, usize),
    parts: SymSlice<u64>,
) -> Result {
    if dst_stride != 0 {
        return ctx.alltoalls(group, team, dst, src, dst_stride, src_stride, len);
    }
    let n = ctx.team_n_pes(team).unwrap_or(0) as usize;
    let words = |i: usize| parts.slice(i * n..(i + 1) * n);
    let (to, from) =
        (Parts { counts: words(0), offsets: words(1) }, Parts { counts: words(2), offsets: words(3) });
    ctx.alltoallv(group, team, dst, to, src, from)
}
