//! All-to-all of elements with gaps between them, and of blocks with different lengths.
#![allow(unsafe_code, reason = "copies blocks between checked addresses")]

use core::panic::Location;

use bytemuck::Pod;

use super::call::{Call, place};
use super::kind;
use super::p2p;
use super::p2p_team::P2pTeam;
use super::spread::{Span, check_equal, check_spans, span_of};
use crate::arch;
use crate::ctx::Ctx;
use crate::ctx_ref::CtxRef;
use crate::error::{Detail, Error, Result, Site, record};
use crate::group::{Group, Thread};
use crate::heap::SymSlice;
use crate::sharing::Sharing;
use crate::team::Team;

/// Where the blocks of an [`Ctx::alltoallv`] lie: for each member of the team, how many elements its block has, and
/// before how many it begins. Both are read on this PE only.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// Elements of each block.
    pub counts: SymSlice<u64>,
    /// Elements from the beginning of the object to each block.
    pub offsets: SymSlice<u64>,
}

impl<S: Sharing> Ctx<S> {
    /// As [`Ctx::alltoall`] of blocks of `len` elements, which lie `dst_stride` elements apart in `dst` and `src_stride`
    /// in `src`; the blocks lie `len` times that apart. What is between them stays as it is. OpenSHMEM 1.6 section 9.9,
    /// `shmem_alltoalls`.
    ///
    /// Through a NIC, every element is a message of its own.
    ///
    /// # Errors
    /// As [`Ctx::alltoall`]; [`Error::LengthMismatch`] if an object is too short, or a stride is 0.
    #[inline(always)]
    #[track_caller]
    #[allow(clippy::too_many_arguments)] // the field's signature
    pub fn alltoalls<G: Group, T: Pod>(
        &self,
        group: G,
        team: Team,
        dst: SymSlice<T>,
        src: SymSlice<T>,
        dst_stride: usize,
        src_stride: usize,
        len: usize,
    ) -> Result {
        let (dst, src, strides) = (span_of(dst), span_of(src), (dst_stride as u64, src_stride as u64));
        let (len, size) = (len as u64, size_of::<T>() as u64);
        if let Some(w) = P2pTeam::to(self, team, dst) {
            let (heap, near, rest, teams, sizes) = (w.heap, w.near, w.rest, w.teams, w.sizes);
            return p2p::alltoalls(group, heap, near, rest, teams, sizes, team, dst, src, strides, len, size);
        }
        alltoalls::<G, S>(group, CtxRef::of(self), team, dst, src, strides, len, size)
    }

    /// As [`Ctx::alltoall`] of blocks with different lengths: member `j` gets what `src_parts` says of `j`, at the place
    /// where its own `dst_parts` wants what comes from this member. The lengths are the same at both ends. rocSHMEM's
    /// `alltoallv`.
    ///
    /// # Errors
    /// As [`Ctx::alltoall`]; [`Error::LengthMismatch`] on all members if one expects another length than it gets.
    #[inline(always)]
    #[track_caller]
    pub fn alltoallv<G: Group, T: Pod>(
        &self,
        group: G,
        team: Team,
        dst: SymSlice<T>,
        dst_parts: Parts,
        src: SymSlice<T>,
        src_parts: Parts,
    ) -> Result {
        let size = size_of::<T>() as u64;
        alltoallv::<G, S>(
            group,
            CtxRef::of(self),
            team,
            span_of(dst),
            dst_parts,
            span_of(src),
            src_parts,
            size,
        )
    }
}

#[inline(never)]
#[track_caller]
#[allow(clippy::too_many_arguments)] // plain words
fn alltoalls<G: Group, S: Sharing>(
    group: G,
    ctx_ref: CtxRef,
    team: Team,
    dst: Span,
    src: Span,
    strides: (u64, u64),
    len: u64,
    size: u64,
) -> Result {
    let call = Call::<G, S>::begin(group, ctx_ref, team)?;
    let done = alltoalls_in(call, dst, src, strides, len, size);
    call.end(done)
}

/// Bytes of `n` elements with a stride: up to the end of the last one.
#[inline(always)]
fn extent(n: u64, stride: u64, size: u64) -> u64 {
    if n == 0 { 0 } else { (n - 1).saturating_mul(stride).saturating_add(1).saturating_mul(size) }
}

/// Checks that both objects have room for `all` elements.
#[inline(always)]
pub(super) fn check_strided<S>(
    site: Site,
    ctx: &Ctx<S>,
    all: u64,
    dst: Span,
    src: Span,
    (dst_stride, src_stride): (u64, u64),
    size: u64,
) -> Result {
    let fits = |(_, bytes): Span, stride: u64| {
        let wanted = if stride == 0 { u64::MAX } else { extent(all, stride, size) };
        if wanted <= bytes { Ok(()) } else { check_equal(site, ctx, bytes, wanted) }
    };
    check_spans(site, ctx, dst, src, u64::MAX)
        .and_then(|()| fits(dst, dst_stride))
        .and_then(|()| fits(src, src_stride))
}

/// Both strides in a word, as members tell each other.
#[inline(always)]
pub(super) fn folded((dst_stride, src_stride): (u64, u64)) -> u64 {
    dst_stride << 32 ^ src_stride
}

