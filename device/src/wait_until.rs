//! Point-to-point synchronisation: waiting for words of this PE that others write, and testing them.
//!
//! Every call here acquires at system scope. Once it finds a word as wanted, all threads of the group may read what was
//! ordered before that word's update. The words are integers of 4 or 8 bytes. Puts, `p`, atomics and signals of any PE
//! may write them.
#![allow(unsafe_code, reason = "reads checked words of this PE's heap")]

use core::panic::Location;

use crate::abi::DevAddr;
use crate::amo::Amo;
use crate::arch::{self, Scope, Sys, SysWord};
use crate::ctx::Ctx;
use crate::error::{Detail, Error, Result, Site, length_mismatch, out_of_range, outcome, record};
use crate::group::{Group, agree, agree_on};
use crate::heap::{Signal, Sym, SymSlice};
use crate::rma::word_at;
use crate::sharing::Sharing;
use crate::view::View;
use crate::wait::{poll_briefly, poll_until, test_failed, test_returns};
use crate::watch::{self, Event};

/// A comparison of a word with its wanted value.
///
/// OpenSHMEM 1.6 section 9.10, the `SHMEM_CMP_*` constants.
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
    /// At the value or past it on a circle, by less than half of the circle: for counters that wrap.
    Reached,
}

impl Cmp {
    /// Returns the comparison as a reader writes it.
    #[inline(always)]
    fn symbol(self) -> &'static str {
        match self {
            Self::Eq => "==",
            Self::Ne => "!=",
            Self::Gt => ">",
            Self::Ge => ">=",
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Reached => "reaches",
        }
    }

    #[inline(always)]
    fn holds<T: Amo + PartialOrd>(self, found: T, wanted: T) -> bool {
        match self {
            Self::Eq => found == wanted,
            Self::Ne => found != wanted,
            Self::Gt => found > wanted,
            Self::Ge => found >= wanted,
            Self::Lt => found < wanted,
            Self::Le => found <= wanted,
            Self::Reached => {
                let past = found.bits().wrapping_sub(wanted.bits());
                if size_of::<T>() == 8 { past as i64 >= 0 } else { past as u32 as i32 >= 0 }
            }
        }
    }
}

/// Words of this PE and their wanted values: the operand of the `all`, `any` and `some` forms of waits and tests.
///
/// Each thread has its own value; the threads of a group make equal ones. It remembers where it found a word, and
/// starts behind it next time. So repeated calls find all indices in time.
#[derive(Clone, Copy)]
pub struct WaitWords<'k, T> {
    words: SymSlice<T>,
    cmp: Cmp,
    value: T,
    each: Option<View<'k, T>>,
    except: Option<View<'k, i32>>,
    /// First index to look at.
    next: usize,
}

impl<'k, T: Amo + PartialOrd> WaitWords<'k, T> {
    /// Returns words that all compare with one value.
    #[inline(always)]
    pub fn new(words: SymSlice<T>, cmp: Cmp, value: T) -> Self {
        Self { words, cmp, value, each: None, except: None, next: 0 }
    }

    /// Returns words that compare with their own elements of `values`: OpenSHMEM's `_vector` forms.
    #[inline(always)]
    pub fn each(words: SymSlice<T>, cmp: Cmp, values: View<'k, T>) -> Self {
        Self { words, cmp, value: T::zeroed(), each: Some(values), except: None, next: 0 }
    }

    /// Leaves out each word with an element of `status` other than 0.
    #[inline(always)]
    pub fn except(self, status: View<'k, i32>) -> Self {
        Self { except: Some(status), ..self }
    }

    /// Looks at word `i` first, instead of the first word.
    #[inline(always)]
    pub fn starting_at(self, i: usize) -> Self {
        Self { next: i, ..self }
    }

    /// Leaves out words like [`WaitWords::except`], if there is a `status`.
    #[inline(always)]
    pub(crate) fn excepting(self, status: Option<View<'k, i32>>) -> Self {
        Self { except: status, ..self }
    }

    /// Looks first at a word that the clock selects: fair without memory. Only the leader of a group looks.
    #[inline(always)]
    pub(crate) fn starting_anywhere(self) -> Self {
        let next = arch::now_ns().checked_rem(self.words.len() as u64).unwrap_or(0);
        self.starting_at(next as usize)
    }
}

/// The duration of a call that looks at words.
#[derive(Clone, Copy)]
enum Patience {
    /// One look.
    Test,
    /// Looks until the PE's deadline.
    Wait,
}

