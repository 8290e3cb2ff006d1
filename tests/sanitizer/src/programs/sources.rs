//! Programs about the source of a put, which belongs to the put until `quiet`.

use rushmem::{Pages, Pe};
use rushmem_device::prelude::*;
use rushmem_device::shmem;

use crate::program::{Memory, ONE, Topic, device, host};

pub(crate) const TOPIC: Topic = Topic {
    name: "sources",
    title: "The source of a put",
    file: file!(),
    text: include_str!("sources.rs"),
    programs: &[
        device("source_stored_before_quiet", source_stored_before_quiet).races(),
        device("source_stored_after_quiet", source_stored_after_quiet),
        device("source_stored_after_fence", source_stored_after_fence).races(),
        device("source_stored_after_flush", source_stored_after_flush),
        device("source_stored_after_quiet_of_its_pe", source_stored_after_quiet_of_its_pe),
        device("source_stored_after_quiet_of_another_pe", source_stored_after_quiet_of_another_pe)
            .races()
            .pes(3),
        device("source_stored_after_quiet_of_listed_pes", source_stored_after_quiet_of_listed_pes),
        device("source_stored_after_blocking_put", source_stored_after_blocking_put),
        device("source_loaded_before_quiet", source_loaded_before_quiet),
        device("source_of_two_puts", source_of_two_puts).pes(3),
        device("source_stored_at_the_end_of_a_batch", source_stored_at_the_end_of_a_batch).races(),
        device("source_stored_by_openshmem_names", source_stored_by_openshmem_names).races(),
        device("source_stored_after_openshmem_quiet", source_stored_after_openshmem_quiet),
        device("last_word_of_source_stored", last_word_of_source_stored).races(),
        device("word_behind_source_stored", word_behind_source_stored),
        device("source_of_put_signal_stored", source_of_put_signal_stored).races(),
        device(
            "source_of_put_signal_stored_after_unfenced_answer",
            source_of_put_signal_stored_after_unfenced_answer,
        )
        .races(),
        device("source_of_put_signal_stored_after_answer", source_of_put_signal_stored_after_answer),
        device("strided_source_stored", strided_source_stored).races(),
        device("gap_of_strided_source_stored", gap_of_strided_source_stored),
        device("source_put_by_another_pe", source_put_by_another_pe).races(),
        device("source_put_by_another_pe_after_quiet", source_put_by_another_pe_after_quiet),
        host("local_source_stored_before_quiet", local_source_stored_before_quiet).races(),
        host("local_source_stored_after_quiet", local_source_stored_after_quiet),
        host("window_source_stored_before_quiet", window_source_stored_before_quiet).races(),
        host("window_source_stored_after_quiet", window_source_stored_after_quiet),
    ],
};

/// Stores to the source of a put that is still in flight.
#[kernel]
fn source_stored_before_quiet(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_nbi(Thread, m.inbox, m.outbox, 1)?; // first
        ctx.local(m.outbox).store(0, 1); // second
    }
    ctx.quiet(Thread)
}

/// Completes the put before it stores to the source.
#[kernel]
fn source_stored_after_quiet(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_nbi(Thread, m.inbox, m.outbox, 1)?;
        ctx.quiet(Thread)?;
        ctx.local(m.outbox).store(0, 1);
    }
    ctx.barrier_all(Thread)?;
    assert!(ctx.my_pe() == 0 || ctx.local(m.inbox).load(0) == 10);
    Ok(())
}

/// Stores to the source of a put after a fence, which completes nothing.
#[kernel]
fn source_stored_after_fence(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_nbi(Thread, m.inbox, m.outbox, 1)?; // first
        ctx.fence()?;
        ctx.local(m.outbox).store(0, 1); // second
    }
    ctx.quiet(Thread)
}

/// Stores to the source of a put after `flush`, which does not wait for delivery.
#[kernel]
fn source_stored_after_flush(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_nbi(Thread, m.inbox, m.outbox, 1)?;
        ctx.flush(Thread)?;
        ctx.local(m.outbox).store(0, 1);
    }
    ctx.barrier_all(Thread)?;
    assert!(ctx.my_pe() == 0 || ctx.local(m.inbox).load(0) == 10);
    Ok(())
}

/// Completes only the puts to the receiver, and stores to the source of such a put.
#[kernel]
fn source_stored_after_quiet_of_its_pe(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_nbi(Thread, m.inbox, m.outbox, 1)?;
        ctx.quiet_pe(1)?;
        ctx.local(m.outbox).store(0, 1);
    }
    ctx.barrier_all(Thread)?;
    assert!(ctx.my_pe() == 0 || ctx.local(m.inbox).load(0) == 10);
    Ok(())
}

