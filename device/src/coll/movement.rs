//! Data movement among the members of a team: broadcast, collect and all-to-all.

use core::panic::Location;

use bytemuck::Pod;

use super::args::{Span, check_equal, check_spans, kind, part, span_of, wrapped};
use super::call::{Call, Messages};
use super::group::CollectiveGroup;
use super::p2p;
use super::p2p_team::P2pTeam;
use crate::abi::team_words::BYTES_PER_CHANNEL;
use crate::ctx::Ctx;
use crate::ctx::CtxRef;
use crate::error::{Detail, Error, Result};
use crate::event::NOTHING;
use crate::group::Group;
use crate::heap::SymSlice;
use crate::sharing::Sharing;
use crate::team::Team;
use crate::watch::{self, Collective, Event};

/// # Collective data movement
///
/// Broadcast, concatenation and exchange among the members of a team.
impl<S: Sharing> Ctx<'_, S> {
    /// Copies `src` of member `root` to `dst` of every member, including `root`. OpenSHMEM 1.6 section 9.9,
    /// `shmem_broadcast`.
    ///
    /// `root` is a member number of the team. `src` is ignored on other members, and may equal `dst`. When the call
    /// returns, `dst` is complete and `src` may be reused.
    ///
    /// # Errors
    /// - [`Error::BadPe`]: the team has no member `root`.
    /// - [`Error::LengthMismatch`]: `dst` and `src` differ in length.
    /// - [`Error::OutOfRange`]: an object is not in symmetric memory.
    /// - [`Error::Overlap`]: `src` and `dst` overlap but are not equal.
    /// - All errors of [`Ctx::team_sync`].
    #[inline(always)]
    #[track_caller]
    pub fn broadcast<C: CollectiveGroup, T: Pod>(
        &self,
        callers: C,
        team: Team,
        dst: SymSlice<T>,
        src: SymSlice<T>,
        root: u32,
    ) -> Result {
        let (dst, src) = (span_of(dst), span_of(src));
        let done = match callers.enter(self, team)? {
            Some(group) => self.broadcast_by(group, team, dst, src, root),
            None => Ok(()),
        };
        callers.leave(self, done)
    }

    #[inline(always)]
    #[track_caller]
    fn broadcast_by<G: Group>(&self, group: G, team: Team, dst: Span, src: Span, root: u32) -> Result {
        let moved = Collective { root: Some(root), ..Collective::moves(team.key(), dst, src) };
        let _call = watch::collective(group, "broadcast", moved);
        if let Some(p2p_team) = P2pTeam::to(group, self, team, dst) {
            return p2p::broadcast(group, dst, src, root, p2p_team);
        }
        broadcast::<G, S>(group, CtxRef::of(self), team, dst, src, root)
    }

    /// Concatenates `src` of all members, in team order, in `dst` of every member. OpenSHMEM 1.6 section 9.9,
    /// `shmem_fcollect`.
    ///
    /// All sources have the same length, and `dst` has their total length. `src` may be this member's part of `dst`.
    /// When the call returns, `dst` is complete and `src` may be reused.
    ///
    /// # Errors
    /// - [`Error::LengthMismatch`]: `dst` does not have the total length of all sources.
    /// - [`Error::OutOfRange`]: an object is not in symmetric memory.
    /// - [`Error::Overlap`]: `src` overlaps another part of `dst`.
    /// - All errors of [`Ctx::team_sync`].
    #[inline(always)]
    #[track_caller]
    pub fn fcollect<C: CollectiveGroup, T: Pod>(
        &self,
        callers: C,
        team: Team,
        dst: SymSlice<T>,
        src: SymSlice<T>,
    ) -> Result {
        let (dst, src) = (span_of(dst), span_of(src));
        let done = match callers.enter(self, team)? {
            Some(group) => self.fcollect_by(group, team, dst, src),
            None => Ok(()),
        };
        callers.leave(self, done)
    }

    #[inline(always)]
    #[track_caller]
    fn fcollect_by<G: Group>(&self, group: G, team: Team, dst: Span, src: Span) -> Result {
        let _call = watch::collective(group, "fcollect", Collective::moves(team.key(), dst, src));
        if let Some(p2p_team) = P2pTeam::to(group, self, team, dst) {
            return p2p::fcollect(group, dst, src, p2p_team);
        }
        fcollect::<G, S>(group, CtxRef::of(self), team, dst, src)
    }

    /// Concatenates sources of different lengths, which may be 0. OpenSHMEM 1.6 section 9.9, `shmem_collect`.
    ///
    /// `dst` may be longer than all sources together; the rest of it is left unchanged. Otherwise like
    /// [`Ctx::fcollect`].
    ///
    /// # Errors
    /// - [`Error::LengthMismatch`]: `dst` is shorter than all sources together.
    /// - [`Error::OutOfRange`]: an object is not in symmetric memory.
    /// - [`Error::Overlap`]: `src` overlaps another part of `dst`.
    /// - All errors of [`Ctx::team_sync`].
    #[inline(always)]
    #[track_caller]
    pub fn collect<G: Group, T: Pod>(
        &self,
        group: G,
        team: Team,
        dst: SymSlice<T>,
        src: SymSlice<T>,
    ) -> Result {
        let (dst, src) = (span_of(dst), span_of(src));
        let moved = Collective::moves(team.key(), NOTHING, src);
        let _call = watch::collective(group, "collect", moved);
        collect::<G, S>(group, CtxRef::of(self), team, dst, src)
    }

    /// Copies block `j` of `src` on every member `i` to block `i` of `dst` on member `j`. OpenSHMEM 1.6 section 9.9,
    /// `shmem_alltoall`.
    ///
    /// Both objects have one block per member, all of equal length. When the call returns, `dst` is complete and `src`
    /// may be reused.
    ///
    /// # Errors
    /// - [`Error::LengthMismatch`]: the lengths differ, or are not a multiple of the team's size.
    /// - [`Error::OutOfRange`]: an object is not in symmetric memory.
    /// - [`Error::Overlap`]: the objects overlap.
    /// - All errors of [`Ctx::team_sync`].
    #[inline(always)]
    #[track_caller]
    pub fn alltoall<C: CollectiveGroup, T: Pod>(
        &self,
        callers: C,
        team: Team,
        dst: SymSlice<T>,
        src: SymSlice<T>,
    ) -> Result {
        let (dst, src, size) = (span_of(dst), span_of(src), size_of::<T>() as u64);
        let done = match callers.enter(self, team)? {
            Some(group) => self.alltoall_by(group, team, dst, src, size),
            None => Ok(()),
        };
        callers.leave(self, done)
    }

    #[inline(always)]
    #[track_caller]
    fn alltoall_by<G: Group>(&self, group: G, team: Team, dst: Span, src: Span, size: u64) -> Result {
        let _call = watch::collective(group, "alltoall", Collective::moves(team.key(), dst, src));
        if let Some(p2p_team) = P2pTeam::to(group, self, team, dst) {
            return p2p::alltoall(group, dst, src, size, p2p_team);
        }
        alltoall::<G, S>(group, CtxRef::of(self), team, dst, src, size)
    }
}

