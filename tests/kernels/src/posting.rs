//! Test kernels of pending operations, flushes, batches and queue handles.

use rushmem_device::prelude::*;

use crate::units::{QueueSharing, modulo};

/// How a kernel learns that it may reuse the sources of its puts, as a kernel argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Free {
    /// Waits for each put by its handle.
    Wait,
    /// Tests each put by its handle until it is complete.
    Test,
    /// Calls `flush`.
    Flush,
    /// Calls `flush_pe`.
    FlushPe,
    /// Waits for the result of `flush_async`.
    FlushAsync,
}

/// Puts each block's row of `src` to the same row of the next PE's `dst` in four parts. Overwrites each part of the
/// source as soon as it may be reused, and finally gets the row into `back`.
#[kernel]
pub fn reuse_sources(
    ctx: &Ctx,
    how: u32,
    dst: SymSlice<u32>,
    src: SymSlice<u32>,
    back: SymSlice<u32>,
    row: u32,
) -> Result {
    let (block, pe) = (Block::current(), ctx.pe_after(1));
    let (row, quarter) = (row as usize, row as usize / 4);
    let at = block.id() as usize * row;
    let part = |k: usize| at + k * quarter..at + (k + 1) * quarter;
    let first = ctx.put_async(block, dst.slice(part(0)), src.slice(part(0)), pe)?;
    let second = ctx.put_async(block, dst.slice(part(1)), src.slice(part(1)), pe)?;
    ctx.put_nbi(block, dst.slice(part(2)), src.slice(part(2)), pe)?;
    let three = ctx.flush_async(pe)?;
    ctx.put_nbi(block, dst.slice(part(3)), src.slice(part(3)), pe)?;
    let last = ctx.flush_async(pe)?;
    if how == Free::Wait as u32 {
        first.wait(block)?;
        overwrite(ctx, src.slice(part(0)));
        second.wait(block)?;
        overwrite(ctx, src.slice(part(1)));
    } else if how == Free::Test as u32 {
        while !second.test()? {}
        while !first.test()? {}
        block.sync();
        overwrite(ctx, src.slice(at..at + 2 * quarter));
    }
    if how == Free::FlushAsync as u32 {
        three.wait(block)?;
        overwrite(ctx, src.slice(at..at + 3 * quarter));
        last.wait(block)?;
    } else if how == Free::FlushPe as u32 {
        if block.leader() {
            ctx.flush_pe(pe)?;
        }
        block.sync();
    } else {
        ctx.flush(block)?;
    }
    overwrite(ctx, src.slice(at..at + row));
    ctx.quiet(block)?;
    ctx.get_async(block, back.slice(at..at + row), dst.slice(at..at + row), pe)?.wait(block)?;
    ctx.quiet(block)
}

#[inline(always)]
fn overwrite(ctx: &Ctx, part: SymSlice<u32>) {
    let (block, part) = (Block::current(), ctx.local(part));
    let mut i = block.rank() as usize;
    while i < part.len() {
        part.store(i, 0xdead_beef);
        i += block.size() as usize;
    }
    block.sync();
}

/// Puts, adds and gets in a batch.
///
/// Every thread puts `times` elements to every PE, adds to a sum there, and reads its last element back, through the
/// queues that `sharing` selects. Counts wrong values in `wrong`.
#[kernel(per_block)]
#[allow(clippy::too_many_arguments)] // what goes and how
pub fn batched(
    ctx: &Ctx,
    sharing: u32,
    dst: SymSlice<u32>,
    sums: SymSlice<u64>,
    arrived: Sym<Signal>,
    wrong: Sym<u64>,
    times: u32,
) -> Result {
    if sharing == QueueSharing::Gpu as u32 {
        in_batch(ctx, dst, sums, arrived, wrong, times)
    } else if sharing == QueueSharing::Block as u32 {
        in_batch(&ctx.per_block()?, dst, sums, arrived, wrong, times)
    } else {
        let own = ctx.exclusive(Thread::index() as u32)?;
        in_batch(&own, dst, sums, arrived, wrong, times)?;
        own.release();
        Ok(())
    }
}

#[inline(always)]
fn in_batch<S: rushmem_device::Batchable>(
    ctx: &Ctx<S>,
    dst: SymSlice<u32>,
    sums: SymSlice<u64>,
    arrived: Sym<Signal>,
    wrong: Sym<u64>,
    times: u32,
) -> Result {
    let (me, n, threads) = (ctx.my_pe() as usize, ctx.n_pes(), Thread::count());
    let batch = ctx.batch();
    let mut t = 0;
    while t < times {
        let at = (me * threads + Thread::index()) * times as usize + t as usize;
        let mut pe = 0;
        while pe < n {
            batch.p(dst.at(at), at as u32 + 1, pe)?;
            batch.atomic_add(sums.at(modulo(t as usize, sums.len())), 1, pe)?;
            pe += 1;
        }
        if t == 1 {
            ctx.atomic_add(sums.at(0), 0, ctx.pe_after(1))?; // outside of the batch, through the same queue
        }
        t += 1;
    }
    // A fetch rings the doorbell. The reads below follow the completion of the puts.
    let mut wrong_here = batch.atomic_fetch(sums.at(0), batch.my_pe())? > (3 * n as u64 + 1) * threads as u64;
    batch.quiet(Thread)?;
    let last = (me * threads + Thread::index()) * times as usize + times as usize - 1;
    wrong_here |= batch.g(dst.at(last), batch.pe_after(1))? != last as u32 + 1;
    if wrong_here {
        batch.atomic_add(wrong, 1, batch.my_pe())?;
    }
    let mut pe = 0;
    while pe < n {
        batch.signal_op(arrived.add(1), pe)?;
        pe += 1;
    }
    // All threads wait for each other within the batch, because a wait rings the doorbell for the signals.
    batch.signal_wait_until(Thread, arrived, Cmp::Ge, n as u64 * threads as u64)?;
    batch.atomic_add(sums.at(0), 1, batch.my_pe())?;
    batch.end();
    ctx.quiet(Thread)
}

