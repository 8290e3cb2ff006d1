//! Signals: words that other PEs update to announce data.
#![allow(unsafe_code, reason = "accesses checked addresses of mapped heaps, and QPs by entry")]

use core::panic::Location;

use bytemuck::Pod;
use rushmem_mlx5::{Flags, Wqe};

use crate::abi::QpEntry;
use crate::amo::{Kind, Op, fetch_event, post_atomic, without_result};
use crate::arch::{self, Scope, Sys, SysWord};
use crate::ctx::Ctx;
use crate::ctx::CtxRef;
use crate::error::{Result, Site, outcome};
use crate::group::{Group, agree, refused};
use crate::heap::{LocalBuffer, Signal, Sym, SymSlice, local_operand};
use crate::order::quiet_pe_slow;
use crate::outlined::outlined;
use crate::post::{Lanes, begin, post};
use crate::rma::copy::{copy, copy_part};
use crate::rma::{Direction, End, Form, MAX_MESSAGE, NicTransfer, Unit, end_of, send_to, unit_of, word_at};
use crate::sharing::Sharing;
use crate::sq::Qp;
use crate::watch::{self, Change, Completion, Event, Operation, PeRange, Posting};

/// How a signal changes its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalOp {
    /// `SHMEM_SIGNAL_SET`: the word becomes the value. Sets are atomic with respect to each other and to waits and
    /// fetches of signals, but not to adds or atomics on the same word: at a P2P peer, a set is a store.
    Set,
    /// `SHMEM_SIGNAL_ADD`: the value is added, wrapping. Adds are atomic with respect to each other and to atomics. In
    /// a job that spans nodes they go through the NIC, even to P2P peers, unless sent through [`Ctx::for_node_words`].
    Add,
}

/// An update of a signal word: what [`Ctx::signal_op`] and the puts with signal apply at the peer.
///
/// Created by [`Sym::set`] and [`Sym::add`].
#[derive(Clone, Copy, Debug)]
#[must_use = "a signal is updated by the call that takes the update"]
pub struct SignalUpdate {
    /// Signal word to update, on the PE that is passed to the call.
    pub signal: Sym<Signal>,
    /// Whether the signal sets the word or adds to it.
    pub op: SignalOp,
    /// New value of the word for [`SignalOp::Set`], or the addend for [`SignalOp::Add`].
    pub value: u64,
}

impl Sym<Signal> {
    /// Returns the update that sets this signal to `value`: [`SignalOp::Set`].
    #[inline(always)]
    pub const fn set(self, value: u64) -> SignalUpdate {
        SignalUpdate { signal: self, op: SignalOp::Set, value }
    }

    /// Returns the update that adds `value` to this signal: [`SignalOp::Add`].
    #[inline(always)]
    pub const fn add(self, value: u64) -> SignalUpdate {
        SignalUpdate { signal: self, op: SignalOp::Add, value }
    }
}

impl SignalOp {
    #[inline(always)]
    fn kind(self) -> Kind {
        match self {
            Self::Set => Kind::SignalSet,
            Self::Add => Kind::Add,
        }
    }

    /// Returns the operand of the update. For an add, [`arch::opaque`] keeps ptxas from summing over the warp, because
    /// usually only one lane adds.
    #[inline(always)]
    fn operand(self, value: u64) -> u64 {
        if self == Self::Add { arch::opaque(value) } else { value }
    }

    #[inline(always)]
    fn change(self) -> Change {
        match self {
            Self::Set => Change::Set,
            Self::Add => Change::Update,
        }
    }
}

