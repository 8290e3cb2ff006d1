//! Programs about publication: which earlier stores of a thread a word announces. Signals, `p` and atomics are relaxed,
//! so they announce only what an earlier fence has released. A put with signal and a strong signal release by
//! themselves.

use rushmem::{Operations, Pe};
use rushmem_device::arch;
use rushmem_device::prelude::*;

use crate::program::{Memory, ONE, Topic, device, host};

pub(crate) const TOPIC: Topic = Topic {
    name: "publication",
    title: "Stores that words announce",
    file: file!(),
    text: include_str!("publication.rs"),
    programs: &[
        device("store_announced_by_atomic", store_announced_by_atomic).races(),
        device("store_announced_by_atomic_after_fence", store_announced_by_atomic_after_fence),
        device("store_announced_by_p", store_announced_by_p).races(),
        device("store_announced_by_p_after_fence", store_announced_by_p_after_fence),
        device("store_after_the_fence", store_after_the_fence).races(),
        device("store_announced_by_put_signal", store_announced_by_put_signal),
        device("store_announced_by_signal_strong", store_announced_by_signal_strong),
        device("stores_of_a_block_announced_by_put_signal", stores_of_a_block_announced_by_put_signal)
            .grid(1, 4),
        device("stores_of_a_block_and_quiet", stores_of_a_block_and_quiet).grid(1, 4),
        device("stores_of_a_block_and_fence_of_its_group", stores_of_a_block_and_fence_of_its_group)
            .grid(1, 4),
        device("stores_of_a_block_and_fence_of_one_thread", stores_of_a_block_and_fence_of_one_thread)
            .races()
            .grid(1, 2),
        device("store_passed_on_without_fence", store_passed_on_without_fence).races().pes(3),
        device("store_passed_on_after_fence", store_passed_on_after_fence).pes(3),
        device("update_keeps_what_an_earlier_one_announces", update_keeps_what_an_earlier_one_announces)
            .pes(3),
        device("set_drops_what_an_earlier_update_announces", set_drops_what_an_earlier_update_announces)
            .races()
            .pes(3),
        device("last_block_sends_all_parts", last_block_sends_all_parts).grid(2, 1),
        device("last_block_without_release", last_block_without_release).races().grid(2, 1),
        device("last_block_without_acquire", last_block_without_acquire).races().grid(2, 1),
        device("last_block_with_fences_of_block_scope", last_block_with_fences_of_block_scope)
            .races()
            .grid(2, 1),
        device("release_to_the_gpu_seen_by_a_peer", release_to_the_gpu_seen_by_a_peer).races(),
        device("acquire_from_the_gpu_of_a_peers_word", acquire_from_the_gpu_of_a_peers_word).races(),
        device("fence_of_block_scope_within_a_block", fence_of_block_scope_within_a_block).grid(1, 2),
        device("fence_of_block_scope_between_blocks", fence_of_block_scope_between_blocks).races().grid(2, 1),
        device("wait_in_one_thread_load_in_another", wait_in_one_thread_load_in_another).grid(1, 2),
        device("put_seen_by_another_block", put_seen_by_another_block).races().grid(2, 1),
        device("block_told_by_a_relaxed_store", block_told_by_a_relaxed_store).races().grid(2, 1),
        device("block_told_after_fences", block_told_after_fences).grid(2, 1),
        device("put_of_another_block_announced_without_fence", put_of_another_block_announced_without_fence)
            .races()
            .grid(2, 1),
        device("put_of_another_block_announced_after_fence", put_of_another_block_announced_after_fence)
            .grid(2, 1),
        device("fetched_count_without_acquire", fetched_count_without_acquire).races(),
        device("fetched_count_with_acquire", fetched_count_with_acquire),
        device("store_buffering_between_quiets", store_buffering_between_quiets),
        host("store_of_the_kernel_before", store_of_the_kernel_before).races(),
        host("store_of_the_kernel_before_after_fence", store_of_the_kernel_before_after_fence),
        host("store_of_a_kernel_announced_by_the_stream", store_of_a_kernel_announced_by_the_stream),
        host("store_of_a_kernel_announced_by_the_host", store_of_a_kernel_announced_by_the_host),
        host("write_of_the_host_announced_by_a_kernel", write_of_the_host_announced_by_a_kernel),
        host("host_waits_for_a_store_to_its_pe", host_waits_for_a_store_to_its_pe),
        host("host_waits_for_an_unfenced_store_to_its_pe", host_waits_for_an_unfenced_store_to_its_pe)
            .races(),
    ],
};

