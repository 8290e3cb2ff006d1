//! Programs about gets. The destination belongs to the get until `quiet`, and so does the source on the other PE.

use rushmem::Pe;
use rushmem_device::prelude::*;

use crate::program::{Memory, ONE, Topic, device, host};

pub(crate) const TOPIC: Topic = Topic {
    name: "gets",
    title: "Gets",
    file: file!(),
    text: include_str!("gets.rs"),
    programs: &[
        device("result_loaded_before_quiet", result_loaded_before_quiet).races(),
        device("result_loaded_after_quiet", result_loaded_after_quiet),
        device("result_loaded_after_fence", result_loaded_after_fence).races(),
        device("result_of_blocking_get", result_of_blocking_get),
        device("result_stored_before_quiet", result_stored_before_quiet).races(),
        device("result_put_before_quiet", result_put_before_quiet).races(),
        device("result_put_after_quiet", result_put_after_quiet),
        device("two_gets_with_one_result", two_gets_with_one_result).races(),
        device("two_gets_with_halves_of_a_result", two_gets_with_halves_of_a_result),
        device("strided_result_loaded_before_quiet", strided_result_loaded_before_quiet).races(),
        device("gap_of_strided_result_loaded", gap_of_strided_result_loaded),
        host("local_result_loaded_before_quiet", local_result_loaded_before_quiet).races(),
        host("local_result_loaded_after_quiet", local_result_loaded_after_quiet),
        device("get_beside_store", get_beside_store).races(),
        device("get_after_unfenced_signal_of_store", get_after_unfenced_signal_of_store).races(),
        device("get_after_signal_of_store", get_after_signal_of_store),
        device("get_beside_load", get_beside_load),
        device("value_got_beside_store", value_got_beside_store).races(),
        device("value_got_after_barrier", value_got_after_barrier),
        device("get_beside_put", get_beside_put).races().pes(3),
        device("get_after_put_and_barrier", get_after_put_and_barrier).pes(3),
        device("gets_of_two_pes", gets_of_two_pes).pes(3),
        device("source_of_get_stored_after_early_answer", source_of_get_stored_after_early_answer).races(),
        device("source_of_get_stored_after_answer", source_of_get_stored_after_answer),
        device("load_from_peer_beside_store", load_from_peer_beside_store).races(),
        device("load_from_peer_after_unfenced_signal", load_from_peer_after_unfenced_signal).races(),
        device("load_from_peer_after_signal", load_from_peer_after_signal),
    ],
};

/// Loads the result of a get that is still in flight.
#[kernel]
fn result_loaded_before_quiet(ctx: &Ctx, m: Memory) -> Result {
    ctx.get_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1))?; // first
    let _ = ctx.local(m.inbox).load(0); // second
    ctx.quiet(Thread)
}

/// Loads the result of a get after `quiet`.
#[kernel]
fn result_loaded_after_quiet(ctx: &Ctx, m: Memory) -> Result {
    ctx.get_nbi(Thread, m.inbox, m.outbox, 1)?;
    ctx.quiet(Thread)?;
    assert_eq!(ctx.local(m.inbox).load(0), 20);
    Ok(())
}

/// Loads the result of a get after a fence, which completes nothing.
#[kernel]
fn result_loaded_after_fence(ctx: &Ctx, m: Memory) -> Result {
    ctx.get_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1))?; // first
    ctx.fence()?;
    let _ = ctx.local(m.inbox).load(0); // second
    ctx.quiet(Thread)
}

/// Loads the result of a blocking get, which returns only once the data has arrived.
#[kernel]
fn result_of_blocking_get(ctx: &Ctx, m: Memory) -> Result {
    ctx.get(Thread, m.inbox, m.outbox, 1)?;
    assert_eq!(ctx.local(m.inbox).load(0), 20);
    Ok(())
}

/// Stores to the destination of a get that is still in flight.
#[kernel]
fn result_stored_before_quiet(ctx: &Ctx, m: Memory) -> Result {
    ctx.get_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1))?; // first
    ctx.local(m.inbox).store(0, 1); // second
    ctx.quiet(Thread)
}

/// Puts from the destination of a get to other memory before `quiet`.
#[kernel]
fn result_put_before_quiet(ctx: &Ctx, m: Memory) -> Result {
    ctx.get_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1))?; // first
    ctx.put(Thread, m.words, m.inbox, ctx.pe_after(1))?; // second
    ctx.quiet(Thread)
}

