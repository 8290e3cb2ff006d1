//! Host operations that return a value, or that transfer the host's own slices.

use std::time::Instant;

use bytemuck::Pod;
use rushmem_device::amo::{Addend, Amo, AmoWord};
use rushmem_device::{Cmp, Scalar, Signal, Sym, SymSlice};
use rushmem_error::call_site;
use rushmem_runtime_kernels::code::{Atomic, Transfer};

use super::Issue;
use super::describe::one;
use crate::launch_queue::{Operation, StagingBuffer};
use crate::{Error, Pe, Result};

/// # Operations that return a value
///
/// Reads, atomics, waits and tests that the host initiates. [`Operations`](crate::Operations) has those that return
/// nothing.
impl Pe {
    /// Reads `src` on `pe` and returns its value. OpenSHMEM 1.6 section 9.5, `shmem_g`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](crate::Operations#errors).
    #[track_caller]
    pub fn g<T: Scalar>(&self, src: Sym<T>, pe: u32) -> Result<T> {
        self.fetch_result(|result| {
            self.op_transfer("g", Transfer::Get, src.as_slice(), result.as_slice(), pe)
        })
    }

    /// Sets `word` on `pe` to `value`. Returns the old value. OpenSHMEM 1.6 section 9.7, `shmem_atomic_swap`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](crate::Operations#errors).
    #[track_caller]
    pub fn atomic_swap<T: AmoWord>(&self, word: Sym<T>, value: T, pe: u32) -> Result<T> {
        self.fetch_result(|result| self.op_atomic("atomic_swap", Atomic::Set, Some(result), word, value, pe))
    }

    /// Adds `value` to `word` on `pe`. Integers wrap, floats round. Returns the old value. OpenSHMEM 1.6 section 9.7,
    /// `shmem_atomic_fetch_add`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](crate::Operations#errors).
    #[track_caller]
    pub fn atomic_fetch_add<T: Addend>(&self, word: Sym<T>, value: T, pe: u32) -> Result<T> {
        self.fetch_result(|result| {
            self.op_atomic("atomic_fetch_add", Atomic::Add, Some(result), word, value, pe)
        })
    }

    /// Replaces `word` on `pe` by its bitwise AND with `value`. Returns the old value. OpenSHMEM 1.6 section 9.7,
    /// `shmem_atomic_fetch_and`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](crate::Operations#errors).
    #[track_caller]
    pub fn atomic_fetch_and<T: Amo>(&self, word: Sym<T>, value: T, pe: u32) -> Result<T> {
        self.fetch_result(|result| {
            self.op_atomic("atomic_fetch_and", Atomic::And, Some(result), word, value, pe)
        })
    }

    /// Replaces `word` on `pe` by its bitwise OR with `value`. Returns the old value. OpenSHMEM 1.6 section 9.7,
    /// `shmem_atomic_fetch_or`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](crate::Operations#errors).
    #[track_caller]
    pub fn atomic_fetch_or<T: Amo>(&self, word: Sym<T>, value: T, pe: u32) -> Result<T> {
        self.fetch_result(|result| {
            self.op_atomic("atomic_fetch_or", Atomic::Or, Some(result), word, value, pe)
        })
    }

    /// Replaces `word` on `pe` by its bitwise XOR with `value`. Returns the old value. OpenSHMEM 1.6 section 9.7,
    /// `shmem_atomic_fetch_xor`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](crate::Operations#errors).
    #[track_caller]
    pub fn atomic_fetch_xor<T: Amo>(&self, word: Sym<T>, value: T, pe: u32) -> Result<T> {
        self.fetch_result(|result| {
            self.op_atomic("atomic_fetch_xor", Atomic::Xor, Some(result), word, value, pe)
        })
    }

    /// Adds 1 to `word` on `pe`, wrapping around. Returns the old value. OpenSHMEM 1.6 section 9.7,
    /// `shmem_atomic_fetch_inc`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](crate::Operations#errors).
    #[track_caller]
    pub fn atomic_fetch_inc<T: Amo>(&self, word: Sym<T>, pe: u32) -> Result<T> {
        self.fetch_result(|result| {
            self.op_atomic("atomic_fetch_inc", Atomic::Add, Some(result), word, one(), pe)
        })
    }

    /// Atomically reads `word` on `pe` and returns its value. OpenSHMEM 1.6 section 9.7, `shmem_atomic_fetch`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](crate::Operations#errors).
    #[track_caller]
    pub fn atomic_fetch<T: AmoWord>(&self, word: Sym<T>, pe: u32) -> Result<T> {
        self.fetch_result(|result| self.op_atomic_fetch("atomic_fetch", result, word, pe))
    }

    /// Sets `word` on `pe` to `value` if it holds `compare`. Returns the old value. OpenSHMEM 1.6 section 9.7,
    /// `shmem_atomic_compare_swap`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](crate::Operations#errors).
    #[track_caller]
    pub fn atomic_compare_swap<T: Amo>(&self, word: Sym<T>, compare: T, value: T, pe: u32) -> Result<T> {
        self.fetch_result(|result| {
            self.op_compare_swap("atomic_compare_swap", result, word, compare, value, pe)
        })
    }

    /// Returns the value of a signal on this PE. Data delivered before the signal, such as that of a `put_signal`, may
    /// be read afterwards. OpenSHMEM 1.6 section 9.8.4, `shmem_signal_fetch`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](crate::Operations#errors).
    #[track_caller]
    pub fn signal_fetch(&self, signal: Sym<Signal>) -> Result<u64> {
        // Always true, so the wait returns the first value it reads.
        self.fetch_result(|seen| self.op_wait("signal_fetch", Some(seen), signal, Cmp::Ge, 0))
    }

