//! Programs about threads, warps, blocks and grids of one PE.

use rushmem_device::prelude::*;

use crate::program::{Memory, Topic, device};

pub(crate) const TOPIC: Topic = Topic {
    name: "threads",
    title: "Threads, warps, blocks and grids",
    file: file!(),
    text: include_str!("threads.rs"),
    programs: &[
        device("threads_without_sync", threads_without_sync).races().grid(1, 2),
        device("threads_with_block_sync", threads_with_block_sync).grid(1, 2),
        device("lanes_with_warp_sync", lanes_with_warp_sync).grid(1, 32),
        device("warps_with_warp_sync", warps_with_warp_sync).races().grid(1, 64),
        device("warps_with_block_sync", warps_with_block_sync).grid(1, 64),
        device("lanes_with_tile_sync", lanes_with_tile_sync).grid(1, 4),
        device("tiles_with_tile_sync", tiles_with_tile_sync).races().grid(1, 4),
        device("lanes_that_agree", lanes_that_agree).grid(1, 2),
        device("result_of_the_leader", result_of_the_leader).grid(1, 2),
        device("blocks_with_block_sync", blocks_with_block_sync).races().grid(2, 1),
        device("blocks_with_grid_sync", blocks_with_grid_sync).grid(2, 1),
        device("put_of_a_group", put_of_a_group).grid(1, 2),
        device("put_of_a_ready_group", put_of_a_ready_group).races().grid(1, 2),
        device("put_of_a_ready_group_after_sync", put_of_a_ready_group_after_sync).grid(1, 2),
        device("put_of_stores_of_another_thread", put_of_stores_of_another_thread).races().grid(1, 2),
        device("put_of_stores_behind_sync", put_of_stores_behind_sync).grid(1, 2),
        device("wait_of_the_leader_alone", wait_of_the_leader_alone).races().grid(1, 2),
        device("wait_of_the_leader_and_sync", wait_of_the_leader_and_sync).grid(1, 2),
        device("wait_of_the_block", wait_of_the_block).grid(1, 2),
        device("quiet_of_the_leader_alone", quiet_of_the_leader_alone).races().grid(1, 2),
        device("quiet_of_the_leader_and_sync", quiet_of_the_leader_and_sync).grid(1, 2),
        device("quiet_of_the_block", quiet_of_the_block).grid(1, 2),
        device("quiet_of_another_block", quiet_of_another_block).races().grid(2, 1),
        device("quiet_of_another_block_after_grid_sync", quiet_of_another_block_after_grid_sync).grid(2, 1),
    ],
};

/// Stores in one thread and loads in another, without a barrier.
#[kernel]
fn threads_without_sync(ctx: &Ctx, m: Memory) {
    if Block::current().rank() == 0 {
        ctx.local(m.words).store(0, 7); // first
    } else {
        let _ = ctx.local(m.words).load(0); // second
    }
}

/// Stores in one thread and loads in another, with a barrier of the block.
#[kernel]
fn threads_with_block_sync(ctx: &Ctx, m: Memory) {
    let block = Block::current();
    let (mine, other) = (block.rank() as usize, 1 - block.rank() as usize);
    ctx.local(m.words).store(mine, 7);
    block.sync();
    assert_eq!(ctx.local(m.words).load(other), 7);
}

/// Stores in one lane and loads in another, with a barrier of the warp.
#[kernel]
fn lanes_with_warp_sync(ctx: &Ctx, m: Memory) {
    let warp = Warp::current();
    if warp.leader() {
        ctx.local(m.words).store(0, 7);
    }
    warp.sync();
    assert_eq!(ctx.local(m.words).load(0), 7);
}

/// Stores in one warp and loads in another. Each warp has a separate barrier.
#[kernel]
fn warps_with_warp_sync(ctx: &Ctx, m: Memory) {
    let thread = Block::current().rank();
    if thread == 0 {
        ctx.local(m.words).store(0, 7); // first
    }
    Warp::current().sync();
    if thread == 32 {
        let _ = ctx.local(m.words).load(0); // second
    }
}

/// Stores in one warp and loads in another, with a barrier of the block.
#[kernel]
fn warps_with_block_sync(ctx: &Ctx, m: Memory) {
    let block = Block::current();
    if block.leader() {
        ctx.local(m.words).store(0, 7);
    }
    block.sync();
    assert_eq!(ctx.local(m.words).load(0), 7);
}

