//! Remote atomics on words of 4 and 8 bytes.
//!
//! They are atomic with respect to each other and to signals with [`SignalOp::Add`](crate::SignalOp), from every PE and
//! over every path. The runtime sends all atomics on a word the same way, either through the NIC of its PE or as
//! processor atomics. They are **not** atomic with respect to plain stores, puts or collectives on the same word, nor
//! to signals with [`SignalOp::Set`](crate::SignalOp).
//!
//! They are relaxed. An atomic neither publishes its thread's earlier stores nor orders its puts: call [`Ctx::fence`]
//! or [`Ctx::quiet`] first. A fetching atomic waits for its result but does not acquire: call [`Ctx::fence_acquire`] or
//! [`Ctx::fence`] before reading what another PE announced by it. See `docs/memory-model.md` for examples.
//!
//! In a job that spans nodes, atomics to P2P peers go through the NIC too, because NIC peers may update the same word.
//! [`Ctx::for_node_words`] avoids that.
//!
//! Arguments are in the order `(result, word, value, pe)`; `compare` precedes `value`, as in OpenSHMEM. All of these
//! calls are made by one thread.
//!
//! | operation | types | on a NIC |
//! |---|---|---|
//! | fetch, set, swap | [`AmoWord`]: integers, `f32`, `f64`, bit for bit | FETCH_ADD of 0, masked CMP_SWAP |
//! | add, fetch_add | [`Addend`]: integers and floats | FETCH_ADD; for floats, a fetch and one CMP_SWAP per attempt |
//! | inc, compare_swap, and, or, xor | [`Amo`]: integers | FETCH_ADD, CMP_SWAP, masked atomics |
//! | non-blocking fetching atomics | the same types; [`Ctx::atomic_fetch_add_nbi`] and others | the same; the result goes to a [`Fetched`] |
//! | fields of a word | integers: [`Ctx::atomic_masked_compare_swap`], [`Ctx::atomic_masked_fetch_add`] | masked atomics |
#![allow(unsafe_code, reason = "performs atomics on checked addresses of mapped heaps")]

use core::panic::Location;

use bytemuck::Pod;
use rushmem_mlx5::{Inline, Wqe};

use crate::abi::{qp_flags, reserved};
use crate::arch::SysWord;
use crate::ctx::Ctx;
use crate::ctx::CtxRef;
use crate::error::{Detail, Error, Result, Site};
use crate::group::{Group, Thread};
use crate::heap::Sym;
use crate::post::post;
use crate::rma::{fetch, word_at};
use crate::sharing::Sharing;
use crate::sq::{EndIndex, Qp};
use crate::wait::Watch;
use crate::watch::{self, Change, Completion, Event, Operation};

mod masked;
mod nbi;

pub use nbi::Fetched;

/// A word of 4 or 8 bytes that remote atomics can fetch, set and swap.
pub trait AmoWord: Pod + sealed::Sealed {}

/// A word to which remote atomics can add.
pub trait Addend: AmoWord {}

/// An integer word, which supports all remote atomics.
pub trait Amo: Addend {}

mod sealed {
    use crate::arch::SysWord;

    pub trait Sealed: Sized {
        /// Unsigned integer of the same size, for atomic accesses.
        type Word: SysWord;
        fn word(bits: u64) -> Self::Word;
        /// Returns the value, zero-extended.
        fn bits(self) -> u64;
        fn from_word(word: Self::Word) -> Self;
        fn from_bits(bits: u64) -> Self;
        /// Whether the type is a float, which a NIC cannot add.
        const FLOAT: bool;
        /// Returns the sum, wrapped or rounded.
        fn plus(self, other: Self) -> Self;
    }

    macro_rules! amo {
        ($($t:ty, $word:ty;)*) => {$(
            impl Sealed for $t {
                type Word = $word;
                #[inline(always)]
                fn word(bits: u64) -> $word {
                    bits as $word
                }
                #[inline(always)]
                fn bits(self) -> u64 {
                    self as $word as u64
                }
                #[inline(always)]
                fn from_word(word: $word) -> Self {
                    word as $t
                }
                #[inline(always)]
                fn from_bits(bits: u64) -> Self {
                    bits as $t
                }
                const FLOAT: bool = false;
                #[inline(always)]
                fn plus(self, other: Self) -> Self {
                    self.wrapping_add(other)
                }
            }
            impl super::AmoWord for $t {}
            impl super::Addend for $t {}
            impl super::Amo for $t {}
        )*};
    }
    amo! { u32, u32; i32, u32; u64, u64; i64, u64; usize, u64; isize, u64; }

