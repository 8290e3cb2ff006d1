//! Programs with pairs of unordered operations on the same words. Two reads do not conflict, and neither do two
//! atomics.

use rushmem::Pe;
use rushmem_device::prelude::*;

use crate::program::{Memory, ONE, Topic, device, host};

pub(crate) const TOPIC: Topic = Topic {
    name: "conflicts",
    title: "Pairs of operations",
    file: file!(),
    text: include_str!("conflicts.rs"),
    programs: &[
        device("get_beside_atomic_fetch", get_beside_atomic_fetch),
        device("load_beside_atomic_fetch", load_beside_atomic_fetch),
        device("store_beside_atomic_fetch", store_beside_atomic_fetch).races(),
        device("put_beside_atomic_fetch", put_beside_atomic_fetch).races(),
        device("get_beside_atomic_set", get_beside_atomic_set).races(),
        device("put_beside_atomic_set", put_beside_atomic_set).races(),
        device("load_beside_atomic_set", load_beside_atomic_set).races(),
        device("store_beside_atomic_set", store_beside_atomic_set).races(),
        device("atomics_of_two_types", atomics_of_two_types),
        host("atomics_of_two_contexts", atomics_of_two_contexts),
        device("store_beside_put_signal", store_beside_put_signal).races(),
        device("put_signals_of_two_pes", put_signals_of_two_pes).races().pes(3),
        device("store_beside_strided_put", store_beside_strided_put).races(),
        device("put_beside_strided_put", put_beside_strided_put).races().pes(3),
        device("load_beside_strided_get", load_beside_strided_get),
        device("store_beside_strided_get", store_beside_strided_get).races(),
        device("put_beside_strided_get", put_beside_strided_get).races().pes(3),
        device("value_put_beside_load", value_put_beside_load).races(),
        device("value_put_beside_get", value_put_beside_get).races(),
        device("put_behind_get_and_fence", put_behind_get_and_fence).races(),
        device("put_behind_get_and_quiet", put_behind_get_and_quiet),
        device("result_of_swap_overwritten", result_of_swap_overwritten).races(),
        device("result_of_compare_swap_used", result_of_compare_swap_used).races(),
        device("result_of_compare_swap_used_after_quiet", result_of_compare_swap_used_after_quiet),
        device("load_beside_fetch_in_flight", load_beside_fetch_in_flight),
        device("store_beside_fetch_in_flight", store_beside_fetch_in_flight).races(),
        device("atomics_in_flight", atomics_in_flight),
        device("store_in_a_helper", store_in_a_helper).races(),
        device("load_through_another_type", load_through_another_type).races(),
        device("word_put_beside_get", word_put_beside_get).races().pes(3),
    ],
};

/// Gets a word that another PE reads by an atomic.
#[kernel]
fn get_beside_atomic_fetch(ctx: &Ctx, m: Memory) -> Result {
    let found =
        if ctx.my_pe() == 0 { ctx.g(m.outbox.at(0), 1)? } else { ctx.atomic_fetch(m.outbox.at(0), 1)? };
    assert_eq!(found, 20);
    Ok(())
}

/// Loads a word that another PE reads by an atomic.
#[kernel]
fn load_beside_atomic_fetch(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        assert_eq!(ctx.atomic_fetch(m.outbox.at(0), 1)?, 20);
    } else {
        assert_eq!(ctx.local(m.outbox).load(0), 20);
    }
    Ok(())
}

/// Stores to a word that another PE reads by an atomic.
#[kernel]
fn store_beside_atomic_fetch(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.atomic_fetch(m.words.at(0), 1)?; // first
    } else {
        ctx.local(m.words).store(0, 1); // second
    }
    Ok(())
}

/// Puts to a word that another PE reads by an atomic.
#[kernel]
fn put_beside_atomic_fetch(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.atomic_fetch(m.words.at(0), 1)?; // first
    } else {
        ctx.put(Thread, m.words, m.outbox, 1)?; // second
    }
    Ok(())
}

/// Gets a word that another PE sets by an atomic.
#[kernel]
fn get_beside_atomic_set(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.atomic_set(m.words.at(0), 1, 1) // first
    } else {
        ctx.get(Thread, m.inbox, m.words, 1) // second
    }
}

/// Puts to a word that another PE sets by an atomic.
#[kernel]
fn put_beside_atomic_set(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.atomic_set(m.words.at(0), 1, 1) // first
    } else {
        ctx.put(Thread, m.words, m.outbox, 1) // second
    }
}

