//! Completion of WQEs: polls the CQ, waits and tests for completed blocks, handles error CQEs, and poisons QPs.
//!
//! Many threads may wait on one QP. One of them, the poller, reads the CQ, which may be in host memory. The others read
//! `done`, which the poller advances. An error poisons the QP: the first thread to see it writes the record, all others
//! return [`Error::Poisoned`].
#![allow(unsafe_code, reason = "reads CQEs and updates the state words of a QP, at addresses from the host")]

use core::mem::offset_of;

use rushmem_mlx5::{CqeOpcode, CqeWord, Opcode, Syndrome};

use super::connect::connect;
use super::failover::fail_over;
use super::qp::HAS_DC;
use super::reserve::completed;
use super::send_queue::DC_BLOCKS;
use super::{EndIndex, Qp};
use crate::abi::{Connection, DevAddr, FIRST_BLOCK, QpEntry, QpState, qp_flags};
use crate::arch::{self, Scope, Sys};
use crate::error::{Completion, Detail, Error, Result, Site, outcome};
use crate::sharing::Sharing;
use crate::wait::{Watch, test_failed};

impl<S: Sharing> Qp<'_, S> {
    /// Waits until all blocks before `end` have completed.
    ///
    /// # Errors
    /// - [`Error::Completion`]: this thread found the error CQE that broke the QP.
    /// - [`Error::Poisoned`]: the QP was broken already.
    /// - [`Error::PeerLost`]: the peer was lost. Returned once for the blocks before `end`.
    /// - [`Error::Timeout`], [`Error::Aborted`], [`Error::Unconnected`].
    #[inline(always)]
    pub(crate) fn wait(&self, end: EndIndex, site: Site) -> Result {
        if self.done() >= end.0 { Ok(()) } else { wait_slow::<S>(self.entry(), end.0, 0, site) }
    }

    /// Waits like [`Qp::wait`], but inlined, for callers that are outlined themselves. Saves a call, and with it
    /// registers.
    ///
    /// # Errors
    /// - The errors of [`Qp::wait`].
    #[inline(always)]
    pub(crate) fn wait_here(&self, end: EndIndex, site: Site) -> Result {
        if self.done() >= end.0 { Ok(()) } else { wait_loop::<S>(self.entry(), end.0, 0, site) }
    }

    /// Returns whether all blocks before `end` have completed, without waiting.
    ///
    /// # Errors
    /// - [`Error::Completion`]: this thread found the error CQE that broke the QP.
    /// - [`Error::Poisoned`]: the QP was broken already.
    #[inline(always)]
    pub(crate) fn test(&self, end: EndIndex, site: Site) -> Result<bool> {
        if self.done() >= end.0 { Ok(true) } else { test_slow::<S>(self.entry(), end.0, site) }
    }

    /// Returns whether the connection is established and visible to this thread.
    #[inline(always)]
    pub(crate) fn is_connected(&self) -> bool {
        self.done() >= FIRST_BLOCK
    }

    #[inline(always)]
    pub(super) fn done(&self) -> u64 {
        // SAFETY: a word of the QP's state.
        unsafe { S::Scope::load_acquire(self.word(offset_of!(QpState, done))) }
    }

    /// Tries to become the poller. The load keeps waiting threads from hammering the word with swaps.
    #[inline(always)]
    pub(super) fn take_poller(&self) -> bool {
        let word = self.word(offset_of!(QpState, poller));
        // SAFETY: a word of the QP's state.
        !S::SHARED || unsafe { S::Scope::load_relaxed(word) == 0 && S::Scope::swap_acq_rel(word, 1) == 0 }
    }

    #[inline(always)]
    pub(super) fn free_poller(&self) {
        if S::SHARED {
            // SAFETY: a word of the QP's state, taken by this thread.
            unsafe { S::Scope::store_release(self.word(offset_of!(QpState, poller)), 0) }
        }
    }

    /// Returns the number of blocks of the WQE that a CQE completes: 1, except for 64-bit masked compare-and-swap and
    /// for WQEs with an address vector.
    ///
    /// The CQE does not say whether a masked operation was 64 bits wide, so this reads the WQE back from its slot. The
    /// CQE of a collapsed CQ may be stale and the slot reused; it may even hold the second half of another WQE. The
    /// slot therefore counts only if it names this index and this opcode. If it does not, `done` has passed the WQE
    /// already, and any small number is right. (A second half starts with a byte count of 8, which is not the opcode of
    /// an atomic.)
    #[inline(always)]
    fn blocks_of(&self, word: CqeWord) -> u16 {
        if HAS_DC && self.desc().flags & qp_flags::DC != 0 {
            return DC_BLOCKS as u16;
        }
        if word.opcode() != Opcode::ATOMIC_MASKED_CS {
            return 1;
        }
        let slot = word.wqe_counter() as u64 & (self.depth() - 1);
        // SAFETY: a slot of the queue.
        let ctrl: u64 =
            unsafe { Sys::load_relaxed(self.connected(offset_of!(Connection, sq)).add(slot * 64).ptr()) };
        let [_, high, low, opcode, _, _, _, ds] = ctrl.to_le_bytes();
        let still_there =
            opcode == Opcode::ATOMIC_MASKED_CS.0 && u16::from_be_bytes([high, low]) == word.wqe_counter();
        if still_there && ds & 0x3f > 4 { 2 } else { 1 }
    }

    /// Handles the error CQE at `entry`. Unless the connection can be replaced, poisons the QP, and records the error unless
    /// another thread has.
    #[cold]
    #[inline(always)]
    fn failed(&self, entry: DevAddr, word: CqeWord, site: Site) -> Stop {
        // Written before the word that was polled, whose load acquired it.
        // SAFETY: the entry is written, and stays while the QP is in error.
        let syndromes = unsafe { Sys::load_relaxed(entry.add(48).ptr()) };
        let [_, _, _, _, _, _, vendor, syndrome] = syndromes.to_le_bytes();
        let completion = Completion { wqe: word.wqe_counter(), opcode: word.opcode().0, syndrome, vendor };
        let detail = Detail { completion: completion.packed(), ..self.detail(FIRST_BLOCK, FIRST_BLOCK) };
        // The NIC may notice before the kernel does that the peer is gone.
        let is_lost = self.needs().is_lost(self.desc().pe_state);
        if !is_lost && self.can_fail_over() && Syndrome(syndrome).is_connection_failure() {
            return Stop::Connection;
        }
        Stop::Error(self.poison(if is_lost { Error::PeerLost } else { Error::Completion }, detail, site))
    }

    /// Polls the CQ if there are blocks to complete and no other thread polls it, for a thread that waits for something else.
    #[inline(always)]
    pub(crate) fn tend(&self, site: Site) {
        let (done, end) = (self.done(), super::SendQueueState::reserved(self));
        if done < FIRST_BLOCK || done >= end || self.is_poisoned() || !self.take_poller() {
            return;
        }
        match Poller::new(self).poll(end, site) {
            // Whoever uses the queue next learns of an error, as from `poll`.
            Err(Stop::Connection) => drop(fail_over::<S>(self.entry(), 0, site)),
            _ => self.free_poller(),
        }
    }

    #[inline(always)]
    pub(super) fn is_poisoned(&self) -> bool {
        // SAFETY: a word of the QP's state.
        unsafe { S::Scope::load_relaxed(self.poison_word()) != 0 }
    }
}