    macro_rules! float {
        ($($t:ty, $word:ty;)*) => {$(
            impl Sealed for $t {
                type Word = $word;
                #[inline(always)]
                fn word(bits: u64) -> $word {
                    bits as $word
                }
                #[inline(always)]
                fn bits(self) -> u64 {
                    self.to_bits() as u64
                }
                #[inline(always)]
                fn from_word(word: $word) -> Self {
                    <$t>::from_bits(word)
                }
                #[inline(always)]
                fn from_bits(bits: u64) -> Self {
                    <$t>::from_bits(bits as $word)
                }
                const FLOAT: bool = true;
                #[inline(always)]
                fn plus(self, other: Self) -> Self {
                    self + other
                }
            }
            impl super::AmoWord for $t {}
            impl super::Addend for $t {}
        )*};
    }
    float! { f32, u32; f64, u64; }
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Add,
    And,
    Or,
    Xor,
    Set,
    CompareSwap,
    /// A set of a signal word, only atomic with respect to other sets of this kind. It is a store to P2P peers, even in
    /// a job that spans nodes.
    SignalSet,
}

impl Kind {
    /// Returns the atomic with the number that [`Ctx::atomic_fetching`] takes.
    #[inline(always)]
    fn of(number: u32) -> Self {
        match number {
            0 => Self::Add,
            1 => Self::And,
            2 => Self::Or,
            3 => Self::Xor,
            4 => Self::Set,
            _ => Self::CompareSwap,
        }
    }

    /// Returns the names of the atomic's public calls: without a result, with one, and non-blocking with one.
    #[inline(always)]
    fn names(self) -> [&'static str; 3] {
        match self {
            Self::Add => ["atomic_add", "atomic_fetch_add", "atomic_fetch_add_nbi"],
            Self::And => ["atomic_and", "atomic_fetch_and", "atomic_fetch_and_nbi"],
            Self::Or => ["atomic_or", "atomic_fetch_or", "atomic_fetch_or_nbi"],
            Self::Xor => ["atomic_xor", "atomic_fetch_xor", "atomic_fetch_xor_nbi"],
            Self::Set => ["atomic_set", "atomic_swap", "atomic_swap_nbi"],
            Self::CompareSwap => ["atomic_compare_swap", "atomic_compare_swap", "atomic_compare_swap_nbi"],
            Self::SignalSet => ["signal_op", "atomic_swap", "atomic_swap_nbi"],
        }
    }
}

/// An atomic on a word of `WIDTH` bytes, 4 or 8. Its operands are in the low bits.
#[derive(Clone, Copy)]
pub(crate) struct Op<const WIDTH: usize> {
    pub(crate) kind: Kind,
    pub(crate) value: u64,
    pub(crate) compare: u64,
}

impl<const WIDTH: usize> Op<WIDTH> {
    #[inline(always)]
    pub(crate) const fn new(kind: Kind, value: u64) -> Self {
        Self { kind, value, compare: 0 }
    }

    /// Returns the WQE for the word at `raddr`. The old value is written to `laddr`.
    #[inline(always)]
    pub(crate) fn wqe(self, raddr: u64, rkey: u32, laddr: u64, lkey: u32) -> Wqe {
        if WIDTH == 8 { self.wqe_64(raddr, rkey, laddr, lkey) } else { self.wqe_32(raddr, rkey, laddr, lkey) }
    }

    #[inline(always)]
    fn wqe_64(self, raddr: u64, rkey: u32, laddr: u64, lkey: u32) -> Wqe {
        let Self { kind, value, compare } = self;
        let masked_swap = |swap_mask| Wqe::MaskedCompareSwap64 {
            raddr,
            rkey,
            laddr,
            lkey,
            compare: 0,
            swap: value,
            compare_mask: 0,
            swap_mask,
        };
        match kind {
            Kind::Add => Wqe::FetchAdd { raddr, rkey, laddr, lkey, add: value },
            // Exclusive or is an addition in which every bit is a field, so nothing carries.
            Kind::Xor => Wqe::MaskedFetchAdd64 { raddr, rkey, laddr, lkey, add: value, boundary: u64::MAX },
            // And and or clear or set bits, by a swap under a mask that compares nothing.
            Kind::And => masked_swap(!value),
            Kind::Or => masked_swap(value),
            Kind::Set | Kind::SignalSet => masked_swap(u64::MAX),
            Kind::CompareSwap => Wqe::CompareSwap { raddr, rkey, laddr, lkey, compare, swap: value },
        }
    }

