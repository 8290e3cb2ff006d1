//! The survive example: a persistent kernel that exchanges messages with all living PEs, skips lost ones, and goes on with the
//! processes that replace them.

use rushmem_device::arch::now_ns;
use rushmem_device::prelude::*;

/// Index in the facts of the number of rounds so far.
pub const ROUNDS: usize = 0;

/// Index in the facts of the number of wrong words received.
pub const WRONG: usize = 1;

/// Index in the facts of the longest wait, in nanoseconds. The wait for the first message of a process does not count.
pub const LONGEST: usize = 2;

/// Index in the facts of a flag: 1 once the kernel has finished or failed.
pub const FINISHED: usize = 3;

/// Index in a peer's record of the epoch in which the two processes met: 0 before that.
pub const SINCE: usize = 0;

/// Index in a peer's record of the messages exchanged since then.
const MESSAGES: usize = 1;

/// Index in a peer's record of the reason why no more messages follow: 0 if they do, [`GONE`], or 2 after its last one.
pub const STATE: usize = 2;

/// Length of a peer's record, in words.
pub const RECORD_WORDS: usize = 3;

/// The peer was lost.
pub const GONE: u64 = 1;

/// The peer has sent its last message.
const DONE: u64 = 2;

/// Duration of a round without any other PE, in nanoseconds.
const ALONE_NS: u64 = 1_000_000;

/// Bit of the signal with the last message of a PE.
const LAST: u64 = 1;

/// Returns the signal for message `number` between two processes that met in epoch `since`.
const fn stamp(since: u64, number: u64) -> u64 {
    since << 32 | number << 1
}

/// Returns the signal of a PE whose kernel has finished, perhaps without a message to a process that joined late.
pub const fn finished_stamp(since: u64) -> u64 {
    since << 32 | 0xffff_ffff
}

/// Returns word `i` of the message that `pe` sends with the signal `stamp`.
pub const fn message_word(pe: u32, stamp: u64, i: usize) -> u64 {
    stamp.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (pe as u64) << 48 ^ i as u64
}

/// Exchanges messages with all living PEs, for `rounds` rounds or until all others have finished. One block.
///
/// - `inbox` has the messages of all PEs, for even and for odd numbers, and `outbox` those for all PEs.
/// - `signals` has, for each PE, the signal of its last message, followed by the epochs in which this PE met each of them. The host
///   sets the latter.
/// - `peers` has a record of [`RECORD_WORDS`] words for each PE.
/// - `facts` has the values at [`ROUNDS`], [`WRONG`], [`LONGEST`] and [`FINISHED`].
///
/// A PE sends its next message to another once it has the last one from there, so nobody is two messages ahead.
#[kernel]
pub fn survive(
    ctx: &Ctx,
    inbox: SymSlice<u64>,
    outbox: SymSlice<u64>,
    signals: SymSlice<Signal>,
    peers: SymSlice<u64>,
    facts: SymSlice<u64>,
    rounds: u64,
) -> Result {
    let outcome = exchange(ctx, inbox, outbox, signals, peers, facts, rounds);
    let block = Block::current();
    block.sync();
    if block.leader() {
        ctx.local(facts).store(FINISHED, 1);
    }
    outcome
}