/// The result of [`scan`] if no word is as wanted, or there is none.
const NONE: u64 = u64::MAX;

/// # Waits and tests
///
/// Waits for words of this PE that other PEs update, and tests of such words.
impl<S: Sharing> Ctx<'_, S> {
    /// Waits until this PE's signal word compares with `value` as wanted. Returns the value that satisfied the
    /// comparison, the same to all threads of the group, even if the word has changed since.
    ///
    /// All threads of the group may then read the data that the signal announced.
    ///
    /// ```
    /// # use rushmem_device::prelude::*;
    /// /// Waits for one signal of every PE.
    /// #[kernel]
    /// pub fn wait_for_all(ctx: &Ctx, arrived: Sym<Signal>) -> Result {
    ///     ctx.signal_wait_until(Block::current(), arrived, Cmp::Ge, ctx.n_pes().into())?;
    ///     Ok(())
    /// }
    /// # fn main() {}
    /// ```
    ///
    /// OpenSHMEM 1.6 section 9.10, `shmem_signal_wait_until`.
    ///
    /// # Errors
    /// - [`Error::WaitTimeout`] after the deadline. The record has the word's offset, its value and the wanted value.
    /// - [`Error::Aborted`] when the job ends.
    /// - [`Error::OutOfRange`].
    #[inline(always)]
    #[track_caller]
    pub fn signal_wait_until<G: Group>(
        &self,
        group: G,
        signal: Sym<Signal>,
        cmp: Cmp,
        value: u64,
    ) -> Result<u64> {
        // The barrier costs nothing here: all threads wait for the word anyway.
        group.sync();
        let found =
            if group.leader() { self.await_word("signal_wait_until", signal, cmp, value) } else { Ok(0) };
        agree_on(group, found)
    }

    /// Waits until a word of this PE compares with `value` as wanted.
    ///
    /// OpenSHMEM 1.6 section 9.10, `shmem_wait_until`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::signal_wait_until`].
    #[inline(always)]
    #[track_caller]
    pub fn wait_until<G: Group, T: Amo + PartialOrd>(
        &self,
        group: G,
        word: Sym<T>,
        cmp: Cmp,
        value: T,
    ) -> Result {
        let mine =
            if group.leader() { self.await_word("wait_until", word, cmp, value).map(|_| ()) } else { Ok(()) };
        agree(group, mine)
    }

    /// Waits like [`Ctx::wait_until`], for at most `timeout_ns` nanoseconds. Returns the value that satisfied the
    /// comparison, or `None` after that time, which is no error and leaves no record. The PE's deadline does not apply.
    ///
    /// GIN: `waitSignal` with a timeout.
    ///
    /// # Errors
    /// - [`Error::Aborted`], [`Error::OutOfRange`].
    #[inline(always)]
    #[track_caller]
    pub fn wait_until_for<G: Group, T: Amo + PartialOrd>(
        &self,
        group: G,
        word: Sym<T>,
        cmp: Cmp,
        value: T,
        timeout_ns: u64,
    ) -> Result<Option<T>> {
        self.announce_batches();
        let (mut in_time, mut found) = (0, 0);
        let mine = if group.leader() {
            // No closure: the place of its calls would be here.
            match self.local_addr(word.as_slice()) {
                Ok(at) => {
                    let (at, state, site) = (at.cast(), self.parts_ref().state, Location::caller());
                    // SAFETY: a word of this PE's memory; the allocator aligned it.
                    let seen = unsafe {
                        await_address(state, at, word.offset(), cmp, value, Some(timeout_ns), site)
                    };
                    let value = seen.ok().map(T::bits);
                    let looked = word_at(self.my_pe(), word);
                    let look = Event::Look { word: looked, is_seen: value.is_some(), value };
                    watch::note("wait_until_for", look);
                    match seen {
                        Ok(seen) => {
                            (in_time, found) = (1, seen.bits());
                            Ok(())
                        }
                        Err(Error::Timeout) => Ok(()),
                        Err(other) => Err(other),
                    }
                }
                Err(error) => Err(error),
            }
        } else {
            Ok(())
        };
        agree(group, mine)?;
        let in_time = group.broadcast(in_time);
        Ok(if in_time != 0 { Some(T::from_bits(group.broadcast(found))) } else { None })
    }

    /// Returns whether a word of this PE compares with `value` as wanted now. Acquires.
    ///
    /// A loop of tests has a deadline too. The time in which a thread (on a GPU: a warp) does nothing but tests that fail adds up,
    /// and a test that succeeds starts again. A thread that does something else between its tests does not wait.
    ///
    /// OpenSHMEM 1.6 section 9.10, `shmem_test`.
    ///
    /// # Errors
    /// - [`Error::WaitTimeout`], [`Error::Aborted`]: the errors of a wait, in a loop of tests that fail.
    /// - [`Error::OutOfRange`].
    #[inline(always)]
    #[track_caller]
    pub fn test<T: Amo + PartialOrd>(&self, word: Sym<T>, cmp: Cmp, value: T) -> Result<bool> {
        let begin = arch::ticks();
        let at = self.local_addr(word.as_slice())?;
        self.announce_batches();
        // SAFETY: a word of this PE's memory; the allocator aligned it.
        let found = T::from_word(unsafe { T::Word::load_acquire(at.cast()) });
        let is_seen = cmp.holds(found, value);
        let look = Event::Look { word: word_at(self.my_pe(), word), is_seen, value: Some(found.bits()) };
        watch::note("test", look);
        if is_seen {
            arch::clear_failed_tests();
        } else {
            self.test_failed(begin, found.bits(), value.bits(), word.offset())?;
        }
        Ok(is_seen)
    }

    /// Waits until all words are as wanted. Returns at once if there are none. The threads of the group share the
    /// words.
    ///
    /// OpenSHMEM 1.6 section 9.10, `shmem_wait_until_all` and, with [`WaitWords::each`], `shmem_wait_until_all_vector`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::wait_until`].
    /// - [`Error::LengthMismatch`]: there are not as many values or statuses as words.
    #[inline(always)]
    #[track_caller]
    pub fn wait_until_all<G: Group, T: Amo + PartialOrd>(&self, group: G, words: &WaitWords<T>) -> Result {
        self.check_words(group, words, None)?;
        let mut mine = Ok(());
        let mut i = group.rank() as usize;
        while i < words.words.len() {
            if !words.excepts(i) && mine.is_ok() {
                mine = self
                    .await_word("wait_until_all", words.words.at(i), words.cmp, words.wanted(i))
                    .map(|_| ());
            }
            i += group.size() as usize;
        }
        agree(group, mine)
    }

    /// Waits until any word is as wanted; returns its index. Returns `None` at once if there are no words to wait for
    /// (OpenSHMEM: `SIZE_MAX`).
    ///
    /// OpenSHMEM 1.6 section 9.10, `shmem_wait_until_any` and `shmem_wait_until_any_vector`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::wait_until_all`].
    #[inline(always)]
    #[track_caller]
    pub fn wait_until_any<G: Group, T: Amo + PartialOrd>(
        &self,
        group: G,
        words: &mut WaitWords<T>,
    ) -> Result<Option<usize>> {
        self.any_of(group, words, Patience::Wait)
    }

    /// Waits until at least one word is as wanted. Writes the indices of all such words to `indices`; returns their
    /// number.
    ///
    /// If there is no room for all of them, the next call finds the others. Returns 0 at once if there are no words to
    /// wait for.
    ///
    /// OpenSHMEM 1.6 section 9.10, `shmem_wait_until_some` and `shmem_wait_until_some_vector`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::wait_until_all`].
    /// - [`Error::OutOfRange`]: `indices` has no elements.
    #[inline(always)]
    #[track_caller]
    pub fn wait_until_some<G: Group, T: Amo + PartialOrd>(
        &self,
        group: G,
        words: &mut WaitWords<T>,
        indices: View<u64>,
    ) -> Result<usize> {
        self.some_of(group, words, indices, Patience::Wait)
    }

    /// Returns whether all words are as wanted now; true if there are none.
    ///
    /// OpenSHMEM 1.6 section 9.10, `shmem_test_all` and `shmem_test_all_vector`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::test`].
    /// - [`Error::LengthMismatch`].
    #[inline(always)]
    #[track_caller]
    pub fn test_all<G: Group, T: Amo + PartialOrd>(&self, group: G, words: &WaitWords<T>) -> Result<bool> {
        let begin = arch::ticks();
        self.check_words(group, words, None)?;
        let mut missing = None;
        let mut i = group.rank() as usize;
        while i < words.words.len() {
            if !words.excepts(i)
                && let Some(found) = self.mismatch(words, i)
            {
                missing = Some((i, found));
            }
            i += group.size() as usize;
        }
        if !group.any(missing.is_some()) {
            arch::clear_failed_tests();
            return Ok(true);
        }
        let mine = match missing {
            Some((i, found)) => {
                self.test_failed(begin, found.bits(), words.wanted(i).bits(), words.words.at(i).offset())
            }
            None => Ok(()),
        };
        agree(group, mine)?;
        test_returns();
        Ok(false)
    }

    /// Returns the index of a word that is as wanted now, if any is.
    ///
    /// OpenSHMEM 1.6 section 9.10, `shmem_test_any` and `shmem_test_any_vector`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::test_all`].
    #[inline(always)]
    #[track_caller]
    pub fn test_any<G: Group, T: Amo + PartialOrd>(
        &self,
        group: G,
        words: &mut WaitWords<T>,
    ) -> Result<Option<usize>> {
        self.any_of(group, words, Patience::Test)
    }

    /// Writes the indices of all words that are as wanted now to `indices`; returns their number. Otherwise like
    /// [`Ctx::wait_until_some`].
    ///
    /// OpenSHMEM 1.6 section 9.10, `shmem_test_some` and `shmem_test_some_vector`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::test_all`].
    #[inline(always)]
    #[track_caller]
    pub fn test_some<G: Group, T: Amo + PartialOrd>(
        &self,
        group: G,
        words: &mut WaitWords<T>,
        indices: View<u64>,
    ) -> Result<usize> {
        self.some_of(group, words, indices, Patience::Test)
    }

    #[inline(always)]
    #[track_caller]
    fn any_of<G: Group, T: Amo + PartialOrd>(
        &self,
        group: G,
        words: &mut WaitWords<T>,
        patience: Patience,
    ) -> Result<Option<usize>> {
        let found = self.scan(group, words, None, patience)?;
        if found == NONE {
            return Ok(None);
        }
        words.next = found as usize + 1;
        Ok(Some(found as usize))
    }

    #[inline(always)]
    #[track_caller]
    fn some_of<G: Group, T: Amo + PartialOrd>(
        &self,
        group: G,
        words: &mut WaitWords<T>,
        indices: View<u64>,
        patience: Patience,
    ) -> Result<usize> {
        let found = self.scan(group, words, Some(indices), patience)?;
        if found == NONE {
            return Ok(0);
        }
        words.next = indices.load(found as usize - 1) as usize + 1;
        Ok(found as usize)
    }

    /// Scans the words in the leader; returns its result to all threads of the group, with acquire ordering.
    #[inline(always)]
    #[track_caller]
    fn scan<G: Group, T: Amo + PartialOrd>(
        &self,
        group: G,
        words: &WaitWords<T>,
        out: Option<View<u64>>,
        patience: Patience,
    ) -> Result<u64> {
        let begin = arch::ticks();
        self.check_words(group, words, out)?;
        let found = if group.leader() {
            let (at, state) = (self.address(words.words.offset()), self.parts_ref().state);
            let (code, seen) = {
                let _call = watch::call("scan", Event::Silent);
                // SAFETY: checked to be inside of this PE's heap, and to have as many statuses and values.
                unsafe { scan_words(state, at, words, out, (patience, begin), Location::caller()) }
            };
            watch::each("wait_until_any", seen_words(out, seen), |i| {
                let index = out.map_or(seen, |out| out.load(i as usize));
                let word = word_at(self.my_pe(), words.words.at(index as usize));
                Event::Look { word, is_seen: true, value: None }
            });
            Error::from_code(code).map_or(Ok(seen), Err)
        } else {
            Ok(0)
        };
        let agreed = agree_on(group, found);
        if let Patience::Test = patience {
            test_returns();
        }
        agreed
    }

    #[inline(always)]
    #[track_caller]
    fn check_words<G: Group, T: Amo>(
        &self,
        group: G,
        words: &WaitWords<T>,
        out: Option<View<u64>>,
    ) -> Result {
        self.announce_batches();
        let mine = if group.leader() { self.check_set(words, out) } else { Ok(()) };
        agree(group, mine)
    }

    #[inline(always)]
    #[track_caller]
    fn check_set<T: Amo>(&self, words: &WaitWords<T>, out: Option<View<u64>>) -> Result {
        self.check_slice(words.words)?;
        let len = words.words.len();
        let statuses = words.except.map_or(len, View::len);
        let values = words.each.map_or(len, View::len);
        if statuses != len || values != len {
            let other = if statuses != len { statuses } else { values };
            let state = self.parts_ref().state;
            return Err(length_mismatch(state, u32::MAX, other as u64, len as u64, Location::caller()));
        }
        match out {
            Some(out) if out.is_empty() && len != 0 => {
                Err(out_of_range(self.parts_ref().state, 0, 0, u64::MAX, Location::caller()))
            }
            _ => Ok(()),
        }
    }

    /// Returns the value of word `i` if it is not as wanted now. The caller has checked the words.
    #[inline(always)]
    #[track_caller]
    fn mismatch<T: Amo + PartialOrd>(&self, words: &WaitWords<T>, i: usize) -> Option<T> {
        let word = words.words.at(i);
        // SAFETY: the caller checked that it is inside of this PE's memory; the allocator aligned it.
        let found = T::from_word(unsafe { T::Word::load_acquire(self.address(word.offset())) });
        let is_seen = words.cmp.holds(found, words.wanted(i));
        let value = Some(found.bits());
        watch::note("test_all", Event::Look { word: word_at(self.my_pe(), word), is_seen, value });
        if is_seen { None } else { Some(found) }
    }

    /// Counts a failed test of the word at `offset`, which began at `begin`, in ticks. Fails like a wait, with a record, at the
    /// deadline of a loop of tests.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn test_failed(&self, begin: u64, found: u64, wanted: u64, offset: u64) -> Result {
        let state = self.parts_ref().state;
        let code = match test_failed(state, begin) {
            0 => return Ok(()),
            timeout if timeout == Error::Timeout as u32 => {
                record_timeout(state, found, wanted, offset, Location::caller())
            }
            aborted => aborted,
        };
        outcome(code)
    }

    /// Waits for a word, in one thread; returns the value that satisfied the comparison. `name` is the public call.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn await_word<T: Amo + PartialOrd>(
        &self,
        name: &'static str,
        word: Sym<T>,
        cmp: Cmp,
        value: T,
    ) -> Result<T> {
        let (at, offset) = (self.local_addr(word.as_slice())?.cast::<T::Word>(), word.offset());
        self.announce_batches();
        let (state, site) = (self.parts_ref().state, Location::caller());
        let found = {
            let waited = word_at(self.my_pe(), word);
            let _call =
                watch::call(name, Event::Wait { word: waited, cmp: cmp.symbol(), value: value.bits() });
            // SAFETY: a word of this PE's memory; the allocator aligned it.
            unsafe { await_address(state, at, offset, cmp, value, None, site) }
        };
        let value = found.ok().map(T::bits);
        watch::note(name, Event::Look { word: word_at(self.my_pe(), word), is_seen: value.is_some(), value });
        found
    }
}

