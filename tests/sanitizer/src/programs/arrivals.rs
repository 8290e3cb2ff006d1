//! Programs about the destination of a put, which its owner may use once something has announced the data.

use rushmem_device::prelude::*;

use crate::program::{Memory, Topic, device};

pub(crate) const TOPIC: Topic = Topic {
    name: "arrivals",
    title: "The destination of a put",
    file: file!(),
    text: include_str!("arrivals.rs"),
    programs: &[
        device("data_loaded_before_signal", data_loaded_before_signal).races(),
        device("data_loaded_after_signal", data_loaded_after_signal),
        device("data_loaded_after_another_signal", data_loaded_after_another_signal).races(),
        device("other_word_loaded_beside_put", other_word_loaded_beside_put),
        device("data_loaded_before_barrier", data_loaded_before_barrier).races(),
        device("data_loaded_after_barrier", data_loaded_after_barrier),
        device("data_loaded_after_sync", data_loaded_after_sync).races(),
        device("data_loaded_after_quiet_and_sync", data_loaded_after_quiet_and_sync),
        device("data_loaded_before_split_barrier_ends", data_loaded_before_split_barrier_ends).races(),
        device("data_loaded_after_split_barrier", data_loaded_after_split_barrier),
        device("own_put_loaded_before_quiet", own_put_loaded_before_quiet).races(),
        device("own_put_loaded_after_quiet", own_put_loaded_after_quiet),
        device("put_read_back", put_read_back).races(),
        device("put_read_back_after_fence", put_read_back_after_fence).races(),
        device("put_read_back_after_quiet", put_read_back_after_quiet),
        device("store_beside_put", store_beside_put).races(),
        device("store_before_unfenced_invitation", store_before_unfenced_invitation).races(),
        device("store_before_invited_put", store_before_invited_put),
        device("store_after_signal", store_after_signal),
        device("second_put_without_answer", second_put_without_answer).races(),
        device("second_put_after_unfenced_answer", second_put_after_unfenced_answer).races(),
        device("second_put_after_answer", second_put_after_answer),
    ],
};

/// Loads the destination of a put before waiting for its signal.
#[kernel]
fn data_loaded_before_signal(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(1), 1)?; // first
        return Ok(());
    }
    let _ = ctx.local(m.inbox).load(0); // second
    ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    Ok(())
}

/// Waits for the signal of a put before loading the data.
#[kernel]
fn data_loaded_after_signal(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        return ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(1), 1);
    }
    ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    assert_eq!(ctx.local(m.inbox).load(0), 10);
    Ok(())
}

/// Loads the data of a put after waiting for a word that is set after the put's signal, but not ordered after it.
#[kernel]
fn data_loaded_after_another_signal(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(1), 1)?; // first
        return ctx.signal_op(m.answer.set(1), 1);
    }
    ctx.signal_wait_until(Thread, m.answer, Cmp::Eq, 1)?;
    let _ = ctx.local(m.inbox).load(0); // second
    Ok(())
}

/// Loads a word right after the four words that a put writes.
#[kernel]
fn other_word_loaded_beside_put(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        return ctx.put(Thread, m.inbox.slice(0..4), m.outbox.slice(0..4), 1);
    }
    assert_eq!(ctx.local(m.inbox).load(4), 0);
    Ok(())
}

/// Loads the destination of a put before the barrier that completes the put.
#[kernel]
fn data_loaded_before_barrier(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?; // first
    } else {
        let _ = ctx.local(m.inbox).load(0); // second
    }
    ctx.barrier_all(Thread)
}

/// Loads the destination of a put after the barrier that completes the put.
#[kernel]
fn data_loaded_after_barrier(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?;
    }
    ctx.barrier_all(Thread)?;
    assert!(ctx.my_pe() == 0 || ctx.local(m.inbox).load(0) == 10);
    Ok(())
}

/// Loads the destination of a put after `sync_all`, which, unlike a barrier, completes no puts.
#[kernel]
fn data_loaded_after_sync(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?; // first
    }
    ctx.sync_all(Thread)?;
    if ctx.my_pe() == 1 {
        let _ = ctx.local(m.inbox).load(0); // second
    }
    Ok(())
}

/// Loads the destination of a put after the sender's `quiet` and `sync_all`.
#[kernel]
fn data_loaded_after_quiet_and_sync(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?;
        ctx.quiet(Thread)?;
    }
    ctx.sync_all(Thread)?;
    assert!(ctx.my_pe() == 0 || ctx.local(m.inbox).load(0) == 10);
    Ok(())
}

/// Loads the destination of a put between arriving at a split barrier and waiting for the other PEs.
#[kernel]
fn data_loaded_before_split_barrier_ends(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?; // first
        ctx.quiet(Thread)?;
    }
    ctx.sync_arrive(Thread, Team::WORLD)?;
    if ctx.my_pe() == 1 {
        let _ = ctx.local(m.inbox).load(0); // second
    }
    ctx.sync_wait(Thread, Team::WORLD)
}