    #[inline(always)]
    fn wqe_32(self, raddr: u64, rkey: u32, laddr: u64, lkey: u32) -> Wqe {
        let (value, compare) = (self.value as u32, self.compare as u32);
        let add = |boundary| Wqe::MaskedFetchAdd32 { raddr, rkey, laddr, lkey, add: value, boundary };
        let swap = |compare_mask, swap_mask| Wqe::MaskedCompareSwap32 {
            raddr,
            rkey,
            laddr,
            lkey,
            compare,
            swap: value,
            compare_mask,
            swap_mask,
        };
        match self.kind {
            Kind::Add => add(0),
            Kind::Xor => add(u32::MAX),
            Kind::And => swap(0, !value),
            Kind::Or => swap(0, value),
            Kind::Set | Kind::SignalSet => swap(0, u32::MAX),
            Kind::CompareSwap => swap(u32::MAX, u32::MAX),
        }
    }

    /// Returns how many 64-byte blocks of the send queue the WQE takes. The 64-bit masked compare-and-swap needs a
    /// second one for its operands.
    #[inline(always)]
    pub(crate) fn blocks(self) -> u64 {
        let two = WIDTH == 8 && matches!(self.kind, Kind::And | Kind::Or | Kind::Set | Kind::SignalSet);
        if two { 2 } else { 1 }
    }

    /// Applies the atomic as a processor atomic. Returns the old value.
    ///
    /// # Safety
    /// `p` is aligned to its `WIDTH` bytes and valid for reads and writes, and `T` has that size. Concurrent accesses to the
    /// word are atomic.
    #[inline(always)]
    unsafe fn apply_fetch<T: AmoWord>(self, p: *mut T) -> T {
        let (p, value) = (p.cast::<T::Word>(), T::word(self.value));
        // SAFETY: `p` is an aligned, writable word of this size with atomic accesses only, by this function's contract.
        let old = unsafe {
            match self.kind {
                Kind::Add => T::Word::fetch_add(p, value),
                Kind::And => T::Word::fetch_and(p, value),
                Kind::Or => T::Word::fetch_or(p, value),
                Kind::Xor => T::Word::fetch_xor(p, value),
                Kind::Set | Kind::SignalSet => T::Word::swap(p, value),
                Kind::CompareSwap => T::Word::compare_swap(p, T::word(self.compare), value),
            }
        };
        T::from_word(old)
    }

    /// Applies the atomic to an integer of `WIDTH` bytes. Returns the bits of the old value.
    ///
    /// # Safety
    /// The same as for [`Op::apply_fetch`].
    #[inline(always)]
    unsafe fn apply_fetch_bits(self, p: *mut u8) -> u64 {
        // SAFETY: `p` is a word of `WIDTH` bytes, as `apply_fetch` demands, and the arm casts it to an integer of
        // that width.
        unsafe {
            if WIDTH == 8 {
                self.apply_fetch::<u64>(p.cast())
            } else {
                self.apply_fetch::<u32>(p.cast()) as u64
            }
        }
    }

    /// Applies the atomic as a processor atomic, without a result.
    ///
    /// # Safety
    /// The same as for [`Op::apply_fetch`].
    #[inline(always)]
    unsafe fn apply<T: AmoWord>(self, p: *mut T) {
        let (word, value) = (p.cast::<T::Word>(), T::word(self.value));
        // SAFETY: `p` is an aligned, writable word of this size with atomic accesses only, by this function's contract.
        // A strong store is atomic with the processor's atomics, and with sets by NICs.
        unsafe {
            match self.kind {
                Kind::Add => T::Word::add(word, value),
                Kind::And => T::Word::and(word, value),
                Kind::Or => T::Word::or(word, value),
                Kind::Xor => T::Word::xor(word, value),
                Kind::Set | Kind::SignalSet => T::Word::store_relaxed(word, value),
                Kind::CompareSwap => {
                    self.apply_fetch(p);
                }
            }
        }
    }