/// The completion queue as seen by its poller. It caches words that no other thread changes, so a poll that finds no
/// new CQE costs one load from the memory of the CQ.
struct Poller<'q, 'a, S> {
    qp: &'q Qp<'a, S>,
    /// Depth minus 1, or 0 for a collapsed CQ, in which the NIC overwrites entry 0 with each CQE.
    mask: u32,
    /// Index one past the last block known to be complete.
    done: u64,
    /// Low 32 bits of the number of consumed CQEs; 0 for a collapsed CQ.
    next: u32,
}

/// Why polling has stopped.
enum Stop {
    Error(Error),
    /// The connection has failed. The caller leaves its loop before it calls [`fail_over`], because every value that lives
    /// across a call costs registers.
    Connection,
}

impl From<Error> for Stop {
    #[inline(always)]
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl<'q, 'a, S: Sharing> Poller<'q, 'a, S> {
    /// Reads the state of the completion queue. May only be called by the thread that has become the poller.
    #[inline(always)]
    fn new(qp: &'q Qp<'a, S>) -> Self {
        let collapsed = qp.desc().flags & qp_flags::COLLAPSED != 0;
        // SAFETY: a word of the QP's state, which stays 0 with a collapsed CQ.
        let next = unsafe { S::Scope::load_relaxed(qp.word(offset_of!(QpState, cq_next))) } as u32;
        Self { qp, mask: if collapsed { 0 } else { qp.depth() as u32 - 1 }, done: qp.done(), next }
    }

    /// Polls until all blocks before `target` have completed, or there is no new CQE. Returns whether they have.
    ///
    /// # Errors
    /// - [`Error::Completion`], [`Error::Poisoned`]: found an error CQE.
    #[inline(always)]
    fn poll(&mut self, target: u64, site: Site) -> core::result::Result<bool, Stop> {
        while self.done < target {
            // Skipping costs a round of loads, which does not pay off for a few blocks.
            if self.mask != 0 && target - self.done > 8 {
                self.next = self.next.wrapping_add(self.skippable());
            }
            if !self.take(site)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Polls like [`Poller::poll`], at most [`POLLS_PER_ROUND`] times. The caller makes all rare checks between two
    /// such rounds, when the registers of this loop are free.
    #[inline(always)]
    fn poll_for_a_while(&mut self, target: u64, site: Site) -> core::result::Result<bool, Stop> {
        let mut left = POLLS_PER_ROUND;
        loop {
            if self.poll(target, site)? {
                return Ok(true);
            }
            left -= 1;
            if left == 0 {
                return Ok(false);
            }
            // A moment for the NIC to write the next CQE.
            arch::spin();
        }
    }

    /// Consumes the next CQE. Returns `false` if there is no new one.
    #[inline(always)]
    fn take(&mut self, site: Site) -> core::result::Result<bool, Stop> {
        let entry = self.cqe(self.next);
        // SAFETY: an entry of the CQ. The NIC writes its last 8 bytes at once, after the rest.
        let word = CqeWord(unsafe { Sys::load_acquire(entry.add(CqeWord::OFFSET as u64).ptr()) });
        let (kind, collapsed) = (word.op_own(), self.mask == 0);
        // Entry 0 of a collapsed CQ is valid from the first CQE on; `completed` recognises a stale one.
        let fresh = if collapsed {
            kind.opcode() != CqeOpcode::INVALID
        } else {
            kind.is_ready(self.next, self.mask + 1)
        };
        if !fresh {
            return Ok(false);
        }
        if kind.opcode() != CqeOpcode::REQ {
            return Err(self.qp.failed(entry, word, site));
        }
        // The CQE names the first block of the WQE, but `done` must pass its last one.
        let end = word.wqe_counter().wrapping_add(self.qp.blocks_of(word));
        let advanced = completed(self.done, end, self.qp.depth());
        // SAFETY: words of the QP's state that only the poller writes.
        unsafe {
            if !collapsed {
                // Relaxed: the next poller sees it through the release of `poller`.
                self.next = self.next.wrapping_add(1);
                S::Scope::store_relaxed(self.qp.word(offset_of!(QpState, cq_next)), self.next as u64);
            }
            // Release: a thread that sees `done` may read what the NIC wrote for these WQEs.
            if let Some(now) = advanced {
                self.done = now;
                S::Scope::store_release(self.qp.word(offset_of!(QpState, done)), now);
            }
        }
        // A collapsed CQ always holds its last CQE, which stays stale until the next completion.
        Ok(advanced.is_some() || !collapsed)
    }

    #[inline(always)]
    fn cqe(&self, index: u32) -> DevAddr {
        self.qp.connected(offset_of!(Connection, cq)).add((index & self.mask) as u64 * 64)
    }

    /// Returns the number of CQEs that may be skipped because a later one has arrived.
    ///
    /// A CQE completes all earlier WQEs. After an error CQE, all later ones are errors too, so a success has no error
    /// before it. The three loads are in flight together, because reading a CQ in host memory takes a microsecond.
    /// During the first lap, entries that were never written may pass for new ones, so nothing is skipped; the same
    /// holds for the lap in which `next` wraps.
    #[inline(always)]
    fn skippable(&self) -> u32 {
        let (next, depth) = (self.next, self.mask + 1);
        if next < depth {
            return 0;
        }
        let is_there = |ahead: u32| {
            let index = next.wrapping_add(ahead);
            // SAFETY: a word of an entry of the CQ.
            let word = unsafe { Sys::load_relaxed(self.cqe(index).add(CqeWord::OFFSET as u64).ptr()) };
            let kind = CqeWord(word).op_own();
            ahead < depth && kind.is_ready(index, depth) && kind.opcode() == CqeOpcode::REQ
        };
        match (is_there(2), is_there(8), is_there(32)) {
            (_, _, true) => 32,
            (_, true, _) => 8,
            (true, ..) => 2,
            _ => 0,
        }
    }
}

/// Minimum time a NIC takes to execute a block, in nanoseconds.
const BLOCK_NS: u32 = 16;

/// Number of polls between two checks for poison, open batches and the deadline.
const POLLS_PER_ROUND: u32 = 64;

/// Maximum time for which a GPU thread can be suspended, in nanoseconds.
const LONGEST_REST_NS: u32 = 1_000_000;

/// Waits until the `done` index of the QP reaches `target`. `own` is the caller's reservation if it waits for room, and 0 if
/// it waits for completions, for which a loss is an error only once. Outlined, because it would cost every kernel registers
/// if inlined.
#[inline(never)]
pub(super) fn wait_slow<S: Sharing>(entry: *mut QpEntry, target: u64, own: u64, site: Site) -> Result {
    wait_loop::<S>(entry, target, own, site)
}

/// Waits like [`wait_slow`], but inlined, for callers that are outlined themselves.
#[inline(always)]
fn wait_loop<S: Sharing>(entry: *mut QpEntry, target: u64, own: u64, site: Site) -> Result {
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    let outcome = loop {
        break match wait_turns(&qp, target, own, site) {
            Ok(()) => Ok(()),
            Err(Stop::Error(error)) => Err(error),
            Err(Stop::Connection) => match fail_over::<S>(entry, own, site) {
                Ok(()) => continue,
                failed => failed,
            },
        };
    };
    match outcome {
        // Blocks that will never complete end one wait for their completion, but not the waits for room in the queue.
        Err(Error::PeerLost) if own == 0 && qp.has_reported(target) => Ok(()),
        outcome => outcome,
    }
}

#[inline(always)]
fn wait_turns<S: Sharing>(
    qp: &Qp<'_, S>,
    target: u64,
    own: u64,
    site: Site,
) -> core::result::Result<(), Stop> {
    let entry = qp.entry();
    // Nothing can complete before the QP is connected. One that has failed to connect never will be.
    if qp.done() < FIRST_BLOCK && !qp.is_poisoned() {
        connect::<S>(entry, site)?;
    }
    let mut watch = Watch::needing(qp.desc().pe_state, qp.needs());
    let (mut turns, mut marked) = (0u32, 0);
    // A waiting thread rests for this long per outstanding block: thousands of polling threads would slow down the
    // poller and the service kernel. The time grows by an eighth per turn, until it matches the speed of the NIC.
    let mut block_ns = BLOCK_NS;
    loop {
        if qp.is_poisoned() {
            // The thread that poisoned the QP has recorded the cause.
            return Err(qp.poisoned().into());
        }
        if turns.is_multiple_of(POLLS_PER_ROUND) {
            qp.announce_batch(); // what fills the queue may be another thread's open batch
        }
        let done = if qp.take_poller() {
            let mut poller = Poller::new(qp);
            let outcome = poller.poll_for_a_while(target, site);
            if let Err(Stop::Connection) = outcome {
                // Stays the poller until the connection has been replaced.
                return Err(Stop::Connection);
            }
            qp.free_poller();
            if outcome? {
                // Give the poller up between rounds, even on an error: another waiting thread may have a nearer target.
                return Ok(());
            }
            turns = turns.wrapping_add(POLLS_PER_ROUND);
            poller.done
        } else {
            let done = qp.done();
            if done >= target {
                return Ok(());
            }
            qp.mark_if_closing(own, target, &mut marked);
            // Cannot truncate: a queue has fewer than 2^32 blocks.
            arch::rest(((target - done) as u32).saturating_mul(block_ns).min(LONGEST_REST_NS));
            block_ns = (block_ns + block_ns / 8).min(LONGEST_REST_NS);
            turns = turns.wrapping_add(1);
            done
        };
        // No rest here: others may be waiting for this thread's polls.
        match watch.turn_awake() {
            Ok(()) => {}
            // A timeout breaks the QP: its blocks may never complete, and later posters would wait for them, too.
            // So does a loss, for the same reason.
            Err(why @ (Error::Timeout | Error::PeerLost)) => {
                return Err(qp.poison(why, qp.detail(done, target), site).into());
            }
            Err(other) => return Err(other.into()),
        }
    }
}

/// Polls the CQ while it has new CQEs. Returns whether the `done` index of the QP has reached `target`. Outlined for
/// the same reason as [`wait_slow`].
#[inline(never)]
fn test_slow<S: Sharing>(entry: *mut QpEntry, target: u64, site: Site) -> Result<bool> {
    let begin = arch::ticks();
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    // A loop of tests would otherwise never see WQEs complete that are still in an open batch.
    qp.announce_batch();
    if qp.is_poisoned() {
        return Err(qp.poisoned());
    }
    if qp.take_poller() {
        let polled = match Poller::new(&qp).poll(target, site) {
            // Stays the poller until the connection has been replaced.
            Err(Stop::Connection) => {
                return fail_over::<S>(entry, 0, site).map(|()| qp.done() >= target);
            }
            Err(Stop::Error(error)) => Err(error),
            Ok(done) => Ok(done),
        };
        qp.free_poller();
        // Either complete, or broken.
        if polled != Ok(false) {
            return polled;
        }
    }
    match outcome(test_failed(qp.desc().pe_state, qp.needs(), begin)) {
        Ok(()) => Ok(false),
        Err(why @ (Error::Timeout | Error::PeerLost)) => {
            Err(qp.poison(why, qp.detail(qp.done(), target), site))
        }
        Err(aborted) => Err(aborted),
    }
}
