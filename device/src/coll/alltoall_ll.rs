//! All-to-all exchange of small data by NCCL's LL (low latency) protocol, in which each store carries a word and its
//! flag.

#![allow(unsafe_code, reason = "exchanges flagged words in scratch memory")]

use core::panic::Location;

use super::args::{await_number, check_equal, check_spans, span_of};
use super::call::Call;
use crate::ctx::Ctx;
use crate::ctx::CtxRef;
use crate::error::Result;
use crate::group::{Group, agree};
use crate::heap::SymSlice;
use crate::sharing::Sharing;
use crate::team::Team;
use crate::watch::{self, Collective};

/// # Exchange with low latency
///
/// All-to-all exchange of small blocks by NCCL's LL (low latency) protocol.
impl<S: Sharing> Ctx<'_, S> {
    /// Exchanges 4-byte words like [`Ctx::alltoall`], in half a round trip. This is NCCL's LL protocol.
    ///
    /// Needs neither a check-in nor a signal nor a fence: a single 8-byte store carries a word and its epoch, and the
    /// receiver polls until the epoch arrives. Members do not compare their calls.
    ///
    /// `slots` has two words for each word of `src`. The caller zeroes it first and uses it only for such calls on one
    /// team. Successive calls with the same `slots` pass epochs 0, 1, 2, and so on, on all members. A member can be at
    /// most one epoch ahead of another, so even and odd epochs use separate slots.
    ///
    /// # Errors
    /// - [`Error::WaitTimeout`](crate::Error::WaitTimeout): the words of a member did not arrive before the deadline.
    ///   The record names its PE.
    /// - [`Error::LengthMismatch`](crate::Error::LengthMismatch): the lengths are inconsistent.
    /// - [`Error::OutOfRange`](crate::Error::OutOfRange): an object is not in symmetric memory.
    /// - [`Error::Overlap`](crate::Error::Overlap): `dst` and `src` overlap.
    /// - [`Error::BadTeam`](crate::Error::BadTeam), [`Error::TeamBusy`](crate::Error::TeamBusy): the team does not
    ///   exist, or another group of this PE is using it.
    /// - All errors of [`Ctx::p`].
    #[inline(always)]
    #[track_caller]
    pub fn alltoall_ll<G: Group>(
        &self,
        group: G,
        team: Team,
        epoch: u32,
        slots: SymSlice<u64>,
        dst: SymSlice<u32>,
        src: SymSlice<u32>,
    ) -> Result {
        let moved = Collective::moves(team.key(), span_of(dst), span_of(src));
        let _call = watch::collective(group, "alltoall_ll", moved);
        alltoall::<G, S>(group, CtxRef::of(self), team, epoch, slots, dst, src)
    }
}

#[inline(never)]
#[track_caller]
fn alltoall<G: Group, S: Sharing>(
    group: G,
    ctx_ref: CtxRef,
    team: Team,
    epoch: u32,
    slots: SymSlice<u64>,
    dst: SymSlice<u32>,
    src: SymSlice<u32>,
) -> Result {
    let call = Call::<G, S>::begin(group, ctx_ref, team)?;
    let done = alltoall_in(call, epoch, slots, dst, src);
    call.end(done)
}

#[inline(always)]
#[track_caller]
fn alltoall_in<G: Group, S: Sharing>(
    call: Call<G, S>,
    epoch: u32,
    slots: SymSlice<u64>,
    dst: SymSlice<u32>,
    src: SymSlice<u32>,
) -> Result {
    let site = Location::caller();
    let (ctx, n) = (call.ctx_ref.ctx::<S>(), call.n as usize);
    let len = src.len().checked_div(n).unwrap_or(0);
    let checked = if call.group.leader() {
        check_spans(site, &ctx, span_of(dst), span_of(src), u64::MAX)
            .and_then(|()| ctx.check_bytes_at(slots.offset(), slots.bytes(), site))
            .and_then(|()| check_equal(site, &ctx, src.bytes(), dst.bytes()))
            .and_then(|()| check_equal(site, &ctx, src.len() as u64, (n * len) as u64))
            .and_then(|()| check_equal(site, &ctx, slots.len() as u64, 2 * src.len() as u64))
    } else {
        Ok(())
    };
    agree(call.group, checked)?;
    // Differs from the initial 0, and from the flag that epoch `epoch - 2` left in the same set.
    let flag = epoch.wrapping_add(1);
    // Even and odd epochs use separate sets.
    let set = (epoch & 1) as usize * src.len();
    let slot = |member: u32, i: usize| slots.at(set + member as usize * len + i);
    let (mine, there) = (ctx.local(src), ctx.local(dst));
    let (rank, size) = (call.group.rank() as usize, call.group.size() as usize);
    let mut done = Ok(());
    let mut k = 0;
    while k < call.n {
        let to = call.after(k);
        let mut i = rank;
        while i < len && done.is_ok() {
            let word = mine.load(to as usize * len + i);
            // This member's own block is a local copy.
            if k == 0 {
                there.store(call.me as usize * len + i, word);
            } else {
                done = ctx.p(slot(call.me, i), (flag as u64) << 32 | word as u64, call.pe(to));
            }
            i += size;
        }
        k += 1;
    }
    // Send everything before waiting; otherwise two members could wait for each other.
    ctx.announce_batches();
    let mut k = 1;
    while k < call.n {
        let from = call.after(k);
        let mut i = rank;
        while i < len && done.is_ok() {
            match await_number(&ctx, slot(from, i).offset(), flag, (call.desc(), call.pe(from)), site) {
                Ok(word) => there.store(from as usize * len + i, word),
                Err(error) => done = Err(error),
            }
            i += size;
        }
        k += 1;
    }
    agree(call.group, done)
}
