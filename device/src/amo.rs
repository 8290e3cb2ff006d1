//! Remote atomics on 4- and 8-byte integers.
//!
//! They are atomic with each other, from whatever PE and path they come: the runtime sends all atomics on a PE's
//! heap one way, through its NIC or through processor atomics, never both. They are **not** atomic with plain
//! stores. They order nothing: use `fence`, `quiet` or signals.
//!
//! On a NIC: FETCH_ADD, CMP_SWAP and the extended (masked) atomics.

use core::panic::Location;

use bytemuck::Pod;
use rushmem_mlx5::Wqe;

use crate::abi::{qp_flags, reserved};
use crate::arch::SysWord;
use crate::ctx::Ctx;
use crate::error::{Result, Site};
use crate::group::{Group, Thread};
use crate::heap::Sym;
use crate::post::post;
use crate::qp::{Qp, Ticket};
use crate::sharing::Sharing;

/// An integer that remote atomics work on: 4 or 8 bytes.
pub trait Amo: Pod + sealed::Sealed {}

mod sealed {
    use crate::arch::SysWord;

    pub trait Sealed: Sized {
        /// The word of this size.
        type Word: SysWord;
        /// The value as a word.
        fn word(self) -> Self::Word;
        /// The value in the low bits.
        fn bits(self) -> u64;
        fn from_word(word: Self::Word) -> Self;
        fn from_bits(bits: u64) -> Self;
    }

    macro_rules! amo {
        ($($t:ty, $word:ty;)*) => {$(
            impl Sealed for $t {
                type Word = $word;
                #[inline(always)]
                fn word(self) -> $word {
                    self as $word
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
            }
            impl super::Amo for $t {}
        )*};
    }
    amo! { u32, u32; i32, u32; u64, u64; i64, u64; usize, u64; isize, u64; }
}

/// What to do to the word.
#[derive(Clone, Copy)]
pub(crate) enum Op<T> {
    Add(T),
    And(T),
    Or(T),
    Xor(T),
    Set(T),
    CompareSwap { compare: T, swap: T },
}

impl<T: Amo> Op<T> {
    /// The WQE for the word at heap offset `raddr`; the old value goes to `laddr`.
    #[inline(always)]
    fn wqe(self, raddr: u64, rkey: u32, laddr: u64, lkey: u32) -> Wqe {
        if size_of::<T>() == 8 {
            self.wqe_64(raddr, rkey, laddr, lkey)
        } else {
            self.wqe_32(raddr, rkey, laddr, lkey)
        }
    }

    #[inline(always)]
    fn wqe_64(self, raddr: u64, rkey: u32, laddr: u64, lkey: u32) -> Wqe {
        let masked_swap = |swap, swap_mask| Wqe::MaskedCompareSwap64 {
            raddr,
            rkey,
            laddr,
            lkey,
            compare: 0,
            swap,
            compare_mask: 0,
            swap_mask,
        };
        match self {
            Op::Add(v) => Wqe::FetchAdd { raddr, rkey, laddr, lkey, add: v.bits() },
            Op::Xor(v) => {
                Wqe::MaskedFetchAdd64 { raddr, rkey, laddr, lkey, add: v.bits(), boundary: u64::MAX }
            }
            Op::And(v) => masked_swap(v.bits(), !v.bits()),
            Op::Or(v) => masked_swap(v.bits(), v.bits()),
            Op::Set(v) => masked_swap(v.bits(), u64::MAX),
            Op::CompareSwap { compare, swap } => {
                Wqe::CompareSwap { raddr, rkey, laddr, lkey, compare: compare.bits(), swap: swap.bits() }
            }
        }
    }

    #[inline(always)]
    fn wqe_32(self, raddr: u64, rkey: u32, laddr: u64, lkey: u32) -> Wqe {
        let add = |add, boundary| Wqe::MaskedFetchAdd32 { raddr, rkey, laddr, lkey, add, boundary };
        let swap = |compare, compare_mask, swap, swap_mask| Wqe::MaskedCompareSwap32 {
            raddr,
            rkey,
            laddr,
            lkey,
            compare,
            swap,
            compare_mask,
            swap_mask,
        };
        let low = |v: T| v.bits() as u32;
        match self {
            Op::Add(v) => add(low(v), 0),
            Op::Xor(v) => add(low(v), u32::MAX),
            Op::And(v) => swap(0, 0, low(v), !low(v)),
            Op::Or(v) => swap(0, 0, low(v), low(v)),
            Op::Set(v) => swap(0, 0, low(v), u32::MAX),
            Op::CompareSwap { compare, swap: new } => swap(low(compare), u32::MAX, low(new), u32::MAX),
        }
    }

