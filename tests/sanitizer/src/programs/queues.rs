//! Programs about queues, counters and locks that an application builds from atomics, which neither release nor
//! acquire.

use rushmem_device::arch;
use rushmem_device::prelude::*;

use crate::program::{Memory, Topic, device};

pub(crate) const TOPIC: Topic = Topic {
    name: "queues",
    title: "Queues, counters and locks of an application",
    file: file!(),
    text: include_str!("queues.rs"),
    programs: &[
        device("row_published_by_an_atomic_or", row_published_by_an_atomic_or).races().pes(3),
        device("row_published_by_an_atomic_or_after_fence", row_published_by_an_atomic_or_after_fence).pes(3),
        device("last_block_sums_without_acquire", last_block_sums_without_acquire).races().pes(1).grid(3, 1),
        device("last_block_sums_after_acquire", last_block_sums_after_acquire).pes(1).grid(3, 1),
        device("slot_read_once_its_ticket_is_drawn", slot_read_once_its_ticket_is_drawn).races().pes(3),
        device("slot_read_once_it_is_full", slot_read_once_it_is_full).pes(3),
        device("owner_checks_a_stolen_head_plainly", owner_checks_a_stolen_head_plainly).races(),
        device("owner_checks_a_stolen_head_by_an_atomic", owner_checks_a_stolen_head_by_an_atomic),
        device("lock_taken_without_acquire", lock_taken_without_acquire).races(),
        device("lock_taken_with_acquire", lock_taken_with_acquire),
        device("lock_released_after_fence_only", lock_released_after_fence_only).races().pes(3),
        device("lock_released_after_quiet", lock_released_after_quiet).pes(3),
        device("counter_reset_before_all_have_waited", counter_reset_before_all_have_waited)
            .hangs()
            .grid(2, 1),
        device("counter_reset_after_all_have_waited", counter_reset_after_all_have_waited).grid(2, 1),
        device("answer_sent_after_the_last_poll", answer_sent_after_the_last_poll).hangs(),
        device("answer_sent_before_the_polls", answer_sent_before_the_polls),
    ],
};

/// Stores a row, sets the bit of this PE in a directory without a fence, and lets PE 0 get the rows whose bits are set.
#[kernel]
fn row_published_by_an_atomic_or(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() > 0 {
        ctx.local(m.outbox).store(0, 7); // first
        return ctx.atomic_or(m.words.at(0), 1 << ctx.my_pe(), 0);
    }
    ctx.wait_until(Thread, m.words.at(0), Cmp::Eq, 0b110)?;
    for pe in 1..3 {
        let _ = ctx.g(m.outbox.at(0), pe)?; // second
    }
    Ok(())
}

/// Stores a row, sets the bit of this PE in a directory after a fence, and lets PE 0 get the rows whose bits are set.
#[kernel]
fn row_published_by_an_atomic_or_after_fence(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() > 0 {
        ctx.local(m.outbox).store(0, 7);
        ctx.fence()?;
        return ctx.atomic_or(m.words.at(0), 1 << ctx.my_pe(), 0);
    }
    ctx.wait_until(Thread, m.words.at(0), Cmp::Eq, 0b110)?;
    for pe in 1..3 {
        assert_eq!(ctx.g(m.outbox.at(0), pe)?, 7);
    }
    Ok(())
}

/// Sums the results of all blocks in the block that arrives last, without an acquire fence after its atomic.
#[kernel]
fn last_block_sums_without_acquire(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    ctx.local(m.inbox).store(block.id() as usize, 7); // first
    ctx.fence_release(FenceScope::Gpu);
    if ctx.atomic_fetch_inc(m.flag, ctx.my_pe())? == 2 {
        let mut sum = 0_u64;
        for i in 0..3 {
            sum = sum.wrapping_add(ctx.local(m.inbox).load(i)); // second
        }
        ctx.local(m.words).store(0, sum);
    }
    Ok(())
}

