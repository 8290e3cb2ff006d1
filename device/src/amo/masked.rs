//! Atomics on fields of a word: the extended atomics of a NIC, of which all other atomics are special cases.
#![allow(unsafe_code, reason = "performs atomics on checked addresses of mapped heaps")]

use core::panic::Location;

use rushmem_mlx5::Wqe;

use super::{Amo, fetch_event, to_native_order};
use crate::abi::qp_flags;
use crate::arch::SysWord;
use crate::ctx::Ctx;
use crate::ctx::CtxRef;
use crate::error::{Error, Result};
use crate::heap::Sym;
use crate::outlined::outlined;
use crate::rma::fetch;
use crate::sharing::Sharing;
use crate::watch;

#[derive(Clone, Copy)]
enum Masked {
    CompareSwap,
    Add,
}

/// Operands of a masked atomic. For a 4-byte word, they are in the low halves.
///
/// `compare` and `compare_mask` only apply to the swap. `mask` selects the bits that the swap may change, or marks the
/// top bit of each field of a sum.
#[derive(Clone, Copy)]
struct Operands {
    value: u64,
    mask: u64,
    compare: u64,
    compare_mask: u64,
}

impl Masked {
    /// Returns the value that the atomic stores in a word that holds `old`.
    #[inline(always)]
    fn of(self, old: u64, o: Operands) -> u64 {
        match self {
            Self::CompareSwap if (old ^ o.compare) & o.compare_mask == 0 => {
                (old & !o.mask) | (o.value & o.mask)
            }
            Self::CompareSwap => old,
            // Without the top bits of the fields, a carry reaches these bits and no further.
            Self::Add => (old & !o.mask).wrapping_add(o.value & !o.mask) ^ ((old ^ o.value) & o.mask),
        }
    }
}

/// # Atomics on bit fields
///
/// Atomic updates of parts of a word.
impl<S: Sharing> Ctx<'_, S> {
    /// Replaces the bits of a word that `swap_mask` selects by those of `value`, if the bits that `compare_mask`
    /// selects equal those of `compare`. Returns the value found.
    ///
    /// GPUNetIO: extended atomics. On a NIC: masked CMP_SWAP.
    ///
    /// # Errors
    /// - The errors of [`Ctx::atomic_fetch`].
    #[inline(always)]
    #[track_caller]
    pub fn atomic_masked_compare_swap<T: Amo>(
        &self,
        word: Sym<T>,
        compare: T,
        compare_mask: T,
        value: T,
        swap_mask: T,
        pe: u32,
    ) -> Result<T> {
        let o = Operands {
            value: value.bits(),
            mask: swap_mask.bits(),
            compare: compare.bits(),
            compare_mask: compare_mask.bits(),
        };
        self.masked(word, Masked::CompareSwap, o, pe)
    }

    /// Adds to each bit field of a word separately, and returns the value found. Each set bit of `tops` marks the top
    /// bit of a field, out of which no carry propagates.
    ///
    /// With `tops` of 0 there is a single field; with all bits set, the result is an exclusive or. GPUNetIO: extended
    /// atomics. On a NIC: masked FETCH_ADD.
    ///
    /// # Errors
    /// - The errors of [`Ctx::atomic_fetch`].
    #[inline(always)]
    #[track_caller]
    pub fn atomic_masked_fetch_add<T: Amo>(&self, word: Sym<T>, value: T, tops: T, pe: u32) -> Result<T> {
        let o = Operands { value: value.bits(), mask: tops.bits(), compare: 0, compare_mask: 0 };
        self.masked(word, Masked::Add, o, pe)
    }

    /// Applies a masked atomic and returns the value found.
    #[inline(always)]
    #[track_caller]
    fn masked<T: Amo>(&self, word: Sym<T>, kind: Masked, o: Operands, pe: u32) -> Result<T> {
        let name = match kind {
            Masked::CompareSwap => "atomic_masked_compare_swap",
            Masked::Add => "atomic_masked_fetch_add",
        };
        let _call = watch::call(name, fetch_event(self, word, pe, false));
        let (ctx_ref, at) = (CtxRef::of(self), word.offset());
        let (error, found) = if size_of::<T>() == 8 {
            masked::<S, 8>(ctx_ref, at, kind, pe, o)
        } else {
            masked::<S, 4>(ctx_ref, at, kind, pe, o)
        };
        match Error::from_code(error) {
            Some(error) => Err(error),
            None => Ok(T::from_bits(found)),
        }
    }
}

