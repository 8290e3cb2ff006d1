//! Ordering of WRITEs by strong fences and read-backs, where QPs and ACKs do not provide it.
//!
//! | cause | lacking order | remedy |
//! |---|---|---|
//! | adaptive routing ([`qp_flags::UNORDERED`]) | between WRITEs of the same QP | a strong fence: an empty WRITE with fence mode 3 |
//! | relaxed keys ([`qp_flags::RELAXED`]) | of a WRITE through such a key after an earlier WRITE, even a completed one | a read-back and, in `fence`, a strong fence that waits for it |
//! | several NICs, or NIC and P2P, at one heap, or a NIC that refuses loopback ([`ctx_flags::EARLY_ACKS`]) | of an access by another path after the ACK of a WRITE | a read-back: a READ of the written memory, whose response pushes the WRITEs of that NIC |
//!
//! Atomics need neither: they are ordered after earlier WRITEs of their QP, and execute after earlier writes of their
//! NIC. That includes writes through relaxed keys, because atomics use strict keys, and only a request that is itself
//! relaxed may pass posted PCIe writes.
//!
//! [`QpState::fenced`] is a *mark*: a block index, and bits for the remedies that have been posted after all blocks
//! before it. It saves a second remedy when nothing has been posted since the last one.
#![allow(unsafe_code, reason = "finds QPs by entry, and updates their state words")]

use core::mem::offset_of;
use core::panic::Location;

use rushmem_mlx5::{Flags, Wqe};

use crate::abi::{DeviceState, QpEntry, QpState, ctx_flags, qp_flags, reserved};
use crate::arch::{Gpu, Scope};
use crate::ctx::segment;
use crate::ctx::{Ctx, CtxRef, far_end};
use crate::error::{Result, Site, outcome};
use crate::group::Thread;
use crate::post::{Lanes, begin};
use crate::rma::{Direction, NicTransfer, send};
use crate::sharing::Sharing;
use crate::sq::Qp;

/// Bit of [`QpState::fenced`]: a read-back has been posted after all blocks before its index.
const READ_BACK: u64 = 1;
/// Bit of [`QpState::fenced`]: a strong fence has been posted after all blocks before its index.
const FENCE: u64 = 2;
const MARK_INDEX: u32 = 2;

impl<S: Sharing> Ctx<'_, S> {
    /// Returns whether the ACK of a WRITE proves neither that all observers see the data nor that later data follows
    /// it.
    #[inline(always)]
    pub(crate) fn has_early_acks(&self) -> bool {
        self.parts_ref().flags & ctx_flags::EARLY_ACKS != 0
    }

    /// Returns whether this PE may have a QP that does not deliver WRITEs in order.
    #[inline(always)]
    pub(crate) fn has_weak(&self) -> bool {
        let state = self.parts_ref().state.ptr::<DeviceState>();
        // SAFETY: the host made the state; a thread sets the word before others use the connection.
        unsafe { Gpu::load_relaxed(&raw const (*state).weak.word) != 0 }
    }

    /// Orders later WRITEs of this block to `pe` after earlier ones on the same QP.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn fence_queue(&self, pe: u32) -> Result {
        let qp = self.qp(pe);
        if qp.weakness() != 0 { self.order(qp.peer_entry(), FENCE) } else { Ok(()) }
    }

    /// Posts a read-back after all postings to the PE of `entry`, unless ACKs suffice. Once the read-back completes,
    /// all observers see the data of these postings.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn read_back(&self, entry: *mut QpEntry) -> Result {
        if self.has_early_acks() { self.order(entry, READ_BACK) } else { Ok(()) }
    }

    /// Posts the remedies in `wanted`, [`READ_BACK`] or [`FENCE`], after all postings to the PE of `entry`.
    #[inline(always)]
    #[track_caller]
    fn order(&self, entry: *mut QpEntry, wanted: u64) -> Result {
        if self.is_dc() {
            order_dc::<S>(CtxRef::of(self), entry, wanted)
        } else {
            order_slow::<S>(CtxRef::of(self), entry, wanted)
        }
    }

    /// Posts a read-back on each QP of this context to `pe`.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn read_back_all(&self, pe: u32) -> Result {
        let p = self.parts_ref();
        let mut mine = Ok(());
        let mut set = p.first_set;
        while set < p.first_set + p.n_sets {
            mine = mine.and(self.read_back(self.qp_entry(set, pe)));
            set += 1;
        }
        mine
    }
}

impl<S: Sharing> Qp<'_, S> {
    /// Returns the QP's flags among [`qp_flags::WEAK`], or 0 while it is unconnected.
    #[inline(always)]
    fn weakness(&self) -> u32 {
        if self.is_connected() { self.connection_flags() & qp_flags::WEAK } else { 0 }
    }

    /// Returns [`QpState::fenced`], or 0 if neither a fence nor a read-back has been recorded.
    #[inline(always)]
    fn mark(&self) -> u64 {
        // SAFETY: a word of the QP's state.
        unsafe { S::Scope::load_relaxed(self.word(offset_of!(QpState, fenced))) }
    }

    /// Sets [`QpState::fenced`]. If two threads race, the older mark may win, which costs nothing but a redundant
    /// remedy.
    #[inline(always)]
    fn set_mark(&self, mark: u64) {
        // SAFETY: a word of the QP's state.
        unsafe { S::Scope::store_relaxed(self.word(offset_of!(QpState, fenced)), mark) }
    }
}

