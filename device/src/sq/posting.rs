//! Postings to a queue pair: the send-queue protocol, applied to the memory of a QP.
#![allow(unsafe_code, reason = "accesses the state words of a QP, at addresses from the host")]

use core::mem::offset_of;

use super::completion::wait_slow;
use super::qp::{EndIndex, Qp};
use super::send_queue::SendQueueView;
use super::state::{DoorbellState, ReadyEntry, SendQueueState};
use crate::abi::{Connection, FIRST_BLOCK, QpEntry, QpState};
use crate::arch::{self, Scope};
use crate::error::{Result, Site};
use crate::sharing::Sharing;

/// Blocks `first..end` of a send queue, for their poster to write and publish.
#[derive(Clone, Copy)]
pub(crate) struct Reservation {
    pub(crate) first: u64,
    pub(crate) end: u64,
    /// Whether the doorbell was idle at `first`, so the poster may try [`ring_uncontended`](super::ring_uncontended).
    pub(crate) uncontended: bool,
}

impl Reservation {
    #[inline(always)]
    pub(crate) fn end_index(self) -> EndIndex {
        EndIndex(self.end)
    }
}

impl<S: Sharing> Qp<'_, S> {
    /// Reserves `blocks` blocks, at most `depth`, and waits until they may be written. Connects the QP if necessary,
    /// because an unconnected queue appears full.
    #[inline(always)]
    pub(crate) fn reserve(&self, blocks: u64, depth: u64, site: Site) -> Result<Reservation> {
        // All three accesses are issued before the first result is needed. `done` is a gate: the connection is read,
        // and slots are overwritten, only after the branch on it. A stale value is harmless, because `wait_slow` reads
        // it again.
        let done = self.word(offset_of!(QpState, done));
        // SAFETY: a word of the QP's state.
        let done = unsafe { if S::SHARED { S::Scope::load_gate(done) } else { arch::load_own(done) } };
        // Loaded before the add. If it is idle at `first`, all earlier blocks have been announced.
        let seen = if S::SHARED && !S::BATCHED { self.doorbell() } else { DoorbellState::UNKNOWN };
        let (first, end) = super::reserve(self, blocks);
        let writable_at = super::writable_at(end, depth);
        if done < writable_at {
            wait_slow::<S>(self.entry(), writable_at, first, site)?;
        }
        Ok(Reservation { first, end, uncontended: seen.is_idle_at(first) })
    }

    /// Publishes a written reservation, and announces it to the NIC unless `S` is batched. `send_queue` is called only
    /// if the view is needed.
    #[inline(always)]
    pub(crate) fn publish(&self, r: Reservation, send_queue: impl FnOnce() -> SendQueueView) {
        if S::BATCHED {
            self.move_keys(send_queue(), r.first, r.end);
            if S::SHARED {
                super::publish(self, self.depth(), r.first, r.end);
            }
            // Every thread that waits on this QP announces an open batch first, up to here.
            // SAFETY: a word of the QP's state.
            unsafe { S::Scope::store_release(self.batch_end(), r.end) }
        } else if S::SHARED {
            if !r.uncontended {
                publish_and_announce::<S>(self.entry(), r.first, r.end);
            } else if !super::ring_uncontended(self, r.first, r.end, |_| self.ring_own(send_queue(), r)) {
                ring_contended::<S>(self.entry(), r.first, r.end);
            }
        } else {
            // An exclusive queue needs no ready entries. The doorbell moves past every earlier block, so it announces
            // an open batch too.
            // SAFETY: a word of the QP's state.
            unsafe { S::Scope::store_relaxed(self.batch_end(), 0) };
            self.ring_own(send_queue(), r);
        }
    }

    /// Rings the doorbell for the blocks of `r`, written by this thread or by lanes synchronised with it, and for all earlier
    /// ones.
    #[inline(always)]
    fn ring_own(&self, send_queue: SendQueueView, r: Reservation) {
        if send_queue.is_plain() {
            // The common configuration, inlined.
            send_queue.ring_own_doorbell(r.end)
        } else if !S::SHARED && send_queue.is_plain_and_late() {
            // Kernels with shared queues are large already; they call the outlined version instead.
            send_queue.ring_own_doorbell(r.end)
        } else {
            ring_own_slow::<S>(self.entry(), r.first, r.end)
        }
    }

    /// Announces the published postings of an open batch to the NIC. Every wait for WQEs calls it first; otherwise it
    /// could wait for WQEs that the NIC has never seen.
    #[inline(always)]
    pub(crate) fn announce_batch(&self) {
        // SAFETY: a word of the QP's state.
        if unsafe { S::Scope::load_relaxed(self.batch_end()) } != 0 {
            announce_batch_slow::<S>(self.entry());
        }
    }

    /// Returns the index one past the last reserved block, or 0 if no block has been reserved. A wait for 0 returns
    /// without connecting the QP.
    #[inline(always)]
    pub(crate) fn last(&self) -> EndIndex {
        // A QP on which nothing has been reserved may be unconnected. A wait for 0 returns immediately.
        let end = self.reserved();
        EndIndex(if end == FIRST_BLOCK { 0 } else { end })
    }

    #[inline(always)]
    fn doorbell_word(&self) -> *mut u64 {
        self.word(offset_of!(QpState, doorbell))
    }

    #[inline(always)]
    fn batch_end(&self) -> *mut u64 {
        self.word(offset_of!(QpState, batch_end))
    }

    #[inline(always)]
    fn ready_entries(&self) -> *mut u64 {
        self.connected(offset_of!(Connection, ready)).ptr()
    }
}