/// Sums the results of all blocks in the block that arrives last, after an acquire fence.
#[kernel]
fn last_block_sums_after_acquire(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    ctx.local(m.inbox).store(block.id() as usize, 7);
    ctx.fence_release(FenceScope::Gpu);
    if ctx.atomic_fetch_inc(m.flag, ctx.my_pe())? == 2 {
        ctx.fence_acquire(FenceScope::Gpu);
        let mut sum = 0;
        for i in 0..3 {
            sum += ctx.local(m.inbox).load(i);
        }
        assert_eq!(sum, 21);
    }
    Ok(())
}

/// Reads the slots of a queue once their tickets have been drawn, although the producers fill them only afterwards.
#[kernel]
fn slot_read_once_its_ticket_is_drawn(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() > 0 {
        let ticket = ctx.atomic_fetch_inc(m.flag, 0)? as usize;
        let (slot, item) = (m.inbox.slice(ticket..ticket + 1), m.outbox.slice(0..1));
        return ctx.put_signal(Thread, slot, item, m.words.at(ticket).set(1), 0); // first
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 2)?;
    for slot in 0..2 {
        let _ = ctx.local(m.inbox).load(slot); // second
    }
    Ok(())
}

/// Reads each slot of a queue once the signal of its producer says that it is full.
#[kernel]
fn slot_read_once_it_is_full(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() > 0 {
        let ticket = ctx.atomic_fetch_inc(m.flag, 0)? as usize;
        let (slot, item) = (m.inbox.slice(ticket..ticket + 1), m.outbox.slice(0..1));
        return ctx.put_signal(Thread, slot, item, m.words.at(ticket).set(1), 0);
    }
    let mut sum = 0;
    for slot in 0..2 {
        ctx.signal_wait_until(Thread, m.words.at(slot), Cmp::Eq, 1)?;
        sum += ctx.local(m.inbox).load(slot);
    }
    assert_eq!(sum, 50);
    Ok(())
}

/// Loads the head of its task queue by a plain load to check for emptiness, while a thief advances the head by an
/// atomic.
#[kernel]
fn owner_checks_a_stolen_head_plainly(ctx: &Ctx, m: Memory) -> Result {
    loop {
        let is_empty = ctx.my_pe() == 0 && ctx.local_one(m.flag).load(0) >= 8; // second
        if is_empty {
            return Ok(());
        }
        let task = ctx.atomic_fetch_inc(m.flag, 0)?; // first
        if task >= 8 {
            return Ok(());
        }
        ctx.atomic_add(m.answer, 1 << task, 0)?;
    }
}

/// Fetches the head of its task queue by an atomic to check for emptiness, while a thief advances the head by an
/// atomic.
#[kernel]
fn owner_checks_a_stolen_head_by_an_atomic(ctx: &Ctx, m: Memory) -> Result {
    loop {
        let is_empty = ctx.my_pe() == 0 && ctx.atomic_fetch(m.flag, 0)? >= 8;
        if is_empty {
            break;
        }
        let task = ctx.atomic_fetch_inc(m.flag, 0)?;
        if task >= 8 {
            break;
        }
        ctx.atomic_add(m.answer, 1 << task, 0)?;
    }
    ctx.barrier_all(Thread)?;
    assert_eq!(ctx.g(m.answer, 0)?, 0xff);
    Ok(())
}

/// Puts in PE 1 and loads in PE 0 under a lock that is taken by compare-and-swap, without a fence after the swap.
#[kernel]
fn lock_taken_without_acquire(ctx: &Ctx, m: Memory) -> Result {
    while ctx.atomic_compare_swap(m.flag, 0, 1, 0)? != 0 {
        arch::spin();
    }
    if ctx.my_pe() == 1 {
        ctx.put(Thread, m.inbox, m.outbox, 0)?; // first
    } else {
        let _ = ctx.local(m.inbox).load(0); // second
    }
    ctx.fence()?;
    ctx.atomic_set(m.flag, 0, 0)
}

/// Puts in PE 1 and loads in PE 0 under a lock that is taken by compare-and-swap, with a fence after the swap.
#[kernel]
fn lock_taken_with_acquire(ctx: &Ctx, m: Memory) -> Result {
    while ctx.atomic_compare_swap(m.flag, 0, 1, 0)? != 0 {
        arch::spin();
    }
    ctx.fence()?;
    if ctx.my_pe() == 1 {
        ctx.put(Thread, m.inbox, m.outbox, 0)?;
    } else {
        let inbox = ctx.local(m.inbox);
        assert!([(0, 0), (20, 27)].contains(&(inbox.load(0), inbox.load(7))));
    }
    ctx.fence()?;
    ctx.atomic_set(m.flag, 0, 0)
}

