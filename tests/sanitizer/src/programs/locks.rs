//! Programs about locks. Acquiring a lock orders a PE after everything that earlier holders did before they released
//! it.

use rushmem::Pe;
use rushmem_device::arch;
use rushmem_device::prelude::*;

use crate::program::{Memory, ONE, Topic, device, host};

pub(crate) const TOPIC: Topic = Topic {
    name: "locks",
    title: "Locks",
    file: file!(),
    text: include_str!("locks.rs"),
    programs: &[
        device("increments_under_a_lock", increments_under_a_lock),
        device("puts_without_a_lock", puts_without_a_lock).races(),
        device("one_pe_without_the_lock", one_pe_without_the_lock).races(),
        device("put_after_the_lock_is_cleared", put_after_the_lock_is_cleared).races(),
        device("put_before_the_lock_is_set", put_before_the_lock_is_set).races(),
        host("put_in_another_context_under_a_lock", put_in_another_context_under_a_lock).races(),
        host("put_and_quiet_in_another_context_under_a_lock", put_and_quiet_in_another_context_under_a_lock),
        device("two_different_locks", two_different_locks).races(),
        device("stores_and_gets_under_a_lock", stores_and_gets_under_a_lock),
        device("test_of_a_lock_in_a_loop", test_of_a_lock_in_a_loop),
    ],
};

/// Increments a word of PE 0 by get and put, under a lock.
#[kernel]
fn increments_under_a_lock(ctx: &Ctx, m: Memory) -> Result {
    ctx.set_lock(m.lock)?;
    let before = ctx.g(m.words.at(0), 0)?;
    ctx.p(m.words.at(0), before + 1, 0)?;
    ctx.clear_lock(m.lock)?;
    ctx.barrier_all(Thread)?;
    assert_eq!(ctx.g(m.words.at(0), 0)?, 2);
    Ok(())
}

/// Puts to a word of PE 0 from both PEs, without a lock.
#[kernel]
fn puts_without_a_lock(ctx: &Ctx, m: Memory) -> Result {
    ctx.p(m.words.at(0), 1, 0) // first and second
}

/// Puts to a word of PE 0. Only one of the PEs takes the lock.
#[kernel]
fn one_pe_without_the_lock(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.set_lock(m.lock)?;
        ctx.p(m.words.at(0), 1, 0)?; // first
        ctx.clear_lock(m.lock)
    } else {
        ctx.p(m.words.at(0), 2, 0) // second
    }
}

/// Puts to a word of PE 0 after it has released the lock.
#[kernel]
fn put_after_the_lock_is_cleared(ctx: &Ctx, m: Memory) -> Result {
    ctx.set_lock(m.lock)?;
    ctx.clear_lock(m.lock)?;
    ctx.p(m.words.at(0), 1, 0) // first and second
}

/// Puts to a word of PE 0 before it acquires the lock.
#[kernel]
fn put_before_the_lock_is_set(ctx: &Ctx, m: Memory) -> Result {
    ctx.p(m.words.at(0), 1, 0)?; // first and second
    ctx.set_lock(m.lock)?;
    ctx.clear_lock(m.lock)
}

/// Puts in a separate context under a lock, which completes the operations of the default context only.
fn put_in_another_context_under_a_lock(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.run(ONE, put_in_context_under_lock(m, pe.context::<PerGpu>()?))
}

#[kernel]
fn put_in_context_under_lock(ctx: &Ctx, m: Memory, context: Context) -> Result {
    let own = ctx.context(context)?;
    ctx.set_lock(m.lock)?;
    own.p(m.words.at(0), 1, 0)?; // first and second
    ctx.clear_lock(m.lock)?;
    own.quiet(Thread)
}

/// Puts in a separate context under a lock, and completes the put there.
fn put_and_quiet_in_another_context_under_a_lock(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.run(ONE, put_and_quiet_in_context_under_lock(m, pe.context::<PerGpu>()?))
}

#[kernel]
fn put_and_quiet_in_context_under_lock(ctx: &Ctx, m: Memory, context: Context) -> Result {
    let own = ctx.context(context)?;
    ctx.set_lock(m.lock)?;
    own.p(m.words.at(0), 1, 0)?;
    own.quiet(Thread)?;
    ctx.clear_lock(m.lock)
}

/// Puts to a word of PE 0 under a lock, but each PE uses a different lock.
#[kernel]
fn two_different_locks(ctx: &Ctx, m: Memory) -> Result {
    let lock = if ctx.my_pe() == 0 { m.lock } else { m.words.cast::<Lock>().at(0) };
    ctx.set_lock(lock)?;
    ctx.p(m.inbox.at(0), 1, 0)?; // first and second
    ctx.clear_lock(lock)
}

/// Stores on the owner of a word and gets on the other PE, under a lock.
#[kernel]
fn stores_and_gets_under_a_lock(ctx: &Ctx, m: Memory) -> Result {
    ctx.set_lock(m.lock)?;
    if ctx.my_pe() == 0 {
        ctx.local(m.words).store(0, 7);
    } else {
        assert!([0, 7].contains(&ctx.g(m.words.at(0), 0)?));
    }
    ctx.clear_lock(m.lock)
}

/// Tries to acquire the lock until it succeeds.
#[kernel]
fn test_of_a_lock_in_a_loop(ctx: &Ctx, m: Memory) -> Result {
    while !ctx.test_lock(m.lock)? {
        arch::spin();
    }
    let before = ctx.g(m.words.at(0), 0)?;
    ctx.p(m.words.at(0), before + 1, 0)?;
    ctx.clear_lock(m.lock)?;
    ctx.barrier_all(Thread)?;
    assert_eq!(ctx.g(m.words.at(0), 0)?, 2);
    Ok(())
}