    /// Applies the atomic to an integer of `WIDTH` bytes, without a result.
    ///
    /// # Safety
    /// The same as for [`Op::apply_fetch`].
    #[inline(always)]
    unsafe fn apply_bits(self, p: *mut u8) {
        // SAFETY: `p` is a word of `WIDTH` bytes, as `apply` demands, and the arm casts it to an integer of that
        // width.
        unsafe { if WIDTH == 8 { self.apply::<u64>(p.cast()) } else { self.apply::<u32>(p.cast()) } }
    }
}

/// # Atomics
///
/// Atomic updates that wait for the old value, and updates without a result. The latter are posted and complete with
/// [`Ctx::quiet`].
impl<S: Sharing> Ctx<'_, S> {
    /// Returns the value of the word, read atomically. Waits for it.
    ///
    /// OpenSHMEM 1.6 section 9.7, `shmem_atomic_fetch`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::g`], as for all atomics.
    #[inline(always)]
    #[track_caller]
    pub fn atomic_fetch<T: AmoWord>(&self, word: Sym<T>, pe: u32) -> Result<T> {
        let _call = watch::call("atomic_fetch", fetch_event(self, word, pe, true));
        // Adding 0 reads the word.
        self.fetch_op(word, Kind::Add, T::zeroed(), T::zeroed(), pe)
    }

    /// Sets the word to `value`. OpenSHMEM: `shmem_atomic_set`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::atomic_fetch`].
    #[inline(always)]
    #[track_caller]
    pub fn atomic_set<T: AmoWord>(&self, word: Sym<T>, value: T, pe: u32) -> Result {
        self.post_op(word, Kind::Set, value, pe)
    }

    /// Sets the word to `value` and returns the old value. OpenSHMEM: `shmem_atomic_swap`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::atomic_fetch`].
    #[inline(always)]
    #[track_caller]
    pub fn atomic_swap<T: AmoWord>(&self, word: Sym<T>, value: T, pe: u32) -> Result<T> {
        self.fetch_op(word, Kind::Set, value, T::zeroed(), pe)
    }

    /// Sets the word to `value` if it equals `compare`. Returns the value found. OpenSHMEM:
    /// `shmem_atomic_compare_swap`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::atomic_fetch`].
    #[inline(always)]
    #[track_caller]
    pub fn atomic_compare_swap<T: Amo>(&self, word: Sym<T>, compare: T, value: T, pe: u32) -> Result<T> {
        self.fetch_op(word, Kind::CompareSwap, value, compare, pe)
    }

    /// Adds `value` to the word. Integers wrap, floats round to nearest.
    ///
    /// NICs cannot add floats: this call fetches the word and swaps in the sum if the word has not changed. It waits
    /// like a fetching atomic, for two round trips, plus one for each time another PE changed the word first.
    ///
    /// OpenSHMEM: `shmem_atomic_add`. NVSHMEM, for floats: `nvshmemx_float_atomic_add`.
    ///
    /// ```
    /// # use rushmem_device::prelude::*;
    /// /// Counts this PE in a word of PE 0.
    /// #[kernel]
    /// pub fn count(ctx: &Ctx, total: Sym<u64>) -> Result {
    ///     if Thread::index() == 0 {
    ///         ctx.atomic_add(total, 1, 0)?;
    ///         ctx.quiet(Thread)?;
    ///     }
    ///     Ok(())
    /// }
    /// # fn main() {}
    /// ```
    ///
    /// # Errors
    /// - The errors of [`Ctx::atomic_fetch`].
    #[inline(always)]
    #[track_caller]
    pub fn atomic_add<T: Addend>(&self, word: Sym<T>, value: T, pe: u32) -> Result {
        if T::FLOAT {
            return self.add_by_swap(word, value, pe).map(|_| ());
        }
        self.post_op(word, Kind::Add, value, pe)
    }

    /// Adds like [`Ctx::atomic_add`] and returns the old value. OpenSHMEM: `shmem_atomic_fetch_add`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::atomic_fetch`].
    #[inline(always)]
    #[track_caller]
    pub fn atomic_fetch_add<T: Addend>(&self, word: Sym<T>, value: T, pe: u32) -> Result<T> {
        if T::FLOAT {
            return self.add_by_swap(word, value, pe);
        }
        self.fetch_op(word, Kind::Add, value, T::zeroed(), pe)
    }

    /// Adds 1 to the word, wrapping. OpenSHMEM: `shmem_atomic_inc`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::atomic_fetch`].
    #[inline(always)]
    #[track_caller]
    pub fn atomic_inc<T: Amo>(&self, word: Sym<T>, pe: u32) -> Result {
        self.post_op(word, Kind::Add, T::from_bits(1), pe)
    }

    /// Adds 1 to the word, wrapping, and returns the old value. OpenSHMEM: `shmem_atomic_fetch_inc`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::atomic_fetch`].
    #[inline(always)]
    #[track_caller]
    pub fn atomic_fetch_inc<T: Amo>(&self, word: Sym<T>, pe: u32) -> Result<T> {
        self.fetch_op(word, Kind::Add, T::from_bits(1), T::zeroed(), pe)
    }

    /// Replaces the word by its bitwise and with `value`. OpenSHMEM: `shmem_atomic_and`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::atomic_fetch`].
    #[inline(always)]
    #[track_caller]
    pub fn atomic_and<T: Amo>(&self, word: Sym<T>, value: T, pe: u32) -> Result {
        self.post_op(word, Kind::And, value, pe)
    }

    /// Replaces the word by its bitwise and with `value`, and returns the old value. OpenSHMEM:
    /// `shmem_atomic_fetch_and`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::atomic_fetch`].
    #[inline(always)]
    #[track_caller]
    pub fn atomic_fetch_and<T: Amo>(&self, word: Sym<T>, value: T, pe: u32) -> Result<T> {
        self.fetch_op(word, Kind::And, value, T::zeroed(), pe)
    }

    /// Replaces the word by its bitwise or with `value`. OpenSHMEM: `shmem_atomic_or`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::atomic_fetch`].
    #[inline(always)]
    #[track_caller]
    pub fn atomic_or<T: Amo>(&self, word: Sym<T>, value: T, pe: u32) -> Result {
        self.post_op(word, Kind::Or, value, pe)
    }

    /// Replaces the word by its bitwise or with `value`, and returns the old value. OpenSHMEM: `shmem_atomic_fetch_or`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::atomic_fetch`].
    #[inline(always)]
    #[track_caller]
    pub fn atomic_fetch_or<T: Amo>(&self, word: Sym<T>, value: T, pe: u32) -> Result<T> {
        self.fetch_op(word, Kind::Or, value, T::zeroed(), pe)
    }

    /// Replaces the word by its bitwise exclusive or with `value`. OpenSHMEM: `shmem_atomic_xor`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::atomic_fetch`].
    #[inline(always)]
    #[track_caller]
    pub fn atomic_xor<T: Amo>(&self, word: Sym<T>, value: T, pe: u32) -> Result {
        self.post_op(word, Kind::Xor, value, pe)
    }

    /// Replaces the word by its bitwise exclusive or with `value`, and returns the old value. OpenSHMEM:
    /// `shmem_atomic_fetch_xor`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::atomic_fetch`].
    #[inline(always)]
    #[track_caller]
    pub fn atomic_fetch_xor<T: Amo>(&self, word: Sym<T>, value: T, pe: u32) -> Result<T> {
        self.fetch_op(word, Kind::Xor, value, T::zeroed(), pe)
    }

    /// Adds a float by fetching the word and swapping in the sum, and returns the old value. Retries when another PE
    /// has changed the word in between.
    #[inline(always)]
    #[track_caller]
    fn add_by_swap<T: Addend>(&self, word: Sym<T>, value: T, pe: u32) -> Result<T> {
        let mut watch = Watch::new(self.parts_ref().state);
        let mut found = self.atomic_fetch(word, pe)?;
        loop {
            let seen = self.fetch_op(word, Kind::CompareSwap, found.plus(value), found, pe)?;
            // Compares bits, because NaN does not equal itself.
            if seen.bits() == found.bits() {
                return Ok(found);
            }
            match watch.turn() {
                Ok(()) => {}
                Err(Error::Timeout) => {
                    let d = Detail {
                        peer: pe,
                        found: seen.bits(),
                        wanted: found.bits(),
                        offset: word.offset(),
                        ..Detail::NONE
                    };
                    return Err(self.fail(Error::WaitTimeout, d));
                }
                Err(other) => return Err(other),
            }
            found = seen;
        }
    }

    /// Applies the atomic selected by `number` and returns the old value, for kernels that serve many atomics: 0 is
    /// add, 1 and, 2 or, 3 exclusive or, 4 set, anything else compare-and-swap.
    ///
    /// # Errors
    /// - The errors of [`Ctx::atomic_fetch`].
    #[doc(hidden)]
    #[inline(always)]
    #[track_caller]
    pub fn atomic_fetching<T: Amo>(
        &self,
        number: u32,
        word: Sym<T>,
        value: T,
        compare: T,
        pe: u32,
    ) -> Result<T> {
        self.fetch_op(word, Kind::of(number), value, compare, pe)
    }

    /// Like [`Ctx::atomic_fetching`], without a result. Does not support compare-and-swap.
    ///
    /// # Errors
    /// - The errors of [`Ctx::atomic_fetch`].
    #[doc(hidden)]
    #[inline(always)]
    #[track_caller]
    pub fn atomic_posting<T: Amo>(&self, number: u32, word: Sym<T>, value: T, pe: u32) -> Result {
        self.post_op(word, Kind::of(number), value, pe)
    }

    /// Applies an atomic and returns the old value.
    #[inline(always)]
    #[track_caller]
    fn fetch_op<T: AmoWord>(&self, word: Sym<T>, kind: Kind, value: T, compare: T, pe: u32) -> Result<T> {
        let [_, name, _] = kind.names();
        let _call = watch::call(name, fetch_event(self, word, pe, false));
        let (value, compare) = (value.bits(), compare.bits());
        let op = Op::<8> { kind, value, compare };
        if let Some(p) = self.p2p_atomic_addr(pe, word.offset(), size_of::<T>() as u64) {
            // SAFETY: inside of the peer's heap, which is mapped; all its atomics are processor atomics.
            return Ok(unsafe { op.apply_fetch(p) });
        }
        let (ctx_ref, at) = (CtxRef::of(self), word.offset());
        let (error, found) = if size_of::<T>() == 8 {
            fetch_slow::<S, 8>(ctx_ref, at, kind, value, compare, pe)
        } else {
            fetch_slow::<S, 4>(ctx_ref, at, kind, value, compare, pe)
        };
        match Error::from_code(error) {
            Some(error) => Err(error),
            None => Ok(T::from_bits(found)),
        }
    }

    /// Returns whether a processor atomic implements `kind` on mapped memory. True for any set of a signal, which is a
    /// store and needs no atomicity.
    #[inline(always)]
    pub(crate) fn applies_to_mapped(&self, kind: Kind) -> bool {
        kind == Kind::SignalSet || self.p2p_atomics()
    }

    /// Applies an atomic without a result to mapped memory, or posts it to a NIC.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn post_op<T: AmoWord>(&self, word: Sym<T>, kind: Kind, value: T, pe: u32) -> Result {
        let mapped = self.p2p_addr(pe, word.offset(), size_of::<T>() as u64);
        self.post_op_at(mapped, word, kind, value, pe)
    }

    /// Applies an atomic without a result to the word at address `mapped`, if it is mapped and processor atomics apply
    /// to it. Otherwise takes the slow path.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn post_op_at<T: AmoWord>(
        &self,
        mapped: Option<*mut T>,
        word: Sym<T>,
        kind: Kind,
        value: T,
        pe: u32,
    ) -> Result {
        let change = match kind {
            Kind::SignalSet => Change::Set,
            Kind::Set => Change::Replace,
            _ => Change::Update,
        };
        let operation = Operation::Change { word: word_at(pe, word), change };
        let [name, _, _] = kind.names();
        let _call = watch::call(name, Event::post(self.parts_ref(), operation, Completion::Posted));
        let value = value.bits();
        let p2p = self.applies_to_mapped(kind);
        if let Some(p) = mapped
            && p2p
        {
            // SAFETY: inside of the peer's heap, which is mapped. All its atomics are processor atomics, or this is a set.
            unsafe { Op::<8>::new(kind, value).apply(p) };
            return Ok(());
        }
        let (ctx_ref, at) = (CtxRef::of(self), word.offset());
        if size_of::<T>() == 8 {
            post_slow::<S, 8>(ctx_ref, at, kind, value, pe)
        } else {
            post_slow::<S, 4>(ctx_ref, at, kind, value, pe)
        }
    }
}

