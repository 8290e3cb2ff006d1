//! Waits and tests on this PE's own words.

use rushmem_device::prelude::*;

use crate::code::{self, Word};

/// Waits until every word of `words` compares so with `value`, or, if `values` is not empty, with its own of these.
/// `kind` is a [`Word`]. `seen`, if not empty, gets the value that ended the wait for the last word.
#[kernel]
pub fn rushmem_wait(
    ctx: &Ctx,
    kind: u32,
    cmp: u32,
    words: SymSlice<u8>,
    value: u64,
    values: SymSlice<u8>,
    seen: SymSlice<u64>,
) -> Result {
    if Thread::index() != 0 {
        return Ok(());
    }
    let cmp = code::cmp_of(cmp);
    if !seen.is_empty() {
        let found = ctx.signal_wait_until(Thread, words.cast().at(0), cmp, value)?;
        ctx.local(seen).store(0, found);
        Ok(())
    } else if kind == Word::U32 as u32 {
        wait_all::<u32>(ctx, words.cast(), cmp, value as u32, values.cast())
    } else if kind == Word::I32 as u32 {
        wait_all::<i32>(ctx, words.cast(), cmp, value as i32, values.cast())
    } else if kind == Word::U64 as u32 {
        wait_all::<u64>(ctx, words.cast(), cmp, value, values.cast())
    } else {
        wait_all::<i64>(ctx, words.cast(), cmp, value as i64, values.cast())
    }
}

#[inline(always)]
fn wait_all<T: Amo + PartialOrd>(
    ctx: &Ctx,
    words: SymSlice<T>,
    cmp: Cmp,
    value: T,
    values: SymSlice<T>,
) -> Result {
    let mut i = 0;
    while i < words.len() {
        let wanted = if values.is_empty() { value } else { ctx.local(values).load(i) };
        ctx.wait_until(Thread, words.at(i), cmp, wanted)?;
        i += 1;
    }
    Ok(())
}

/// Writes 1 to `holds` if the word compares so with `value` now, otherwise 0. `kind` is a [`Word`].
#[kernel]
pub fn rushmem_test(
    ctx: &Ctx,
    kind: u32,
    cmp: u32,
    word: SymSlice<u8>,
    value: u64,
    holds: SymSlice<u64>,
) -> Result {
    if Thread::index() != 0 {
        return Ok(());
    }
    let cmp = code::cmp_of(cmp);
    let found = if kind == Word::U32 as u32 {
        ctx.test::<u32>(word.cast().at(0), cmp, value as u32)
    } else if kind == Word::I32 as u32 {
        ctx.test::<i32>(word.cast().at(0), cmp, value as i32)
    } else if kind == Word::U64 as u32 {
        ctx.test::<u64>(word.cast().at(0), cmp, value)
    } else {
        ctx.test::<i64>(word.cast().at(0), cmp, value as i64)
    }?;
    ctx.local(holds).store(0, found as u64);
    Ok(())
}