/// Puts from the destination of a get to other memory after `quiet`.
#[kernel]
fn result_put_after_quiet(ctx: &Ctx, m: Memory) -> Result {
    ctx.get_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1))?;
    ctx.quiet(Thread)?;
    ctx.put(Thread, m.words, m.inbox, ctx.pe_after(1))?;
    ctx.barrier_all(Thread)?;
    assert_eq!(ctx.local(m.words).load(0), ctx.local(m.outbox).load(0));
    Ok(())
}

/// Starts two gets with the same destination.
#[kernel]
fn two_gets_with_one_result(ctx: &Ctx, m: Memory) -> Result {
    ctx.get_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1))?; // first
    ctx.get_nbi(Thread, m.inbox, m.words, ctx.pe_after(1))?; // second
    ctx.quiet(Thread)
}

/// Starts two gets whose destinations are the two halves of an array.
#[kernel]
fn two_gets_with_halves_of_a_result(ctx: &Ctx, m: Memory) -> Result {
    ctx.get_nbi(Thread, m.inbox.slice(0..4), m.outbox.slice(0..4), 1)?;
    ctx.get_nbi(Thread, m.inbox.slice(4..8), m.outbox.slice(4..8), 1)?;
    ctx.quiet(Thread)?;
    assert_eq!(ctx.local(m.inbox).load(4), 24);
    Ok(())
}

/// Gets every second word, and loads one of them before `quiet`.
#[kernel]
fn strided_result_loaded_before_quiet(ctx: &Ctx, m: Memory) -> Result {
    ctx.iget_nbi(Thread, m.inbox.every(2), m.outbox.every(2), ctx.pe_after(1))?; // first
    let _ = ctx.local(m.inbox).load(2); // second
    ctx.quiet(Thread)
}

/// Gets every second word, and loads a word between them before `quiet`.
#[kernel]
fn gap_of_strided_result_loaded(ctx: &Ctx, m: Memory) -> Result {
    ctx.iget_nbi(Thread, m.inbox.every(2), m.outbox.every(2), 1)?;
    assert_eq!(ctx.local(m.inbox).load(3), 0);
    ctx.quiet(Thread)?;
    assert_eq!(ctx.local(m.inbox).load(2), 22);
    Ok(())
}

/// Gets into a registered local buffer, and loads from it before `quiet`.
fn local_result_loaded_before_quiet(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let buffer = pe.register(vec![0_u64; 8])?;
    pe.run(ONE, get_local_and_load(m, buffer.handle()))
}

#[kernel]
fn get_local_and_load(ctx: &Ctx, m: Memory, result: Local<u64>) -> Result {
    ctx.get_nbi(Thread, result, m.outbox, ctx.pe_after(1))?; // first
    let _ = ctx.local(result).load(0); // second
    ctx.quiet(Thread)
}

/// Gets into a registered local buffer, and loads from it after `quiet`.
fn local_result_loaded_after_quiet(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let buffer = pe.register(vec![0_u64; 8])?;
    pe.run(ONE, get_local_quiet_and_load(m, buffer.handle()))
}

#[kernel]
fn get_local_quiet_and_load(ctx: &Ctx, m: Memory, result: Local<u64>) -> Result {
    ctx.get_nbi(Thread, result, m.outbox, 1)?;
    ctx.quiet(Thread)?;
    assert_eq!(ctx.local(result).load(0), 20);
    Ok(())
}

/// Gets from memory while its owner stores to it.
#[kernel]
fn get_beside_store(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.get(Thread, m.inbox, m.outbox, 1) // first
    } else {
        ctx.local(m.outbox).store(0, 1); // second
        Ok(())
    }
}

/// Gets after the owner has stored and sent a signal, which does not publish the store.
#[kernel]
fn get_after_unfenced_signal_of_store(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        ctx.get(Thread, m.inbox, m.outbox, 1)?; // second
        Ok(())
    } else {
        ctx.local(m.outbox).store(0, 1); // first
        ctx.signal_op(m.flag.set(1), 0)
    }
}

/// Gets after the owner has stored, fenced and sent a signal.
#[kernel]
fn get_after_signal_of_store(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        ctx.get(Thread, m.inbox, m.outbox, 1)?;
        assert_eq!(ctx.local(m.inbox).load(0), 1);
        Ok(())
    } else {
        ctx.local(m.outbox).store(0, 1);
        ctx.fence()?;
        ctx.signal_op(m.flag.set(1), 0)
    }
}