/// Returns the event that reports a fetching atomic to the sanitizer.
#[inline(always)]
pub(crate) fn fetch_event<S, T: AmoWord>(ctx: &Ctx<S>, word: Sym<T>, pe: u32, is_read: bool) -> Event {
    let operation = Operation::Fetch { word: word_at(pe, word), is_read, result: None };
    Event::post(ctx.parts_ref(), operation, Completion::Done)
}

/// Executes an atomic without a result that [`Ctx::post_op_at`] could not apply to mapped memory.
#[inline(never)]
#[track_caller]
fn post_slow<S: Sharing, const WIDTH: usize>(
    ctx_ref: CtxRef,
    offset: u64,
    kind: Kind,
    value: u64,
    pe: u32,
) -> Result {
    let (ctx, op) = (ctx_ref.ctx::<S>(), Op::<WIDTH>::new(kind, value));
    ctx.check_word(offset, WIDTH as u64, pe)?;
    if ctx.applies_to_mapped(kind)
        && let Some(p) = ctx.peer_addr::<u8>(pe, offset)
    {
        // SAFETY: inside of the peer's memory, which is mapped. All its atomics are processor atomics, or this is a set.
        unsafe { op.apply_bits(p) };
        return Ok(());
    }
    let qp = ctx.atomic_qp(pe);
    post_atomic(Thread, &qp, ctx.remote_word(&qp, offset), op, Location::caller()).map(|_| ())
}

