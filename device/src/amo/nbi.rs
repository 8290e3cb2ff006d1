//! Non-blocking fetching atomics. The old value arrives in symmetric memory and may be read after `quiet`.
#![allow(unsafe_code, reason = "implements `Pod` for results, and writes them at checked addresses")]

use core::marker::PhantomData;
use core::mem::offset_of;
use core::panic::Location;

use bytemuck::{Pod, Zeroable};

use super::{Amo, AmoWord, Kind, Op, to_native_order};
use crate::abi::{qp_flags, result_order};
use crate::arch;
use crate::ctx::Ctx;
use crate::ctx::CtxRef;
use crate::error::{Detail, Error, Result};
use crate::group::Thread;
use crate::heap::{Sym, SymSlice};
use crate::post::post;
use crate::rma::word_at;
use crate::sharing::Sharing;
use crate::watch::{self, Completion, Event, Operation};

/// The result of a non-blocking atomic: 16 bytes of symmetric memory, read by [`Ctx::fetched`].
///
/// Not a plain `T`, because the byte order in which a NIC writes results depends on the NIC.
#[repr(C)]
pub struct Fetched<T> {
    /// Bytes of the result as written by the NIC or the processor, from the first byte on.
    raw: u64,
    /// Byte order of the result: one of the constants in [`result_order`].
    order: u32,
    reserved: u32,
    _value: PhantomData<T>,
}

const _: () = assert!(offset_of!(Fetched<u64>, order) as u64 == result_order::OFFSET);

impl<T> Clone for Fetched<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Fetched<T> {}

// SAFETY: integers without padding; all zero is a value.
unsafe impl<T> Zeroable for Fetched<T> {}
// SAFETY: `repr(C)` integers without padding, and nothing that depends on `T`.
unsafe impl<T: 'static> Pod for Fetched<T> {}

/// # Atomics without waiting
///
/// Fetching atomics whose old value arrives in symmetric memory.
impl<S: Sharing> Ctx<'_, S> {
    /// Starts reading the word and storing its value in `result`.
    ///
    /// The value is in `result`, on this PE, after [`Ctx::quiet`], or after a wait that proves its arrival. No other
    /// call may use `result` before that.
    ///
    /// OpenSHMEM 1.6 section 9.8, `shmem_atomic_fetch_nbi`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::put_nbi`], as for all non-blocking atomics.
    #[inline(always)]
    #[track_caller]
    pub fn atomic_fetch_nbi<T: AmoWord>(&self, result: Sym<Fetched<T>>, word: Sym<T>, pe: u32) -> Result {
        let _call = watch::call("atomic_fetch_nbi", self.fetch_nbi_event(result, word, pe, true));
        self.fetch_nbi(result, word, Kind::Add, T::zeroed(), T::zeroed(), pe)
    }

    /// Starts setting the word to `value` and storing its old value in `result`. OpenSHMEM: `shmem_atomic_swap_nbi`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::atomic_fetch_nbi`].
    #[inline(always)]
    #[track_caller]
    pub fn atomic_swap_nbi<T: AmoWord>(
        &self,
        result: Sym<Fetched<T>>,
        word: Sym<T>,
        value: T,
        pe: u32,
    ) -> Result {
        self.fetch_nbi(result, word, Kind::Set, value, T::zeroed(), pe)
    }

    /// Starts setting the word to `value` if it equals `compare`. OpenSHMEM: `shmem_atomic_compare_swap_nbi`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::atomic_fetch_nbi`].
    #[inline(always)]
    #[track_caller]
    pub fn atomic_compare_swap_nbi<T: Amo>(
        &self,
        result: Sym<Fetched<T>>,
        word: Sym<T>,
        compare: T,
        value: T,
        pe: u32,
    ) -> Result {
        self.fetch_nbi(result, word, Kind::CompareSwap, value, compare, pe)
    }

    /// Starts adding `value` to the word. Integers only, because NICs cannot add floats. OpenSHMEM:
    /// `shmem_atomic_fetch_add_nbi`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::atomic_fetch_nbi`].
    #[inline(always)]
    #[track_caller]
    pub fn atomic_fetch_add_nbi<T: Amo>(
        &self,
        result: Sym<Fetched<T>>,
        word: Sym<T>,
        value: T,
        pe: u32,
    ) -> Result {
        self.fetch_nbi(result, word, Kind::Add, value, T::zeroed(), pe)
    }

    /// Starts adding 1 to the word. OpenSHMEM: `shmem_atomic_fetch_inc_nbi`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::atomic_fetch_nbi`].
    #[inline(always)]
    #[track_caller]
    pub fn atomic_fetch_inc_nbi<T: Amo>(&self, result: Sym<Fetched<T>>, word: Sym<T>, pe: u32) -> Result {
        self.fetch_nbi(result, word, Kind::Add, T::from_bits(1), T::zeroed(), pe)
    }

    /// Starts replacing the word by its bitwise and with `value`. OpenSHMEM: `shmem_atomic_fetch_and_nbi`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::atomic_fetch_nbi`].
    #[inline(always)]
    #[track_caller]
    pub fn atomic_fetch_and_nbi<T: Amo>(
        &self,
        result: Sym<Fetched<T>>,
        word: Sym<T>,
        value: T,
        pe: u32,
    ) -> Result {
        self.fetch_nbi(result, word, Kind::And, value, T::zeroed(), pe)
    }

    /// Starts replacing the word by its bitwise or with `value`. OpenSHMEM: `shmem_atomic_fetch_or_nbi`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::atomic_fetch_nbi`].
    #[inline(always)]
    #[track_caller]
    pub fn atomic_fetch_or_nbi<T: Amo>(
        &self,
        result: Sym<Fetched<T>>,
        word: Sym<T>,
        value: T,
        pe: u32,
    ) -> Result {
        self.fetch_nbi(result, word, Kind::Or, value, T::zeroed(), pe)
    }

    /// Starts replacing the word by its bitwise exclusive or with `value`. OpenSHMEM: `shmem_atomic_fetch_xor_nbi`.
    ///
    /// # Errors
    /// - The errors of [`Ctx::atomic_fetch_nbi`].
    #[inline(always)]
    #[track_caller]
    pub fn atomic_fetch_xor_nbi<T: Amo>(
        &self,
        result: Sym<Fetched<T>>,
        word: Sym<T>,
        value: T,
        pe: u32,
    ) -> Result {
        self.fetch_nbi(result, word, Kind::Xor, value, T::zeroed(), pe)
    }

    /// Returns the old value that a non-blocking atomic has written to `result`. Valid after [`Ctx::quiet`].
    ///
    /// # Errors
    /// - [`Error::OutOfRange`](crate::Error::OutOfRange).
    /// - [`Error::ResultLost`](crate::Error::ResultLost): the atomic was executed, but its result was lost with the
    ///   connection. Only in jobs with failover.
    #[inline(always)]
    #[track_caller]
    pub fn fetched<T: AmoWord>(&self, result: Sym<Fetched<T>>) -> Result<T> {
        let at = self.local_addr(result.as_slice())?;
        let (address, bytes) = (at.addr() as u64, size_of::<Fetched<T>>() as u64);
        watch::load("fetched", address, bytes);
        // SAFETY: of this PE's memory; the allocator aligned it.
        let (raw, order) = unsafe { (arch::read(&raw const (*at).raw), arch::read(&raw const (*at).order)) };
        if order == result_order::LOST {
            return Err(self.fail(Error::ResultLost, Detail::NONE));
        }
        // The order in which the NIC wrote the value was stored with it, when the atomic was posted.
        let found = match (order, size_of::<T>()) {
            (result_order::OWN, _) => raw,
            (order, 8) => to_native_order::<8>(raw, order == result_order::NIC_BIG_ENDIAN_8),
            (_, _) => to_native_order::<4>(raw, false),
        };
        Ok(T::from_bits(found))
    }

    /// Returns the event that reports a non-blocking atomic to the sanitizer.
    #[inline(always)]
    fn fetch_nbi_event<T: AmoWord>(
        &self,
        result: Sym<Fetched<T>>,
        word: Sym<T>,
        pe: u32,
        is_read: bool,
    ) -> Event {
        let result = Some(word_at(self.my_pe(), result));
        let operation = Operation::Fetch { word: word_at(pe, word), is_read, result };
        Event::post(self.parts_ref(), operation, Completion::Posted)
    }

    /// Starts a fetching atomic, whose old value will be stored in `result`.
    #[inline(always)]
    #[track_caller]
    fn fetch_nbi<T: AmoWord>(
        &self,
        result: Sym<Fetched<T>>,
        word: Sym<T>,
        kind: Kind,
        value: T,
        compare: T,
        pe: u32,
    ) -> Result {
        let [_, _, name] = kind.names();
        watch::note(name, self.fetch_nbi_event(result, word, pe, false));
        let (ctx_ref, to, at) = (CtxRef::of(self), result.offset(), word.offset());
        let (value, compare) = (value.bits(), compare.bits());
        if size_of::<T>() == 8 {
            fetch_nbi_slow::<S, 8>(ctx_ref, to, at, kind, value, compare, pe)
        } else {
            fetch_nbi_slow::<S, 4>(ctx_ref, to, at, kind, value, compare, pe)
        }
    }
}

