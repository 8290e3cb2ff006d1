//! Puts and gets by blocks.

use core::ops::Range;

use rushmem_device::prelude::*;

use crate::span::Span;

/// Returns a block's part of a message of `len` words, in units of 16 bytes.
#[inline(always)]
fn part(block: Block, len: usize) -> Range<usize> {
    let share = block.share(len.div_ceil(2));
    (2 * share.start).min(len)..(2 * share.end).min(len)
}

/// Puts `rounds` messages of `len` words from PE 0 to PE 1. All blocks divide each message.
///
/// Messages take successive ranges of `src` and the same ranges of `dst`. Both arrays have a whole number of messages. If
/// `each` is not 0, each message completes before the next.
#[kernel(max_threads = 512)]
pub fn put(
    ctx: &Ctx,
    spans: SymSlice<u64>,
    dst: SymSlice<u64>,
    src: SymSlice<u64>,
    len: u64,
    rounds: u32,
    each: u32,
) -> Result {
    if ctx.my_pe() != 0 {
        return Ok(());
    }
    let block = Block::current();
    let part = part(block, len as usize);
    let span = Span::begin(ctx, spans);
    // Numbers of 32 bits keep fewer registers live.
    let (start, size) = (part.start as u32, part.len() as u32);
    let (mut left, mut at) = (rounds, start);
    while left > 0 {
        let range = at as usize..at as usize + size as usize;
        ctx.put_nbi(block.ready(), dst.slice(range.clone()), src.slice(range), 1)?;
        left -= 1;
        if each != 0 {
            ctx.quiet(block)?;
        }
        at += len as u32;
        if at as usize >= dst.len() {
            at = start;
        }
    }
    ctx.quiet(block)?;
    span.end();
    Ok(())
}

/// Gets `rounds` messages of `len` words from PE 1 at PE 0. The arguments are the same as of [`put`].
#[kernel(max_threads = 512)]
pub fn get(
    ctx: &Ctx,
    spans: SymSlice<u64>,
    dst: SymSlice<u64>,
    src: SymSlice<u64>,
    len: u64,
    rounds: u32,
    each: u32,
) -> Result {
    if ctx.my_pe() != 0 {
        return Ok(());
    }
    let block = Block::current();
    let part = part(block, len as usize);
    let span = Span::begin(ctx, spans);
    // Numbers of 32 bits keep fewer registers live.
    let (start, size) = (part.start as u32, part.len() as u32);
    let (mut left, mut at) = (rounds, start);
    while left > 0 {
        let range = at as usize..at as usize + size as usize;
        ctx.get_nbi(block.ready(), dst.slice(range.clone()), src.slice(range), 1)?;
        left -= 1;
        if each != 0 {
            ctx.quiet(block)?;
        }
        at += len as u32;
        if at as usize >= dst.len() {
            at = start;
        }
    }
    ctx.quiet(block)?;
    span.end();
    Ok(())
}
