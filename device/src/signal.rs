//! Signals: words that say that data has come.
#![allow(unsafe_code, reason = "accesses checked addresses of mapped heaps, and QPs by entry")]

use core::panic::Location;

use bytemuck::Pod;
use rushmem_mlx5::{Flags, Wqe};

use crate::abi::QpEntry;
use crate::amo::{Kind, Op, atomic_to_sink, post_atomic};
use crate::arch::{self, Scope, Sys, SysWord};
use crate::copy::{copy, copy_part};
use crate::ctx::Ctx;
use crate::ctx_ref::CtxRef;
use crate::error::{Result, Site, outcome};
use crate::group::{Group, agree, refused};
use crate::heap::{LocalBuffer, Signal, Sym, SymSlice, local_operand};
use crate::post::{Lanes, begin, post};
use crate::rma::{Direction, End, MAX_MESSAGE, Unit, end_of, send, unit_of};
use crate::sharing::Sharing;
use crate::sq::Qp;

/// How a signal changes its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalOp {
    /// `SHMEM_SIGNAL_SET`: the word becomes the value.
    Set,
    /// `SHMEM_SIGNAL_ADD`: the value is added, wrapping.
    Add,
}

impl SignalOp {
    #[inline(always)]
    fn kind(self) -> Kind {
        match self {
            Self::Set => Kind::Set,
            Self::Add => Kind::Add,
        }
    }
}

impl<S: Sharing> Ctx<S> {
    /// Changes a signal word of `pe`; returns once posted.
    ///
    /// Ordered after nothing: use [`Ctx::put_signal_nbi`] for a signal that announces data. Signals are atomics:
    /// see the [`amo`](crate::amo) module for what they are atomic with. NVSHMEM's `nvshmemx_signal_op`.
    ///
    /// # Errors
    /// As [`Ctx::put_nbi`].
    #[inline(always)]
    #[track_caller]
    pub fn signal_op(&self, signal: Sym<Signal>, op: SignalOp, value: u64, pe: u32) -> Result {
        self.signal_word(signal, op, value, pe)
    }

    /// Starts to copy `src` to `dst` of `pe`, and then to change `signal` there: whoever sees the signal's new value
    /// (by [`Ctx::signal_wait_until`]) sees the data. Returns once posted.
    ///
    /// The signal covers this call's data only, not earlier puts. OpenSHMEM 1.6 section 9.8.3,
    /// `shmem_put_signal_nbi`. On a NIC: RDMA WRITE and an atomic on one QP, one reservation and one doorbell.
    ///
    /// # Errors
    /// As [`Ctx::put_nbi`].
    #[inline(always)]
    #[track_caller]
    #[allow(clippy::too_many_arguments)] // the field's signature
    pub fn put_signal_nbi<G: Group, T: Pod>(
        &self,
        group: G,
        dst: SymSlice<T>,
        src: impl LocalBuffer<T>,
        signal: Sym<Signal>,
        op: SignalOp,
        value: u64,
        pe: u32,
    ) -> Result {
        self.put_then_signal(group, dst, local_operand(src), signal, op, value, pe, false)
    }

    /// As [`Ctx::put_signal_nbi`], and returns once `src` may be reused. OpenSHMEM 1.6 section 9.8.2,
    /// `shmem_put_signal`.
    ///
    /// # Errors
    /// As [`Ctx::put`].
    #[inline(always)]
    #[track_caller]
    #[allow(clippy::too_many_arguments)] // the field's signature
    pub fn put_signal<G: Group, T: Pod>(
        &self,
        group: G,
        dst: SymSlice<T>,
        src: impl LocalBuffer<T>,
        signal: Sym<Signal>,
        op: SignalOp,
        value: u64,
        pe: u32,
    ) -> Result {
        self.put_then_signal(group, dst, local_operand(src), signal, op, value, pe, true)
    }

