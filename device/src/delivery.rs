//! Strong fences and read-backs: order that QP and ACK do not give by themselves.
//!
//! | cause | lacking order | remedy |
//! |---|---|---|
//! | adaptive routing ([`qp_flags::UNORDERED`]) | a WRITE after a WRITE of the same QP | a strong fence: an empty WRITE with fence mode 3 |
//! | relaxed keys ([`qp_flags::RELAXED`]) | a WRITE through such a key after a WRITE that is complete or not | a read-back and, in `fence`, a strong fence that waits for it |
//! | several NICs, or NIC and P2P, at one heap, or a NIC that refuses loopback ([`ctx_flags::EARLY_ACKS`]) | an access by another way after the ACK of a WRITE | a read-back: a READ of the written memory; its answer pushes the WRITEs of that NIC |
//!
//! Atomics need none of them: they are ordered after earlier WRITEs of their QP, and execute after earlier writes of their
//! NIC. That holds for writes through relaxed keys too, since atomics use strict keys: only a request that is itself relaxed
//! passes posted writes of PCIe.
//!
//! [`QpState::fenced`] is a *mark*: a block index, and bits for what follows all blocks before it. So no remedy follows another
//! directly.
#![allow(unsafe_code, reason = "finds QPs by entry, and updates their state words")]

use core::mem::offset_of;
use core::panic::Location;

use rushmem_mlx5::{Flags, Wqe};

use crate::abi::{DeviceState, QpEntry, QpState, ctx_flags, qp_flags, reserved};
use crate::arch::{Gpu, Scope};
use crate::ctx::{Ctx, CtxRef, far_end};
use crate::error::{Error, Result, Site, outcome};
use crate::group::Thread;
use crate::post::{Lanes, begin};
use crate::rma::{Direction, NicTransfer, send};
use crate::segment;
use crate::sharing::Sharing;
use crate::sq::Qp;

/// The bit of a mark for a read-back.
const READ_BACK: u64 = 1;
/// The bit of a mark for a strong fence.
const FENCE: u64 = 2;
/// Shift of the block index of a mark.
const MARK_INDEX: u32 = 2;

impl<S: Sharing> Ctx<'_, S> {
    /// Returns whether an ACK does not prove that data is visible to all observers, and stays before later data.
    #[inline(always)]
    pub(crate) fn has_early_acks(&self) -> bool {
        self.parts_ref().flags & ctx_flags::EARLY_ACKS != 0
    }

    /// Returns whether this PE may have a QP that delivers WRITEs out of order.
    #[inline(always)]
    pub(crate) fn has_weak(&self) -> bool {
        let state = self.parts_ref().state.ptr::<DeviceState>();
        // SAFETY: the host made the state; a thread sets the word before others use the connection.
        unsafe { Gpu::load_relaxed(&raw const (*state).weak.word) != 0 }
    }

    /// Orders later WRITEs of the QP that this block uses to `pe` after its earlier ones.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn fence_queue(&self, pe: u32) -> Result {
        let qp = self.qp(pe);
        if qp.weakness() != 0 { self.order(qp.peer_entry(), FENCE) } else { Ok(()) }
    }

    /// Posts a read-back behind all postings to the PE of `entry`, unless ACKs suffice. Its completion completes them for all
    /// observers.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn read_back(&self, entry: *mut QpEntry) -> Result {
        if self.has_early_acks() { self.order(entry, READ_BACK) } else { Ok(()) }
    }

    /// Posts the remedies of `wanted` behind all postings to the PE of `entry`.
    #[inline(always)]
    #[track_caller]
    fn order(&self, entry: *mut QpEntry, wanted: u64) -> Result {
        if self.is_dc() {
            order_dc::<S>(CtxRef::of(self), entry, wanted)
        } else {
            order_slow::<S>(CtxRef::of(self), entry, wanted)
        }
    }

    /// Posts a read-back to all QPs of this context to `pe`.
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
    /// Returns the flags of [`qp_flags::WEAK`] that the QP has. An unconnected QP has none.
    #[inline(always)]
    fn weakness(&self) -> u32 {
        if self.is_connected() { self.connection_flags() & qp_flags::WEAK } else { 0 }
    }

    /// Returns the mark; 0 if nothing was recorded.
    #[inline(always)]
    fn mark(&self) -> u64 {
        // SAFETY: a word of the QP's state.
        unsafe { S::Scope::load_relaxed(self.word(offset_of!(QpState, fenced))) }
    }

    /// Records a mark. A thread with an older one may win. Then its remedies will be posted once more.
    #[inline(always)]
    fn set_mark(&self, mark: u64) {
        // SAFETY: a word of the QP's state.
        unsafe { S::Scope::store_relaxed(self.word(offset_of!(QpState, fenced)), mark) }
    }
}