/// Gets the word that PE 0 has stored, and checks it.
#[inline(always)]
#[track_caller]
fn expect_stored(ctx: &Ctx, m: Memory) -> Result {
    assert_eq!(ctx.g(m.words.at(0), 0)?, 7);
    Ok(())
}

/// Polls a word with relaxed loads until it is not zero.
#[inline(always)]
fn await_relaxed(ctx: &Ctx, word: Sym<Signal>) {
    while ctx.local_one(word).load_relaxed(0) == 0 {
        arch::spin();
    }
}

/// Stores a word and increments a counter of the other PE, which gets the word. The atomic publishes nothing.
#[kernel]
fn store_announced_by_atomic(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.local(m.words).store(0, 7); // first
        return ctx.atomic_inc(m.flag, 1);
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    expect_stored(ctx, m) // second
}

/// Stores a word and increments a counter of the other PE after a fence, which publishes the store.
#[kernel]
fn store_announced_by_atomic_after_fence(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.local(m.words).store(0, 7);
        ctx.fence()?;
        return ctx.atomic_inc(m.flag, 1);
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    expect_stored(ctx, m)
}

/// Stores a word and puts a flag to the other PE, which gets the word. The flag publishes nothing.
#[kernel]
fn store_announced_by_p(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.local(m.words).store(0, 7); // first
        return ctx.p(m.flag, 1, 1);
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    expect_stored(ctx, m) // second
}

/// Stores a word and puts a flag to the other PE after a fence.
#[kernel]
fn store_announced_by_p_after_fence(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.local(m.words).store(0, 7);
        ctx.fence()?;
        return ctx.p(m.flag, 1, 1);
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    expect_stored(ctx, m)
}

/// Stores a word after the fence rather than before it. A fence publishes earlier stores only.
#[kernel]
fn store_after_the_fence(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.fence()?;
        ctx.local(m.words).store(0, 7); // first
        return ctx.signal_op(m.flag.set(1), 1);
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    expect_stored(ctx, m) // second
}

/// Stores a word before a put with signal, which publishes the store.
#[kernel]
fn store_announced_by_put_signal(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.local(m.words).store(0, 7);
        return ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(1), 1);
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    expect_stored(ctx, m)
}

/// Stores a word before a strong signal, which publishes the store.
#[kernel]
fn store_announced_by_signal_strong(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.local(m.words).store(0, 7);
        return ctx.signal_strong(Thread, m.flag.set(1), 1);
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    expect_stored(ctx, m)
}

/// Stores a word in each thread. The put with signal of the block publishes all of them.
#[kernel]
fn stores_of_a_block_announced_by_put_signal(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    if ctx.my_pe() == 0 {
        ctx.local(m.words).store(block.rank() as usize, 7);
        return ctx.put_signal(block, m.inbox, m.outbox, m.flag.set(1), 1);
    }
    ctx.wait_until(block, m.flag, Cmp::Eq, 1)?;
    assert_eq!(ctx.g(m.words.at(block.rank() as usize), 0)?, 7);
    Ok(())
}

/// Stores a word in each thread. After the `quiet` of the block, any thread may announce all of them.
#[kernel]
fn stores_of_a_block_and_quiet(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    if ctx.my_pe() == 0 {
        ctx.local(m.words).store(block.rank() as usize, 7);
        ctx.quiet(block)?;
        return if block.rank() == 3 { ctx.signal_op(m.flag.set(1), 1) } else { Ok(()) };
    }
    ctx.wait_until(block, m.flag, Cmp::Eq, 1)?;
    assert_eq!(ctx.g(m.words.at((block.rank() as usize + 1) % 4), 0)?, 7);
    Ok(())
}