    /// As [`Ctx::signal_op`], after everything that was put, set or signalled to `pe` through this context before, by the
    /// threads of the group or by others that have synchronised with them: a *strong* signal. Whoever sees it sees all
    /// of that, whatever queues and NICs it took. With one QP for the peer it costs nothing more than a signal; with
    /// several, the group's leader first waits for all of them. GIN's `StrongSignal`.
    ///
    /// # Errors
    /// As [`Ctx::signal_op`] and [`Ctx::quiet`].
    #[inline(always)]
    #[track_caller]
    pub fn signal_after_all<G: Group>(
        &self,
        group: G,
        signal: Sym<Signal>,
        op: SignalOp,
        value: u64,
        pe: u32,
    ) -> Result {
        group.sync();
        Sys::fence();
        let mine = if group.leader() {
            match self.order_queues(pe) {
                Ok(()) => self.signal_word(signal, op, value, pe),
                Err(error) => Err(error),
            }
        } else {
            Ok(())
        };
        agree(group, mine)
    }

    /// As [`Ctx::put_signal_nbi`], with a strong signal: it covers this data and, as [`Ctx::signal_after_all`],
    /// everything before.
    ///
    /// # Errors
    /// As [`Ctx::put_signal_nbi`] and [`Ctx::quiet`].
    #[inline(always)]
    #[track_caller]
    #[allow(clippy::too_many_arguments)] // the field's signature
    pub fn put_signal_after_all<G: Group, T: Pod>(
        &self,
        group: G,
        dst: SymSlice<T>,
        src: impl LocalBuffer<T>,
        signal: Sym<Signal>,
        op: SignalOp,
        value: u64,
        pe: u32,
    ) -> Result {
        group.sync();
        Sys::fence();
        let mine = if group.leader() { self.order_queues(pe) } else { Ok(()) };
        agree(group, mine)?;
        self.put_then_signal(group, dst, local_operand(src), signal, op, value, pe, false)
    }

    /// The value of this PE's own signal word. Acquires: what the signal announced may be read afterwards.
    /// OpenSHMEM 1.6 section 9.8.4, `shmem_signal_fetch`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange).
    #[inline(always)]
    #[track_caller]
    pub fn signal_fetch(&self, signal: Sym<Signal>) -> Result<u64> {
        let at = self.local_addr(signal.as_slice())?;
        // SAFETY: a word of this PE's memory, aligned by the allocator.
        Ok(unsafe { <u64 as SysWord>::load_acquire(at.cast()) })
    }

    /// Sets this PE's own signal word to 0, as a signal does; returns what it held. For a word that nobody signals at
    /// this time. GIN's `resetSignal`.
    ///
    /// # Errors
    /// As [`Ctx::atomic_swap`].
    #[inline(always)]
    #[track_caller]
    pub fn signal_reset(&self, signal: Sym<Signal>) -> Result<u64> {
        self.atomic_swap(signal, 0, self.my_pe())
    }

    #[inline(always)]
    #[track_caller]
    #[allow(clippy::too_many_arguments)] // one place for both forms above
    fn put_then_signal<G: Group, T: Pod>(
        &self,
        group: G,
        dst: SymSlice<T>,
        src: SymSlice<T>,
        signal: Sym<Signal>,
        op: SignalOp,
        value: u64,
        pe: u32,
        complete: bool,
    ) -> Result {
        if !G::READY {
            group.sync();
        }
        if self.p2p_all()
            && let Some((there, here)) = self.p2p_operands(dst, src, pe)
            && self.parts_ref().has(signal.offset(), size_of::<Signal>() as u64)
        {
            // SAFETY: both are inside of their heaps.
            unsafe { copy(group, there, here.cast_const(), src.len()) };
            // It cannot fail, and the source has been read: nobody waits for the leader.
            return self.signal_stored(group, signal, op, value, pe);
        }
        let (ctx_ref, there, here) = (CtxRef::of(self), end_of(dst), end_of(src));
        let unit = unit_of::<T>();
        put_signal_slow::<G, S>(group, ctx_ref, there, here, unit, signal.offset(), op, value, pe, complete)
    }

    /// Changes a signal word. As a rule one thread of a warp does.
    #[inline(always)]
    #[track_caller]
    fn signal_word(&self, signal: Sym<Signal>, op: SignalOp, value: u64, pe: u32) -> Result {
        let value = if op == SignalOp::Add { arch::opaque(value) } else { value };
        self.post_op(signal, op.kind(), value, pe)
    }