/// Posts the operations in `wanted`, [`READ_BACK`] or [`FENCE`], to the QP of `entry`, unless they have been posted since
/// its last other WQE. One lane posts for all converged lanes.
#[inline(never)]
#[track_caller]
fn order_slow<S: Sharing>(ctx_ref: CtxRef, entry: *mut QpEntry, wanted: u64) -> Result {
    let (ctx, site) = (ctx_ref.ctx::<S>(), Location::caller());
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    let lanes = Lanes::of(Thread, &qp, 0, site);
    let mine = if lanes.is_first() { post_missing(&ctx, &qp, wanted, site) } else { Ok(()) };
    lanes.sync();
    if lanes.any(mine.is_err()) {
        mine?;
        return Err(qp.poisoned());
    }
    Ok(())
}

/// Posts a read-back after all postings of a DC initiator to the PE of `entry`. If `wanted` is [`FENCE`], also waits
/// for its completion, which orders everything posted later.
#[inline(never)]
#[track_caller]
fn order_dc<S: Sharing>(ctx_ref: CtxRef, entry: *mut QpEntry, wanted: u64) -> Result {
    let (ctx, site) = (ctx_ref.ctx::<S>(), Location::caller());
    // SAFETY: the caller has it from a DC initiator.
    let qp = unsafe { Qp::<S>::towards(entry) };
    // Nothing has been posted, so there is nothing to order.
    if qp.last().0 == 0 || !qp.is_connected() {
        return Ok(());
    }
    if qp.weakness() & qp_flags::UNORDERED != 0 {
        // The READ may pass WRITEs on this QP, so it must not be posted before they complete.
        qp.wait(qp.last(), site)?;
    }
    let (p, peer) = (ctx.parts_ref(), qp.peer());
    let here = (reserved::SINK, peer.strict_lkey);
    let complete = wanted == FENCE;
    let read = |there: (u64, u32)| {
        let transfer = NicTransfer { direction: Direction::Get, there, here, bytes: 1, complete };
        outcome(send::<Thread, S, true>(Thread, entry, site, transfer).0)
    };
    read((reserved::SINK, peer.strict_rkey))?;
    segment::for_each_end(p.segments, far_end(p, peer), read)
}

/// Posts those remedies in `wanted` that [`QpState::fenced`] does not record for the last posting.
#[inline(always)]
fn post_missing<S: Sharing>(ctx: &Ctx<'_, S>, qp: &Qp<'_, S>, wanted: u64, site: Site) -> Result {
    let (last, mark) = (qp.last().0, qp.mark());
    // Postings after the mark invalidate it.
    let mut has = if last > mark >> MARK_INDEX { 0 } else { mark & (READ_BACK | FENCE) };
    // An unconnected QP has no postings of this thread, and its weakness is not known yet.
    if last == 0 || !qp.is_connected() || has & wanted == wanted {
        return Ok(());
    }
    let (desc, p, weakness) = (qp.desc(), ctx.parts_ref(), qp.weakness());
    let (lkey, rkey) = (desc.strict_lkey, desc.strict_rkey);
    // Continue at the mark if it is still valid. Postings of other threads since then break the run.
    let mut run = Run { qp, site, end: if has == 0 { 0 } else { mark >> MARK_INDEX }, broken: false };
    let relaxed = weakness & qp_flags::RELAXED != 0;
    if has & READ_BACK == 0 && (relaxed || wanted & READ_BACK != 0) {
        let read = |(raddr, rkey): (u64, u32)| Wqe::Read { raddr, rkey, laddr: reserved::SINK, lkey, len: 1 };
        // A READ may pass WRITEs of an unordered QP. Strong ordering holds it back.
        let unordered = weakness & qp_flags::UNORDERED != 0;
        run.post(&read((reserved::SINK, rkey)), if unordered { Flags::STRONG_ORDER } else { Flags::NONE })?;
        // Other memory may use another PCIe path than the heap, on which nothing has been pushed yet.
        segment::for_each_end(p.segments, far_end(p, desc), |end| run.post(&read(end), Flags::NONE))?;
        // A relaxed WRITE passes a READ whose response is outstanding. Any other WRITE stays after whatever the READ
        // stayed after, so the read-back doubles as a fence.
        has = if relaxed { READ_BACK } else { READ_BACK | FENCE };
    }
    if wanted & FENCE != 0 && has & FENCE == 0 {
        run.post(&Wqe::Write { raddr: 0, rkey, laddr: 0, lkey, len: 0 }, Flags::STRONG_ORDER)?;
        has |= FENCE;
    }
    // If another thread has posted in between, its postings are covered by some of the remedies only.
    if !run.broken {
        qp.set_mark(run.end << MARK_INDEX | has);
    }
    Ok(())
}

/// A series of single-block WQEs that one thread posts to a QP.
struct Run<'a, 'b, S> {
    qp: &'a Qp<'b, S>,
    site: Site,
    /// Index one past the last WQE of the series, or 0 before the first.
    end: u64,
    /// Whether another thread has posted between WQEs of the series. They do not order its postings reliably.
    broken: bool,
}

impl<S: Sharing> Run<'_, '_, S> {
    #[inline(always)]
    fn post(&mut self, wqe: &Wqe, flags: Flags) -> Result {
        let posting = begin(self.qp, Lanes::ALONE, 1, self.site)?;
        posting.write(self.qp, posting.first, wqe, posting.last.or(flags));
        self.broken |= self.end != 0 && self.end != posting.first;
        self.end = posting.commit(self.qp).0;
        Ok(())
    }
}
