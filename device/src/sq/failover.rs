//! Failover of a queue pair: when its connection fails, the poller hands the queue over to the host.
//!
//! ```text
//! poller                                          host
//!   closes the queue
//!   copies the blocks that may not be complete
//!   wanted += 1, requested = 1       ---------->  makes another connection, over another NIC if necessary
//!                                                 executes the blocks that the peer has not executed
//!   copies the connection, done = resume  <-----  connection, answer
//!   reopens the queue
//! ```
//!
//! Kernels keep building WQEs with the keys of the first NIC. On a queue that has [moved](qp_flags::MOVED), each poster
//! replaces them before it publishes, so it does not matter if a poster has loaded its keys before the move.
#![allow(
    unsafe_code,
    reason = "accesses the handshake, the state words and the WQEs of a QP, at addresses from the host"
)]

use core::mem::offset_of;

use rushmem_mlx5::wqe::KeyOffsets;
use rushmem_mlx5::{CtrlSeg, Segment};

use super::connect::{copy_connection, request, wait_for_answer};
use super::send_queue::{HAS_FAILOVER, SendQueueView};
use super::{Qp, SendQueueState};
use crate::abi::{
    Connection, DevAddr, Handshake, LostResult, MovedKey, QpEntry, QpState, answer, qp_flags, result_order,
};
use crate::arch::{self, Scope, SysWord};
use crate::error::{Error, Result, Site};
use crate::sharing::Sharing;
use crate::wait::Watch;

impl<S: Sharing> Qp<'_, S> {
    /// Returns whether the host replaces the QP's connection if it fails.
    #[inline(always)]
    pub(super) fn can_fail_over(&self) -> bool {
        HAS_FAILOVER && self.desc().flags & qp_flags::FAILOVER != 0
    }

    /// Marks that the caller's reservation `own`, which has room once `done` reaches `target`, waits for it, if a thread hands the
    /// queue over to the host and the caller has not done so yet; `marked` is the caller's note of that.
    #[inline(always)]
    pub(super) fn mark_if_closing(&self, own: u64, target: u64, marked: &mut u64) {
        if S::SHARED && own != 0 && self.can_fail_over() {
            // SAFETY: a word of the QP's state.
            let closing = unsafe { S::Scope::load_relaxed(self.word(offset_of!(QpState, closing))) };
            if !closing.is_multiple_of(2) && closing != *marked {
                *marked = closing;
                // From here on `done` stays as it is. An earlier value could hide that there is room.
                S::Scope::acquire();
                let done = self.done();
                if done < target {
                    super::mark_waiting(self, self.depth(), own, done);
                }
            }
        }
    }

    /// Rings the doorbell for all blocks before `end`, whoever wrote them. The caller holds the doorbell, and `queue` is its view,
    /// perhaps of an earlier connection.
    #[inline(always)]
    pub(super) fn ring_current(&self, queue: SendQueueView, end: u64) {
        let queue = if self.can_fail_over() { self.send_queue(queue.depth) } else { queue };
        queue.ring_doorbell(end);
    }

    /// Replaces the memory keys in the written blocks `first..end` of `queue`, if the QP has moved to another NIC.
    #[inline(always)]
    pub(super) fn move_keys(&self, queue: SendQueueView, first: u64, end: u64) {
        if queue.has_moved() {
            move_keys::<S>(self.entry(), first, end);
        }
    }

    /// Counts a WQE of two blocks, which the caller has written but not published.
    #[inline(always)]
    pub(super) fn count_second_block(&self) {
        if self.can_fail_over() {
            // SAFETY: a word of the QP's state.
            unsafe { S::Scope::fetch_add_relaxed(self.word(offset_of!(QpState, second_blocks)), 1) };
        }
    }

    /// Returns the address of block `index` in a ring of blocks.
    #[inline(always)]
    fn block(&self, ring: DevAddr, index: u64) -> DevAddr {
        ring.add((index & (self.depth() - 1)) * 64)
    }
}