/// Puts 7 from one thread to its own word through the NIC in a batch, polls the word for `patience_ns`, and closes the
/// batch. Stores the values of the word before and after closing it in `seen`.
#[kernel]
pub fn held_back(
    ctx: &Ctx,
    word: Sym<u64>,
    never: Sym<u64>,
    seen: SymSlice<u64>,
    patience_ns: u64,
) -> Result {
    if Thread::index() != 0 {
        return Ok(());
    }
    let own = ctx.exclusive(0)?;
    let batch = own.batch();
    batch.p(word, 7, batch.my_pe())?;
    // Wait through `ctx`: a wait of the batch would ring the doorbell.
    ctx.wait_until_for(Thread, never, Cmp::Ne, 0, patience_ns)?;
    ctx.local(seen).store(0, ctx.local_one(word).load(0));
    batch.end();
    ctx.wait_until(Thread, word, Cmp::Eq, 7)?;
    ctx.local(seen).store(1, ctx.local_one(word).load(0));
    own.quiet(Thread)?;
    own.release();
    Ok(())
}

/// Uses a queue by its handle in each block: puts the block's share to every PE, announces it with a signal on the same
/// queue, and completes that queue. The first block waits for all shares and counts missing elements in `bad`.
#[kernel]
pub fn queue_handles(
    ctx: &Ctx,
    dst: SymSlice<u32>,
    src: SymSlice<u32>,
    arrived: Sym<Signal>,
    bad: Sym<u64>,
) -> Result {
    let (block, me) = (Block::current(), ctx.my_pe() as usize);
    let queue = ctx.queue(modulo(block.id() as usize, ctx.queues() as usize) as u32)?;
    let share = block.share(src.len());
    let mut pe = 0;
    while pe < ctx.n_pes() {
        let there = dst.slice(me * src.len() + share.start..me * src.len() + share.end);
        queue.put_nbi(block, there, src.slice(share.clone()), pe)?;
        queue.signal_strong(block, arrived.add(1), pe)?;
        pe += 1;
    }
    queue.quiet(block)?;
    if block.id() == 0 {
        ctx.signal_wait_until(block, arrived, Cmp::Eq, ctx.n_pes() as u64 * block.count() as u64)?;
        let all = ctx.local(dst);
        let mut i = block.rank() as usize;
        while i < all.len() {
            if all.load(i) == 0 {
                ctx.atomic_add(bad, 1, ctx.my_pe())?;
            }
            i += block.size() as usize;
        }
    }
    ctx.quiet(block)
}

/// Posts from diverged and reconverged lanes of a warp.
///
/// Odd lanes put to the next PE, even lanes to this PE. Then the whole warp puts. Then each tile of `lanes` lanes makes
/// a separate call: odd tiles a get, even tiles a put with signal. Thread `i` owns the elements `i`, `n + i`, `2n + i`
/// and `3n + i` of `dst`.
#[kernel]
pub fn part_ways(
    ctx: &Ctx,
    dst: SymSlice<u32>,
    src: SymSlice<u32>,
    arrived: Sym<Signal>,
    lanes: u32,
) -> Result {
    let (i, n, warp) = (Thread::index(), Thread::count(), Warp::current());
    let (next, me) = (ctx.pe_after(1), ctx.my_pe());
    let one = src.slice(i..i + 1);
    if i & 1 == 1 {
        ctx.put_nbi(Thread, dst.slice(i..i + 1), one, next)?;
    } else {
        ctx.put(Thread, dst.slice(i..i + 1), one, me)?;
    }
    let first = i - warp.rank() as usize;
    let mine = first..first + warp.size() as usize;
    ctx.put(warp, dst.slice(n + mine.start..n + mine.end), src.slice(mine), next)?;
    if let Some(tile) = Tile::of(lanes) {
        let first = i - tile.rank() as usize;
        let end = first + tile.size() as usize;
        if tile.id() & 1 == 1 {
            ctx.get(tile, dst.slice(2 * n + first..2 * n + end), src.slice(first..end), next)?;
        } else {
            let to = dst.slice(3 * n + first..3 * n + end);
            ctx.put_signal(tile, to, src.slice(first..end), arrived.add(1), next)?;
            if tile.leader() {
                ctx.fence_system();
            }
        }
    }
    ctx.quiet(warp)
}
