//! Benchmarks of posting: each thread of PE 0 posts `rounds` puts of its word of `src` to PE 1. The send queues have
//! room for all of them.
//!
//! The measured span covers the posting only. Afterwards the kernel waits for completion, unless `complete` is 0, which
//! is for entries that no NIC executes.

use rushmem_device::prelude::*;

use crate::span::Span;

#[inline(always)]
fn post<S: Sharing>(
    ctx: &Ctx,
    through: &Ctx<S>,
    spans: SymSlice<u64>,
    dst: SymSlice<u64>,
    src: SymSlice<u64>,
    rounds: u32,
    complete: u32,
) -> Result {
    let i = Thread::index();
    let (dst, src) = (dst.at(i).as_slice(), src.at(i).as_slice());
    let span = Span::begin(ctx, spans);
    let mut round = 0;
    while round < rounds {
        through.put_nbi(Thread, dst, src, 1)?;
        round += 1;
    }
    span.end();
    if complete != 0 { through.quiet(Block::current()) } else { Ok(()) }
}

/// Posts puts from all threads into the PE's shared send queue.
#[kernel]
pub fn post_shared(
    ctx: &Ctx,
    spans: SymSlice<u64>,
    dst: SymSlice<u64>,
    src: SymSlice<u64>,
    rounds: u32,
    complete: u32,
) -> Result {
    if ctx.my_pe() == 0 { post(ctx, ctx, spans, dst, src, rounds, complete) } else { Ok(()) }
}

/// Posts puts into a separate send queue for each block.
#[kernel(per_block)]
pub fn post_per_block(
    ctx: &Ctx,
    spans: SymSlice<u64>,
    dst: SymSlice<u64>,
    src: SymSlice<u64>,
    rounds: u32,
    complete: u32,
) -> Result {
    if ctx.my_pe() == 0 { post(ctx, &ctx.per_block()?, spans, dst, src, rounds, complete) } else { Ok(()) }
}

/// Posts puts from a single thread into its exclusive send queue.
#[kernel]
pub fn post_exclusive(
    ctx: &Ctx,
    spans: SymSlice<u64>,
    dst: SymSlice<u64>,
    src: SymSlice<u64>,
    rounds: u32,
    complete: u32,
) -> Result {
    if ctx.my_pe() != 0 {
        return Ok(());
    }
    let own = ctx.exclusive(0)?;
    let posted = post(ctx, &own, spans, dst, src, rounds, complete);
    own.release();
    posted
}
