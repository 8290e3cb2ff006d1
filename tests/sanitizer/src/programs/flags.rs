//! Programs in which a PE puts data and then a flag. Deliveries to one PE are unordered unless there is a fence between
//! them.

use rushmem_device::prelude::*;

use crate::program::{Memory, Topic, device};

pub(crate) const TOPIC: Topic = Topic {
    name: "flags",
    title: "A flag behind a put",
    file: file!(),
    text: include_str!("flags.rs"),
    programs: &[
        device("flag_without_fence", flag_without_fence).races(),
        device("flag_behind_fence", flag_behind_fence),
        device("flag_behind_fence_of_its_pe", flag_behind_fence_of_its_pe),
        device("flag_behind_fence_of_another_pe", flag_behind_fence_of_another_pe).races().pes(3),
        device("flag_behind_quiet", flag_behind_quiet),
        device("flag_behind_flush", flag_behind_flush).races(),
        device("flag_in_a_batch_without_fence", flag_in_a_batch_without_fence).races(),
        device("flag_in_a_batch_behind_fence", flag_in_a_batch_behind_fence),
        device("fence_before_the_put", fence_before_the_put).races(),
        device("signal_without_fence", signal_without_fence).races(),
        device("signal_behind_fence", signal_behind_fence),
        device("strong_signal_after_puts", strong_signal_after_puts),
        device("strong_signal_after_puts_of_a_block", strong_signal_after_puts_of_a_block).grid(1, 2),
        device("atomic_flag_without_fence", atomic_flag_without_fence).races(),
        device("atomic_flag_behind_fence", atomic_flag_behind_fence),
        device("put_signal_announces_its_own_data", put_signal_announces_its_own_data).races(),
        device("put_signal_behind_fence", put_signal_behind_fence),
        device("strong_put_signal_after_puts", strong_put_signal_after_puts),
        device("last_word_as_flag", last_word_as_flag).races(),
        device("each_word_as_its_flag", each_word_as_its_flag),
        device("fence_orders_one_pe_only", fence_orders_one_pe_only).races().pes(3),
        device("word_passed_on_without_fence", word_passed_on_without_fence).races().pes(3),
        device("quiet_orders_all_pes", quiet_orders_all_pes).pes(3),
        device("data_passed_on", data_passed_on).pes(3),
        device("store_to_peer_without_fence", store_to_peer_without_fence).races(),
        device("store_to_peer_behind_fence", store_to_peer_behind_fence),
        device("store_to_peer_then_put_signal", store_to_peer_then_put_signal),
        device("store_to_peer_and_fence_of_another_thread", store_to_peer_and_fence_of_another_thread)
            .races()
            .grid(1, 2),
        device("stores_to_peer_and_fence_of_the_group", stores_to_peer_and_fence_of_the_group).grid(1, 2),
        device("fence_for_another_thread", fence_for_another_thread).races().grid(1, 2),
        device("fence_for_another_thread_behind_sync", fence_for_another_thread_behind_sync).grid(1, 2),
        device("fence_of_a_group", fence_of_a_group).grid(1, 2),
    ],
};

/// Puts data and then a flag without a fence. The flag may arrive first.
#[kernel]
fn flag_without_fence(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?; // first
        ctx.p(m.flag, 1, 1)
    } else {
        ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        let _ = ctx.local(m.inbox).load(0); // second
        Ok(())
    }
}

/// Puts data, fences, and puts a flag.
#[kernel]
fn flag_behind_fence(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?;
        ctx.fence()?;
        ctx.p(m.flag, 1, 1)
    } else {
        ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        assert_eq!(ctx.local(m.inbox).load(0), 10);
        Ok(())
    }
}

/// Puts data, fences for the receiver only, and puts a flag.
#[kernel]
fn flag_behind_fence_of_its_pe(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?;
        ctx.fence_pe(1)?;
        ctx.p(m.flag, 1, 1)
    } else {
        ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        assert_eq!(ctx.local(m.inbox).load(0), 10);
        Ok(())
    }
}

/// Puts data and a flag to PE 1. The fence between them is for PE 2.
#[kernel]
fn flag_behind_fence_of_another_pe(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?; // first
        ctx.fence_pe(2)?;
        ctx.p(m.flag, 1, 1)?;
    }
    if ctx.my_pe() == 1 {
        ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        let _ = ctx.local(m.inbox).load(0); // second
    }
    Ok(())
}

