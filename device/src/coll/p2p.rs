//! Collective calls where the heaps of all PEs are near: members write to each other's memory.
//!
//! What others write or read lies in the heap itself; objects in segments go the way of [`call`](super::call), as all members
//! see of their own arguments.
//!
//! **Meeting.** Each member stores its word at all others, after a fence, and waits for theirs: a lane for each. The words
//! are those of [`call`](super::call), so that calls of both kinds meet.
//!
//! **Small calls** take one flight, without a fence: see [`flight`]. Data and word travel at once. Each member writes to its own
//! destination alone, by its own arguments, while it hears the others; if they mean something else, what is there then is of no
//! use.
//!
//! **Others** meet, write straight to the destinations, or read from the sources, and meet again.
//!
//! A fence takes longer than all else that a member does by itself, so that another warp asks for the team overlap.
//!
//! Kernels pass their context as pairs of words ([`P2pTeam`]), and nothing of it is read from memory.

mod progress;

use core::panic::Location;

use self::progress::{Near, Sends, Takes};
use super::fold::Row;
use super::kind;
use super::ll;
use super::p2p_team::{P2pTeam, Pair};
use super::reduce::{What, cut};
use super::spread::{Span, check_equal, check_spans};
use super::strided::{check_strided, folded};
use crate::abi::{DevAddr, team_words};
use crate::error::{Detail, Error, Result, record};
use crate::group::Group;
use crate::team::Team;

/// Where a block begins that is to get to `dst`; none if it is there.
#[inline(always)]
fn unless_there(src: u64, dst: u64) -> Option<u64> {
    if src == dst { None } else { Some(src) }
}

/// `bytes / n`. A division of 64 bits takes a GPU its time.
#[inline(always)]
fn share_of(bytes: u64, n: u32) -> u64 {
    match u32::try_from(bytes) {
        Ok(bytes) => (bytes / n.max(1)) as u64,
        Err(_) => bytes / n.max(1) as u64,
    }
}

/// True if a call that brings so many bytes to a member is none of the small ones in any team.
#[inline(always)]
fn is_large(bytes: u64) -> bool {
    ll::bytes(bytes) > team_words::MOST_SLOTS
}

/// [`Ctx::team_sync`].
#[inline(never)]
#[track_caller]
pub(super) fn sync<G: Group>(
    group: G,
    heap: Pair,
    near: Pair,
    rest: Pair,
    teams: Pair,
    sizes: Pair,
    team: Team,
) -> Result {
    let ways = P2pTeam { heap, near, rest, teams, sizes, team };
    let call_hash = || ways.call_hash(kind::SYNC, [0; 4]);
    let (mut call, _) = Near::begin(group, ways, true, call_hash, || true, |_, _, _| Ok(()))?;
    let met = call.meet_once();
    call.end(met)
}

/// [`Ctx::broadcast`].
#[inline(never)]
#[track_caller]
#[allow(clippy::too_many_arguments)] // plain words
pub(super) fn broadcast<G: Group>(
    group: G,
    heap: Pair,
    near: Pair,
    rest: Pair,
    teams: Pair,
    sizes: Pair,
    team: Team,
    dst: Span,
    src: Span,
    root: u32,
) -> Result {
    let (ways, site) = (P2pTeam { heap, near, rest, teams, sizes, team }, Location::caller());
    let plain = || src.1 == dst.1 && ways.are_plain(dst, src, dst.0);
    let check = |n: u32, _, plain| {
        let ctx = ways.ctx();
        if root >= n {
            let d = Detail { found: root as u64, wanted: n as u64, ..Detail::NONE };
            return Err(record(ctx.parts_ref().state, Error::BadPe, d, site));
        }
        if plain {
            return Ok(());
        }
        check_spans(site, &ctx, dst, src, dst.0).and_then(|()| check_equal(site, &ctx, src.1, dst.1))
    };
    let call_hash = || ways.call_hash(kind::BROADCAST, [dst.0, dst.1, root as u64, 0]);
    let (mut call, mine) = Near::begin(group, ways, is_large(dst.1), call_hash, plain, check)?;
    let done = broadcast_in(&mut call, mine, dst, src, root);
    call.end(done)
}

#[inline(always)]
#[track_caller]
fn broadcast_in<G: Group>(call: &mut Near<G>, mine: Result, dst: Span, src: Span, root: u32) -> Result {
    let is_root = call.me == root;
    if call.is_small(1, dst.1) {
        let sends = Sends { src: src.0, step: 0, block: 0, bytes: if is_root { dst.1 } else { 0 } };
        let (members, own) = ((root, root.saturating_add(1)), unless_there(src.0, dst.0));
        let takes = Takes { dst: dst.0, step: 0, members, own, bytes: dst.1 };
        return call.exchange(mine, sends, takes);
    }
    call.meet(mine)?;
    if is_root {
        let mut k = 1;
        while k < call.n {
            call.put(call.after(k), dst.0, src.0, src.1);
            k += 1;
        }
    }
    let own = if is_root && dst.0 != src.0 { src.1 } else { 0 };
    call.meet_last(|call, rank, of| call.copy(rank, of, dst.0, src.0, own))
}

