//! Programs with several puts to the same bytes, which must be ordered.

use rushmem_device::prelude::*;

use crate::program::{Memory, Topic, device};

pub(crate) const TOPIC: Topic = Topic {
    name: "overlaps",
    title: "Puts to the same bytes",
    file: file!(),
    text: include_str!("overlaps.rs"),
    programs: &[
        device("puts_of_two_pes", puts_of_two_pes).races().pes(3),
        device("puts_of_two_pes_to_halves", puts_of_two_pes_to_halves).pes(3),
        device("puts_to_two_pes", puts_to_two_pes),
        device("puts_with_one_byte_in_common", puts_with_one_byte_in_common).races().pes(3),
        device("puts_to_adjacent_bytes", puts_to_adjacent_bytes).pes(3),
        device("byte_put_into_words", byte_put_into_words).races().pes(3),
        device("puts_of_two_pes_with_barrier", puts_of_two_pes_with_barrier),
        device("puts_in_turn_without_quiet", puts_in_turn_without_quiet).races().pes(3),
        device("puts_in_turn_with_quiet", puts_in_turn_with_quiet).pes(3),
        device("two_puts_without_fence", two_puts_without_fence).races(),
        device("two_puts_with_fence", two_puts_with_fence),
        device("two_puts_with_quiet", two_puts_with_quiet),
        device("put_signals_without_fence", put_signals_without_fence).races(),
        device("strided_puts_that_overlap", strided_puts_that_overlap).races().pes(3),
        device("strided_puts_that_interleave", strided_puts_that_interleave).pes(3),
        device("threads_put_one_word", threads_put_one_word).races().grid(1, 2),
        device("threads_put_their_words", threads_put_their_words).grid(1, 2),
        device("threads_put_in_turn", threads_put_in_turn).grid(1, 2),
    ],
};

/// Puts to the same memory from two PEs.
#[kernel]
fn puts_of_two_pes(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() != 2 {
        ctx.put(Thread, m.inbox, m.outbox, 2)?; // first and second
    }
    Ok(())
}

/// Puts from two PEs, each to its half of an array.
#[kernel]
fn puts_of_two_pes_to_halves(ctx: &Ctx, m: Memory) -> Result {
    let half = 4 * ctx.my_pe() as usize;
    if ctx.my_pe() != 2 {
        ctx.put(Thread, m.inbox.slice(half..half + 4), m.outbox.slice(0..4), 2)?;
    }
    ctx.barrier_all(Thread)?;
    assert!(ctx.my_pe() != 2 || ctx.local(m.inbox).load(4) == 20);
    Ok(())
}

/// Puts to the same object on two PEs, which have separate copies.
#[kernel]
fn puts_to_two_pes(ctx: &Ctx, m: Memory) -> Result {
    ctx.put(Thread, m.inbox, m.outbox, ctx.pe_after(1))?;
    ctx.barrier_all(Thread)?;
    assert_eq!(ctx.local(m.inbox).load(0), if ctx.my_pe() == 0 { 20 } else { 10 });
    Ok(())
}

/// Puts bytes 0 to 4 from one PE, and bytes 4 to 7 from another one.
#[kernel]
fn puts_with_one_byte_in_common(ctx: &Ctx, m: Memory) -> Result {
    let (to, from) = (m.inbox.cast::<u8>(), m.outbox.cast::<u8>());
    match ctx.my_pe() {
        0 => ctx.put(Thread, to.slice(0..5), from.slice(0..5), 2)?, // first
        1 => ctx.put(Thread, to.slice(4..8), from.slice(4..8), 2)?, // second
        _ => {}
    }
    Ok(())
}

/// Puts bytes 0 to 3 from one PE, and bytes 4 to 7 of the same word from another one.
#[kernel]
fn puts_to_adjacent_bytes(ctx: &Ctx, m: Memory) -> Result {
    let (to, from) = (m.inbox.cast::<u8>(), m.outbox.cast::<u8>());
    match ctx.my_pe() {
        0 => ctx.put(Thread, to.slice(0..4), from.slice(0..4), 2)?,
        1 => ctx.put(Thread, to.slice(4..8), from.slice(0..4), 2)?,
        _ => {}
    }
    ctx.barrier_all(Thread)?;
    assert!(ctx.my_pe() != 2 || ctx.local(m.inbox).load(0) == 10 | 20 << 32);
    Ok(())
}

/// Puts a single byte into a word that another PE puts as part of an array.
#[kernel]
fn byte_put_into_words(ctx: &Ctx, m: Memory) -> Result {
    match ctx.my_pe() {
        0 => ctx.put(Thread, m.inbox, m.outbox, 2)?,   // first
        1 => ctx.p(m.inbox.cast::<u8>().at(9), 1, 2)?, // second
        _ => {}
    }
    Ok(())
}

/// Puts to the same memory from two PEs, with a barrier between the puts.
#[kernel]
fn puts_of_two_pes_with_barrier(ctx: &Ctx, m: Memory) -> Result {
    for sender in 0..2 {
        if ctx.my_pe() == sender {
            ctx.put(Thread, m.inbox, m.outbox, 1)?;
        }
        ctx.barrier_all(Thread)?;
    }
    assert!(ctx.my_pe() == 0 || ctx.local(m.inbox).load(0) == 20);
    Ok(())
}