/// Puts to PE 2 under a lock of PE 0, and releases the lock after a fence, which orders nothing between two PEs.
#[kernel]
fn lock_released_after_fence_only(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 2 {
        return Ok(());
    }
    while ctx.atomic_compare_swap(m.flag, 0, 1, 0)? != 0 {
        arch::spin();
    }
    ctx.fence()?;
    ctx.put(Thread, m.inbox, m.outbox, 2)?; // first and second
    ctx.fence()?;
    ctx.atomic_set(m.flag, 0, 0)?;
    ctx.quiet(Thread)
}

/// Puts to PE 2 under a lock of PE 0, and completes the put before it releases the lock.
#[kernel]
fn lock_released_after_quiet(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() < 2 {
        while ctx.atomic_compare_swap(m.flag, 0, 1, 0)? != 0 {
            arch::spin();
        }
        ctx.fence()?;
        ctx.put(Thread, m.inbox, m.outbox, 2)?;
        ctx.quiet(Thread)?;
        ctx.atomic_set(m.flag, 0, 0)?;
    }
    ctx.barrier_all(Thread)?;
    let inbox = ctx.local(m.inbox);
    assert!(ctx.my_pe() < 2 || [(10, 17), (20, 27)].contains(&(inbox.load(0), inbox.load(7))));
    Ok(())
}

/// Resets a counter in one block before the other block has waited for it.
#[kernel]
fn counter_reset_before_all_have_waited(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    if ctx.my_pe() == 0 {
        return if block.id() == 0 { ctx.signal_op(m.flag.add(1), 1) } else { Ok(()) };
    }
    if block.id() == 0 {
        ctx.signal_wait_until(block, m.flag, Cmp::Ge, 1)?;
        ctx.signal_reset(m.flag)?;
    }
    ctx.sync_grid(block)?;
    if block.id() == 1 {
        ctx.signal_wait_until(block, m.flag, Cmp::Ge, 1)?; // waits
    }
    Ok(())
}

/// Resets a counter in one block after both blocks have waited for it.
#[kernel]
fn counter_reset_after_all_have_waited(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    if ctx.my_pe() == 0 {
        return if block.id() == 0 { ctx.signal_op(m.flag.add(1), 1) } else { Ok(()) };
    }
    ctx.signal_wait_until(block, m.flag, Cmp::Ge, 1)?;
    ctx.sync_grid(block)?;
    if block.id() == 0 {
        assert_eq!(ctx.signal_reset(m.flag)?, 1);
    }
    Ok(())
}

/// Polls with short waits until the sender is done, although the sender waits for an answer that follows the loop.
#[kernel]
fn answer_sent_after_the_last_poll(ctx: &Ctx, m: Memory) -> Result {
    let done = m.words.at(0);
    if ctx.my_pe() == 0 {
        ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(1), 1)?;
        ctx.signal_wait_until(Thread, m.answer, Cmp::Eq, 1)?; // waits
        return ctx.signal_op(done.set(1), 1);
    }
    ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    loop {
        let found = ctx.wait_until_for(Thread, done, Cmp::Eq, 1, 1_000)?; // waits
        if found.is_some() {
            return ctx.signal_op(m.answer.set(1), 0);
        }
    }
}

/// Answers the sender, and then polls with short waits until the sender is done.
#[kernel]
fn answer_sent_before_the_polls(ctx: &Ctx, m: Memory) -> Result {
    let done = m.words.at(0);
    if ctx.my_pe() == 0 {
        ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(1), 1)?;
        ctx.signal_wait_until(Thread, m.answer, Cmp::Eq, 1)?;
        return ctx.signal_op(done.set(1), 1);
    }
    ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    assert_eq!(ctx.local(m.inbox).load(0), 10);
    ctx.signal_op(m.answer.set(1), 0)?;
    loop {
        let found = ctx.wait_until_for(Thread, done, Cmp::Eq, 1, 1_000)?;
        if found.is_some() {
            return Ok(());
        }
    }
}