/// Stores and loads in the lanes of a tile, with a barrier of the tile.
#[kernel]
fn lanes_with_tile_sync(ctx: &Ctx, m: Memory) {
    let Some(tile) = Tile::of(2) else { return };
    let at = tile.id() as usize;
    if tile.leader() {
        ctx.local(m.words).store(at, 7);
    }
    tile.sync();
    assert_eq!(ctx.local(m.words).load(at), 7);
}

/// Stores in one tile and loads in another of the same warp. Each tile has a separate barrier.
#[kernel]
fn tiles_with_tile_sync(ctx: &Ctx, m: Memory) {
    let Some(tile) = Tile::of(2) else { return };
    let thread = Block::current().rank();
    if thread == 0 {
        ctx.local(m.words).store(0, 7); // first
    }
    tile.sync();
    if thread == 2 {
        let _ = ctx.local(m.words).load(0); // second
    }
}

/// Stores in one thread and loads in another after `agree`, by which a block agrees on an outcome and which is also a
/// barrier.
#[kernel]
fn lanes_that_agree(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    if block.rank() == 1 {
        ctx.local(m.words).store(0, 7);
    }
    block.agree(Ok(()))?;
    assert_eq!(ctx.local(m.words).load(0), 7);
    Ok(())
}

/// Stores in the block's leader, whose result is shared with the other threads by a call that is also a barrier.
#[kernel]
fn result_of_the_leader(ctx: &Ctx, m: Memory) -> Result {
    let at = Block::current().leader_result(|| {
        ctx.local(m.words).store(5, 7);
        Ok(5)
    })?;
    assert_eq!(ctx.local(m.words).load(at as usize), 7);
    Ok(())
}

/// Stores in one block and loads in another, with a barrier of each block, which does not synchronize the two.
#[kernel]
fn blocks_with_block_sync(ctx: &Ctx, m: Memory) {
    let block = Block::current();
    if block.id() == 0 {
        ctx.local(m.words).store(0, 7); // first
    }
    block.sync();
    if block.id() == 1 {
        let _ = ctx.local(m.words).load(0); // second
    }
}

/// Stores in one block and loads in another, with a barrier of the grid.
#[kernel]
fn blocks_with_grid_sync(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    if block.id() == 0 {
        ctx.local(m.words).store(0, 7);
    }
    ctx.sync_grid(block)?;
    assert_eq!(ctx.local(m.words).load(0), 7);
    Ok(())
}

/// Writes one word of the source in each thread, and puts with the whole group. The put starts with a barrier.
#[kernel]
fn put_of_a_group(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    ctx.local(m.outbox).store(block.rank() as usize, 7);
    ctx.put(block, m.inbox, m.outbox, ctx.pe_after(1))?;
    ctx.barrier_all(block)?;
    assert_eq!(ctx.local(m.inbox).load(1 - block.rank() as usize), 7);
    Ok(())
}

/// Writes one word of the source in each thread, and puts with a group `without_barrier`, which does not synchronize.
#[kernel]
fn put_of_a_ready_group(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    ctx.local(m.outbox).store(block.rank() as usize, 7); // first
    ctx.put_nbi(block.without_barrier(), m.inbox, m.outbox, ctx.pe_after(1))?; // second
    ctx.quiet(block)
}

/// Writes one word of the source in each thread, and puts with a group `without_barrier` after an explicit barrier.
#[kernel]
fn put_of_a_ready_group_after_sync(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    ctx.local(m.outbox).store(block.rank() as usize, 7);
    block.sync();
    ctx.put_nbi(block.without_barrier(), m.inbox, m.outbox, ctx.pe_after(1))?;
    ctx.barrier_all(block)?;
    assert_eq!(ctx.local(m.inbox).load(1 - block.rank() as usize), 7);
    Ok(())
}

/// Writes the source of a put in one thread, and puts it in another without a barrier.
#[kernel]
fn put_of_stores_of_another_thread(ctx: &Ctx, m: Memory) -> Result {
    if Block::current().rank() == 0 {
        ctx.local(m.outbox).store(0, 7); // first
        return Ok(());
    }
    ctx.put(Thread, m.inbox, m.outbox, ctx.pe_after(1)) // second
}

