//! Waits and tests on this PE's own words.

use rushmem_device::prelude::*;

use crate::code::{self, Set, Word};

/// Waits until `word` compares so with `value`. `kind` is a [`Word`]. `seen`, if not empty, gets the value that ended the
/// wait for a word of 8 bytes without sign.
#[kernel]
pub fn rushmem_wait(
    ctx: &Ctx,
    kind: u32,
    cmp: u32,
    word: SymSlice<u8>,
    value: u64,
    seen: SymSlice<u64>,
) -> Result {
    if Thread::index() != 0 {
        return Ok(());
    }
    let cmp = code::cmp_of(cmp);
    if !seen.is_empty() {
        let found = ctx.signal_wait_until(Thread, word.cast().at(0), cmp, value)?;
        ctx.local(seen).store(0, found);
        Ok(())
    } else if kind == Word::U32 as u32 {
        ctx.wait_until::<_, u32>(Thread, word.cast().at(0), cmp, value as u32)
    } else if kind == Word::I32 as u32 {
        ctx.wait_until::<_, i32>(Thread, word.cast().at(0), cmp, value as i32)
    } else if kind == Word::U64 as u32 {
        ctx.wait_until::<_, u64>(Thread, word.cast().at(0), cmp, value)
    } else {
        ctx.wait_until::<_, i64>(Thread, word.cast().at(0), cmp, value as i64)
    }
}

/// Does `what`, a [`Set`], with `words`, which are of the kind `kind`, a [`Word`]: each is to compare so with `value`, or,
/// if `values` is not empty, with its own of these; but for those whose element of `except` is not 0. Looks at word
/// `first` first.
///
/// `found` gets 1 or 0 of a test of all, the index of any or all ones if there is none, the number of some and then their
/// indices.
#[kernel]
#[allow(clippy::too_many_arguments)] // the words, and what each is to be
pub fn rushmem_words(
    ctx: &Ctx,
    what: u32,
    kind: u32,
    cmp: u32,
    words: SymSlice<u8>,
    value: u64,
    values: SymSlice<u8>,
    except: SymSlice<i32>,
    first: u64,
    found: SymSlice<u64>,
) -> Result {
    if Thread::index() != 0 {
        return Ok(());
    }
    let how = How { cmp: code::cmp_of(cmp), except, first: first as usize };
    if kind == Word::U32 as u32 {
        set::<u32>(ctx, what, words.cast(), value as u32, values.cast(), how, found)
    } else if kind == Word::I32 as u32 {
        set::<i32>(ctx, what, words.cast(), value as i32, values.cast(), how, found)
    } else if kind == Word::U64 as u32 {
        set::<u64>(ctx, what, words.cast(), value, values.cast(), how, found)
    } else {
        set::<i64>(ctx, what, words.cast(), value as i64, values.cast(), how, found)
    }
}

/// How words are looked at.
struct How {
    cmp: Cmp,
    except: SymSlice<i32>,
    first: usize,
}

#[inline(always)]
fn set<T: Amo + PartialOrd>(
    ctx: &Ctx,
    what: u32,
    words: SymSlice<T>,
    value: T,
    values: SymSlice<T>,
    how: How,
    found: SymSlice<u64>,
) -> Result {
    let mut words = match values.is_empty() {
        true => Words::new(words, how.cmp, value),
        false => Words::each(words, how.cmp, ctx.local(values)),
    }
    .starting_at(how.first);
    if !how.except.is_empty() {
        words = words.except(ctx.local(how.except));
    }
    let out = ctx.local(found);
    if what == Set::WaitAll as u32 {
        return ctx.wait_until_all(Thread, &words);
    }
    let result = if what == Set::TestAll as u32 {
        ctx.test_all(Thread, &words)? as u64
    } else if what == Set::WaitAny as u32 {
        ctx.wait_until_any(Thread, &mut words)?.map_or(u64::MAX, |i| i as u64)
    } else if what == Set::TestAny as u32 {
        ctx.test_any(Thread, &mut words)?.map_or(u64::MAX, |i| i as u64)
    } else {
        let indices = ctx.local(found.slice(1..found.len()));
        if what == Set::WaitSome as u32 {
            ctx.wait_until_some(Thread, &mut words, indices)? as u64
        } else {
            ctx.test_some(Thread, &mut words, indices)? as u64
        }
    };
    out.store(0, result);
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
