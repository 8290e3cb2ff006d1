//! Programs about atomics, which are atomic with waits and with other atomics on words of the same width, but with
//! nothing else.

use rushmem_device::prelude::*;

use crate::program::{Memory, Topic, device};

pub(crate) const TOPIC: Topic = Topic {
    name: "atomics",
    title: "Atomics",
    file: file!(),
    text: include_str!("atomics.rs"),
    programs: &[
        device("adds_of_two_pes", adds_of_two_pes),
        device("float_adds_of_two_pes", float_adds_of_two_pes),
        device("fetching_adds_of_two_pes", fetching_adds_of_two_pes),
        device("compare_swaps_of_two_pes", compare_swaps_of_two_pes),
        device("masked_adds_of_two_pes", masked_adds_of_two_pes),
        device("add_beside_load", add_beside_load).races(),
        device("add_beside_atomic_fetch", add_beside_atomic_fetch),
        device("add_beside_relaxed_load", add_beside_relaxed_load),
        device("add_beside_store", add_beside_store).races(),
        device("add_beside_atomic_set", add_beside_atomic_set),
        device("add_beside_relaxed_store", add_beside_relaxed_store).races(),
        device("add_beside_p", add_beside_p).races(),
        device("add_after_p_and_barrier", add_after_p_and_barrier),
        device("add_beside_put_of_array", add_beside_put_of_array).races(),
        device("add_beside_put_of_other_words", add_beside_put_of_other_words),
        device("add_beside_get", add_beside_get).races(),
        device("adds_of_two_widths", adds_of_two_widths).races(),
        device("adds_to_two_halves_of_a_word", adds_to_two_halves_of_a_word),
        device("compare_swap_beside_load", compare_swap_beside_load).races(),
        device("fetched_value_used_before_quiet", fetched_value_used_before_quiet).races(),
        device("fetched_value_used_after_quiet", fetched_value_used_after_quiet),
        device("swap_takes_data_without_quiet", swap_takes_data_without_quiet).races(),
        device("swap_takes_data_without_acquire", swap_takes_data_without_acquire).races(),
        device("swap_takes_data_after_quiet", swap_takes_data_after_quiet),
        device("load_of_counter_after_wait", load_of_counter_after_wait).races().pes(3),
        device("load_of_counter_after_all", load_of_counter_after_all).pes(3),
    ],
};

/// Adds atomically to one counter from two PEs.
#[kernel]
fn adds_of_two_pes(ctx: &Ctx, m: Memory) -> Result {
    ctx.atomic_add(m.words.at(0), 1, 0)?;
    ctx.barrier_all(Thread)?;
    assert!(ctx.my_pe() != 0 || ctx.local(m.words).load(0) == 2);
    Ok(())
}

/// Adds atomically to one floating-point number from two PEs.
#[kernel]
fn float_adds_of_two_pes(ctx: &Ctx, m: Memory) -> Result {
    let sum = m.words.cast::<f32>().at(0);
    ctx.atomic_add(sum, 1.5, 0)?;
    ctx.barrier_all(Thread)?;
    assert_eq!(ctx.g(sum, 0)?, 3.0);
    Ok(())
}

/// Draws tickets from one counter on two PEs by atomic fetch-and-add.
#[kernel]
fn fetching_adds_of_two_pes(ctx: &Ctx, m: Memory) -> Result {
    let ticket = ctx.atomic_fetch_add(m.words.at(0), 1, 0)?;
    assert!(ticket < 2);
    Ok(())
}

/// Two PEs compete for a word by compare-and-swap.
#[kernel]
fn compare_swaps_of_two_pes(ctx: &Ctx, m: Memory) -> Result {
    let me = u64::from(ctx.my_pe()) + 1;
    let before = ctx.atomic_compare_swap(m.words.at(0), 0, me, 0)?;
    ctx.barrier_all(Thread)?;
    let winner = ctx.g(m.words.at(0), 0)?;
    assert!(if before == 0 { winner == me } else { winner == before });
    Ok(())
}

