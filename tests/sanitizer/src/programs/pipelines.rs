//! Programs about pipelines: buffers that senders and receivers reuse from round to round.

use rushmem_device::prelude::*;

use crate::program::{Memory, Topic, device};

pub(crate) const TOPIC: Topic = Topic {
    name: "pipelines",
    title: "Pipelines",
    file: file!(),
    text: include_str!("pipelines.rs"),
    programs: &[
        device("double_buffer_with_wrong_parity", double_buffer_with_wrong_parity).races(),
        device("double_buffer_with_right_parity", double_buffer_with_right_parity),
        device("credit_returned_before_the_read", credit_returned_before_the_read).races(),
        device("credit_returned_after_the_read", credit_returned_after_the_read),
        device("halo_without_back_pressure", halo_without_back_pressure).races(),
        device("halo_in_two_buffers", halo_in_two_buffers),
        device("ring_sum_without_its_last_wait", ring_sum_without_its_last_wait).races().pes(3),
        device("ring_sum_with_all_waits", ring_sum_with_all_waits).pes(3),
        device("row_got_while_its_owner_swaps", row_got_while_its_owner_swaps).races(),
        device("row_got_before_its_owner_swaps_back", row_got_before_its_owner_swaps_back),
        device("signal_word_shared_by_two_producers", signal_word_shared_by_two_producers).races().pes(3),
        device("signal_word_used_by_producers_in_turn", signal_word_used_by_producers_in_turn).pes(3),
    ],
};

/// Reads, in each round, the same half of a double buffer that the neighbour is filling.
#[kernel]
fn double_buffer_with_wrong_parity(ctx: &Ctx, m: Memory) -> Result {
    for round in 0..3 {
        ctx.p(m.inbox.at(round % 2), round as u64 + 1, ctx.pe_after(1))?; // first
        let _ = ctx.local(m.inbox).load(round % 2); // second
        ctx.barrier_all(Thread)?;
    }
    Ok(())
}

/// Reads the half of a double buffer that was filled in the previous round, while the neighbour fills the other half.
#[kernel]
fn double_buffer_with_right_parity(ctx: &Ctx, m: Memory) -> Result {
    for round in 0..3 {
        ctx.p(m.inbox.at(round % 2), round as u64 + 1, ctx.pe_after(1))?;
        assert_eq!(ctx.local(m.inbox).load((round + 1) % 2), round as u64);
        ctx.barrier_all(Thread)?;
    }
    Ok(())
}

/// Returns the credit for a slot as soon as its item has arrived, and only then reads the item.
#[kernel]
fn credit_returned_before_the_read(ctx: &Ctx, m: Memory) -> Result {
    let slot = m.inbox.slice(0..1);
    for item in 0..3 {
        let n = item as u64;
        if ctx.my_pe() == 0 {
            ctx.signal_wait_until(Thread, m.answer, Cmp::Eq, n)?;
            let from = m.outbox.slice(item..item + 1);
            ctx.put_signal(Thread, slot, from, m.flag.set(n + 1), 1)?; // first
        } else {
            ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, n + 1)?;
            ctx.fence()?;
            ctx.signal_op(m.answer.set(n + 1), 0)?;
            let _ = ctx.local(slot).load(0); // second
        }
    }
    Ok(())
}

/// Returns the credit for a slot after it has read the item.
#[kernel]
fn credit_returned_after_the_read(ctx: &Ctx, m: Memory) -> Result {
    let slot = m.inbox.slice(0..1);
    for item in 0..3 {
        let n = item as u64;
        if ctx.my_pe() == 0 {
            ctx.signal_wait_until(Thread, m.answer, Cmp::Eq, n)?;
            let from = m.outbox.slice(item..item + 1);
            ctx.put_signal(Thread, slot, from, m.flag.set(n + 1), 1)?;
        } else {
            ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, n + 1)?;
            assert_eq!(ctx.local(slot).load(0), 10 + n);
            ctx.fence()?;
            ctx.signal_op(m.answer.set(n + 1), 0)?;
        }
    }
    Ok(())
}

/// Exchanges halos through a single buffer, with a signal for each round but no back-pressure on the sender.
#[kernel]
fn halo_without_back_pressure(ctx: &Ctx, m: Memory) -> Result {
    for round in 0..3 {
        let (halo, edge) = (m.inbox.slice(0..1), m.outbox.slice(round..round + 1));
        ctx.put_signal(Thread, halo, edge, m.words.at(round).set(1), ctx.pe_after(1))?; // first
        ctx.signal_wait_until(Thread, m.words.at(round), Cmp::Eq, 1)?;
        let _ = ctx.local(halo).load(0); // second
        // Orders this PE's own puts to the halo; the neighbour's load is not waited for.
        ctx.fence()?;
    }
    Ok(())
}

/// Exchanges halos through two buffers. The edge of one round confirms that the previous halo has been read.
#[kernel]
fn halo_in_two_buffers(ctx: &Ctx, m: Memory) -> Result {
    let other = ctx.pe_after(1);
    for round in 0..3 {
        let (halo, edge) = (m.inbox.slice(round % 2..round % 2 + 1), m.outbox.slice(round..round + 1));
        ctx.put_signal(Thread, halo, edge, m.words.at(round).set(1), other)?;
        ctx.signal_wait_until(Thread, m.words.at(round), Cmp::Eq, 1)?;
        assert_eq!(ctx.local(halo).load(0), 10 * (u64::from(other) + 1) + round as u64);
        // Orders this PE's own puts to the halos.
        ctx.fence()?;
    }
    Ok(())
}

