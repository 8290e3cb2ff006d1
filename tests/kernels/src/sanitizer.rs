//! Test kernels with and without the ordering that the memory model requires. Comments mark the lines that a report of
//! the sanitizer must name.

use rushmem_device::prelude::*;

/// The ordering that a test kernel establishes between its accesses, as a kernel argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Made {
    /// No ordering.
    Nothing,
    /// Calls `fence` before it raises the flag.
    Fence,
    /// Calls `quiet` between the operation and the access that depends on it.
    Quiet,
    /// Announces the data by the signal of the put itself.
    Signal,
    /// Announces the data by a strong signal, which follows all earlier operations.
    AfterAll,
    /// Enters a barrier that completes operations.
    Barrier,
    /// Enters a sync, which completes no operations.
    Sync,
}

/// Puts `src` from PE 0 to `dst` of PE 1, which waits for `flag` and copies `dst` into `seen`.
#[kernel]
pub fn put_and_flag(
    ctx: &Ctx,
    dst: SymSlice<u64>,
    src: SymSlice<u64>,
    flag: Sym<Signal>,
    seen: SymSlice<u64>,
    made: u32,
) -> Result {
    let block = Block::current();
    if ctx.my_pe() == 1 {
        ctx.signal_wait_until(block, flag, Cmp::Ge, 1)?;
        let mut i = block.rank() as usize;
        while i < dst.len() {
            let value = ctx.local(dst).load(i); // flagged load
            ctx.local(seen).store(i, value);
            i += block.size() as usize;
        }
        return Ok(());
    }
    if made == Made::Signal as u32 {
        ctx.put_signal_nbi(block, dst, src, flag.add(1), 1)?;
        return ctx.quiet(block);
    }
    ctx.put_nbi(block, dst, src, 1)?; // flagged put
    if made == Made::Quiet as u32 {
        ctx.quiet(block)?;
    }
    if made == Made::AfterAll as u32 {
        return ctx.signal_strong(block, flag.set(1), 1);
    }
    let mine = if block.leader() { raise(ctx, flag, made) } else { Ok(()) };
    block.agree(mine)
}

/// Sets the flag on PE 1, after a fence if `made` selects one.
fn raise(ctx: &Ctx, flag: Sym<Signal>, made: u32) -> Result {
    if made == Made::Fence as u32 {
        ctx.fence()?;
    }
    ctx.signal_op(flag.set(1), 1)
}

/// Puts `src` to `dst` of the next PE and loads its own `dst`, with or without a collective call in between.
#[kernel]
pub fn put_and_meet(
    ctx: &Ctx,
    dst: SymSlice<u64>,
    src: SymSlice<u64>,
    seen: SymSlice<u64>,
    made: u32,
) -> Result {
    let block = Block::current();
    ctx.put_nbi(block, dst, src, ctx.pe_after(1))?; // met put
    if made == Made::Barrier as u32 {
        ctx.barrier_all(block)?;
    } else if made == Made::Sync as u32 {
        ctx.sync_all(block)?;
    }
    let mut i = block.rank() as usize;
    while i < dst.len() {
        let value = ctx.local(dst).load(i); // met load
        ctx.local(seen).store(i, value);
        i += block.size() as usize;
    }
    Ok(())
}

/// Puts `src` to `dst` of the next PE and overwrites the source, with or without a quiet in between.
#[kernel]
pub fn reuse_source(ctx: &Ctx, dst: SymSlice<u64>, src: SymSlice<u64>, made: u32) -> Result {
    let block = Block::current();
    ctx.put_nbi(block, dst, src, ctx.pe_after(1))?; // reused put
    if made == Made::Quiet as u32 {
        ctx.quiet(block)?;
    }
    if block.leader() {
        ctx.local(src).store(0, 7); // reused store
    }
    Ok(())
}

/// Exchanges numbers between threads through `words`, with a barrier of the block, a barrier of the grid, or none.
#[kernel]
pub fn exchange(ctx: &Ctx, words: SymSlice<u64>, seen: SymSlice<u64>, made: u32) -> Result {
    let (me, count) = (Thread::index(), Thread::count());
    ctx.local(words).store(me, me as u64); // exchanged store
    if made == Made::Barrier as u32 {
        ctx.sync_grid(Block::current())?;
    } else if made == Made::Sync as u32 {
        Block::current().sync();
    }
    let next = (me + 1).checked_rem(count).unwrap_or(0);
    let value = ctx.local(words).load(next); // exchanged load
    ctx.local(seen).store(me, value);
    Ok(())
}

/// Puts a number to PE 0 and increments a counter there. The last PE to arrive reads all numbers.
#[kernel]
pub fn count_in(ctx: &Ctx, parts: SymSlice<u64>, counter: Sym<u64>, total: Sym<u64>, made: u32) -> Result {
    if Thread::index() != 0 {
        return Ok(());
    }
    let me = ctx.my_pe() as usize;
    ctx.p(parts.at(me), me as u64 + 1, 0)?; // counted put
    if made == Made::Quiet as u32 {
        ctx.quiet(Thread)?;
    }
    if ctx.atomic_fetch_add(counter, 1, 0)? + 1 == ctx.n_pes() as u64 {
        ctx.fence_acquire(FenceScope::System);
        let mut sum = 0;
        let mut pe = 0;
        while pe < parts.len() {
            sum += ctx.g(parts.at(pe), 0)?; // counted get
            pe += 1;
        }
        ctx.p(total, sum, ctx.my_pe())?;
        ctx.quiet(Thread)?;
    }
    Ok(())
}

/// Reduces `src` of all PEs into `dst` by a sum, and loads `dst`.
#[kernel]
pub fn sum_and_read(ctx: &Ctx, dst: SymSlice<u64>, src: SymSlice<u64>, seen: SymSlice<u64>) -> Result {
    let block = Block::current();
    if block.leader() {
        ctx.local(src).store(0, ctx.my_pe() as u64);
    }
    ctx.reduce(block, Team::WORLD, Reduce::Sum, dst, src)?;
    if block.leader() {
        ctx.local(seen).store(0, ctx.local(dst).load(0));
    }
    Ok(())
}

/// Waits for `flag` before it raises the flag of the next PE. PE 0 may call a barrier instead.
#[kernel]
pub fn wait_first(ctx: &Ctx, flag: Sym<Signal>, made: u32) -> Result {
    let block = Block::current();
    if made == Made::Barrier as u32 && ctx.my_pe() == 0 {
        ctx.barrier_all(block)?; // missed barrier
    } else {
        ctx.signal_wait_until(block, flag, Cmp::Ge, 1)?; // endless wait
    }
    let mine = if block.leader() { ctx.signal_op(flag.set(1), ctx.pe_after(1)) } else { Ok(()) };
    block.agree(mine)
}