#[inline(always)]
#[track_caller]
fn alltoalls_in<G: Group, S: Sharing>(
    call: Call<G, S>,
    dst: Span,
    src: Span,
    (dst_stride, src_stride): (u64, u64),
    len: u64,
    size: u64,
) -> Result {
    let site = Location::caller();
    let all = (call.n as u64).saturating_mul(len);
    let strides = (dst_stride, src_stride);
    let mine = if call.group.leader() {
        check_strided(site, &call.ctx_ref.ctx::<S>(), all, dst, src, strides, size)
    } else {
        Ok(())
    };
    call.meet(call.call_hash(kind::ALLTOALLS, [dst.0, len, folded(strides), size]), mine)?;
    if all == 0 {
        return Ok(());
    }
    let (rank, threads) = (call.group.rank() as u64, call.group.size() as u64);
    let mut placed = Ok(());
    let mut k = 0;
    while k < call.n {
        let to = call.after(k);
        let mut i = rank;
        while i < len {
            let at = dst.0 + (call.me as u64 * len + i) * dst_stride * size;
            let from = src.0 + (to as u64 * len + i) * src_stride * size;
            if placed.is_ok() {
                placed = place::<Thread, S>(Thread, call.ctx_ref, call.pe(to), at, from, size);
            }
            i += threads;
        }
        k += 1;
    }
    crate::group::agree(call.group, placed)?;
    announce(call)
}

/// Completes what this member has placed, and lets the others know.
#[inline(always)]
#[track_caller]
fn announce<G: Group, S: Sharing>(call: Call<G, S>) -> Result {
    call.settle()?;
    let mut k = 1;
    while k < call.n {
        call.deliver(call.after(k), 0, 0, 0)?;
        k += 1;
    }
    call.take(call.n as u64 - 1)
}

#[inline(never)]
#[track_caller]
#[allow(clippy::too_many_arguments)] // plain words
fn alltoallv<G: Group, S: Sharing>(
    group: G,
    ctx_ref: CtxRef,
    team: Team,
    dst: Span,
    dst_parts: Parts,
    src: Span,
    src_parts: Parts,
    size: u64,
) -> Result {
    let call = Call::<G, S>::begin(group, ctx_ref, team)?;
    let done = alltoallv_in(call, dst, dst_parts, src, src_parts, size);
    call.end(done)
}

/// Count and offset of member `j`'s block, which is there.
#[inline(always)]
fn part<S: Sharing>(ctx: &Ctx<S>, parts: Parts, j: u32) -> (u64, u64) {
    let at = |words: SymSlice<u64>| ctx.address::<u64>(words.offset() + j as u64 * 8);
    // SAFETY: checked to have a word for each member.
    unsafe { (arch::read(at(parts.counts)), arch::read(at(parts.offsets))) }
}

#[inline(always)]
fn check_parts<S: Sharing>(site: Site, ctx: &Ctx<S>, n: u32, whole: Span, parts: Parts, size: u64) -> Result {
    for words in [parts.counts, parts.offsets] {
        ctx.check_bytes_at(words.offset(), words.bytes(), site)?;
    }
    check_equal(site, ctx, parts.counts.len() as u64, n as u64)?;
    check_equal(site, ctx, parts.offsets.len() as u64, n as u64)?;
    let elements = whole.1.checked_div(size).unwrap_or(0);
    let mut j = 0;
    while j < n {
        let (count, offset) = part(ctx, parts, j);
        if offset > elements || count > elements - offset {
            let d = Detail { found: offset.saturating_add(count), wanted: elements, ..Detail::NONE };
            return Err(record(ctx.parts_ref().state, Error::LengthMismatch, d, site));
        }
        j += 1;
    }
    Ok(())
}

#[inline(always)]
#[track_caller]
fn alltoallv_in<G: Group, S: Sharing>(
    call: Call<G, S>,
    dst: Span,
    dst_parts: Parts,
    src: Span,
    src_parts: Parts,
    size: u64,
) -> Result {
    let site = Location::caller();
    let ctx = call.ctx_ref.ctx::<S>();
    let mine = if call.group.leader() {
        check_spans(site, &ctx, dst, src, u64::MAX)
            .and_then(|()| check_parts(site, &ctx, call.n, dst, dst_parts, size))
            .and_then(|()| check_parts(site, &ctx, call.n, src, src_parts, size))
    } else {
        Ok(())
    };
    call.meet(call.call_hash(kind::ALLTOALLV, [dst.0, dst.1, size, 0]), mine)?;
    // Each tells the others where it wants what, and how much of it.
    call.tell(|j| part(&ctx, dst_parts, j))?;
    let wants = |j: u32| if j == call.me { part(&ctx, dst_parts, j) } else { call.heard(j) };
    let mine = if call.group.leader() {
        let (mut agreed, mut j) = (Ok(()), 0);
        while j < call.n {
            agreed = agreed.and_then(|()| check_equal(site, &ctx, part(&ctx, src_parts, j).0, wants(j).0));
            j += 1;
        }
        agreed
    } else {
        Ok(())
    };
    let met = call.meet(call.call_hash(kind::STEP, [0; 4]), mine);
    if met.is_ok() {
        let (mut placed, mut k) = (Ok(()), 1);
        while k < call.n {
            let to = call.after(k);
            let (count, at) = wants(to);
            let from = src.0 + part(&ctx, src_parts, to).1 * size;
            if placed.is_ok() {
                placed = call.deliver(to, dst.0 + at * size, from, count * size);
            }
            k += 1;
        }
        call.forget();
        placed?;
        let ((count, at), (_, from)) = (wants(call.me), part(&ctx, src_parts, call.me));
        call.copy(dst.0 + at * size, src.0 + from * size, count * size);
        call.take(call.n as u64 - 1)?;
        return call.settle();
    }
    call.forget();
    met
}