/// Loads a word that another PE sets by an atomic.
#[kernel]
fn load_beside_atomic_set(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        return ctx.atomic_set(m.words.at(0), 1, 1); // first
    }
    let _ = ctx.local(m.words).load(0); // second
    Ok(())
}

/// Stores to a word that another PE sets by an atomic.
#[kernel]
fn store_beside_atomic_set(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        return ctx.atomic_set(m.words.at(0), 1, 1); // first
    }
    ctx.local(m.words).store(0, 2); // second
    Ok(())
}

/// Adds to a word as a float on one PE, and swaps it as an integer of the same width on the other PE.
#[kernel]
fn atomics_of_two_types(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.atomic_add(m.words.cast::<f64>().at(0), 1.0, 1)
    } else {
        ctx.atomic_swap(m.words.at(0), 0, 1)?;
        Ok(())
    }
}

/// Adds to a word in two contexts. All atomics on a word are atomic with each other.
fn atomics_of_two_contexts(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.run(ONE, add_in_two_contexts(m, pe.context::<PerGpu>()?))
}

#[kernel]
fn add_in_two_contexts(ctx: &Ctx, m: Memory, context: Context) -> Result {
    let own = ctx.context(context)?;
    own.atomic_add(m.words.at(0), 1, 0)?;
    ctx.atomic_add(m.words.at(0), 1, 0)?;
    own.quiet(Thread)?;
    ctx.barrier_all(Thread)?;
    assert!(ctx.my_pe() == 1 || ctx.local(m.words).load(0) == 4);
    Ok(())
}

/// Stores to the destination of a put with signal while the put is in flight.
#[kernel]
fn store_beside_put_signal(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        return ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(1), 1); // first
    }
    ctx.local(m.inbox).store(0, 1); // second
    Ok(())
}

/// Puts with a signal to the same memory from two PEs. The signals are atomic, but the data is not.
#[kernel]
fn put_signals_of_two_pes(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() != 2 {
        ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.add(1), 2)?; // first and second
    }
    Ok(())
}

/// Stores to a word that a strided put writes.
#[kernel]
fn store_beside_strided_put(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        return ctx.iput(Thread, m.inbox.every(3), m.outbox.every(3), 1); // first
    }
    ctx.local(m.inbox).store(6, 1); // second
    Ok(())
}

/// Puts words that include one written by another PE's strided put.
#[kernel]
fn put_beside_strided_put(ctx: &Ctx, m: Memory) -> Result {
    match ctx.my_pe() {
        0 => ctx.iput(Thread, m.inbox.every(3), m.outbox.every(3), 2)?, // first
        1 => ctx.put(Thread, m.inbox.slice(4..7), m.outbox.slice(4..7), 2)?, // second
        _ => {}
    }
    Ok(())
}

/// Loads words that a strided get reads.
#[kernel]
fn load_beside_strided_get(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.iget(Thread, m.inbox.every(2), m.outbox.every(2), 1)?;
        assert_eq!(ctx.local(m.inbox).load(2), 22);
    } else {
        assert_eq!(ctx.local(m.outbox).load(2), 22);
    }
    Ok(())
}

/// Stores to a word that a strided get reads.
#[kernel]
fn store_beside_strided_get(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        return ctx.iget(Thread, m.inbox.every(2), m.outbox.every(2), 1); // first
    }
    ctx.local(m.outbox).store(2, 1); // second
    Ok(())
}

/// Puts to a word that a strided get reads.
#[kernel]
fn put_beside_strided_get(ctx: &Ctx, m: Memory) -> Result {
    match ctx.my_pe() {
        0 => ctx.iget(Thread, m.inbox.every(2), m.words.every(2), 2)?, // first
        1 => ctx.p(m.words.at(2), 1, 2)?,                              // second
        _ => {}
    }
    Ok(())
}

/// Puts a single value to a word that its owner loads.
#[kernel]
fn value_put_beside_load(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        return ctx.p(m.words.at(0), 1, 1); // first
    }
    let _ = ctx.local(m.words).load(0); // second
    Ok(())
}

/// Puts a single value to a word that its owner gets from itself.
#[kernel]
fn value_put_beside_get(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.p(m.words.at(0), 1, 1) // first
    } else {
        ctx.get(Thread, m.inbox, m.words, 1) // second
    }
}

/// Puts to the source of an earlier get after a fence, which does not order gets.
#[kernel]
fn put_behind_get_and_fence(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.get_nbi(Thread, m.inbox, m.words, 1)?; // first
        ctx.fence()?;
        ctx.put(Thread, m.words, m.outbox, 1)?; // second
    }
    ctx.quiet(Thread)
}

