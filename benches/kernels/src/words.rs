//! Benchmarks of single-word operations: each thread of PE 0 works on its own word of PE 1.
//!
//! Threads that fetch store the sum of the fetched values in their element of `sums`.

use rushmem_device::prelude::*;

use crate::span::Span;

/// Puts `value`, `value + 1` and so on to the thread's word of PE 1. If `each` is not 0, every put completes before the
/// next.
#[kernel]
pub fn p(
    ctx: &Ctx,
    spans: SymSlice<u64>,
    words: SymSlice<u64>,
    value: u64,
    rounds: u32,
    each: u32,
) -> Result {
    if ctx.my_pe() != 0 {
        return Ok(());
    }
    let word = words.at(Thread::index());
    let span = Span::begin(ctx, spans);
    let mut round = 0;
    while round < rounds {
        ctx.p(word, value + round as u64, 1)?;
        if each != 0 {
            ctx.quiet(Thread)?;
        }
        round += 1;
    }
    ctx.quiet(Block::current())?;
    span.end();
    Ok(())
}

/// Gets the thread's word of PE 1 in each round, and waits for its value.
#[kernel]
pub fn g(ctx: &Ctx, spans: SymSlice<u64>, words: SymSlice<u64>, sums: SymSlice<u64>, rounds: u32) -> Result {
    if ctx.my_pe() != 0 {
        return Ok(());
    }
    let word = words.at(Thread::index());
    let span = Span::begin(ctx, spans);
    let (mut round, mut sum) = (0, 0u64);
    while round < rounds {
        sum = sum.wrapping_add(ctx.g(word, 1)?);
        round += 1;
    }
    span.end();
    ctx.local(sums).store(Thread::index(), sum);
    Ok(())
}

/// Adds 1 to the thread's word of PE 1 in each round, and waits for completion after the last one.
#[kernel]
pub fn add(ctx: &Ctx, spans: SymSlice<u64>, words: SymSlice<u64>, rounds: u32) -> Result {
    if ctx.my_pe() != 0 {
        return Ok(());
    }
    let word = words.at(Thread::index());
    let span = Span::begin(ctx, spans);
    let mut round = 0;
    while round < rounds {
        ctx.atomic_add(word, 1, 1)?;
        round += 1;
    }
    ctx.quiet(Block::current())?;
    span.end();
    Ok(())
}

/// Returns the sum of the values that `rounds` successive calls of `fetch` return.
///
/// The loop is unrolled four times, because the overhead of an iteration is a quarter of an atomic's cost. nvcc does
/// the same to the programs that we compare with.
#[inline(always)]
fn sum_of(rounds: u32, mut fetch: impl FnMut() -> Result<u64>) -> Result<u64> {
    let (mut left, mut sum) = (rounds, 0u64);
    while left >= 4 {
        let (a, b, c, d) = (fetch()?, fetch()?, fetch()?, fetch()?);
        sum = sum.wrapping_add(a).wrapping_add(b).wrapping_add(c).wrapping_add(d);
        left -= 4;
    }
    while left > 0 {
        sum = sum.wrapping_add(fetch()?);
        left -= 1;
    }
    Ok(sum)
}

/// Adds 1 to the thread's word of PE 1 in each round, and waits for its previous value.
#[kernel]
pub fn fetch_add(
    ctx: &Ctx,
    spans: SymSlice<u64>,
    words: SymSlice<u64>,
    sums: SymSlice<u64>,
    rounds: u32,
) -> Result {
    if ctx.my_pe() != 0 {
        return Ok(());
    }
    let word = words.at(Thread::index());
    let span = Span::begin(ctx, spans);
    let mut one = 1;
    let sum = sum_of(rounds, || {
        let old = ctx.atomic_fetch_add(word, one, 1)?;
        // Words stay small, so this adds 0. But it makes the next call depend on the result of this one.
        one += old >> 63;
        Ok(old)
    })?;
    span.end();
    ctx.local(sums).store(Thread::index(), sum);
    Ok(())
}

/// Replaces the round number in the thread's word of PE 1 with its successor by compare-and-swap, and waits for the
/// previous value.
#[kernel]
pub fn compare_swap(
    ctx: &Ctx,
    spans: SymSlice<u64>,
    words: SymSlice<u64>,
    sums: SymSlice<u64>,
    rounds: u32,
) -> Result {
    if ctx.my_pe() != 0 {
        return Ok(());
    }
    let word = words.at(Thread::index());
    let span = Span::begin(ctx, spans);
    let mut next = 0;
    let sum = sum_of(rounds, || {
        let found = ctx.atomic_compare_swap(word, next, next + 1, 1)?;
        next = found + 1;
        Ok(found)
    })?;
    span.end();
    ctx.local(sums).store(Thread::index(), sum);
    Ok(())
}