/// Puts to PE 2 and then lets another PE put there. The fence before the flag does not order deliveries to different
/// PEs.
#[kernel]
fn puts_in_turn_without_quiet(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 2)?; // first
        ctx.fence()?;
        ctx.p(m.flag, 1, 1)?;
    }
    if ctx.my_pe() == 1 {
        ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        ctx.put(Thread, m.inbox, m.outbox, 2)?; // second
    }
    Ok(())
}

/// Puts to PE 2, completes the put, and then tells another PE that it may put to the same memory.
#[kernel]
fn puts_in_turn_with_quiet(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 2)?;
        ctx.quiet(Thread)?;
        ctx.p(m.flag, 1, 1)?;
    }
    if ctx.my_pe() == 1 {
        ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        ctx.put(Thread, m.inbox, m.outbox, 2)?;
    }
    ctx.barrier_all(Thread)?;
    assert!(ctx.my_pe() != 2 || ctx.local(m.inbox).load(0) == 20);
    Ok(())
}

/// Puts twice to the same memory. Either put may arrive last.
#[kernel]
fn two_puts_without_fence(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.words, 1)?; // first
        ctx.put(Thread, m.inbox, m.outbox, 1)?; // second
    }
    Ok(())
}

/// Puts twice to the same memory, with a fence between the puts.
#[kernel]
fn two_puts_with_fence(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.words, 1)?;
        ctx.fence()?;
        ctx.put(Thread, m.inbox, m.outbox, 1)?;
    }
    ctx.barrier_all(Thread)?;
    assert!(ctx.my_pe() == 0 || ctx.local(m.inbox).load(0) == 10);
    Ok(())
}

/// Puts twice to the same memory, with `quiet` between the puts.
#[kernel]
fn two_puts_with_quiet(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_nbi(Thread, m.inbox, m.words, 1)?;
        ctx.quiet(Thread)?;
        ctx.put_nbi(Thread, m.inbox, m.outbox, 1)?;
    }
    ctx.barrier_all(Thread)?;
    assert!(ctx.my_pe() == 0 || ctx.local(m.inbox).load(0) == 10);
    Ok(())
}

/// Puts twice to the same memory, each time with a different signal. Signals do not order puts.
#[kernel]
fn put_signals_without_fence(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_signal(Thread, m.inbox, m.words, m.flag.set(1), 1)?; // first
        ctx.put_signal(Thread, m.inbox, m.outbox, m.answer.set(1), 1)?; // second
    }
    Ok(())
}

/// Puts words 0, 2, 4 and 6 from one PE, and words 1, 4 and 7 from another one.
#[kernel]
fn strided_puts_that_overlap(ctx: &Ctx, m: Memory) -> Result {
    match ctx.my_pe() {
        0 => ctx.iput(Thread, m.inbox.every(2), m.outbox.every(2), 2)?, // first
        1 => ctx.iput(Thread, m.inbox.slice(1..8).every(3), m.outbox.slice(1..8).every(3), 2)?, // second
        _ => {}
    }
    Ok(())
}

/// Puts the even words from one PE, and the odd words from another one.
#[kernel]
fn strided_puts_that_interleave(ctx: &Ctx, m: Memory) -> Result {
    let first = ctx.my_pe() as usize;
    if ctx.my_pe() != 2 {
        let part = first..first + 7;
        ctx.iput(Thread, m.inbox.slice(part.clone()).every(2), m.outbox.slice(part).every(2), 2)?;
    }
    ctx.barrier_all(Thread)?;
    assert!(ctx.my_pe() != 2 || ctx.local(m.inbox).load(1) == 21);
    Ok(())
}

/// Puts to the same word from two threads of a block.
#[kernel]
fn threads_put_one_word(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.p(m.inbox.at(0), 1, 1)?; // first and second
    }
    Ok(())
}

/// Puts to different words from two threads of a block.
#[kernel]
fn threads_put_their_words(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    if ctx.my_pe() == 0 {
        ctx.p(m.inbox.at(block.rank() as usize), 1, 1)?;
    }
    ctx.barrier_all(block)?;
    assert!(ctx.my_pe() == 0 || ctx.local(m.inbox).load(1) == 1);
    Ok(())
}

/// Puts to the same word from two threads of a block, one after the other: fence, barrier, put.
#[kernel]
fn threads_put_in_turn(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    if ctx.my_pe() == 0 && block.rank() == 0 {
        ctx.p(m.inbox.at(0), 1, 1)?;
    }
    ctx.fence_group(block)?;
    if ctx.my_pe() == 0 && block.rank() == 1 {
        ctx.p(m.inbox.at(0), 2, 1)?;
    }
    ctx.barrier_all(block)?;
    assert!(ctx.my_pe() == 0 || ctx.local(m.inbox).load(0) == 2);
    Ok(())
}
