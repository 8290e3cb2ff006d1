//! Signals, waits and tests of the host.

use bytemuck::Pod;
use rushmem_device::amo::Amo;
use rushmem_device::{Cmp, Signal, SignalOp, Sym, SymSlice};
use rushmem_runtime_kernels::code::Atomic;

use crate::work::Announcement;
use crate::{Pe, Result};

impl Pe {
    /// Copies `src` of this PE to `dst` of `pe`, and then changes `signal` there: whoever sees the signal's new value
    /// sees the data. Returns once `src` may be reused. OpenSHMEM 1.6 section 9.8.2, `shmem_put_signal`.
    ///
    /// # Errors
    /// As [`Pe::put`].
    pub fn put_signal<T: Pod>(
        &self,
        dst: SymSlice<T>,
        src: SymSlice<T>,
        signal: Sym<Signal>,
        op: SignalOp,
        value: u64,
        pe: u32,
    ) -> Result<()> {
        let announcement = Announcement { signal, op, value };
        self.initiate(self.op_put_signal("put_signal", false, dst, src, announcement, pe)?)
    }

    /// As [`Pe::put_signal`], but returns once posted: `src` must not change before [`Pe::quiet`]. OpenSHMEM 1.6 section
    /// 9.8.3, `shmem_put_signal_nbi`.
    ///
    /// # Errors
    /// As [`Pe::put`].
    pub fn put_signal_nbi<T: Pod>(
        &self,
        dst: SymSlice<T>,
        src: SymSlice<T>,
        signal: Sym<Signal>,
        op: SignalOp,
        value: u64,
        pe: u32,
    ) -> Result<()> {
        let announcement = Announcement { signal, op, value };
        self.initiate(self.op_put_signal("put_signal_nbi", true, dst, src, announcement, pe)?)
    }

    /// Changes a signal word of `pe`. It says nothing about earlier puts, unless [`Pe::fence`] lies between. NVSHMEM's
    /// `nvshmemx_signal_op`.
    ///
    /// # Errors
    /// As [`Pe::put`].
    pub fn signal_op(&self, signal: Sym<Signal>, op: SignalOp, value: u64, pe: u32) -> Result<()> {
        let what = if op == SignalOp::Set { Atomic::Set } else { Atomic::Add };
        self.initiate(self.op_atomic("signal_op", what, signal, value, 0, None, pe)?)
    }

    /// The value of this PE's own signal word; what it announces may be read afterwards. OpenSHMEM 1.6 section 9.8.4,
    /// `shmem_signal_fetch`.
    ///
    /// # Errors
    /// As [`Pe::put`].
    pub fn signal_fetch(&self, signal: Sym<Signal>) -> Result<u64> {
        // Every value is: the wait ends at its first look.
        self.ask(|seen| self.op_wait("signal_fetch", signal, Cmp::Ge, 0, Some(seen)))
    }

    /// Waits until this PE's signal word compares so with `value`; returns its value. What the signal announced may be
    /// read afterwards. OpenSHMEM 1.6 section 9.10, `shmem_signal_wait_until`.
    ///
    /// # Errors
    /// As [`Pe::put`]; [`WaitTimeout`](rushmem_device::Error::WaitTimeout) within [`Error::Operation`] after the
    /// deadline, with the word, its value and the value wanted.
    ///
    /// [`Error::Operation`]: crate::Error::Operation
    pub fn signal_wait_until(&self, signal: Sym<Signal>, cmp: Cmp, value: u64) -> Result<u64> {
        self.ask(|seen| self.op_wait("signal_wait_until", signal, cmp, value, Some(seen)))
    }

    /// Waits until a word of this PE compares so with `value`; for sets of words see [`Words`](crate::Words). OpenSHMEM 1.6 section 9.10, `shmem_wait_until`.
    ///
    /// # Errors
    /// As [`Pe::signal_wait_until`].
    pub fn wait_until<T: Amo + PartialOrd>(&self, word: Sym<T>, cmp: Cmp, value: T) -> Result<()> {
        self.initiate(self.op_wait("wait_until", word, cmp, value, None)?)
    }

    /// True if a word of this PE compares so with `value` now; then what it announces may be read. OpenSHMEM 1.6 section
    /// 9.10, `shmem_test`.
    ///
    /// # Errors
    /// As [`Pe::put`].
    pub fn test<T: Amo + PartialOrd>(&self, word: Sym<T>, cmp: Cmp, value: T) -> Result<bool> {
        Ok(self.ask::<u64>(|holds| self.op_test("test", word, cmp, value, holds))? != 0)
    }
}