    /// Waits until a signal on this PE meets the condition that `cmp` and `value` express. Returns the signal's value.
    ///
    /// Data delivered before the signal, such as that of a `put_signal`, may be read afterwards. OpenSHMEM 1.6 section
    /// 9.10, `shmem_signal_wait_until`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](crate::Operations#errors).
    /// - `WaitTimeout` in [`Error::Operation`] if the deadline (setting `timeout`) expires. It contains the word, its
    ///   value and the expected value.
    #[track_caller]
    pub fn signal_wait_until(&self, signal: Sym<Signal>, cmp: Cmp, value: u64) -> Result<u64> {
        self.fetch_result(|seen| self.op_wait("signal_wait_until", Some(seen), signal, cmp, value))
    }

    /// Returns whether `word` on this PE meets the condition that `cmp` and `value` express. If so, data whose delivery
    /// was ordered before the update of the word may be read afterwards.
    ///
    /// OpenSHMEM 1.6 section 9.10, `shmem_test`.
    ///
    /// # Errors
    /// - [`Error::TestLoop`] if the host has done nothing but failing tests for as long as the setting `timeout`. The
    ///   same holds for all tests.
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](crate::Operations#errors).
    #[track_caller]
    pub fn test<T: Amo + PartialOrd>(&self, word: Sym<T>, cmp: Cmp, value: T) -> Result<bool> {
        let begin = Instant::now();
        let holds = self.fetch_result::<u64>(|holds| self.op_test("test", holds, word, cmp, value))? != 0;
        self.tested("test", begin, holds)?;
        Ok(holds)
    }

    /// Records the result of a test. Fails if a loop of tests has exceeded its deadline.
    #[track_caller]
    pub(super) fn tested(&self, call: &'static str, begin: Instant, passed: bool) -> Result<()> {
        let _site = call_site::enter();
        self.test_loop.record(call, passed, (begin, Instant::now()), self.config().timeout)
    }

    /// Copies the host's slice `data` to `dst` on `pe`. Returns once `data` may be reused.
    ///
    /// The data passes through staging buffers of 64 KiB. [`quiet`](crate::Operations::quiet) completes the copy.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](crate::Operations#errors).
    #[track_caller]
    pub fn put_from<T: Pod>(&self, dst: SymSlice<T>, data: &[T], pe: u32) -> Result<()> {
        self.pieces("put_from", dst, data.len(), |buffer, at, len| {
            let source = buffer.slice::<T>(len);
            self.heap().write(source.offset(), bytemuck::cast_slice(&data[at..at + len]))?;
            self.issue(|host| {
                host.op_transfer("put_from", Transfer::Put, dst.slice(at..at + len), source, pe)
            })
        })
    }

    /// Copies `src` on `pe` to the host's slice `data`, through staging buffers of 64 KiB.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for invalid arguments, and the [errors of all operations](crate::Operations#errors).
    #[track_caller]
    pub fn get_into<T: Pod>(&self, data: &mut [T], src: SymSlice<T>, pe: u32) -> Result<()> {
        self.pieces("get_into", src, data.len(), |buffer, at, len| {
            let target = buffer.slice::<T>(len);
            self.issue(|host| {
                host.op_transfer("get_into", Transfer::Get, src.slice(at..at + len), target, pe)
            })?;
            self.heap().read(target.offset(), bytemuck::cast_slice_mut(&mut data[at..at + len]))
        })
    }

    /// Splits `len` elements of `object` into pieces that fit into a staging buffer. Calls `each` with the buffer, the
    /// index of the piece's first element, and the piece's length.
    #[track_caller]
    fn pieces<T: Pod>(
        &self,
        call: &'static str,
        object: SymSlice<T>,
        len: usize,
        mut each: impl FnMut(&StagingBuffer<'_>, usize, usize) -> Result<()>,
    ) -> Result<()> {
        let _site = call_site::enter();
        let most = StagingBuffer::room::<T>();
        if len != object.len() {
            let what = format!("{len} elements for an object of {}", object.len());
            return Err(Error::misuse(call, what));
        }
        if most == 0 {
            let what = format!(
                "an element of {} bytes is larger than a staging buffer of 64 KiB; use put or get",
                size_of::<T>()
            );
            return Err(Error::misuse(call, what));
        }
        if len == 0 {
            return Ok(());
        }
        let buffer = self.launch_queues().scratch.staging_buffer(self.config().timeout)?;
        let mut at = 0;
        while at < len {
            let piece = most.min(len - at);
            each(&buffer, at, piece)?;
            at += piece;
        }
        Ok(())
    }

    /// Runs an operation that stores a result of at most 8 bytes, and returns that result.
    #[track_caller]
    pub(super) fn fetch_result<T: Pod>(
        &self,
        describe: impl FnOnce(Sym<T>) -> Result<Operation>,
    ) -> Result<T> {
        let _site = call_site::enter();
        let slot = self.launch_queues().scratch.result_word(self.config().timeout)?;
        let word = slot.word::<T>();
        self.issue(|_| describe(word))?;
        let mut value = T::zeroed();
        self.heap().read(word.offset(), bytemuck::bytes_of_mut(&mut value))?;
        Ok(value)
    }
}
