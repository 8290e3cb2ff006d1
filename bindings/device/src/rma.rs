//! Puts and gets.

use core::ffi::c_void;

use rushmem_device::{Group, Result, Scalar, Thread};
use rushmem_macros::export;

use crate::call::{Ctx, local_at, symmetric_at, word_at};

/// Copies `bytes` bytes from `src` to `dst` on `pe`. Returns once `src` may change; the data has not necessarily arrived.
#[export(thread, warp, block, direct = ctx.copies_directly(dst, src, bytes as u64, pe as u32))]
fn putmem(
    ctx: &Ctx<'_>,
    group: impl Group,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    pe: i32,
) -> Result {
    ctx.put(group, symmetric_at(ctx, group, dst, bytes)?, local_at(ctx, group, src, bytes)?, pe as u32)
}

/// Starts copying `bytes` bytes from `src` to `dst` on `pe`. `src` must not change before `rushmem_device_quiet`.
#[export(thread, warp, block, direct = ctx.copies_directly(dst, src, bytes as u64, pe as u32))]
fn putmem_nbi(
    ctx: &Ctx<'_>,
    group: impl Group,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    pe: i32,
) -> Result {
    ctx.put_nbi(group, symmetric_at(ctx, group, dst, bytes)?, local_at(ctx, group, src, bytes)?, pe as u32)
}

/// Copies `bytes` bytes from `src` on `pe` to `dst`, and waits for them.
#[export(thread, warp, block, direct = ctx.copies_directly(src, dst, bytes as u64, pe as u32))]
fn getmem(
    ctx: &Ctx<'_>,
    group: impl Group,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    pe: i32,
) -> Result {
    ctx.get(group, local_at(ctx, group, dst, bytes)?, symmetric_at(ctx, group, src, bytes)?, pe as u32)
}

/// Starts copying `bytes` bytes from `src` on `pe` to `dst`. The data is in `dst` after `rushmem_device_quiet`.
#[export(thread, warp, block, direct = ctx.copies_directly(src, dst, bytes as u64, pe as u32))]
fn getmem_nbi(
    ctx: &Ctx<'_>,
    group: impl Group,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    pe: i32,
) -> Result {
    ctx.get_nbi(group, local_at(ctx, group, dst, bytes)?, symmetric_at(ctx, group, src, bytes)?, pe as u32)
}

/// Stores `value` in `dst` on `pe`. The value has not necessarily arrived on return.
#[export(thread, T = [uint8: u8, uint16: u16, uint32: u32, uint64: u64, float: f32, double: f64], direct = ctx.accesses_directly::<T>(dst, pe as u32))]
fn p<T: Scalar>(ctx: &Ctx<'_>, dst: *mut T, value: T, pe: i32) -> Result {
    ctx.p(word_at(ctx, Thread, dst)?, value, pe as u32)
}

/// Returns the value of `src` on `pe`.
#[export(thread, T = [uint8: u8, uint16: u16, uint32: u32, uint64: u64, float: f32, double: f64], direct = ctx.accesses_directly::<T>(src, pe as u32))]
fn g<T: Scalar>(ctx: &Ctx<'_>, src: *const T, pe: i32) -> Result<T> {
    ctx.g(word_at(ctx, Thread, src)?, pe as u32)
}