/// # Signals
///
/// Updates of signal words, either alone or after the data of a put. [`Ctx::signal_wait_until`] waits for a signal.
impl<S: Sharing> Ctx<'_, S> {
    /// Applies `update` to a signal word on `pe`. Called by one thread. Returns once posted.
    ///
    /// The update is not ordered after anything and publishes no earlier store. To announce data, use
    /// [`Ctx::put_signal_nbi`]; to announce stores and puts, call [`Ctx::fence`] first. [`SignalOp`] describes what
    /// signals are atomic with. NVSHMEM: `nvshmemx_signal_op`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::put_nbi`].
    #[inline(always)]
    #[track_caller]
    pub fn signal_op(&self, update: SignalUpdate, pe: u32) -> Result {
        let SignalUpdate { signal, op, value } = update;
        let change = Operation::Change { word: word_at(pe, signal), change: op.change() };
        let _call = watch::call("signal_op", Event::post(self.parts_ref(), change, Completion::Posted));
        // Usually a single lane signals, so a vote of the warp would only add latency.
        let mapped = self.p2p_addr_of_one(pe, signal.offset(), size_of::<Signal>() as u64);
        self.post_op_at(mapped, signal, op.kind(), op.operand(value), pe)
    }

    /// Starts copying `src`, on this PE, to `dst` on `pe`, and applies `update` there after the data. Returns once
    /// posted.
    ///
    /// A thread that observes the signal's new value, for example with [`Ctx::signal_wait_until`], also sees the data.
    /// Of all puts, the signal only covers that of this call, but it publishes earlier stores of the group's threads,
    /// for example to memory of this PE. `src` must not change before [`Ctx::quiet`].
    ///
    /// On a NIC: RDMA WRITE and the update on one QP, with one reservation and one doorbell. The update is an atomic,
    /// or an inline WRITE for a set on an in-order QP.
    ///
    /// ```
    /// # use rushmem_device::prelude::*;
    /// /// Sends `src` to the next PE and signals it.
    /// #[kernel]
    /// pub fn send(ctx: &Ctx, dst: SymSlice<u32>, src: SymSlice<u32>, arrived: Sym<Signal>) -> Result {
    ///     let block = Block::current();
    ///     ctx.put_signal_nbi(block, dst, src, arrived.add(1), ctx.pe_after(1))?;
    ///     ctx.quiet(block)
    /// }
    /// # fn main() {}
    /// ```
    ///
    /// OpenSHMEM 1.6 section 9.8.3, `shmem_put_signal_nbi`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::put_nbi`].
    #[inline(always)]
    #[track_caller]
    pub fn put_signal_nbi<G: Group, T: Pod>(
        &self,
        group: G,
        dst: SymSlice<T>,
        src: impl LocalBuffer<T>,
        update: SignalUpdate,
        pe: u32,
    ) -> Result {
        self.put_with_signal(group, dst, local_operand(src), update, pe, Form::nonblocking("put_signal_nbi"))
    }

    /// Copies and signals like [`Ctx::put_signal_nbi`]. Returns once `src` may be reused.
    ///
    /// OpenSHMEM 1.6 section 9.8.2, `shmem_put_signal`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::put`].
    #[inline(always)]
    #[track_caller]
    pub fn put_signal<G: Group, T: Pod>(
        &self,
        group: G,
        dst: SymSlice<T>,
        src: impl LocalBuffer<T>,
        update: SignalUpdate,
        pe: u32,
    ) -> Result {
        self.put_with_signal(group, dst, local_operand(src), update, pe, Form::blocking("put_signal"))
    }

    /// Signals like [`Ctx::signal_op`], after all earlier operations to `pe` through this context: a *strong* signal.
    ///
    /// It covers puts, sets and signals of the group's threads, and of threads that have synchronised with them, on all
    /// queues and NICs. With one QP per peer it costs no more than a plain signal. With several, the group's leader
    /// first waits for all of them. GIN: `StrongSignal`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::signal_op`] and [`Ctx::quiet`].
    #[inline(always)]
    #[track_caller]
    pub fn signal_strong<G: Group>(&self, group: G, update: SignalUpdate, pe: u32) -> Result {
        let SignalUpdate { signal, op, .. } = update;
        watch::note("signal_strong", Event::OwnStores);
        group.sync();
        let operation = Operation::Change { word: word_at(pe, signal), change: op.change() };
        let event = self.announcement(operation, Completion::Posted, true);
        let _call = watch::lead(group, "signal_strong", event);
        Sys::fence();
        let mine = if group.leader() {
            match self.order_queues(pe) {
                Ok(()) => self.emit_signal(update, pe),
                Err(error) => Err(error),
            }
        } else {
            Ok(())
        };
        agree(group, mine)
    }

    /// Copies and signals like [`Ctx::put_signal_nbi`], with a strong signal: it covers this data and, like
    /// [`Ctx::signal_strong`], all earlier operations.
    ///
    /// # Errors
    /// - The errors of [`Ctx::put_signal_nbi`] and [`Ctx::quiet`].
    #[inline(always)]
    #[track_caller]
    pub fn put_signal_strong<G: Group, T: Pod>(
        &self,
        group: G,
        dst: SymSlice<T>,
        src: impl LocalBuffer<T>,
        update: SignalUpdate,
        pe: u32,
    ) -> Result {
        group.sync();
        Sys::fence();
        let mine = if group.leader() { self.order_queues(pe) } else { Ok(()) };
        agree(group, mine)?;
        self.put_with_signal(group, dst, local_operand(src), update, pe, Form::strong("put_signal_strong"))
    }

    /// Returns the value of a signal word of this PE. Includes an acquire: the announced data may be read afterwards.
    ///
    /// OpenSHMEM 1.6 section 9.8.4, `shmem_signal_fetch`.
    ///
    /// # Errors
    /// - [`Error::OutOfRange`](crate::Error::OutOfRange).
    #[inline(always)]
    #[track_caller]
    pub fn signal_fetch(&self, signal: Sym<Signal>) -> Result<u64> {
        let at = self.local_addr(signal.as_slice())?;
        // SAFETY: a word of this PE's memory, aligned by the allocator.
        let found = unsafe { <u64 as SysWord>::load_acquire(at.cast()) };
        let word = word_at(self.my_pe(), signal);
        watch::note("signal_fetch", Event::Look { word, is_seen: true, value: Some(found) });
        Ok(found)
    }

    /// Sets a signal word of this PE to 0, as a signal would, and returns the old value. No PE may signal the word
    /// concurrently. GIN: `resetSignal`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::atomic_swap`].
    #[inline(always)]
    #[track_caller]
    pub fn signal_reset(&self, signal: Sym<Signal>) -> Result<u64> {
        let _call = watch::call("signal_reset", fetch_event(self, signal, self.my_pe(), false));
        self.atomic_swap(signal, 0, self.my_pe())
    }

    #[inline(always)]
    #[track_caller]
    fn put_with_signal<G: Group, T: Pod>(
        &self,
        group: G,
        dst: SymSlice<T>,
        src: SymSlice<T>,
        update: SignalUpdate,
        pe: u32,
        form: Form,
    ) -> Result {
        let SignalUpdate { signal, op, value } = update;
        watch::note(form.name, Event::OwnStores);
        if !G::NEEDS_NO_BARRIER {
            group.sync();
        }
        let operation = Operation::Put {
            src: Some(PeRange::new(self.my_pe(), src.offset(), src.bytes())),
            dst: PeRange::new(pe, dst.offset(), dst.bytes()),
            signal: Some((word_at(pe, signal), op.change())),
        };
        let event = self.announcement(operation, form.completion(Direction::Put), form.strong);
        let _call = watch::lead(group, form.name, event);
        // Everything is in heaps of a P2P peer. The data is stored by all threads, the signal after a barrier by the
        // leader.
        if self.applies_to_mapped(op.kind())
            && let Some((there, here)) = self.p2p_operands(dst, src, pe)
            && self.parts_ref().has(signal.offset(), size_of::<Signal>() as u64)
        {
            // SAFETY: both are inside of their heaps.
            unsafe { copy(group, there, here.cast_const(), src.len()) };
            // The source has been read and the signal cannot fail, so no thread waits for the leader.
            return self.signal_by_leader(group, update, pe);
        }
        let complete = form.waits;
        let (dst, src, unit, signal) = (end_of(dst), end_of(src), unit_of::<T>(), signal.offset());
        let put = SignalPut { dst, src, unit, signal, op, value, pe, complete };
        put_signal_slow::<G, S>(group, CtxRef::of(self), put)
    }

    /// Returns the event that reports a signal to the sanitizer.
    #[inline(always)]
    fn announcement(&self, operation: Operation, completion: Completion, after_all: bool) -> Event {
        Event::Post(Posting { context: self.parts_ref().first_set, operation, completion, after_all })
    }

    #[inline(always)]
    #[track_caller]
    fn emit_signal(&self, update: SignalUpdate, pe: u32) -> Result {
        let SignalUpdate { signal, op, value } = update;
        self.post_op(signal, op.kind(), op.operand(value), pe)
    }

    /// Applies a signal update in the leader, once all threads of the group have stored their data.
    #[inline(always)]
    #[track_caller]
    fn signal_by_leader<G: Group>(&self, group: G, update: SignalUpdate, pe: u32) -> Result {
        group.sync();
        if !group.leader() {
            return Ok(());
        }
        // The barrier orders the other threads' stores before this one; the release extends that to observers on other
        // PEs.
        Sys::release();
        self.emit_signal(update, pe)
    }
}

