//! Test kernels of OpenSHMEM locks.

use rushmem_device::prelude::*;

/// Increments a counter on PE 0 by plain gets and puts under the lock, `rounds` times on every PE. In every third round
/// the PE calls `test_lock` first, and counts in `tried` how often that acquired the lock.
#[kernel]
pub fn locked_sum(ctx: &Ctx, lock: Sym<Lock>, counter: Sym<u64>, tried: Sym<u64>, rounds: u32) -> Result {
    if Thread::index() != 0 {
        return Ok(());
    }
    let (tried, mut round, mut third) = (ctx.local_one(tried), 0, 0);
    while round < rounds {
        third = if third == 2 { 0 } else { third + 1 };
        if third == 0 && ctx.test_lock(lock)? {
            tried.store(0, tried.load(0) + 1);
        } else {
            ctx.set_lock(lock)?;
        }
        let sum = ctx.g(counter, 0)?;
        ctx.p(counter, sum + 1, 0)?;
        ctx.clear_lock(lock)?;
        round += 1;
    }
    ctx.sync_all(Thread)
}

/// Acquires the lock and appends this PE's rank plus 1 to the list on PE 0. If `wait` is not 0, holds the lock until
/// `go` is set on this PE.
#[kernel]
pub fn sign_in(
    ctx: &Ctx,
    lock: Sym<Lock>,
    go: Sym<u64>,
    wait: u32,
    count: Sym<u64>,
    list: SymSlice<u32>,
) -> Result {
    if Thread::index() != 0 {
        return Ok(());
    }
    ctx.set_lock(lock)?;
    if wait != 0 {
        ctx.wait_until(Thread, go, Cmp::Ne, 0)?;
    }
    let at = ctx.g(count, 0)?;
    ctx.p(list.at(at as usize), ctx.my_pe() + 1, 0)?;
    ctx.p(count, at + 1, 0)?;
    ctx.clear_lock(lock)
}
