//! Programs about signals, waits and tests. A wait is ordered after what the words that satisfied it announce, and
//! nothing else.

use rushmem_device::arch;
use rushmem_device::prelude::*;

use crate::program::{Memory, Topic, device};

pub(crate) const TOPIC: Topic = Topic {
    name: "signals",
    title: "Signals, waits and tests",
    file: file!(),
    text: include_str!("signals.rs"),
    programs: &[
        device("signals_that_count", signals_that_count).pes(3),
        device("put_without_signal_beside_counted_one", put_without_signal_beside_counted_one).races().pes(3),
        device("signals_that_set_one_word", signals_that_set_one_word).pes(3),
        device("set_beside_add", set_beside_add).races().pes(3),
        device("signal_of_another_pe", signal_of_another_pe).races().pes(3),
        device("signal_relayed_by_another_pe", signal_relayed_by_another_pe).pes(3),
        device("signal_loaded_plainly", signal_loaded_plainly).races(),
        device("signal_fetched_in_a_loop", signal_fetched_in_a_loop),
        device("word_tested_in_a_loop", word_tested_in_a_loop),
        device("test_of_an_unset_word", test_of_an_unset_word).races(),
        device("wait_that_times_out", wait_that_times_out).races(),
        device("wait_with_a_time_in_a_loop", wait_with_a_time_in_a_loop),
        device("wait_for_all_words", wait_for_all_words).pes(3),
        device("wait_for_one_word_of_two", wait_for_one_word_of_two).races().pes(3),
        device("wait_for_any_word", wait_for_any_word).pes(3),
        device("wait_for_any_word_and_use_the_other", wait_for_any_word_and_use_the_other).races().pes(3),
        device("wait_for_some_words", wait_for_some_words).pes(3),
        device("test_all_words_in_a_loop", test_all_words_in_a_loop).pes(3),
        device("signal_reset_between_rounds", signal_reset_between_rounds),
        device("signal_reset_beside_set", signal_reset_beside_set).races(),
        device("shadowed_signal", shadowed_signal),
        device("wait_for_a_plain_store", wait_for_a_plain_store).races().grid(1, 2),
        device("wait_for_a_relaxed_store", wait_for_a_relaxed_store).grid(1, 2),
        device("test_of_more_than_the_word", test_of_more_than_the_word).races(),
    ],
};

/// Puts from two PEs that add to one signal. The receiver waits for the sum.
#[kernel]
fn signals_that_count(ctx: &Ctx, m: Memory) -> Result {
    let i = ctx.my_pe() as usize;
    if i < 2 {
        let (to, from) = (m.inbox.slice(i..i + 1), m.outbox.slice(0..1));
        return ctx.put_signal(Thread, to, from, m.flag.add(1), 2);
    }
    ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 2)?;
    assert_eq!(ctx.local(m.inbox).load(0), 10);
    assert_eq!(ctx.local(m.inbox).load(1), 20);
    Ok(())
}

/// Puts from two PEs, but only one of them adds to the signal.
#[kernel]
fn put_without_signal_beside_counted_one(ctx: &Ctx, m: Memory) -> Result {
    let (to, from) = (m.inbox.slice(0..1), m.outbox.slice(0..1));
    match ctx.my_pe() {
        0 => ctx.put_signal(Thread, to, from, m.flag.add(1), 2)?,
        1 => ctx.put(Thread, m.inbox.slice(1..2), from, 2)?, // first
        _ => {
            ctx.signal_wait_until(Thread, m.flag, Cmp::Ge, 1)?;
            assert_eq!(ctx.local(m.inbox).load(0), 10);
            let _ = ctx.local(m.inbox).load(1); // second
        }
    }
    Ok(())
}

/// Sets one signal from two PEs. Sets are atomic with each other.
#[kernel]
fn signals_that_set_one_word(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() < 2 {
        return ctx.signal_op(m.flag.set(1), 2);
    }
    ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    Ok(())
}

/// Sets a signal on one PE and adds to it on another.
#[kernel]
fn set_beside_add(ctx: &Ctx, m: Memory) -> Result {
    match ctx.my_pe() {
        0 => ctx.signal_op(m.flag.set(1), 2)?, // first
        1 => ctx.signal_op(m.flag.add(1), 2)?, // second
        _ => {}
    }
    Ok(())
}

