//! Programs that test deadlock detection: waits that can never be satisfied. Without the sanitizer, they fail at the
//! deadline of the job.

use rushmem::{Operations, Pe, TeamConfig};
use rushmem_device::prelude::*;

use crate::program::{Memory, ONE, Topic, device, host};

pub(crate) const TOPIC: Topic = Topic {
    name: "deadlocks",
    title: "Waits that cannot end",
    file: file!(),
    text: include_str!("deadlocks.rs"),
    programs: &[
        device("both_wait_before_they_send", both_wait_before_they_send).hangs(),
        device("both_send_before_they_wait", both_send_before_they_wait),
        device("cycle_of_three_pes", cycle_of_three_pes).hangs().pes(3),
        device("ring_of_three_pes", ring_of_three_pes).pes(3),
        device("signal_that_nobody_sends", signal_that_nobody_sends).hangs(),
        device("signal_to_another_word", signal_to_another_word).hangs(),
        device("signal_to_another_pe", signal_to_another_pe).hangs(),
        device("more_signals_than_are_sent", more_signals_than_are_sent).hangs(),
        device("as_many_signals_as_are_sent", as_many_signals_as_are_sent),
        device("value_that_was_overwritten", value_that_was_overwritten).hangs(),
        device("value_that_was_awaited_in_time", value_that_was_awaited_in_time),
        device("one_word_of_all_is_missing", one_word_of_all_is_missing).hangs(),
        device("barrier_that_one_pe_skips", barrier_that_one_pe_skips).hangs(),
        device("broadcast_that_one_pe_skips", broadcast_that_one_pe_skips).hangs(),
        device("split_barrier_without_arrival", split_barrier_without_arrival).hangs(),
        host("barriers_in_opposite_order", barriers_in_opposite_order).hangs(),
        host("barriers_in_equal_order", barriers_in_equal_order),
        device("grid_barrier_that_one_block_skips", grid_barrier_that_one_block_skips).hangs().grid(2, 1),
        device("wait_before_the_barrier_of_the_sender", wait_before_the_barrier_of_the_sender)
            .hangs()
            .grid(1, 2),
        device("wait_after_the_barrier_of_the_sender", wait_after_the_barrier_of_the_sender).grid(1, 2),
        device("lock_that_is_never_cleared", lock_that_is_never_cleared).hangs(),
        device("locks_in_opposite_order", locks_in_opposite_order).hangs(),
        device("locks_in_equal_order", locks_in_equal_order),
        host("sender_behind_the_waiter_in_a_stream", sender_behind_the_waiter_in_a_stream).hangs().pes(1),
        host("sender_in_another_stream", sender_in_another_stream).pes(1),
        host("hosts_wait_before_they_send", hosts_wait_before_they_send).hangs(),
        host("hosts_send_before_they_wait", hosts_send_before_they_wait),
        device("test_loop_that_nobody_ends", test_loop_that_nobody_ends).hangs(),
        device("relaxed_loop_that_nobody_ends", relaxed_loop_that_nobody_ends).hangs(),
        device("fetch_loop_that_nobody_ends", fetch_loop_that_nobody_ends).hangs(),
        device("plain_loop_that_nobody_ends", plain_loop_that_nobody_ends).hangs(),
        device("test_loop_that_ends_late", test_loop_that_ends_late),
    ],
};

/// Waits for the other PE before it sends, on both PEs.
#[kernel]
fn both_wait_before_they_send(ctx: &Ctx, m: Memory) -> Result {
    ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?; // waits
    ctx.signal_op(m.flag.set(1), ctx.pe_after(1))
}

/// Sends before it waits for the other PE, on both PEs.
#[kernel]
fn both_send_before_they_wait(ctx: &Ctx, m: Memory) -> Result {
    ctx.signal_op(m.flag.set(1), ctx.pe_after(1))?;
    ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    Ok(())
}

/// Waits for the previous PE before it sends to the next one, on all PEs of a ring.
#[kernel]
fn cycle_of_three_pes(ctx: &Ctx, m: Memory) -> Result {
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?; // waits
    ctx.p(m.flag, 1, ctx.pe_after(1))
}

/// Passes a flag around a ring, starting with PE 0.
#[kernel]
fn ring_of_three_pes(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.p(m.flag, 1, 1)?;
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    if ctx.my_pe() != 0 { ctx.p(m.flag, 1, ctx.pe_after(1)) } else { Ok(()) }
}

/// Waits for a signal that the other PE does not send.
#[kernel]
fn signal_that_nobody_sends(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 1 {
        ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?; // waits
    }
    Ok(())
}

/// Waits for a word next to the one that the other PE sets.
#[kernel]
fn signal_to_another_word(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        return ctx.signal_op(m.words.at(0).set(1), 1);
    }
    ctx.signal_wait_until(Thread, m.words.at(1), Cmp::Eq, 1)?; // waits
    Ok(())
}