/// Gets from memory while its owner loads from it.
#[kernel]
fn get_beside_load(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.get(Thread, m.inbox, m.outbox, 1)?;
        assert_eq!(ctx.local(m.inbox).load(0), 20);
    } else {
        assert_eq!(ctx.local(m.outbox).load(0), 20);
    }
    Ok(())
}

/// Gets a single value by `g` while its owner stores to it.
#[kernel]
fn value_got_beside_store(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        let _ = ctx.g(m.words.at(0), 1)?; // first
    } else {
        ctx.local(m.words).store(0, 1); // second
    }
    Ok(())
}

/// Gets a single value by `g` after its owner has stored it and reached a barrier.
#[kernel]
fn value_got_after_barrier(ctx: &Ctx, m: Memory) -> Result {
    ctx.local(m.words).store(0, 1);
    ctx.barrier_all(Thread)?;
    assert_eq!(ctx.g(m.words.at(0), ctx.pe_after(1))?, 1);
    Ok(())
}

/// Puts to PE 2 from one PE, and gets from PE 2 on another.
#[kernel]
fn get_beside_put(ctx: &Ctx, m: Memory) -> Result {
    match ctx.my_pe() {
        0 => ctx.put(Thread, m.inbox, m.outbox, 2), // first
        1 => ctx.get(Thread, m.words, m.inbox, 2),  // second
        _ => Ok(()),
    }
}

/// Puts to PE 2, and gets from PE 2 after a barrier.
#[kernel]
fn get_after_put_and_barrier(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 2)?;
    }
    ctx.barrier_all(Thread)?;
    if ctx.my_pe() == 1 {
        ctx.get(Thread, m.words, m.inbox, 2)?;
        assert_eq!(ctx.local(m.words).load(0), 10);
    }
    Ok(())
}

/// Gets the same data on two PEs.
#[kernel]
fn gets_of_two_pes(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() != 2 {
        ctx.get(Thread, m.inbox, m.outbox, 2)?;
        assert_eq!(ctx.local(m.inbox).load(0), 30);
    }
    Ok(())
}

/// Signals the owner that its memory has been read, although `quiet` has not completed the get.
#[kernel]
fn source_of_get_stored_after_early_answer(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.get_nbi(Thread, m.inbox, m.outbox, 1)?; // first
        ctx.signal_op(m.answer.set(1), 1)?;
    } else {
        ctx.signal_wait_until(Thread, m.answer, Cmp::Eq, 1)?;
        ctx.local(m.outbox).store(0, 1); // second
    }
    ctx.quiet(Thread)
}

/// Signals the owner that its memory has been read, after `quiet` has completed the get.
#[kernel]
fn source_of_get_stored_after_answer(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.get_nbi(Thread, m.inbox, m.outbox, 1)?;
        ctx.quiet(Thread)?;
        assert_eq!(ctx.local(m.inbox).load(0), 20);
        ctx.signal_op(m.answer.set(1), 1)
    } else {
        ctx.signal_wait_until(Thread, m.answer, Cmp::Eq, 1)?;
        ctx.local(m.outbox).store(0, 1);
        Ok(())
    }
}

/// Loads from the memory of a P2P peer while the peer stores to it.
#[kernel]
fn load_from_peer_beside_store(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 1 {
        ctx.local(m.words).store(0, 1); // first
    } else if let Some(there) = ctx.ptr(m.words, 1) {
        let _ = there.load(0); // second
    }
    Ok(())
}

/// Loads from the memory of a P2P peer after the peer's signal, which does not publish the store.
#[kernel]
fn load_from_peer_after_unfenced_signal(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 1 {
        ctx.local(m.words).store(0, 1); // first
        return ctx.signal_op(m.flag.set(1), 0);
    }
    ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    if let Some(there) = ctx.ptr(m.words, 1) {
        let _ = there.load(0); // second
    }
    Ok(())
}

/// Loads from the memory of a P2P peer after the peer has stored, fenced and sent a signal.
#[kernel]
fn load_from_peer_after_signal(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 1 {
        ctx.local(m.words).store(0, 1);
        ctx.fence()?;
        return ctx.signal_op(m.flag.set(1), 0);
    }
    ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    if let Some(there) = ctx.ptr(m.words, 1) {
        assert_eq!(there.load(0), 1);
    }
    Ok(())
}
