//! Signals: words that announce data.

use core::ffi::c_void;

use rushmem_device::{Group, Result, Signal, SignalOp, SignalUpdate, Sym, Thread};
use rushmem_macros::export;

use crate::call::{Ctx, bad_constant, local_at, symmetric_at, word_at};
use crate::wait::comparison;

/// `RUSHMEM_SIGNAL_SET`: the word becomes the value.
const SET: i32 = 0;
/// `RUSHMEM_SIGNAL_ADD`: the value is added to the word.
const ADD: i32 = 1;

/// Copies `bytes` bytes from `src` to `dst` on `pe`, and then applies `value` to `signal` there. A thread that sees the
/// signal also sees the data. Returns once `src` may change.
#[export(
    thread, warp, block,
    direct = ctx.copies_directly(dst, src, bytes as u64, pe as u32) & signals_directly(ctx, signal, op, pe)
)]
fn putmem_signal(
    ctx: &Ctx<'_>,
    group: impl Group,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    signal: *mut u64,
    value: u64,
    op: i32,
    pe: i32,
) -> Result {
    let (signal, op) = (signal_at(ctx, group, signal)?, operation(ctx, group, op)?);
    ctx.put_signal(
        group,
        symmetric_at(ctx, group, dst, bytes)?,
        local_at(ctx, group, src, bytes)?,
        SignalUpdate { signal, op, value },
        pe as u32,
    )
}

/// Starts a put with signal like `rushmem_device_putmem_signal`. `src` must not change before `rushmem_device_quiet`.
#[export(
    thread, warp, block,
    direct = ctx.copies_directly(dst, src, bytes as u64, pe as u32) & signals_directly(ctx, signal, op, pe)
)]
fn putmem_signal_nbi(
    ctx: &Ctx<'_>,
    group: impl Group,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    signal: *mut u64,
    value: u64,
    op: i32,
    pe: i32,
) -> Result {
    let (signal, op) = (signal_at(ctx, group, signal)?, operation(ctx, group, op)?);
    ctx.put_signal_nbi(
        group,
        symmetric_at(ctx, group, dst, bytes)?,
        local_at(ctx, group, src, bytes)?,
        SignalUpdate { signal, op, value },
        pe as u32,
    )
}

/// Applies `value` to `signal` on `pe`. Not ordered after anything: call `rushmem_device_fence` first to announce data.
#[export(
    thread, warp, block,
    direct = signals_directly(ctx, signal, op, pe)
)]
fn signal_op(ctx: &Ctx<'_>, signal: *mut u64, value: u64, op: i32, pe: i32) -> Result {
    let (signal, op) = (signal_at(ctx, Thread, signal)?, operation(ctx, Thread, op)?);
    ctx.signal_op(SignalUpdate { signal, op, value }, pe as u32)
}

/// Returns the value of a signal on this PE. The data that it announced is visible afterwards.
#[export(thread, warp, block)]
fn signal_fetch(ctx: &Ctx<'_>, signal: *const u64) -> Result<u64> {
    ctx.signal_fetch(signal_at(ctx, Thread, signal)?)
}

/// Waits until `signal` on this PE compares with `value` as `cmp` says. The data that it announced is visible afterwards.
#[export(thread, warp, block)]
fn signal_wait_until(ctx: &Ctx<'_>, group: impl Group, signal: *const u64, cmp: i32, value: u64) -> Result {
    let cmp = comparison(ctx, group, cmp)?;
    ctx.signal_wait_until(group, signal_at(ctx, group, signal)?, cmp, value).map(|_| ())
}

/// Waits like `rushmem_device_signal_wait_until` for a signal that `pe` updates. Fails if `pe` is lost.
#[export(thread, warp, block)]
fn signal_wait_until_from(
    ctx: &Ctx<'_>,
    group: impl Group,
    signal: *const u64,
    cmp: i32,
    value: u64,
    pe: i32,
) -> Result {
    let cmp = comparison(ctx, group, cmp)?;
    ctx.signal_wait_until_from(group, signal_at(ctx, group, signal)?, cmp, value, pe as u32).map(|_| ())
}

/// Returns whether a signal is applied by a processor atomic in a mapped heap.
#[inline(always)]
fn signals_directly(ctx: &Ctx<'_>, signal: u64, op: i32, pe: i32) -> bool {
    matches!(op, SET | ADD) & ctx.updates_directly::<u64>(signal, pe as u32)
}

/// # Errors
/// The errors of [`word_at`].
#[inline(always)]
#[track_caller]
fn signal_at<G: Group>(ctx: &Ctx<'_>, group: G, signal: *const u64) -> Result<Sym<Signal>> {
    word_at(ctx, group, signal.cast())
}

/// Returns the operation with the number `op`.
///
/// # Errors
/// - [`Error::BadConstant`](rushmem_device::Error::BadConstant).
#[inline(always)]
#[track_caller]
fn operation<G: Group>(ctx: &Ctx<'_>, group: G, op: i32) -> Result<SignalOp> {
    match op {
        SET => Ok(SignalOp::Set),
        ADD => Ok(SignalOp::Add),
        _ => Err(bad_constant(ctx, group, op)),
    }
}