/// Stores a word in each thread. After a fence of the whole group, any thread may announce all of the words.
#[kernel]
fn stores_of_a_block_and_fence_of_its_group(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    if ctx.my_pe() == 0 {
        ctx.local(m.words).store(block.rank() as usize, 7);
        ctx.fence_group(block)?;
        return if block.rank() == 3 { ctx.signal_op(m.flag.set(1), 1) } else { Ok(()) };
    }
    ctx.wait_until(block, m.flag, Cmp::Eq, 1)?;
    assert_eq!(ctx.g(m.words.at((block.rank() as usize + 1) % 4), 0)?, 7);
    Ok(())
}

/// Stores a word and fences in one thread. Another thread sends the signal without a fence.
#[kernel]
fn stores_of_a_block_and_fence_of_one_thread(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    if ctx.my_pe() == 0 {
        if block.leader() {
            ctx.local(m.words).store(0, 7); // first
            ctx.fence()?;
        }
        block.sync();
        return if block.rank() == 1 { ctx.signal_op(m.flag.set(1), 1) } else { Ok(()) };
    }
    if block.leader() {
        ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        expect_stored(ctx, m)?; // second
    }
    Ok(())
}

/// Publishes a word to PE 1, which tells PE 2 without a fence.
#[kernel]
fn store_passed_on_without_fence(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.local(m.words).store(0, 7); // first
        ctx.fence()?;
        return ctx.atomic_inc(m.flag, 1);
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    if ctx.my_pe() == 1 { ctx.atomic_inc(m.flag, 2) } else { expect_stored(ctx, m) } // second
}

/// Publishes a word to PE 1, which tells PE 2 after a fence.
#[kernel]
fn store_passed_on_after_fence(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.local(m.words).store(0, 7);
        ctx.fence()?;
        return ctx.atomic_inc(m.flag, 1);
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    if ctx.my_pe() == 1 {
        ctx.fence()?;
        return ctx.atomic_inc(m.flag, 2);
    }
    expect_stored(ctx, m)
}

/// Increments a counter on two PEs. The second increment publishes nothing, but preserves what the first one published.
#[kernel]
fn update_keeps_what_an_earlier_one_announces(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.local(m.words).store(0, 7);
        ctx.fence()?;
        ctx.atomic_inc(m.flag, 2)?;
        ctx.quiet(Thread)?;
        return ctx.signal_op(m.answer.set(1), 1);
    }
    if ctx.my_pe() == 1 {
        ctx.signal_wait_until(Thread, m.answer, Cmp::Eq, 1)?;
        return ctx.atomic_inc(m.flag, 2);
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 2)?;
    expect_stored(ctx, m)
}

/// Adds to a word by a put with signal. Another PE then overwrites the word, which discards what the put published.
#[kernel]
fn set_drops_what_an_earlier_update_announces(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.add(1), 2)?; // first
        ctx.quiet(Thread)?;
        return ctx.signal_op(m.answer.set(1), 1);
    }
    if ctx.my_pe() == 1 {
        ctx.signal_wait_until(Thread, m.answer, Cmp::Eq, 1)?;
        return ctx.signal_op(m.flag.set(2), 2);
    }
    ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 2)?;
    let _ = ctx.local(m.inbox).load(0); // second
    Ok(())
}

/// Stores a part in each block. The block that a counter identifies as the last sends all of them.
#[kernel]
fn last_block_sends_all_parts(ctx: &Ctx, m: Memory) -> Result {
    ctx.local(m.words).store(Block::current().id() as usize, 7);
    ctx.fence_release(FenceScope::Gpu);
    if ctx.atomic_fetch_add(m.answer, 1, ctx.my_pe())? == 0 {
        return Ok(());
    }
    ctx.fence_acquire(FenceScope::Gpu);
    ctx.put(Thread, m.inbox, m.words, ctx.pe_after(1))
}

/// Stores a part in each block, without the release fence before the counter.
#[kernel]
fn last_block_without_release(ctx: &Ctx, m: Memory) -> Result {
    ctx.local(m.words).store(Block::current().id() as usize, 7); // first
    if ctx.atomic_fetch_add(m.answer, 1, ctx.my_pe())? == 0 {
        return Ok(());
    }
    ctx.fence_acquire(FenceScope::Gpu);
    ctx.put(Thread, m.inbox, m.words, ctx.pe_after(1)) // second
}

