//! One queue pair as device code uses it: post WQEs, ring, poll completions, know of errors.

use core::marker::PhantomData;
use core::mem::offset_of;

use rushmem_mlx5::doorbell::{Doorbell, record_word};
use rushmem_mlx5::{CqeOpcode, CqeWord, Flags, Opcode, Wqe, Wqebb};

use crate::abi::{
    Connection, ControlPage, DevAddr, DeviceState, FIRST, Handshake, QpDesc, QpEntry, QpState, answer,
    qp_flags,
};
use crate::arch::{self, Cta, Gpu, Scope, Sys, SysWord};
use crate::error::{Completion, Detail, Error, Result, Site, record};
use crate::sharing::{Exclusive, Sharing};
use crate::sq::{self, Bell, Note, Words};
use crate::wait::Watch;

/// A count of blocks: an operation has completed once the QP's `done` reaches it.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket(pub(crate) u64);

/// A queue pair, shared as `S` says, that may not be connected yet.
#[derive(Clone, Copy)]
pub(crate) struct Qp<'a, S> {
    entry: *mut QpEntry,
    _sharing: PhantomData<(&'a QpEntry, S)>,
}

/// Blocks `first..end` of a send queue, to be written and published.
#[derive(Clone, Copy)]
pub(crate) struct Reservation {
    pub(crate) first: u64,
    pub(crate) end: u64,
    /// True if the bell seemed to wait for them.
    pub(crate) alone: bool,
}

/// What posting needs of a [`Connection`], and the queue's depth. Whoever has one has seen the connection made.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    sq: DevAddr,
    dbr: DevAddr,
    uar: DevAddr,
    qpn: u32,
    flags: u32,
    depth: u64,
}

impl Reservation {
    #[inline(always)]
    pub(crate) fn ticket(self) -> Ticket {
        Ticket(self.end)
    }
}

impl Link {
    /// Writes one WQE at block `index` of a reservation; returns the block after it.
    #[inline(always)]
    pub(crate) fn write(self, index: u64, wqe: &Wqe, flags: Flags) -> u64 {
        let entry = wqe.emit(index as u16, self.qpn, flags);
        let [head, tail] = entry.blocks;
        self.write_block(index, head);
        if entry.n_blocks() == 1 {
            return index + 1;
        }
        self.write_block(index + 1, tail);
        index + 2
    }

    #[inline(always)]
    fn write_block(self, index: u64, block: Wqebb) {
        let slot = self.sq.add((index & (self.depth - 1)) * 64).ptr::<[u32; 4]>();
        let [a, b, c, d] = block.0;
        // SAFETY: `reserve` gave this thread the slot, and its last WQE has completed.
        unsafe {
            arch::store16(slot, a.0);
            arch::store16(slot.add(1), b.0);
            arch::store16(slot.add(2), c.0);
            arch::store16(slot.add(3), d.0);
        }
    }

    /// True if what all of the GPU sees is what the NIC sees: a fence at GPU scope is enough before a doorbell, which waits
    /// for the GPU's memory and not for the host's. What else a message tells of is [`Ctx::qp`](crate::Ctx)'s to order.
    #[inline(always)]
    fn is_on_gpu(self) -> bool {
        self.flags & qp_flags::ON_GPU != 0
    }

    /// True where posting is to be fast: the queue is on the GPU, and its NIC wants the record before the doorbell.
    #[inline(always)]
    fn is_plain(self) -> bool {
        self.flags & (qp_flags::ON_GPU | qp_flags::LATE_RECORD) == qp_flags::ON_GPU
    }

    /// Announces all before `end`, what other threads have published included: see [`sq::alone`].
    #[inline(always)]
    fn bell(self, end: u64) {
        if self.is_on_gpu() {
            self.ring(end, Gpu::fence, Gpu::release)
        } else {
            self.ring(end, Sys::fence, Sys::release)
        }
    }

