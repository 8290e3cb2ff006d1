//! Reductions and scans. With NIC peers, each member fetches its share of all sources into its scratch and combines
//! them there.

#![allow(unsafe_code, reason = "reads sources and writes results at checked addresses")]

use core::panic::Location;

use super::args::{Reduction, Span, check_equal, check_spans, cut, kind, part, span_of};
use super::call::{Call, Messages};
use super::element::{Element, Reduce, Scan};
use super::fold::{self, Fold};
use super::group::CollectiveGroup;
use super::p2p;
use super::p2p_team::P2pTeam;
use crate::abi::DevAddr;
use crate::abi::team_words::BYTES_PER_CHANNEL;
use crate::ctx::Ctx;
use crate::ctx::CtxRef;
use crate::error::{Detail, Error, Result};
use crate::group::Group;
use crate::heap::SymSlice;
use crate::sharing::Sharing;
use crate::team::Team;
use crate::watch::{self, Collective};

/// # Reductions and scans
///
/// Sums and other combinations of the members' elements.
impl<S: Sharing> Ctx<'_, S> {
    /// Combines `src` of all members, element by element, into `dst` of every member. OpenSHMEM 1.6 section 9.9,
    /// `shmem_sum_reduce` and its siblings.
    ///
    /// [`Reduce`] defines the result. `src` may equal `dst`, if it does on all members. When the call returns, `dst` is
    /// complete and `src` may be reused.
    ///
    /// # Errors
    /// - [`Error::LengthMismatch`]: `dst` and `src` differ in length.
    /// - [`Error::OutOfRange`]: an object is not in symmetric memory, or does not consist of aligned elements.
    /// - [`Error::Overlap`]: the objects overlap but are not equal.
    /// - [`Error::BadReduction`]: the element type has no such reduction.
    /// - All errors of [`Ctx::team_sync`].
    #[inline(always)]
    #[track_caller]
    pub fn reduce<C: CollectiveGroup, T: Element>(
        &self,
        callers: C,
        team: Team,
        op: Reduce,
        dst: SymSlice<T>,
        src: SymSlice<T>,
    ) -> Result {
        self.reduce_bytes(callers, team, op as u32, T::KIND as u32, dst.cast(), src.cast())
    }

    /// Like [`Ctx::reduce`], with the numbers of a [`Reduce`] and an [`ElementKind`](crate::ElementKind).
    ///
    /// # Errors
    /// - All errors of [`Ctx::reduce`].
    #[inline(always)]
    #[track_caller]
    pub fn reduce_bytes<C: CollectiveGroup>(
        &self,
        callers: C,
        team: Team,
        op: u32,
        kind: u32,
        dst: SymSlice<u8>,
        src: SymSlice<u8>,
    ) -> Result {
        let (reduction, dst, src) = (Reduction { op, kind }, span_of(dst), span_of(src));
        let done = match callers.enter(self, team)? {
            Some(group) => self.reduce_by(group, team, reduction, dst, src),
            None => Ok(()),
        };
        callers.leave(self, done)
    }

    #[inline(always)]
    #[track_caller]
    fn reduce_by<G: Group>(
        &self,
        group: G,
        team: Team,
        reduction: Reduction,
        dst: Span,
        src: Span,
    ) -> Result {
        let _call = watch::collective(group, "reduce", Collective::moves(team.key(), dst, src));
        match P2pTeam::to(group, self, team, both(dst, src)) {
            Some(p2p_team) => p2p::reduce(group, reduction, dst, src, p2p_team),
            None => reduce::<G, S>(group, CtxRef::of(self), team, reduction, dst, src),
        }
    }

    /// Combines `src` of all members and stores block `i` of the result in `dst` of member `i`. NVSHMEM:
    /// `nvshmem_sum_reducescatter` and its siblings.
    ///
    /// `src` has one block per member, `dst` has one block. `dst` may be this member's block of `src`. When the call
    /// returns, `dst` is complete and `src` may be reused.
    ///
    /// # Errors
    /// - [`Error::LengthMismatch`]: the length of `src` is not that of one `dst` per member.
    /// - [`Error::OutOfRange`]: an object is not in symmetric memory, or does not consist of aligned elements.
    /// - [`Error::Overlap`]: the objects overlap elsewhere.
    /// - [`Error::BadReduction`]: the element type has no such reduction.
    /// - All errors of [`Ctx::team_sync`].
    #[inline(always)]
    #[track_caller]
    pub fn reduce_scatter<C: CollectiveGroup, T: Element>(
        &self,
        callers: C,
        team: Team,
        op: Reduce,
        dst: SymSlice<T>,
        src: SymSlice<T>,
    ) -> Result {
        self.reduce_scatter_bytes(callers, team, op as u32, T::KIND as u32, dst.cast(), src.cast())
    }

    /// Like [`Ctx::reduce_scatter`], with numbers as in [`Ctx::reduce_bytes`].
    ///
    /// # Errors
    /// - All errors of [`Ctx::reduce_scatter`].
    #[inline(always)]
    #[track_caller]
    pub fn reduce_scatter_bytes<C: CollectiveGroup>(
        &self,
        callers: C,
        team: Team,
        op: u32,
        kind: u32,
        dst: SymSlice<u8>,
        src: SymSlice<u8>,
    ) -> Result {
        let (reduction, dst, src) = (Reduction { op, kind }, span_of(dst), span_of(src));
        let done = match callers.enter(self, team)? {
            Some(group) => self.reduce_scatter_by(group, team, reduction, dst, src),
            None => Ok(()),
        };
        callers.leave(self, done)
    }

    #[inline(always)]
    #[track_caller]
    fn reduce_scatter_by<G: Group>(
        &self,
        group: G,
        team: Team,
        reduction: Reduction,
        dst: Span,
        src: Span,
    ) -> Result {
        let _call = watch::collective(group, "reduce_scatter", Collective::moves(team.key(), dst, src));
        match P2pTeam::to(group, self, team, both(dst, src)) {
            Some(p2p_team) => p2p::reduce_scatter(group, reduction, dst, src, p2p_team),
            None => reduce_scatter::<G, S>(group, CtxRef::of(self), team, reduction, dst, src),
        }
    }

    /// Computes prefix sums of `src`, in team order. OpenSHMEM 1.6 section 9.9, `shmem_sum_inscan` and
    /// `shmem_sum_exscan`.
    ///
    /// Each member gets, in `dst`, the sum of the sources before it; `which` says whether its own is included. `src`
    /// may equal `dst`.
    ///
    /// # Errors
    /// - All errors of [`Ctx::reduce`].
    #[inline(always)]
    #[track_caller]
    pub fn sum_scan<G: Group, T: Element>(
        &self,
        group: G,
        team: Team,
        which: Scan,
        dst: SymSlice<T>,
        src: SymSlice<T>,
    ) -> Result {
        let kind = T::KIND as u32;
        let (dst, src) = (span_of(dst), span_of(src));
        let _call = watch::collective(group, "sum_scan", Collective::moves(team.key(), dst, src));
        scan::<G, S>(group, CtxRef::of(self), team, which as u32, kind, dst, src)
    }

    /// Like [`Ctx::sum_scan`], with the numbers of a [`Scan`] and an [`ElementKind`](crate::ElementKind).
    ///
    /// # Errors
    /// - All errors of [`Ctx::sum_scan`].
    #[inline(always)]
    #[track_caller]
    pub fn sum_scan_bytes<G: Group>(
        &self,
        group: G,
        team: Team,
        which: u32,
        kind: u32,
        dst: SymSlice<u8>,
        src: SymSlice<u8>,
    ) -> Result {
        let (dst, src) = (span_of(dst), span_of(src));
        let _call = watch::collective(group, "sum_scan", Collective::moves(team.key(), dst, src));
        scan::<G, S>(group, CtxRef::of(self), team, which, kind, dst, src)
    }
}