    /// Blocks of the WQE.
    #[inline(always)]
    pub(crate) fn blocks(self) -> u64 {
        let two = size_of::<T>() == 8 && matches!(self, Op::And(_) | Op::Or(_) | Op::Set(_));
        if two { 2 } else { 1 }
    }

    /// Does it with processor atomics; returns the old value.
    ///
    /// # Safety
    /// `p` is an aligned word that is only accessed atomically.
    #[inline(always)]
    unsafe fn here(self, p: *mut T) -> T {
        let p = p.cast::<T::Word>();
        // SAFETY: the caller's promise.
        let old = unsafe {
            match self {
                Op::Add(v) => T::Word::fetch_add(p, v.word()),
                Op::And(v) => T::Word::fetch_and(p, v.word()),
                Op::Or(v) => T::Word::fetch_or(p, v.word()),
                Op::Xor(v) => T::Word::fetch_xor(p, v.word()),
                Op::Set(v) => T::Word::swap(p, v.word()),
                Op::CompareSwap { compare, swap } => T::Word::compare_swap(p, compare.word(), swap.word()),
            }
        };
        T::from_word(old)
    }
}

impl<S: Sharing> Ctx<S> {
    /// Reads the word atomically. OpenSHMEM 1.6 section 9.7, `shmem_atomic_fetch`.
    ///
    /// # Errors
    /// Those of [`Ctx::g`]; the same holds for all the atomics.
    #[inline(always)]
    #[track_caller]
    pub fn atomic_fetch<T: Amo>(&self, word: Sym<T>, pe: u32) -> Result<T> {
        self.fetching(word, Op::Add(T::zeroed()), pe)
    }

    /// Sets the word. `shmem_atomic_set`.
    #[inline(always)]
    #[track_caller]
    pub fn atomic_set<T: Amo>(&self, word: Sym<T>, value: T, pe: u32) -> Result {
        self.posting(word, Op::Set(value), pe)
    }

    /// Sets the word; returns the old value. `shmem_atomic_swap`.
    #[inline(always)]
    #[track_caller]
    pub fn atomic_swap<T: Amo>(&self, word: Sym<T>, value: T, pe: u32) -> Result<T> {
        self.fetching(word, Op::Set(value), pe)
    }

    /// Sets the word to `value` if it holds `compare`; returns the value found. `shmem_atomic_compare_swap`.
    #[inline(always)]
    #[track_caller]
    pub fn atomic_compare_swap<T: Amo>(&self, word: Sym<T>, compare: T, value: T, pe: u32) -> Result<T> {
        self.fetching(word, Op::CompareSwap { compare, swap: value }, pe)
    }

    /// Adds to the word, wrapping. `shmem_atomic_add`.
    #[inline(always)]
    #[track_caller]
    pub fn atomic_add<T: Amo>(&self, word: Sym<T>, value: T, pe: u32) -> Result {
        self.posting(word, Op::Add(value), pe)
    }

    /// Adds to the word, wrapping; returns the old value. `shmem_atomic_fetch_add`.
    #[inline(always)]
    #[track_caller]
    pub fn atomic_fetch_add<T: Amo>(&self, word: Sym<T>, value: T, pe: u32) -> Result<T> {
        self.fetching(word, Op::Add(value), pe)
    }

    /// Adds 1 to the word, wrapping. `shmem_atomic_inc`.
    #[inline(always)]
    #[track_caller]
    pub fn atomic_inc<T: Amo>(&self, word: Sym<T>, pe: u32) -> Result {
        self.posting(word, Op::Add(T::from_bits(1)), pe)
    }

    /// Adds 1 to the word, wrapping; returns the old value. `shmem_atomic_fetch_inc`.
    #[inline(always)]
    #[track_caller]
    pub fn atomic_fetch_inc<T: Amo>(&self, word: Sym<T>, pe: u32) -> Result<T> {
        self.fetching(word, Op::Add(T::from_bits(1)), pe)
    }

