//! Signals: words that announce data.

use core::ffi::c_void;

use rushmem_device::{Ctx, Group, Result, Signal, SignalUpdate, Thread};
use rushmem_macros::export;

use crate::call::{bad_constant, local_at, symmetric_at, word_at};
use crate::wait::comparison;

/// `RUSHMEM_SIGNAL_SET`: the word becomes the value.
const SET: i32 = 0;
/// `RUSHMEM_SIGNAL_ADD`: the value is added to the word.
const ADD: i32 = 1;

/// Copies `bytes` bytes from `src` to `dst` on `pe`, and then applies `value` to `signal` there. A thread that sees the
/// signal also sees the data. Returns once `src` may change.
#[export(thread, warp, block)]
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
    let update = update(ctx, group, signal, value, op)?;
    ctx.put_signal(
        group,
        symmetric_at(ctx, group, dst, bytes)?,
        local_at(ctx, group, src, bytes)?,
        update,
        pe as u32,
    )
}

/// Starts a put with signal like `rushmem_device_putmem_signal`. `src` must not change before `rushmem_device_quiet`.
#[export(thread, warp, block)]
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
    let update = update(ctx, group, signal, value, op)?;
    ctx.put_signal_nbi(
        group,
        symmetric_at(ctx, group, dst, bytes)?,
        local_at(ctx, group, src, bytes)?,
        update,
        pe as u32,
    )
}

/// Applies `value` to `signal` on `pe`. Not ordered after anything: call `rushmem_device_fence` first to announce data.
#[export(thread, warp, block)]
fn signal_op(ctx: &Ctx<'_>, signal: *mut u64, value: u64, op: i32, pe: i32) -> Result {
    ctx.signal_op(update(ctx, Thread, signal, value, op)?, pe as u32)
}

/// Returns the value of a signal on this PE. The data that it announced is visible afterwards.
#[export(thread, warp, block)]
fn signal_fetch(ctx: &Ctx<'_>, signal: *const u64) -> Result<u64> {
    ctx.signal_fetch(word_at(ctx, Thread, signal.cast::<Signal>())?)
}

/// Waits until `signal` on this PE compares with `value` as `cmp` says. The data that it announced is visible afterwards.
#[export(thread, warp, block)]
fn signal_wait_until(ctx: &Ctx<'_>, group: impl Group, signal: *const u64, cmp: i32, value: u64) -> Result {
    let cmp = comparison(ctx, group, cmp)?;
    ctx.signal_wait_until(group, word_at(ctx, group, signal.cast::<Signal>())?, cmp, value).map(|_| ())
}

/// # Errors
/// The errors of [`word_at`], and [`Error::BadConstant`](rushmem_device::Error::BadConstant).
#[inline(always)]
#[track_caller]
fn update<G: Group>(ctx: &Ctx<'_>, group: G, signal: *mut u64, value: u64, op: i32) -> Result<SignalUpdate> {
    let signal = word_at(ctx, group, signal.cast_const().cast::<Signal>())?;
    match op {
        SET => Ok(signal.set(value)),
        ADD => Ok(signal.add(value)),
        _ => Err(bad_constant(ctx, group, op)),
    }
}
