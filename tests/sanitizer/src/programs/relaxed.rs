//! Programs in which blocks of one PE hand over data through relaxed words and fences.

use rushmem_device::arch;
use rushmem_device::prelude::*;

use crate::program::{Memory, Topic, device};

pub(crate) const TOPIC: Topic = Topic {
    name: "relaxed",
    title: "Relaxed words and fences",
    file: file!(),
    text: include_str!("relaxed.rs"),
    programs: &[
        device("handed_over", handed_over).grid(2, 1),
        device("handed_over_without_release", handed_over_without_release).races().grid(2, 1),
        device("handed_over_without_acquire", handed_over_without_acquire).races().grid(2, 1),
        device("release_before_the_store", release_before_the_store).races().grid(2, 1),
        device("acquire_before_the_loop", acquire_before_the_loop).races().grid(2, 1),
        device("handed_over_with_system_fences", handed_over_with_system_fences).grid(2, 1),
        device("relaxed_words_alone", relaxed_words_alone).grid(2, 1),
        device("relaxed_stores_to_one_word", relaxed_stores_to_one_word).grid(2, 1),
        device("flag_stored_plainly", flag_stored_plainly).races().grid(2, 1),
        device("flag_loaded_plainly", flag_loaded_plainly).races().grid(2, 1),
        device("flag_loaded_plainly_after_acquire", flag_loaded_plainly_after_acquire).grid(2, 1),
        device("chain_of_three_blocks", chain_of_three_blocks).grid(3, 1),
        device("chain_without_acquire_in_the_middle", chain_without_acquire_in_the_middle).races().grid(3, 1),
        device("source_handed_over", source_handed_over).grid(2, 1),
        device("source_handed_over_without_release", source_handed_over_without_release).races().grid(2, 1),
        device("quiet_for_another_block", quiet_for_another_block).grid(2, 1),
        device("quiet_before_the_hand_over_only", quiet_before_the_hand_over_only).races().grid(2, 1),
        device("relaxed_loop_on_a_put_flag", relaxed_loop_on_a_put_flag),
        device("relaxed_loop_on_a_put_flag_without_acquire", relaxed_loop_on_a_put_flag_without_acquire)
            .races(),
        device("relaxed_store_ends_a_wait", relaxed_store_ends_a_wait).grid(2, 1),
    ],
};

/// Polls a word with relaxed loads until it is not zero.
#[inline(always)]
#[track_caller]
fn await_relaxed(ctx: &Ctx, word: Sym<u64>) {
    while ctx.local_one(word).load_relaxed(0) == 0 {
        arch::spin();
    }
}

/// Stores data, releases it by a fence, and sets a relaxed word. Another block sees the word and performs an acquire
/// fence.
#[kernel]
fn handed_over(ctx: &Ctx, m: Memory) {
    if Block::current().id() == 0 {
        ctx.local(m.words).store(0, 7);
        ctx.fence_release(FenceScope::Gpu);
        ctx.local_one(m.flag).store_relaxed(0, 1);
    } else {
        await_relaxed(ctx, m.flag);
        ctx.fence_acquire(FenceScope::Gpu);
        assert_eq!(ctx.local(m.words).load(0), 7);
    }
}

/// Hands over data to another block through a relaxed word, without the release fence.
#[kernel]
fn handed_over_without_release(ctx: &Ctx, m: Memory) {
    if Block::current().id() == 0 {
        ctx.local(m.words).store(0, 7); // first
        ctx.local_one(m.flag).store_relaxed(0, 1);
    } else {
        await_relaxed(ctx, m.flag);
        ctx.fence_acquire(FenceScope::Gpu);
        let _ = ctx.local(m.words).load(0); // second
    }
}

/// Hands over data to another block through a relaxed word, without the acquire fence.
#[kernel]
fn handed_over_without_acquire(ctx: &Ctx, m: Memory) {
    if Block::current().id() == 0 {
        ctx.local(m.words).store(0, 7); // first
        ctx.fence_release(FenceScope::Gpu);
        ctx.local_one(m.flag).store_relaxed(0, 1);
    } else {
        await_relaxed(ctx, m.flag);
        let _ = ctx.local(m.words).load(0); // second
    }
}

/// Hands over data to another block, with a release fence that precedes the store of the data.
#[kernel]
fn release_before_the_store(ctx: &Ctx, m: Memory) {
    if Block::current().id() == 0 {
        ctx.fence_release(FenceScope::Gpu);
        ctx.local(m.words).store(0, 7); // first
        ctx.local_one(m.flag).store_relaxed(0, 1);
    } else {
        await_relaxed(ctx, m.flag);
        ctx.fence_acquire(FenceScope::Gpu);
        let _ = ctx.local(m.words).load(0); // second
    }
}

