//! All-to-all exchanges with strides, or with blocks of different lengths.

#![allow(unsafe_code, reason = "reads checked layout tables")]

use core::panic::Location;

use bytemuck::Pod;

use super::args::{Span, Strides, check_equal, check_spans, check_strided, kind, packed, span_of};
use super::call::{Call, put};
use super::p2p;
use super::p2p_team::P2pTeam;
use crate::arch;
use crate::ctx::Ctx;
use crate::ctx::CtxRef;
use crate::error::{Detail, Error, Result, Site, record};
use crate::event::NOTHING;
use crate::group::{Group, Thread};
use crate::heap::SymSlice;
use crate::outlined::outlined;
use crate::sharing::Sharing;
use crate::team::Team;
use crate::watch::{self, Collective, Event};

/// The layout of the blocks of [`Ctx::alltoallv`], with one entry per member. Only read by this PE.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// Number of elements in each block.
    pub counts: SymSlice<u64>,
    /// Offset of each block from the start of the object, in elements.
    pub offsets: SymSlice<u64>,
}

/// # Exchange of blocks
///
/// Exchanges of strided blocks, and of blocks of different lengths.
impl<S: Sharing> Ctx<'_, S> {
    /// Exchanges blocks of `len` elements like [`Ctx::alltoall`], with strides. OpenSHMEM 1.6 section 9.9,
    /// `shmem_alltoalls`.
    ///
    /// Elements are `dst_stride` elements apart in `dst`, and `src_stride` in `src`. There are no other gaps between
    /// blocks. Bytes between the elements are left unchanged. To NIC peers, every element is a separate message.
    ///
    /// # Errors
    /// - [`Error::LengthMismatch`]: an object is too short, or a stride is 0.
    /// - [`Error::OutOfRange`]: an object is not in symmetric memory.
    /// - [`Error::Overlap`]: the objects overlap.
    /// - All errors of [`Ctx::team_sync`].
    #[inline(always)]
    #[track_caller]
    #[allow(clippy::too_many_arguments, reason = "the signature of shmem_alltoalls")]
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
        let moved = Collective::moves(team.key(), NOTHING, NOTHING);
        let _call = watch::collective(group, "alltoalls", moved);
        let done = if let Some(p2p_team) = P2pTeam::to(group, self, team, dst) {
            p2p::alltoalls(group, dst, src, strides, len, size, p2p_team)
        } else {
            let blocks = StridedBlocks { dst, src, strides, len, size };
            alltoalls::<G, S>(group, CtxRef::of(self), team, blocks)
        };
        // The ranges are only valid once the call has checked its arguments.
        if watch::ENABLED && done.is_ok() {
            let elements = self.team_n_pes(team).unwrap_or(0) as u64 * len;
            watch::each("alltoalls", elements, |i| Event::writes((dst.0 + i * strides.0 * size, size)));
            watch::each("alltoalls", elements, |i| Event::reads((src.0 + i * strides.1 * size, size)));
        }
        done
    }

    /// Exchanges blocks of different lengths. rocSHMEM: `alltoallv`.
    ///
    /// Entry `j` of `src_parts` describes the block for member `j`, and entry `i` of `dst_parts` the block from member
    /// `i`. Sender and receiver must pass the same length for a block.
    ///
    /// # Errors
    /// - [`Error::LengthMismatch`]: two members pass different lengths for a block, or a block exceeds its object.
    /// - [`Error::OutOfRange`]: an object is not in symmetric memory.
    /// - [`Error::Overlap`]: the objects overlap.
    /// - All errors of [`Ctx::team_sync`].
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
        let (dst, src, size) = (span_of(dst), span_of(src), size_of::<T>() as u64);
        let tables = [dst_parts.counts, dst_parts.offsets, src_parts.counts, src_parts.offsets].map(span_of);
        let [a, b, c, d] = tables;
        let moved = Collective { reads: [a, b, c, d, NOTHING], ..Collective::moves(team.key(), NOTHING, a) };
        let _call = watch::collective(group, "alltoallv", moved);
        let blocks = PartBlocks { dst, dst_parts, src, src_parts, size };
        let done = alltoallv::<G, S>(group, CtxRef::of(self), team, blocks);
        if watch::ENABLED && done.is_ok() {
            let members = self.team_n_pes(team).unwrap_or(0);
            let range = |whole: Span, parts, j: u64| {
                let (count, offset) = part(self, parts, j as u32);
                (whole.0 + offset * size, count * size)
            };
            watch::each("alltoallv", members.into(), |j| Event::writes(range(dst, dst_parts, j)));
            watch::each("alltoallv", members.into(), |j| Event::reads(range(src, src_parts, j)));
        }
        done
    }
}

/// Operands of `alltoalls`: blocks of `len` elements of `size` bytes, with strides in elements.
#[derive(Clone, Copy)]
struct StridedBlocks {
    dst: Span,
    src: Span,
    strides: Strides,
    len: u64,
    size: u64,
}

outlined! {
    /// Implements [`Ctx::alltoalls`] in jobs with NIC peers.
    #[track_caller]
    fn alltoalls[G: Group, S: Sharing](
        group: G,
        ctx_ref: CtxRef,
        team: Team;
        blocks: StridedBlocks { dst: Span, src: Span, strides: Strides, len: u64, size: u64 }
    ) -> Result {
        let StridedBlocks { dst, src, strides, len, size } = blocks;
        if let Some(p2p_team) = P2pTeam::in_mixed_job(group, &ctx_ref.ctx::<S>(), team, dst) {
            return p2p::alltoalls(group, dst, src, strides, len, size, p2p_team);
        }
        let call = Call::<G, S>::begin(group, ctx_ref, team)?;
        let done = alltoalls_in(call, blocks);
        call.end(done)
    }
}

