//! Kernel for atomic operations that the host starts.

use rushmem_device::prelude::*;

use crate::code::Atomic;

/// Performs `what`, an [`Atomic`], on `word` of `pe`, which has 4 or 8 bytes. The old value is written to `result`,
/// which is as long as the word or empty.
///
/// # Errors
/// - The errors of [`Ctx::atomic_fetch`].
#[kernel]
pub fn rushmem_atomic(
    ctx: &Ctx,
    what: u32,
    result: SymSlice<u8>,
    word: SymSlice<u8>,
    value: u64,
    compare: u64,
    pe: u32,
) -> Result {
    if Thread::index() != 0 {
        return Ok(());
    }
    // Earlier kernels of the stream and the host may have written data that this atomic announces. Publish their
    // stores.
    ctx.fence_system();
    let float = what == Atomic::AddFloat as u32;
    match (word.len(), float) {
        (4, true) => add(ctx, result.cast(), word.cast().at(0), f32::from_bits(value as u32), pe),
        (4, false) => atomic(ctx, what, result.cast(), word.cast().at(0), value as u32, compare as u32, pe),
        (_, true) => add(ctx, result.cast(), word.cast().at(0), f64::from_bits(value), pe),
        (_, false) => atomic(ctx, what, result.cast(), word.cast().at(0), value, compare, pe),
    }
}

#[inline(always)]
fn add<T: Addend>(ctx: &Ctx, result: SymSlice<T>, word: Sym<T>, value: T, pe: u32) -> Result {
    if result.is_empty() {
        return ctx.atomic_add(word, value, pe);
    }
    let found = ctx.atomic_fetch_add(word, value, pe)?;
    ctx.local(result).store(0, found);
    Ok(())
}

#[inline(always)]
fn atomic<T: Amo>(
    ctx: &Ctx,
    what: u32,
    result: SymSlice<T>,
    word: Sym<T>,
    value: T,
    compare: T,
    pe: u32,
) -> Result {
    if result.is_empty() {
        return ctx.atomic_posting(what, word, value, pe);
    }
    let found = ctx.atomic_fetching(what, word, value, compare, pe)?;
    ctx.local(result).store(0, found);
    Ok(())
}