impl<T: Amo + PartialOrd> WaitWords<'_, T> {
    #[inline(always)]
    fn excepts(&self, i: usize) -> bool {
        self.except.is_some_and(|status| status.load(i) != 0)
    }

    #[inline(always)]
    fn wanted(&self, i: usize) -> T {
        self.each.map_or(self.value, |values| values.load(i))
    }
}

/// Polls the word at `at`, which is `offset` in the heap, until it compares as wanted; returns that value. After a
/// deadline of its own (`timeout_ns`) it returns [`Error::Timeout`] without a record.
///
/// # Safety
/// `at` is aligned and valid for reads. While others may write the word, all accesses to it are atomic.
#[inline(always)]
#[track_caller]
unsafe fn await_address<T: Amo + PartialOrd>(
    state: DevAddr,
    at: *const T::Word,
    offset: u64,
    cmp: Cmp,
    value: T,
    timeout_ns: Option<u64>,
    site: Site,
) -> Result<T> {
    // SAFETY: `at` is an aligned, readable word, by this function's contract. Others write it only atomically.
    let read = || T::from_word(unsafe { T::Word::load_relaxed(at) });
    let found = poll_briefly(read, |found| cmp.holds(found, value));
    if cmp.holds(found, value) {
        Sys::acquire();
        return Ok(found);
    }
    // SAFETY: the outlined function has the same contract.
    let (code, found) =
        unsafe { await_address_slow::<T>(state, at, offset, cmp, value.bits(), timeout_ns, site) };
    Sys::acquire();
    Error::from_code(code).map_or(Ok(T::from_bits(found)), Err)
}

