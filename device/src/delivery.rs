//! Strong fences and read-backs: order that QP and ACK do not give by themselves.
//!
//! | cause | lacking order | remedy |
//! |---|---|---|
//! | adaptive routing ([`qp_flags::UNORDERED`]) | a WRITE after a WRITE of the same QP | a strong fence: an empty WRITE with fence mode 3 |
//! | several NICs, or NIC and P2P, at one heap ([`ctx_flags::EARLY_ACKS`]) | an access by another way after the ACK of a WRITE | a read-back: a READ of the written memory; its answer pushes the WRITEs of that NIC |
//!
//! Atomics need neither: they are ordered after earlier WRITEs of their QP, and execute after earlier writes of their NIC.
//! [`QpState::fenced`] is the end of the last strong fence or read-back, so that none follows another directly. A
//! read-back is a strong fence too.
#![allow(unsafe_code, reason = "finds QPs by entry, and updates their state words")]

use core::mem::offset_of;
use core::panic::Location;

use rushmem_mlx5::{Flags, Wqe};

use crate::abi::{DeviceState, QpEntry, QpState, ctx_flags, qp_flags, reserved};
use crate::arch::{Gpu, Scope};
use crate::ctx::{Ctx, CtxRef};
use crate::error::{Error, Result, Site};
use crate::group::Thread;
use crate::post::{Lanes, begin};
use crate::segment;
use crate::sharing::Sharing;
use crate::sq::Qp;

impl<S: Sharing> Ctx<'_, S> {
    /// Returns whether an ACK does not prove that data is visible to all observers.
    #[inline(always)]
    pub(crate) fn has_early_acks(&self) -> bool {
        self.parts_ref().flags & ctx_flags::EARLY_ACKS != 0
    }

    /// Returns whether a QP of this PE may deliver WRITEs out of order.
    #[inline(always)]
    pub(crate) fn has_unordered(&self) -> bool {
        let state = self.parts_ref().state.ptr::<DeviceState>();
        // SAFETY: the host made the state; a thread sets the word before others use the connection.
        unsafe { Gpu::load_relaxed(&raw const (*state).unordered.word) != 0 }
    }

    /// Orders later WRITEs of the QP that this block uses to `pe` after its earlier ones.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn fence_queue(&self, pe: u32) -> Result {
        let (qp, site) = (self.qp(pe), Location::caller());
        if !qp.is_unordered() {
            return Ok(());
        }
        post_once(&qp, site, || {
            let (lkey, rkey) = qp.keys();
            let fence = Wqe::Write { raddr: 0, rkey, laddr: 0, lkey, len: 0 };
            post_flagged(&qp, &fence, Flags::STRONG_ORDER, site)
        })
    }

    /// Posts a read-back behind all postings to `qp`, unless ACKs suffice. Its completion completes them for all observers.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn read_back(&self, qp: &Qp<'_, S>) -> Result {
        if self.has_early_acks() { read_back_slow::<S>(CtxRef::of(self), qp.entry()) } else { Ok(()) }
    }

    /// Posts a read-back to all QPs of this context to `pe`.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn read_back_all(&self, pe: u32) -> Result {
        let p = self.parts_ref();
        let mut mine = Ok(());
        let mut set = p.first_set;
        while set < p.first_set + p.n_sets {
            mine = mine.and(self.read_back(&self.qp_of_set(set, pe)));
            set += 1;
        }
        mine
    }
}

impl<S: Sharing> Qp<'_, S> {
    /// Returns whether WRITEs of the QP may land out of order. An unconnected QP has none.
    #[inline(always)]
    fn is_unordered(&self) -> bool {
        self.is_connected() && self.connection_flags() & qp_flags::UNORDERED != 0
    }

    /// Returns the end of the last strong fence or read-back; 0 if there is none.
    #[inline(always)]
    fn fenced(&self) -> u64 {
        // SAFETY: a word of the QP's state.
        unsafe { S::Scope::load_relaxed(self.word(offset_of!(QpState, fenced))) }
    }

    /// Records a posted strong fence or read-back. A thread with an older one may win. Then one more will be posted.
    #[inline(always)]
    fn set_fenced(&self, end: u64) {
        // SAFETY: a word of the QP's state.
        unsafe { S::Scope::store_relaxed(self.word(offset_of!(QpState, fenced)), end) }
    }
}

/// Posts a read-back behind all postings to the QP of `entry`.
#[inline(never)]
#[track_caller]
fn read_back_slow<S: Sharing>(ctx_ref: CtxRef, entry: *mut QpEntry) -> Result {
    let (ctx, site) = (ctx_ref.ctx::<S>(), Location::caller());
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    post_once(&qp, site, || {
        let (desc, p) = (qp.desc(), ctx.parts_ref());
        let read = |(raddr, rkey): (u64, u32)| {
            let (laddr, lkey) = (reserved::SINK, desc.lkey);
            Wqe::Read { raddr, rkey, laddr, lkey, len: 1 }
        };
        // A READ may pass WRITEs of an unordered QP.
        let first = if qp.is_unordered() { Flags::STRONG_ORDER } else { Flags::NONE };
        let mut last = post_flagged(&qp, &read((reserved::SINK, desc.rkey)), first, site)?;
        // Other memory may be behind another PCIe path than the heap.
        let end = p.rails + desc.peer * p.rails + desc.rail;
        segment::for_each_end(p.segments, end, |end| {
            last = post_flagged(&qp, &read(end), Flags::NONE, site)?;
            Ok(())
        })?;
        Ok(last)
    })
}

/// Calls `post`, which returns the end of its posting, if anything was posted since the last one. Of lanes that call at once,
/// the first posts for all.
#[inline(always)]
fn post_once<S: Sharing>(qp: &Qp<'_, S>, site: Site, post: impl FnOnce() -> Result<u64>) -> Result {
    let last = qp.last().0;
    let lanes = Lanes::of(Thread, qp, 0, site);
    let mut mine = Ok(());
    if lanes.is_first() && last > qp.fenced() {
        mine = post().map(|end| qp.set_fenced(end));
    }
    lanes.sync();
    if lanes.any(mine.is_err()) {
        mine?;
        return Err(Error::Poisoned);
    }
    Ok(())
}

/// Posts one WQE of one block with `flags`, and returns its end.
#[inline(always)]
fn post_flagged<S: Sharing>(qp: &Qp<'_, S>, wqe: &Wqe, flags: Flags, site: Site) -> Result<u64> {
    let posting = begin(qp, Lanes::ALONE, 1, site)?;
    posting.write(qp, posting.first, wqe, posting.last.or(flags));
    Ok(posting.commit(qp).0)
}
