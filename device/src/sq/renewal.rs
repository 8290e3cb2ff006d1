//! Renewal of a queue pair whose peer was replaced by another process while kernels are running.
//!
//! The host stops the connection to the lost process and counts it in [`Handshake::renewed`], but leaves the words that kernels
//! update alone. Until a kernel requests the next connection, the queue is *stale*: what is posted to it is not executed, and
//! waits for it end with [`Error::PeerLost`]. The thread that learns that the PE is back ([`Ctx::is_lost`](crate::Ctx::is_lost))
//! renews the queue. It drops all blocks that were ever reserved, so the new connection starts after them and old indices
//! count as complete.
//!
//! Programs use no queue to a PE that they know to be lost (docs/membership.md), so no poster is in the middle of anything. Threads
//! that wait for other PEs may poll the queue at any time.
#![allow(
    unsafe_code,
    reason = "accesses the handshake and the state words of a QP, at addresses from the host"
)]

use core::mem::offset_of;

use super::connect::{request, wait_for_answer};
use super::failover::continue_at;
use super::{Qp, SendQueueState};
use crate::abi::{Handshake, QpEntry, QpState, answer};
use crate::arch::{Gpu, Scope, SysWord};
use crate::error::{Detail, Error, Result, Site};
use crate::sharing::Sharing;
use crate::wait::Watch;

impl<S: Sharing> Qp<'_, S> {
    /// Returns whether another process has replaced the peer since kernels last requested a connection. Reads host memory.
    #[inline(always)]
    pub(super) fn is_stale(&self) -> bool {
        if !self.can_fail_over() {
            return false;
        }
        let handshake = self.desc().handshake.ptr::<Handshake>();
        const { assert!(offset_of!(Handshake, seen) == offset_of!(Handshake, renewed) + 4) };
        // SAFETY: two adjacent words of the handshake, aligned to 8 bytes.
        let both = unsafe { <u64 as SysWord>::load_acquire((&raw const (*handshake).renewed).cast()) };
        both as u32 != (both >> 32) as u32
    }

    /// Poisons the QP, which is stale. Returns the error for those that wait for operations on it.
    #[cold]
    #[inline(always)]
    pub(super) fn stale(&self, site: Site) -> Error {
        self.poison(Error::PeerLost, Detail::NONE, site)
    }

    /// Connects a stale QP to the process that has replaced its peer. Does nothing to other QPs, and to those that were never
    /// used, which connect on demand.
    ///
    /// # Errors
    /// - The errors of [`wait_for_answer`]. The QP is then poisoned.
    #[inline(always)]
    pub(crate) fn renew(&self, site: Site) -> Result {
        if self.is_stale() { renew_slow::<S>(self.entry(), site) } else { Ok(()) }
    }

    /// Records that kernels know of the current process of the peer. A request must follow, or nothing may have been posted.
    #[inline(always)]
    pub(super) fn note_process(&self) {
        if self.can_fail_over() {
            let handshake = self.desc().handshake.ptr::<Handshake>();
            // SAFETY: words of the handshake.
            unsafe {
                let renewed = <u32 as SysWord>::load_acquire(&raw const (*handshake).renewed);
                // Whoever finds the queue renewed sees that it is not poisoned, and what is reserved.
                <u32 as SysWord>::store_release(&raw mut (*handshake).seen, renewed);
            }
        }
    }
}

#[cold]
#[inline(never)]
fn renew_slow<S: Sharing>(entry: *mut QpEntry, site: Site) -> Result {
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    let mut watch = Watch::needing(qp.desc().pe_state, qp.needs());
    while !qp.take_poller() {
        watch.turn()?;
    }
    // Another thread may have been faster.
    let outcome = if qp.is_stale() { restart(&qp, site) } else { Ok(()) };
    qp.free_poller();
    outcome
}

/// Drops everything that has been posted, and continues on a connection to the current process of the peer. The caller is the
/// poller.
#[inline(always)]
fn restart<S: Sharing>(qp: &Qp<'_, S>, site: Site) -> Result {
    let handshake = qp.desc().handshake.ptr::<Handshake>();
    let (requested, fetched) =
        (qp.word(offset_of!(QpState, connect_requested)), qp.word(offset_of!(QpState, connect_fetched)));
    // SAFETY: words of the QP's state and of the handshake.
    unsafe {
        if Gpu::load_relaxed(requested) == 0 {
            qp.note_process();
            return Ok(());
        }
        // From here on, this thread alone fetches the connection.
        Gpu::swap_acq_rel(fetched, 1);
        // Before blocks are abandoned: a poster that reserves one after them must wait for the connection, and not find the
        // queue broken. If this thread fails, it poisons the QP again.
        S::Scope::store_relaxed(qp.poison_word(), 0);
    }
    let done = qp.done();
    let resume = if S::SHARED {
        let closing = qp.word(offset_of!(QpState, closing));
        // SAFETY: a word of the QP's state, which only the poller updates.
        unsafe {
            // Odd if an earlier thread has failed to hand the queue over. It may still hold the doorbell.
            if S::Scope::load_relaxed(closing).is_multiple_of(2) {
                S::Scope::fetch_add_relaxed(closing, 1);
                let mut watch = Watch::needing(qp.desc().pe_state, qp.needs());
                while super::take_doorbell(qp).is_none() {
                    // Not `unanswered`, for which a stale queue is an error.
                    watch.turn_awake().map_err(|why| qp.poison(why, Detail::NONE, site))?;
                }
            }
        }
        super::abandon(qp, done, qp.depth())
    } else {
        super::first_of_queue(qp.reserved())
    };
    if done != 0 {
        qp.free_fetch_slots();
    }
    // SAFETY: words of the QP's state and of the handshake. The host reads the latter once `wanted` has changed.
    unsafe {
        S::Scope::store_relaxed(qp.word(offset_of!(QpState, batch_end)), 0);
        for field in [&raw mut (*handshake).done, &raw mut (*handshake).end, &raw mut (*handshake).resume] {
            <u64 as SysWord>::store_relaxed(field, resume);
        }
        <u64 as SysWord>::store_relaxed(&raw mut (*handshake).second_blocks, 0);
        <u32 as SysWord>::store_relaxed(&raw mut (*handshake).answer, answer::NONE);
        // A thread that did not know of the new process may have written it.
        <u32 as SysWord>::store_relaxed(&raw mut (*handshake).wanted, 0);
        qp.note_process();
        request(qp.desc(), handshake, 1);
    }
    wait_for_answer(qp, site).map(|()| continue_at(qp, resume, resume))
}
