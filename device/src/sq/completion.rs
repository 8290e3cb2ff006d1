//! Completion: polling the CQ, waiting and testing for complete blocks, error CQEs, and poisoning a QP.
//!
//! Many threads may wait for one QP. One of them, the poller, reads the CQ, which may lie in host memory. The others read
//! `done`, which the poller advances. An error poisons the QP: the first thread records it, all others learn that it is over.
#![allow(unsafe_code, reason = "reads CQEs and updates the state words of a QP, at addresses from the host")]

use core::mem::offset_of;

use rushmem_mlx5::{CqeOpcode, CqeWord, Opcode};

use super::connect::connect;
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
    /// Waits until all blocks before `end` are complete.
    ///
    /// # Errors
    /// - [`Error::Completion`]: this thread found the error CQE that ended the QP.
    /// - [`Error::Poisoned`]: the QP had ended before.
    /// - [`Error::Timeout`], [`Error::Aborted`], [`Error::Unconnected`].
    #[inline(always)]
    pub(crate) fn wait(&self, end: EndIndex, site: Site) -> Result {
        if self.done() >= end.0 { Ok(()) } else { wait_slow::<S>(self.entry(), end.0, site) }
    }

    /// Waits like [`Qp::wait`], in a caller that is outlined itself. That saves a call, and thus registers of kernels.
    ///
    /// # Errors
    /// - The errors of [`Qp::wait`].
    #[inline(always)]
    pub(crate) fn wait_here(&self, end: EndIndex, site: Site) -> Result {
        if self.done() >= end.0 { Ok(()) } else { wait_loop::<S>(self.entry(), end.0, site) }
    }

    /// Returns whether all blocks before `end` are complete, without waiting.
    ///
    /// # Errors
    /// - [`Error::Completion`]: this thread found the error CQE that ended the QP.
    /// - [`Error::Poisoned`]: the QP had ended before.
    #[inline(always)]
    pub(crate) fn test(&self, end: EndIndex, site: Site) -> Result<bool> {
        if self.done() >= end.0 { Ok(true) } else { test_slow::<S>(self.entry(), end.0, site) }
    }

    /// Returns whether this thread has seen the connection established.
    #[inline(always)]
    pub(crate) fn is_connected(&self) -> bool {
        self.done() >= FIRST_BLOCK
    }

    #[inline(always)]
    fn done(&self) -> u64 {
        // SAFETY: a word of the QP's state.
        unsafe { S::Scope::load_acquire(self.word(offset_of!(QpState, done))) }
    }

    /// Becomes the poller unless another thread is; returns whether it did.
    #[inline(always)]
    fn take_poller(&self) -> bool {
        let word = self.word(offset_of!(QpState, poller));
        // SAFETY: a word of the QP's state.
        !S::SHARED || unsafe { S::Scope::load_relaxed(word) == 0 && S::Scope::swap_acq_rel(word, 1) == 0 }
    }

    #[inline(always)]
    fn free_poller(&self) {
        if S::SHARED {
            // SAFETY: a word of the QP's state, taken by this thread.
            unsafe { S::Scope::store_release(self.word(offset_of!(QpState, poller)), 0) }
        }
    }

    /// Returns the blocks of the WQE that a CQE completes: 1, except for the 64-bit masked compare and swap, and for WQEs
    /// with an address vector.
    ///
    /// The queue itself tells which masked ones are 64 bits wide. The CQE of a collapsed CQ may be an old one, so its
    /// slot may have been reused. It may even hold the second half of another WQE. A slot counts only if it names this
    /// index and this opcode. If it does not, `done` has passed the WQE, and any small answer is right. (A second half
    /// begins with a byte count of 8, which is not an atomic's opcode.)
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

    /// Records the error CQE at `entry`, once, and poisons the QP.
    #[cold]
    #[inline(always)]
    fn failed(&self, entry: DevAddr, word: CqeWord, site: Site) -> Error {
        // SAFETY: the entry is written, and stays while the QP is in error.
        let syndromes = unsafe { Sys::load_relaxed(entry.add(48).ptr()) };
        let [_, _, _, _, _, _, vendor, syndrome] = syndromes.to_le_bytes();
        let completion = Completion { wqe: word.wqe_counter(), opcode: word.opcode().0, syndrome, vendor };
        let detail = Detail { completion: completion.packed(), ..self.detail(FIRST_BLOCK, FIRST_BLOCK) };
        self.poison(Error::Completion, detail, site)
    }

    #[inline(always)]
    fn is_poisoned(&self) -> bool {
        // SAFETY: a word of the QP's state.
        unsafe { S::Scope::load_relaxed(self.poison_word()) != 0 }
    }
}

