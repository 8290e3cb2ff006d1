//! The field's own names, for those who know them by heart: thin functions over the methods of [`Ctx`].
//!
//! A call of a group takes it as its second argument: `shmem_put(ctx, Block::current(), ..)` is what
//! `nvshmemx_put_block(..)` is elsewhere. Types are told by the arguments, not by the name.

mod team;

pub use team::*;

use bytemuck::Pod;

use crate::amo::Amo;
use crate::{Cmp, Ctx, Group, RemoteView, Result, Scalar, Sharing, Signal, SignalOp, Sym, SymSlice};

/// [`Ctx::my_pe`].
#[inline(always)]
pub fn shmem_my_pe<S: Sharing>(ctx: &Ctx<S>) -> u32 {
    ctx.my_pe()
}

/// [`Ctx::n_pes`].
#[inline(always)]
pub fn shmem_n_pes<S: Sharing>(ctx: &Ctx<S>) -> u32 {
    ctx.n_pes()
}

/// [`Ctx::ptr`].
#[inline(always)]
pub fn shmem_ptr<S: Sharing, T: Pod>(ctx: &Ctx<S>, object: SymSlice<T>, pe: u32) -> Option<RemoteView<T>> {
    ctx.ptr(object, pe)
}

/// [`Ctx::put`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_put<S: Sharing, G: Group, T: Pod>(
    ctx: &Ctx<S>,
    group: G,
    dst: SymSlice<T>,
    src: SymSlice<T>,
    pe: u32,
) -> Result {
    ctx.put(group, dst, src, pe)
}

/// [`Ctx::put_nbi`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_put_nbi<S: Sharing, G: Group, T: Pod>(
    ctx: &Ctx<S>,
    group: G,
    dst: SymSlice<T>,
    src: SymSlice<T>,
    pe: u32,
) -> Result {
    ctx.put_nbi(group, dst, src, pe)
}

/// [`Ctx::get`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_get<S: Sharing, G: Group, T: Pod>(
    ctx: &Ctx<S>,
    group: G,
    dst: SymSlice<T>,
    src: SymSlice<T>,
    pe: u32,
) -> Result {
    ctx.get(group, dst, src, pe)
}

/// [`Ctx::get_nbi`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_get_nbi<S: Sharing, G: Group, T: Pod>(
    ctx: &Ctx<S>,
    group: G,
    dst: SymSlice<T>,
    src: SymSlice<T>,
    pe: u32,
) -> Result {
    ctx.get_nbi(group, dst, src, pe)
}

/// [`Ctx::p`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_p<S: Sharing, T: Scalar>(ctx: &Ctx<S>, dst: Sym<T>, value: T, pe: u32) -> Result {
    ctx.p(dst, value, pe)
}

/// [`Ctx::g`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_g<S: Sharing, T: Scalar>(ctx: &Ctx<S>, src: Sym<T>, pe: u32) -> Result<T> {
    ctx.g(src, pe)
}

/// [`Ctx::put_signal`]; its errors.
#[inline(always)]
#[track_caller]
#[allow(clippy::too_many_arguments)] // the field's signature
pub fn shmem_put_signal<S: Sharing, G: Group, T: Pod>(
    ctx: &Ctx<S>,
    group: G,
    dst: SymSlice<T>,
    src: SymSlice<T>,
    signal: Sym<Signal>,
    op: SignalOp,
    value: u64,
    pe: u32,
) -> Result {
    ctx.put_signal(group, dst, src, signal, op, value, pe)
}

/// [`Ctx::put_signal_nbi`]; its errors.
#[inline(always)]
#[track_caller]
#[allow(clippy::too_many_arguments)] // the field's signature
pub fn shmem_put_signal_nbi<S: Sharing, G: Group, T: Pod>(
    ctx: &Ctx<S>,
    group: G,
    dst: SymSlice<T>,
    src: SymSlice<T>,
    signal: Sym<Signal>,
    op: SignalOp,
    value: u64,
    pe: u32,
) -> Result {
    ctx.put_signal_nbi(group, dst, src, signal, op, value, pe)
}

/// [`Ctx::signal_op`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_signal_op<S: Sharing>(
    ctx: &Ctx<S>,
    signal: Sym<Signal>,
    op: SignalOp,
    value: u64,
    pe: u32,
) -> Result {
    ctx.signal_op(signal, op, value, pe)
}

/// [`Ctx::signal_fetch`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_signal_fetch<S: Sharing>(ctx: &Ctx<S>, signal: Sym<Signal>) -> Result<u64> {
    ctx.signal_fetch(signal)
}

/// [`Ctx::signal_wait_until`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_signal_wait_until<S: Sharing, G: Group>(
    ctx: &Ctx<S>,
    group: G,
    signal: Sym<Signal>,
    cmp: Cmp,
    value: u64,
) -> Result<u64> {
    ctx.signal_wait_until(group, signal, cmp, value)
}