/// Writes the source of a put in one thread, and puts it in another after a barrier.
#[kernel]
fn put_of_stores_behind_sync(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    if block.rank() == 0 {
        ctx.local(m.outbox).store(0, 7);
    }
    block.sync();
    if block.rank() == 1 {
        ctx.put(Thread, m.inbox, m.outbox, ctx.pe_after(1))?;
    }
    ctx.barrier_all(block)?;
    assert_eq!(ctx.local(m.inbox).load(0), 7);
    Ok(())
}

/// Waits for a signal in the leader. The other thread uses the data without a barrier.
#[kernel]
fn wait_of_the_leader_alone(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    if ctx.my_pe() == 0 {
        return ctx.put_signal(block, m.inbox, m.outbox, m.flag.set(1), 1); // first
    }
    if block.leader() {
        ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    } else {
        let _ = ctx.local(m.inbox).load(0); // second
    }
    Ok(())
}

/// Waits for a signal in the leader. The other thread uses the data after a barrier.
#[kernel]
fn wait_of_the_leader_and_sync(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    if ctx.my_pe() == 0 {
        return ctx.put_signal(block, m.inbox, m.outbox, m.flag.set(1), 1);
    }
    if block.leader() {
        ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
    }
    block.sync();
    assert_eq!(ctx.local(m.inbox).load(0), 10);
    Ok(())
}

/// Waits for a signal in the whole block.
#[kernel]
fn wait_of_the_block(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    if ctx.my_pe() == 0 {
        return ctx.put_signal(block, m.inbox, m.outbox, m.flag.set(1), 1);
    }
    ctx.signal_wait_until(block, m.flag, Cmp::Eq, 1)?;
    assert_eq!(ctx.local(m.inbox).load(0), 10);
    Ok(())
}

/// Completes the puts of both threads in the leader. The other thread reuses its source without a barrier.
#[kernel]
fn quiet_of_the_leader_alone(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    if block.rank() == 1 {
        ctx.put_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1))?; // first
    }
    block.sync();
    if block.leader() {
        return ctx.quiet(Thread);
    }
    ctx.local(m.outbox).store(0, 7); // second
    Ok(())
}

/// Completes the puts of both threads in the leader. The other thread reuses its source after a barrier.
#[kernel]
fn quiet_of_the_leader_and_sync(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    if block.rank() == 1 {
        ctx.put_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1))?;
    }
    block.sync();
    let done = if block.leader() { ctx.quiet(Thread) } else { Ok(()) };
    block.agree(done)?;
    if block.rank() == 1 {
        ctx.local(m.outbox).store(0, 7);
    }
    Ok(())
}

/// Puts in each thread, and completes all puts by `quiet` of the block.
#[kernel]
fn quiet_of_the_block(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    let (mine, other) = (block.rank() as usize, 1 - block.rank() as usize);
    ctx.put_nbi(Thread, m.inbox.slice(mine..mine + 1), m.outbox.slice(mine..mine + 1), ctx.pe_after(1))?;
    ctx.quiet(block)?;
    ctx.local(m.outbox).store(other, 7);
    Ok(())
}

/// Puts in block 0. Block 1 calls `quiet` and stores to the source, but is not ordered after the put.
#[kernel]
fn quiet_of_another_block(ctx: &Ctx, m: Memory) -> Result {
    if Block::current().id() == 0 {
        return ctx.put_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1)); // first
    }
    ctx.quiet(Thread)?;
    ctx.local(m.outbox).store(0, 7); // second
    Ok(())
}

/// Puts in block 0. Block 1 calls `quiet` after a barrier of the grid, and stores to the source.
#[kernel]
fn quiet_of_another_block_after_grid_sync(ctx: &Ctx, m: Memory) -> Result {
    let block = Block::current();
    if block.id() == 0 {
        ctx.put_nbi(Thread, m.inbox, m.outbox, ctx.pe_after(1))?;
    }
    ctx.sync_grid(block)?;
    if block.id() == 1 {
        ctx.quiet(Thread)?;
        ctx.local(m.outbox).store(0, 7);
    }
    Ok(())
}