impl<S: Sharing> SendQueueState for Qp<'_, S> {
    #[inline(always)]
    fn fetch_add_reserved(&self, blocks: u64) -> u64 {
        let p = self.word(offset_of!(QpState, reserved));
        // SAFETY: a word of the QP's state. If the QP is not shared, this thread alone uses it.
        unsafe {
            if S::SHARED {
                S::Scope::fetch_add_relaxed(p, blocks)
            } else {
                // There is only one poster, so no atomic is needed.
                let first = arch::load_own(p);
                arch::store_own(p, first + blocks);
                first
            }
        }
    }

    #[inline(always)]
    fn reserved(&self) -> u64 {
        // SAFETY: a word of the QP's state.
        unsafe { S::Scope::load_relaxed(self.word(offset_of!(QpState, reserved))) }
    }

    #[inline(always)]
    fn compare_swap_reserved(&self, from: u64, to: u64) -> u64 {
        // SAFETY: a word of the QP's state.
        unsafe { S::Scope::compare_swap_release(self.word(offset_of!(QpState, reserved)), from, to) }
    }

    #[inline(always)]
    fn ready_entry(&self, slot: u64) -> ReadyEntry {
        // SAFETY: there is an entry for each slot.
        ReadyEntry(unsafe { S::Scope::load_relaxed(self.ready_entries().add(slot as usize)) })
    }

    #[inline(always)]
    fn set_ready_entry(&self, slot: u64, entry: ReadyEntry) {
        // SAFETY: there is an entry for each slot.
        unsafe { S::Scope::store_release(self.ready_entries().add(slot as usize), entry.0) }
    }

    #[inline(always)]
    fn doorbell(&self) -> DoorbellState {
        // SAFETY: a word of the QP's state.
        DoorbellState(unsafe { S::Scope::load_relaxed(self.doorbell_word()) })
    }

    #[inline(always)]
    fn set_pending(&self) -> DoorbellState {
        // SAFETY: a word of the QP's state.
        DoorbellState(unsafe {
            S::Scope::fetch_or_release(self.doorbell_word(), DoorbellState::HELD_PENDING)
        })
    }

    #[inline(always)]
    fn take_pending(&self, held: DoorbellState) -> DoorbellState {
        // SAFETY: a word of the QP's state.
        DoorbellState(unsafe { S::Scope::swap_acquire(self.doorbell_word(), held.0) })
    }

    #[inline(always)]
    fn compare_swap_doorbell(&self, from: DoorbellState, to: DoorbellState) -> DoorbellState {
        // SAFETY: a word of the QP's state.
        DoorbellState(unsafe { S::Scope::compare_swap_release(self.doorbell_word(), from.0, to.0) })
    }
}

/// Publishes blocks `first..end`, and announces them to the NIC unless another thread holds the doorbell. Outlined,
/// because a rare step of posting must not cost every kernel registers.
#[inline(never)]
fn publish_and_announce<S: Sharing>(entry: *mut QpEntry, first: u64, end: u64) {
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    let queue = qp.send_queue(qp.depth());
    qp.move_keys(queue, first, end);
    super::publish_and_announce(&qp, queue.depth, first, end, |end| qp.ring_current(queue, end));
}

#[inline(never)]
fn ring_contended<S: Sharing>(entry: *mut QpEntry, first: u64, end: u64) {
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    let queue = qp.send_queue(qp.depth());
    super::ring_contended(&qp, queue.depth, first, end, |end| qp.ring_current(queue, end));
}

/// Rings the doorbell for all blocks before `end`, of which `first..end` are the caller's, in any configuration of the queue.
/// Outlined, because it is rare.
#[inline(never)]
fn ring_own_slow<S: Sharing>(entry: *mut QpEntry, first: u64, end: u64) {
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    let queue = qp.send_queue(qp.depth());
    qp.move_keys(queue, first, end);
    queue.ring_own_doorbell(end);
}

#[inline(never)]
fn announce_batch_slow<S: Sharing>(entry: *mut QpEntry) {
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    // Several threads may find the batch open; the one that takes the word announces it.
    // SAFETY: a word of the QP's state.
    let end = unsafe { S::Scope::swap_acq_rel(qp.batch_end(), 0) };
    if end == 0 {
        return;
    }
    let queue = qp.send_queue(qp.depth());
    if S::SHARED {
        super::announce(&qp, queue.depth, |end| qp.ring_current(queue, end));
    } else {
        queue.ring_own_doorbell(end);
    }
}
