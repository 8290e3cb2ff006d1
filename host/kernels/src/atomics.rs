//! Atomics.

use rushmem_device::prelude::*;

use crate::code::Atomic;

/// Does `what`, an [`Atomic`], to `word` of `pe`, which has 4 or 8 bytes. The old value goes to `old`, which has as many
/// bytes as the word, or none if nobody wants it.
#[kernel]
pub fn rushmem_atomic(
    ctx: &Ctx,
    what: u32,
    word: SymSlice<u8>,
    value: u64,
    compare: u64,
    old: SymSlice<u8>,
    pe: u32,
) -> Result {
    if Thread::index() != 0 {
        return Ok(());
    }
    let float = what == Atomic::AddFloat as u32;
    match (word.len(), float) {
        (4, true) => add(ctx, word.cast().at(0), f32::from_bits(value as u32), old.cast(), pe),
        (4, false) => atomic(ctx, what, word.cast().at(0), value as u32, compare as u32, old.cast(), pe),
        (_, true) => add(ctx, word.cast().at(0), f64::from_bits(value), old.cast(), pe),
        (_, false) => atomic(ctx, what, word.cast().at(0), value, compare, old.cast(), pe),
    }
}

#[inline(always)]
fn add<T: Addend>(ctx: &Ctx, word: Sym<T>, value: T, old: SymSlice<T>, pe: u32) -> Result {
    if old.is_empty() {
        return ctx.atomic_add(word, value, pe);
    }
    let found = ctx.atomic_fetch_add(word, value, pe)?;
    ctx.local(old).store(0, found);
    Ok(())
}

#[inline(always)]
fn atomic<T: Amo>(
    ctx: &Ctx,
    what: u32,
    word: Sym<T>,
    value: T,
    compare: T,
    old: SymSlice<T>,
    pe: u32,
) -> Result {
    if old.is_empty() {
        return ctx.atomic_posting(what, word, value, pe);
    }
    let found = ctx.atomic_fetching(what, word, value, compare, pe)?;
    ctx.local(old).store(0, found);
    Ok(())
}