#[inline(never)]
#[track_caller]
fn broadcast<G: Group, S: Sharing>(
    group: G,
    ctx_ref: CtxRef,
    team: Team,
    dst: Span,
    src: Span,
    root: u32,
) -> Result {
    if let Some(p2p_team) = P2pTeam::in_mixed_job(group, &ctx_ref.ctx::<S>(), team, dst) {
        return p2p::broadcast(group, dst, src, root, p2p_team);
    }
    let call = Call::<G, S>::begin(group, ctx_ref, team)?;
    let done = broadcast_in(call, dst, src, root);
    call.end(done)
}

#[inline(always)]
#[track_caller]
fn broadcast_in<G: Group, S: Sharing>(call: Call<G, S>, dst: Span, src: Span, root: u32) -> Result {
    let site = Location::caller();
    let mine = if call.group.leader() {
        let ctx = call.ctx_ref.ctx::<S>();
        if root >= call.n {
            let d = Detail { found: root as u64, wanted: call.n as u64, ..Detail::NONE };
            Err(ctx.fail(Error::BadPe, d))
        } else {
            check_spans(site, &ctx, dst, src, dst.0).and_then(|()| check_equal(site, &ctx, src.1, dst.1))
        }
    } else {
        Ok(())
    };
    call.check_in(call.call_hash(kind::BROADCAST, [dst.0, dst.1, root as u64, 0]), mine)?;
    // Each channel moves its own range. Short broadcasts use channel 0 alone.
    let (begin, bytes) = part(call.group, dst.1, BYTES_PER_CHANNEL);
    if bytes == 0 {
        return Ok(());
    }
    let (dst, src) = ((dst.0 + begin, bytes), (src.0 + begin, bytes));
    if call.me == root {
        return broadcast_from_root(call, dst, src);
    }
    let nodes = call.nodes();
    // The root serves its own node and the leader of every other node; leaders serve the rest.
    if nodes.is_local(root) || call.me != nodes.member(nodes.mine, 0) {
        return call.await_messages(Messages { nic: 0, p2p: 1 });
    }
    // The leader of a node passes the data on to its members.
    call.await_messages(Messages { nic: 1, p2p: 0 })?;
    deliver_in_node(call, dst.0, dst.0, dst.1)?;
    call.complete()
}

