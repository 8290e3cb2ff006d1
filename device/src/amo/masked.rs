//! Atomics on fields of a word: what a NIC's extended atomics do, and the others are made of.

use core::panic::Location;

use rushmem_mlx5::Wqe;

use super::{Amo, in_order};
use crate::abi::{DevAddr, QpEntry, qp_flags};
use crate::arch::SysWord;
use crate::ctx::Ctx;
use crate::error::{Error, Result, Site};
use crate::heap::Sym;
use crate::qp::Qp;
use crate::rma::fetch;
use crate::sharing::Sharing;

/// A masked atomic on a word of `WIDTH` bytes.
#[derive(Clone, Copy)]
enum Masked {
    CompareSwap,
    Add,
}

/// Operands of a masked atomic, in the low bits: `compare` and `compare_mask` count for the swap only, `mask` is what the
/// swap may change, or the top bits of the fields of a sum.
#[derive(Clone, Copy)]
struct Operands {
    value: u64,
    mask: u64,
    compare: u64,
    compare_mask: u64,
}

impl Masked {
    /// What becomes of `old`.
    #[inline(always)]
    fn of(self, old: u64, o: Operands) -> u64 {
        match self {
            Self::CompareSwap if (old ^ o.compare) & o.compare_mask == 0 => {
                (old & !o.mask) | (o.value & o.mask)
            }
            Self::CompareSwap => old,
            // The sum of all but the fields' top bits carries into those and no further.
            Self::Add => (old & !o.mask).wrapping_add(o.value & !o.mask) ^ ((old ^ o.value) & o.mask),
        }
    }
}

impl<S: Sharing> Ctx<S> {
    /// Sets the bits of `swap_mask` to those of `value` if the word's bits under `compare_mask` are those of `compare`; no
    /// other bit changes. Returns the value found.
    ///
    /// GPUNetIO's extended atomics. On a NIC: masked CMP_SWAP.
    ///
    /// # Errors
    /// As [`Ctx::atomic_fetch`].
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

    /// Adds to the fields of a word, each by itself: a 1 in `tops` is the top bit of a field, out of which nothing is
    /// carried. 0 is one field, all ones an exclusive or. Returns the value found.
    ///
    /// GPUNetIO's extended atomics. On a NIC: masked FETCH_ADD.
    ///
    /// # Errors
    /// As [`Ctx::atomic_fetch`].
    #[inline(always)]
    #[track_caller]
    pub fn atomic_masked_fetch_add<T: Amo>(&self, word: Sym<T>, value: T, tops: T, pe: u32) -> Result<T> {
        let o = Operands { value: value.bits(), mask: tops.bits(), compare: 0, compare_mask: 0 };
        self.masked(word, Masked::Add, o, pe)
    }

    #[inline(always)]
    #[track_caller]
    fn masked<T: Amo>(&self, word: Sym<T>, kind: Masked, o: Operands, pe: u32) -> Result<T> {
        self.check_pe(pe)?;
        let peer = self.at_peer(pe);
        self.check(word)?;
        if let Some(p) = peer.mapped_for_atomics::<T>(word.offset()) {
            // SAFETY: inside of the peer's heap, which is mapped; all its atomics are processor atomics.
            return Ok(unsafe { here(p, kind, o) });
        }
        let (qp, heap, site) = (self.atomic_qp(pe), self.parts_ref().heap, Location::caller());
        let (entry, at) = (qp.entry(), self.remote_end(&qp, word.offset()));
        let (Operands { value, mask, compare, compare_mask }, wide) = (o, size_of::<T>() == 8);
        let (error, found) = match (kind, wide) {
            (Masked::CompareSwap, true) => {
                swap_masked::<S, 8>(entry, heap, at, value, mask, compare, compare_mask, site)
            }
            (Masked::CompareSwap, false) => {
                swap_masked::<S, 4>(entry, heap, at, value, mask, compare, compare_mask, site)
            }
            (Masked::Add, true) => add_masked::<S, 8>(entry, heap, at, value, mask, site),
            (Masked::Add, false) => add_masked::<S, 4>(entry, heap, at, value, mask, site),
        };
        match Error::from_code(error) {
            Some(error) => Err(error),
            None => Ok(T::from_bits(found)),
        }
    }
}

/// Does it with processor atomics; returns the old value.
///
/// # Safety
/// `p` is an aligned word that is only accessed atomically.
#[inline(always)]
unsafe fn here<T: Amo>(p: *mut T, kind: Masked, o: Operands) -> T {
    let p = p.cast::<T::Word>();
    // SAFETY: the caller's promise.
    let mut old = unsafe { T::Word::load_acquire(p) };
    // A turn that fails means that another thread's has succeeded.
    loop {
        let new = kind.of(T::from_word(old).bits(), o);
        // SAFETY: the caller's promise.
        let found = unsafe { T::Word::compare_swap(p, old, T::word(new)) };
        if found == old {
            return T::from_word(old);
        }
        old = found;
    }
}

/// Posts a masked compare and swap and waits, for a thread: an error's code, or 0 and the old value.
#[inline(never)]
#[allow(clippy::too_many_arguments)] // plain words, or every kernel would get a stack
fn swap_masked<S: Sharing, const WIDTH: usize>(
    entry: *mut QpEntry,
    heap: DevAddr,
    (raddr, rkey): (u64, u32),
    swap: u64,
    swap_mask: u64,
    compare: u64,
    compare_mask: u64,
    site: Site,
) -> (u32, u64) {
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    let lkey = qp.desc().lkey;
    if WIDTH == 8 {
        let wqe = |laddr| Wqe::MaskedCompareSwap64 {
            raddr,
            rkey,
            laddr,
            lkey,
            compare,
            swap,
            compare_mask,
            swap_mask,
        };
        return result::<S, WIDTH>(&qp, fetch(&qp, heap, 2, wqe, site));
    }
    let wqe = |laddr| Wqe::MaskedCompareSwap32 {
        raddr,
        rkey,
        laddr,
        lkey,
        compare: compare as u32,
        swap: swap as u32,
        compare_mask: compare_mask as u32,
        swap_mask: swap_mask as u32,
    };
    result::<S, WIDTH>(&qp, fetch(&qp, heap, 1, wqe, site))
}

/// Posts a masked fetch and add and waits. As [`swap_masked`].
#[inline(never)]
fn add_masked<S: Sharing, const WIDTH: usize>(
    entry: *mut QpEntry,
    heap: DevAddr,
    (raddr, rkey): (u64, u32),
    add: u64,
    boundary: u64,
    site: Site,
) -> (u32, u64) {
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    let lkey = qp.desc().lkey;
    let wqe = |laddr| match WIDTH {
        8 => Wqe::MaskedFetchAdd64 { raddr, rkey, laddr, lkey, add, boundary },
        _ => Wqe::MaskedFetchAdd32 { raddr, rkey, laddr, lkey, add: add as u32, boundary: boundary as u32 },
    };
    result::<S, WIDTH>(&qp, fetch(&qp, heap, 1, wqe, site))
}

#[inline(always)]
fn result<S: Sharing, const WIDTH: usize>(qp: &Qp<'_, S>, found: Result<u64>) -> (u32, u64) {
    match found {
        Ok(found) => (0, in_order::<WIDTH>(found, qp.desc().flags & qp_flags::BIG_ENDIAN_8 != 0)),
        Err(error) => (error as u32, 0),
    }
}