/// Continues [`await_address`] after the brief poll; returns an error's code, or 0 and the value.
///
/// # Safety
/// The same as for [`await_address`].
#[cold]
#[inline(never)]
unsafe fn await_address_slow<T: Amo + PartialOrd>(
    state: DevAddr,
    at: *const T::Word,
    offset: u64,
    cmp: Cmp,
    value: u64,
    timeout_ns: Option<u64>,
    site: Site,
) -> (u32, u64) {
    let read = || {
        // SAFETY: `at` is an aligned, readable word, by the contract of `await_address`. Others write it only
        // atomically.
        let found = T::from_word(unsafe { T::Word::load_relaxed(at) });
        watch::sees(found.bits());
        found
    };
    let (code, found) = poll_until(state, timeout_ns, read, |found| cmp.holds(found, T::from_bits(value)));
    if code == Error::Timeout as u32 && timeout_ns.is_none() {
        return (record_timeout(state, found.bits(), value, offset, site), 0);
    }
    (code, found.bits())
}

/// Records that a word was not as wanted at the deadline; returns the error's code.
#[cold]
#[inline(never)]
fn record_timeout(state: DevAddr, found: u64, wanted: u64, offset: u64, site: Site) -> u32 {
    record(state, Error::WaitTimeout, Detail { found, wanted, offset, ..Detail::NONE }, site) as u32
}

