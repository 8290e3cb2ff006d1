//! Point-to-point synchronisation: waiting for words of this PE that other PEs write, and testing them.
//!
//! Every call acquires at system scope: once the comparison holds, all threads of the group may read what was ordered
//! before the update of the word. Words are integers of 4 or 8 bytes, written by puts, `p`, atomics or signals of any
//! PE.
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
use crate::tend::{Tended, poll_until, test_failed};
use crate::view::View;
use crate::wait::{Needs, Until, lost, poll_briefly, test_returns};
use crate::watch::{self, Event};

/// Comparison operator between a word and a given value.
///
/// OpenSHMEM 1.6 section 9.10, the `SHMEM_CMP_*` constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cmp {
    /// The word is equal to the value.
    Eq,
    /// The word is not equal to the value.
    Ne,
    /// The word is greater than the value.
    Gt,
    /// The word is greater than or equal to the value.
    Ge,
    /// The word is less than the value.
    Lt,
    /// The word is less than or equal to the value.
    Le,
    /// The word is at or past the value, by less than half of the type's range. For counters that wrap.
    Reached,
}

impl Cmp {
    /// Returns the operator as reports of the sanitizer print it.
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
                // The sign of the wrapping difference, in the width of the word.
                let past = found.bits().wrapping_sub(wanted.bits());
                if size_of::<T>() == 8 { past as i64 >= 0 } else { past as u32 as i32 >= 0 }
            }
        }
    }
}

/// A set of words on this PE and the values to compare them with: the operand of the `all`, `any` and `some` variants
/// of waits and tests.
///
/// The threads of a group must pass equal sets; each thread has its own copy. The set remembers where the last match
/// was and starts after it next time, so no word is starved by repeated calls.
#[derive(Clone, Copy)]
pub struct WaitWords<'k, T> {
    words: SymSlice<T>,
    cmp: Cmp,
    value: T,
    each: Option<View<'k, T>>,
    except: Option<View<'k, i32>>,
    /// Index of the word that the next call checks first.
    next: usize,
}

impl<'k, T: Amo + PartialOrd> WaitWords<'k, T> {
    /// Returns a set of words that are all compared with `value`.
    #[inline(always)]
    pub fn new(words: SymSlice<T>, cmp: Cmp, value: T) -> Self {
        Self { words, cmp, value, each: None, except: None, next: 0 }
    }

    /// Returns a set of words, each compared with the element of `values` at its index: OpenSHMEM's `_vector` variants.
    /// Both must have the same length.
    #[inline(always)]
    pub fn each(words: SymSlice<T>, cmp: Cmp, values: View<'k, T>) -> Self {
        Self { words, cmp, value: T::zeroed(), each: Some(values), except: None, next: 0 }
    }

    /// Excludes the words whose element in `status` is not 0, as OpenSHMEM's `status` argument does. Both must have the
    /// same length.
    #[inline(always)]
    pub fn except(self, status: View<'k, i32>) -> Self {
        Self { except: Some(status), ..self }
    }

    /// Starts at word `i` instead of word 0.
    #[inline(always)]
    pub fn starting_at(self, i: usize) -> Self {
        Self { next: i, ..self }
    }

    /// Excludes words like [`WaitWords::except`], if there is a `status`.
    #[inline(always)]
    pub(crate) fn excepting(self, status: Option<View<'k, i32>>) -> Self {
        Self { except: status, ..self }
    }

    /// Starts at a word chosen by the clock, which is fair without keeping state. Only the choice of the group's leader
    /// counts.
    #[inline(always)]
    pub(crate) fn starting_anywhere(self) -> Self {
        let next = arch::now_ns().checked_rem(self.words.len() as u64).unwrap_or(0);
        self.starting_at(next as usize)
    }
}

/// Mode of a scan of a set of words.
#[derive(Clone, Copy)]
enum ScanMode {
    /// Scans the words once.
    Test,
    /// Scans the words until one matches or the PE's deadline expires.
    Wait,
}

/// Result of a scan in which no word matches, or of an empty set.
const NONE: u64 = u64::MAX;