/// Puts data, completes the put by `quiet`, and puts a flag.
#[kernel]
fn flag_behind_quiet(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_nbi(Thread, m.inbox, m.outbox, 1)?;
        ctx.quiet(Thread)?;
        ctx.p(m.flag, 1, 1)
    } else {
        ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        assert_eq!(ctx.local(m.inbox).load(0), 10);
        Ok(())
    }
}

/// Puts data, calls `flush`, and puts a flag. This frees the source but does not deliver the data.
#[kernel]
fn flag_behind_flush(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_nbi(Thread, m.inbox, m.outbox, 1)?; // first
        ctx.flush(Thread)?;
        ctx.p(m.flag, 1, 1)
    } else {
        ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        let _ = ctx.local(m.inbox).load(0); // second
        Ok(())
    }
}

/// Puts data and a flag in one batch. A batch orders nothing.
#[kernel]
fn flag_in_a_batch_without_fence(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        let batch = ctx.batch();
        batch.put_nbi(Thread, m.inbox, m.outbox, 1)?; // first
        batch.p(m.flag, 1, 1)?;
        batch.end();
        return ctx.quiet(Thread);
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    let _ = ctx.local(m.inbox).load(0); // second
    Ok(())
}

/// Puts data and a flag in one batch, with a fence of the batch in between.
#[kernel]
fn flag_in_a_batch_behind_fence(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        let batch = ctx.batch();
        batch.put_nbi(Thread, m.inbox, m.outbox, 1)?;
        batch.fence()?;
        batch.p(m.flag, 1, 1)?;
        batch.end();
        return ctx.quiet(Thread);
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    assert_eq!(ctx.local(m.inbox).load(0), 10);
    Ok(())
}

/// Fences before putting data rather than between the data and the flag.
#[kernel]
fn fence_before_the_put(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.fence()?;
        ctx.put(Thread, m.inbox, m.outbox, 1)?; // first
        ctx.p(m.flag, 1, 1)
    } else {
        ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        let _ = ctx.local(m.inbox).load(0); // second
        Ok(())
    }
}

/// Puts data, then sends a signal, which is not ordered after the put.
#[kernel]
fn signal_without_fence(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?; // first
        ctx.signal_op(m.flag.set(1), 1)
    } else {
        ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        let _ = ctx.local(m.inbox).load(0); // second
        Ok(())
    }
}

/// Puts data, fences, and sends a signal.
#[kernel]
fn signal_behind_fence(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?;
        ctx.fence()?;
        ctx.signal_op(m.flag.set(1), 1)
    } else {
        ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        assert_eq!(ctx.local(m.inbox).load(0), 10);
        Ok(())
    }
}

/// Puts data and sends a strong signal, which is ordered after all earlier puts to the same PE.
#[kernel]
fn strong_signal_after_puts(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?;
        ctx.signal_strong(Thread, m.flag.set(1), 1)
    } else {
        ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        assert_eq!(ctx.local(m.inbox).load(0), 10);
        Ok(())
    }
}

/// Puts data in each thread of a block. The block's strong signal is ordered after all of these puts.
#[kernel]
fn strong_signal_after_puts_of_a_block(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    let i = block.rank() as usize;
    if ctx.my_pe() == 0 {
        ctx.p(m.inbox.at(i), 10, 1)?;
        return ctx.signal_strong(block, m.flag.set(1), 1);
    }
    ctx.signal_wait_until(block, m.flag, Cmp::Eq, 1)?;
    assert_eq!(ctx.local(m.inbox).load(1 - i), 10);
    Ok(())
}

/// Puts data, then increments a counter. The atomic may overtake the put.
#[kernel]
fn atomic_flag_without_fence(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?; // first
        ctx.atomic_add(m.flag, 1, 1)
    } else {
        ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        let _ = ctx.local(m.inbox).load(0); // second
        Ok(())
    }
}

/// Puts data, fences, and increments a counter.
#[kernel]
fn atomic_flag_behind_fence(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?;
        ctx.fence()?;
        ctx.atomic_add(m.flag, 1, 1)
    } else {
        ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        assert_eq!(ctx.local(m.inbox).load(0), 10);
        Ok(())
    }
}