/// [`Ctx::wait_until`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_wait_until<S: Sharing, G: Group, T: Amo + PartialOrd>(
    ctx: &Ctx<S>,
    group: G,
    word: Sym<T>,
    cmp: Cmp,
    value: T,
) -> Result {
    ctx.wait_until(group, word, cmp, value)
}

/// [`Ctx::test`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_test<S: Sharing, T: Amo + PartialOrd>(
    ctx: &Ctx<S>,
    word: Sym<T>,
    cmp: Cmp,
    value: T,
) -> Result<bool> {
    ctx.test(word, cmp, value)
}

/// [`Ctx::atomic_fetch`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_atomic_fetch<S: Sharing, T: Amo>(ctx: &Ctx<S>, word: Sym<T>, pe: u32) -> Result<T> {
    ctx.atomic_fetch(word, pe)
}

/// [`Ctx::atomic_compare_swap`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_atomic_compare_swap<S: Sharing, T: Amo>(
    ctx: &Ctx<S>,
    word: Sym<T>,
    compare: T,
    value: T,
    pe: u32,
) -> Result<T> {
    ctx.atomic_compare_swap(word, compare, value, pe)
}

/// [`Ctx::atomic_inc`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_atomic_inc<S: Sharing, T: Amo>(ctx: &Ctx<S>, word: Sym<T>, pe: u32) -> Result {
    ctx.atomic_inc(word, pe)
}

/// [`Ctx::atomic_fetch_inc`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_atomic_fetch_inc<S: Sharing, T: Amo>(ctx: &Ctx<S>, word: Sym<T>, pe: u32) -> Result<T> {
    ctx.atomic_fetch_inc(word, pe)
}

/// [`Ctx::fence`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_fence<S: Sharing>(ctx: &Ctx<S>) -> Result {
    ctx.fence()
}

/// [`Ctx::quiet`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_quiet<S: Sharing, G: Group>(ctx: &Ctx<S>, group: G) -> Result {
    ctx.quiet(group)
}

/// [`Ctx::sync_all`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_sync_all<S: Sharing, G: Group>(ctx: &Ctx<S>, group: G) -> Result {
    ctx.sync_all(group)
}

/// [`Ctx::barrier_all`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_barrier_all<S: Sharing, G: Group>(ctx: &Ctx<S>, group: G) -> Result {
    ctx.barrier_all(group)
}

/// [`Ctx::atomic_set`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_atomic_set<S: Sharing, T: Amo>(ctx: &Ctx<S>, word: Sym<T>, value: T, pe: u32) -> Result {
    ctx.atomic_set(word, value, pe)
}

/// [`Ctx::atomic_add`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_atomic_add<S: Sharing, T: Amo>(ctx: &Ctx<S>, word: Sym<T>, value: T, pe: u32) -> Result {
    ctx.atomic_add(word, value, pe)
}

/// [`Ctx::atomic_and`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_atomic_and<S: Sharing, T: Amo>(ctx: &Ctx<S>, word: Sym<T>, value: T, pe: u32) -> Result {
    ctx.atomic_and(word, value, pe)
}

/// [`Ctx::atomic_or`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_atomic_or<S: Sharing, T: Amo>(ctx: &Ctx<S>, word: Sym<T>, value: T, pe: u32) -> Result {
    ctx.atomic_or(word, value, pe)
}

/// [`Ctx::atomic_xor`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_atomic_xor<S: Sharing, T: Amo>(ctx: &Ctx<S>, word: Sym<T>, value: T, pe: u32) -> Result {
    ctx.atomic_xor(word, value, pe)
}

/// [`Ctx::atomic_swap`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_atomic_swap<S: Sharing, T: Amo>(ctx: &Ctx<S>, word: Sym<T>, value: T, pe: u32) -> Result<T> {
    ctx.atomic_swap(word, value, pe)
}

/// [`Ctx::atomic_fetch_add`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_atomic_fetch_add<S: Sharing, T: Amo>(
    ctx: &Ctx<S>,
    word: Sym<T>,
    value: T,
    pe: u32,
) -> Result<T> {
    ctx.atomic_fetch_add(word, value, pe)
}

/// [`Ctx::atomic_fetch_and`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_atomic_fetch_and<S: Sharing, T: Amo>(
    ctx: &Ctx<S>,
    word: Sym<T>,
    value: T,
    pe: u32,
) -> Result<T> {
    ctx.atomic_fetch_and(word, value, pe)
}

/// [`Ctx::atomic_fetch_or`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_atomic_fetch_or<S: Sharing, T: Amo>(ctx: &Ctx<S>, word: Sym<T>, value: T, pe: u32) -> Result<T> {
    ctx.atomic_fetch_or(word, value, pe)
}

/// [`Ctx::atomic_fetch_xor`]; its errors.
#[inline(always)]
#[track_caller]
pub fn shmem_atomic_fetch_xor<S: Sharing, T: Amo>(
    ctx: &Ctx<S>,
    word: Sym<T>,
    value: T,
    pe: u32,
) -> Result<T> {
    ctx.atomic_fetch_xor(word, value, pe)
}