/// The completion queue as its poller sees it. It keeps what nobody else changes, so a turn without a new CQE makes one load
/// from the memory of the CQ.
struct Poller<'q, 'a, S> {
    qp: &'q Qp<'a, S>,
    /// The depth less 1; 0 if all CQEs are written to entry 0.
    mask: u32,
    /// Blocks known to be complete.
    done: u64,
    /// The low bits of the number of consumed CQEs; 0 if all are written to entry 0.
    next: u32,
}

impl<'q, 'a, S: Sharing> Poller<'q, 'a, S> {
    /// Returns the view of a thread that has become the poller of `qp`.
    #[inline(always)]
    fn new(qp: &'q Qp<'a, S>) -> Self {
        let collapsed = qp.desc().flags & qp_flags::COLLAPSED != 0;
        // SAFETY: a word of the QP's state, which stays 0 with a collapsed CQ.
        let next = unsafe { S::Scope::load_relaxed(qp.word(offset_of!(QpState, cq_next))) } as u32;
        Self { qp, mask: if collapsed { 0 } else { qp.depth() as u32 - 1 }, done: qp.done(), next }
    }

    /// Polls until all blocks before `target` are complete, or the CQ holds no new CQE. Returns whether they are complete.
    ///
    /// # Errors
    /// - [`Error::Completion`], [`Error::Poisoned`]: an error CQE.
    #[inline(always)]
    fn poll(&mut self, target: u64, site: Site) -> Result<bool> {
        while self.done < target {
            // For a few blocks, another round of loads would take longer than it saves.
            if self.mask != 0 && target - self.done > 8 {
                self.next = self.next.wrapping_add(self.skippable());
            }
            if !self.take(site)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Polls like [`Poller::poll`], up to [`POLLS`] times. Between such whiles, a poller looks at all that is rare, with its
    /// registers free for that.
    #[inline(always)]
    fn poll_for_a_while(&mut self, target: u64, site: Site) -> Result<bool> {
        let mut left = POLLS;
        loop {
            if self.poll(target, site)? {
                return Ok(true);
            }
            left -= 1;
            if left == 0 {
                return Ok(false);
            }
            arch::spin();
        }
    }

    /// Consumes the next CQE; returns whether it is there.
    #[inline(always)]
    fn take(&mut self, site: Site) -> Result<bool> {
        let entry = self.cqe(self.next);
        // SAFETY: an entry of the CQ. The NIC writes its last 8 bytes at once, after the rest.
        let word = CqeWord(unsafe { Sys::load_acquire(entry.add(CqeWord::OFFSET as u64).ptr()) });
        let (kind, collapsed) = (word.op_own(), self.mask == 0);
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
        let end = word.wqe_counter().wrapping_add(self.qp.blocks_of(word));
        let advanced = completed(self.done, end, self.qp.depth());
        // SAFETY: words of the QP's state that only the poller writes.
        unsafe {
            if !collapsed {
                self.next = self.next.wrapping_add(1);
                S::Scope::store_relaxed(self.qp.word(offset_of!(QpState, cq_next)), self.next as u64);
            }
            if let Some(now) = advanced {
                self.done = now;
                S::Scope::store_release(self.qp.word(offset_of!(QpState, done)), now);
            }
        }
        // A collapsed CQ keeps the last CQE, which is an old one until the next completion.
        Ok(advanced.is_some() || !collapsed)
    }

    /// Returns the address of CQE number `index`.
    #[inline(always)]
    fn cqe(&self, index: u32) -> DevAddr {
        self.qp.connected(offset_of!(Connection, cq)).add((index & self.mask) as u64 * 64)
    }

    /// Returns the number of CQEs that the poller may skip, because a later one is there.
    ///
    /// A CQE completes all earlier WQEs. All CQEs after an error are errors, so a success has none before it. The loads travel
    /// together: reading a CQ in host memory takes a microsecond. In the first lap, entries that were never written may look
    /// new. A lap in which the count wraps skips nothing either.
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

/// Least time for which a NIC executes a block, in nanoseconds.
const BLOCK_NS: u32 = 16;

/// Polls of a poller between two looks at poison, batches and the deadline.
const POLLS: u32 = 64;

/// Longest rest in nanoseconds. A GPU knows no longer ones.
const LONGEST_REST_NS: u32 = 1_000_000;

/// Waits until `done` has reached `target`. Outlined, because inlined it would cost every kernel registers.
#[inline(never)]
pub(super) fn wait_slow<S: Sharing>(entry: *mut QpEntry, target: u64, site: Site) -> Result {
    wait_loop::<S>(entry, target, site)
}

/// Waits like [`wait_slow`], for callers that are outlined themselves.
#[inline(always)]
pub(super) fn wait_loop<S: Sharing>(entry: *mut QpEntry, target: u64, site: Site) -> Result {
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    if qp.done() < FIRST_BLOCK {
        connect::<S>(entry, site)?;
    }
    let mut watch = Watch::new(qp.desc().pe_state);
    let mut turns = 0u32;
    // A thread that waits for a distant block rests for so long for each block before it. Thousands of polling threads would
    // slow down the poller and the service kernel. The time grows by an eighth in each turn, until it suits the NIC.
    let mut block_ns = BLOCK_NS;
    loop {
        if qp.is_poisoned() {
            return Err(Error::Poisoned);
        }
        if turns.is_multiple_of(POLLS) {
            qp.announce_batch(); // another thread's unannounced batch may be what fills the queue
        }
        let done = if qp.take_poller() {
            let mut poller = Poller::new(&qp);
            let outcome = poller.poll_for_a_while(target, site);
            qp.free_poller();
            if outcome? {
                return Ok(());
            }
            turns = turns.wrapping_add(POLLS);
            poller.done
        } else {
            let done = qp.done();
            if done >= target {
                return Ok(());
            }
            // A queue has fewer than 2^32 blocks.
            arch::rest(((target - done) as u32).saturating_mul(block_ns).min(LONGEST_REST_NS));
            block_ns = (block_ns + block_ns / 8).min(LONGEST_REST_NS);
            turns = turns.wrapping_add(1);
            done
        };
        match watch.turn_awake() {
            Ok(()) => {}
            Err(Error::Timeout) => return Err(qp.poison(Error::Timeout, qp.detail(done, target), site)),
            Err(other) => return Err(other),
        }
    }
}

/// Polls the completion queue while it holds new CQEs; returns whether `done` has reached `target`. Outlined, like
/// [`wait_slow`].
#[inline(never)]
fn test_slow<S: Sharing>(entry: *mut QpEntry, target: u64, site: Site) -> Result<bool> {
    let begin = arch::ticks();
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    qp.announce_batch();
    if qp.is_poisoned() {
        return Err(Error::Poisoned);
    }
    if qp.take_poller() {
        let polled = Poller::new(&qp).poll(target, site);
        qp.free_poller();
        if polled != Ok(false) {
            return polled;
        }
    }
    match outcome(test_failed(qp.desc().pe_state, begin)) {
        Ok(()) => Ok(false),
        Err(Error::Timeout) => Err(qp.poison(Error::Timeout, qp.detail(qp.done(), target), site)),
        Err(aborted) => Err(aborted),
    }
}