/// Posts the remedies of `wanted` behind all postings to the QP of `entry`, unless they are there. Of lanes that call at
/// once, the first posts for all.
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
        return Err(Error::Poisoned);
    }
    Ok(())
}

/// Posts a read-back behind all postings of a DC initiator to the PE of `entry`. A [`FENCE`] waits for it too, which orders
/// all that follows.
#[inline(never)]
#[track_caller]
fn order_dc<S: Sharing>(ctx_ref: CtxRef, entry: *mut QpEntry, wanted: u64) -> Result {
    let (ctx, site) = (ctx_ref.ctx::<S>(), Location::caller());
    // SAFETY: the caller has it from a DC initiator.
    let qp = unsafe { Qp::<S>::towards(entry) };
    if qp.last().0 == 0 || !qp.is_connected() {
        return Ok(());
    }
    if qp.weakness() & qp_flags::UNORDERED != 0 {
        // The READ may pass WRITEs.
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

/// Posts the remedies of `wanted` that the mark lacks.
#[inline(always)]
fn post_missing<S: Sharing>(ctx: &Ctx<'_, S>, qp: &Qp<'_, S>, wanted: u64, site: Site) -> Result {
    let (last, mark) = (qp.last().0, qp.mark());
    let mut has = if last > mark >> MARK_INDEX { 0 } else { mark & (READ_BACK | FENCE) };
    // This thread has posted nothing to an unconnected QP, and the weakness of the QP is not known yet.
    if last == 0 || !qp.is_connected() || has & wanted == wanted {
        return Ok(());
    }
    let (desc, p, weakness) = (qp.desc(), ctx.parts_ref(), qp.weakness());
    let (lkey, rkey) = (desc.strict_lkey, desc.strict_rkey);
    let mut run = Run { qp, site, end: if has == 0 { 0 } else { mark >> MARK_INDEX }, broken: false };
    let relaxed = weakness & qp_flags::RELAXED != 0;
    if has & READ_BACK == 0 && (relaxed || wanted & READ_BACK != 0) {
        let read = |(raddr, rkey): (u64, u32)| Wqe::Read { raddr, rkey, laddr: reserved::SINK, lkey, len: 1 };
        // A READ may pass WRITEs of an unordered QP.
        let unordered = weakness & qp_flags::UNORDERED != 0;
        run.post(&read((reserved::SINK, rkey)), if unordered { Flags::STRONG_ORDER } else { Flags::NONE })?;
        // Other memory may be behind another PCIe path than the heap.
        segment::for_each_end(p.segments, far_end(p, desc), |end| run.post(&read(end), Flags::NONE))?;
        // A relaxed WRITE passes a READ that has no answer yet. Any other stays behind what the READ was behind.
        has = if relaxed { READ_BACK } else { READ_BACK | FENCE };
    }
    if wanted & FENCE != 0 && has & FENCE == 0 {
        run.post(&Wqe::Write { raddr: 0, rkey, laddr: 0, lkey, len: 0 }, Flags::STRONG_ORDER)?;
        has |= FENCE;
    }
    if !run.broken {
        qp.set_mark(run.end << MARK_INDEX | has);
    }
    Ok(())
}

/// WQEs of one block that a thread posts one after another.
struct Run<'a, 'b, S> {
    qp: &'a Qp<'b, S>,
    site: Site,
    /// The end of the last one; 0 before the first.
    end: u64,
    /// Whether another thread has posted in between. Nothing is known about the order of its posting.
    broken: bool,
}

impl<S: Sharing> Run<'_, '_, S> {
    /// Posts a WQE with `flags`.
    #[inline(always)]
    fn post(&mut self, wqe: &Wqe, flags: Flags) -> Result {
        let posting = begin(self.qp, Lanes::ALONE, 1, self.site)?;
        posting.write(self.qp, posting.first, wqe, posting.last.or(flags));
        self.broken |= self.end != 0 && self.end != posting.first;
        self.end = posting.commit(self.qp).0;
        Ok(())
    }
}
