//! Moving data among the members of a team: everything goes straight to its destination.

use core::panic::Location;

use bytemuck::Pod;

use super::call::Call;
use super::kind;
use super::p2p;
use super::p2p_team::P2pTeam;
use crate::ctx::Ctx;
use crate::ctx_ref::CtxRef;
use crate::error::{Detail, Error, Result, Site, length_mismatch, record};
use crate::group::Group;
use crate::heap::SymSlice;
use crate::sharing::Sharing;
use crate::team::Team;

/// A part of the symmetric heap: offset and bytes.
pub(super) type Span = (u64, u64);

/// The bytes of an object.
#[inline(always)]
pub(super) fn span_of<T: Pod>(object: SymSlice<T>) -> Span {
    (object.offset(), object.bytes())
}

impl<S: Sharing> Ctx<S> {
    /// Copies member `root`'s `src` to every member's `dst`, its own included. OpenSHMEM 1.6 section 9.9,
    /// `shmem_broadcast`.
    ///
    /// The sources of others are not looked at. `root` is a number in the team. `src` may be `dst`.
    ///
    /// # Errors
    /// Those of [`Ctx::team_sync`]; [`Error::BadPe`] if there is no such member, [`Error::LengthMismatch`],
    /// [`Error::OutOfRange`], [`Error::Overlap`].
    #[inline(always)]
    #[track_caller]
    pub fn broadcast<G: Group, T: Pod>(
        &self,
        group: G,
        team: Team,
        dst: SymSlice<T>,
        src: SymSlice<T>,
        root: u32,
    ) -> Result {
        let (dst, src) = (span_of(dst), span_of(src));
        if let Some(w) = P2pTeam::to(self, team, dst) {
            return p2p::broadcast(group, w.heap, w.near, w.rest, w.teams, w.sizes, team, dst, src, root);
        }
        broadcast::<G, S>(group, CtxRef::of(self), team, dst, src, root)
    }

    /// Copies every member's `src` to every member's `dst`, one after another in the order of the team: `dst` is as many
    /// times as long as the team has members. OpenSHMEM 1.6 section 9.9, `shmem_fcollect`.
    ///
    /// `src` may be this member's part of `dst`.
    ///
    /// # Errors
    /// Those of [`Ctx::team_sync`]; [`Error::LengthMismatch`], [`Error::OutOfRange`], [`Error::Overlap`].
    #[inline(always)]
    #[track_caller]
    pub fn fcollect<G: Group, T: Pod>(
        &self,
        group: G,
        team: Team,
        dst: SymSlice<T>,
        src: SymSlice<T>,
    ) -> Result {
        let (dst, src) = (span_of(dst), span_of(src));
        if let Some(w) = P2pTeam::to(self, team, dst) {
            return p2p::fcollect(group, w.heap, w.near, w.rest, w.teams, w.sizes, team, dst, src);
        }
        fcollect::<G, S>(group, CtxRef::of(self), team, dst, src)
    }

    /// As [`Ctx::fcollect`], of sources with different lengths, which may be 0. `dst` is long enough for all; what lies
    /// behind them stays as it is. OpenSHMEM 1.6 section 9.9, `shmem_collect`.
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    #[track_caller]
    pub fn collect<G: Group, T: Pod>(
        &self,
        group: G,
        team: Team,
        dst: SymSlice<T>,
        src: SymSlice<T>,
    ) -> Result {
        collect::<G, S>(group, CtxRef::of(self), team, span_of(dst), span_of(src))
    }

    /// Copies block `j` of every member's `src` to member `j`, into the block of `dst` that has the sender's number.
    /// Both have one block for each member. OpenSHMEM 1.6 section 9.9, `shmem_alltoall`.
    ///
    /// # Errors
    /// As [`Ctx::fcollect`].
    #[inline(always)]
    #[track_caller]
    pub fn alltoall<G: Group, T: Pod>(
        &self,
        group: G,
        team: Team,
        dst: SymSlice<T>,
        src: SymSlice<T>,
    ) -> Result {
        let (dst, src, size) = (span_of(dst), span_of(src), size_of::<T>() as u64);
        if let Some(w) = P2pTeam::to(self, team, dst) {
            return p2p::alltoall(group, w.heap, w.near, w.rest, w.teams, w.sizes, team, dst, src, size);
        }
        alltoall::<G, S>(group, CtxRef::of(self), team, dst, src, size)
    }
}

