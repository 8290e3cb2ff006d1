//! Collective calls of P2P teams, whose members write to each other's memory.
//!
//! Memory that other members access is in the heap itself. Calls on segments are left to [`call`](super::call); all
//! members see from their own arguments which of the two they need.
//!
//! **Check-in.** Each lane of the leader warp stores this member's word at one other member, after a fence, and waits
//! for the word of that member. [`call`](super::call) uses the same words, so calls of both kinds can check in with
//! each other.
//!
//! **Small calls** take the latency of one store and no fence, by the [LL protocol](super::ll). Data and check-in word
//! travel at the same time. Each member writes only to its own destination, by its own arguments, while it receives the
//! words. If the call hashes differ, the destinations hold arbitrary data.
//!
//! **Large calls** check in, write straight to the destinations or read from the sources, and check in again.
//!
//! The fence takes longer than all other local work, so another warp locks the team at the same time.

mod call;
mod small;

use core::panic::Location;

use self::call::{P2pCall, Received, Sent};
pub use self::small::SmallCall;
use super::args::{
    self, Reduction, Span, Strides, check_equal, check_spans, check_strided, cut, kind, packed, share_of,
};
use super::fold::{MemberAddrs, has_words};
use super::ll;
use super::p2p_team::P2pTeam;
use crate::abi::{DevAddr, team_words};
use crate::error::{Detail, Error, Result, record};
use crate::group::Group;
use crate::outlined::outlined;
use crate::team::Team;