/// Sums one word of each PE around a ring, and waits only for the words that it has to forward.
#[kernel]
fn ring_sum_without_its_last_wait(ctx: &Ctx, m: Memory) -> Result {
    let mut from = m.outbox.slice(0..1);
    for step in 0..2 {
        if step > 0 {
            ctx.signal_wait_until(Thread, m.words.at(step - 1), Cmp::Eq, 1)?;
        }
        let to = m.inbox.slice(step..step + 1);
        ctx.put_signal(Thread, to, from, m.words.at(step).set(1), ctx.pe_after(1))?; // first
        from = to;
    }
    let mut sum = ctx.local(m.outbox).load(0);
    for step in 0..2 {
        sum = sum.wrapping_add(ctx.local(m.inbox).load(step)); // second
    }
    ctx.local(m.words).store(7, sum);
    Ok(())
}

/// Sums one word of each PE around a ring, and waits for the word of each step.
#[kernel]
fn ring_sum_with_all_waits(ctx: &Ctx, m: Memory) -> Result {
    let mut from = m.outbox.slice(0..1);
    let mut sum = ctx.local(from).load(0);
    for step in 0..2 {
        let to = m.inbox.slice(step..step + 1);
        ctx.put_signal(Thread, to, from, m.words.at(step).set(1), ctx.pe_after(1))?;
        ctx.signal_wait_until(Thread, m.words.at(step), Cmp::Eq, 1)?;
        sum += ctx.local(to).load(0);
        from = to;
    }
    assert_eq!(sum, 60);
    Ok(())
}

/// Gets the row that a flag named as current, although the owner has since swapped rows and is refilling that one.
#[kernel]
fn row_got_while_its_owner_swaps(ctx: &Ctx, m: Memory) -> Result {
    let row = |i: usize| m.inbox.slice(4 * i..4 * i + 4);
    if ctx.my_pe() == 0 {
        ctx.local(row(0)).store(0, 5);
        ctx.sync_all(Thread)?;
        ctx.local(row(1)).store(0, 6);
        ctx.fence()?;
        ctx.atomic_set(m.flag, 1, 0)?;
        ctx.local(row(0)).store(0, 7); // second
    } else {
        let current = ctx.atomic_fetch(m.flag, 0)? as usize;
        ctx.sync_all(Thread)?;
        ctx.get(Thread, m.words.slice(0..4), row(current), 0)?; // first
    }
    Ok(())
}

/// Gets the row that a flag names as current, and then tells the owner that it may refill this row.
#[kernel]
fn row_got_before_its_owner_swaps_back(ctx: &Ctx, m: Memory) -> Result {
    let row = |i: usize| m.inbox.slice(4 * i..4 * i + 4);
    if ctx.my_pe() == 0 {
        ctx.local(row(0)).store(0, 5);
        ctx.sync_all(Thread)?;
        ctx.local(row(1)).store(0, 6);
        ctx.fence()?;
        ctx.atomic_set(m.flag, 1, 0)?;
        ctx.signal_wait_until(Thread, m.answer, Cmp::Eq, 1)?;
        ctx.local(row(0)).store(0, 7);
    } else {
        let current = ctx.atomic_fetch(m.flag, 0)? as usize;
        ctx.sync_all(Thread)?;
        ctx.get(Thread, m.words.slice(0..4), row(current), 0)?;
        assert_eq!(ctx.local(m.words).load(0), 5);
        ctx.fence()?;
        ctx.signal_op(m.answer.set(1), 0)?;
    }
    Ok(())
}

/// Reads the data of two producers, although both set the same signal to the same value and only one of them was seen.
#[kernel]
fn signal_word_shared_by_two_producers(ctx: &Ctx, m: Memory) -> Result {
    let i = ctx.my_pe() as usize;
    if i < 2 {
        let (to, from) = (m.inbox.slice(i..i + 1), m.outbox.slice(0..1));
        return ctx.put_signal(Thread, to, from, m.flag.set(1), 2); // first
    }
    ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    for producer in 0..2 {
        let _ = ctx.local(m.inbox).load(producer); // second
    }
    Ok(())
}

/// Receives from two producers through one signal, which the second may set only after the consumer has seen the first.
#[kernel]
fn signal_word_used_by_producers_in_turn(ctx: &Ctx, m: Memory) -> Result {
    let i = ctx.my_pe() as usize;
    if i < 2 {
        if i == 1 {
            ctx.signal_wait_until(Thread, m.answer, Cmp::Eq, 1)?;
        }
        let (to, from) = (m.inbox.slice(i..i + 1), m.outbox.slice(0..1));
        return ctx.put_signal(Thread, to, from, m.flag.set(i as u64 + 1), 2);
    }
    ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    assert_eq!(ctx.local(m.inbox).load(0), 10);
    ctx.fence()?;
    ctx.signal_op(m.answer.set(1), 1)?;
    ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 2)?;
    assert_eq!(ctx.local(m.inbox).load(1), 20);
    Ok(())
}