    /// The same for what this thread, and the lanes that have met it since, have written.
    ///
    /// A release is enough, which does not empty the L1 cache. Only if an acquire were needed for loads would that matter,
    /// and there are none. The stores below come after those of who rang before even so: it had released the bell
    /// when this thread read that from its word, and the stores come after a branch on what was read, and after the release.
    #[inline(always)]
    fn bell_alone(self, end: u64) {
        if self.is_on_gpu() {
            self.ring(end, Gpu::release, Gpu::release)
        } else {
            self.ring(end, Sys::release, Sys::release)
        }
    }

    /// Writes the doorbell record, then the doorbell: `fence` comes before both, `between` between them.
    ///
    /// WQEs, record and register become visible in this order, to the NIC and to whoever else looks: both are strong stores
    /// at system scope, and each follows a release, at the scope that reaches queue and record. The second one is needed
    /// wherever the two lie: a GPU's stores to different places take different ways, even where PCIe keeps the order in which
    /// it is given them. It waits for one store, as a rule to GPU memory. A NIC that takes up a record that comes later spares
    /// us that ([`qp_flags::LATE_RECORD`]): the record is stored first all the same.
    ///
    /// Both fences come with one branch over all of this: behind a condition each, the assembler would make predicates of them,
    /// and a fence that a thread need not make takes 60 cycles.
    #[inline(always)]
    fn ring(self, end: u64, fence: impl FnOnce(), between: impl FnOnce()) {
        fence();
        // SAFETY: the host mapped both; one thread at a time writes them.
        unsafe {
            <u32 as SysWord>::store_relaxed(self.dbr.ptr(), record_word(end as u16));
            if self.flags & qp_flags::LATE_RECORD == 0 {
                between();
            }
            arch::store_mmio(self.uar.ptr(), Doorbell::producer(self.qpn, end as u16).raw());
        }
    }
}

impl<'a, S: Sharing> Qp<'a, S> {
    /// # Safety
    /// The host filled the entry, and every address in it is valid while the kernel runs.
    #[inline(always)]
    pub(crate) unsafe fn new(entry: *mut QpEntry) -> Self {
        Self { entry, _sharing: PhantomData }
    }

    /// What [`Qp::new`] takes: a plain word, for functions that are not inlined.
    #[inline(always)]
    pub(crate) fn entry(&self) -> *mut QpEntry {
        self.entry
    }