/// Stores a part in each block, without the acquire fence after the counter.
#[kernel]
fn last_block_without_acquire(ctx: &Ctx, m: Memory) -> Result {
    ctx.local(m.words).store(Block::current().id() as usize, 7); // first
    ctx.fence_release(FenceScope::Gpu);
    if ctx.atomic_fetch_add(m.answer, 1, ctx.my_pe())? == 0 {
        return Ok(());
    }
    ctx.put(Thread, m.inbox, m.words, ctx.pe_after(1)) // second
}

/// Stores a part in each block, with fences that cover the threads of one block only.
#[kernel]
fn last_block_with_fences_of_block_scope(ctx: &Ctx, m: Memory) -> Result {
    ctx.local(m.words).store(Block::current().id() as usize, 7); // first
    ctx.fence_release(FenceScope::Block);
    if ctx.atomic_fetch_add(m.answer, 1, ctx.my_pe())? == 0 {
        return Ok(());
    }
    ctx.fence_acquire(FenceScope::Block);
    ctx.put(Thread, m.inbox, m.words, ctx.pe_after(1)) // second
}

/// Releases a store to the threads of the same GPU only, then signals a peer by an atomic.
#[kernel]
fn release_to_the_gpu_seen_by_a_peer(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.local(m.words).store(0, 7); // first
        ctx.fence_release(FenceScope::Gpu);
        return ctx.atomic_inc(m.flag, 1);
    }
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    expect_stored(ctx, m) // second
}

/// Loads a word of a peer in a relaxed loop. The acquire fence covers only the threads of the same GPU.
#[kernel]
fn acquire_from_the_gpu_of_a_peers_word(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.local(m.words).store(0, 7); // first
        ctx.fence()?;
        return ctx.atomic_inc(m.flag, 1);
    }
    await_relaxed(ctx, m.flag);
    ctx.fence_acquire(FenceScope::Gpu);
    expect_stored(ctx, m) // second
}

/// Hands over a word within a block. Fences of block scope suffice.
#[kernel]
fn fence_of_block_scope_within_a_block(ctx: &Ctx, m: Memory) {
    if Block::current().leader() {
        ctx.local(m.words).store(0, 7);
        ctx.fence_release(FenceScope::Block);
        ctx.local_one(m.flag).store_relaxed(0, 1);
        return;
    }
    await_relaxed(ctx, m.flag);
    ctx.fence_acquire(FenceScope::Block);
    assert_eq!(ctx.local(m.words).load(0), 7);
}

/// Hands over a word to another block, with a release that covers the same block only.
#[kernel]
fn fence_of_block_scope_between_blocks(ctx: &Ctx, m: Memory) {
    if Block::current().id() == 0 {
        ctx.local(m.words).store(0, 7); // first
        ctx.fence_release(FenceScope::Block);
        ctx.local_one(m.flag).store_relaxed(0, 1);
        return;
    }
    await_relaxed(ctx, m.flag);
    ctx.fence_acquire(FenceScope::Gpu);
    let _ = ctx.local(m.words).load(0); // second
}

/// Waits for a signal in one thread, and loads the data in another thread after a barrier of the block.
#[kernel]
fn wait_in_one_thread_load_in_another(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    if ctx.my_pe() == 0 {
        return ctx.put_signal(block, m.inbox, m.outbox, m.flag.set(1), 1);
    }
    if block.leader() {
        ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    }
    block.sync();
    assert_eq!(ctx.local(m.inbox).load(block.rank() as usize), 10 + u64::from(block.rank()));
    Ok(())
}

/// Waits for a signal in one block. Another block loads the data without a barrier of the grid.
#[kernel]
fn put_seen_by_another_block(ctx: &Ctx, m: Memory) -> Result {
    let is_first = Block::current().id() == 0;
    if ctx.my_pe() == 0 && is_first {
        ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(1), 1)?; // first
        ctx.signal_wait_until(Thread, m.answer, Cmp::Eq, 1)?;
        return ctx.signal_op(m.words.cast::<Signal>().at(0).set(1), 1);
    }
    if ctx.my_pe() == 0 {
        return Ok(());
    }
    if is_first {
        ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        ctx.signal_op(m.answer.set(1), 0)?;
        return Ok(());
    }
    while ctx.local_one(m.words.cast::<Signal>().at(0)).load_relaxed(0) == 0 {
        arch::spin();
    }
    let _ = ctx.local(m.inbox).load(0); // second
    Ok(())
}

