//! Programs about collective calls. The buffers of a PE belong to the call until it has returned on that PE.

use rushmem_device::prelude::*;

use crate::program::{Memory, Topic, device};

pub(crate) const TOPIC: Topic = Topic {
    name: "collectives",
    title: "Collective calls",
    file: file!(),
    text: include_str!("collectives.rs"),
    programs: &[
        device("calls_in_a_row", calls_in_a_row),
        device("source_reused_after_return", source_reused_after_return),
        device("result_of_reduction_in_place", result_of_reduction_in_place),
        device("blocks_of_a_scattered_sum", blocks_of_a_scattered_sum),
        device("put_to_source_before_call", put_to_source_before_call).races(),
        device("put_to_source_and_quiet_before_call", put_to_source_and_quiet_before_call).races(),
        device("put_to_source_and_barrier_before_call", put_to_source_and_barrier_before_call),
        device("put_to_result_before_call", put_to_result_before_call).races(),
        device("put_to_result_and_barrier_before_call", put_to_result_and_barrier_before_call),
        device("late_put_to_result_and_quiet_before_call", late_put_to_result_and_quiet_before_call)
            .races()
            .pes(3),
        device("put_to_result_after_return", put_to_result_after_return).races(),
        device("put_to_result_after_sync", put_to_result_after_sync),
        device("get_of_result_after_return", get_of_result_after_return).races(),
        device("get_of_result_after_sync", get_of_result_after_sync),
        device("get_of_result_after_next_call_without_sync", get_of_result_after_next_call_without_sync)
            .races(),
        device("get_of_result_after_next_call", get_of_result_after_next_call),
        device("put_to_source_of_another_after_return", put_to_source_of_another_after_return).races(),
        device("put_to_source_of_another_after_sync", put_to_source_of_another_after_sync),
        device("result_loaded_by_another_block", result_loaded_by_another_block).races().grid(2, 1),
        device("result_loaded_after_grid_sync", result_loaded_after_grid_sync).grid(2, 1),
        device("source_stored_by_another_block", source_stored_by_another_block).races().grid(2, 1),
        device("source_stored_before_grid_sync", source_stored_before_grid_sync).grid(2, 1),
        device("result_used_by_another_thread", result_used_by_another_thread).races().grid(1, 2),
        device("result_of_a_group", result_of_a_group).grid(1, 2),
        device("source_of_get_before_call_completes", source_of_get_before_call_completes).races(),
        device("call_as_a_barrier_for_puts", call_as_a_barrier_for_puts).races(),
        device("broadcast_as_a_barrier", broadcast_as_a_barrier).races(),
        device("sync_after_quiet_as_a_barrier", sync_after_quiet_as_a_barrier),
    ],
};

/// Makes several collective calls with the same buffers.
#[kernel]
fn calls_in_a_row(ctx: &Ctx, m: Memory) -> Result {
    ctx.broadcast(Thread, Team::WORLD, m.inbox, m.outbox, 0)?;
    assert_eq!(ctx.local(m.inbox).load(0), 10);
    ctx.fcollect(Thread, Team::WORLD, m.inbox, m.outbox.slice(0..4))?;
    assert_eq!(ctx.local(m.inbox).load(4), 20);
    ctx.alltoall(Thread, Team::WORLD, m.inbox, m.outbox)?;
    assert_eq!(ctx.local(m.inbox).load(4), if ctx.my_pe() == 0 { 20 } else { 24 });
    ctx.reduce(Thread, Team::WORLD, Reduce::Sum, m.inbox, m.outbox)?;
    assert_eq!(ctx.local(m.inbox).load(0), 30);
    ctx.sum_scan(Thread, Team::WORLD, Scan::Inclusive, m.inbox, m.outbox)?;
    assert_eq!(ctx.local(m.inbox).load(0), if ctx.my_pe() == 0 { 10 } else { 30 });
    Ok(())
}