/// Loads the destination of a put after waiting at a split barrier.
#[kernel]
fn data_loaded_after_split_barrier(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?;
        ctx.quiet(Thread)?;
    }
    ctx.sync_arrive(Thread, Team::WORLD)?;
    ctx.sync_wait(Thread, Team::WORLD)?;
    assert!(ctx.my_pe() == 0 || ctx.local(m.inbox).load(0) == 10);
    Ok(())
}

/// Puts to its own PE, and loads the data before `quiet`.
#[kernel]
fn own_put_loaded_before_quiet(ctx: &Ctx, m: Memory) -> Result {
    ctx.put(Thread, m.inbox, m.outbox, ctx.my_pe())?; // first
    let _ = ctx.local(m.inbox).load(0); // second
    ctx.quiet(Thread)
}

/// Puts to its own PE, and loads the data after `quiet`.
#[kernel]
fn own_put_loaded_after_quiet(ctx: &Ctx, m: Memory) -> Result {
    ctx.put(Thread, m.inbox, m.outbox, ctx.my_pe())?;
    ctx.quiet(Thread)?;
    assert_eq!(ctx.local(m.inbox).load(0), ctx.local(m.outbox).load(0));
    Ok(())
}

/// Gets back the data of its own put without completing the put. The get may overtake the put.
#[kernel]
fn put_read_back(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?; // first
        ctx.get(Thread, m.words, m.inbox, 1)?; // second
    }
    Ok(())
}

/// Gets back the data of its own put after a fence, which does not order gets.
#[kernel]
fn put_read_back_after_fence(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?; // first
        ctx.fence()?;
        ctx.get(Thread, m.words, m.inbox, 1)?; // second
    }
    Ok(())
}

/// Gets back the data of its own put after `quiet`.
#[kernel]
fn put_read_back_after_quiet(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?;
        ctx.quiet(Thread)?;
        ctx.get(Thread, m.words, m.inbox, 1)?;
        assert_eq!(ctx.local(m.words).load(7), 17);
    }
    Ok(())
}

/// Stores to memory while another PE puts to it.
#[kernel]
fn store_beside_put(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?; // first
    } else {
        ctx.local(m.inbox).store(0, 1); // second
    }
    Ok(())
}

/// Stores to memory, and then signals another PE that it may put there. The signal does not publish the store.
#[kernel]
fn store_before_unfenced_invitation(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 1 {
        ctx.local(m.inbox).store(0, 1); // first
        ctx.signal_op(m.flag.set(1), 0)?;
    } else {
        ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        ctx.put(Thread, m.inbox, m.outbox, 1)?; // second
    }
    ctx.barrier_all(Thread)?;
    Ok(())
}

/// Stores to memory, fences, and then signals another PE that it may put there.
#[kernel]
fn store_before_invited_put(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 1 {
        ctx.local(m.inbox).store(0, 1);
        ctx.fence()?;
        ctx.signal_op(m.flag.set(1), 0)?;
    } else {
        ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        ctx.put(Thread, m.inbox, m.outbox, 1)?;
    }
    ctx.barrier_all(Thread)?;
    assert!(ctx.my_pe() == 0 || ctx.local(m.inbox).load(0) == 10);
    Ok(())
}

/// Stores to the destination of a put after waiting for the put's signal.
#[kernel]
fn store_after_signal(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        return ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(1), 1);
    }
    ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    ctx.local(m.inbox).store(0, 1);
    assert_eq!(ctx.local(m.inbox).load(0), 1);
    Ok(())
}

/// Puts again to the same memory, while the receiver may still be reading the first data.
#[kernel]
fn second_put_without_answer(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(1), 1)?;
        ctx.quiet(Thread)?;
        return ctx.put(Thread, m.inbox, m.outbox, 1); // first
    }
    ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    let _ = ctx.local(m.inbox).load(0); // second
    Ok(())
}

/// Puts again to the same memory after the receiver has answered without a fence. The answer does not order the
/// receiver's read.
#[kernel]
fn second_put_after_unfenced_answer(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(1), 1)?;
        ctx.quiet(Thread)?;
        ctx.signal_wait_until(Thread, m.answer, Cmp::Eq, 1)?;
        return ctx.put(Thread, m.inbox, m.outbox, 1); // second
    }
    ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    let _ = ctx.local(m.inbox).load(0); // first
    ctx.signal_op(m.answer.set(1), 0)
}

/// Puts again to the same memory after the receiver has read, fenced and answered.
#[kernel]
fn second_put_after_answer(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(1), 1)?;
        ctx.signal_wait_until(Thread, m.answer, Cmp::Eq, 1)?;
        return ctx.put(Thread, m.inbox, m.outbox, 1);
    }
    ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    assert_eq!(ctx.local(m.inbox).load(0), 10);
    ctx.fence()?;
    ctx.signal_op(m.answer.set(1), 0)
}