/// Looks at the words at `at`, once, in a test that began at `begin`, or until one is as wanted. Returns an error's code, or 0
/// and the word's index. With `out`, it writes the indices of all such words there, and returns their number instead.
///
/// # Safety
/// `at` leads to the words of `words`, for each of which the contract of [`await_address`] holds. There are as many statuses
/// and values as words.
#[inline(never)]
unsafe fn scan_words<T: Amo + PartialOrd>(
    state: DevAddr,
    at: *const T::Word,
    words: &WaitWords<T>,
    out: Option<View<u64>>,
    (patience, begin): (Patience, u64),
    site: Site,
) -> (u32, u64) {
    // SAFETY: all of `words` are readable at `at`, as `look_at_words` demands, by this function's contract.
    let look = || unsafe { look_at_words(at, words, out) };
    let (code, seen) = match patience {
        Patience::Test => {
            let seen = look();
            let failed = seen.result == NONE && seen.missing != NONE;
            if !failed {
                arch::clear_failed_tests();
            }
            (if failed { test_failed(state, begin) } else { 0 }, seen)
        }
        Patience::Wait => poll_until(state, None, look, |seen| seen.result != NONE || seen.missing == NONE),
    };
    if seen.result != NONE {
        Sys::acquire();
    }
    if code == Error::Timeout as u32 {
        let (offset, wanted) = (seen.missing * size_of::<T>() as u64, words.wanted(seen.missing as usize));
        let offset = words.words.offset() + offset;
        return (record_timeout(state, seen.found, wanted.bits(), offset, site), NONE);
    }
    (code, seen.result)
}

