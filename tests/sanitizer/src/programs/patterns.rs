//! Programs that show the communication patterns of complete applications, in a few lines each.

use rushmem::Pe;
use rushmem_device::prelude::*;

use crate::program::{Memory, ONE, Topic, device, host};

pub(crate) const TOPIC: Topic = Topic {
    name: "patterns",
    title: "Patterns of applications",
    file: file!(),
    text: include_str!("patterns.rs"),
    programs: &[
        device("ping_pong", ping_pong),
        device("edges_with_one_buffer", edges_with_one_buffer).races(),
        device("edges_with_two_buffers", edges_with_two_buffers),
        device("edges_with_two_barriers", edges_with_two_barriers),
        device("ring_buffer_with_credits", ring_buffer_with_credits),
        device("slots_by_ticket", slots_by_ticket).pes(3),
        device("slots_counted_without_fence", slots_counted_without_fence).races().pes(3),
        device("slots_of_their_own_counter", slots_of_their_own_counter).pes(3),
        device("all_to_all_by_puts_and_sync", all_to_all_by_puts_and_sync).races().pes(3),
        device("all_to_all_by_puts_and_barrier", all_to_all_by_puts_and_barrier).pes(3),
        device("elected_leader", elected_leader).pes(3),
        device("blocks_send_their_parts", blocks_send_their_parts).grid(2, 2),
        device("blocks_send_without_their_threads", blocks_send_without_their_threads).races().grid(1, 2),
        host("iterations_with_one_host_sync", iterations_with_one_host_sync).races(),
        host("iterations_with_two_host_syncs", iterations_with_two_host_syncs),
    ],
};

/// Sends data back and forth between two PEs, three times.
#[kernel]
fn ping_pong(ctx: &Ctx, m: Memory) -> Result {
    let (me, other) = (u64::from(ctx.my_pe()), ctx.pe_after(1));
    for turn in 0..6 {
        if turn % 2 == me {
            ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(turn + 1), other)?;
        } else {
            ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, turn + 1)?;
            assert_eq!(ctx.local(m.inbox).load(0), if me == 0 { 20 } else { 10 });
        }
    }
    Ok(())
}

/// Exchanges halo edges in rounds with one buffer and one barrier. The next edge may arrive before the last one is
/// read.
#[kernel]
fn edges_with_one_buffer(ctx: &Ctx, m: Memory) -> Result {
    for round in 0..3 {
        ctx.p(m.inbox.at(0), round, ctx.pe_after(1))?; // first
        ctx.barrier_all(Thread)?;
        let _ = ctx.local(m.inbox).load(0); // second
    }
    Ok(())
}

/// Exchanges halo edges in rounds that alternate between two buffers, for which one barrier per round suffices.
#[kernel]
fn edges_with_two_buffers(ctx: &Ctx, m: Memory) -> Result {
    for round in 0..4 {
        let at = round % 2;
        ctx.p(m.inbox.at(at), round as u64, ctx.pe_after(1))?;
        ctx.barrier_all(Thread)?;
        assert_eq!(ctx.local(m.inbox).load(at), round as u64);
    }
    Ok(())
}

/// Exchanges halo edges in rounds with one buffer, which a second barrier per round makes safe to reuse.
#[kernel]
fn edges_with_two_barriers(ctx: &Ctx, m: Memory) -> Result {
    for round in 0..3 {
        ctx.p(m.inbox.at(0), round, ctx.pe_after(1))?;
        ctx.barrier_all(Thread)?;
        assert_eq!(ctx.local(m.inbox).load(0), round);
        ctx.sync_all(Thread)?;
    }
    Ok(())
}

/// Sends six items through two slots. The receiver returns a credit for each item.
#[kernel]
fn ring_buffer_with_credits(ctx: &Ctx, m: Memory) -> Result {
    for item in 0..6 {
        let slot = m.inbox.slice(item % 2..item % 2 + 1);
        if ctx.my_pe() == 0 {
            ctx.signal_wait_until(Thread, m.answer, Cmp::Ge, (item as u64 + 1).saturating_sub(2))?;
            ctx.put_signal(Thread, slot, m.outbox.slice(item..item + 1), m.flag.add(1), 1)?;
        } else {
            ctx.signal_wait_until(Thread, m.flag, Cmp::Ge, item as u64 + 1)?;
            assert_eq!(ctx.local(slot).load(0), 10 + item as u64);
            ctx.fence()?;
            ctx.signal_op(m.answer.add(1), 0)?;
        }
    }
    Ok(())
}

/// Draws a slot on PE 0 by an atomic, puts data into it, fences, and increments the count of filled slots.
#[kernel]
fn slots_by_ticket(ctx: &Ctx, m: Memory) -> Result {
    let ticket = ctx.atomic_fetch_inc(m.words.at(0), 0)? as usize;
    ctx.p(m.inbox.at(ticket), 7, 0)?;
    ctx.fence()?;
    ctx.atomic_inc(m.words.at(1), 0)?;
    if ctx.my_pe() == 0 {
        ctx.wait_until(Thread, m.words.at(1), Cmp::Eq, 3)?;
        for slot in 0..3 {
            assert_eq!(ctx.local(m.inbox).load(slot), 7);
        }
    }
    Ok(())
}

