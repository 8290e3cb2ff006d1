//! Reductions: each member fetches its part of all sources into scratch, and combines them.
#![allow(unsafe_code, reason = "reads sources and writes results at checked addresses")]

use core::panic::Location;

use super::call::Call;
use super::element::{Element, Reduce, Scan, is_defined, log_size};
use super::fold::{Members, Row, fold};
use super::kind;
use super::p2p;
use super::p2p_team::P2pTeam;
use super::spread::{Span, check_equal, check_spans, span_of};
use crate::abi::DevAddr;
use crate::ctx::Ctx;
use crate::ctx_ref::CtxRef;
use crate::error::{Detail, Error, Result, Site, record};
use crate::group::Group;
use crate::heap::SymSlice;
use crate::sharing::Sharing;
use crate::team::Team;

impl<S: Sharing> Ctx<S> {
    /// Combines the members' `src` element by element; every member gets the result in `dst`. OpenSHMEM 1.6 section
    /// 9.9, `shmem_sum_reduce` and the like. [`Reduce`] says what is promised of the result.
    ///
    /// `src` may be `dst`, if it is so on all members.
    ///
    /// # Errors
    /// Those of [`Ctx::team_sync`]; [`Error::BadReduction`] if there is no such reduction of `T`,
    /// [`Error::LengthMismatch`], [`Error::OutOfRange`], [`Error::Overlap`].
    #[inline(always)]
    #[track_caller]
    pub fn reduce<G: Group, T: Element>(
        &self,
        group: G,
        team: Team,
        op: Reduce,
        dst: SymSlice<T>,
        src: SymSlice<T>,
    ) -> Result {
        self.reduce_bytes(group, team, op as u32, T::KIND as u32, dst.cast(), src.cast())
    }

    /// [`Ctx::reduce`] with its operation ([`Reduce`]) and its type ([`ElementKind`](crate::ElementKind)) as numbers.
    ///
    /// # Errors
    /// As there; [`Error::OutOfRange`] also if the bytes are not whole elements, aligned for them.
    #[inline(always)]
    #[track_caller]
    pub fn reduce_bytes<G: Group>(
        &self,
        group: G,
        team: Team,
        op: u32,
        kind: u32,
        dst: SymSlice<u8>,
        src: SymSlice<u8>,
    ) -> Result {
        let (what, dst, src) = (What { op, kind }, span_of(dst), span_of(src));
        match P2pTeam::to(self, team, both(dst, src)) {
            Some(w) => p2p::reduce(group, w.heap, w.near, w.rest, w.teams, w.sizes, team, what, dst, src),
            None => reduce::<G, S>(group, CtxRef::of(self), team, what, dst, src),
        }
    }

    /// As [`Ctx::reduce`], but member `i` gets block `i` of the result only: `src` has a block for each member, `dst` has
    /// one. NVSHMEM's `nvshmem_sum_reducescatter` and the like.
    ///
    /// `dst` may be this member's block of `src`.
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    #[track_caller]
    pub fn reduce_scatter<G: Group, T: Element>(
        &self,
        group: G,
        team: Team,
        op: Reduce,
        dst: SymSlice<T>,
        src: SymSlice<T>,
    ) -> Result {
        self.reduce_scatter_bytes(group, team, op as u32, T::KIND as u32, dst.cast(), src.cast())
    }

    /// [`Ctx::reduce_scatter`] with numbers, as [`Ctx::reduce_bytes`].
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    #[track_caller]
    pub fn reduce_scatter_bytes<G: Group>(
        &self,
        group: G,
        team: Team,
        op: u32,
        kind: u32,
        dst: SymSlice<u8>,
        src: SymSlice<u8>,
    ) -> Result {
        let (what, dst, src) = (What { op, kind }, span_of(dst), span_of(src));
        match P2pTeam::to(self, team, both(dst, src)) {
            Some(w) => {
                p2p::reduce_scatter(group, w.heap, w.near, w.rest, w.teams, w.sizes, team, what, dst, src)
            }
            None => reduce_scatter::<G, S>(group, CtxRef::of(self), team, what, dst, src),
        }
    }

    /// Adds up the members' `src` in the order of the team; every member gets the sum up to itself in `dst`, with or
    /// without its own. OpenSHMEM 1.6 section 9.9, `shmem_sum_inscan` and `shmem_sum_exscan`.
    ///
    /// `src` may be `dst`.
    ///
    /// # Errors
    /// As [`Ctx::reduce`].
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
        scan::<G, S>(group, CtxRef::of(self), team, which as u32, kind, span_of(dst), span_of(src))
    }

    /// [`Ctx::sum_scan`] with its kind ([`Scan`]) and type as numbers, as [`Ctx::reduce_bytes`].
    ///
    /// # Errors
    /// As there.
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
        scan::<G, S>(group, CtxRef::of(self), team, which, kind, span_of(dst), span_of(src))
    }
}

