//! Signals: words that say that data has come.

use core::panic::Location;

use bytemuck::Pod;
use rushmem_mlx5::{Flags, Wqe};

use crate::abi::QpEntry;
use crate::amo::{Kind, Op, post_atomic, unwanted};
use crate::arch::{Scope, Sys, SysWord};
use crate::copy::copy;
use crate::ctx::Ctx;
use crate::error::{Result, Site, outcome};
use crate::group::{Group, agree, refused};
use crate::heap::{LocalBuffer, Signal, Sym, SymSlice, near};
use crate::post::{Lanes, begin, post};
use crate::qp::Qp;
use crate::rma::{Direction, MAX_MESSAGE, send};
use crate::sharing::Sharing;

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
        self.posting(signal, op.kind(), value, pe)
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
        self.announced(group, dst, near(src), signal, op, value, pe, false)
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
        self.announced(group, dst, near(src), signal, op, value, pe, true)
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
            self.in_one_queue(pe).and_then(|()| self.posting(signal, op.kind(), value, pe))
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
        let mine = if group.leader() { self.in_one_queue(pe) } else { Ok(()) };
        agree(group, mine)?;
        self.announced(group, dst, near(src), signal, op, value, pe, false)
    }

    /// The value of this PE's own signal word. Acquires: what the signal announced may be read afterwards.
    /// OpenSHMEM 1.6 section 9.8.4, `shmem_signal_fetch`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange).
    #[inline(always)]
    #[track_caller]
    pub fn signal_fetch(&self, signal: Sym<Signal>) -> Result<u64> {
        self.check(signal)?;
        // SAFETY: checked to be inside of this PE's heap, and aligned by the allocator.
        Ok(unsafe { <u64 as SysWord>::load_acquire(self.address(signal.offset())) })
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
    fn check_announced<T: Pod>(
        &self,
        dst: SymSlice<T>,
        src: SymSlice<T>,
        signal: Sym<Signal>,
        pe: u32,
    ) -> Result {
        self.check(signal)?;
        self.check_transfer(dst, src, pe)
    }

    #[inline(always)]
    #[track_caller]
    #[allow(clippy::too_many_arguments)] // one place for both forms above
    fn announced<G: Group, T: Pod>(
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
        // What covers the data, which all threads of the group have stored: for the leader.
        let signalled = || {
            group.sync();
            if group.leader() {
                Sys::release();
                self.posting(signal, op.kind(), value, pe)
            } else {
                Ok(())
            }
        };
        if self.all_near()
            && let Some((there, here)) = self.quick_places(dst, src, pe)
            && signal.as_slice().fits(self.parts_ref().heap_bytes)
        {
            // SAFETY: both are inside of their heaps.
            unsafe { copy(group, there, here.cast_const(), src.len()) };
            // It cannot fail, and the source has been read: nobody waits for the leader.
            return signalled();
        }
        if !(self.has(signal.as_slice()) && self.may_transfer(dst, src, pe)) {
            let leads = group.leader();
            return refused(if leads { self.check_announced(dst, src, signal, pe) } else { Ok(()) });
        }
        let mine = if let Some((there, here)) = self.places(dst, src, pe) {
            // SAFETY: as above, or of their segments.
            unsafe { copy(group, there, here.cast_const(), src.len()) };
            signalled()
        } else if group.leader() {
            let qp = self.atomic_qp(pe);
            let (there, here) = (self.remote_end(&qp, dst.offset()), self.local_end(&qp, src.offset()));
            let word = self.remote_end(&qp, signal.offset());
            let (entry, bytes, site) = (qp.entry(), src.bytes(), Location::caller());
            if self.at_peer(pe).mapped_for_atomics::<u64>(signal.offset()).is_some() {
                // The word's other atomics are the processors', and so is this one: once the data is there.
                let (code, _) = send::<G, S>(group, entry, Direction::Put, there, here, bytes, true, site);
                let sent = outcome(code);
                sent.and_then(|()| self.posting(signal, op.kind(), value, pe))
            } else {
                send_announced::<G, S>(group, entry, there, here, bytes, word, op, value, complete, site)
            }
        } else {
            Ok(())
        };
        agree(group, mine)
    }
}

/// The leader's part of a put with signal through a NIC: `left` bytes from `laddr` here to `raddr` at the peer, then the
/// word at `signal` there, each with its key. Not inlined, so that a kernel with many stays small.
#[inline(never)]
#[allow(clippy::too_many_arguments)] // plain words, or every kernel would get a stack
fn send_announced<G: Group, S: Sharing>(
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
        posting.write(&qp, next, &unwanted(&qp, signal, op), posting.last);
        posting.commit(&qp)
    } else {
        let _ = post(group, &qp, 1, &write, site)?;
        post_atomic(group, &qp, signal, op, site)?
    };
    if complete { qp.wait(ticket, site) } else { Ok(()) }
}
