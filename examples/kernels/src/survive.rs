//! The survive example: a persistent kernel that exchanges messages with all living PEs and skips lost ones.

use rushmem_device::arch::now_ns;
use rushmem_device::prelude::*;

/// Index in the facts of the number of rounds so far.
pub const ROUNDS: usize = 0;

/// Index in the facts of the number of wrong words received.
pub const WRONG: usize = 1;

/// Index in the facts of the longest wait, in nanoseconds.
pub const LONGEST: usize = 2;

/// Returns word `i` of the message that `pe` sends in `round`.
pub const fn message_word(pe: u32, round: u64, i: usize) -> u64 {
    round.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (pe as u64) << 32 ^ i as u64
}

/// Exchanges messages with all living PEs, for `rounds` rounds. One block.
///
/// - `inbox` has the messages of all PEs, for even and for odd rounds, and `outbox` that of this PE.
/// - `arrived` has, for each PE, the last round whose message has arrived.
/// - `lost` has, for each PE, 0 or the round in which this PE noticed its loss.
/// - `facts` has the values at [`ROUNDS`], [`WRONG`] and [`LONGEST`].
///
/// A PE sends its message of a round once it has the messages of the round before, so nobody is two rounds ahead.
#[kernel]
pub fn survive(
    ctx: &Ctx,
    inbox: SymSlice<u64>,
    outbox: SymSlice<u64>,
    arrived: SymSlice<Signal>,
    lost: SymSlice<u64>,
    facts: SymSlice<u64>,
    rounds: u64,
) -> Result {
    let (block, me, n) = (Block::current(), ctx.my_pe(), ctx.n_pes());
    let (mine, lost, facts, words) = (ctx.local(outbox), ctx.local(lost), ctx.local(facts), outbox.len());
    for round in 1..=rounds {
        let row = |pe: u32| {
            let first = ((round % 2) as usize * n as usize + pe as usize) * words;
            inbox.slice(first..first + words)
        };
        // Returns whether the PE is alive, and records its loss.
        let lives = |pe: u32, outcome: Result| match outcome {
            Ok(()) => Ok(true),
            Err(Error::PeerLost) => {
                if block.leader() {
                    lost.store(pe as usize, round);
                }
                block.sync();
                Ok(false)
            }
            Err(other) => Err(other),
        };
        for i in (block.rank() as usize..words).step_by(block.size() as usize) {
            mine.store(i, message_word(me, round, i));
        }
        for k in 1..n {
            let pe = (me + k) % n;
            if lost.load(pe as usize) == 0 {
                let signal = arrived.at(me as usize).set(round);
                lives(pe, ctx.put_signal_nbi(block, row(me), outbox, signal, pe))?;
            }
        }
        // Completes the operations to living PEs. The waits below tell who is lost.
        match ctx.quiet(block) {
            Ok(()) | Err(Error::PeerLost) => {}
            other => return other,
        }
        for k in 1..n {
            let pe = (me + n - k) % n;
            if lost.load(pe as usize) != 0 {
                continue;
            }
            let begin = now_ns();
            let came = ctx.signal_wait_until_from(block, arrived.at(pe as usize), Cmp::Ge, round, pe);
            let waited = now_ns() - begin;
            if block.leader() && waited > facts.load(LONGEST) {
                facts.store(LONGEST, waited);
            }
            if lives(pe, came.map(|_| ()))? {
                let received = ctx.local(row(pe));
                let wrong = (0..words).filter(|&i| received.load(i) != message_word(pe, round, i)).count();
                if block.leader() {
                    facts.store(WRONG, facts.load(WRONG) + wrong as u64);
                }
            }
        }
        if block.leader() {
            facts.store(ROUNDS, round);
        }
        // Nobody may store the next message while others still send this one.
        block.sync();
    }
    Ok(())
}