/// Puts to two arrays, the second time with a signal, which does not announce the data of the first array.
#[kernel]
fn put_signal_announces_its_own_data(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.words, m.outbox, 1)?; // first
        ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(1), 1)
    } else {
        ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        assert_eq!(ctx.local(m.inbox).load(0), 10);
        let _ = ctx.local(m.words).load(0); // second
        Ok(())
    }
}

/// Puts to two arrays, with a fence before the put with signal.
#[kernel]
fn put_signal_behind_fence(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.words, m.outbox, 1)?;
        ctx.fence()?;
        ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(1), 1)
    } else {
        ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        assert_eq!(ctx.local(m.inbox).load(0), 10);
        assert_eq!(ctx.local(m.words).load(0), 10);
        Ok(())
    }
}

/// Puts to two arrays. The strong signal of the second put covers both.
#[kernel]
fn strong_put_signal_after_puts(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.words, m.outbox, 1)?;
        ctx.put_signal_strong(Thread, m.inbox, m.outbox, m.flag.set(1), 1)?;
        ctx.quiet(Thread)
    } else {
        ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        assert_eq!(ctx.local(m.inbox).load(0), 10);
        assert_eq!(ctx.local(m.words).load(0), 10);
        Ok(())
    }
}

/// Waits for the last word of a put. The words of a put arrive in any order.
#[kernel]
fn last_word_as_flag(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1) // first
    } else {
        ctx.wait_until(Thread, m.inbox.at(7), Cmp::Eq, 17)?;
        let _ = ctx.local(m.inbox).load(0); // second
        Ok(())
    }
}

/// Waits for each word of a put before it reads this word.
#[kernel]
fn each_word_as_its_flag(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        return ctx.put(Thread, m.inbox, m.outbox, 1);
    }
    for i in 0..m.inbox.len() {
        ctx.wait_until(Thread, m.inbox.at(i), Cmp::Ne, 0)?;
        assert_eq!(ctx.local(m.inbox).load(i), 10 + i as u64);
    }
    Ok(())
}

/// Puts data to PE 2, fences, and tells PE 1, which tells PE 2. A fence does not order deliveries to different PEs.
#[kernel]
fn fence_orders_one_pe_only(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 2)?; // first
        ctx.fence()?;
        return ctx.p(m.flag, 1, 1);
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    if ctx.my_pe() == 1 {
        return ctx.p(m.flag, 1, 2);
    }
    let _ = ctx.local(m.inbox).load(0); // second
    Ok(())
}

/// Puts data to PE 2, calls `quiet`, and tells PE 1, which tells PE 2 without a fence.
#[kernel]
fn word_passed_on_without_fence(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 2)?; // first
        ctx.quiet(Thread)?;
        return ctx.p(m.flag, 1, 1);
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    if ctx.my_pe() == 1 {
        return ctx.p(m.flag, 1, 2);
    }
    let _ = ctx.local(m.inbox).load(0); // second
    Ok(())
}

/// Puts data to PE 2, calls `quiet`, and tells PE 1, which tells PE 2 after a fence.
#[kernel]
fn quiet_orders_all_pes(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 2)?;
        ctx.quiet(Thread)?;
        return ctx.p(m.flag, 1, 1);
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    if ctx.my_pe() == 1 {
        ctx.fence()?;
        return ctx.p(m.flag, 1, 2);
    }
    assert_eq!(ctx.local(m.inbox).load(0), 10);
    Ok(())
}

/// Puts data with a signal to PE 1, which passes it on to PE 2.
#[kernel]
fn data_passed_on(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        return ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(1), 1);
    }
    ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    if ctx.my_pe() == 1 {
        return ctx.put_signal(Thread, m.inbox, m.inbox, m.flag.set(1), 2);
    }
    assert_eq!(ctx.local(m.inbox).load(7), 17);
    Ok(())
}

/// Stores to the memory of a P2P peer, and then puts a flag.
#[kernel]
fn store_to_peer_without_fence(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        if let Some(there) = ctx.ptr(m.inbox, 1) {
            there.store(0, 10); // first
        }
        ctx.p(m.flag, 1, 1)
    } else {
        ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        let _ = ctx.local(m.inbox).load(0); // second
        Ok(())
    }
}

