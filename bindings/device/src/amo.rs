//! Atomics on words of any PE.

use rushmem_device::amo::{Addend, Amo, AmoWord};
use rushmem_device::{Result, Thread};
use rushmem_macros::export;

use crate::call::{Ctx, word_at};

/// Returns the value of `word` on `pe`.
#[export(thread, warp, block, T = [uint32: u32, uint64: u64, float: f32, double: f64], direct = ctx.updates_directly::<T>(word, pe as u32))]
fn atomic_fetch<T: AmoWord>(ctx: &Ctx<'_>, word: *const T, pe: i32) -> Result<T> {
    ctx.atomic_fetch(word_at(ctx, Thread, word)?, pe as u32)
}

/// Sets `word` on `pe` to `value`.
#[export(thread, warp, block, T = [uint32: u32, uint64: u64, float: f32, double: f64], direct = ctx.updates_directly::<T>(word, pe as u32))]
fn atomic_set<T: AmoWord>(ctx: &Ctx<'_>, word: *mut T, value: T, pe: i32) -> Result {
    ctx.atomic_set(word_at(ctx, Thread, word)?, value, pe as u32)
}

/// Sets `word` on `pe` to `value`, and returns its old value.
#[export(thread, warp, block, T = [uint32: u32, uint64: u64, float: f32, double: f64], direct = ctx.updates_directly::<T>(word, pe as u32))]
fn atomic_swap<T: AmoWord>(ctx: &Ctx<'_>, word: *mut T, value: T, pe: i32) -> Result<T> {
    ctx.atomic_swap(word_at(ctx, Thread, word)?, value, pe as u32)
}

/// Sets `word` on `pe` to `value` if it is equal to `compare`. Returns its old value.
#[export(thread, warp, block, T = [uint32: u32, uint64: u64], direct = ctx.updates_directly::<T>(word, pe as u32))]
fn atomic_compare_swap<T: Amo>(ctx: &Ctx<'_>, word: *mut T, compare: T, value: T, pe: i32) -> Result<T> {
    ctx.atomic_compare_swap(word_at(ctx, Thread, word)?, compare, value, pe as u32)
}

/// Adds `value` to `word` on `pe`.
#[export(thread, warp, block, T = [uint32: u32, uint64: u64, float: f32, double: f64], direct = ctx.updates_directly::<T>(word, pe as u32))]
fn atomic_add<T: Addend>(ctx: &Ctx<'_>, word: *mut T, value: T, pe: i32) -> Result {
    ctx.atomic_add(word_at(ctx, Thread, word)?, value, pe as u32)
}

/// Adds `value` to `word` on `pe`, and returns its old value.
#[export(thread, warp, block, T = [uint32: u32, uint64: u64, float: f32, double: f64], direct = ctx.updates_directly::<T>(word, pe as u32))]
fn atomic_fetch_add<T: Addend>(ctx: &Ctx<'_>, word: *mut T, value: T, pe: i32) -> Result<T> {
    ctx.atomic_fetch_add(word_at(ctx, Thread, word)?, value, pe as u32)
}

/// Adds 1 to `word` on `pe`.
#[export(thread, warp, block, T = [uint32: u32, uint64: u64], direct = ctx.updates_directly::<T>(word, pe as u32))]
fn atomic_inc<T: Amo>(ctx: &Ctx<'_>, word: *mut T, pe: i32) -> Result {
    ctx.atomic_inc(word_at(ctx, Thread, word)?, pe as u32)
}

/// Adds 1 to `word` on `pe`, and returns its old value.
#[export(thread, warp, block, T = [uint32: u32, uint64: u64], direct = ctx.updates_directly::<T>(word, pe as u32))]
fn atomic_fetch_inc<T: Amo>(ctx: &Ctx<'_>, word: *mut T, pe: i32) -> Result<T> {
    ctx.atomic_fetch_inc(word_at(ctx, Thread, word)?, pe as u32)
}

/// Sets `word` on `pe` to its bitwise and with `value`.
#[export(thread, warp, block, T = [uint32: u32, uint64: u64], direct = ctx.updates_directly::<T>(word, pe as u32))]
fn atomic_and<T: Amo>(ctx: &Ctx<'_>, word: *mut T, value: T, pe: i32) -> Result {
    ctx.atomic_and(word_at(ctx, Thread, word)?, value, pe as u32)
}

/// Sets `word` on `pe` to its bitwise and with `value`, and returns its old value.
#[export(thread, warp, block, T = [uint32: u32, uint64: u64], direct = ctx.updates_directly::<T>(word, pe as u32))]
fn atomic_fetch_and<T: Amo>(ctx: &Ctx<'_>, word: *mut T, value: T, pe: i32) -> Result<T> {
    ctx.atomic_fetch_and(word_at(ctx, Thread, word)?, value, pe as u32)
}

/// Sets `word` on `pe` to its bitwise or with `value`.
#[export(thread, warp, block, T = [uint32: u32, uint64: u64], direct = ctx.updates_directly::<T>(word, pe as u32))]
fn atomic_or<T: Amo>(ctx: &Ctx<'_>, word: *mut T, value: T, pe: i32) -> Result {
    ctx.atomic_or(word_at(ctx, Thread, word)?, value, pe as u32)
}

/// Sets `word` on `pe` to its bitwise or with `value`, and returns its old value.
#[export(thread, warp, block, T = [uint32: u32, uint64: u64], direct = ctx.updates_directly::<T>(word, pe as u32))]
fn atomic_fetch_or<T: Amo>(ctx: &Ctx<'_>, word: *mut T, value: T, pe: i32) -> Result<T> {
    ctx.atomic_fetch_or(word_at(ctx, Thread, word)?, value, pe as u32)
}

/// Sets `word` on `pe` to its bitwise exclusive or with `value`.
#[export(thread, warp, block, T = [uint32: u32, uint64: u64], direct = ctx.updates_directly::<T>(word, pe as u32))]
fn atomic_xor<T: Amo>(ctx: &Ctx<'_>, word: *mut T, value: T, pe: i32) -> Result {
    ctx.atomic_xor(word_at(ctx, Thread, word)?, value, pe as u32)
}

/// Sets `word` on `pe` to its bitwise exclusive or with `value`, and returns its old value.
#[export(thread, warp, block, T = [uint32: u32, uint64: u64], direct = ctx.updates_directly::<T>(word, pe as u32))]
fn atomic_fetch_xor<T: Amo>(ctx: &Ctx<'_>, word: *mut T, value: T, pe: i32) -> Result<T> {
    ctx.atomic_fetch_xor(word_at(ctx, Thread, word)?, value, pe as u32)
}
