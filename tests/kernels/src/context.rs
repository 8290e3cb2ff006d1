//! Test kernels of contexts with separate queues.

use rushmem_device::prelude::*;

/// Puts each block's share of `src` to every PE through the block's own queues. The data from PE `s` goes to part `s`
/// of `dst`.
#[kernel(per_block)]
pub fn private_puts(ctx: &Ctx, dst: SymSlice<u16>, src: SymSlice<u16>) -> Result {
    let (block, own) = (Block::current(), ctx.per_block()?);
    let (share, base) = (block.share(src.len()), own.my_pe() as usize * src.len());
    let mut pe = 0;
    while pe < own.n_pes() {
        let there = dst.slice(base + share.start..base + share.end);
        own.put_nbi(block, there, src.slice(share.clone()), pe)?;
        own.fence()?;
        pe += 1;
    }
    // Only one block may enter the barrier of all PEs; the others just complete their operations.
    if block.id() == 0 { own.barrier_all(block) } else { own.quiet(block) }
}

/// Each thread acquires its exclusive queues `turns` times, adds 1 to its word on the next PE, reads it back, and
/// releases the queues. Counts wrong values in `wrong`.
#[kernel]
pub fn exclusive_turns(ctx: &Ctx, words: SymSlice<u64>, wrong: SymSlice<u32>, turns: u32) -> Result {
    let (i, pe) = (Thread::index(), ctx.pe_after(1));
    let wrong = ctx.local(wrong);
    let mut turn = 0;
    while turn < turns {
        let own = ctx.exclusive(i as u32)?;
        let before = own.atomic_fetch_add(words.at(i), 1, pe)?;
        own.p(words.at(i), before + 1, pe)?;
        own.quiet(Thread)?;
        let now = own.g(words.at(i), pe)?;
        if before != turn as u64 || now != turn as u64 + 1 {
            wrong.store(i, wrong.load(i) + 1);
        }
        own.release();
        turn += 1;
    }
    Ok(())
}

/// Posts to three contexts that the host created.
///
/// - `slow` batches a put to element 0 of the next PE's `dst` while `quick` completes a put to element 1.
/// - Then `slow` posts it, followed by `more` puts to element 2 and a signal to element 3, without a quiet.
/// - All threads of the first block put to the remaining elements through `together`.
///
/// Stores elements 0 and 1, as they are after the quiet of `quick`, in `seen`.
#[kernel]
#[allow(clippy::too_many_arguments)] // three contexts, and the data that goes through them
pub fn three_contexts(
    ctx: &Ctx,
    slow: Context<Exclusive>,
    quick: Context,
    together: Context<PerBlock>,
    dst: SymSlice<u64>,
    src: SymSlice<u64>,
    seen: SymSlice<u64>,
    more: u32,
) -> Result {
    let (block, pe) = (Block::current(), ctx.pe_after(1));
    if block.id() != 0 {
        return Ok(());
    }
    let own = ctx.context(together)?;
    own.put_nbi(block, dst.slice(4..dst.len()), src.slice(4..src.len()), pe)?;
    own.quiet(block)?;
    own.release();
    if !block.leader() {
        return Ok(());
    }
    let (slow, quick) = (ctx.context(slow)?, ctx.context(quick)?);
    let batch = slow.batch();
    batch.p(dst.at(0), 7, pe)?;
    quick.p(dst.at(1), 8, pe)?;
    quick.quiet(Thread)?;
    let seen = ctx.local(seen);
    seen.store(0, quick.g(dst.at(0), pe)?);
    seen.store(1, quick.g(dst.at(1), pe)?);
    batch.end();
    let mut i = 0;
    while i < more {
        slow.put_nbi(Thread, dst.slice(2..3), src.slice(2..3), pe)?;
        i += 1;
    }
    slow.signal_op(dst.at(3).set(9), pe)?;
    slow.release();
    Ok(())
}

/// Acquires an exclusive context twice, which must fail.
#[kernel]
pub fn take_context_twice(ctx: &Ctx, context: Context<Exclusive>) -> Result {
    if Thread::index() != 0 {
        return Ok(());
    }
    let first = ctx.context(context)?;
    let second = ctx.context(context).map(|_| ());
    first.release();
    second
}

/// Holds the context of block 0: sets `held` to 1, then waits until `go` is 1.
#[kernel]
pub fn hold_context(ctx: &Ctx, context: Context<PerBlock>, held: Sym<Signal>, go: Sym<Signal>) -> Result {
    if Thread::index() != 0 {
        return Ok(());
    }
    let own = ctx.context(context)?;
    let outcome = own.p(held, 1, ctx.my_pe()).and_then(|()| ctx.signal_wait_until(Thread, go, Cmp::Eq, 1));
    own.release();
    outcome.map(|_| ())
}

/// Holds the per-block queues of block 0: sets `held` to 1, then waits until `go` is 1.
#[kernel(per_block)]
pub fn hold_per_block(ctx: &Ctx, held: Sym<Signal>, go: Sym<Signal>) -> Result {
    let own = ctx.per_block()?;
    if Thread::index() != 0 {
        return Ok(());
    }
    own.p(held, 1, ctx.my_pe())?;
    own.quiet(Thread)?;
    ctx.signal_wait_until(Thread, go, Cmp::Eq, 1).map(|_| ())
}

/// Requests the queues of its block although the kernel lacks the `per_block` attribute.
#[kernel]
pub fn undeclared_per_block(ctx: &Ctx) -> Result {
    ctx.per_block().map(|_| ())
}

/// Sends each block's half of `src` to `pe` through `context` with its own signal, and waits for the half that it
/// receives. Then each block enters a barrier with the same block of the other PEs.
#[kernel]
#[allow(clippy::too_many_arguments)] // a communicator's parts, and the data that goes through it
pub fn exchange_by(
    ctx: &Ctx,
    context: Context,
    first: Team,
    second: Team,
    signals: SymSlice<Signal>,
    dst: SymSlice<u64>,
    src: SymSlice<u64>,
    pe: u32,
    round: u64,
) -> Result {
    let (own, block) = (ctx.context(context)?, Block::current());
    let (id, half) = (block.id() as usize, src.len() / 2);
    let (range, signal) = (id * half..(id + 1) * half, signals.at(id));
    own.put_signal(block, dst.slice(range.clone()), src.slice(range), signal.set(round), pe)?;
    ctx.signal_wait_until(block, signal, Cmp::Eq, round)?;
    own.quiet(block)?;
    // The context may be connected to some PEs only, but a barrier signals all, so it uses `ctx`.
    ctx.barrier(block, if id == 0 { first } else { second })
}