/// Executes a fetching atomic that could not be applied to mapped memory, and waits for its result. Returns an error
/// code, or 0 and the old value: plain words, because a returned struct would require stack memory.
#[inline(never)]
#[track_caller]
fn fetch_slow<S: Sharing, const WIDTH: usize>(
    ctx_ref: CtxRef,
    offset: u64,
    kind: Kind,
    value: u64,
    compare: u64,
    pe: u32,
) -> (u32, u64) {
    let (ctx, op) = (ctx_ref.ctx::<S>(), Op::<WIDTH> { kind, value, compare });
    if let Err(error) = ctx.check_word(offset, WIDTH as u64, pe) {
        return (error as u32, 0);
    }
    if let Some(p) = ctx.peer_atomic_addr::<u8>(pe, offset) {
        // SAFETY: as in `post_slow`.
        return (0, unsafe { op.apply_fetch_bits(p) });
    }
    let qp = ctx.atomic_qp(pe);
    let ((raddr, rkey), desc) = (ctx.remote_word(&qp, offset), qp.desc());
    let wqe = |laddr| op.wqe(raddr, rkey, laddr, desc.strict_lkey);
    match fetch(&qp, ctx.parts_ref().heap, op.blocks(), wqe, Location::caller()) {
        Ok(found) => (0, to_native_order::<WIDTH>(found, desc.flags & qp_flags::BIG_ENDIAN_8 != 0)),
        Err(error) => (error as u32, 0),
    }
}