/// # Waits and tests
///
/// Waits for words of this PE that other PEs update, and tests of such words.
impl<S: Sharing> Ctx<'_, S> {
    /// Waits until the comparison of `signal`, on this PE, with `value` holds. Returns the value that satisfied it, the
    /// same to all threads of the group, even if the word has changed since.
    ///
    /// When the call returns, all threads of the group may read the data that the signal announced.
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
    /// - [`Error::WaitTimeout`]: the deadline expired. The record has the word's offset, its value, and `value`.
    /// - [`Error::Aborted`]: the job is being aborted.
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
        self.await_signal(group, ("signal_wait_until", Needs::NOBODY), signal, cmp, value)
    }

    /// Waits until the comparison of `word`, on this PE, with `value` holds. All threads of the group call it; only the
    /// leader polls. Includes an acquire at system scope.
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
        self.await_update(group, ("wait_until", Needs::NOBODY), word, cmp, value)
    }

    /// Waits like [`Ctx::wait_until`], for at most `timeout_ns` nanoseconds. Returns the value that satisfied the
    /// comparison, or `None` when that time is over, which leaves no error record. The PE's deadline does not apply.
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
            // Not a closure: `Location::caller` would then be this line.
            match self.local_addr(word.as_slice()) {
                Ok(at) => {
                    let (at, tended, site) = (at.cast(), Tended::of(self), Location::caller());
                    let until = Until::elapsed(timeout_ns);
                    // SAFETY: a word of this PE's memory; the allocator aligned it.
                    let seen = unsafe { await_address(tended, at, word.offset(), cmp, value, until, site) };
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

    /// Returns whether the comparison of `word`, on this PE, with `value` holds now. Called by one thread. Includes an
    /// acquire at system scope.
    ///
    /// Loops of tests are subject to the deadline too. Time that a thread (on a GPU: a warp) spends on nothing but
    /// failing tests adds up, and a successful test resets it. A thread that does other work between its tests is not
    /// considered to be waiting.
    ///
    /// OpenSHMEM 1.6 section 9.10, `shmem_test`.
    ///
    /// # Errors
    /// - [`Error::WaitTimeout`], [`Error::Aborted`]: as for a wait, in a loop of failing tests.
    /// - [`Error::OutOfRange`].
    #[inline(always)]
    #[track_caller]
    pub fn test<T: Amo + PartialOrd>(&self, word: Sym<T>, cmp: Cmp, value: T) -> Result<bool> {
        let begin = arch::ticks();
        let at = self.local_addr(word.as_slice())?;
        // The update may depend on a posting in this thread's open batch.
        self.announce_batches();
        // SAFETY: a word of this PE's memory; the allocator aligned it.
        let found = T::from_word(unsafe { T::Word::load_acquire(at.cast()) });
        let is_seen = cmp.holds(found, value);
        let look = Event::Look { word: word_at(self.my_pe(), word), is_seen, value: Some(found.bits()) };
        watch::note("test", look);
        // The thread is making progress, so the time of earlier failures no longer counts.
        if is_seen {
            arch::clear_failed_tests();
        } else {
            self.test_failed(begin, found.bits(), value.bits(), word.offset())?;
        }
        Ok(is_seen)
    }

    /// Waits until the comparison holds for all words, of which each thread of the group polls a share. Returns
    /// immediately if there are none.
    ///
    /// OpenSHMEM 1.6 section 9.10, `shmem_wait_until_all` and, with [`WaitWords::each`], `shmem_wait_until_all_vector`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::wait_until`].
    /// - [`Error::LengthMismatch`]: `words` has not as many values or statuses as words.
    #[inline(always)]
    #[track_caller]
    pub fn wait_until_all<G: Group, T: Amo + PartialOrd>(&self, group: G, words: &WaitWords<T>) -> Result {
        self.await_all(group, ("wait_until_all", Needs::NOBODY), words)
    }

    /// Waits for all words of a set. `name` and `needs` are as in [`Ctx::await_word`].
    #[inline(always)]
    #[track_caller]
    pub(super) fn await_all<G: Group, T: Amo + PartialOrd>(
        &self,
        group: G,
        (name, needs): (&'static str, Needs),
        words: &WaitWords<T>,
    ) -> Result {
        self.check_words(group, words, None)?;
        let mut mine = Ok(());
        let mut i = group.rank() as usize;
        while i < words.words.len() {
            // After an error, skip the remaining words, but still meet the group in `agree`.
            if !words.excepts(i) && mine.is_ok() {
                let found = self.await_word((name, needs), words.words.at(i), words.cmp, words.wanted(i));
                mine = found.map(|_| ());
            }
            i += group.size() as usize;
        }
        agree(group, mine)
    }

    /// Waits until the comparison holds for any of the words, and returns the index of one. Returns `None` immediately
    /// if there are no words to wait for (OpenSHMEM: `SIZE_MAX`).
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
        self.any_of(group, words, ScanMode::Wait)
    }

    /// Waits until the comparison holds for at least one word. Stores the indices of all such words in `indices` and
    /// returns how many there are.
    ///
    /// If `indices` is too short for all of them, the next call finds the rest. Returns 0 immediately if there are no
    /// words to wait for.
    ///
    /// OpenSHMEM 1.6 section 9.10, `shmem_wait_until_some` and `shmem_wait_until_some_vector`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::wait_until_all`].
    /// - [`Error::OutOfRange`]: `indices` is empty.
    #[inline(always)]
    #[track_caller]
    pub fn wait_until_some<G: Group, T: Amo + PartialOrd>(
        &self,
        group: G,
        words: &mut WaitWords<T>,
        indices: View<u64>,
    ) -> Result<usize> {
        self.some_of(group, words, indices, ScanMode::Wait)
    }

    /// Returns whether the comparison holds for all words now; `true` if there are none. Each thread of the group tests
    /// a share of the words.
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
        // Every thread must take the same branch: the other one has a barrier.
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
        // The time in the barrier above belongs to this test, not to work between tests.
        test_returns();
        Ok(false)
    }

    /// Returns the index of a word for which the comparison holds now, or `None`. The leader scans for the group.
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
        self.any_of(group, words, ScanMode::Test)
    }

    /// Stores the indices of all words for which the comparison holds now in `indices` and returns how many there are.
    /// Otherwise like [`Ctx::wait_until_some`].
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
        self.some_of(group, words, indices, ScanMode::Test)
    }

    #[inline(always)]
    #[track_caller]
    fn any_of<G: Group, T: Amo + PartialOrd>(
        &self,
        group: G,
        words: &mut WaitWords<T>,
        mode: ScanMode,
    ) -> Result<Option<usize>> {
        let found = self.scan(group, words, None, mode)?;
        if found == NONE {
            return Ok(None);
        }
        // Start after the match next time: a word that matches again must not hide the others.
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
        mode: ScanMode,
    ) -> Result<usize> {
        let found = self.scan(group, words, Some(indices), mode)?;
        if found == NONE {
            return Ok(0);
        }
        // At least one index has been stored. Continue after the last one.
        words.next = indices.load(found as usize - 1) as usize + 1;
        Ok(found as usize)
    }

    /// Scans a set of words in the leader of the group. Returns the result of [`scan_words`] to all threads of the
    /// group.
    #[inline(always)]
    #[track_caller]
    fn scan<G: Group, T: Amo + PartialOrd>(
        &self,
        group: G,
        words: &WaitWords<T>,
        out: Option<View<u64>>,
        mode: ScanMode,
    ) -> Result<u64> {
        let begin = arch::ticks();
        self.check_words(group, words, out)?;
        // Only the leader scans, because all threads must get the same answer.
        let found = if group.leader() {
            let (at, tended) = (self.address(words.words.offset()), Tended::of(self));
            let (code, seen) = {
                let _call = watch::call("scan", Event::Silent);
                // SAFETY: checked to be inside of this PE's heap, and to have as many statuses and values.
                unsafe { scan_words(tended, at, words, out, (mode, begin), Location::caller()) }
            };
            // Report each word that was seen, for the sanitizer.
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
        if let ScanMode::Test = mode {
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
            // Without words, an empty `indices` is fine: the result is 0.
            Some(out) if out.is_empty() && len != 0 => {
                Err(out_of_range(self.parts_ref().state, 0, 0, u64::MAX, Location::caller()))
            }
            _ => Ok(()),
        }
    }

    /// Returns the value of word `i` unless it matches. The caller must have checked the set.
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

    /// Counts a failed test, started at tick `begin`, of the word at `offset`. When a loop of failing tests reaches the
    /// deadline, returns and records [`Error::WaitTimeout`], as a wait does.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn test_failed(&self, begin: u64, found: u64, wanted: u64, offset: u64) -> Result {
        let state = self.parts_ref().state;
        let code = match test_failed(Tended::of(self), begin) {
            0 => return Ok(()),
            timeout if timeout == Error::Timeout as u32 => {
                record_timeout(state, found, wanted, offset, Location::caller())
            }
            aborted => aborted,
        };
        outcome(code)
    }

    /// Waits for a word, in one thread. Returns the value that satisfied the comparison. `name` is the name of the
    /// public call that waits, `needs` what its update depends on.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn await_word<T: Amo + PartialOrd>(
        &self,
        (name, needs): (&'static str, Needs),
        word: Sym<T>,
        cmp: Cmp,
        value: T,
    ) -> Result<T> {
        let (at, offset) = (self.local_addr(word.as_slice())?.cast::<T::Word>(), word.offset());
        // The update this thread waits for may depend on a posting in its own open batch.
        self.announce_batches();
        let (tended, site) = (Tended::of(self), Location::caller());
        let found = {
            let waited = word_at(self.my_pe(), word);
            let _call =
                watch::call(name, Event::Wait { word: waited, cmp: cmp.symbol(), value: value.bits() });
            // SAFETY: a word of this PE's memory; the allocator aligned it.
            unsafe { await_address(tended, at, offset, cmp, value, Until::lost(needs), site) }
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

/// Polls the word at address `at`, which is that of heap offset `offset`, until the comparison holds. Returns the value
/// that satisfied it. When a time limit in `until` passes, returns [`Error::Timeout`] without a record.
///
/// # Safety
/// `at` is aligned and valid for reads. While others may write the word, all accesses to it are atomic.
#[inline(always)]
#[track_caller]
unsafe fn await_address<S: Sharing, T: Amo + PartialOrd>(
    tended: Tended<S>,
    at: *const T::Word,
    offset: u64,
    cmp: Cmp,
    value: T,
    until: Until,
    site: Site,
) -> Result<T> {
    // SAFETY: `at` is an aligned, readable word, by this function's contract. Others write it only atomically.
    let read = || T::from_word(unsafe { T::Word::load_relaxed(at) });
    let found = poll_briefly(read, |found| cmp.holds(found, value));
    if cmp.holds(found, value) {
        // The polls are relaxed; one acquire fence after the last one suffices.
        Sys::acquire();
        return Ok(found);
    }
    // SAFETY: the outlined function has the same contract.
    let (code, found) =
        unsafe { await_address_slow::<S, T>(tended, at, offset, cmp, value.bits(), until, site) };
    Sys::acquire();
    Error::from_code(code).map_or(Ok(T::from_bits(found)), Err)
}

/// Continues [`await_address`] after the brief poll. Returns an error code, or 0 and the value.
///
/// # Safety
/// The same as for [`await_address`].
#[cold]
#[inline(never)]
unsafe fn await_address_slow<S: Sharing, T: Amo + PartialOrd>(
    tended: Tended<S>,
    at: *const T::Word,
    offset: u64,
    cmp: Cmp,
    value: u64,
    until: Until,
    site: Site,
) -> (u32, u64) {
    let read = || {
        // SAFETY: `at` is an aligned, readable word, by the contract of `await_address`. Others write it only
        // atomically.
        let found = T::from_word(unsafe { T::Word::load_relaxed(at) });
        watch::sees(found.bits());
        found
    };
    let state = tended.state();
    let (code, found) = poll_until(tended, until, read, |found| cmp.holds(found, T::from_bits(value)));
    if code == Error::PeerLost as u32 {
        return (lost(state, until.needs(), site) as u32, 0);
    }
    // The caller's own deadline is not an error. Only the PE's leaves a record.
    if code == Error::Timeout as u32 && !until.has_limit() {
        return (record_timeout(state, found.bits(), value, offset, site), 0);
    }
    (code, found.bits())
}

/// Records [`Error::WaitTimeout`]: the word at `offset` held `found` at the deadline. Returns the error code.
#[cold]
#[inline(never)]
fn record_timeout(state: DevAddr, found: u64, wanted: u64, offset: u64, site: Site) -> u32 {
    record(state, Error::WaitTimeout, Detail { found, wanted, offset, ..Detail::NONE }, site) as u32
}

/// Scans a set of words, the first of which is at `at`: once, for a test that started at tick `begin`, or until a word
/// matches. Returns an error code, or 0 and the index of the word. With `out`, stores the indices of all matching words
/// there and returns their number instead.
///
/// # Safety
/// `at` leads to the words of `words`, for each of which the contract of [`await_address`] holds. There are as many
/// statuses and values as words.
#[inline(never)]
unsafe fn scan_words<S: Sharing, T: Amo + PartialOrd>(
    tended: Tended<S>,
    at: *const T::Word,
    words: &WaitWords<T>,
    out: Option<View<u64>>,
    (mode, begin): (ScanMode, u64),
    site: Site,
) -> (u32, u64) {
    let state = tended.state();
    // SAFETY: all of `words` are readable at `at`, as `look_at_words` demands, by this function's contract.
    let look = || unsafe { look_at_words(at, words, out) };
    let (code, seen) = match mode {
        ScanMode::Test => {
            // Without any word to wait for, the test has not failed but found nothing.
            let seen = look();
            let failed = seen.result == NONE && seen.missing != NONE;
            if !failed {
                arch::clear_failed_tests();
            }
            (if failed { test_failed(tended, begin) } else { 0 }, seen)
        }
        ScanMode::Wait => {
            poll_until(tended, Until::DEADLINE, look, |seen| seen.result != NONE || seen.missing == NONE)
        }
    };
    // Acquire once, after the scan, and only if there is something to read.
    if seen.result != NONE {
        Sys::acquire();
    }
    if code == Error::Timeout as u32 {
        // Report the last word that did not match.
        let (offset, wanted) = (seen.missing * size_of::<T>() as u64, words.wanted(seen.missing as usize));
        let offset = words.words.offset() + offset;
        return (record_timeout(state, seen.found, wanted.bits(), offset, site), NONE);
    }
    (code, seen.result)
}

/// Returns how many words have matched in a scan with the result `seen`.
#[inline(always)]
fn seen_words(out: Option<View<u64>>, seen: u64) -> u64 {
    match (seen, out) {
        (NONE, _) => 0,
        (_, None) => 1,
        (count, Some(_)) => count,
    }
}

/// Outcome of one pass over a set of words.
#[derive(Clone, Copy)]
struct Seen {
    /// Result of [`scan_words`], or [`NONE`] if no word matched.
    result: u64,
    /// Index of the last word that did not match, or [`NONE`]; `found` is the value of that word.
    missing: u64,
    found: u64,
}

/// Scans the words once, for [`scan_words`].
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
    // `next` is past the last word if that matched last time.
    let mut i = if words.next < len { words.next } else { 0 };
    while looked < len {
        // Excluded words count neither as seen nor as missing.
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
                // No room: `some_of` continues after the last stored index, so the next call finds it.
                (true, Some(_)) => {}
                (false, _) => (seen.missing, seen.found) = (i as u64, found.bits()),
            }
        }
        looked += 1;
        i = if i + 1 < len { i + 1 } else { 0 };
    }
    // With `out`, the result is a count.
    if count != 0 {
        seen.result = count as u64;
    }
    seen
}