/// Implements [`Qp::move_keys`]. Outlined, because it is rare.
#[cold]
#[inline(never)]
fn move_keys<S: Sharing>(entry: *mut QpEntry, first: u64, end: u64) {
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    let ring = qp.connected(offset_of!(Connection, sq));
    let mut at = first;
    while at < end {
        let block = qp.block(ring, at).ptr::<[u32; 4]>();
        // SAFETY: the poster has written the block, and nobody reads it before it is published.
        let (ctrl, third) = unsafe { (arch::load16(block), arch::load16(block.add(2))) };
        let ctrl = CtrlSeg::from_segment(Segment(ctrl));
        let keys = KeyOffsets::of(ctrl, Segment(third));
        for (is_remote, offset) in [(true, keys.remote), (false, keys.local)] {
            let Some(offset) = offset else { continue };
            let (block, offset) = (at + offset as u64 / 64, offset as u64 % 64);
            let key = qp.block(ring, block).add(offset).ptr::<u32>();
            // SAFETY: a word of the WQE, as above.
            unsafe { key.write(moved_key(&qp, is_remote, u32::from_be(key.read())).to_be()) }
        }
        at += u64::from(ctrl.ds()).div_ceil(4).max(1);
    }
}

/// Returns the lkey or rkey that replaces `key` on the current NIC of a QP.
#[inline(always)]
fn moved_key<S: Sharing>(qp: &Qp<'_, S>, is_remote: bool, key: u32) -> u32 {
    let first = offset_of!(Connection, keys) + if is_remote { 2 * size_of::<MovedKey>() } else { 0 };
    let pair = |i| qp.connected(first + i * size_of::<MovedKey>()).0;
    // A pair is one word: `from` in its low half.
    let (data, words) = (pair(0), pair(1));
    if data as u32 == key {
        (data >> 32) as u32
    } else if words as u32 == key {
        (words >> 32) as u32
    } else {
        key
    }
}

/// Hands a queue whose connection has failed over to the host, and continues on the next connection. The caller is the
/// poller, and gives that role up. `own` is the first block of the caller's reservation if it waits for room, and 0 if it waits
/// for completions.
///
/// # Errors
/// The errors of [`wait_for_answer`]. The QP is then poisoned.
#[inline(always)]
pub(super) fn fail_over<S: Sharing>(entry: *mut QpEntry, own: u64, site: Site) -> Result {
    // The compiler does not see that nobody calls this without failover.
    if HAS_FAILOVER { fail_over_slow::<S>(entry, own, site) } else { Err(Error::Poisoned) }
}

#[cold]
#[inline(never)]
fn fail_over_slow<S: Sharing>(entry: *mut QpEntry, own: u64, site: Site) -> Result {
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    if qp.is_poisoned() {
        // By the poller before, which could not hand the queue over either.
        qp.free_poller();
        return Err(qp.poisoned());
    }
    if qp.is_stale() {
        let error = qp.stale(site);
        qp.free_poller();
        return Err(error);
    }
    let (done, mut closed) = (qp.done(), None);
    let outcome = match take_blocks(&qp, own, done, &mut closed) {
        Ok((end, resume)) => {
            hand_over(&qp, done, end, resume);
            wait_for_answer(&qp, site).map(|()| continue_at(&qp, end, resume))
        }
        Err(why) => Err(qp.poison(why, qp.detail(done, done), site)),
    };
    if outcome.is_err()
        && let Some(closed) = closed
    {
        super::give_back(&qp, closed);
    }
    qp.free_poller();
    outcome
}

/// Continues on the connection with which the host has answered.
#[inline(always)]
pub(super) fn continue_at<S: Sharing>(qp: &Qp<'_, S>, end: u64, resume: u64) {
    // SAFETY: the host has answered, and nobody posts. Others read the connection only after they have seen `done`.
    unsafe {
        copy_connection(qp);
        let clear = |field| S::Scope::store_relaxed(qp.word(field), 0);
        clear(offset_of!(QpState, second_blocks));
        let completions =
            <u64 as SysWord>::load_relaxed(&raw const (*qp.desc().handshake.ptr::<Handshake>()).completions);
        S::Scope::store_relaxed(qp.word(offset_of!(QpState, cq_next)), completions);
        mark_lost_results(qp);
        if S::SHARED {
            super::unmark(qp, qp.depth(), end);
            S::Scope::fetch_add_relaxed(qp.word(offset_of!(QpState, closing)), 1);
            super::reopen(qp, resume);
        } else {
            // An open batch has been handed over.
            clear(offset_of!(QpState, batch_end));
            // A poster that waits for room keeps its reservation.
            let reserved = qp.reserved();
            if reserved < resume {
                qp.fetch_add_reserved(resume - reserved);
            }
        }
        S::Scope::store_release(qp.word(offset_of!(QpState, done)), resume);
    }
}