/// Puts to the source of an earlier get after `quiet`.
#[kernel]
fn put_behind_get_and_quiet(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.get_nbi(Thread, m.inbox, m.words, 1)?;
        ctx.quiet(Thread)?;
        ctx.put(Thread, m.words, m.outbox, 1)?;
        assert_eq!(ctx.local(m.inbox).load(0), 0);
    }
    ctx.barrier_all(Thread)?;
    assert!(ctx.my_pe() == 0 || ctx.local(m.words).load(0) == 10);
    Ok(())
}

#[inline(always)]
fn place(m: Memory) -> Sym<Fetched<u64>> {
    m.inbox.slice(0..2).cast::<Fetched<u64>>().at(0)
}

/// Stores to the destination of a nonblocking swap whose result has not arrived yet.
#[kernel]
fn result_of_swap_overwritten(ctx: &Ctx, m: Memory) -> Result {
    ctx.atomic_swap_nbi(place(m), m.words.at(0), 1, 1)?; // first
    ctx.local(m.inbox).store(0, 1); // second
    ctx.quiet(Thread)
}

/// Uses the result of a compare-and-swap that has not arrived yet.
#[kernel]
fn result_of_compare_swap_used(ctx: &Ctx, m: Memory) -> Result {
    ctx.atomic_compare_swap_nbi(place(m), m.words.at(0), 0, 1, 1)?; // first
    let _ = ctx.fetched(place(m))?; // second
    ctx.quiet(Thread)
}

/// Uses the result of a compare-and-swap after `quiet`.
#[kernel]
fn result_of_compare_swap_used_after_quiet(ctx: &Ctx, m: Memory) -> Result {
    ctx.atomic_compare_swap_nbi(place(m), m.words.at(0), 0, 1, 1)?;
    ctx.quiet(Thread)?;
    assert!(ctx.fetched(place(m))? <= 1);
    Ok(())
}

/// Loads a word while another PE's atomic fetch of it is in flight. Both only read.
#[kernel]
fn load_beside_fetch_in_flight(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.atomic_fetch_nbi(place(m), m.outbox.at(0), 1)?;
        ctx.quiet(Thread)?;
        assert_eq!(ctx.fetched(place(m))?, 20);
    } else {
        assert_eq!(ctx.local(m.outbox).load(0), 20);
    }
    Ok(())
}

/// Stores to a word while another PE's atomic fetch of it is in flight.
#[kernel]
fn store_beside_fetch_in_flight(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.atomic_fetch_nbi(place(m), m.words.at(0), 1)?; // first
        return ctx.quiet(Thread);
    }
    ctx.local(m.words).store(0, 1); // second
    Ok(())
}

/// Starts nonblocking atomics on the same word on two PEs.
#[kernel]
fn atomics_in_flight(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.atomic_fetch_add_nbi(place(m), m.words.at(0), 1, 1)?;
    } else {
        ctx.atomic_compare_swap_nbi(place(m), m.words.at(0), 0, 5, 1)?;
    }
    ctx.barrier_all(Thread)?;
    assert!(ctx.my_pe() == 0 || [1, 6].contains(&ctx.local(m.words).load(0)));
    Ok(())
}

/// Stores to the source of a put within a separate function.
#[kernel]
fn store_in_a_helper(ctx: &Ctx, m: Memory) -> Result {
    ctx.put_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1))?; // first
    clear(ctx.local(m.outbox));
    ctx.quiet(Thread)
}

#[inline(never)]
fn clear(words: View<u64>) {
    words.store(0, 0); // second
}

/// Loads two bytes of a word that a get writes, through a handle of another type.
#[kernel]
fn load_through_another_type(ctx: &Ctx, m: Memory) -> Result {
    let halves = m.inbox.slice(2..6).cast::<u16>();
    ctx.get_nbi(Thread, m.inbox.slice(0..3), m.outbox.slice(0..3), ctx.pe_after(1))?; // first
    let _ = ctx.local(halves).load(3); // second
    ctx.quiet(Thread)
}

/// Gets a word on one PE, as if to increment it, while another PE puts to it.
#[kernel]
fn word_put_beside_get(ctx: &Ctx, m: Memory) -> Result {
    match ctx.my_pe() {
        0 => ctx.g(m.words.at(0), 2).map(drop), // first
        1 => ctx.p(m.words.at(0), 1, 2),        // second
        _ => Ok(()),
    }
}