/// Waits for a signal in one block, which tells another block by a relaxed store without fences.
#[kernel]
fn block_told_by_a_relaxed_store(ctx: &Ctx, m: Memory) -> Result {
    let is_first = Block::current().id() == 0;
    if ctx.my_pe() == 0 {
        return if is_first {
            ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(1), 1) // first
        } else {
            Ok(())
        };
    }
    if is_first {
        ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        ctx.local_one(m.answer).store_relaxed(0, 1);
    } else {
        await_relaxed(ctx, m.answer);
        let _ = ctx.local(m.inbox).load(0); // second
    }
    Ok(())
}

/// Waits for a signal in one block, which tells another block between fences.
#[kernel]
fn block_told_after_fences(ctx: &Ctx, m: Memory) -> Result {
    let is_first = Block::current().id() == 0;
    if ctx.my_pe() == 0 {
        return if is_first { ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.set(1), 1) } else { Ok(()) };
    }
    if is_first {
        ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        ctx.fence_release(FenceScope::Gpu);
        ctx.local_one(m.answer).store_relaxed(0, 1);
    } else {
        await_relaxed(ctx, m.answer);
        ctx.fence_acquire(FenceScope::Gpu);
        assert_eq!(ctx.local(m.inbox).load(0), 10);
    }
    Ok(())
}

/// Puts in one block. Another block learns of it, and increments a counter without a fence.
#[kernel]
fn put_of_another_block_announced_without_fence(ctx: &Ctx, m: Memory) -> Result {
    let is_first = Block::current().id() == 0;
    if ctx.my_pe() == 0 && is_first {
        ctx.put_nbi(Thread, m.inbox, m.outbox, 1)?; // first
        ctx.fence_release(FenceScope::Gpu);
        ctx.local_one(m.answer).store_relaxed(0, 1);
    } else if ctx.my_pe() == 0 {
        await_relaxed(ctx, m.answer);
        ctx.fence_acquire(FenceScope::Gpu);
        ctx.atomic_inc(m.flag, 1)?;
    } else if is_first {
        ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        let _ = ctx.local(m.inbox).load(0); // second
    }
    Ok(())
}

/// Puts in one block. Another block learns of it, and increments a counter after a fence.
#[kernel]
fn put_of_another_block_announced_after_fence(ctx: &Ctx, m: Memory) -> Result {
    let is_first = Block::current().id() == 0;
    if ctx.my_pe() == 0 && is_first {
        ctx.put_nbi(Thread, m.inbox, m.outbox, 1)?;
        ctx.fence_release(FenceScope::Gpu);
        ctx.local_one(m.answer).store_relaxed(0, 1);
    } else if ctx.my_pe() == 0 {
        await_relaxed(ctx, m.answer);
        ctx.fence_acquire(FenceScope::Gpu);
        ctx.fence()?;
        ctx.atomic_inc(m.flag, 1)?;
    } else if is_first {
        ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        assert_eq!(ctx.local(m.inbox).load(0), 10);
    }
    Ok(())
}

/// Fetches a counter until it has the wanted value. An atomic does not acquire.
#[kernel]
fn fetched_count_without_acquire(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        return ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.add(1), 1); // first
    }
    while ctx.atomic_fetch(m.flag, 1)? == 0 {
        arch::spin();
    }
    let _ = ctx.local(m.inbox).load(0); // second
    Ok(())
}

/// Fetches a counter until it has the wanted value, and performs an acquire fence.
#[kernel]
fn fetched_count_with_acquire(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        return ctx.put_signal(Thread, m.inbox, m.outbox, m.flag.add(1), 1);
    }
    while ctx.atomic_fetch(m.flag, 1)? == 0 {
        arch::spin();
    }
    ctx.fence_acquire(FenceScope::System);
    assert_eq!(ctx.local(m.inbox).load(0), 10);
    Ok(())
}

/// Sets a word on the other PE and then fetches its own word, on both PEs. At least one PE sees the other's value.
#[kernel]
fn store_buffering_between_quiets(ctx: &Ctx, m: Memory) -> Result {
    let other = ctx.pe_after(1);
    ctx.atomic_set(m.flag, 1, other)?;
    ctx.quiet(Thread)?;
    let seen = ctx.atomic_fetch(m.flag, ctx.my_pe())?;
    ctx.local(m.words).store(0, seen);
    ctx.barrier_all(Thread)?;
    assert!(seen + ctx.g(m.words.at(0), other)? > 0);
    Ok(())
}