/// Puts to PE 1, completes only the puts to PE 2, and stores to the source.
#[kernel]
fn source_stored_after_quiet_of_another_pe(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_nbi(Thread, m.inbox, m.outbox, 1)?; // first
        ctx.quiet_pe(2)?;
        ctx.local(m.outbox).store(0, 1); // second
    }
    ctx.quiet(Thread)
}

/// Completes the puts to a list of PEs, and stores to the source.
#[kernel]
fn source_stored_after_quiet_of_listed_pes(ctx: &Ctx, m: Memory) -> Result {
    let list = ctx.local(m.words.slice(0..1).cast::<u32>());
    list.store(0, 1);
    if ctx.my_pe() == 0 {
        ctx.put_nbi(Thread, m.inbox, m.outbox, 1)?;
        ctx.quiet_pes(Thread, list)?;
        ctx.local(m.outbox).store(0, 1);
    }
    ctx.barrier_all(Thread)?;
    assert!(ctx.my_pe() == 0 || ctx.local(m.inbox).load(0) == 10);
    Ok(())
}

/// Stores to the source of a blocking put, which returns once the source is free.
#[kernel]
fn source_stored_after_blocking_put(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?;
        ctx.local(m.outbox).store(0, 1);
    }
    ctx.barrier_all(Thread)?;
    assert!(ctx.my_pe() == 0 || ctx.local(m.inbox).load(0) == 10);
    Ok(())
}

/// Loads from the source of a put that is still in flight.
#[kernel]
fn source_loaded_before_quiet(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_nbi(Thread, m.inbox, m.outbox, 1)?;
        assert_eq!(ctx.local(m.outbox).load(0), 10);
    }
    ctx.quiet(Thread)
}

/// Puts the same source to two PEs at the same time.
#[kernel]
fn source_of_two_puts(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_nbi(Thread, m.inbox, m.outbox, 1)?;
        ctx.put_nbi(Thread, m.inbox, m.outbox, 2)?;
    }
    ctx.barrier_all(Thread)?;
    assert!(ctx.my_pe() == 0 || ctx.local(m.inbox).load(0) == 10);
    Ok(())
}

/// Stores to the source of a put when its batch is closed. Closing a batch completes nothing.
#[kernel]
fn source_stored_at_the_end_of_a_batch(ctx: &Ctx, m: Memory) -> Result {
    let batch = ctx.batch();
    batch.put_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1))?; // first
    batch.end();
    ctx.local(m.outbox).store(0, 1); // second
    ctx.quiet(Thread)
}

/// Stores to the source of a put called by its OpenSHMEM name, before `quiet`.
#[kernel]
fn source_stored_by_openshmem_names(ctx: &Ctx, m: Memory) -> Result {
    shmem::shmem_put_nbi(ctx, Thread, m.inbox, m.outbox, ctx.pe_after(1))?; // first
    ctx.local(m.outbox).store(0, 1); // second
    shmem::shmem_quiet(ctx, Thread)
}

/// Calls put and `quiet` by their OpenSHMEM names, and stores to the source.
#[kernel]
fn source_stored_after_openshmem_quiet(ctx: &Ctx, m: Memory) -> Result {
    shmem::shmem_put_nbi(ctx, Thread, m.inbox, m.outbox, ctx.pe_after(1))?;
    shmem::shmem_quiet(ctx, Thread)?;
    ctx.local(m.outbox).store(0, 1);
    Ok(())
}

/// Puts four words, and stores to the last of them before `quiet`.
#[kernel]
fn last_word_of_source_stored(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_nbi(Thread, m.inbox.slice(0..4), m.outbox.slice(0..4), 1)?; // first
        ctx.local(m.outbox).store(3, 1); // second
    }
    ctx.quiet(Thread)
}

/// Puts four words, and stores to the word after them before `quiet`.
#[kernel]
fn word_behind_source_stored(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_nbi(Thread, m.inbox.slice(0..4), m.outbox.slice(0..4), 1)?;
        ctx.local(m.outbox).store(4, 1);
    }
    ctx.barrier_all(Thread)?;
    assert!(ctx.my_pe() == 0 || ctx.local(m.inbox).load(3) == 13);
    Ok(())
}

/// Stores to the source of a put with signal before `quiet`.
#[kernel]
fn source_of_put_signal_stored(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_signal_nbi(Thread, m.inbox, m.outbox, m.flag.set(1), 1)?; // first
        ctx.local(m.outbox).store(0, 1); // second
    }
    ctx.quiet(Thread)
}

/// Stores to the source of a put with signal after the receiver's answer, which publishes nothing.
#[kernel]
fn source_of_put_signal_stored_after_unfenced_answer(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_signal_nbi(Thread, m.inbox, m.outbox, m.flag.set(1), 1)?; // first
        ctx.signal_wait_until(Thread, m.answer, Cmp::Eq, 1)?;
        ctx.local(m.outbox).store(0, 1); // second
    } else {
        ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        assert_eq!(ctx.local(m.inbox).load(0), 10);
        ctx.signal_op(m.answer.set(1), 0)?;
    }
    ctx.quiet(Thread)
}

