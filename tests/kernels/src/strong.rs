//! Test kernels of strong signals, of signals with shadows, and of fences on behalf of other threads.

use rushmem_device::prelude::*;

/// How the puts of all blocks are announced, as a kernel argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Announcement {
    /// Calls `signal_strong`.
    Signal,
    /// Calls `put_signal_strong`.
    PutSignal,
    /// Calls `fence_group`, then sends a signal.
    FenceGroup,
    /// Calls `fence_pe` in a thread other than those that put, then sends a signal.
    FencePe,
    /// Calls `quiet_pe`, then sends a signal.
    QuietPe,
    /// Calls `quiet_pes`, then sends a signal.
    QuietPes,
}

/// Puts all blocks' shares of an array from even PEs to their partner, which the first block announces as `how`
/// selects. The partner counts missing elements in `bad` and answers.
#[kernel]
#[allow(clippy::too_many_arguments)] // what goes and how
pub fn announce_all(
    ctx: &Ctx,
    how: u32,
    inbox: SymSlice<u64>,
    outbox: SymSlice<u64>,
    last: SymSlice<u64>,
    pes: SymSlice<u32>,
    signal: Sym<Signal>,
    ack: Sym<Signal>,
    bad: Sym<u64>,
    rounds: u32,
) -> Result {
    let (block, me) = (Block::current(), ctx.my_pe());
    let partner = me ^ 1;
    if partner >= ctx.n_pes() {
        return Ok(());
    }
    let (mine, theirs, tail) = (ctx.local(outbox), ctx.local(inbox), ctx.local(last));
    let share = block.share(outbox.len());
    let mut round = 1;
    while round <= rounds as u64 {
        if me & 1 == 0 {
            let mut i = share.start + block.rank() as usize;
            while i < share.end {
                mine.store(i, round << 32 | i as u64);
                i += block.size() as usize;
            }
            ctx.put_nbi(block, inbox.slice(share.clone()), outbox.slice(share.clone()), partner)?;
            ctx.sync_grid(block)?;
            if block.id() == 0 {
                if block.leader() {
                    tail.store(0, round);
                    ctx.local(pes).store(0, partner);
                }
                announce(ctx, how, last, pes, signal, round, partner)?;
                ctx.signal_wait_until(block, ack, Cmp::Ge, round)?;
            }
            ctx.sync_grid(block)?;
        } else if block.id() == 0 {
            ctx.signal_wait_until(block, signal, Cmp::Ge, round)?;
            let mut wrong = 0;
            let mut i = block.rank() as usize;
            while i < theirs.len() {
                wrong += (theirs.load(i) != (round << 32 | i as u64)) as u64;
                i += block.size() as usize;
            }
            if how == Announcement::PutSignal as u32 {
                wrong += (tail.load(1) != round) as u64;
            }
            if wrong != 0 {
                ctx.atomic_add(bad, wrong, me)?;
            }
            ctx.quiet(block)?;
            if block.leader() {
                ctx.signal_op(ack.set(round), partner)?;
            }
        }
        round += 1;
    }
    ctx.quiet(block)
}

#[inline(always)]
fn announce(
    ctx: &Ctx,
    how: u32,
    last: SymSlice<u64>,
    pes: SymSlice<u32>,
    signal: Sym<Signal>,
    round: u64,
    pe: u32,
) -> Result {
    let block = Block::current();
    if how == Announcement::Signal as u32 {
        return ctx.signal_strong(block, signal.set(round), pe);
    }
    if how == Announcement::PutSignal as u32 {
        let (to, from) = (last.slice(1..2), last.slice(0..1));
        return ctx.put_signal_strong(block, to, from, signal.add(1), pe);
    }
    // The last thread announces, so it must order puts that other threads posted.
    let speaker = block.rank() + 1 == block.size();
    if how == Announcement::FenceGroup as u32 {
        ctx.fence_group(block)?;
    } else if how == Announcement::QuietPes as u32 {
        ctx.quiet_pes(block, ctx.local(pes))?;
    } else if how == Announcement::FencePe as u32 && speaker {
        ctx.fence_pe(pe)?;
    } else if how == Announcement::QuietPe as u32 && speaker {
        ctx.quiet_pe(pe)?;
    }
    if speaker { ctx.signal_op(signal.set(round), pe) } else { Ok(()) }
}

/// Adds to signals on the next PE from every thread, `rounds` times. The first block waits for each round through the
/// first signal's shadow, and follows the second signal.
///
/// `seen` receives the final shadow of the first signal, the total advance of the second shadow, and the values that a
/// reset of the third signal returns and leaves.
#[kernel]
pub fn shadows(ctx: &Ctx, words: SymSlice<Shadowed>, seen: SymSlice<u64>, rounds: u32) -> Result {
    let (block, pe) = (Block::current(), ctx.pe_after(1));
    let (meet, follow, reset) = (words.at(0), words.at(1), words.at(2));
    let (mut shadow, mut moved) = (0, 0);
    let all = Thread::count() as u64 * rounds as u64;
    let mut round = 0;
    while round < rounds {
        ctx.signal_op(meet.signal().add(1), pe)?;
        ctx.signal_op(follow.signal().add(2), pe)?;
        ctx.signal_op(reset.signal().add(1), pe)?;
        if block.id() == 0 {
            if block.leader() {
                ctx.shadow_increase(meet, Thread::count() as u64)?;
            }
            shadow = ctx.wait_meet_shadow(block, meet)?;
            // Do not wait for an increase: an earlier round may already have consumed all signals that arrive before
            // the neighbour's next round.
            moved += ctx.wait_follow_shadow(block, follow, 0)?;
        }
        round += 1;
    }
    if block.id() == 0 {
        while moved < 2 * all {
            moved += ctx.wait_follow_shadow(block, follow, 1)?;
        }
        ctx.signal_wait_until(block, reset.signal(), Cmp::Eq, all)?;
        if block.leader() {
            let seen = ctx.local(seen);
            seen.store(0, shadow);
            seen.store(1, moved);
            seen.store(2, ctx.signal_reset(reset.signal())?);
            seen.store(3, ctx.signal_fetch(reset.signal())?);
        }
    }
    ctx.quiet(block)
}