/// Returns a range from offset 0 to the end of both spans, for checks that only depend on the last offset.
#[inline(always)]
fn both(dst: Span, src: Span) -> Span {
    let end = |(offset, bytes): Span| offset.saturating_add(bytes);
    (0, end(dst).max(end(src)))
}

/// Returns the length of each member's part of the scratch, in bytes.
#[inline(always)]
fn piece_bytes<G: Group, S: Sharing>(call: Call<G, S>) -> u64 {
    let (_, bytes) = call.scratch();
    bytes.checked_div(call.n as u64).unwrap_or(bytes) & !127
}

/// Combines `bytes` bytes of the sources of the members below `until`. The source is at `own` on this PE and at
/// `theirs` on the others. The result goes to `out`, or to the start of the scratch. `bytes` is at most
/// [`piece_bytes`], and `until` includes at least one other member.
#[inline(always)]
#[track_caller]
fn combine<G: Group, S: Sharing>(
    call: Call<G, S>,
    reduction: Reduction,
    out: Option<u64>,
    own: u64,
    theirs: u64,
    bytes: u64,
    until: u32,
) -> Result {
    let ((scratch, _), piece) = (call.scratch(), piece_bytes(call));
    let slot = |member: u32| scratch + member as u64 * piece;
    let mut k = 1;
    while k < call.n {
        let from = call.after(k);
        if from < until {
            call.fetch(from, slot(from), theirs, bytes)?;
        }
        k += 1;
    }
    // All sources must have arrived before they are combined.
    call.complete()?;
    let ctx = call.ctx_ref.ctx::<S>();
    let at = |offset: u64| ctx.address::<u8>(offset).addr() as u64;
    let fold = Fold {
        reduction,
        own: (at(own), at(out.unwrap_or(scratch))),
        first: (at(scratch), 0),
        step: (piece, 0),
        pes: DevAddr(0),
        members: (call.me, until),
        to_all: false,
        bytes,
    };
    // SAFETY: parts of checked objects, and pieces of the scratch, which have room for `bytes`.
    unsafe { fold::run((call.group.rank(), call.group.size()), fold) };
    call.group.sync();
    Ok(())
}