/// Stores to the source of a broadcast after the call has returned.
#[kernel]
fn source_reused_after_return(ctx: &Ctx, m: Memory) -> Result {
    ctx.broadcast(Thread, Team::WORLD, m.inbox, m.outbox, 0)?;
    ctx.local(m.outbox).store(0, 1);
    assert_eq!(ctx.local(m.inbox).load(0), 10);
    Ok(())
}

/// Reduces in place, and loads the result.
#[kernel]
fn result_of_reduction_in_place(ctx: &Ctx, m: Memory) -> Result {
    ctx.reduce(Thread, Team::WORLD, Reduce::Max, m.outbox, m.outbox)?;
    assert_eq!(ctx.local(m.outbox).load(0), 20);
    Ok(())
}

/// Sums all sources, and distributes the blocks of the result over the PEs.
#[kernel]
fn blocks_of_a_scattered_sum(ctx: &Ctx, m: Memory) -> Result {
    ctx.reduce_scatter(Thread, Team::WORLD, Reduce::Sum, m.inbox.slice(0..4), m.outbox)?;
    assert_eq!(ctx.local(m.inbox).load(0), if ctx.my_pe() == 0 { 30 } else { 38 });
    Ok(())
}

/// Puts to the root's source, and does not complete the put before the broadcast.
#[kernel]
fn put_to_source_before_call(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 1 {
        ctx.p(m.outbox.at(0), 1, 0)?; // first
    }
    ctx.broadcast(Thread, Team::WORLD, m.inbox, m.outbox, 0) // second
}

/// Puts to the root's source, and completes the put before the broadcast. The root may send before the put starts.
#[kernel]
fn put_to_source_and_quiet_before_call(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 1 {
        ctx.p(m.outbox.at(0), 1, 0)?; // first
        ctx.quiet(Thread)?;
    }
    ctx.broadcast(Thread, Team::WORLD, m.inbox, m.outbox, 0) // second
}

/// Puts to the root's source, and calls a barrier before the broadcast.
#[kernel]
fn put_to_source_and_barrier_before_call(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 1 {
        ctx.p(m.outbox.at(0), 1, 0)?;
    }
    ctx.barrier_all(Thread)?;
    ctx.broadcast(Thread, Team::WORLD, m.inbox, m.outbox, 0)?;
    assert_eq!(ctx.local(m.inbox).load(0), 1);
    Ok(())
}

/// Puts to the destination of a later collective call without completing the put. It may arrive after the result.
#[kernel]
fn put_to_result_before_call(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.p(m.inbox.at(0), 1, 1)?; // first
    }
    ctx.reduce(Thread, Team::WORLD, Reduce::Sum, m.inbox, m.outbox) // second
}

/// Puts to the destination of a collective call, and calls a barrier before the call.
#[kernel]
fn put_to_result_and_barrier_before_call(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.p(m.inbox.at(0), 1, 1)?;
    }
    ctx.barrier_all(Thread)?;
    ctx.reduce(Thread, Team::WORLD, Reduce::Sum, m.inbox, m.outbox)?;
    assert_eq!(ctx.local(m.inbox).load(0), 30);
    Ok(())
}

/// Puts to PE 1's result buffer, and completes the put before the collective call. PE 1 may have its result before the
/// put starts.
#[kernel]
fn late_put_to_result_and_quiet_before_call(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 2 {
        ctx.p(m.inbox.at(0), 1, 1)?; // first
        ctx.quiet(Thread)?;
    }
    ctx.broadcast(Thread, Team::WORLD, m.inbox, m.outbox, 0) // second
}

/// Puts to another PE's result buffer after a collective call has returned on this PE. The other PE may still be in the
/// call.
#[kernel]
fn put_to_result_after_return(ctx: &Ctx, m: Memory) -> Result {
    ctx.fcollect(Thread, Team::WORLD, m.inbox, m.outbox.slice(0..4))?; // first
    if ctx.my_pe() == 0 {
        ctx.p(m.inbox.at(0), 1, 1)?; // second
    }
    Ok(())
}