#[inline(always)]
fn exchange(
    ctx: &Ctx,
    inbox: SymSlice<u64>,
    outbox: SymSlice<u64>,
    signals: SymSlice<Signal>,
    peers: SymSlice<u64>,
    facts: SymSlice<u64>,
    rounds: u64,
) -> Result {
    let (block, me, n) = (Block::current(), ctx.my_pe(), ctx.n_pes());
    let (mine, peers, facts) = (ctx.local(outbox), ctx.local(peers), ctx.local(facts));
    let (arrived, together) = (signals.slice(0..n as usize), signals.slice(n as usize..2 * n as usize));
    let words = outbox.len().checked_div(n as usize).unwrap_or(0);
    let number = |pe: u32, which: usize| pe as usize * RECORD_WORDS + which;
    let set_state = |pe: u32, state: u64| {
        if block.leader() {
            peers.store(number(pe, STATE), state);
        }
        block.sync();
    };
    for round in 1..=rounds {
        if block.leader() {
            for pe in 0..n {
                let since = ctx.signal_fetch(together.at(pe as usize))?;
                if since != peers.load(number(pe, SINCE)) {
                    peers.store(number(pe, SINCE), since);
                    peers.store(number(pe, MESSAGES), 0);
                    peers.store(number(pe, STATE), 0);
                }
            }
        }
        block.sync();
        let is_open = |pe: u32| peers.load(number(pe, SINCE)) != 0 && peers.load(number(pe, STATE)) == 0;
        let next = |pe: u32| peers.load(number(pe, MESSAGES)) + 1;
        let row = |from: u32, message: u64| {
            let first = ((message % 2) as usize * n as usize + from as usize) * words;
            inbox.slice(first..first + words)
        };
        for k in 1..n {
            let pe = (me + k) % n;
            if !is_open(pe) {
                continue;
            }
            let stamp = stamp(peers.load(number(pe, SINCE)), next(pe));
            let message = pe as usize * words..(pe as usize + 1) * words;
            for i in (block.rank() as usize..words).step_by(block.size() as usize) {
                mine.store(message.start + i, message_word(me, stamp, i));
            }
            let signal = arrived.at(me as usize).set(if round == rounds { stamp | LAST } else { stamp });
            match ctx.put_signal_nbi(block, row(me, next(pe)), outbox.slice(message), signal, pe) {
                Ok(()) => {}
                Err(Error::PeerLost) => set_state(pe, GONE),
                other => return other,
            }
        }
        // Completes the operations to living PEs. The waits below tell who is lost.
        match ctx.quiet(block) {
            Ok(()) | Err(Error::PeerLost) => {}
            other => return other,
        }
        let (mut open, mut done) = (0, 0);
        for k in 1..n {
            let pe = (me + n - k) % n;
            if is_open(pe) {
                let (message, begin) = (next(pe), now_ns());
                let since = peers.load(number(pe, SINCE));
                let stamp = stamp(since, message);
                let came = ctx.signal_wait_until_from(block, arrived.at(pe as usize), Cmp::Ge, stamp, pe);
                let waited = now_ns() - begin;
                if block.leader() && message > 1 && waited > facts.load(LONGEST) {
                    facts.store(LONGEST, waited);
                }
                let signal = match came {
                    Ok(signal) => signal,
                    Err(Error::PeerLost) => {
                        set_state(pe, GONE);
                        continue;
                    }
                    Err(other) => return Err(other),
                };
                let has_finished = signal == finished_stamp(since);
                // The next message may have arrived, too.
                let is_last = signal == stamp | LAST;
                let received = ctx.local(row(pe, message));
                let is_wrong = |i: &usize| !has_finished && received.load(*i) != message_word(pe, stamp, *i);
                let wrong = (0..words).filter(is_wrong).count();
                block.sync();
                if block.leader() {
                    facts.store(WRONG, facts.load(WRONG) + wrong as u64);
                    peers.store(number(pe, MESSAGES), message);
                    if has_finished || is_last {
                        peers.store(number(pe, STATE), DONE);
                    }
                }
                block.sync();
            }
            open += u32::from(is_open(pe));
            done += u32::from(peers.load(number(pe, STATE)) == DONE);
        }
        if block.leader() {
            facts.store(ROUNDS, round);
        }
        // Nobody may store the next messages while others still read the numbers.
        block.sync();
        if open == 0 && done > 0 {
            break;
        }
        if open == 0 && block.leader() {
            let begin = now_ns();
            while now_ns() - begin < ALONE_NS {}
        }
    }
    Ok(())
}