outlined! {
    /// Applies a masked atomic to any word and waits for it. Returns an error code, or 0 and the old value. Outlined to
    /// keep kernels with many calls small.
    #[track_caller]
    fn masked[S: Sharing; const WIDTH: usize](
        ctx_ref: CtxRef,
        offset: u64,
        kind: Masked,
        pe: u32;
        o: Operands { value: u64, mask: u64, compare: u64, compare_mask: u64 }
    ) -> (u32, u64) {
        let ctx = ctx_ref.ctx::<S>();
        let Operands { value, mask, compare, compare_mask } = o;
        if let Err(error) = ctx.check_word(offset, WIDTH as u64, pe) {
            return (error as u32, 0);
        }
        if let Some(p) = ctx.peer_atomic_addr::<u8>(pe, offset) {
            // SAFETY: inside of the peer's memory, which is mapped; all its atomics are processor atomics.
            let old = unsafe {
                if WIDTH == 8 {
                    apply_fetch::<u64>(p.cast(), kind, o)
                } else {
                    apply_fetch::<u32>(p.cast(), kind, o) as u64
                }
            };
            return (0, old);
        }
        let qp = ctx.atomic_qp(pe);
        let ((raddr, rkey), desc) = (ctx.remote_word(&qp, offset), qp.desc());
        let (lkey, wide) = (desc.strict_lkey, WIDTH == 8);
        let wqe = |laddr| match (kind, wide) {
            (Masked::CompareSwap, true) => Wqe::MaskedCompareSwap64 {
                raddr,
                rkey,
                laddr,
                lkey,
                compare,
                swap: value,
                compare_mask,
                swap_mask: mask,
            },
            (Masked::CompareSwap, false) => Wqe::MaskedCompareSwap32 {
                raddr,
                rkey,
                laddr,
                lkey,
                compare: compare as u32,
                swap: value as u32,
                compare_mask: compare_mask as u32,
                swap_mask: mask as u32,
            },
            (Masked::Add, true) => Wqe::MaskedFetchAdd64 { raddr, rkey, laddr, lkey, add: value, boundary: mask },
            (Masked::Add, false) => {
                Wqe::MaskedFetchAdd32 { raddr, rkey, laddr, lkey, add: value as u32, boundary: mask as u32 }
            }
        };
        // See [`Qp::blocks_of`]: completion handling relies on the 64-bit swap being the only masked atomic of two
        // blocks.
        let blocks = if matches!(kind, Masked::CompareSwap) && wide { 2 } else { 1 };
        match fetch(&qp, ctx.parts_ref().heap, blocks, wqe, Location::caller()) {
            Ok(found) => (0, to_native_order::<WIDTH>(found, desc.flags & qp_flags::BIG_ENDIAN_8 != 0)),
            Err(error) => (error as u32, 0),
        }
    }
}

/// Applies the masked atomic as a processor atomic. Returns the old value.
///
/// # Safety
/// `p` is aligned and valid for reads and writes. Concurrent accesses to the word are atomic.
#[inline(always)]
unsafe fn apply_fetch<T: Amo>(p: *mut T, kind: Masked, o: Operands) -> T {
    let p = p.cast::<T::Word>();
    // SAFETY: `p` is an aligned, readable word with atomic accesses only, by this function's contract.
    let mut old = unsafe { T::Word::load_acquire(p) };
    // An iteration fails only if another thread has changed the word.
    loop {
        let new = kind.of(T::from_word(old).bits(), o);
        // SAFETY: `p` is an aligned, writable word with atomic accesses only, by this function's contract.
        let found = unsafe { T::Word::compare_swap(p, old, T::word(new)) };
        if found == old {
            return T::from_word(old);
        }
        old = found;
    }
}