/// Waits for a word that the other PE sets in its own memory.
#[kernel]
fn signal_to_another_pe(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        return ctx.signal_op(m.flag.set(1), 0);
    }
    ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?; // waits
    Ok(())
}

/// Waits for three signals, although only two are sent.
#[kernel]
fn more_signals_than_are_sent(ctx: &Ctx, m: Memory) -> Result {
    ctx.signal_op(m.flag.add(1), 1)?;
    if ctx.my_pe() == 1 {
        ctx.signal_wait_until(Thread, m.flag, Cmp::Ge, 3)?; // waits
    }
    Ok(())
}

/// Waits for as many signals as are sent.
#[kernel]
fn as_many_signals_as_are_sent(ctx: &Ctx, m: Memory) -> Result {
    ctx.signal_op(m.flag.add(1), 1)?;
    if ctx.my_pe() == 1 {
        ctx.signal_wait_until(Thread, m.flag, Cmp::Ge, 2)?;
    }
    Ok(())
}

/// Waits for a value that the other PE has overwritten before the wait.
#[kernel]
fn value_that_was_overwritten(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.signal_op(m.flag.set(1), 1)?;
        ctx.fence()?;
        ctx.signal_op(m.flag.set(2), 1)?;
        ctx.fence()?;
        return ctx.signal_op(m.answer.set(1), 1);
    }
    ctx.signal_wait_until(Thread, m.answer, Cmp::Eq, 1)?;
    ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?; // waits
    Ok(())
}

/// Waits for a value before asking the other PE for the next one.
#[kernel]
fn value_that_was_awaited_in_time(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.signal_op(m.flag.set(1), 1)?;
        ctx.signal_wait_until(Thread, m.answer, Cmp::Eq, 1)?;
        return ctx.signal_op(m.flag.set(2), 1);
    }
    ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    ctx.signal_op(m.answer.set(1), 0)?;
    ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 2)?;
    Ok(())
}

/// Waits for two words, although the other PE sets only one of them.
#[kernel]
fn one_word_of_all_is_missing(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        return ctx.p(m.words.at(0), 1, 1);
    }
    ctx.wait_until_all(Thread, &WaitWords::new(m.words.slice(0..2), Cmp::Eq, 1)) // waits
}

/// Calls a barrier on PE 0 only.
#[kernel]
fn barrier_that_one_pe_skips(ctx: &Ctx, _m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.barrier_all(Thread)?; // waits
    }
    Ok(())
}

/// Calls a broadcast on PE 1 only.
#[kernel]
fn broadcast_that_one_pe_skips(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 1 {
        ctx.broadcast(Thread, Team::WORLD, m.inbox, m.outbox, 0)?; // waits
    }
    Ok(())
}

/// Waits at a split barrier where the other PE does not arrive.
#[kernel]
fn split_barrier_without_arrival(ctx: &Ctx, _m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.sync_arrive(Thread, Team::WORLD)?;
        ctx.sync_wait(Thread, Team::WORLD)?; // waits
    }
    Ok(())
}

/// Calls the barriers of two teams in opposite order.
fn barriers_in_opposite_order(pe: &Pe, _: Memory) -> rushmem::Result<()> {
    let a = pe.team_from_pes(&[0, 1], TeamConfig::new())?;
    let b = pe.team_from_pes(&[0, 1], TeamConfig::new())?;
    pe.run(ONE, if pe.my_pe() == 0 { two_barriers(a, b) } else { two_barriers(b, a) })
}

#[kernel]
fn two_barriers(ctx: &Ctx, first: Team, second: Team) -> Result {
    ctx.barrier(Thread, first)?; // waits
    ctx.barrier(Thread, second)
}

/// Calls the barriers of two teams in the same order.
fn barriers_in_equal_order(pe: &Pe, _: Memory) -> rushmem::Result<()> {
    let a = pe.team_from_pes(&[0, 1], TeamConfig::new())?;
    let b = pe.team_from_pes(&[0, 1], TeamConfig::new())?;
    pe.run(ONE, barriers_in_turn(a, b))
}

#[kernel]
fn barriers_in_turn(ctx: &Ctx, first: Team, second: Team) -> Result {
    ctx.barrier(Thread, first)?;
    ctx.barrier(Thread, second)
}

/// Calls the barrier of the grid in one block only.
#[kernel]
fn grid_barrier_that_one_block_skips(ctx: &Ctx, _m: Memory) -> Result {
    if Block::current().id() == 0 {
        ctx.sync_grid(Block::current())?; // waits
    }
    Ok(())
}

/// Waits in one thread for a word that the other thread puts after a barrier of both.
#[kernel]
fn wait_before_the_barrier_of_the_sender(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    if block.leader() {
        ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?; // waits
    }
    block.sync(); // waits
    if block.leader() { Ok(()) } else { ctx.p(m.flag, 1, ctx.my_pe()) }
}