    /// Bitwise and. `shmem_atomic_and`.
    #[inline(always)]
    #[track_caller]
    pub fn atomic_and<T: Amo>(&self, word: Sym<T>, value: T, pe: u32) -> Result {
        self.posting(word, Op::And(value), pe)
    }

    /// Bitwise and; returns the old value. `shmem_atomic_fetch_and`.
    #[inline(always)]
    #[track_caller]
    pub fn atomic_fetch_and<T: Amo>(&self, word: Sym<T>, value: T, pe: u32) -> Result<T> {
        self.fetching(word, Op::And(value), pe)
    }

    /// Bitwise or. `shmem_atomic_or`.
    #[inline(always)]
    #[track_caller]
    pub fn atomic_or<T: Amo>(&self, word: Sym<T>, value: T, pe: u32) -> Result {
        self.posting(word, Op::Or(value), pe)
    }

    /// Bitwise or; returns the old value. `shmem_atomic_fetch_or`.
    #[inline(always)]
    #[track_caller]
    pub fn atomic_fetch_or<T: Amo>(&self, word: Sym<T>, value: T, pe: u32) -> Result<T> {
        self.fetching(word, Op::Or(value), pe)
    }

    /// Bitwise exclusive or. `shmem_atomic_xor`.
    #[inline(always)]
    #[track_caller]
    pub fn atomic_xor<T: Amo>(&self, word: Sym<T>, value: T, pe: u32) -> Result {
        self.posting(word, Op::Xor(value), pe)
    }

    /// Bitwise exclusive or; returns the old value. `shmem_atomic_fetch_xor`.
    #[inline(always)]
    #[track_caller]
    pub fn atomic_fetch_xor<T: Amo>(&self, word: Sym<T>, value: T, pe: u32) -> Result<T> {
        self.fetching(word, Op::Xor(value), pe)
    }

    #[inline(always)]
    #[track_caller]
    fn fetching<T: Amo>(&self, word: Sym<T>, op: Op<T>, pe: u32) -> Result<T> {
        let peer = self.peer(pe)?;
        self.check(word)?;
        if let (Some(p), true) = (peer.mapped::<T>(word.offset()), peer.direct_atomics) {
            // SAFETY: inside of the peer's heap, which is mapped; all its atomics are processor atomics.
            return Ok(unsafe { op.here(p) });
        }
        let qp = self.qp(pe);
        let (rkey, lkey) = (qp.desc().rkey, qp.desc().lkey);
        let found = self.fetch(&qp, op.blocks(), |laddr| op.wqe(word.offset(), rkey, laddr, lkey))?;
        // 4-byte results are big-endian always, 8-byte results as the device says.
        let swapped = size_of::<T>() == 4 || qp.desc().flags & qp_flags::BIG_ENDIAN_8 != 0;
        Ok(T::from_bits(match (size_of::<T>(), swapped) {
            (4, _) => (found as u32).swap_bytes() as u64,
            (_, true) => found.swap_bytes(),
            _ => found,
        }))
    }

    #[inline(always)]
    #[track_caller]
    pub(crate) fn posting<T: Amo>(&self, word: Sym<T>, op: Op<T>, pe: u32) -> Result {
        let peer = self.peer(pe)?;
        self.check(word)?;
        if let (Some(p), true) = (peer.mapped::<T>(word.offset()), peer.direct_atomics) {
            // SAFETY: inside of the peer's heap, which is mapped; all its atomics are processor atomics.
            unsafe { op.here(p) };
            return Ok(());
        }
        let qp = self.qp(pe);
        post_atomic(Thread, &qp, word.offset(), op, Location::caller()).map(|_| ())
    }
}

/// Posts an atomic on the word at a heap offset, whose result nobody wants.
#[inline(always)]
pub(crate) fn post_atomic<G: Group, S: Sharing, T: Amo>(
    group: G,
    qp: &Qp<'_, S>,
    word: u64,
    op: Op<T>,
    site: Site,
) -> Result<Ticket> {
    post(group, qp, op.blocks(), &unwanted(qp, word, op), site)
}

/// The WQE of an atomic whose result goes to the sink.
#[inline(always)]
pub(crate) fn unwanted<S: Sharing, T: Amo>(qp: &Qp<'_, S>, word: u64, op: Op<T>) -> Wqe {
    op.wqe(word, qp.desc().rkey, reserved::SINK, qp.desc().lkey)
}