/// Checks that both lie in the heap, and that `src` is apart from `dst` unless it begins where it `may`. The `site` is the call's,
/// as in all that checks arguments: a closure has no caller's place.
#[inline(always)]
pub(super) fn check_spans<S>(site: Site, ctx: &Ctx<S>, dst: Span, src: Span, may: u64) -> Result {
    ctx.check_bytes_at(dst.0, dst.1, site)?;
    ctx.check_bytes_at(src.0, src.1, site)?;
    let apart = dst.1 == 0 || src.1 == 0 || dst.0 + dst.1 <= src.0 || src.0 + src.1 <= dst.0;
    if apart || src.0 == may {
        return Ok(());
    }
    let d = Detail { found: dst.0, offset: src.0, ..Detail::NONE };
    Err(record(ctx.parts_ref().state, Error::Overlap, d, site))
}

/// Checks two lengths in bytes.
#[inline(always)]
pub(super) fn check_equal<S>(site: Site, ctx: &Ctx<S>, found: u64, wanted: u64) -> Result {
    if found == wanted {
        return Ok(());
    }
    Err(length_mismatch(ctx.parts_ref().state, u32::MAX, found, wanted, site))
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
    call.meet(call.call_hash(kind::BROADCAST, [dst.0, dst.1, root as u64, 0]), mine)?;
    if dst.1 == 0 {
        return Ok(());
    }
    if call.me != root {
        return call.take(1);
    }
    let mut k = 1;
    while k < call.n {
        call.deliver(call.after(k), dst.0, src.0, dst.1)?;
        k += 1;
    }
    if dst.0 != src.0 {
        call.copy(dst.0, src.0, dst.1);
    }
    call.settle()
}

/// Delivers `src` to `at` of every other member, and copies it there in this PE's memory.
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
    call.take(call.n as u64 - 1)?;
    call.settle()
}

#[inline(never)]
#[track_caller]
fn fcollect<G: Group, S: Sharing>(group: G, ctx_ref: CtxRef, team: Team, dst: Span, src: Span) -> Result {
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
    call.meet(call.call_hash(kind::FCOLLECT, [dst.0, dst.1, 0, 0]), mine)?;
    if src.1 == 0 { Ok(()) } else { share(call, at, src) }
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
    // The place in `dst` is not known yet: `src` is compared with that afterwards.
    let mine = if call.group.leader() {
        check_spans(site, &call.ctx_ref.ctx::<S>(), dst, src, src.0)
    } else {
        Ok(())
    };
    call.meet(call.call_hash(kind::COLLECT, [dst.0, dst.1, 0, 0]), mine)?;
    call.tell(|_| (src.1, 0))?;
    let (mut before, mut total, mut member) = (0, 0u64, 0);
    while member < call.n {
        let bytes = if member == call.me { src.1 } else { call.heard(member).0 };
        if member < call.me {
            before += bytes;
        }
        total += bytes;
        member += 1;
    }
    call.forget();
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
    call.meet(call.call_hash(kind::STEP, [total, 0, 0, 0]), mine)?;
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
    let call = Call::<G, S>::begin(group, ctx_ref, team)?;
    let done = alltoall_in(call, dst, src, size);
    call.end(done)
}

#[inline(always)]
#[track_caller]
fn alltoall_in<G: Group, S: Sharing>(call: Call<G, S>, dst: Span, src: Span, size: u64) -> Result {
    let site = Location::caller();
    let n = call.n as u64;
    // Whole elements.
    let block = src.1.checked_div(n * size).unwrap_or(0) * size;
    let mine = if call.group.leader() {
        let ctx = call.ctx_ref.ctx::<S>();
        check_spans(site, &ctx, dst, src, u64::MAX)
            .and_then(|()| check_equal(site, &ctx, src.1, dst.1))
            .and_then(|()| check_equal(site, &ctx, src.1, n * block))
    } else {
        Ok(())
    };
    call.meet(call.call_hash(kind::ALLTOALL, [dst.0, dst.1, size, 0]), mine)?;
    if block == 0 {
        return Ok(());
    }
    let at = dst.0 + call.me as u64 * block;
    let mut k = 1;
    while k < call.n {
        let to = call.after(k);
        call.deliver(to, at, src.0 + to as u64 * block, block)?;
        k += 1;
    }
    call.copy(at, src.0 + call.me as u64 * block, block);
    call.take(n - 1)?;
    call.settle()
}