#[inline(never)]
#[track_caller]
fn reduce<G: Group, S: Sharing>(
    group: G,
    ctx_ref: CtxRef,
    team: Team,
    reduction: Reduction,
    dst: Span,
    src: Span,
) -> Result {
    if let Some(p2p_team) = P2pTeam::in_mixed_job(group, &ctx_ref.ctx::<S>(), team, both(dst, src)) {
        return p2p::reduce(group, reduction, dst, src, p2p_team);
    }
    let call = Call::<G, S>::begin(group, ctx_ref, team)?;
    let done = reduce_in(call, reduction, dst, src);
    call.end(done)
}

/// Reduces by shares: each member combines one share of the elements and sends it to all. No other member reads that
/// share of the sources, so the destination may be the source.
#[inline(always)]
#[track_caller]
fn reduce_in<G: Group, S: Sharing>(call: Call<G, S>, reduction: Reduction, dst: Span, src: Span) -> Result {
    let site = Location::caller();
    let mine = if call.group.leader() {
        let ctx = call.ctx_ref.ctx::<S>();
        check_spans(site, &ctx, dst, src, dst.0)
            .and_then(|()| check_equal(site, &ctx, src.1, dst.1))
            .and_then(|()| reduction.check(site, &ctx, dst, src))
    } else {
        Ok(())
    };
    call.check_in(call.call_hash(kind::REDUCE, [dst.0, dst.1, src.0, reduction.word()]), mine)?;
    let ((begin, bytes), n) = (part(call.group, dst.1, BYTES_PER_CHANNEL), call.n as u64);
    let (dst, src) = (dst.0 + begin, src.0 + begin);
    // In a team of one, the result is the source.
    if n == 1 {
        if dst != src {
            call.copy(dst, src, bytes);
        }
        return Ok(());
    }
    let piece = piece_bytes(call);
    let (mut at, end) = (cut(bytes, call.me as u64, n), cut(bytes, call.me as u64 + 1, n));
    while at < end {
        // The scratch holds one piece per member, so proceed by pieces.
        let len = (end - at).min(piece);
        combine(call, reduction, Some(dst + at), src + at, src + at, len, call.n)?;
        let mut k = 1;
        while k < call.n {
            call.deliver(call.after(k), dst + at, dst + at, len)?;
            k += 1;
        }
        at += len;
    }
    // Every piece arrives as one message, so compute how many pieces the other members' shares have.
    let nodes = call.nodes();
    let (mut messages, mut k) = (Messages { nic: 0, p2p: 0 }, 1);
    while k < call.n {
        let from = call.after(k);
        let share = cut(bytes, from as u64 + 1, n) - cut(bytes, from as u64, n);
        let pieces = (share + piece - 1).checked_div(piece).unwrap_or(0);
        if nodes.is_local(from) {
            messages.p2p += pieces;
        } else {
            messages.nic += pieces;
        }
        k += 1;
    }
    call.await_messages(messages)?;
    call.complete()
}

#[inline(never)]
#[track_caller]
fn reduce_scatter<G: Group, S: Sharing>(
    group: G,
    ctx_ref: CtxRef,
    team: Team,
    reduction: Reduction,
    dst: Span,
    src: Span,
) -> Result {
    if let Some(p2p_team) = P2pTeam::in_mixed_job(group, &ctx_ref.ctx::<S>(), team, both(dst, src)) {
        return p2p::reduce_scatter(group, reduction, dst, src, p2p_team);
    }
    let call = Call::<G, S>::begin(group, ctx_ref, team)?;
    let done = reduce_scatter_in(call, reduction, dst, src);
    call.end(done)
}