/// Returns the number of words that a scan with the result `seen` has found.
#[inline(always)]
fn seen_words(out: Option<View<u64>>, seen: u64) -> u64 {
    match (seen, out) {
        (NONE, _) => 0,
        (_, None) => 1,
        (count, Some(_)) => count,
    }
}

/// The result of one look at words.
#[derive(Clone, Copy)]
struct Seen {
    /// The result of [`scan_words`], or [`NONE`] if no word is as wanted.
    result: u64,
    /// The last word that was not as wanted, or [`NONE`], and its value.
    missing: u64,
    found: u64,
}

/// Looks at the words once, for [`scan_words`].
///
/// # Safety
/// The same as for [`scan_words`].
#[inline(always)]
unsafe fn look_at_words<T: Amo + PartialOrd>(
    at: *const T::Word,
    words: &WaitWords<T>,
    out: Option<View<u64>>,
) -> Seen {
    let len = words.words.len();
    let (mut looked, mut count) = (0, 0);
    let mut seen = Seen { result: NONE, missing: NONE, found: 0 };
    let mut i = if words.next < len { words.next } else { 0 };
    while looked < len {
        if !words.excepts(i) {
            // SAFETY: `i` is less than the number of words, all of which are aligned and readable, by the contract of
            // `scan_words`. Others write them only atomically.
            let found = T::from_word(unsafe { T::Word::load_relaxed(at.add(i)) });
            match (words.cmp.holds(found, words.wanted(i)), out) {
                (true, None) => return Seen { result: i as u64, ..seen },
                (true, Some(out)) if count < out.len() => {
                    out.store(count, i as u64);
                    count += 1;
                }
                (true, Some(_)) => {}
                (false, _) => (seen.missing, seen.found) = (i as u64, found.bits()),
            }
        }
        looked += 1;
        i = if i + 1 < len { i + 1 } else { 0 };
    }
    if count != 0 {
        seen.result = count as u64;
    }
    seen
}