/// Stores to the memory of a P2P peer, fences, and puts a flag.
#[kernel]
fn store_to_peer_behind_fence(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        match ctx.ptr(m.inbox, 1) {
            Some(there) => there.store(0, 10),
            None => ctx.p(m.inbox.at(0), 10, 1)?,
        }
        ctx.fence()?;
        ctx.p(m.flag, 1, 1)
    } else {
        ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        assert_eq!(ctx.local(m.inbox).load(0), 10);
        Ok(())
    }
}

/// Stores to the memory of a P2P peer, and announces the stores by a put with signal, which covers earlier stores of
/// its threads.
#[kernel]
fn store_to_peer_then_put_signal(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        if let Some(there) = ctx.ptr(m.words, 1) {
            there.store(0, 10);
        }
        ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(1), 1)
    } else {
        ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        assert_eq!(ctx.local(m.inbox).load(0), 10);
        assert!(ctx.ptr(m.words, 0).is_none() || ctx.local(m.words).load(0) == 10);
        Ok(())
    }
}

/// Stores to a P2P peer in one thread. A fence covers only the stores of the thread that calls it.
#[kernel]
fn store_to_peer_and_fence_of_another_thread(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    if ctx.my_pe() == 0 {
        if let (1, Some(there)) = (block.rank(), ctx.ptr(m.inbox, 1)) {
            there.store(0, 10); // first
        }
        block.sync();
        if block.leader() {
            ctx.fence()?;
            ctx.p(m.flag, 1, 1)?;
        }
    } else if block.leader() {
        ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        let _ = ctx.local(m.inbox).load(0); // second
    }
    Ok(())
}

/// Stores to a P2P peer in each thread. The fence of the group covers all of them.
#[kernel]
fn stores_to_peer_and_fence_of_the_group(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    let i = block.rank() as usize;
    if ctx.my_pe() == 0 {
        match ctx.ptr(m.inbox, 1) {
            Some(there) => there.store(i, 10),
            None => ctx.p(m.inbox.at(i), 10, 1)?,
        }
        ctx.fence_group(block)?;
        return if block.leader() { ctx.p(m.flag, 1, 1) } else { Ok(()) };
    }
    ctx.wait_until(block, m.flag, Cmp::Eq, 1)?;
    assert_eq!(ctx.local(m.inbox).load(1 - i), 10);
    Ok(())
}

/// Puts in one thread. Another thread fences and puts the flag, but has not synchronised with the first.
#[kernel]
fn fence_for_another_thread(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        if Block::current().rank() == 1 {
            return ctx.put(Thread, m.inbox, m.outbox, 1); // first
        }
        ctx.fence()?;
        return ctx.p(m.flag, 1, 1);
    }
    if Block::current().leader() {
        ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        let _ = ctx.local(m.inbox).load(0); // second
    }
    Ok(())
}

/// Puts in one thread. Another thread fences and puts the flag after a barrier of the block.
#[kernel]
fn fence_for_another_thread_behind_sync(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    if ctx.my_pe() == 0 {
        if block.rank() == 1 {
            ctx.put(Thread, m.inbox, m.outbox, 1)?;
        }
        block.sync();
        if block.leader() {
            ctx.fence()?;
            ctx.p(m.flag, 1, 1)?;
        }
        return Ok(());
    }
    ctx.wait_until(block, m.flag, Cmp::Eq, 1)?;
    assert_eq!(ctx.local(m.inbox).load(0), 10);
    Ok(())
}

/// Puts one word in each thread. The fence of the group orders all of them before the flag.
#[kernel]
fn fence_of_a_group(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    let i = block.rank() as usize;
    if ctx.my_pe() == 0 {
        ctx.p(m.inbox.at(i), 10, 1)?;
        ctx.fence_group(block)?;
        return if block.leader() { ctx.p(m.flag, 1, 1) } else { Ok(()) };
    }
    ctx.wait_until(block, m.flag, Cmp::Eq, 1)?;
    assert_eq!(ctx.local(m.inbox).load(1 - i), 10);
    Ok(())
}
