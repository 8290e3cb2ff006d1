//! Signals, and waiting on words that remote PEs update.

use core::panic::Location;

use bytemuck::Pod;
use rushmem_mlx5::{Flags, Wqe};

use crate::abi::{DevAddr, QpEntry};
use crate::amo::{Amo, Kind, Op, post_atomic, unwanted};
use crate::arch::{Scope, Sys, SysWord};
use crate::copy::copy;
use crate::ctx::Ctx;
use crate::error::{Detail, Error, Result, Site, record};
use crate::group::{Group, agree};
use crate::heap::{Signal, Sym, SymSlice};
use crate::post::{Lanes, begin, post};
use crate::qp::Qp;
use crate::rma::MAX_MESSAGE;
use crate::sharing::Sharing;
use crate::wait::Watch;

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

/// What a word must be to its wanted value. OpenSHMEM 1.6 section 9.10, the `SHMEM_CMP_*` constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cmp {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Greater.
    Gt,
    /// Greater or equal.
    Ge,
    /// Less.
    Lt,
    /// Less or equal.
    Le,
}

impl Cmp {
    #[inline(always)]
    fn holds<T: PartialOrd>(self, found: T, wanted: T) -> bool {
        match self {
            Self::Eq => found == wanted,
            Self::Ne => found != wanted,
            Self::Gt => found > wanted,
            Self::Ge => found >= wanted,
            Self::Lt => found < wanted,
            Self::Le => found <= wanted,
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
        src: SymSlice<T>,
        signal: Sym<Signal>,
        op: SignalOp,
        value: u64,
        pe: u32,
    ) -> Result {
        self.announced(group, dst, src, signal, op, value, pe, false)
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
        src: SymSlice<T>,
        signal: Sym<Signal>,
        op: SignalOp,
        value: u64,
        pe: u32,
    ) -> Result {
        self.announced(group, dst, src, signal, op, value, pe, true)
    }

    /// The value of this PE's own signal word. Acquires: what the signal announced may be read afterwards.
    /// OpenSHMEM 1.6 section 9.8.4, `shmem_signal_fetch`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    #[inline(always)]
    #[track_caller]
    pub fn signal_fetch(&self, signal: Sym<Signal>) -> Result<u64> {
        self.check(signal)?;
        // SAFETY: checked to be inside of this PE's heap, and aligned by the allocator.
        Ok(unsafe { <u64 as SysWord>::load_acquire(self.address(signal.offset())) })
    }

    /// Waits until this PE's signal word compares so with `value`; then what the signal announced may be read by
    /// all threads of the group. Returns the word's value, read after the condition held.
    ///
    /// OpenSHMEM 1.6 section 9.10, `shmem_signal_wait_until`.
    ///
    /// # Errors
    /// [`Error::WaitTimeout`] after the deadline (the record tells the word, its value and the value wanted),
    /// [`Error::Aborted`] when the job ends, [`Error::OutOfRange`].
    #[inline(always)]
    #[track_caller]
    pub fn signal_wait_until<G: Group>(
        &self,
        group: G,
        signal: Sym<Signal>,
        cmp: Cmp,
        value: u64,
    ) -> Result<u64> {
        self.wait_until(group, signal, cmp, value)?;
        self.signal_fetch(signal)
    }

    /// Waits until a word of this PE compares so with `value`. OpenSHMEM 1.6 section 9.10, `shmem_wait_until`.
    ///
    /// # Errors
    /// As [`Ctx::signal_wait_until`].
    #[inline(always)]
    #[track_caller]
    pub fn wait_until<G: Group, T: Amo + PartialOrd>(
        &self,
        group: G,
        word: Sym<T>,
        cmp: Cmp,
        value: T,
    ) -> Result {
        let mine = if group.leader() { self.await_word(word, cmp, value) } else { Ok(()) };
        agree(group, mine)
    }

    /// True if a word of this PE compares so with `value` now. Acquires. OpenSHMEM 1.6 section 9.10, `shmem_test`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    #[inline(always)]
    #[track_caller]
    pub fn test<T: Amo + PartialOrd>(&self, word: Sym<T>, cmp: Cmp, value: T) -> Result<bool> {
        self.check(word)?;
        Ok(cmp.holds(self.own(word), value))
    }

    /// A word of this PE; checked by the caller.
    #[inline(always)]
    fn own<T: Amo>(&self, word: Sym<T>) -> T {
        // SAFETY: the caller checked that it is inside of this PE's heap; the allocator aligned it.
        T::from_word(unsafe { T::Word::load_acquire(self.address(word.offset())) })
    }

    #[inline(always)]
    #[track_caller]
    pub(crate) fn await_word<T: Amo + PartialOrd>(&self, word: Sym<T>, cmp: Cmp, value: T) -> Result {
        self.check(word)?;
        if cmp.holds(self.own(word), value) {
            return Ok(());
        }
        let (at, offset) = (self.address(word.offset()), word.offset());
        // SAFETY: checked to be inside of this PE's heap; the allocator aligned it.
        unsafe { await_address(self.parts_ref().state, at, offset, cmp, value, Location::caller()) }
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
        group.sync();
        let checked = if group.leader() { self.check_announced(dst, src, signal, pe) } else { Ok(()) };
        agree(group, checked)?;
        let peer = self.peer(pe)?;
        let mine = if let Some(there) = peer.mapped::<T>(dst.offset()) {
            let here = self.address::<T>(src.offset());
            // SAFETY: both were checked to be inside of their heaps.
            unsafe { copy(group, there, here.cast_const(), src.len()) };
            group.sync();
            if group.leader() {
                Sys::fence();
                self.posting(signal, op.kind(), value, pe)
            } else {
                Ok(())
            }
        } else if group.leader() {
            let qp = self.atomic_qp(pe);
            let (there, here) = (self.remote_end(&qp, dst.offset()), self.local_end(&qp, src.offset()));
            let word = self.remote_end(&qp, signal.offset());
            let (entry, bytes, site) = (qp.entry(), src.bytes(), Location::caller());
            send_announced::<G, S>(group, entry, there, here, bytes, word, op, value, complete, site)
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
        let next = qp.write(posting.first, &write, Flags::NONE);
        qp.write(next, &unwanted(&qp, signal, op), posting.last);
        posting.commit(&qp, Ok(()))?
    } else {
        let _ = post(group, &qp, 1, &write, site)?;
        post_atomic(group, &qp, signal, op, site)?
    };
    if complete { qp.wait(ticket, site) } else { Ok(()) }
}

/// Polls the word at `at`, which is `offset` in the heap, until it compares so. Not inlined: a wait is not worth the
/// registers that it would take of every kernel.
///
/// # Safety
/// `at` is a word that is only accessed atomically while others write it.
#[inline(never)]
unsafe fn await_address<T: Amo + PartialOrd>(
    state: DevAddr,
    at: *const T::Word,
    offset: u64,
    cmp: Cmp,
    value: T,
    site: Site,
) -> Result {
    let mut watch = Watch::new(state);
    loop {
        // SAFETY: the caller's promise.
        let found = T::from_word(unsafe { T::Word::load_acquire(at) });
        if cmp.holds(found, value) {
            return Ok(());
        }
        match watch.turn() {
            Ok(()) => {}
            Err(Error::Timeout) => {
                let d = Detail { found: found.bits(), wanted: value.bits(), offset, ..Detail::NONE };
                return Err(record(state, Error::WaitTimeout, d, site));
            }
            Err(other) => return Err(other),
        }
    }
}