/// Hands over data to another block, which performs the acquire fence before the loop that polls the word.
#[kernel]
fn acquire_before_the_loop(ctx: &Ctx, m: Memory) {
    if Block::current().id() == 0 {
        ctx.local(m.words).store(0, 7); // first
        ctx.fence_release(FenceScope::Gpu);
        ctx.local_one(m.flag).store_relaxed(0, 1);
    } else {
        ctx.fence_acquire(FenceScope::Gpu);
        await_relaxed(ctx, m.flag);
        let _ = ctx.local(m.words).load(0); // second
    }
}

/// Hands over data to another block with release and acquire fences of system scope.
#[kernel]
fn handed_over_with_system_fences(ctx: &Ctx, m: Memory) {
    if Block::current().id() == 0 {
        ctx.local(m.words).store(0, 7);
        ctx.fence_system();
        ctx.local_one(m.flag).store_relaxed(0, 1);
    } else {
        await_relaxed(ctx, m.flag);
        ctx.fence_system();
        assert_eq!(ctx.local(m.words).load(0), 7);
    }
}

/// Stores and loads one relaxed word in two blocks, without other data.
#[kernel]
fn relaxed_words_alone(ctx: &Ctx, m: Memory) {
    if Block::current().id() == 0 {
        ctx.local_one(m.flag).store_relaxed(0, 1);
    } else {
        assert!(ctx.local_one(m.flag).load_relaxed(0) <= 1);
    }
}

/// Stores to one relaxed word from two blocks.
#[kernel]
fn relaxed_stores_to_one_word(ctx: &Ctx, m: Memory) -> Result {
    let me = u64::from(Block::current().id());
    ctx.local_one(m.flag).store_relaxed(0, me + 1);
    ctx.sync_grid(Block::current())?;
    assert_ne!(ctx.local_one(m.flag).load(0), 0);
    Ok(())
}

/// Hands over data to another block through a flag that is set by a plain store.
#[kernel]
fn flag_stored_plainly(ctx: &Ctx, m: Memory) {
    if Block::current().id() == 0 {
        ctx.local_one(m.flag).store(0, 1); // first
    } else {
        let _ = ctx.local_one(m.flag).load_relaxed(0); // second
    }
}

/// Hands over data to another block, which polls the flag by plain loads.
#[kernel]
fn flag_loaded_plainly(ctx: &Ctx, m: Memory) {
    if Block::current().id() == 0 {
        ctx.local_one(m.flag).store_relaxed(0, 1); // first
    } else {
        let _ = ctx.local_one(m.flag).load(0); // second
    }
}

/// Loads the flag by a plain load, after polling it with relaxed loads and an acquire fence.
#[kernel]
fn flag_loaded_plainly_after_acquire(ctx: &Ctx, m: Memory) {
    if Block::current().id() == 0 {
        ctx.local_one(m.flag).store_relaxed(0, 1);
    } else {
        await_relaxed(ctx, m.flag);
        ctx.fence_acquire(FenceScope::Gpu);
        assert_eq!(ctx.local_one(m.flag).load(0), 1);
    }
}

/// Passes data from block 0 through block 1 to block 2, with a release and an acquire fence at each hop.
#[kernel]
fn chain_of_three_blocks(ctx: &Ctx, m: Memory) {
    match Block::current().id() {
        0 => {
            ctx.local(m.words).store(0, 7);
            ctx.fence_release(FenceScope::Gpu);
            ctx.local_one(m.flag).store_relaxed(0, 1);
        }
        1 => {
            await_relaxed(ctx, m.flag);
            ctx.fence_acquire(FenceScope::Gpu);
            ctx.fence_release(FenceScope::Gpu);
            ctx.local_one(m.answer).store_relaxed(0, 1);
        }
        _ => {
            await_relaxed(ctx, m.answer);
            ctx.fence_acquire(FenceScope::Gpu);
            assert_eq!(ctx.local(m.words).load(0), 7);
        }
    }
}