    /// The signal that covers data which all threads of the group have stored, by the leader.
    #[inline(always)]
    #[track_caller]
    fn signal_stored<G: Group>(
        &self,
        group: G,
        signal: Sym<Signal>,
        op: SignalOp,
        value: u64,
        pe: u32,
    ) -> Result {
        group.sync();
        if !group.leader() {
            return Ok(());
        }
        Sys::release();
        self.signal_word(signal, op, value, pe)
    }
}

/// A put with signal that is not between the heaps of near PEs.
#[inline(never)]
#[track_caller]
#[allow(clippy::too_many_arguments)] // plain words, or every kernel would get a stack
fn put_signal_slow<G: Group, S: Sharing>(
    group: G,
    ctx_ref: CtxRef,
    dst: End,
    src: End,
    (size, align): Unit,
    signal: u64,
    op: SignalOp,
    value: u64,
    pe: u32,
    complete: bool,
) -> Result {
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
    let to = unsafe { Sym::from_raw(signal) };
    let mine = if let Some((there, here)) = ctx.mapped_operands(dst, src, pe) {
        let threads = (group.rank(), group.size());
        // SAFETY: both are inside of their heaps, or segments.
        unsafe { copy_part(threads, there, here.cast_const(), bytes as usize, align as usize) };
        ctx.signal_stored(group, to, op, value, pe)
    } else if group.leader() {
        let qp = ctx.atomic_qp(pe);
        let (there, here) = (ctx.remote_end(&qp, dst.0), ctx.local_end(&qp, src.0));
        let (entry, site) = (qp.entry(), Location::caller());
        if ctx.peer_atomic_addr::<u64>(pe, signal).is_some() {
            // The word's other atomics are the processors', and so is this one: once the data is there.
            let (code, _) = send::<G, S>(group, entry, Direction::Put, there, here, bytes, true, site);
            if code != 0 { outcome(code) } else { ctx.signal_word(to, op, value, pe) }
        } else {
            let word = ctx.remote_end(&qp, signal);
            send_put_signal::<G, S>(group, entry, there, here, bytes, word, op, value, complete, site)
        }
    } else {
        Ok(())
    };
    agree(group, mine)
}

/// The leader's part of a put with signal through a NIC: `left` bytes from `laddr` here to `raddr` at the peer, then the
/// word at `signal` there, each with its key. Not inlined, so that a kernel with many stays small.
#[inline(never)]
#[allow(clippy::too_many_arguments)] // plain words, or every kernel would get a stack
fn send_put_signal<G: Group, S: Sharing>(
    group: G,
    entry: *mut QpEntry,
    (mut raddr, rkey): (u64, u32),
    (mut laddr, lkey): (u64, u32),
    mut left: u64,
    signal: (u64, u32),
    op: SignalOp,
    value: u64,
    complete: bool,
    site: Site,
) -> Result {
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    let op = Op::<8>::new(op.kind(), value);
    // The QP executes in order: all but the last message are posted by themselves, the last one together with the
    // atomic if the queue can hold both.
    while left > MAX_MESSAGE {
        let _ = post(group, &qp, 1, &Wqe::Write { raddr, rkey, laddr, lkey, len: MAX_MESSAGE as u32 }, site)?;
        raddr += MAX_MESSAGE;
        laddr += MAX_MESSAGE;
        left -= MAX_MESSAGE;
    }
    let write = Wqe::Write { raddr, rkey, laddr, lkey, len: left as u32 };
    let blocks = 1 + op.blocks();
    let ticket = if left == 0 {
        post_atomic(group, &qp, signal, op, site)?
    } else if blocks <= qp.depth() {
        let posting = begin(&qp, Lanes::of(group, &qp, blocks, site), blocks, site)?;
        let next = posting.write(&qp, posting.first, &write, Flags::NONE);
        posting.write(&qp, next, &atomic_to_sink(&qp, signal, op), posting.last);
        posting.commit(&qp)
    } else {
        let _ = post(group, &qp, 1, &write, site)?;
        post_atomic(group, &qp, signal, op, site)?
    };
    if complete { qp.wait(ticket, site) } else { Ok(()) }
}
