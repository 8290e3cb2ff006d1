//! Kernels with which the host waits for words of its PE, and tests them.

use rushmem_device::prelude::*;

use crate::code::{self, WaitSetOp, WordKind};

/// Blocks until `word`, of a [`WordKind`], satisfies the comparison `cmp` with `value`. If `seen` is not empty, the
/// word is a signal, and its value is stored in `seen`.
///
/// # Errors
/// - The errors of [`Ctx::wait_until`] or [`Ctx::signal_wait_until`].
#[kernel]
pub fn rushmem_wait(
    ctx: &Ctx,
    seen: SymSlice<u64>,
    kind: u32,
    cmp: u32,
    word: SymSlice<u8>,
    value: u64,
) -> Result {
    if Thread::index() != 0 {
        return Ok(());
    }
    let cmp = code::cmp_of(cmp);
    if !seen.is_empty() {
        let found = ctx.signal_wait_until(Thread, word.cast().at(0), cmp, value)?;
        ctx.local(seen).store(0, found);
        Ok(())
    } else if kind == WordKind::U32 as u32 {
        ctx.wait_until::<_, u32>(Thread, word.cast().at(0), cmp, value as u32)
    } else if kind == WordKind::I32 as u32 {
        ctx.wait_until::<_, i32>(Thread, word.cast().at(0), cmp, value as i32)
    } else if kind == WordKind::U64 as u32 {
        ctx.wait_until::<_, u64>(Thread, word.cast().at(0), cmp, value)
    } else {
        ctx.wait_until::<_, i64>(Thread, word.cast().at(0), cmp, value as i64)
    }
}

/// Performs `what`, a [`WaitSetOp`], on `words` of a [`WordKind`], starting the search at word `first`. Each word is
/// compared with `value`, or with its element of `values` if that is not empty. Words with a nonzero element in
/// `except` are ignored.
///
/// `found` receives the outcome: 1 or 0 for `TestAll`; an index, or all ones for none, for the `Any` operations; the
/// number of indices followed by the indices for the `Some` operations.
///
/// # Errors
/// - The errors of the call that `what` names, such as [`Ctx::wait_until_all`].
#[kernel]
#[allow(clippy::too_many_arguments)] // the words, and what each is to be
pub fn rushmem_wait_set(
    ctx: &Ctx,
    what: u32,
    found: SymSlice<u64>,
    kind: u32,
    cmp: u32,
    words: SymSlice<u8>,
    value: u64,
    values: SymSlice<u8>,
    except: SymSlice<i32>,
    first: u64,
) -> Result {
    if Thread::index() != 0 {
        return Ok(());
    }
    let conditions = Conditions { cmp: code::cmp_of(cmp), except, first: first as usize };
    if kind == WordKind::U32 as u32 {
        wait_set::<u32>(ctx, what, words.cast(), value as u32, values.cast(), conditions, found)
    } else if kind == WordKind::I32 as u32 {
        wait_set::<i32>(ctx, what, words.cast(), value as i32, values.cast(), conditions, found)
    } else if kind == WordKind::U64 as u32 {
        wait_set::<u64>(ctx, what, words.cast(), value, values.cast(), conditions, found)
    } else {
        wait_set::<i64>(ctx, what, words.cast(), value as i64, values.cast(), conditions, found)
    }
}

/// Comparison operator and excluded words of a set, and index at which the search for a match starts.
struct Conditions {
    cmp: Cmp,
    except: SymSlice<i32>,
    first: usize,
}

#[inline(always)]
fn wait_set<T: Amo + PartialOrd>(
    ctx: &Ctx,
    what: u32,
    words: SymSlice<T>,
    value: T,
    values: SymSlice<T>,
    conditions: Conditions,
    found: SymSlice<u64>,
) -> Result {
    let mut words = match values.is_empty() {
        true => WaitWords::new(words, conditions.cmp, value),
        false => WaitWords::each(words, conditions.cmp, ctx.local(values)),
    }
    .starting_at(conditions.first);
    if !conditions.except.is_empty() {
        words = words.except(ctx.local(conditions.except));
    }
    let out = ctx.local(found);
    if what == WaitSetOp::WaitAll as u32 {
        return ctx.wait_until_all(Thread, &words);
    }
    let result = if what == WaitSetOp::TestAll as u32 {
        ctx.test_all(Thread, &words)? as u64
    } else if what == WaitSetOp::WaitAny as u32 {
        ctx.wait_until_any(Thread, &mut words)?.map_or(u64::MAX, |i| i as u64)
    } else if what == WaitSetOp::TestAny as u32 {
        ctx.test_any(Thread, &mut words)?.map_or(u64::MAX, |i| i as u64)
    } else {
        let indices = ctx.local(found.slice(1..found.len()));
        if what == WaitSetOp::WaitSome as u32 {
            ctx.wait_until_some(Thread, &mut words, indices)? as u64
        } else {
            ctx.test_some(Thread, &mut words, indices)? as u64
        }
    };
    out.store(0, result);
    Ok(())
}

/// Stores 1 in `holds` if `word`, of a [`WordKind`], currently satisfies the comparison `cmp` with `value`, and 0
/// otherwise.
///
/// # Errors
/// - The errors of [`Ctx::test`].
#[kernel]
pub fn rushmem_test(
    ctx: &Ctx,
    holds: SymSlice<u64>,
    kind: u32,
    cmp: u32,
    word: SymSlice<u8>,
    value: u64,
) -> Result {
    if Thread::index() != 0 {
        return Ok(());
    }
    let cmp = code::cmp_of(cmp);
    let found = if kind == WordKind::U32 as u32 {
        ctx.test::<u32>(word.cast().at(0), cmp, value as u32)
    } else if kind == WordKind::I32 as u32 {
        ctx.test::<i32>(word.cast().at(0), cmp, value as i32)
    } else if kind == WordKind::U64 as u32 {
        ctx.test::<u64>(word.cast().at(0), cmp, value)
    } else {
        ctx.test::<i64>(word.cast().at(0), cmp, value as i64)
    }?;
    ctx.local(holds).store(0, found as u64);
    Ok(())
}