/// Stores to the source of a put with signal after the receiver has answered the signal.
#[kernel]
fn source_of_put_signal_stored_after_answer(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_signal_nbi(Thread, m.inbox, m.outbox, m.flag.set(1), 1)?;
        ctx.signal_wait_until(Thread, m.answer, Cmp::Eq, 1)?;
        ctx.local(m.outbox).store(0, 1);
    } else {
        ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        assert_eq!(ctx.local(m.inbox).load(0), 10);
        ctx.fence()?;
        ctx.signal_op(m.answer.set(1), 0)?;
    }
    ctx.quiet(Thread)
}

/// Puts every second word, and stores to one of these words before `quiet`.
#[kernel]
fn strided_source_stored(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.iput_nbi(Thread, m.inbox.every(2), m.outbox.every(2), 1)?; // first
        ctx.local(m.outbox).store(2, 1); // second
    }
    ctx.quiet(Thread)
}

/// Puts every second word, and stores to a word between them before `quiet`.
#[kernel]
fn gap_of_strided_source_stored(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.iput_nbi(Thread, m.inbox.every(2), m.outbox.every(2), 1)?;
        ctx.local(m.outbox).store(3, 1);
    }
    ctx.barrier_all(Thread)?;
    assert!(ctx.my_pe() == 0 || ctx.local(m.inbox).load(2) == 12);
    Ok(())
}

/// Puts from a source to which PE 1 is putting at the same time.
#[kernel]
fn source_put_by_another_pe(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_nbi(Thread, m.inbox, m.outbox, 1)?; // first
    } else {
        ctx.p(m.outbox.at(0), 1, 0)?; // second
    }
    ctx.quiet(Thread)
}

/// Puts from a source, and allows PE 1 to put to that source after `quiet` and a flag.
#[kernel]
fn source_put_by_another_pe_after_quiet(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_nbi(Thread, m.inbox, m.outbox, 1)?;
        ctx.quiet(Thread)?;
        return ctx.p(m.flag, 1, 1);
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    assert_eq!(ctx.local(m.inbox).load(0), 10);
    ctx.p(m.outbox.at(0), 1, 0)?;
    ctx.quiet(Thread)
}

/// Stores to a registered local buffer while a put reads it.
fn local_source_stored_before_quiet(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let buffer = pe.register(vec![1_u64; 8])?;
    pe.run(ONE, put_local_and_store(m, buffer.handle()))
}

#[kernel]
fn put_local_and_store(ctx: &Ctx, m: Memory, source: Local<u64>) -> Result {
    ctx.put_nbi(Thread, m.inbox, source, ctx.pe_after(1))?; // first
    ctx.local(source).store(0, 2); // second
    ctx.quiet(Thread)
}

/// Stores to a registered local buffer after `quiet`.
fn local_source_stored_after_quiet(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let buffer = pe.register(vec![1_u64; 8])?;
    pe.run(ONE, put_local_quiet_and_store(m, buffer.handle()))?;
    pe.host_sync()?;
    assert_eq!(pe.read(m.inbox)?, [1; 8]);
    Ok(())
}

#[kernel]
fn put_local_quiet_and_store(ctx: &Ctx, m: Memory, source: Local<u64>) -> Result {
    ctx.put_nbi(Thread, m.inbox, source, ctx.pe_after(1))?;
    ctx.quiet(Thread)?;
    ctx.local(source).store(0, 2);
    Ok(())
}

/// Stores to its own copy of a window while a put reads it.
fn window_source_stored_before_quiet(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let window = pe.register_symmetric(Pages::zeroed(8))?;
    pe.run(ONE, put_window_and_store(m, window.handle()))
}

#[kernel]
fn put_window_and_store(ctx: &Ctx, m: Memory, window: SymSlice<u64>) -> Result {
    ctx.put_nbi(Thread, m.inbox, window, ctx.pe_after(1))?; // first
    ctx.local(window).store(0, 2); // second
    ctx.quiet(Thread)
}

/// Stores to its own copy of a window after `quiet`.
fn window_source_stored_after_quiet(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let window = pe.register_symmetric(Pages::zeroed(8))?;
    pe.run(ONE, put_window_quiet_and_store(m, window.handle()))?;
    pe.host_sync()?;
    assert_eq!(pe.read(m.inbox)?, [0; 8]);
    Ok(())
}

#[kernel]
fn put_window_quiet_and_store(ctx: &Ctx, m: Memory, window: SymSlice<u64>) -> Result {
    ctx.put_nbi(Thread, m.inbox, window, ctx.pe_after(1))?;
    ctx.quiet(Thread)?;
    ctx.local(window).store(0, 2);
    Ok(())
}