/// Waits in one thread, after a barrier of both, for a word that the other thread then puts.
#[kernel]
fn wait_after_the_barrier_of_the_sender(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    block.sync();
    if block.leader() { ctx.wait_until(Thread, m.flag, Cmp::Eq, 1) } else { ctx.p(m.flag, 1, ctx.my_pe()) }
}

/// Acquires a lock on both PEs and never releases it.
#[kernel]
fn lock_that_is_never_cleared(ctx: &Ctx, m: Memory) -> Result {
    ctx.set_lock(m.lock) // waits
}

/// Acquires two locks in opposite order. Each PE holds its first lock when it requests the second.
#[kernel]
fn locks_in_opposite_order(ctx: &Ctx, m: Memory) -> Result {
    let mut locks = [m.lock, m.words.cast::<Lock>().at(0)];
    if ctx.my_pe() == 1 {
        locks.reverse();
    }
    ctx.set_lock(locks[0])?;
    ctx.sync_all(Thread)?;
    ctx.set_lock(locks[1])?; // waits
    ctx.clear_lock(locks[1])?;
    ctx.clear_lock(locks[0])
}

/// Acquires two locks in the same order.
#[kernel]
fn locks_in_equal_order(ctx: &Ctx, m: Memory) -> Result {
    let locks = [m.lock, m.words.cast::<Lock>().at(0)];
    ctx.set_lock(locks[0])?;
    ctx.set_lock(locks[1])?;
    ctx.clear_lock(locks[1])?;
    ctx.clear_lock(locks[0])
}

/// Waits in a kernel for the signal of a later kernel in the same stream.
fn sender_behind_the_waiter_in_a_stream(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let stream = pe.stream()?;
    stream.launch(ONE, wait_for_later_kernel(m))?;
    stream.launch(ONE, send_flag(m))?;
    stream.wait() // waits
}

#[kernel]
fn wait_for_later_kernel(ctx: &Ctx, m: Memory) -> Result {
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1) // waits
}

#[kernel]
fn send_flag(ctx: &Ctx, m: Memory) -> Result {
    ctx.p(m.flag, 1, ctx.my_pe())
}

/// Waits in a kernel for the signal of a kernel in another stream.
fn sender_in_another_stream(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let (a, b) = (pe.stream()?, pe.stream()?);
    a.launch(ONE, wait_for_other_kernel(m))?;
    b.launch(ONE, send_flag(m))?;
    a.wait()?;
    b.wait()
}

#[kernel]
fn wait_for_other_kernel(ctx: &Ctx, m: Memory) -> Result {
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)
}

/// Waits on the hosts of both PEs before they send.
fn hosts_wait_before_they_send(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.signal_wait_until(m.flag, Cmp::Eq, 1)?; // waits
    pe.signal_op(m.flag.set(1), 1 - pe.my_pe())
}

/// Sends from the hosts of both PEs before they wait.
fn hosts_send_before_they_wait(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.signal_op(m.flag.set(1), 1 - pe.my_pe())?;
    pe.signal_wait_until(m.flag, Cmp::Eq, 1)?;
    Ok(())
}

/// Tests a word in a loop, although nobody sets it.
#[kernel]
fn test_loop_that_nobody_ends(ctx: &Ctx, m: Memory) -> Result {
    loop {
        let is_set = ctx.test(m.flag, Cmp::Eq, 1)?; // waits
        if is_set {
            return Ok(());
        }
    }
}

/// Loads a word in a relaxed loop, although nobody sets it.
#[kernel]
fn relaxed_loop_that_nobody_ends(ctx: &Ctx, m: Memory) {
    loop {
        let found = ctx.local_one(m.flag).load_relaxed(0); // waits
        if found == 1 {
            return;
        }
    }
}

/// Fetches a word of the other PE in a loop, although nobody sets it.
#[kernel]
fn fetch_loop_that_nobody_ends(ctx: &Ctx, m: Memory) -> Result {
    loop {
        let found = ctx.atomic_fetch(m.flag, ctx.pe_after(1))?; // waits
        if found == 1 {
            return Ok(());
        }
    }
}

/// Loads a word in a loop, although nobody stores to it.
#[kernel]
fn plain_loop_that_nobody_ends(ctx: &Ctx, m: Memory) {
    loop {
        let found = ctx.local_one(m.flag).load(0); // waits
        if found == 1 {
            return;
        }
    }
}

/// Tests a word in a loop, until the other PE sets it after some work.
#[kernel]
fn test_loop_that_ends_late(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        for i in 0..100_000 {
            ctx.local(m.words).store(0, i);
        }
        return ctx.signal_op(m.flag.set(1), 1);
    }
    while !ctx.test(m.flag, Cmp::Eq, 1)? {
        rushmem_device::arch::spin();
    }
    Ok(())
}