    #[inline(always)]
    pub(crate) fn desc(&self) -> &'a QpDesc {
        // SAFETY: nobody changes it while kernels run.
        unsafe { &(*self.entry).desc }
    }

    /// What posting needs of the connection. Only those may look at a connection who have a reservation: with it, they have
    /// seen it made. The loads are made where they are written, and never earlier: before that, an L1 cache that has met the
    /// line would keep what was in it. A thread that has the queue for itself has written it itself.
    #[inline(always)]
    pub(crate) fn link(&self, depth: u64) -> Link {
        // SAFETY: 32 bytes of the entry; the connection is written once, before that.
        let ([a, b, c, d], [e, f, qpn, flags]) = unsafe {
            let at = (&raw const (*self.entry).connection).cast::<[u32; 4]>();
            if S::SHARED {
                (arch::load16_gated(at), arch::load16_gated(at.add(1)))
            } else {
                (arch::load16(at), arch::load16(at.add(1)))
            }
        };
        let address = |low: u32, high: u32| DevAddr(u64::from(low) | u64::from(high) << 32);
        Link { sq: address(a, b), dbr: address(c, d), uar: address(e, f), qpn, flags, depth }
    }

    /// An address, or another word of 8 bytes, of the connection. As [`Qp::link`].
    #[inline(always)]
    fn connected(&self, field: usize) -> DevAddr {
        // SAFETY: a field of the entry; the connection is written once, before that.
        DevAddr(unsafe {
            Cta::load_relaxed(self.entry.cast::<u8>().add(offset_of!(QpEntry, connection) + field).cast())
        })
    }

    /// The keys of both heaps, this PE's first, the peer, and log2 of the depth.
    #[inline(always)]
    fn fixed(&self) -> [u32; 4] {
        const AT: usize = offset_of!(QpDesc, lkey);
        const { assert!(offset_of!(QpDesc, log_depth) == AT + 12 && AT.is_multiple_of(16)) };
        // SAFETY: 16 bytes of the descriptor, which nobody changes while kernels run.
        unsafe { arch::load16(self.entry.cast::<u8>().add(AT).cast()) }
    }

    /// Keys of both heaps, this PE's first.
    #[inline(always)]
    pub(crate) fn keys(&self) -> (u32, u32) {
        let [lkey, rkey, ..] = self.fixed();
        (lkey, rkey)
    }

    #[inline(always)]
    pub(crate) fn depth(&self) -> u64 {
        let [.., log_depth] = self.fixed();
        1 << (log_depth & 31)
    }

    /// Hands out `blocks` blocks (at most the depth, which the caller knows), and waits until they may be written.
    #[inline(always)]
    pub(crate) fn reserve(&self, blocks: u64, depth: u64, site: Site) -> Result<Reservation> {
        // All three are on their way before the first is needed. `done` is a gate: behind it the connection is read, by loads
        // that are made where they are written, and slots are overwritten that the NIC has read. It may lag: then it is
        // looked at again.
        let done = self.word(offset_of!(QpState, done));
        // SAFETY: a word of the QP's state.
        let done = unsafe { if S::SHARED { S::Scope::load_gate(done) } else { arch::load_own(done) } };
        let seen = if S::SHARED && !S::HELD { self.look() } else { Bell(u64::MAX) };
        let first = Words::reserve(self, blocks);
        let end = first + blocks;
        let wanted = end - depth;
        if done < wanted {
            wait_slow::<S>(self.entry, wanted, site)?;
        }
        Ok(Reservation { first, end, alone: seen.waits_for(first) })
    }

    /// Makes a written reservation the NIC's.
    #[inline(always)]
    pub(crate) fn publish(&self, r: Reservation, link: impl FnOnce() -> Link) {
        if S::HELD {
            if S::SHARED {
                sq::hold(self, self.depth(), r.first, r.end);
            }
            // SAFETY: a word of the QP's state.
            unsafe { S::Scope::store_release(self.word(offset_of!(QpState, held)), r.end) }
        } else if S::SHARED {
            if !r.alone {
                publish::<S>(self.entry, r.first, r.end);
            } else if !sq::alone(self, r.first, r.end, |end| self.bell_alone(link(), end)) {
                knocked::<S>(self.entry, r.first, r.end);
            }
        } else {
            // The doorbell never goes back: what was held back is behind this.
            // SAFETY: a word of the QP's state.
            unsafe { S::Scope::store_relaxed(self.word(offset_of!(QpState, held)), 0) };
            self.bell_alone(link(), r.end);
        }
    }

    /// Announces all before `end`, which this thread has written, and the lanes that have met it since.
    #[inline(always)]
    fn bell_alone(&self, link: Link, end: u64) {
        if link.is_plain() { link.bell_alone(end) } else { ring_doorbell_slow::<S>(self.entry, end) }
    }

    /// Rings for what a batch has held back, if anything. Who waits for WQEs does this first.
    #[inline(always)]
    pub(crate) fn submit(&self) {
        // SAFETY: a word of the QP's state.
        if unsafe { S::Scope::load_relaxed(self.word(offset_of!(QpState, held))) } != 0 {
            submit::<S>(self.entry);
        }
    }

    /// The ticket of everything reserved so far. It waits for no connection if nothing was.
    #[inline(always)]
    pub(crate) fn last(&self) -> Ticket {
        let end = self.reserved();
        Ticket(if end == FIRST { 0 } else { end })
    }

    /// Waits until the ticket's blocks have completed.
    ///
    /// # Errors
    /// The error CQE that ended the QP, or that it had been ended, or the deadline.
    #[inline(always)]
    pub(crate) fn wait(&self, t: Ticket, site: Site) -> Result {
        if self.done() >= t.0 { Ok(()) } else { wait_slow::<S>(self.entry, t.0, site) }
    }

    /// Whether the ticket's blocks have completed, without waiting.
    ///
    /// # Errors
    /// The error CQE that ended the QP, or that it had been ended.
    #[inline(always)]
    pub(crate) fn test(&self, t: Ticket, site: Site) -> Result<bool> {
        if self.done() >= t.0 { Ok(true) } else { test_slow::<S>(self.entry, t.0, site) }
    }

    /// Looks at the completion queue once; true if it held something new. For the holder of the poller word only.
    #[inline(always)]
    fn poll(&self, done: u64, site: Site) -> Result<bool> {
        let collapsed = self.desc().flags & qp_flags::COLLAPSED != 0;
        // SAFETY: a word of the QP's state.
        let next = if collapsed { 0 } else { unsafe { S::Scope::load_relaxed(self.cq_next()) } };
        let entry = self.connected(offset_of!(Connection, cq)).add((next & (self.depth() - 1)) * 64);
        // SAFETY: an entry of the CQ; the NIC writes its last 8 bytes at once, after the rest.
        let word = CqeWord(unsafe { Sys::load_acquire(entry.add(CqeWord::OFFSET as u64).ptr()) });
        let kind = word.op_own();
        let fresh = if collapsed {
            kind.opcode() != CqeOpcode::INVALID
        } else {
            kind.is_ready(next as u32, self.depth() as u32)
        };
        if !fresh {
            return Ok(false);
        }
        if kind.opcode() != CqeOpcode::REQ {
            return Err(self.failed(entry, word, site));
        }
        let news = sq::completed(done, word.wqe_counter().wrapping_add(self.blocks_of(word)), self.depth());
        // SAFETY: words of the QP's state, which the poller alone writes.
        unsafe {
            if !collapsed {
                S::Scope::store_relaxed(self.cq_next(), next + 1);
            }
            if let Some(now) = news {
                S::Scope::store_release(self.word(offset_of!(QpState, done)), now);
            }
        }
        Ok(news.is_some() || !collapsed)
    }

    /// Becomes the poller, unless another thread is. With many threads that wait, one of them reads the CQ, which may
    /// lie in host memory, and the others read `done`.
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

    #[inline(always)]
    fn is_poisoned(&self) -> bool {
        // SAFETY: a word of the QP's state.
        unsafe { S::Scope::load_relaxed(self.poison_word()) != 0 }
    }

    /// Blocks of the WQE that a CQE completes. All that this crate signals are one block long, but for the 64-bit
    /// masked compare and swap; the queue itself tells which masked ones are of 64 bits.
    ///
    /// The CQE of a collapsed CQ may be one that was seen before, so the slot may have been given out again and hold
    /// anything, the second half of another WQE included. Only an entry that says this very index and opcode is
    /// believed; if it does not, `done` has passed the CQE's WQE, and the answer does not matter as long as it is not
    /// too large. (A second half begins with a byte count of 8, which is no atomic's opcode.)
    #[inline(always)]
    fn blocks_of(&self, word: CqeWord) -> u16 {
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

    /// Reports the error CQE at `entry`, once, and ends the QP.
    #[cold]
    #[inline(always)]
    fn failed(&self, entry: DevAddr, word: CqeWord, site: Site) -> Error {
        // SAFETY: the entry is written, and stays while the QP is in error.
        let syndromes = unsafe { Sys::load_relaxed(entry.add(48).ptr()) };
        let [_, _, _, _, _, _, vendor, syndrome] = syndromes.to_le_bytes();
        let completion = Completion { wqe: word.wqe_counter(), opcode: word.opcode().0, syndrome, vendor };
        let detail = Detail { completion: completion.packed(), ..self.detail(FIRST, FIRST) };
        self.poison(Error::Completion, detail, site)
    }

    /// The details of an error of a connected QP; both numbers are of blocks.
    #[inline(always)]
    fn detail(&self, found: u64, wanted: u64) -> Detail {
        let (peer, qpn) = (self.desc().peer, self.link(self.depth()).qpn);
        Detail { peer, qpn, found: found - FIRST, wanted: wanted - FIRST, ..Detail::NONE }
    }

    /// Ends the QP: the first thread to say so writes the record, all others learn that it is over.
    #[cold]
    #[inline(always)]
    fn poison(&self, error: Error, detail: Detail, site: Site) -> Error {
        // SAFETY: a word of the QP's state.
        match unsafe { S::Scope::swap_acq_rel(self.poison_word(), error as u64) } {
            0 => record(self.desc().pe_state, error, detail, site),
            _ => Error::Poisoned,
        }
    }

    #[inline(always)]
    fn done(&self) -> u64 {
        // SAFETY: a word of the QP's state.
        unsafe { S::Scope::load_acquire(self.word(offset_of!(QpState, done))) }
    }

    #[inline(always)]
    fn bell(&self) -> *mut u64 {
        self.word(offset_of!(QpState, bell))
    }

    #[inline(always)]
    fn notes(&self) -> *mut u64 {
        self.connected(offset_of!(Connection, notes)).ptr()
    }

    #[inline(always)]
    fn cq_next(&self) -> *mut u64 {
        self.word(offset_of!(QpState, cq_next))
    }

    #[inline(always)]
    fn poison_word(&self) -> *mut u64 {
        self.word(offset_of!(QpState, poison))
    }

    #[inline(always)]
    fn word(&self, line: usize) -> *mut u64 {
        // SAFETY: inside of the entry.
        unsafe { self.entry.cast::<u8>().add(offset_of!(QpEntry, state) + line).cast() }
    }

    /// The fetch slot of block `index`, as a heap offset.
    #[inline(always)]
    pub(crate) fn fetch_slot(&self, index: u64) -> u64 {
        self.connected(offset_of!(Connection, fetch)).0 + (index & (self.depth() - 1)) * 8
    }

    #[inline(always)]
    fn fetch_busy(&self, index: u64) -> *mut u64 {
        let words = self.connected(offset_of!(Connection, fetch_busy)).ptr::<u64>();
        words.wrapping_add((index & (self.depth() - 1)) as usize)
    }

    /// Takes the fetch slot of block `index`, which this thread has reserved: waits until whoever used it for an
    /// earlier WQE has read the result.
    ///
    /// # Errors
    /// The deadline or an abort; the QP is poisoned then, since the block cannot be posted.
    #[inline(always)]
    pub(crate) fn take_fetch_slot(&self, index: u64, site: Site) -> Result {
        // SAFETY: a busy word of this QP.
        if unsafe { S::Scope::swap_acq_rel(self.fetch_busy(index), 1) } == 0 {
            Ok(())
        } else {
            take_fetch_slot_slow::<S>(self.entry, index, site)
        }
    }

    /// Gives the fetch slot back, once the result has been read.
    #[inline(always)]
    pub(crate) fn free_fetch_slot(&self, index: u64) {
        // SAFETY: a busy word of this QP, taken by this thread.
        unsafe { S::Scope::store_release(self.fetch_busy(index), 0) }
    }
}