/// Adds to the bit fields of one word from two PEs by masked atomics.
#[kernel]
fn masked_adds_of_two_pes(ctx: &Ctx, m: Memory) -> Result {
    ctx.atomic_masked_fetch_add(m.words.at(0), 1 << (32 * ctx.my_pe()), 1 << 31, 0)?;
    ctx.barrier_all(Thread)?;
    assert!(ctx.my_pe() != 0 || ctx.local(m.words).load(0) == 1 | 1 << 32);
    Ok(())
}

/// Adds atomically to a counter that its owner loads by a plain load.
#[kernel]
fn add_beside_load(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.atomic_add(m.words.at(0), 1, 1)?; // first
    } else {
        let _ = ctx.local(m.words).load(0); // second
    }
    Ok(())
}

/// Adds atomically to a counter that its owner reads by an atomic.
#[kernel]
fn add_beside_atomic_fetch(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.atomic_add(m.words.at(0), 1, 1)?;
    } else {
        assert!(ctx.atomic_fetch(m.words.at(0), 1)? <= 1);
    }
    Ok(())
}

/// Adds atomically to a counter that its owner loads by a relaxed load.
#[kernel]
fn add_beside_relaxed_load(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.atomic_add(m.words.at(0), 1, 1)?;
    } else {
        assert!(ctx.local(m.words).load_relaxed(0) <= 1);
    }
    Ok(())
}

/// Adds atomically to a counter that its owner sets by a plain store.
#[kernel]
fn add_beside_store(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.atomic_add(m.words.at(0), 1, 1)?; // first
    } else {
        ctx.local(m.words).store(0, 5); // second
    }
    Ok(())
}

/// Adds atomically to a counter that its owner sets by an atomic.
#[kernel]
fn add_beside_atomic_set(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.atomic_add(m.words.at(0), 1, 1)?;
    } else {
        ctx.atomic_set(m.words.at(0), 5, 1)?;
    }
    ctx.barrier_all(Thread)?;
    assert!(ctx.my_pe() == 0 || ctx.local(m.words).load(0) >= 5);
    Ok(())
}

/// Adds atomically to a counter that its owner sets by a relaxed store. The NIC may add between that store's read and
/// write.
#[kernel]
fn add_beside_relaxed_store(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.atomic_add(m.words.at(0), 1, 1)?; // first
    } else {
        ctx.local(m.words).store_relaxed(0, 5); // second
    }
    Ok(())
}

/// Adds atomically to a counter to which another PE puts a value by `p`.
#[kernel]
fn add_beside_p(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.atomic_add(m.words.at(0), 1, 0)?; // first
    } else {
        ctx.p(m.words.at(0), 5, 0)?; // second
    }
    Ok(())
}

/// Adds atomically to a counter after another PE has put its initial value, and after a barrier.
#[kernel]
fn add_after_p_and_barrier(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 1 {
        ctx.p(m.words.at(0), 5, 0)?;
    }
    ctx.barrier_all(Thread)?;
    assert!(ctx.atomic_fetch_add(m.words.at(0), 1, 0)? >= 5);
    Ok(())
}

/// Adds atomically to a counter in an array while another PE puts the whole array.
#[kernel]
fn add_beside_put_of_array(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.atomic_add(m.words.at(5), 1, 0)?; // first
    } else {
        ctx.put(Thread, m.words, m.outbox, 0)?; // second
    }
    Ok(())
}

/// Adds atomically to a counter next to words that another PE puts.
#[kernel]
fn add_beside_put_of_other_words(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.atomic_add(m.words.at(5), 1, 0)?;
    } else {
        ctx.put(Thread, m.words.slice(0..5), m.outbox.slice(0..5), 0)?;
    }
    ctx.barrier_all(Thread)?;
    assert!(ctx.my_pe() == 1 || ctx.local(m.words).load(5) == 1);
    Ok(())
}

/// Adds atomically to a counter that another PE reads by a get.
#[kernel]
fn add_beside_get(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.atomic_add(m.words.at(0), 1, 0)?; // first
    } else {
        let _ = ctx.g(m.words.at(0), 0)?; // second
    }
    Ok(())
}

/// Adds atomically to an 8-byte word and to its lower half. Atomics of two widths are not atomic with each other.
#[kernel]
fn adds_of_two_widths(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.atomic_add(m.words.at(0), 1, 0) // first
    } else {
        ctx.atomic_add(m.words.cast::<u32>().at(0), 1, 0) // second
    }
}