/// Closes the queue. Returns the index one past the last block that posters have published, and the index of the first block
/// that they will post to the next connection. Stores in `closed` what [`give_back`](super::give_back) needs.
#[inline(always)]
fn take_blocks<S: Sharing>(
    qp: &Qp<'_, S>,
    own: u64,
    done: u64,
    closed: &mut Option<super::Closed>,
) -> Result<(u64, u64)> {
    if !S::SHARED {
        // The only poster is here.
        if own != 0 {
            return Ok((own, own));
        }
        let end = qp.reserved();
        return Ok((end, super::first_of_queue(end) + (end - done)));
    }
    let mut watch = Watch::needing(qp.desc().pe_state, qp.needs());
    // SAFETY: a word of the QP's state.
    unsafe {
        // Whoever sees the odd number sees the last value of `done`.
        S::Scope::release();
        S::Scope::fetch_add_relaxed(qp.word(offset_of!(QpState, closing)), 1);
    }
    let mut end = loop {
        match super::take_doorbell(qp) {
            Some(announced) => break announced,
            None => watch.turn_awake()?,
        }
    };
    let closed = *closed.insert(super::close(qp, done, qp.depth()));
    if own != 0 {
        super::mark_waiting(qp, qp.depth(), own, done);
    }
    loop {
        let (published, is_all) = super::published(qp, qp.depth(), closed, end);
        end = published;
        if is_all {
            break;
        }
        watch.turn_awake()?;
    }
    // Acquires the blocks, whose ready entries were read by relaxed loads.
    S::Scope::fence();
    Ok((end, closed.resume(end)))
}

/// Copies the blocks `done..end` to host memory, and requests the next connection.
#[inline(always)]
fn hand_over<S: Sharing>(qp: &Qp<'_, S>, done: u64, end: u64, resume: u64) {
    let handshake = qp.desc().handshake.ptr::<Handshake>();
    let ring = qp.connected(offset_of!(Connection, sq));
    // SAFETY: the host made the handshake and the ring in it, and leaves both alone until it is asked.
    unsafe {
        let salvage = DevAddr(<u64 as SysWord>::load_relaxed((&raw const (*handshake).salvage).cast()));
        let mut at = done;
        while at < end {
            let (from, to) = (qp.block(ring, at).ptr::<[u32; 4]>(), qp.block(salvage, at).ptr::<[u32; 4]>());
            let mut k = 0;
            while k < 4 {
                arch::store16(to.add(k), arch::load16(from.add(k)));
                k += 1;
            }
            at += 1;
        }
        let second_blocks = S::Scope::load_relaxed(qp.word(offset_of!(QpState, second_blocks)));
        <u64 as SysWord>::store_relaxed(&raw mut (*handshake).done, done);
        <u64 as SysWord>::store_relaxed(&raw mut (*handshake).end, end);
        <u64 as SysWord>::store_relaxed(&raw mut (*handshake).resume, resume);
        <u64 as SysWord>::store_relaxed(&raw mut (*handshake).second_blocks, second_blocks);
        <u32 as SysWord>::store_relaxed(&raw mut (*handshake).answer, answer::NONE);
        let wanted = <u32 as SysWord>::load_relaxed(&raw const (*handshake).wanted) + 1;
        request(qp.desc(), handshake, wanted);
    }
}

/// Marks the results that the host reports as lost, before their operations count as complete.
///
/// # Safety
/// The host has answered, and nobody posts.
#[inline(always)]
unsafe fn mark_lost_results<S: Sharing>(qp: &Qp<'_, S>) {
    let handshake = qp.desc().handshake.ptr::<Handshake>();
    // SAFETY: words of the handshake and of the ring in it, and of this PE's heap.
    unsafe {
        let count = <u64 as SysWord>::load_relaxed(&raw const (*handshake).lost_results);
        let list =
            <u64 as SysWord>::load_relaxed((&raw const (*handshake).salvage).cast()) as *const LostResult;
        let mut i = 0;
        while i < count {
            let LostResult { block, order } = arch::read(list.add(i as usize));
            if order.0 == 0 {
                qp.lose_fetch_slot(block);
            } else {
                arch::write(order.ptr::<u32>(), result_order::LOST);
            }
            i += 1;
        }
    }
}