/// [`Ctx::fcollect`].
#[inline(never)]
#[track_caller]
#[allow(clippy::too_many_arguments)] // plain words
pub(super) fn fcollect<G: Group>(
    group: G,
    heap: Pair,
    near: Pair,
    rest: Pair,
    teams: Pair,
    sizes: Pair,
    team: Team,
    dst: Span,
    src: Span,
) -> Result {
    let (ways, site) = (P2pTeam { heap, near, rest, teams, sizes, team }, Location::caller());
    let plain = || ways.are_plain(dst, src, u64::MAX);
    let check = |n: u32, me: u32, plain| {
        if plain && dst.1 == src.1 * n as u64 {
            return Ok(());
        }
        let ctx = ways.ctx();
        let at = dst.0.wrapping_add(me as u64 * src.1);
        check_spans(site, &ctx, dst, src, at).and_then(|()| check_equal(site, &ctx, dst.1, src.1 * n as u64))
    };
    let call_hash = || ways.call_hash(kind::FCOLLECT, [dst.0, dst.1, 0, 0]);
    let (mut call, mine) = Near::begin(group, ways, is_large(dst.1), call_hash, plain, check)?;
    let done = spread(&mut call, mine, dst, src.0, 0, src.1);
    call.end(done)
}

/// [`Ctx::alltoall`].
#[inline(never)]
#[track_caller]
#[allow(clippy::too_many_arguments)] // plain words
pub(super) fn alltoall<G: Group>(
    group: G,
    heap: Pair,
    near: Pair,
    rest: Pair,
    teams: Pair,
    sizes: Pair,
    team: Team,
    dst: Span,
    src: Span,
    size: u64,
) -> Result {
    let (ways, site) = (P2pTeam { heap, near, rest, teams, sizes, team }, Location::caller());
    let plain = || src.1 == dst.1 && ways.are_plain(dst, src, u64::MAX);
    // Whole elements.
    let block_of = |n: u32| share_of(share_of(src.1, n), size as u32) * size;
    let check = |n: u32, _, plain| {
        let (ctx, block) = (ways.ctx(), block_of(n));
        if plain && src.1 == n as u64 * block {
            return Ok(block);
        }
        check_spans(site, &ctx, dst, src, u64::MAX)
            .and_then(|()| check_equal(site, &ctx, src.1, dst.1))
            .and_then(|()| check_equal(site, &ctx, src.1, n as u64 * block))
            .map(|()| block)
    };
    let call_hash = || ways.call_hash(kind::ALLTOALL, [dst.0, dst.1, size, 0]);
    let (mut call, checked) = Near::begin_with(group, ways, is_large(dst.1), call_hash, plain, check)?;
    // Wrong arguments have no blocks.
    let (block, mine) = (checked.unwrap_or(0), checked.map(|_| ()));
    let done = spread(&mut call, mine, dst, src.0, block, block);
    call.end(done)
}

/// Each member's `dst` gets a block from each, which lies at `src` of that one, and `step` bytes further on for each
/// receiver.
#[inline(always)]
#[track_caller]
fn spread<G: Group>(call: &mut Near<G>, mine: Result, dst: Span, src: u64, step: u64, block: u64) -> Result {
    let (at, from) = (dst.0 + call.me as u64 * block, |member: u32| src + member as u64 * step);
    let own = from(call.me);
    if call.is_small(call.n, block) {
        let sends = Sends { src, step, block: call.me, bytes: block };
        let own = unless_there(own, at);
        let takes = Takes { dst: dst.0, step: block, members: (0, call.n), own, bytes: block };
        return call.exchange(mine, sends, takes);
    }
    call.meet(mine)?;
    let mut k = 1;
    while k < call.n {
        let member = call.after(k);
        call.put(member, at, from(member), block);
        k += 1;
    }
    let bytes = if at == own { 0 } else { block };
    call.meet_last(|call, rank, of| call.copy(rank, of, at, own, bytes))
}