/// Waits for a signal of PE 1, which does not cover the data of PE 0.
#[kernel]
fn signal_of_another_pe(ctx: &Ctx, m: Memory) -> Result {
    match ctx.my_pe() {
        0 => ctx.put(Thread, m.inbox, m.outbox, 2)?, // first
        1 => ctx.signal_op(m.flag.set(1), 2)?,
        _ => {
            ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
            let _ = ctx.local(m.inbox).load(0); // second
        }
    }
    Ok(())
}

/// Waits for a signal of PE 1, which has waited for PE 0.
#[kernel]
fn signal_relayed_by_another_pe(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 2)?;
        ctx.quiet(Thread)?;
        return ctx.signal_op(m.flag.set(1), 1);
    }
    ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    if ctx.my_pe() == 1 {
        ctx.fence()?;
        return ctx.signal_op(m.flag.set(1), 2);
    }
    assert_eq!(ctx.local(m.inbox).load(0), 10);
    Ok(())
}

/// Loads a signal word by a plain load, while the signal may be arriving.
#[kernel]
fn signal_loaded_plainly(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.signal_op(m.flag.set(1), 1)?; // first
    } else {
        let _ = ctx.local_one(m.flag).load(0); // second
    }
    Ok(())
}

/// Fetches a signal in a loop until it arrives.
#[kernel]
fn signal_fetched_in_a_loop(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        return ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(1), 1);
    }
    while ctx.signal_fetch(m.flag)? == 0 {
        arch::spin();
    }
    assert_eq!(ctx.local(m.inbox).load(0), 10);
    Ok(())
}

/// Tests a word in a loop until it is set.
#[kernel]
fn word_tested_in_a_loop(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        return ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(1), 1);
    }
    while !ctx.test(m.flag, Cmp::Eq, 1)? {
        arch::spin();
    }
    assert_eq!(ctx.local(m.inbox).load(0), 10);
    Ok(())
}

/// Tests a word that nobody sets, and uses the data regardless of the result.
#[kernel]
fn test_of_an_unset_word(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(1), 1)?; // first
        return Ok(());
    }
    if !ctx.test(m.answer, Cmp::Eq, 1)? {
        let _ = ctx.local(m.inbox).load(0); // second
    }
    Ok(())
}

/// Waits for a word that nobody sets, and uses the data after the timeout.
#[kernel]
fn wait_that_times_out(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(1), 1)?; // first
        return Ok(());
    }
    if ctx.wait_until_for(Thread, m.answer, Cmp::Eq, 1, 1_000)?.is_none() {
        let _ = ctx.local(m.inbox).load(0); // second
    }
    Ok(())
}

/// Waits with a short timeout, repeatedly, until the word is set.
#[kernel]
fn wait_with_a_time_in_a_loop(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        return ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(1), 1);
    }
    while ctx.wait_until_for(Thread, m.flag, Cmp::Eq, 1, 1_000)?.is_none() {}
    assert_eq!(ctx.local(m.inbox).load(0), 10);
    Ok(())
}

/// Puts word `i` of the inbox of PE 2 and announces it by word `i` of `words`, in PE `i`.
#[inline(always)]
#[track_caller]
fn send_to_last(ctx: &Ctx, m: Memory) -> Result {
    let i = ctx.my_pe() as usize;
    ctx.put_signal(Thread, m.inbox.slice(i..i + 1), m.outbox.slice(0..1), m.words.at(i).set(1), 2)
}

/// Waits for the signals of both senders before using their data.
#[kernel]
fn wait_for_all_words(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() < 2 {
        return send_to_last(ctx, m);
    }
    ctx.wait_until_all(Thread, &WaitWords::new(m.words.slice(0..2), Cmp::Eq, 1))?;
    assert_eq!(ctx.local(m.inbox).load(0), 10);
    assert_eq!(ctx.local(m.inbox).load(1), 20);
    Ok(())
}

/// Waits for the signal of the first sender, and uses the data of the second.
#[kernel]
fn wait_for_one_word_of_two(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() < 2 {
        return send_to_last(ctx, m); // first
    }
    ctx.wait_until_all(Thread, &WaitWords::new(m.words.slice(0..1), Cmp::Eq, 1))?;
    let _ = ctx.local(m.inbox).load(1); // second
    Ok(())
}

/// Waits for the signal of any sender, and uses that sender's data.
#[kernel]
fn wait_for_any_word(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() < 2 {
        return send_to_last(ctx, m);
    }
    let mut words = WaitWords::new(m.words.slice(0..2), Cmp::Eq, 1);
    let Some(i) = ctx.wait_until_any(Thread, &mut words)? else { return Ok(()) };
    assert_eq!(ctx.local(m.inbox).load(i), 10 * (i as u64 + 1));
    Ok(())
}