/// Arguments of a put with signal, in plain words.
#[derive(Clone, Copy)]
struct SignalPut {
    dst: End,
    src: End,
    unit: Unit,
    /// Heap offset of the signal word.
    signal: u64,
    op: SignalOp,
    value: u64,
    pe: u32,
    complete: bool,
}

outlined! {
    /// Executes a put with signal where the fast path for heaps of P2P peers does not apply.
    #[track_caller]
    fn put_signal_slow[G: Group, S: Sharing](
        group: G,
        ctx_ref: CtxRef;
        put: SignalPut {
            dst: End,
            src: End,
            unit: Unit,
            signal: u64,
            op: SignalOp,
            value: u64,
            pe: u32,
            complete: bool,
        }
    ) -> Result {
        let SignalPut { dst, src, unit: (size, align), signal, op, value, pe, complete } = put;
        let (ctx, word) = (ctx_ref.ctx::<S>(), size_of::<Signal>() as u64);
        if !(ctx.has(signal, word) && ctx.may_transfer(dst, src, size, pe)) {
            let mut why = Ok(());
            if group.leader() {
                ctx.check_bytes(signal, word)?;
                why = ctx.check_transfer(dst, src, size, pe);
            }
            return Err(refused(why));
        }
        let bytes = src.1 * size as u64;
        // SAFETY: the offset of a signal, as has been checked.
        let update = SignalUpdate { signal: unsafe { Sym::from_raw(signal) }, op, value };
        let mine = if let Some((there, here)) = ctx.mapped_operands(dst, src, pe) {
            let threads = (group.rank(), group.size());
            // SAFETY: both are inside of their heaps, or segments.
            unsafe { copy_part(threads, there, here.cast_const(), bytes as usize, align as usize) };
            ctx.signal_by_leader(group, update, pe)
        } else if group.leader() {
            let qp = ctx.atomic_qp(pe);
            let (there, here) = (ctx.remote_data(&qp, dst.0), ctx.local_data(&qp, src.0));
            let site = Location::caller();
            if ctx.peer_atomic_addr::<u64>(pe, signal).is_some() {
                // Other atomics on this word are processor atomics, so this one must be, too. The data must be in
                // memory first, not merely acknowledged.
                let transfer = NicTransfer { direction: Direction::Put, there, here, bytes, complete: true };
                let (code, _) = send_to::<G, S>(group, (qp.peer_entry(), qp.is_dc()), site, transfer);
                let sent = if code != 0 { outcome(code) } else { quiet_pe_slow::<S>(ctx_ref, pe) };
                sent.and_then(|()| ctx.emit_signal(update, pe))
            } else {
                let signal = ctx.remote_word(&qp, signal);
                let put = NicSignalPut { there, here, bytes, signal, op, value, complete };
                send_put_signal::<G, S>(group, qp.peer_entry(), site, put)
            }
        } else {
            Ok(())
        };
        agree(group, mine)
    }
}