/// Converts a NIC's result to this processor's byte order. 4-byte results are always big-endian; the byte order of
/// 8-byte results depends on the NIC.
#[inline(always)]
fn to_native_order<const WIDTH: usize>(found: u64, big_endian_8: bool) -> u64 {
    match (WIDTH, big_endian_8) {
        (4, _) => (found as u32).swap_bytes() as u64,
        (_, true) => found.swap_bytes(),
        (_, false) => found,
    }
}

/// Posts an atomic or set without a result. `word` is the remote address and memory key of the target.
#[inline(always)]
pub(crate) fn post_atomic<G: Group, S: Sharing, const WIDTH: usize>(
    group: G,
    qp: &Qp<'_, S>,
    word: (u64, u32),
    op: Op<WIDTH>,
    site: Site,
) -> Result<EndIndex> {
    let (wqe, blocks) = without_result(qp, word, op);
    post(group, qp, blocks, &wqe, site)
}

/// Returns the WQE of an atomic or set without a result, and its number of blocks.
///
/// A signal's set needs no atomicity, only to be ordered after earlier WRITEs. On an in-order QP, an inline WRITE of
/// the value is: the key of the word is strict, so it does not pass earlier WRITEs on PCIe either. It takes half as
/// many blocks, and the NIC executes it without reading memory. On other QPs, and on one that is not connected yet, an
/// atomic preserves the order.
#[inline(always)]
pub(crate) fn without_result<S: Sharing, const WIDTH: usize>(
    qp: &Qp<'_, S>,
    (raddr, rkey): (u64, u32),
    op: Op<WIDTH>,
) -> (Wqe, u64) {
    if op.kind == Kind::SignalSet && qp.is_in_order() {
        return (Wqe::WriteInline { raddr, rkey, data: Inline::from_u64(op.value) }, 1);
    }
    (op.wqe(raddr, rkey, reserved::SINK, qp.desc().strict_lkey), op.blocks())
}