/// Adds atomically to the lower half of a word on one PE, and to its upper half on the other.
#[kernel]
fn adds_to_two_halves_of_a_word(ctx: &Ctx, m: Memory) -> Result {
    ctx.atomic_add(m.words.cast::<u32>().at(ctx.my_pe() as usize), 1, 0)?;
    ctx.barrier_all(Thread)?;
    assert!(ctx.my_pe() == 1 || ctx.local(m.words).load(0) == 1 | 1 << 32);
    Ok(())
}

/// Compares and swaps a word that its owner polls by a plain load.
#[kernel]
fn compare_swap_beside_load(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.atomic_compare_swap(m.words.at(0), 0, 1, 1)?; // first
    } else {
        let _ = ctx.local(m.words).load(0); // second
    }
    Ok(())
}

/// Uses the result of an atomic before the atomic has completed.
#[kernel]
fn fetched_value_used_before_quiet(ctx: &Ctx, m: Memory) -> Result {
    let result = m.inbox.slice(0..2).cast::<Fetched<u64>>().at(0);
    ctx.atomic_fetch_add_nbi(result, m.words.at(0), 1, 0)?; // first
    let _ = ctx.fetched(result)?; // second
    ctx.quiet(Thread)
}

/// Uses the result of an atomic after `quiet`.
#[kernel]
fn fetched_value_used_after_quiet(ctx: &Ctx, m: Memory) -> Result {
    let result = m.inbox.slice(0..2).cast::<Fetched<u64>>().at(0);
    ctx.atomic_fetch_add_nbi(result, m.words.at(0), 1, 0)?;
    ctx.quiet(Thread)?;
    assert!(ctx.fetched(result)? < 2);
    Ok(())
}

/// Offers data by swapping a word, without `quiet`. The other PE takes the offer with its own swap.
#[kernel]
fn swap_takes_data_without_quiet(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?; // first
        ctx.atomic_swap(m.flag, 1, 1)?;
        return Ok(());
    }
    while ctx.atomic_swap(m.flag, 0, 1)? == 0 {
        rushmem_device::arch::spin();
    }
    let _ = ctx.local(m.inbox).load(0); // second
    Ok(())
}

/// Offers data by swapping a word after `quiet`. The other PE takes the offer with a swap that does not acquire.
#[kernel]
fn swap_takes_data_without_acquire(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?; // first
        ctx.quiet(Thread)?;
        ctx.atomic_swap(m.flag, 1, 1)?;
        return Ok(());
    }
    while ctx.atomic_swap(m.flag, 0, 1)? == 0 {
        rushmem_device::arch::spin();
    }
    let _ = ctx.local(m.inbox).load(0); // second
    Ok(())
}

/// Offers data by swapping a word after `quiet`. The other PE takes the offer with a swap and an acquire fence.
#[kernel]
fn swap_takes_data_after_quiet(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?;
        ctx.quiet(Thread)?;
        ctx.atomic_swap(m.flag, 1, 1)?;
        return Ok(());
    }
    while ctx.atomic_swap(m.flag, 0, 1)? == 0 {
        rushmem_device::arch::spin();
    }
    ctx.fence_acquire(FenceScope::System);
    assert_eq!(ctx.local(m.inbox).load(0), 10);
    Ok(())
}

/// Loads a counter by a plain load after a signal, while another PE may still add to it.
#[kernel]
fn load_of_counter_after_wait(ctx: &Ctx, m: Memory) -> Result {
    match ctx.my_pe() {
        0 => ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(1), 2)?,
        1 => ctx.atomic_add(m.words.at(0), 1, 2)?, // first
        _ => {
            ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
            let _ = ctx.local(m.words).load(0); // second
        }
    }
    Ok(())
}

/// Loads a counter by a plain load after waiting for all additions.
#[kernel]
fn load_of_counter_after_all(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() != 2 {
        return ctx.atomic_add(m.words.at(0), 1, 2);
    }
    ctx.wait_until(Thread, m.words.at(0), Cmp::Eq, 2)?;
    assert_eq!(ctx.local(m.words).load(0), 2);
    Ok(())
}
