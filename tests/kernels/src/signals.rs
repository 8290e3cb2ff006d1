//! Test kernels of signals and of waits for them.

use rushmem_device::prelude::*;

/// Sends an array back and forth between each PE and its partner, announced by a signal. Partners differ in the last
/// bit of their rank. The receiver counts missing elements in `bad`.
#[kernel]
#[allow(clippy::too_many_arguments)] // what goes and how
pub fn ping_pong(
    ctx: &Ctx,
    inbox: SymSlice<u64>,
    outbox: SymSlice<u64>,
    signal: Sym<Signal>,
    bad: Sym<u64>,
    rounds: u32,
    set: u32,
    nbi: u32,
) -> Result {
    let (block, me) = (Block::current(), ctx.my_pe());
    let partner = me ^ 1;
    if partner >= ctx.n_pes() || block.id() != 0 {
        return Ok(());
    }
    let mine = ctx.local(outbox);
    let mut round = 1;
    while round <= rounds as u64 {
        if me & 1 == 1 {
            receive(ctx, inbox, signal, bad, round)?;
        }
        let mut i = block.rank() as usize;
        while i < mine.len() {
            mine.store(i, round << 32 | i as u64);
            i += block.size() as usize;
        }
        let update = if set != 0 { signal.set(round) } else { signal.add(1) };
        if nbi != 0 {
            ctx.put_signal_nbi(block, inbox, outbox, update, partner)?;
        } else {
            ctx.put_signal(block, inbox, outbox, update, partner)?;
        }
        if me & 1 == 0 {
            receive(ctx, inbox, signal, bad, round)?;
        }
        ctx.quiet(block)?;
        round += 1;
    }
    Ok(())
}

#[inline(always)]
fn receive(ctx: &Ctx, inbox: SymSlice<u64>, signal: Sym<Signal>, bad: Sym<u64>, round: u64) -> Result {
    let (block, theirs) = (Block::current(), ctx.local(inbox));
    let seen = ctx.signal_wait_until(block, signal, Cmp::Ge, round)?;
    let mut wrong = (seen != round) as u64;
    let mut i = block.rank() as usize;
    while i < theirs.len() {
        wrong += (theirs.load(i) != (round << 32 | i as u64)) as u64;
        i += block.size() as usize;
    }
    if wrong != 0 {
        ctx.atomic_add(bad, wrong, ctx.my_pe())?;
    }
    Ok(())
}

/// Compares this PE's words with -1, 0 and 1 by every comparison, and stores 1 in `truth` for each that holds.
#[kernel]
pub fn compare_all(ctx: &Ctx, words: SymSlice<i32>, unsigned: SymSlice<u64>, truth: SymSlice<u8>) -> Result {
    if Thread::index() != 0 {
        return Ok(());
    }
    let truth = ctx.local(truth);
    let mut at = 0;
    let mut w = 0;
    while w < words.len() {
        let mut value = -1;
        while value <= 1 {
            for cmp in [Cmp::Eq, Cmp::Ne, Cmp::Gt, Cmp::Ge, Cmp::Lt, Cmp::Le] {
                truth.store(at, ctx.test(words.at(w), cmp, value)? as u8);
                truth.store(at + 1, ctx.test(unsigned.at(w), cmp, value as u64)? as u8);
                at += 2;
            }
            value += 1;
        }
        w += 1;
    }
    Ok(())
}

/// Waits with groups of every kind, once for each comparison.
///
/// Even PEs set the next PE's words before they wait, odd PEs afterwards. Stores the results of the signal waits in
/// `seen`.
#[kernel]
pub fn await_all(ctx: &Ctx, words: SymSlice<i32>, signals: SymSlice<Signal>, seen: SymSlice<u64>) -> Result {
    let (block, warp) = (Block::current(), Warp::current());
    if ctx.my_pe() & 1 == 0 {
        release_all(ctx, words, signals)?;
    }
    ctx.wait_until(Thread, words.at(0), Cmp::Eq, 5)?;
    ctx.wait_until(warp, words.at(1), Cmp::Ne, 0)?;
    ctx.wait_until(block, words.at(2), Cmp::Gt, 3)?;
    ctx.wait_until(Thread, words.at(3), Cmp::Ge, 4)?;
    ctx.wait_until(warp, words.at(4), Cmp::Lt, -3)?;
    ctx.wait_until(block, words.at(5), Cmp::Le, -4)?;
    let first = ctx.signal_wait_until(Thread, signals.at(0), Cmp::Eq, 7)?;
    let second = ctx.signal_wait_until(warp, signals.at(1), Cmp::Gt, u64::MAX - 1)?;
    let third = ctx.signal_wait_until(block, signals.at(2), Cmp::Ne, 0)?;
    let seen = ctx.local(seen);
    let at = Thread::index() * 4;
    seen.store(at, first);
    seen.store(at + 1, second);
    seen.store(at + 2, third);
    seen.store(at + 3, ctx.signal_fetch(signals.at(0))?);
    if ctx.my_pe() & 1 == 1 {
        release_all(ctx, words, signals)?;
    }
    Ok(())
}

#[inline(always)]
fn release_all(ctx: &Ctx, words: SymSlice<i32>, signals: SymSlice<Signal>) -> Result {
    if Thread::index() != 0 {
        return Ok(());
    }
    let pe = ctx.pe_after(1);
    for (i, value) in [5, 1, 4, 4, -4, -4].into_iter().enumerate() {
        ctx.atomic_set(words.at(i), value, pe)?;
    }
    ctx.signal_op(signals.at(0).set(7), pe)?;
    ctx.signal_op(signals.at(1).add(u64::MAX), pe)?;
    ctx.signal_op(signals.at(2).add(1 << 40), pe)?;
    ctx.quiet(Thread)
}
