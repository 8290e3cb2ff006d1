//! Benchmarks of puts and gets by thread blocks.

use core::ops::Range;

use rushmem_device::prelude::*;

use crate::span::Span;

#[inline(always)]
fn part(block: Block, len: usize) -> Range<usize> {
    let share = block.share(len.div_ceil(2));
    (2 * share.start).min(len)..(2 * share.end).min(len)
}

/// Calls `transfer` `rounds` times with this block's range of a message of `len` words. Only PE 0 works.
///
/// Successive messages use successive ranges of arrays of `words` words, which hold a whole number of messages.
#[inline(always)]
fn each_message(
    ctx: &Ctx,
    spans: SymSlice<u64>,
    (len, words): (u64, usize),
    rounds: u32,
    transfer: impl Fn(Block, Range<usize>) -> Result,
) -> Result {
    if ctx.my_pe() != 0 {
        return Ok(());
    }
    let block = Block::current();
    let part = part(block, len as usize);
    let span = Span::begin(ctx, spans);
    // Indices of 32 bits keep fewer registers live.
    let (start, size) = (part.start as u32, part.len() as u32);
    let (mut left, mut at) = (rounds, start);
    while left > 0 {
        transfer(block, at as usize..at as usize + size as usize)?;
        left -= 1;
        at += len as u32;
        if at as usize >= words {
            at = start;
        }
    }
    ctx.quiet(block)?;
    span.end();
    Ok(())
}

/// Puts messages of `len` words from `src` on PE 0 to the same range of `dst` on PE 1.
#[kernel(max_threads = 512)]
pub fn put(
    ctx: &Ctx,
    spans: SymSlice<u64>,
    dst: SymSlice<u64>,
    src: SymSlice<u64>,
    len: u64,
    rounds: u32,
) -> Result {
    each_message(ctx, spans, (len, dst.len()), rounds, |block, range| {
        ctx.put_nbi(block.without_barrier(), dst.slice(range.clone()), src.slice(range), 1)
    })
}

/// Puts messages like [`put`], but waits for the completion of each one before it posts the next.
#[kernel(max_threads = 256)]
pub fn put_quiet(
    ctx: &Ctx,
    spans: SymSlice<u64>,
    dst: SymSlice<u64>,
    src: SymSlice<u64>,
    len: u64,
    rounds: u32,
) -> Result {
    each_message(ctx, spans, (len, dst.len()), rounds, |block, range| {
        ctx.put_nbi(block.without_barrier(), dst.slice(range.clone()), src.slice(range), 1)?;
        ctx.quiet(block)
    })
}

/// Gets messages of `len` words from `src` on PE 1 to the same range of `dst` on PE 0.
#[kernel(max_threads = 512)]
pub fn get(
    ctx: &Ctx,
    spans: SymSlice<u64>,
    dst: SymSlice<u64>,
    src: SymSlice<u64>,
    len: u64,
    rounds: u32,
) -> Result {
    each_message(ctx, spans, (len, dst.len()), rounds, |block, range| {
        ctx.get_nbi(block.without_barrier(), dst.slice(range.clone()), src.slice(range), 1)
    })
}