/// Draws a slot on PE 0 by an atomic, puts data into it, and increments the count of filled slots without a fence.
#[kernel]
fn slots_counted_without_fence(ctx: &Ctx, m: Memory) -> Result {
    let ticket = ctx.atomic_fetch_inc(m.words.at(0), 0)? as usize;
    ctx.p(m.inbox.at(ticket), 7, 0)?; // first
    ctx.atomic_inc(m.words.at(1), 0)?;
    if ctx.my_pe() == 0 {
        ctx.wait_until(Thread, m.words.at(1), Cmp::Eq, 3)?;
        for slot in 0..3 {
            let _ = ctx.local(m.inbox).load(slot); // second
        }
    }
    Ok(())
}

/// Puts data into one slot per sender, with one signal per slot. The receiver takes the slots as they arrive.
#[kernel]
fn slots_of_their_own_counter(ctx: &Ctx, m: Memory) -> Result {
    let me = ctx.my_pe() as usize;
    ctx.put_signal(Thread, m.inbox.slice(me..me + 1), m.outbox.slice(0..1), m.words.at(me).add(1), 0)?;
    if ctx.my_pe() != 0 {
        return Ok(());
    }
    for sender in [2, 0, 1] {
        ctx.signal_wait_until(Thread, m.words.at(sender), Cmp::Eq, 1)?;
        assert_eq!(ctx.local(m.inbox).load(sender), 10 * (sender as u64 + 1));
    }
    Ok(())
}

/// Puts a word to each PE, and loads all words after `sync_all`.
#[kernel]
fn all_to_all_by_puts_and_sync(ctx: &Ctx, m: Memory) -> Result {
    for pe in 0..ctx.n_pes() {
        ctx.p(m.inbox.at(ctx.my_pe() as usize), 7, pe)?; // first
    }
    ctx.sync_all(Thread)?;
    for pe in 0..ctx.n_pes() {
        let _ = ctx.local(m.inbox).load(pe as usize); // second
    }
    Ok(())
}

/// Puts a word to each PE, and loads all words after a barrier.
#[kernel]
fn all_to_all_by_puts_and_barrier(ctx: &Ctx, m: Memory) -> Result {
    for pe in 0..ctx.n_pes() {
        ctx.p(m.inbox.at(ctx.my_pe() as usize), 7, pe)?;
    }
    ctx.barrier_all(Thread)?;
    for pe in 0..ctx.n_pes() {
        assert_eq!(ctx.local(m.inbox).load(pe as usize), 7);
    }
    Ok(())
}

/// Elects one PE by compare-and-swap. Only this PE writes to PE 0.
#[kernel]
fn elected_leader(ctx: &Ctx, m: Memory) -> Result {
    let me = u64::from(ctx.my_pe()) + 1;
    if ctx.atomic_compare_swap(m.words.at(0), 0, me, 0)? == 0 {
        ctx.p(m.inbox.at(0), me, 0)?;
    }
    ctx.barrier_all(Thread)?;
    assert_eq!(ctx.g(m.inbox.at(0), 0)?, ctx.g(m.words.at(0), 0)?);
    Ok(())
}

/// Writes and sends one half of an array in each block, with a signal that counts blocks.
#[kernel]
fn blocks_send_their_parts(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    let part = block.share(m.outbox.len());
    let (to, from) = (m.inbox.slice(part.clone()), m.outbox.slice(part));
    ctx.local(from).store(block.rank() as usize, 7);
    ctx.put_signal(block, to, from, m.flag.add(1), ctx.pe_after(1))?;
    ctx.signal_wait_until(block, m.flag, Cmp::Eq, 2)?;
    assert_eq!(ctx.local(m.inbox).load(0), 7);
    assert_eq!(ctx.local(m.inbox).load(5), 7);
    Ok(())
}

/// Writes a source in both threads of a block, and puts it in the leader alone without a barrier.
#[kernel]
fn blocks_send_without_their_threads(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    ctx.local(m.outbox).store(block.rank() as usize, 7); // first
    if block.leader() {
        ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(1), ctx.pe_after(1))?; // second
    }
    Ok(())
}

/// Runs two kernels in each iteration, with one synchronisation of the hosts between them.
fn iterations_with_one_host_sync(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    for round in 0..2 {
        pe.run(ONE, send_round(m, round))?;
        pe.host_sync()?;
        pe.run(ONE, use_round(m))?;
    }
    Ok(())
}

#[kernel]
fn send_round(ctx: &Ctx, m: Memory, round: u64) -> Result {
    ctx.p(m.inbox.at(0), round, ctx.pe_after(1))?; // first
    ctx.quiet(Thread)
}

#[kernel]
fn use_round(ctx: &Ctx, m: Memory) {
    let _ = ctx.local(m.inbox).load(0); // second
}

/// Runs two kernels in each iteration, with a synchronisation of the hosts after each of them.
fn iterations_with_two_host_syncs(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    for round in 0..2 {
        pe.run(ONE, send_round_and_quiet(m, round))?;
        pe.host_sync()?;
        pe.run(ONE, expect_round(m, round))?;
        pe.host_sync()?;
    }
    Ok(())
}

#[kernel]
fn send_round_and_quiet(ctx: &Ctx, m: Memory, round: u64) -> Result {
    ctx.p(m.inbox.at(0), round, ctx.pe_after(1))?;
    ctx.quiet(Thread)
}

#[kernel]
fn expect_round(ctx: &Ctx, m: Memory, round: u64) {
    assert_eq!(ctx.local(m.inbox).load(0), round);
}