/// Passes data from block 0 through block 1 to block 2, without an acquire fence in block 1.
#[kernel]
fn chain_without_acquire_in_the_middle(ctx: &Ctx, m: Memory) {
    match Block::current().id() {
        0 => {
            ctx.local(m.words).store(0, 7); // first
            ctx.fence_release(FenceScope::Gpu);
            ctx.local_one(m.flag).store_relaxed(0, 1);
        }
        1 => {
            await_relaxed(ctx, m.flag);
            ctx.fence_release(FenceScope::Gpu);
            ctx.local_one(m.answer).store_relaxed(0, 1);
        }
        _ => {
            await_relaxed(ctx, m.answer);
            ctx.fence_acquire(FenceScope::Gpu);
            let _ = ctx.local(m.words).load(0); // second
        }
    }
}

/// Writes the source of a put in block 0, and puts it in block 1 after release and acquire fences.
#[kernel]
fn source_handed_over(ctx: &Ctx, m: Memory) -> Result {
    if Block::current().id() == 0 {
        ctx.local(m.outbox).store(0, 7);
        ctx.fence_release(FenceScope::Gpu);
        ctx.local_one(m.flag).store_relaxed(0, 1);
        return Ok(());
    }
    await_relaxed(ctx, m.flag);
    ctx.fence_acquire(FenceScope::Gpu);
    ctx.put(Thread, m.inbox, m.outbox, ctx.pe_after(1))?;
    ctx.barrier_all(Thread)?;
    assert_eq!(ctx.local(m.inbox).load(0), 7);
    Ok(())
}

/// Writes the source of a put in block 0, and puts it in block 1 without a release fence in between.
#[kernel]
fn source_handed_over_without_release(ctx: &Ctx, m: Memory) -> Result {
    if Block::current().id() == 0 {
        ctx.local(m.outbox).store(0, 7); // first
        ctx.local_one(m.flag).store_relaxed(0, 1);
        return Ok(());
    }
    await_relaxed(ctx, m.flag);
    ctx.fence_acquire(FenceScope::Gpu);
    ctx.put(Thread, m.inbox, m.outbox, ctx.pe_after(1)) // second
}

/// Puts in block 0. Block 1 learns of it, completes it and stores to the source.
#[kernel]
fn quiet_for_another_block(ctx: &Ctx, m: Memory) -> Result {
    if Block::current().id() == 0 {
        ctx.put_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1))?;
        ctx.fence_release(FenceScope::Gpu);
        ctx.local_one(m.flag).store_relaxed(0, 1);
        return Ok(());
    }
    await_relaxed(ctx, m.flag);
    ctx.fence_acquire(FenceScope::Gpu);
    ctx.quiet(Thread)?;
    ctx.local(m.outbox).store(0, 1);
    Ok(())
}

/// Puts in block 0. Block 1 calls `quiet` before it learns of the put, and stores to the source.
#[kernel]
fn quiet_before_the_hand_over_only(ctx: &Ctx, m: Memory) -> Result {
    if Block::current().id() == 0 {
        ctx.put_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1))?; // first
        ctx.fence_release(FenceScope::Gpu);
        ctx.local_one(m.flag).store_relaxed(0, 1);
        return Ok(());
    }
    ctx.quiet(Thread)?;
    await_relaxed(ctx, m.flag);
    ctx.fence_acquire(FenceScope::Gpu);
    ctx.local(m.outbox).store(0, 1); // second
    Ok(())
}

/// Polls the flag of a put with relaxed loads, and performs an acquire fence before loading the data.
#[kernel]
fn relaxed_loop_on_a_put_flag(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?;
        ctx.fence()?;
        return ctx.p(m.flag, 1, 1);
    }
    await_relaxed(ctx, m.flag);
    ctx.fence_acquire(FenceScope::System);
    assert_eq!(ctx.local(m.inbox).load(0), 10);
    Ok(())
}

/// Polls the flag of a put with relaxed loads, and loads the data without an acquire fence.
#[kernel]
fn relaxed_loop_on_a_put_flag_without_acquire(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?; // first
        ctx.fence()?;
        return ctx.p(m.flag, 1, 1);
    }
    await_relaxed(ctx, m.flag);
    let _ = ctx.local(m.inbox).load(0); // second
    Ok(())
}

/// Satisfies the wait of another block by a relaxed store. A wait includes an acquire fence.
#[kernel]
fn relaxed_store_ends_a_wait(ctx: &Ctx, m: Memory) -> Result {
    if Block::current().id() == 0 {
        ctx.local(m.words).store(0, 7);
        ctx.fence_release(FenceScope::Gpu);
        ctx.local_one(m.flag).store_relaxed(0, 1);
        return Ok(());
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    assert_eq!(ctx.local(m.words).load(0), 7);
    Ok(())
}