/// Puts to another PE's result buffer after a collective call has returned on all PEs.
#[kernel]
fn put_to_result_after_sync(ctx: &Ctx, m: Memory) -> Result {
    ctx.fcollect(Thread, Team::WORLD, m.inbox, m.outbox.slice(0..4))?;
    ctx.sync_all(Thread)?;
    if ctx.my_pe() == 0 {
        ctx.p(m.inbox.at(0), 1, 1)?;
    }
    ctx.barrier_all(Thread)?;
    assert_eq!(ctx.local(m.inbox).load(0), if ctx.my_pe() == 0 { 10 } else { 1 });
    Ok(())
}

/// Gets the result of a collective call from another PE after the call has returned on this PE only.
#[kernel]
fn get_of_result_after_return(ctx: &Ctx, m: Memory) -> Result {
    ctx.alltoall(Thread, Team::WORLD, m.inbox, m.outbox)?; // first
    let _ = ctx.g(m.inbox.at(0), ctx.pe_after(1))?; // second
    Ok(())
}

/// Gets the result of a collective call from another PE after the call has returned on all PEs.
#[kernel]
fn get_of_result_after_sync(ctx: &Ctx, m: Memory) -> Result {
    ctx.alltoall(Thread, Team::WORLD, m.inbox, m.outbox)?;
    ctx.sync_all(Thread)?;
    assert_eq!(ctx.g(m.inbox.at(0), 1)?, 14);
    Ok(())
}

/// Gets the result of a collective call from another PE after the next such call, which only protects its own buffers.
#[kernel]
fn get_of_result_after_next_call_without_sync(ctx: &Ctx, m: Memory) -> Result {
    ctx.alltoall(Thread, Team::WORLD, m.inbox, m.outbox)?; // first
    ctx.broadcast(Thread, Team::WORLD, m.words, m.outbox, 0)?;
    assert_eq!(ctx.g(m.inbox.at(0), 1)?, 14); // second
    Ok(())
}

/// Gets the result of a collective call from another PE after the next such call and a sync of all PEs.
#[kernel]
fn get_of_result_after_next_call(ctx: &Ctx, m: Memory) -> Result {
    ctx.alltoall(Thread, Team::WORLD, m.inbox, m.outbox)?;
    ctx.broadcast(Thread, Team::WORLD, m.words, m.outbox, 0)?;
    ctx.sync_all(Thread)?;
    assert_eq!(ctx.g(m.inbox.at(0), 1)?, 14);
    Ok(())
}

/// Puts to the source of a collective call on another PE after the call has returned on this PE. The other PE may still
/// be sending from it.
#[kernel]
fn put_to_source_of_another_after_return(ctx: &Ctx, m: Memory) -> Result {
    ctx.alltoall(Thread, Team::WORLD, m.inbox, m.outbox)?; // first
    ctx.p(m.outbox.at(0), 1, ctx.pe_after(1)) // second
}

/// Puts to the source of a collective call on another PE after the call has returned on all PEs.
#[kernel]
fn put_to_source_of_another_after_sync(ctx: &Ctx, m: Memory) -> Result {
    ctx.alltoall(Thread, Team::WORLD, m.inbox, m.outbox)?;
    ctx.sync_all(Thread)?;
    ctx.p(m.outbox.at(0), 1, ctx.pe_after(1))?;
    ctx.barrier_all(Thread)?;
    assert_eq!(ctx.local(m.outbox).load(0), 1);
    Ok(())
}

/// Loads the result of a collective call in a block that does not take part in the call.
#[kernel]
fn result_loaded_by_another_block(ctx: &Ctx, m: Memory) -> Result {
    if Block::current().id() == 0 {
        return ctx.reduce(Thread, Team::WORLD, Reduce::Sum, m.inbox, m.outbox); // first
    }
    let _ = ctx.local(m.inbox).load(0); // second
    Ok(())
}

