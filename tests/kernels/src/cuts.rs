//! A kernel that uses every kind of operation while connections fail.

use core::ops::Range;

use rushmem_device::arch::now_ns;
use rushmem_device::prelude::*;

/// How threads share the queues in [`cross_cuts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Queues {
    /// All threads of the GPU share them.
    Shared,
    /// Each block has separate queues.
    PerBlock,
    /// One thread of each block has exclusive queues.
    Exclusive,
}

/// Length of a message, in words.
pub const CUT_WORDS: usize = 300;

/// Index in `counters` of the number of wrong words and values, after two words for each pair of a PE and a lane.
pub const WRONG: usize = 0;

/// Index of the number of results that were lost.
pub const LOST: usize = 1;

/// Index of the longest round, in nanoseconds.
pub const LONGEST: usize = 2;

/// Index of the word that all PEs increment for tickets.
pub const TICKETS: usize = 3;

/// Index of a word that contains [`FIXED_VALUE`].
pub const FIXED: usize = 4;

/// Index of the first of two words for each pair of a lane and a PE, to which that PE adds and of which it swaps the second.
pub const PAIRS: usize = 5;

/// Value of the word at [`FIXED`].
pub const FIXED_VALUE: u64 = 0x6669_7865_6420_6974;

/// Returns word `i` of message `round` of `pe`.
const fn word(pe: u32, round: u64, i: usize) -> u64 {
    (round << 32 | i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (pe as u64) << 56
}

/// The memory of [`cross_cuts`].
#[derive(Clone, Copy)]
struct Objects {
    messages: SymSlice<u64>,
    signals: SymSlice<Signal>,
    counters: SymSlice<u64>,
}

/// Block `b` exchanges messages `first..end` with PE `b % n` in lane `b / n`, and updates words of that PE by atomics.
///
/// `messages` has three rows for each pair of a lane and a PE: one to send, and two to receive alternately. `signals` has a signal
/// for each pair, and `counters` the words at [`PAIRS`] and before.
#[kernel(per_block)]
pub fn cross_cuts(
    ctx: &Ctx,
    messages: SymSlice<u64>,
    signals: SymSlice<Signal>,
    counters: SymSlice<u64>,
    first: u64,
    end: u64,
    queues: u32,
) -> Result {
    let objects = Objects { messages, signals, counters };
    match queues {
        0 => exchange(ctx, objects, first..end),
        1 => exchange(&ctx.per_block()?, objects, first..end),
        _ => {
            let own = ctx.exclusive(Block::current().id())?;
            let outcome = exchange(&own, objects, first..end);
            own.release();
            outcome
        }
    }
}

fn exchange<S: Sharing>(ctx: &Ctx<S>, objects: Objects, rounds: Range<u64>) -> Result {
    let Objects { messages, signals, counters } = objects;
    let (block, me, n) = (Block::current(), ctx.my_pe(), ctx.n_pes());
    if n == 0 {
        return Ok(());
    }
    let (peer, lane) = (block.id() % n, block.id() / n);
    let mine = ctx.local(counters);
    let count = |index: usize, by: u64| ctx.atomic_add(counters.at(index), by, me);
    let pair = |pe: u32| (lane * n + pe) as usize;
    let row = |pe: u32, which: usize| {
        let first = (3 * pair(pe) + which) * CUT_WORDS;
        messages.slice(first..first + CUT_WORDS)
    };
    let (sum, swapped) = (counters.at(PAIRS + 2 * pair(me)), counters.at(PAIRS + 2 * pair(me) + 1));
    let first = rounds.start;
    for round in rounds {
        let begin = now_ns();
        let (outbox, side) = (row(peer, 0), 1 + (round % 2) as usize);
        for i in (block.rank() as usize..CUT_WORDS).step_by(block.size() as usize) {
            ctx.local(outbox).store(i, word(me, round, i));
        }
        ctx.put_signal_nbi(block, row(me, side), outbox, signals.at(pair(me)).set(round), peer)?;
        ctx.atomic_add(sum, 1, peer)?;
        // In odd rounds before anything waits for a completion, so only waits for messages find connections that have failed.
        if round % 2 == 1 {
            ctx.signal_wait_until(block, signals.at(pair(peer)), Cmp::Ge, round)?;
        }
        if block.leader() {
            let mut wrong = 0;
            match ctx.atomic_fetch_inc(counters.at(TICKETS), peer) {
                Ok(_) => {}
                Err(Error::ResultLost) => count(LOST, 1)?,
                Err(other) => return Err(other),
            }
            match ctx.atomic_swap(swapped, round, peer) {
                Ok(before) => wrong += u64::from(before != if round == first { 0 } else { round - 1 }),
                Err(Error::ResultLost) => count(LOST, 1)?,
                Err(other) => return Err(other),
            }
            wrong += u64::from(ctx.g(counters.at(FIXED), peer)? != FIXED_VALUE);
            if wrong > 0 {
                count(WRONG, wrong)?;
            }
        }
        ctx.signal_wait_until(block, signals.at(pair(peer)), Cmp::Ge, round)?;
        let received = ctx.local(row(peer, side));
        let is_wrong = |i: &usize| received.load(*i) != word(peer, round, *i);
        let own = (block.rank() as usize..CUT_WORDS).step_by(block.size() as usize);
        let wrong = own.filter(is_wrong).count() as u64;
        if wrong > 0 {
            count(WRONG, wrong)?;
        }
        // Completes the put before its source changes.
        ctx.quiet(block)?;
        if block.leader() && now_ns() - begin > mine.load(LONGEST) {
            mine.store(LONGEST, now_ns() - begin);
        }
        block.sync();
    }
    Ok(())
}