/// Defines a collective call: an [`outlined`] function that takes a group, its arguments and a [`P2pTeam`].
macro_rules! p2p_call {
    (
        $(#[$doc:meta])*
        fn $name:ident($group:ident, $team:ident $(, $argument:ident: $type:ty)*) $body:block
    ) => {
        outlined! {
            $(#[$doc])*
            #[track_caller]
            pub(super) fn $name[G: Group](
                $group: G $(, $argument: $type)*;
                $team: P2pTeam {
                    heap: u64,
                    heap_bytes: u64,
                    p2p_base: u64,
                    p2p_stride: u64,
                    segments: u64,
                    state: u64,
                    teams: u64,
                    team_words: u64,
                    team_bytes: u64,
                    pes: u64,
                    team: Team,
                }
            ) -> Result $body
        }
    };
}

/// Returns `src`, or `None` if the block is already at its destination.
#[inline(always)]
fn unless_there(src: u64, dst: u64) -> Option<u64> {
    if src == dst { None } else { Some(src) }
}

/// Returns the range of `bytes` bytes that `group` moves in the channel of its block.
#[inline(always)]
fn part<G: Group>(group: G, team: P2pTeam, bytes: u64) -> Span {
    args::part(group, bytes, team_words::p2p_bytes_per_channel(team.n_pes()))
}

/// Returns whether `bytes` bytes for one member exceed the LL slots of every team, which makes the call a large one.
#[inline(always)]
fn is_large(bytes: u64) -> bool {
    ll::bytes(bytes) > team_words::MAX_SLOT_BYTES
}

p2p_call! {
    /// Implements [`Ctx::team_sync`](crate::Ctx::team_sync).
    fn sync(group, team) {
        let call_hash = || team.call_hash(group, kind::SYNC, [0; 4]);
        let (mut call, _) = P2pCall::begin(group, team, true, call_hash, || true, |_, _, _| Ok(()))?;
        let checked_in = call.check_in_once();
        call.end(checked_in)
    }
}

p2p_call! {
    /// Implements [`Ctx::broadcast`](crate::Ctx::broadcast).
    fn broadcast(group, team, dst: Span, src: Span, root: u32) {
        let site = Location::caller();
        let plain = || src.1 == dst.1 && team.are_plain(dst, src, dst.0);
        let check = |n: u32, _, plain| {
            let ctx = team.ctx();
            if root >= n {
                let d = Detail { found: root as u64, wanted: n as u64, ..Detail::NONE };
                return Err(record(ctx.parts_ref().state, Error::BadPe, d, site));
            }
            if plain {
                return Ok(());
            }
            check_spans(site, &ctx, dst, src, dst.0).and_then(|()| check_equal(site, &ctx, src.1, dst.1))
        };
        let call_hash = || team.call_hash(group, kind::BROADCAST, [dst.0, dst.1, root as u64, 0]);
        let (begin, bytes) = part(group, team, dst.1);
        let (mut call, mine) = P2pCall::begin(group, team, is_large(bytes), call_hash, plain, check)?;
        let at = |span: Span| (span.0.wrapping_add(begin), bytes);
        let done = broadcast_in(&mut call, mine, at(dst), at(src), root);
        call.end(done)
    }
}

#[inline(always)]
#[track_caller]
fn broadcast_in<G: Group>(call: &mut P2pCall<G>, mine: Result, dst: Span, src: Span, root: u32) -> Result {
    let is_root = call.me == root;
    if call.is_small(1, dst.1) {
        return exchange_from(call, mine, dst, src.0, root);
    }
    let source = if call.n > 2 || dst.1 >= LARGE_READ {
        // Only the root knows where its source is, which need not be the heap.
        let is_readable = src.0.saturating_add(src.1) <= call.team.heap_bytes;
        if is_root {
            call.tell_source(if is_readable { src.0 } else { u64::MAX });
        }
        call.check_in(mine)?;
        if !is_root {
            call.source()
        } else if is_readable {
            src.0
        } else {
            u64::MAX
        }
    } else {
        call.check_in(mine)?;
        u64::MAX
    };
    if is_root && source == u64::MAX {
        let mut k = 1;
        while k < call.n {
            call.put(call.after(k), dst.0, src.0, src.1);
            k += 1;
        }
    } else if !is_root && source != u64::MAX {
        // Each of the others reads its share from the root and passes it on, so a link carries the data once.
        let (share, others) = (call.rank_after(root) as u64, call.n as u64 - 1);
        let (begin, end) = (cut(dst.1, share, others), cut(dst.1, share + 1, others));
        call.spread((call.address_at(root, source + begin), 0), dst.0 + begin, end - begin, root);
    }
    let own = if is_root && dst.0 != src.0 { src.1 } else { 0 };
    call.check_in_last(|call, rank, of| call.copy(rank, of, dst.0, src.0, own))
}

/// Makes a small broadcast.
#[inline(always)]
#[track_caller]
fn exchange_from<G: Group>(call: &mut P2pCall<G>, mine: Result, dst: Span, src: u64, root: u32) -> Result {
    let sent = Sent { src, step: 0, block: 0, bytes: if call.me == root { dst.1 } else { 0 } };
    let (members, own) = ((root, root.saturating_add(1)), unless_there(src, dst.0));
    let received = Received { dst: dst.0, step: 0, members, own, bytes: dst.1 };
    call.exchange(mine, sent, received)
}

p2p_call! {
    /// Implements [`Ctx::fcollect`](crate::Ctx::fcollect).
    fn fcollect(group, team, dst: Span, src: Span) {
        let site = Location::caller();
        let plain = || team.are_plain(dst, src, u64::MAX);
        let check = |n: u32, me: u32, plain| {
            if plain && dst.1 == src.1 * n as u64 {
                return Ok(());
            }
            let ctx = team.ctx();
            let at = dst.0.wrapping_add(me as u64 * src.1);
            check_spans(site, &ctx, dst, src, at).and_then(|()| check_equal(site, &ctx, dst.1, src.1 * n as u64))
        };
        let call_hash = || team.call_hash(group, kind::FCOLLECT, [dst.0, dst.1, 0, 0]);
        let large = is_large(part(group, team, dst.1).1);
        let (mut call, mine) = P2pCall::begin(group, team, large, call_hash, plain, check)?;
        let done = send_blocks(&mut call, mine, dst.0, src.0, 0, src.1);
        call.end(done)
    }
}

p2p_call! {
    /// Implements [`Ctx::alltoall`](crate::Ctx::alltoall).
    fn alltoall(group, team, dst: Span, src: Span, size: u64) {
        let site = Location::caller();
        let plain = || src.1 == dst.1 && team.are_plain(dst, src, u64::MAX);
        // A block holds whole elements.
        let block_of = |n: u32| share_of(share_of(src.1, n), size as u32) * size;
        let check = |n: u32, _, plain| {
            let (ctx, block) = (team.ctx(), block_of(n));
            if plain && src.1 == n as u64 * block {
                return Ok(block);
            }
            check_spans(site, &ctx, dst, src, u64::MAX)
                .and_then(|()| check_equal(site, &ctx, src.1, dst.1))
                .and_then(|()| check_equal(site, &ctx, src.1, n as u64 * block))
                .map(|()| block)
        };
        let call_hash = || team.call_hash(group, kind::ALLTOALL, [dst.0, dst.1, size, 0]);
        let large = is_large(part(group, team, dst.1).1);
        let (mut call, checked) = P2pCall::begin_with(group, team, large, call_hash, plain, check)?;
        // Calls with wrong arguments have no blocks.
        let (block, mine) = (checked.unwrap_or(0), checked.map(|_| ()));
        let done = send_blocks(&mut call, mine, dst.0, src.0, block, block);
        call.end(done)
    }
}

/// Sends one block to each member, or the part of it that belongs to this channel. The block for member `m` starts at
/// `src + m * step`.
#[inline(always)]
#[track_caller]
fn send_blocks<G: Group>(
    call: &mut P2pCall<G>,
    mine: Result,
    dst: u64,
    src: u64,
    step: u64,
    block: u64,
) -> Result {
    let (begin, bytes) = part(call.group, call.team, block);
    let (dst, src) = (dst.wrapping_add(begin), src.wrapping_add(begin));
    let (at, from) = (dst + call.me as u64 * block, |member: u32| src + member as u64 * step);
    let own = from(call.me);
    if call.is_small(call.n, bytes) {
        return exchange_blocks(call, mine, (dst, bytes), (src, step), block);
    }
    call.check_in(mine)?;
    // The own block is copied beside the stores to peers, or beside the last check-in if it is short.
    let mut own_bytes = if at == own { 0 } else { bytes };
    if bytes >= LARGE_BLOCK {
        let except = if at == own { call.me } else { u32::MAX };
        call.spread((call.address(src), step), at, bytes, except);
        own_bytes = 0;
    } else {
        let mut k = 1;
        while k < call.n {
            let member = call.after(k);
            call.put(member, at, from(member), bytes);
            k += 1;
        }
    }
    call.check_in_last(|call, rank, of| call.copy(rank, of, at, own, own_bytes))
}

/// Sends one block to each member in a small call. `dst` is the destination of member 0's block and the length of each,
/// `src` the block for member 0 and the distance to the next. Destinations are `block` bytes apart.
#[inline(always)]
#[track_caller]
fn exchange_blocks<G: Group>(
    call: &mut P2pCall<G>,
    mine: Result,
    (dst, bytes): Span,
    (src, step): (u64, u64),
    block: u64,
) -> Result {
    let me = call.me as u64;
    let sent = Sent { src, step, block: call.me, bytes };
    let own = unless_there(src + me * step, dst + me * block);
    call.exchange(mine, sent, Received { dst, step: block, members: (0, call.n), own, bytes })
}

p2p_call! {
    /// Implements [`Ctx::alltoalls`](crate::Ctx::alltoalls).
    fn alltoalls(group, team, dst: Span, src: Span, strides: Strides, len: u64, size: u64) {
        let site = Location::caller();
        let check = |n: u32, _, _| {
            check_strided(site, &team.ctx(), (n as u64).saturating_mul(len), dst, src, strides, size)
        };
        let call_hash = || team.call_hash(group, kind::ALLTOALLS, [dst.0, len, packed(strides), size]);
        let (mut call, mine) = P2pCall::begin(group, team, true, call_hash, || false, check)?;
        let done = call.check_in(mine).and_then(|()| {
            let mut k = 0;
            while k < call.n {
                call.put_strided(call.after(k), dst.0, src.0, strides, len, size);
                k += 1;
            }
            call.check_in_last(|_, _, _| ())
        });
        call.end(done)
    }
}

p2p_call! {
    /// Implements [`Ctx::reduce`](crate::Ctx::reduce).
    fn reduce(group, team, reduction: Reduction, dst: Span, src: Span) {
        let site = Location::caller();
        let plain = || src.1 == dst.1 && team.are_plain(dst, src, dst.0);
        let check = |_, _, plain: bool| {
            let ctx = team.ctx();
            if !plain {
                check_spans(site, &ctx, dst, src, dst.0)?;
                check_equal(site, &ctx, src.1, dst.1)?;
            }
            reduction.check(site, &ctx, dst, src)
        };
        let call_hash = || team.call_hash(group, kind::REDUCE, [dst.0, dst.1, src.0, reduction.word()]);
        let (begin, bytes) = part(group, team, src.1);
        let (mut call, mine) = P2pCall::begin(group, team, is_large(bytes), call_hash, plain, check)?;
        let (dst, src) = (dst.0.wrapping_add(begin), src.0.wrapping_add(begin));
        let done = reduce_in(&mut call, mine, reduction, dst, src, bytes);
        call.end(done)
    }
}

/// Minimum length, in bytes, of a broadcast in a team of two that the other member reads from the root. The root writes
/// shorter ones.
const LARGE_READ: u64 = 256 << 10;

/// Minimum length, in bytes, of a block whose local copy runs together with the stores to peers. Shorter local copies
/// run during the last check-in.
const LARGE_BLOCK: u64 = 128 << 10;

/// Minimum length, in bytes, of a member's share of a reduction that is combined locally first and copied afterwards.
const LARGE_SHARE: u64 = 16 << 10;

/// Returns whether the members of a small reduction combine blocks of `bytes` bytes as they arrive.
#[inline(always)]
fn combines<G: Group>(call: &P2pCall<G>, reduction: Reduction, bytes: u64) -> bool {
    has_words(reduction.kind) && call.is_small((call.n - 1).max(1), bytes)
}

/// Reduces in one of two ways. In a small call, each member receives all sources and combines them. In a large one,
/// each member combines a share of the elements, straight from the sources, and writes it to all. No other member reads
/// that share.
#[inline(always)]
#[track_caller]
fn reduce_in<G: Group>(
    call: &mut P2pCall<G>,
    mine: Result,
    reduction: Reduction,
    dst: u64,
    src: u64,
    bytes: u64,
) -> Result {
    if combines(call, reduction, bytes) {
        return call.exchange_to_combine(mine, reduction, dst, (src, 0), bytes);
    }
    if call.is_small(call.n, bytes) {
        // The sources arrive behind the slots, each at a multiple of 16.
        let ((scratch, set), step) = (call.slots, bytes.next_multiple_of(16));
        let arrived = scratch + 2 * set;
        let sent = Sent { src, step: 0, block: call.me, bytes };
        call.exchange(mine, sent, Received { dst: arrived, step, members: (0, call.n), own: None, bytes })?;
        let from = MemberAddrs { first: call.here(arrived), step, ..call.on_this(src) };
        call.fold(reduction, from, call.on_this(dst), DevAddr(0), false, bytes);
        return Ok(());
    }
    call.check_in(mine)?;
    let (me, n) = (call.me as u64, call.n as u64);
    let (begin, end) = (cut(bytes, me, n), cut(bytes, me + 1, n));
    let from = call.on_all(src + begin);
    if call.n > 2 && call.group.channels() > 1 && end - begin >= LARGE_SHARE {
        // Links carry more if loads from peers and stores to them do not mix. Nobody else reads or writes this share, so
        // no check-in is due in between.
        call.fold(reduction, from, call.on_this(dst + begin), call.list(), false, end - begin);
        call.group.sync();
        call.spread((call.address(dst + begin), 0), dst + begin, end - begin, call.me);
    } else {
        call.fold(reduction, from, call.on_all(dst + begin), call.list(), true, end - begin);
    }
    call.check_in_last(|_, _, _| ())
}

p2p_call! {
    /// Implements [`Ctx::reduce_scatter`](crate::Ctx::reduce_scatter).
    fn reduce_scatter(group, team, reduction: Reduction, dst: Span, src: Span) {
        let site = Location::caller();
        let own = |me: u32| src.0.wrapping_add(me as u64 * dst.1);
        let check = |n: u32, me: u32, _| {
            let ctx = team.ctx();
            let may = if dst.0 == own(me) { src.0 } else { u64::MAX };
            check_spans(site, &ctx, dst, src, may)
                .and_then(|()| check_equal(site, &ctx, src.1, dst.1 * n as u64))
                .and_then(|()| reduction.check(site, &ctx, dst, src))
        };
        let (begin, bytes) = part(group, team, dst.1);
        let (mut call, mine) = P2pCall::begin(group, team, is_large(bytes), || 0, || false, check)?;
        let own = own(call.me);
        // A destination inside the source lies at another offset on each member.
        let place = if dst.0 == own { u64::MAX } else { dst.0 };
        call.call_hash = team.call_hash(group, kind::REDUCE_SCATTER, [place, dst.1, src.0, reduction.word()]);
        let to = dst.0.wrapping_add(begin);
        let done = if combines(&call, reduction, bytes) {
            call.exchange_to_combine(mine, reduction, to, (src.0.wrapping_add(begin), dst.1), bytes)
        } else {
            call.check_in(mine).and_then(|()| {
                let (from, to) = (call.on_all(own.wrapping_add(begin)), call.on_this(to));
                call.fold(reduction, from, to, call.list(), false, bytes);
                // The source may be reused once all members have read it.
                call.check_in_last(|_, _, _| ())
            })
        };
        call.end(done)
    }
}
