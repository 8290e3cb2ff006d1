//! Kernels for the tests of streams and host-initiated operations.

use rushmem_device::prelude::*;

/// Stores `value` to all elements of this PE's `data`.
#[kernel]
pub fn fill_with(ctx: &Ctx, data: SymSlice<u64>, value: u64) {
    let data = ctx.local(data);
    let mut i = Thread::index();
    while i < data.len() {
        data.store(i, value);
        i += Thread::count();
    }
}

/// Adds the number of elements of `data` that differ from `value` to this PE's `bad`.
#[kernel]
pub fn expect(ctx: &Ctx, data: SymSlice<u64>, value: u64, bad: Sym<u64>) -> Result {
    count_others(ctx, data, value, bad)
}

#[inline(always)]
fn count_others(ctx: &Ctx, data: SymSlice<u64>, value: u64, bad: Sym<u64>) -> Result {
    let data = ctx.local(data);
    let mut wrong = 0;
    let mut i = Thread::index();
    while i < data.len() {
        wrong += u64::from(data.load(i) != value);
        i += Thread::count();
    }
    if wrong != 0 { ctx.atomic_add(bad, wrong, ctx.my_pe()) } else { Ok(()) }
}

/// Waits in one thread of each block until this PE's `word` is `value`. Uses no shared memory.
#[kernel]
pub fn wait_in_all_blocks(ctx: &Ctx, word: Sym<u64>, value: u64) -> Result {
    if Block::current().leader() { ctx.wait_until(Thread, word, Cmp::Eq, value) } else { Ok(()) }
}

/// Puts `value` (0 to 255) to this PE's `word` by way of a thread-local table. The table exceeds the local memory that
/// a GPU initially reserves per thread. `step` must be odd.
#[kernel]
pub fn look_up(ctx: &Ctx, word: Sym<u64>, value: u64, step: u64) -> Result {
    let found = tabulated(value, step);
    if Thread::index() == 0 { ctx.p(word, found, ctx.my_pe()) } else { Ok(()) }
}

#[inline(never)]
fn tabulated(value: u64, step: u64) -> u64 {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        table[(i * step % 256) as usize] = i;
        i += 1;
    }
    table[(value * step % 256) as usize]
}

/// Increments this PE's round number in `round` and fills `data` with it. Runs as one block.
#[kernel]
pub fn next_round(ctx: &Ctx, round: Sym<u64>, data: SymSlice<u64>) {
    let (block, count) = (Block::current(), ctx.local_one(round));
    let now = count.load(0) + 1;
    block.sync();
    if block.leader() {
        count.store(0, now);
    }
    let data = ctx.local(data);
    let mut i = block.rank() as usize;
    while i < data.len() {
        data.store(i, now);
        i += block.size() as usize;
    }
}

/// Increments this PE's round number in `round`, waits until `signal` reaches it, and checks that `data` holds it. Runs
/// as one block.
#[kernel]
pub fn await_round(
    ctx: &Ctx,
    round: Sym<u64>,
    signal: Sym<Signal>,
    data: SymSlice<u64>,
    bad: Sym<u64>,
) -> Result {
    let (block, count) = (Block::current(), ctx.local_one(round));
    let now = count.load(0) + 1;
    block.sync();
    if block.leader() {
        count.store(0, now);
    }
    ctx.signal_wait_until(block, signal, Cmp::Ge, now)?;
    count_others(ctx, data, now, bad)
}

/// Adds 1 to the word on `pe` from every thread, `times` times.
#[kernel]
pub fn add_often(ctx: &Ctx, word: Sym<u64>, times: u32, pe: u32) -> Result {
    let mut i = 0;
    while i < times {
        ctx.atomic_fetch_add(word, 1, pe)?;
        i += 1;
    }
    Ok(())
}

/// Calls `barrier_all` `times` times. Runs as one block.
#[kernel]
pub fn meet(ctx: &Ctx, times: u32) -> Result {
    let mut i = 0;
    while i < times {
        ctx.barrier_all(Block::current())?;
        i += 1;
    }
    Ok(())
}

/// Puts `value` from every block to the block's element of `cells` on the next PE, and returns without `quiet`.
#[kernel]
pub fn put_cells(ctx: &Ctx, cells: SymSlice<u64>, value: u64) -> Result {
    let block = Block::current();
    if block.leader() { ctx.p(cells.at(block.id() as usize), value, ctx.pe_after(1)) } else { Ok(()) }
}

/// Signals the next block on the next PE from every block, and waits for the previous block on the previous PE.
#[kernel(max_threads = 1024)]
pub fn chain(ctx: &Ctx, signals: SymSlice<Signal>) -> Result {
    let block = Block::current();
    let next = if block.id() + 1 == block.count() { 0 } else { block.id() + 1 };
    if block.leader() {
        ctx.signal_op(signals.at(next as usize).add(1), ctx.pe_after(1))?;
    }
    ctx.signal_wait_until(block, signals.at(block.id() as usize), Cmp::Ge, 1)?;
    ctx.quiet(block)
}

/// Checks barriers over all blocks of all PEs for `rounds` rounds.
///
/// Every block puts to its cell on all PEs. Then the blocks of each PE synchronise, then the PEs, then the blocks
/// again. Every block counts missing cells in `bad`. `cells` has one cell for each block of each PE.
#[kernel]
pub fn meet_with_all_blocks(ctx: &Ctx, cells: SymSlice<u64>, bad: Sym<u64>, rounds: u32) -> Result {
    let block = Block::current();
    let mine = (ctx.my_pe() * block.count() + block.id()) as usize;
    let mut round = 1;
    while round <= u64::from(rounds) {
        if block.leader() {
            let mut pe = 0;
            while pe < ctx.n_pes() {
                ctx.p(cells.at(mine), round, pe)?;
                pe += 1;
            }
        }
        ctx.sync_grid(block)?;
        if block.id() == 0 {
            ctx.barrier_all(block)?;
        }
        ctx.sync_grid(block)?;
        let mut wrong = 0;
        let seen = ctx.local(cells);
        let mut i = block.rank() as usize;
        while i < seen.len() {
            wrong += u64::from(seen.load(i) != round);
            i += block.size() as usize;
        }
        if wrong != 0 {
            ctx.atomic_add(bad, wrong, ctx.my_pe())?;
        }
        ctx.sync_grid(block)?;
        if block.id() == 0 {
            ctx.barrier_all(block)?;
        }
        ctx.sync_grid(block)?;
        round += 1;
    }
    Ok(())
}

/// Puts to a PE that does not exist, which must fail.
#[kernel]
pub fn put_nowhere(ctx: &Ctx, word: Sym<u64>) -> Result {
    if Thread::index() == 0 { ctx.p(word, 1, ctx.n_pes()) } else { Ok(()) }
}