/// Sends the data of a broadcast from the root to the members of its node, and to the leader of each other node.
#[inline(always)]
#[track_caller]
fn broadcast_from_root<G: Group, S: Sharing>(call: Call<G, S>, dst: Span, src: Span) -> Result {
    let nodes = call.nodes();
    let mut k = 1;
    while k < nodes.n {
        call.deliver(nodes.member(nodes.after(k), 0), dst.0, src.0, dst.1)?;
        k += 1;
    }
    deliver_in_node(call, dst.0, src.0, dst.1)?;
    if dst.0 != src.0 {
        call.copy(dst.0, src.0, dst.1);
    }
    call.complete()
}

/// Delivers `bytes` bytes from `src` of this PE to `dst` of every other member of its node.
#[inline(always)]
#[track_caller]
fn deliver_in_node<G: Group, S: Sharing>(call: Call<G, S>, dst: u64, src: u64, bytes: u64) -> Result {
    let nodes = call.nodes();
    let local = nodes.size(nodes.mine);
    let mut k = 1;
    while k < local {
        let at = wrapped(call.rank_in_node() + k, local);
        call.deliver(nodes.member(nodes.mine, at), dst, src, bytes)?;
        k += 1;
    }
    Ok(())
}

/// Delivers `src` of this PE to offset `at` on every member, including this one.
#[inline(always)]
#[track_caller]
fn share<G: Group, S: Sharing>(call: Call<G, S>, at: u64, src: Span) -> Result {
    let mut k = 1;
    while k < call.n {
        call.deliver(call.after(k), at, src.0, src.1)?;
        k += 1;
    }
    if at != src.0 {
        call.copy(at, src.0, src.1);
    }
    call.await_others()?;
    call.complete()
}

#[inline(never)]
#[track_caller]
fn fcollect<G: Group, S: Sharing>(group: G, ctx_ref: CtxRef, team: Team, dst: Span, src: Span) -> Result {
    if let Some(p2p_team) = P2pTeam::in_mixed_job(group, &ctx_ref.ctx::<S>(), team, dst) {
        return p2p::fcollect(group, dst, src, p2p_team);
    }
    let call = Call::<G, S>::begin(group, ctx_ref, team)?;
    let done = fcollect_in(call, dst, src);
    call.end(done)
}

#[inline(always)]
#[track_caller]
fn fcollect_in<G: Group, S: Sharing>(call: Call<G, S>, dst: Span, src: Span) -> Result {
    let site = Location::caller();
    let at = dst.0.wrapping_add(call.me as u64 * src.1);
    let mine = if call.group.leader() {
        let ctx = call.ctx_ref.ctx::<S>();
        check_spans(site, &ctx, dst, src, at)
            .and_then(|()| check_equal(site, &ctx, dst.1, src.1 * call.n as u64))
    } else {
        Ok(())
    };
    call.check_in(call.call_hash(kind::FCOLLECT, [dst.0, dst.1, 0, 0]), mine)?;
    let (begin, bytes) = part(call.group, src.1, BYTES_PER_CHANNEL);
    if bytes == 0 {
        return Ok(());
    }
    share_by_nodes(call, (dst.0 + begin, src.1), (src.0 + begin, bytes))
}

/// Sends this member's block to all members for `fcollect`. Its place in `dst` is at `stride` bytes times this member's
/// rank.
///
/// One member of each other node gets the block through the NIC and passes it on within its node. The members of a node
/// receive from different members of this node, which keeps all NICs busy.
#[inline(always)]
#[track_caller]
fn share_by_nodes<G: Group, S: Sharing>(call: Call<G, S>, (dst, stride): (u64, u64), src: Span) -> Result {
    let (nodes, bytes, own) = (call.nodes(), src.1, call.rank_in_node());
    let place = |member: u32| dst + member as u64 * stride;
    let at = place(call.me);
    let mut k = 1;
    while k < nodes.n {
        let node = nodes.after(k);
        // Spread the load over the members of the node, so no single NIC receives everything.
        let receiver = own.checked_rem(nodes.size(node)).unwrap_or(0);
        call.deliver(nodes.member(node, receiver), at, src.0, bytes)?;
        k += 1;
    }
    deliver_in_node(call, at, src.0, bytes)?;
    if at != src.0 {
        call.copy(at, src.0, bytes);
    }
    // Members `own`, `own + local`, ... of each other node send to this one.
    let local = nodes.size(nodes.mine);
    let (mut nic, mut k) = (0, 1);
    while k < nodes.n {
        nic += (nodes.size(nodes.after(k)) + local - 1 - own).checked_div(local).unwrap_or(0) as u64;
        k += 1;
    }
    // Messages from NICs come first, because this member passes them on.
    call.await_messages(Messages { nic, p2p: 0 })?;
    let mut k = 1;
    while k < nodes.n {
        let (node, mut i) = (nodes.after(k), own);
        while i < nodes.size(node) {
            let theirs = place(nodes.member(node, i));
            deliver_in_node(call, theirs, theirs, bytes)?;
            i += local;
        }
        k += 1;
    }
    call.await_messages(Messages { nic: 0, p2p: call.n as u64 - 1 - nic })?;
    call.complete()
}