#[inline(always)]
#[track_caller]
fn reduce_scatter_in<G: Group, S: Sharing>(
    call: Call<G, S>,
    reduction: Reduction,
    dst: Span,
    src: Span,
) -> Result {
    let site = Location::caller();
    let own = src.0.wrapping_add(call.me as u64 * dst.1);
    let mine = if call.group.leader() {
        let ctx = call.ctx_ref.ctx::<S>();
        // The destination may be this member's own block of the source, but nothing else of it.
        let may = if dst.0 == own { src.0 } else { u64::MAX };
        check_spans(site, &ctx, dst, src, may)
            .and_then(|()| check_equal(site, &ctx, src.1, dst.1 * call.n as u64))
            .and_then(|()| reduction.check(site, &ctx, dst, src))
    } else {
        Ok(())
    };
    // A destination within the source is at a different offset on each member, so it cannot be part of the hash.
    let offset = if dst.0 == own { u64::MAX } else { dst.0 };
    call.check_in(call.call_hash(kind::REDUCE_SCATTER, [offset, dst.1, src.0, reduction.word()]), mine)?;
    let (begin, bytes) = part(call.group, dst.1, BYTES_PER_CHANNEL);
    if call.n == 1 {
        if dst.0 != src.0 {
            call.copy(dst.0 + begin, src.0 + begin, bytes);
        }
        return Ok(());
    }
    let piece = piece_bytes(call);
    let (mut at, end) = (begin, begin + bytes);
    while at < end {
        let len = (end - at).min(piece);
        combine(call, reduction, Some(dst.0 + at), own + at, own + at, len, call.n)?;
        at += len;
    }
    // Wait until all members have read the source before the caller may reuse it.
    call.check_in(call.call_hash(kind::STEP, [0; 4]), Ok(()))
}

#[inline(never)]
#[track_caller]
fn scan<G: Group, S: Sharing>(
    group: G,
    ctx_ref: CtxRef,
    team: Team,
    which: u32,
    kind: u32,
    dst: Span,
    src: Span,
) -> Result {
    let call = Call::<G, S>::begin(group, ctx_ref, team)?;
    let done = scan_in(call, which, kind, dst, src);
    call.end(done)
}

/// Computes prefix sums piece by piece. A check-in between reading a piece, on all members, and writing it on any
/// allows `dst` to be `src`.
#[inline(always)]
#[track_caller]
fn scan_in<G: Group, S: Sharing>(call: Call<G, S>, which: u32, kind: u32, dst: Span, src: Span) -> Result {
    let site = Location::caller();
    let reduction = Reduction { op: Reduce::Sum as u32, kind };
    let exclusive = (which == Scan::Exclusive as u32) as u32;
    let mine = if call.group.leader() {
        let ctx = call.ctx_ref.ctx::<S>();
        if which > Scan::Exclusive as u32 {
            let d = Detail { found: which as u64, wanted: kind as u64, ..Detail::NONE };
            Err(ctx.fail(Error::BadReduction, d))
        } else {
            check_spans(site, &ctx, dst, src, dst.0)
                .and_then(|()| check_equal(site, &ctx, src.1, dst.1))
                .and_then(|()| reduction.check(site, &ctx, dst, src))
        }
    } else {
        Ok(())
    };
    let call_hash = call.call_hash(kind::SCAN, [dst.1, src.0, which as u64, reduction.word()]);
    call.check_in(call_hash, mine)?;
    let (piece, (scratch, _)) = (piece_bytes(call), call.scratch());
    let mut at = 0;
    while at < dst.1 {
        let len = (dst.1 - at).min(piece);
        // Members below `until` contribute, which includes or excludes this one.
        let until = call.me + 1 - exclusive;
        // There is nobody before the first member, so it combines nothing.
        if call.me > 0 {
            combine(call, reduction, None, src.0 + at, src.0 + at, len, until)?;
        }
        call.check_in(call.call_hash(kind::STEP, [at, 0, 0, 0]), Ok(()))?;
        if call.me > 0 {
            call.copy(dst.0 + at, scratch, len);
        } else if exclusive == 1 {
            zero(call, dst.0 + at, len);
        } else if dst.0 != src.0 {
            call.copy(dst.0 + at, src.0 + at, len);
        }
        at += len;
    }
    Ok(())
}

/// Zeroes `bytes` bytes of this PE, starting at `at`.
#[inline(always)]
#[track_caller]
fn zero<G: Group, S: Sharing>(call: Call<G, S>, at: u64, bytes: u64) {
    let to = call.ctx_ref.ctx::<S>().address::<u8>(at);
    let mut i = call.group.rank() as usize;
    while (i as u64) < bytes {
        // SAFETY: a part of a checked object.
        unsafe { crate::arch::write(to.add(i), 0u8) };
        i += call.group.size() as usize;
    }
    call.group.sync();
}