/// Waits for the signal of any sender, and uses the other sender's data.
#[kernel]
fn wait_for_any_word_and_use_the_other(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() < 2 {
        return send_to_last(ctx, m); // first
    }
    let mut words = WaitWords::new(m.words.slice(0..2), Cmp::Eq, 1);
    let Some(i) = ctx.wait_until_any(Thread, &mut words)? else { return Ok(()) };
    let _ = ctx.local(m.inbox).load(1 - i); // second
    Ok(())
}

/// Waits for some signals until all have arrived, and uses the data of those found each time.
#[kernel]
fn wait_for_some_words(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() < 2 {
        return send_to_last(ctx, m);
    }
    let (indices, status) = (ctx.local(m.outbox), ctx.local(m.words.slice(2..3).cast::<i32>()));
    let mut left = 2;
    while left > 0 {
        let mut words = WaitWords::new(m.words.slice(0..2), Cmp::Eq, 1).except(status);
        let found = ctx.wait_until_some(Thread, &mut words, indices)?;
        for n in 0..found {
            let i = indices.load(n) as usize;
            assert_eq!(ctx.local(m.inbox).load(i), 10 * (i as u64 + 1));
            status.store(i, 1);
        }
        left -= found;
    }
    Ok(())
}

/// Tests the signals of both senders in a loop.
#[kernel]
fn test_all_words_in_a_loop(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() < 2 {
        return send_to_last(ctx, m);
    }
    while !ctx.test_all(Thread, &WaitWords::new(m.words.slice(0..2), Cmp::Eq, 1))? {
        arch::spin();
    }
    assert_eq!(ctx.local(m.inbox).load(1), 20);
    Ok(())
}

/// Resets a signal before asking the sender for the next one.
#[kernel]
fn signal_reset_between_rounds(ctx: &Ctx, m: Memory) -> Result {
    for round in 1..=2 {
        if ctx.my_pe() == 0 {
            ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(1), 1)?;
            ctx.signal_wait_until(Thread, m.answer, Cmp::Eq, round)?;
        } else {
            ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
            assert_eq!(ctx.local(m.inbox).load(0), 10);
            ctx.signal_reset(m.flag)?;
            ctx.fence()?;
            ctx.signal_op(m.answer.set(round), 0)?;
        }
    }
    Ok(())
}

/// Resets a signal while the sender may be setting it.
#[kernel]
fn signal_reset_beside_set(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.signal_op(m.flag.set(1), 1)?; // first
    } else {
        ctx.signal_reset(m.flag)?; // second
    }
    Ok(())
}

/// Waits until a monotonically increasing signal has reached the expected count, which is kept in a shadow variable.
#[kernel]
fn shadowed_signal(ctx: &Ctx, m: Memory) -> Result {
    let word = m.words.cast::<Shadowed>().at(0);
    for _ in 0..2 {
        if ctx.my_pe() == 0 {
            ctx.put_signal(Thread, m.inbox, m.outbox, word.signal().add(1), 1)?;
        } else {
            ctx.shadow_increase(word, 1)?;
            ctx.wait_meet_shadow(Thread, word)?;
            assert_eq!(ctx.local(m.inbox).load(0), 10);
        }
        ctx.barrier_all(Thread)?;
    }
    Ok(())
}

/// Waits in one thread for a plain store of another thread.
#[kernel]
fn wait_for_a_plain_store(ctx: &Ctx, m: Memory) -> Result {
    if Block::current().rank() == 1 {
        ctx.local_one(m.flag).store(0, 1); // first
        return Ok(());
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1) // second
}

/// Waits in one thread for a relaxed store of another thread, which follows a release fence.
#[kernel]
fn wait_for_a_relaxed_store(ctx: &Ctx, m: Memory) -> Result {
    if Block::current().rank() == 1 {
        ctx.local(m.words).store(0, 1);
        ctx.fence_release(FenceScope::Gpu);
        ctx.local_one(m.flag).store_relaxed(0, 1);
        return Ok(());
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    assert_eq!(ctx.local(m.words).load(0), 1);
    Ok(())
}

/// Tests 8 bytes of which another PE puts only 4. Such a test may see half of a value.
#[kernel]
fn test_of_more_than_the_word(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.p(m.words.cast::<u32>().at(0), 1, 1)?; // first
    } else {
        assert!(!ctx.test(m.words.at(0), Cmp::Eq, 5)?); // second
    }
    Ok(())
}