/// Loads the result of a collective call in another block after a barrier of the grid.
#[kernel]
fn result_loaded_after_grid_sync(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    if block.id() == 0 {
        ctx.reduce(Thread, Team::WORLD, Reduce::Sum, m.inbox, m.outbox)?;
    }
    ctx.sync_grid(block)?;
    assert_eq!(ctx.local(m.inbox).load(0), 30);
    Ok(())
}

/// Stores to the source of a collective call in a block that does not take part in the call.
#[kernel]
fn source_stored_by_another_block(ctx: &Ctx, m: Memory) -> Result {
    if Block::current().id() == 0 {
        return ctx.fcollect(Thread, Team::WORLD, m.inbox, m.outbox.slice(0..4)); // first
    }
    ctx.local(m.outbox).store(0, 1); // second
    Ok(())
}

/// Stores to the source of a collective call in another block, before a barrier of the grid that precedes the call.
#[kernel]
fn source_stored_before_grid_sync(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    if block.id() == 1 {
        ctx.local(m.outbox).store(0, 1);
    }
    ctx.sync_grid(block)?;
    if block.id() == 0 {
        ctx.fcollect(Thread, Team::WORLD, m.inbox, m.outbox.slice(0..4))?;
        assert_eq!(ctx.local(m.inbox).load(4), 1);
    }
    Ok(())
}

/// Broadcasts from one thread, and loads the result in another thread without a barrier.
#[kernel]
fn result_used_by_another_thread(ctx: &Ctx, m: Memory) -> Result {
    if Block::current().leader() {
        return ctx.broadcast(Thread, Team::WORLD, m.inbox, m.outbox, 0); // first
    }
    let _ = ctx.local(m.inbox).load(0); // second
    Ok(())
}

/// Calls a collective with a whole block, all threads of which may use the result.
#[kernel]
fn result_of_a_group(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    ctx.broadcast(block, Team::WORLD, m.inbox, m.outbox, 0)?;
    assert_eq!(ctx.local(m.inbox).load(block.rank() as usize), 10 + u64::from(block.rank()));
    Ok(())
}

/// Writes to the source of a get by a collective call, before `quiet` has completed the get.
#[kernel]
fn source_of_get_before_call_completes(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.get_nbi(Thread, m.words, m.inbox, 1)?; // first
    }
    ctx.broadcast(Thread, Team::WORLD, m.inbox, m.outbox, 0)?; // second
    ctx.quiet(Thread)
}

/// Puts, and mistakes a broadcast of other data for a barrier. A collective call completes no puts.
#[kernel]
fn call_as_a_barrier_for_puts(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.p(m.words.at(0), 1, 1)?; // first
    }
    ctx.broadcast(Thread, Team::WORLD, m.inbox, m.outbox, 0)?;
    if ctx.my_pe() == 1 {
        let _ = ctx.local(m.words).load(0); // second
    }
    Ok(())
}

/// Puts, completes the put, and uses a broadcast as a barrier. A call that moves data is not a barrier.
#[kernel]
fn broadcast_as_a_barrier(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.p(m.words.at(0), 1, 1)?; // first
        ctx.quiet(Thread)?;
    }
    ctx.broadcast(Thread, Team::WORLD, m.inbox, m.outbox, 0)?;
    assert!(ctx.my_pe() == 0 || ctx.local(m.words).load(0) == 1); // second
    Ok(())
}

/// Puts, completes the put, and synchronises, which tells the other PE about the put.
#[kernel]
fn sync_after_quiet_as_a_barrier(ctx: &Ctx, m: Memory) -> Result {
    if ctx.my_pe() == 0 {
        ctx.p(m.words.at(0), 1, 1)?;
        ctx.quiet(Thread)?;
    }
    ctx.team_sync(Thread, Team::WORLD)?;
    assert!(ctx.my_pe() == 0 || ctx.local(m.words).load(0) == 1);
    Ok(())
}