/// Starts an atomic on a word that may be mapped or not, for one thread. The old value goes to the [`Fetched`] at
/// `result`. Outlined to keep kernels with many calls small.
#[inline(never)]
#[track_caller]
fn fetch_nbi_slow<S: Sharing, const WIDTH: usize>(
    ctx_ref: CtxRef,
    result: u64,
    offset: u64,
    kind: Kind,
    value: u64,
    compare: u64,
    pe: u32,
) -> Result {
    let (ctx, op) = (ctx_ref.ctx::<S>(), Op::<WIDTH> { kind, value, compare });
    ctx.check_word(offset, WIDTH as u64, pe)?;
    // SAFETY: a result that the caller named, whatever it is of; it is checked as any.
    let at = ctx.local_addr(unsafe { SymSlice::<Fetched<u64>>::from_raw(result, 1) })?;
    // SAFETY: of this PE's memory; the allocator aligned it.
    let (to, order) = unsafe { (&raw mut (*at).raw, &raw mut (*at).order) };
    if let Some(p) = ctx.peer_atomic_addr::<u8>(pe, offset) {
        // SAFETY: inside of the peer's memory, which is mapped; all its atomics are processor atomics. The result as above.
        unsafe {
            arch::write(to, op.apply_fetch_bits(p));
            arch::write(order, result_order::OWN);
        }
        return Ok(());
    }
    let qp = ctx.atomic_qp(pe);
    let big_endian_8 = qp.desc().flags & qp_flags::BIG_ENDIAN_8 != 0;
    // The NIC writes the first word only, so the order can be stored in advance.
    // SAFETY: as above.
    unsafe {
        arch::write(order, if big_endian_8 { result_order::NIC_BIG_ENDIAN_8 } else { result_order::NIC })
    };
    let (raddr, rkey) = ctx.remote_word(&qp, offset);
    let (laddr, lkey) = ctx.local_word(&qp, result + offset_of!(Fetched<u64>, raw) as u64);
    post(Thread, &qp, op.blocks(), &op.wqe(raddr, rkey, laddr, lkey), Location::caller()).map(|_| ())
}