impl<S: Sharing> Words for Qp<'_, S> {
    #[inline(always)]
    fn reserve(&self, blocks: u64) -> u64 {
        let p = self.word(offset_of!(QpState, reserved));
        // SAFETY: a word of the QP's state; not shared means that this thread alone uses it.
        unsafe {
            if S::SHARED {
                S::Scope::fetch_add_relaxed(p, blocks)
            } else {
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
    fn note(&self, slot: u64) -> Note {
        // SAFETY: there is a note for each slot.
        Note(unsafe { S::Scope::load_relaxed(self.notes().add(slot as usize)) })
    }

    #[inline(always)]
    fn set_note(&self, slot: u64, note: Note) {
        // SAFETY: there is a note for each slot.
        unsafe { S::Scope::store_release(self.notes().add(slot as usize), note.0) }
    }

    #[inline(always)]
    fn look(&self) -> Bell {
        // SAFETY: a word of the QP's state.
        Bell(unsafe { S::Scope::load_relaxed(self.bell()) })
    }

    #[inline(always)]
    fn knock(&self) -> Bell {
        // SAFETY: a word of the QP's state.
        Bell(unsafe { S::Scope::fetch_or_release(self.bell(), Bell::KNOCK) })
    }

    #[inline(always)]
    fn hear(&self, held: Bell) -> Bell {
        // SAFETY: a word of the QP's state.
        Bell(unsafe { S::Scope::swap_acquire(self.bell(), held.0) })
    }

    #[inline(always)]
    fn change(&self, from: Bell, to: Bell) -> Bell {
        // SAFETY: a word of the QP's state.
        Bell(unsafe { S::Scope::compare_swap_release(self.bell(), from.0, to.0) })
    }
}

/// As [`sq::publish`]. Not inlined, as all that follows: what a posting rarely needs is not worth the registers that it
/// would take of every kernel.
#[inline(never)]
fn publish<S: Sharing>(entry: *mut QpEntry, first: u64, end: u64) {
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    let link = qp.link(qp.depth());
    sq::publish(&qp, link.depth, first, end, |end| link.bell(end));
}

/// As [`sq::knocked`].
#[inline(never)]
fn knocked<S: Sharing>(entry: *mut QpEntry, first: u64, end: u64) {
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    let link = qp.link(qp.depth());
    sq::knocked(&qp, link.depth, first, end, |end| link.bell(end));
}

/// As [`Qp::bell_alone`], wherever the queue is.
#[inline(never)]
fn ring_doorbell_slow<S: Sharing>(entry: *mut QpEntry, end: u64) {
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    qp.link(qp.depth()).bell_alone(end);
}

/// Rings for what is held back. As [`publish`].
#[inline(never)]
fn submit<S: Sharing>(entry: *mut QpEntry) {
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    // SAFETY: a word of the QP's state.
    let end = unsafe { S::Scope::swap_acq_rel(qp.word(offset_of!(QpState, held)), 0) };
    if end == 0 {
        return;
    }
    let link = qp.link(qp.depth());
    if S::SHARED {
        sq::ring(&qp, link.depth, |end| link.bell(end));
    } else {
        link.bell_alone(end);
    }
}

/// Waits until `done` has reached `target`. Not inlined: a wait is not worth the registers that it would take of
/// every kernel.
#[inline(never)]
fn wait_slow<S: Sharing>(entry: *mut QpEntry, target: u64, site: Site) -> Result {
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    if qp.done() < FIRST {
        connect::<S>(entry, site)?;
    }
    qp.submit();
    let mut watch = Watch::new(qp.desc().pe_state);
    let mut poller = false;
    let mut turns = 0u32;
    let outcome = loop {
        let done = qp.done();
        if done >= target {
            break Ok(());
        }
        if qp.is_poisoned() {
            break Err(Error::Poisoned);
        }
        if !poller && qp.take_poller() {
            poller = true;
            continue; // the poller before this one has counted further
        }
        if poller {
            match qp.poll(done, site) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => break Err(error),
            }
        }
        turns = turns.wrapping_add(1);
        if turns & 63 == 0 {
            qp.submit(); // what a batch of another thread holds back may be what fills the queue
        }
        match watch.turn() {
            Ok(()) => {}
            Err(Error::Timeout) => break Err(qp.poison(Error::Timeout, qp.detail(done, target), site)),
            Err(other) => break Err(other),
        }
    };
    if poller {
        qp.free_poller();
    }
    outcome
}

/// Looks at the completion queue as long as it tells something new. As [`wait_slow`].
#[inline(never)]
fn test_slow<S: Sharing>(entry: *mut QpEntry, target: u64, site: Site) -> Result<bool> {
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    qp.submit();
    if qp.is_poisoned() {
        return Err(Error::Poisoned);
    }
    if !qp.take_poller() {
        arch::spin();
        return Ok(false);
    }
    let outcome = loop {
        let done = qp.done();
        if done >= target {
            break Ok(true);
        }
        match qp.poll(done, site) {
            Ok(true) => {}
            Ok(false) => break Ok(false),
            Err(error) => break Err(error),
        }
    };
    qp.free_poller();
    if outcome == Ok(false) {
        arch::spin(); // who tests in a loop lets others run
    }
    outcome
}

/// Turns of waiting for a connection between two looks at the host's memory, by threads that have not asked for it.
const SELDOM: u32 = 1 << 10;

/// Asks the host for the connection, and waits until it is there. As [`wait_slow`].
#[cold]
#[inline(never)]
fn connect<S: Sharing>(entry: *mut QpEntry, site: Site) -> Result {
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    let desc = qp.desc();
    let handshake = desc.handshake.ptr::<Handshake>();
    let done = qp.word(offset_of!(QpState, done));
    let first = |line| {
        // SAFETY: a word of the QP's state.
        unsafe { Gpu::swap_acq_rel(qp.word(line), 1) == 0 }
    };
    let asks = first(offset_of!(QpState, asked));
    if asks {
        // SAFETY: the host made handshake and control page.
        unsafe {
            <u32 as SysWord>::store_release(&raw mut (*handshake).wanted, 1);
            let control = (*desc.pe_state.ptr::<DeviceState>()).control.ptr::<ControlPage>();
            <u32 as SysWord>::store_release(&raw mut (*control).requested, 1);
        }
    }
    let mut watch = Watch::new(qp.desc().pe_state);
    let mut turns = 0u32;
    // Whoever uses the QP, the thread that fetches its connection may be any of the GPU's.
    // SAFETY: a word of the QP's state.
    while unsafe { Gpu::load_acquire(done) } == 0 {
        // The answer comes in host memory. If all of a GPU's threads looked there all the time, it would have no way left for
        // what the host does to give it.
        turns = turns.wrapping_add(1);
        let looks = asks || turns.is_multiple_of(SELDOM);
        // SAFETY: a word of the handshake.
        let answer = unsafe {
            if looks { <u32 as SysWord>::load_acquire(&raw const (*handshake).answer) } else { answer::NONE }
        };
        match answer {
            answer::CONNECTED if first(offset_of!(QpState, fetched)) => {
                // SAFETY: the host has written the answer, and this thread alone the connection, before `done`.
                unsafe {
                    (&raw const (*handshake).connection)
                        .copy_to_nonoverlapping(&raw mut (*entry).connection, 1);
                    Gpu::store_release(done, FIRST);
                }
            }
            answer::FAILED => {
                // SAFETY: a word of the QP's state.
                unsafe { Gpu::store_release(qp.poison_word(), Error::Unconnected as u64) };
                return Err(Error::Poisoned);
            }
            _ => match watch.turn() {
                Ok(()) => {}
                Err(Error::Timeout) => {
                    let detail = Detail { peer: desc.peer, ..Detail::NONE };
                    return Err(qp.poison(Error::Unconnected, detail, site));
                }
                Err(other) => return Err(other),
            },
        }
    }
    Ok(())
}

/// Waits for a fetch slot that somebody has not read yet. As [`wait_slow`].
#[cold]
#[inline(never)]
fn take_fetch_slot_slow<S: Sharing>(entry: *mut QpEntry, index: u64, site: Site) -> Result {
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    let mut watch = Watch::new(qp.desc().pe_state);
    // SAFETY: a busy word of this QP.
    while unsafe { S::Scope::swap_acq_rel(qp.fetch_busy(index), 1) } != 0 {
        if let Err(why) = watch.turn() {
            return Err(qp.poison(why, qp.detail(index, index + 1), site));
        }
    }
    Ok(())
}

impl Qp<'_, Exclusive> {
    /// Makes `who`, which is not 0, the set's owner; false if another is. Several threads may be the same owner, unless it is
    /// a single thread, whose number has its top bit set.
    #[inline(always)]
    pub(crate) fn take(&self, who: u64) -> bool {
        // SAFETY: a word of the QP's state.
        let before = unsafe { u64::compare_swap(self.word(offset_of!(QpState, owner)), 0, who) };
        Gpu::fence();
        before == 0 || before == who && who >> 63 == 0
    }

    /// Ends the ownership.
    #[inline(always)]
    pub(crate) fn give_back(&self) {
        // SAFETY: a word of the QP's state.
        unsafe { Gpu::store_release(self.word(offset_of!(QpState, owner)), 0) }
    }
}