#[inline(always)]
#[track_caller]
fn alltoalls_in<G: Group, S: Sharing>(call: Call<G, S>, blocks: StridedBlocks) -> Result {
    let StridedBlocks { dst, src, strides, len, size } = blocks;
    let (dst_stride, src_stride) = strides;
    let site = Location::caller();
    let all = (call.n as u64).saturating_mul(len);
    let mine = if call.group.leader() {
        check_strided(site, &call.ctx_ref.ctx::<S>(), all, dst, src, strides, size)
    } else {
        Ok(())
    };
    call.check_in(call.call_hash(kind::ALLTOALLS, [dst.0, len, packed(strides), size]), mine)?;
    if all == 0 {
        return Ok(());
    }
    let (rank, threads) = (call.group.rank() as u64, call.group.size() as u64);
    // Each thread posts by itself, because each element is a separate message.
    let mut posted = Ok(());
    let mut k = 0;
    while k < call.n {
        let to = call.after(k);
        let mut i = rank;
        while i < len {
            let at = dst.0 + (call.me as u64 * len + i) * dst_stride * size;
            let from = src.0 + (to as u64 * len + i) * src_stride * size;
            if posted.is_ok() {
                posted = put::<Thread, S>(Thread, call.ctx_ref, call.pe(to), at, from, size);
            }
            i += threads;
        }
        k += 1;
    }
    crate::group::agree(call.group, posted)?;
    announce(call)
}

/// Completes the puts of this member, and then increments the message counters of the other members.
#[inline(always)]
#[track_caller]
fn announce<G: Group, S: Sharing>(call: Call<G, S>) -> Result {
    call.complete()?;
    let mut k = 1;
    while k < call.n {
        call.deliver(call.after(k), 0, 0, 0)?;
        k += 1;
    }
    call.await_others()
}

/// Operands of `alltoallv`, with elements of `size` bytes.
#[derive(Clone, Copy)]
struct PartBlocks {
    dst: Span,
    dst_parts: Parts,
    src: Span,
    src_parts: Parts,
    size: u64,
}

outlined! {
    #[track_caller]
    fn alltoallv[G: Group, S: Sharing](
        group: G,
        ctx_ref: CtxRef,
        team: Team;
        blocks: PartBlocks { dst: Span, dst_parts: Parts, src: Span, src_parts: Parts, size: u64 }
    ) -> Result {
        let call = Call::<G, S>::begin(group, ctx_ref, team)?;
        let done = alltoallv_in(call, blocks);
        call.end(done)
    }
}

/// Returns count and offset of the block of member `j`. Only valid after [`check_parts`].
#[inline(always)]
fn part<S: Sharing>(ctx: &Ctx<S>, parts: Parts, j: u32) -> (u64, u64) {
    let at = |words: SymSlice<u64>| ctx.address::<u64>(words.offset() + j as u64 * 8);
    // SAFETY: `check_parts` has seen a word for each member.
    unsafe { (arch::read(at(parts.counts)), arch::read(at(parts.offsets))) }
}

/// Checks that `parts` has an entry for each member, and that all blocks are within `whole`.
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
fn alltoallv_in<G: Group, S: Sharing>(call: Call<G, S>, blocks: PartBlocks) -> Result {
    let PartBlocks { dst, dst_parts, src, src_parts, size } = blocks;
    let site = Location::caller();
    let ctx = call.ctx_ref.ctx::<S>();
    let mine = if call.group.leader() {
        check_spans(site, &ctx, dst, src, u64::MAX)
            .and_then(|()| check_parts(site, &ctx, call.n, dst, dst_parts, size))
            .and_then(|()| check_parts(site, &ctx, call.n, src, src_parts, size))
    } else {
        Ok(())
    };
    call.check_in(call.call_hash(kind::ALLTOALLV, [dst.0, dst.1, size, 0]), mine)?;
    // Each member sends the others the length and destination of their blocks.
    call.exchange_values(|j| part(&ctx, dst_parts, j))?;
    // From here on, every member knows what the others expect of it.
    let expected = |j: u32| if j == call.me { part(&ctx, dst_parts, j) } else { call.values_of(j) };
    let mine = if call.group.leader() {
        let (mut agreed, mut j) = (Ok(()), 0);
        while j < call.n {
            agreed = agreed.and_then(|()| check_equal(site, &ctx, part(&ctx, src_parts, j).0, expected(j).0));
            j += 1;
        }
        agreed
    } else {
        Ok(())
    };
    // The lengths can only be compared now, so a second check-in makes all members fail together.
    let checked_in = call.check_in(call.call_hash(kind::STEP, [0; 4]), mine);
    if checked_in.is_ok() {
        let (mut posted, mut k) = (Ok(()), 1);
        while k < call.n {
            let to = call.after(k);
            let (count, at) = expected(to);
            let from = src.0 + part(&ctx, src_parts, to).1 * size;
            if posted.is_ok() {
                posted = call.deliver(to, dst.0 + at * size, from, count * size);
            }
            k += 1;
        }
        call.clear_values();
        posted?;
        let ((count, at), (_, from)) = (expected(call.me), part(&ctx, src_parts, call.me));
        call.copy(dst.0 + at * size, src.0 + from * size, count * size);
        call.await_others()?;
        return call.complete();
    }
    // The values must be cleared even on failure: the next call would take them for its own.
    call.clear_values();
    checked_in
}
