//! Puts and gets by blocks.

use core::ops::Range;

use rushmem_device::prelude::*;

use crate::span::Span;

/// A block's part of a message of `len` words, in pieces of 16 bytes.
#[inline(always)]
fn part(block: Block, len: usize) -> Range<usize> {
    let share = block.share(len.div_ceil(2));
    (2 * share.start).min(len)..(2 * share.end).min(len)
}

/// The blocks of PE 0 put a message of `len` words to PE 1 together, `rounds` times, from one place of
/// `src` after the other to the same in `dst`; both hold a whole number of messages. `each` other than 0: completes each
/// one before the next.
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
    let (mut round, mut at) = (0, part.start);
    while round < rounds {
        let range = at..at + part.len();
        ctx.put_nbi(block.ready(), dst.slice(range.clone()), src.slice(range), 1)?;
        if each != 0 {
            ctx.quiet(block)?;
        }
        round += 1;
        at += len as usize;
        if at >= dst.len() {
            at = part.start;
        }
    }
    ctx.quiet(block)?;
    span.end();
    Ok(())
}

/// As [`put`], in the other direction.
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
    let (mut round, mut at) = (0, part.start);
    while round < rounds {
        let range = at..at + part.len();
        ctx.get_nbi(block.ready(), dst.slice(range.clone()), src.slice(range), 1)?;
        if each != 0 {
            ctx.quiet(block)?;
        }
        round += 1;
        at += len as usize;
        if at >= dst.len() {
            at = part.start;
        }
    }
    ctx.quiet(block)?;
    span.end();
    Ok(())
}