/// A put with signal through a NIC, whose operands are given by address and memory key.
#[derive(Clone, Copy)]
struct NicSignalPut {
    there: (u64, u32),
    here: (u64, u32),
    bytes: u64,
    signal: (u64, u32),
    op: SignalOp,
    value: u64,
    complete: bool,
}

outlined! {
    /// Posts a put with signal to a NIC, from the leader. Outlined to keep kernels with many calls small.
    fn send_put_signal[G: Group, S: Sharing](
        group: G,
        entry: *mut QpEntry,
        site: Site;
        put: NicSignalPut {
            there: (u64, u32),
            here: (u64, u32),
            bytes: u64,
            signal: (u64, u32),
            op: SignalOp,
            value: u64,
            complete: bool,
        }
    ) -> Result {
        let NicSignalPut { there: (mut raddr, rkey), here: (mut laddr, lkey), bytes: mut left, .. } = put;
        let NicSignalPut { signal, op, value, complete, .. } = put;
        // SAFETY: the caller has it from a QP.
        let qp = unsafe { Qp::<S>::of(entry) };
        let op = Op::<8>::new(op.kind(), value);
        // The QP executes in order, so messages other than the last can be posted separately. The last one is posted
        // together with the atomic, if the queue can hold both.
        while left > MAX_MESSAGE {
            let _ = post(group, &qp, 1, &Wqe::Write { raddr, rkey, laddr, lkey, len: MAX_MESSAGE as u32 }, site)?;
            raddr += MAX_MESSAGE;
            laddr += MAX_MESSAGE;
            left -= MAX_MESSAGE;
        }
        let write = Wqe::Write { raddr, rkey, laddr, lkey, len: left as u32 };
        let (update, blocks_of_update) = without_result(&qp, signal, op);
        let blocks = qp.blocks(2, 1 + blocks_of_update);
        // Without data there is nothing for the signal to follow.
        let ticket = if left == 0 {
            post_atomic(group, &qp, signal, op, site)?
        } else if blocks <= qp.depth() {
            let posting = begin(&qp, Lanes::of(group, &qp, blocks, site), blocks, site)?;
            let next = posting.write(&qp, posting.first, &write, Flags::NONE);
            posting.write(&qp, next, &update, posting.last);
            posting.commit(&qp)
        } else {
            let _ = post(group, &qp, 1, &write, site)?;
            post_atomic(group, &qp, signal, op, site)?
        };
        if complete { qp.wait(ticket, site) } else { Ok(()) }
    }
}
