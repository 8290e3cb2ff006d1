//! Test kernels of plain loads and stores, and of shared memory.

use rushmem_device::prelude::*;

/// Reverses each block's piece of `data` by way of shared memory.
#[kernel]
pub fn reverse(ctx: &Ctx, data: SymSlice<u64>) {
    let block = Block::current();
    let (all, shared) = (ctx.local(data), ctx.shared::<u64>());
    let (i, n) = (block.rank() as usize, block.size() as usize);
    let base = block.id() as usize * n;
    shared.store(i, all.load(base + i));
    block.sync();
    all.store(base + i, shared.load(n - 1 - i));
}

/// Swaps the elements of each pair in `data`, and stores the lengths of views in `lens`.
#[kernel]
pub fn swap_neighbours(ctx: &Ctx, data: SymSlice<u8>, one: Sym<f64>, lens: SymSlice<u64>) {
    let view = ctx.local(data);
    let mut i = 2 * Thread::index();
    while i + 1 < view.len() {
        let (a, b) = (view.load(i), view.load(i + 1));
        view.store(i, b);
        view.store(i + 1, a);
        i += 2 * Thread::count();
    }
    if Thread::index() == 0 {
        let single = ctx.local_one(one);
        single.store(0, single.load(0) * 2.0);
        let lens = ctx.local(lens);
        lens.store(0, view.len() as u64);
        lens.store(1, single.len() as u64);
        lens.store(2, ctx.shared::<u32>().len() as u64);
        lens.store(3, ctx.local(data.slice(0..0)).is_empty() as u64);
    }
}