/// A reduction and a type of elements, as numbers.
#[derive(Clone, Copy)]
pub(super) struct What {
    pub(super) op: u32,
    pub(super) kind: u32,
}

impl What {
    #[inline(always)]
    pub(super) fn word(self) -> u64 {
        (self.op as u64) << 32 | self.kind as u64
    }

    /// Checks that there is such a reduction, and that both objects are made of its elements.
    #[inline(always)]
    pub(super) fn check<S>(self, site: Site, ctx: &Ctx<S>, dst: Span, src: Span) -> Result {
        let state = ctx.parts_ref().state;
        let Some(log) = log_size(self.kind).filter(|_| is_defined(self.op, self.kind)) else {
            let d = Detail { found: self.op as u64, wanted: self.kind as u64, ..Detail::NONE };
            return Err(record(state, Error::BadReduction, d, site));
        };
        let odd = |(offset, bytes): Span| (offset | bytes) & ((1 << log) - 1) != 0;
        if odd(dst) || odd(src) {
            let d =
                Detail { found: src.1, wanted: ctx.parts_ref().heap_bytes, offset: src.0, ..Detail::NONE };
            return Err(record(state, Error::OutOfRange, d, site));
        }
        Ok(())
    }
}

/// A part of memory that ends where the later of two does.
#[inline(always)]
fn both(dst: Span, src: Span) -> Span {
    let end = |(offset, bytes): Span| offset.saturating_add(bytes);
    (0, end(dst).max(end(src)))
}

/// Bytes that one member's piece has in the scratch.
#[inline(always)]
fn piece_bytes<G: Group, S: Sharing>(call: Call<G, S>) -> u64 {
    let (_, bytes) = call.scratch();
    bytes.checked_div(call.n as u64).unwrap_or(bytes) & !127
}

/// Where share `i` of `n` begins, of so many bytes: at a multiple of 16, which no element crosses.
#[inline(always)]
pub(super) fn cut(bytes: u64, i: u64, n: u64) -> u64 {
    let units = bytes.div_ceil(16);
    (units.wrapping_mul(i).checked_div(n).unwrap_or(0) * 16).min(bytes)
}

/// Combines the sources of the members below `until`, of which this PE's lies at `own` and the others' at `theirs` of
/// theirs: `bytes`, at most a piece. The result goes to `out` of this PE; where none is given, to the beginning of the
/// scratch. There is at least one source, and not only this PE's.
#[inline(always)]
#[track_caller]
fn combine<G: Group, S: Sharing>(
    call: Call<G, S>,
    what: What,
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
    call.settle()?;
    let ctx = call.ctx_ref.ctx::<S>();
    let at = |offset: u64| ctx.address::<u8>(offset).addr() as u64;
    let from = Row { own: at(own), first: at(scratch), step: piece };
    let to = Row { own: at(out.unwrap_or(scratch)), first: 0, step: 0 };
    let members = Members { me: call.me, n: until, pes: DevAddr(0) };
    // SAFETY: parts of objects that have been checked, and of the scratch, whose pieces have room for `bytes`.
    unsafe { fold(call.group, what.op, what.kind, from, to, members, false, bytes) };
    call.group.sync();
    Ok(())
}

#[inline(never)]
#[track_caller]
fn reduce<G: Group, S: Sharing>(
    group: G,
    ctx_ref: CtxRef,
    team: Team,
    what: What,
    dst: Span,
    src: Span,
) -> Result {
    let call = Call::<G, S>::begin(group, ctx_ref, team)?;
    let done = reduce_in(call, what, dst, src);
    call.end(done)
}

/// Each member combines a share of the elements, and sends it to all. Nobody but the member with that share reads it
/// from the sources, so it may be written over where the destination is the source.
#[inline(always)]
#[track_caller]
fn reduce_in<G: Group, S: Sharing>(call: Call<G, S>, what: What, dst: Span, src: Span) -> Result {
    let site = Location::caller();
    let mine = if call.group.leader() {
        let ctx = call.ctx_ref.ctx::<S>();
        check_spans(site, &ctx, dst, src, dst.0)
            .and_then(|()| check_equal(site, &ctx, src.1, dst.1))
            .and_then(|()| what.check(site, &ctx, dst, src))
    } else {
        Ok(())
    };
    call.meet(call.call_hash(kind::REDUCE, [dst.0, dst.1, src.0, what.word()]), mine)?;
    let (bytes, n) = (dst.1, call.n as u64);
    if n == 1 {
        if dst.0 != src.0 {
            call.copy(dst.0, src.0, bytes);
        }
        return Ok(());
    }
    let piece = piece_bytes(call);
    let (mut at, end) = (cut(bytes, call.me as u64, n), cut(bytes, call.me as u64 + 1, n));
    while at < end {
        let len = (end - at).min(piece);
        combine(call, what, Some(dst.0 + at), src.0 + at, src.0 + at, len, call.n)?;
        let mut k = 1;
        while k < call.n {
            call.deliver(call.after(k), dst.0 + at, dst.0 + at, len)?;
            k += 1;
        }
        at += len;
    }
    let (mut messages, mut i) = (0, 0);
    while i < n {
        let share = cut(bytes, i + 1, n) - cut(bytes, i, n);
        if i != call.me as u64 {
            messages += (share + piece - 1).checked_div(piece).unwrap_or(0);
        }
        i += 1;
    }
    call.take(messages)?;
    call.settle()
}