/// Stores in a kernel. The stream's next kernel increments a counter, which does not publish the first kernel's store.
fn store_of_the_kernel_before(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    if pe.my_pe() == 0 {
        let stream = pe.stream()?;
        stream.launch(ONE, store_in_kernel(m))?;
        stream.launch(ONE, increment(m))?;
        return stream.wait();
    }
    pe.run(ONE, wait_and_get(m))
}

#[kernel]
fn store_in_kernel(ctx: &Ctx, m: Memory) {
    ctx.local(m.words).store(0, 7); // first
}

#[kernel]
fn increment(ctx: &Ctx, m: Memory) -> Result {
    ctx.atomic_inc(m.flag, 1)
}

#[kernel]
fn wait_and_get(ctx: &Ctx, m: Memory) -> Result {
    ctx.wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    expect_stored(ctx, m) // second
}

/// Stores in a kernel. The stream's next kernel publishes the store by a fence.
fn store_of_the_kernel_before_after_fence(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    if pe.my_pe() == 0 {
        let stream = pe.stream()?;
        stream.launch(ONE, store_in_kernel(m))?;
        stream.launch(ONE, fence_and_increment(m))?;
        return stream.wait();
    }
    pe.run(ONE, wait_and_get(m))
}

#[kernel]
fn fence_and_increment(ctx: &Ctx, m: Memory) -> Result {
    ctx.fence()?;
    ctx.atomic_inc(m.flag, 1)
}

/// Stores in a kernel. A signal of the stream publishes the store, because the runtime's kernels start with a fence.
fn store_of_a_kernel_announced_by_the_stream(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    if pe.my_pe() == 0 {
        let stream = pe.stream()?;
        stream.launch(ONE, store_in_kernel(m))?;
        stream.signal_op(m.flag.set(1), 1)?;
        return stream.wait();
    }
    pe.run(ONE, wait_and_get(m))
}

/// Stores in a kernel. A signal of the host publishes the store.
fn store_of_a_kernel_announced_by_the_host(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    if pe.my_pe() == 0 {
        pe.run(ONE, store_in_kernel(m))?;
        return pe.signal_op(m.flag.set(1), 1);
    }
    pe.run(ONE, wait_and_get(m))
}

/// Writes on the host, then launches a kernel that increments a counter. The write was published when it returned.
fn write_of_the_host_announced_by_a_kernel(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    if pe.my_pe() == 0 {
        pe.write(m.words, &[7; 8])?;
        return pe.run(ONE, increment(m));
    }
    pe.run(ONE, wait_and_get(m))
}

/// Stores to the memory of a P2P peer, fences, and sets a flag for which the peer's host waits.
fn host_waits_for_a_store_to_its_pe(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    if pe.my_pe() == 0 {
        return pe.run(ONE, store_to_peer_and_fence(m));
    }
    pe.wait_until(m.flag, Cmp::Eq, 1)?;
    assert!([0, 7].contains(&pe.read(m.words)?[0]));
    Ok(())
}

#[kernel]
fn store_to_peer_and_fence(ctx: &Ctx, m: Memory) -> Result {
    if let Some(there) = ctx.ptr(m.words, 1) {
        there.store(0, 7);
    }
    ctx.fence()?;
    ctx.p(m.flag, 1, 1)
}

/// Stores to the memory of a P2P peer without a fence, and sets a flag for which the peer's host waits.
fn host_waits_for_an_unfenced_store_to_its_pe(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    if pe.my_pe() == 0 {
        return pe.run(ONE, store_to_peer(m));
    }
    pe.wait_until(m.flag, Cmp::Eq, 1)?;
    let _ = pe.read(m.words)?; // second
    Ok(())
}

#[kernel]
fn store_to_peer(ctx: &Ctx, m: Memory) -> Result {
    if let Some(there) = ctx.ptr(m.words, 1) {
        there.store(0, 7); // first
    }
    ctx.p(m.flag, 1, 1)
}