#[inline(never)]
#[track_caller]
fn collect<G: Group, S: Sharing>(group: G, ctx_ref: CtxRef, team: Team, dst: Span, src: Span) -> Result {
    let call = Call::<G, S>::begin(group, ctx_ref, team)?;
    let done = collect_in(call, dst, src);
    call.end(done)
}

#[inline(always)]
#[track_caller]
fn collect_in<G: Group, S: Sharing>(call: Call<G, S>, dst: Span, src: Span) -> Result {
    let site = Location::caller();
    // The offset within `dst` is not known yet; a second check below compares `src` with it.
    let mine = if call.group.leader() {
        check_spans(site, &call.ctx_ref.ctx::<S>(), dst, src, src.0)
    } else {
        Ok(())
    };
    call.check_in(call.call_hash(kind::COLLECT, [dst.0, dst.1, 0, 0]), mine)?;
    call.exchange_values(|_| (src.1, 0))?;
    let (mut before, mut total, mut member) = (0, 0u64, 0);
    while member < call.n {
        let bytes = if member == call.me { src.1 } else { call.values_of(member).0 };
        if member < call.me {
            before += bytes;
        }
        total += bytes;
        member += 1;
    }
    // The others may send values again after the next check-in, so clear these before it.
    call.clear_values();
    let at = dst.0 + before;
    let mine = if call.group.leader() {
        let ctx = call.ctx_ref.ctx::<S>();
        if total > dst.1 {
            check_equal(site, &ctx, dst.1, total)
        } else {
            check_spans(site, &ctx, dst, src, at)
        }
    } else {
        Ok(())
    };
    // The second check-in makes all members fail if one of them has found its part not to fit.
    call.check_in(call.call_hash(kind::STEP, [total, 0, 0, 0]), mine)?;
    watch::note("collect", Event::writes((dst.0, total)));
    share(call, at, src)
}

#[inline(never)]
#[track_caller]
fn alltoall<G: Group, S: Sharing>(
    group: G,
    ctx_ref: CtxRef,
    team: Team,
    dst: Span,
    src: Span,
    size: u64,
) -> Result {
    if let Some(p2p_team) = P2pTeam::in_mixed_job(group, &ctx_ref.ctx::<S>(), team, dst) {
        return p2p::alltoall(group, dst, src, size, p2p_team);
    }
    let call = Call::<G, S>::begin(group, ctx_ref, team)?;
    let done = alltoall_in(call, dst, src, size);
    call.end(done)
}

#[inline(always)]
#[track_caller]
fn alltoall_in<G: Group, S: Sharing>(call: Call<G, S>, dst: Span, src: Span, size: u64) -> Result {
    let site = Location::caller();
    let n = call.n as u64;
    // Blocks consist of whole elements.
    let block = src.1.checked_div(n * size).unwrap_or(0) * size;
    let mine = if call.group.leader() {
        let ctx = call.ctx_ref.ctx::<S>();
        check_spans(site, &ctx, dst, src, u64::MAX)
            .and_then(|()| check_equal(site, &ctx, src.1, dst.1))
            .and_then(|()| check_equal(site, &ctx, src.1, n * block))
    } else {
        Ok(())
    };
    call.check_in(call.call_hash(kind::ALLTOALL, [dst.0, dst.1, size, 0]), mine)?;
    let (begin, bytes) = part(call.group, block, BYTES_PER_CHANNEL);
    if bytes == 0 {
        return Ok(());
    }
    let at = dst.0 + call.me as u64 * block + begin;
    let from = |member: u32| src.0 + member as u64 * block + begin;
    let mut k = 1;
    while k < call.n {
        let to = call.after(k);
        call.deliver(to, at, from(to), bytes)?;
        k += 1;
    }
    call.copy(at, from(call.me), bytes);
    call.await_others()?;
    call.complete()
}