#[inline(never)]
#[track_caller]
fn reduce_scatter<G: Group, S: Sharing>(
    group: G,
    ctx_ref: CtxRef,
    team: Team,
    what: What,
    dst: Span,
    src: Span,
) -> Result {
    let call = Call::<G, S>::begin(group, ctx_ref, team)?;
    let done = reduce_scatter_in(call, what, dst, src);
    call.end(done)
}

#[inline(always)]
#[track_caller]
fn reduce_scatter_in<G: Group, S: Sharing>(call: Call<G, S>, what: What, dst: Span, src: Span) -> Result {
    let site = Location::caller();
    let own = src.0.wrapping_add(call.me as u64 * dst.1);
    let mine = if call.group.leader() {
        let ctx = call.ctx_ref.ctx::<S>();
        let may = if dst.0 == own { src.0 } else { u64::MAX };
        check_spans(site, &ctx, dst, src, may)
            .and_then(|()| check_equal(site, &ctx, src.1, dst.1 * call.n as u64))
            .and_then(|()| what.check(site, &ctx, dst, src))
    } else {
        Ok(())
    };
    // Where the destination is a block of the source, it is another one on each member.
    let place = if dst.0 == own { u64::MAX } else { dst.0 };
    call.meet(call.call_hash(kind::REDUCE_SCATTER, [place, dst.1, src.0, what.word()]), mine)?;
    if call.n == 1 {
        if dst.0 != src.0 {
            call.copy(dst.0, src.0, dst.1);
        }
        return Ok(());
    }
    let piece = piece_bytes(call);
    let mut at = 0;
    while at < dst.1 {
        let len = (dst.1 - at).min(piece);
        combine(call, what, Some(dst.0 + at), own + at, own + at, len, call.n)?;
        at += len;
    }
    // The source may be reused once all have read it.
    call.meet(call.call_hash(kind::STEP, [0; 4]), Ok(()))
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

/// Piece by piece: all members read theirs, and meet, before any writes it.
#[inline(always)]
#[track_caller]
fn scan_in<G: Group, S: Sharing>(call: Call<G, S>, which: u32, kind: u32, dst: Span, src: Span) -> Result {
    let site = Location::caller();
    let what = What { op: Reduce::Sum as u32, kind };
    let exclusive = (which == Scan::Exclusive as u32) as u32;
    let mine = if call.group.leader() {
        let ctx = call.ctx_ref.ctx::<S>();
        if which > Scan::Exclusive as u32 {
            let d = Detail { found: which as u64, wanted: kind as u64, ..Detail::NONE };
            Err(ctx.fail(Error::BadReduction, d))
        } else {
            check_spans(site, &ctx, dst, src, dst.0)
                .and_then(|()| check_equal(site, &ctx, src.1, dst.1))
                .and_then(|()| what.check(site, &ctx, dst, src))
        }
    } else {
        Ok(())
    };
    let call_hash = call.call_hash(kind::SCAN, [dst.1, src.0, which as u64, what.word()]);
    call.meet(call_hash, mine)?;
    let (piece, (scratch, _)) = (piece_bytes(call), call.scratch());
    let mut at = 0;
    while at < dst.1 {
        let len = (dst.1 - at).min(piece);
        let until = call.me + 1 - exclusive;
        if call.me > 0 {
            combine(call, what, None, src.0 + at, src.0 + at, len, until)?;
        }
        call.meet(call.call_hash(kind::STEP, [at, 0, 0, 0]), Ok(()))?;
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

/// Clears bytes of this PE.
#[inline(always)]
#[track_caller]
fn zero<G: Group, S: Sharing>(call: Call<G, S>, at: u64, bytes: u64) {
    let to = call.ctx_ref.ctx::<S>().address::<u8>(at);
    let mut i = call.group.rank() as usize;
    while (i as u64) < bytes {
        // SAFETY: a part of an object that has been checked.
        unsafe { crate::arch::write(to.add(i), 0u8) };
        i += call.group.size() as usize;
    }
    call.group.sync();
}