/// [`Ctx::alltoalls`].
#[inline(never)]
#[track_caller]
#[allow(clippy::too_many_arguments)] // plain words
pub(super) fn alltoalls<G: Group>(
    group: G,
    heap: Pair,
    near: Pair,
    rest: Pair,
    teams: Pair,
    sizes: Pair,
    team: Team,
    dst: Span,
    src: Span,
    strides: Pair,
    len: u64,
    size: u64,
) -> Result {
    let (ways, site) = (P2pTeam { heap, near, rest, teams, sizes, team }, Location::caller());
    let check = |n: u32, _, _| {
        check_strided(site, &ways.ctx(), (n as u64).saturating_mul(len), dst, src, strides, size)
    };
    let call_hash = || ways.call_hash(kind::ALLTOALLS, [dst.0, len, folded(strides), size]);
    let (mut call, mine) = Near::begin(group, ways, true, call_hash, || false, check)?;
    let done = call.meet(mine).and_then(|()| {
        let mut k = 0;
        while k < call.n {
            call.put_strided(call.after(k), dst.0, src.0, strides, len, size);
            k += 1;
        }
        call.meet_last(|_, _, _| ())
    });
    call.end(done)
}

/// [`Ctx::reduce`].
#[inline(never)]
#[track_caller]
#[allow(clippy::too_many_arguments)] // plain words
pub(super) fn reduce<G: Group>(
    group: G,
    heap: Pair,
    near: Pair,
    rest: Pair,
    teams: Pair,
    sizes: Pair,
    team: Team,
    what: What,
    dst: Span,
    src: Span,
) -> Result {
    let (ways, site) = (P2pTeam { heap, near, rest, teams, sizes, team }, Location::caller());
    let plain = || src.1 == dst.1 && ways.are_plain(dst, src, dst.0);
    let check = |_, _, plain: bool| {
        let ctx = ways.ctx();
        if !plain {
            check_spans(site, &ctx, dst, src, dst.0)?;
            check_equal(site, &ctx, src.1, dst.1)?;
        }
        what.check(site, &ctx, dst, src)
    };
    let call_hash = || ways.call_hash(kind::REDUCE, [dst.0, dst.1, src.0, what.word()]);
    let (mut call, mine) = Near::begin(group, ways, is_large(src.1), call_hash, plain, check)?;
    let done = reduce_in(&mut call, mine, what, dst, src);
    call.end(done)
}

/// Small: each member gets all sources, and combines them. Otherwise each combines a share of the elements, from the
/// sources themselves, and writes it to all; nobody else reads that share of any source.
#[inline(always)]
#[track_caller]
fn reduce_in<G: Group>(call: &mut Near<G>, mine: Result, what: What, dst: Span, src: Span) -> Result {
    let bytes = src.1;
    if call.is_small(call.n, bytes) {
        // The sources in the second half of the scratch, each at a multiple of 16.
        let ((scratch, set), step) = (call.slots, bytes.next_multiple_of(16));
        let came = scratch + 2 * set;
        let sends = Sends { src: src.0, step: 0, block: call.me, bytes };
        call.exchange(mine, sends, Takes { dst: came, step, members: (0, call.n), own: None, bytes })?;
        let from = Row { first: call.here(came), step, ..call.only(src.0) };
        call.fold(what, from, call.only(dst.0), DevAddr(0), false, bytes);
        return Ok(());
    }
    call.meet(mine)?;
    let (me, n) = (call.me as u64, call.n as u64);
    let (begin, end) = (cut(bytes, me, n), cut(bytes, me + 1, n));
    let (from, to) = (call.row(src.0 + begin), call.row(dst.0 + begin));
    call.fold(what, from, to, call.list(), true, end - begin);
    call.meet_last(|_, _, _| ())
}

/// [`Ctx::reduce_scatter`].
#[inline(never)]
#[track_caller]
#[allow(clippy::too_many_arguments)] // plain words
pub(super) fn reduce_scatter<G: Group>(
    group: G,
    heap: Pair,
    near: Pair,
    rest: Pair,
    teams: Pair,
    sizes: Pair,
    team: Team,
    what: What,
    dst: Span,
    src: Span,
) -> Result {
    let (ways, site) = (P2pTeam { heap, near, rest, teams, sizes, team }, Location::caller());
    let own = |me: u32| src.0.wrapping_add(me as u64 * dst.1);
    let check = |n: u32, me: u32, _| {
        let ctx = ways.ctx();
        let may = if dst.0 == own(me) { src.0 } else { u64::MAX };
        check_spans(site, &ctx, dst, src, may)
            .and_then(|()| check_equal(site, &ctx, src.1, dst.1 * n as u64))
            .and_then(|()| what.check(site, &ctx, dst, src))
    };
    let (mut call, mine) = Near::begin(group, ways, true, || 0, || false, check)?;
    let own = own(call.me);
    // Where the destination is a block of the source, it is another one on each member.
    let place = if dst.0 == own { u64::MAX } else { dst.0 };
    call.call_hash = ways.call_hash(kind::REDUCE_SCATTER, [place, dst.1, src.0, what.word()]);
    let done = call.meet(mine).and_then(|()| {
        call.fold(what, call.row(own), call.only(dst.0), call.list(), false, dst.1);
        // The source may be reused once all have read it.
        call.meet_last(|_, _, _| ())
    });
    call.end(done)
}
