//! Test kernels that query the job, terminate it by `global_exit`, or use a plain launch.

use rushmem_device::info;
use rushmem_device::prelude::*;

/// Number of facts that [`report_job`] stores: this PE, the number of PEs, and the versions of the specification and
/// the library.
pub const FACTS: usize = 7;

/// Stores facts about the job and the library in `facts`, and the library's name in `name`.
#[kernel]
pub fn report_job(ctx: &Ctx, facts: SymSlice<u32>, name: SymSlice<u8>) {
    if !Block::current().leader() {
        return;
    }
    let facts = ctx.local(facts);
    facts.store(0, ctx.my_pe());
    facts.store(1, ctx.n_pes());
    facts.store(2, info::SPECIFICATION.0);
    facts.store(3, info::SPECIFICATION.1);
    facts.store(4, info::VERSION.0);
    facts.store(5, info::VERSION.1);
    facts.store(6, info::VERSION.2);
    let (name, bytes) = (ctx.local(name), info::NAME.to_bytes_with_nul());
    let mut i = 0;
    while let Some(byte) = bytes.get(i) {
        name.store(i, *byte);
        i += 1;
    }
}

/// Calls `global_exit` with `code` in the first block. The other blocks wait for a signal that never arrives.
#[kernel]
pub fn end_the_job(ctx: &Ctx, signal: Sym<Signal>, code: u32) -> Result {
    let block = Block::current();
    if block.id() == 0 {
        return Err(ctx.global_exit(code as u8));
    }
    ctx.signal_wait_until(block, signal, Cmp::Eq, 1).map(|_| ())
}

/// Adds 1 to a word on the next PE from every thread, `times` times.
#[kernel]
pub fn count_up(ctx: &Ctx, word: Sym<u64>, times: u32) -> Result {
    let mut i = 0;
    while i < times {
        ctx.atomic_add(word, 1, ctx.pe_after(1))?;
        i += 1;
    }
    ctx.quiet(Thread)
}

/// Stores the number of threads per block in `count`. The kernel declares a limit of 96.
#[kernel(max_threads = 96)]
pub fn few_threads(ctx: &Ctx, count: Sym<u32>) {
    let block = Block::current();
    if block.leader() {
        ctx.local(count.as_slice()).store(0, block.size());
    }
}

/// Puts `src` to the next PE with a signal, and returns without waiting for completion.
#[kernel]
pub fn put_and_leave(ctx: &Ctx, dst: SymSlice<u32>, src: SymSlice<u32>, arrived: Sym<Signal>) -> Result {
    ctx.put_signal_nbi(Block::current(), dst, src, arrived.set(1), ctx.pe_after(1))
}

/// Stores every thread's coordinates in the launch in `places`, a box of the given width and height.
#[kernel]
pub fn store_coordinates(ctx: &Ctx, places: SymSlice<u32>, width: u32, height: u32) {
    let ([bx, by, bz], [tx, ty, tz]) = (ctx.block_idx(), ctx.thread_idx());
    let [size_x, size_y, size_z] = ctx.block_dim();
    let (x, y, z) = (bx * size_x + tx, by * size_y + ty, bz * size_z + tz);
    let at = (z * height + y) * width + x;
    ctx.local(places).store(at as usize, z << 16 | y << 8 | x);
}

/// Stores the extents of the grid, then those of a block, along x, y and z.
#[kernel]
pub fn store_extents(ctx: &Ctx, extents: SymSlice<u32>) {
    if Thread::index() == 0 {
        let (grid, block, extents) = (ctx.grid_dim(), ctx.block_dim(), ctx.local(extents));
        let mut i = 0;
        while i < 3 {
            extents.store(i, grid[i]);
            extents.store(3 + i, block[i]);
            i += 1;
        }
    }
}
