//! The field's own names, all of them.

use rushmem_device::prelude::*;
use rushmem_device::shmem::*;

/// Results that [`names`] stores.
pub const NAMES: usize = 16;

/// Calls every function of `rushmem_device::shmem`, towards the next PE. `data` has room for a few elements in each of
/// its parts: 0..4 source, 4..8 put, 8..12 get, 12..16 signalled; `words` are atomics.
#[kernel]
pub fn names(
    ctx: &Ctx,
    data: SymSlice<i32>,
    words: SymSlice<u64>,
    signal: Sym<Signal>,
    results: SymSlice<u64>,
) -> Result {
    let (block, pe) = (Block::current(), ctx.pe_after(1));
    let (source, out) = (data.slice(0..4), ctx.local(results));
    shmem_put(ctx, block, data.slice(4..6), data.slice(0..2), pe)?;
    shmem_put_nbi(ctx, block, data.slice(6..8), data.slice(2..4), pe)?;
    shmem_quiet(ctx, block)?;
    shmem_get(ctx, block, data.slice(8..10), data.slice(0..2), pe)?;
    shmem_get_nbi(ctx, block, data.slice(10..12), data.slice(2..4), pe)?;
    shmem_barrier_all(ctx, block)?;
    shmem_put_signal(ctx, block, data.slice(12..16), source, signal, SignalOp::Add, 1, pe)?;
    shmem_put_signal_nbi(ctx, block, data.slice(12..16), source, signal, SignalOp::Add, 10, pe)?;
    let seen = shmem_signal_wait_until(ctx, block, signal, Cmp::Eq, 11)?;
    if block.leader() {
        out.store(0, shmem_my_pe(ctx).into());
        out.store(1, shmem_n_pes(ctx).into());
        out.store(2, seen);
    }
    shmem_sync_all(ctx, block)?;
    if block.leader() {
        one_by_one(ctx, words, signal, pe)?;
    }
    shmem_sync_all(ctx, block)?;
    if block.leader() {
        atomics(ctx, words, results, pe)?;
    }
    shmem_barrier_all(ctx, block)
}

/// Words 0 to 2 and the signal: set by the previous PE, waited for here.
#[inline(always)]
fn one_by_one(ctx: &Ctx, words: SymSlice<u64>, signal: Sym<Signal>, pe: u32) -> Result {
    shmem_p(ctx, words.at(0), 5, pe)?;
    shmem_fence(ctx)?;
    shmem_signal_op(ctx, signal, SignalOp::Set, 99, pe)?;
    shmem_wait_until(ctx, Thread, signal, Cmp::Eq, 99)?;
    shmem_wait_until(ctx, Thread, words.at(0), Cmp::Eq, 5)
}

#[inline(always)]
fn atomics(ctx: &Ctx, words: SymSlice<u64>, results: SymSlice<u64>, pe: u32) -> Result {
    let (out, w) = (ctx.local(results), words.at(1));
    out.store(3, shmem_g(ctx, words.at(0), pe)?);
    out.store(4, shmem_test(ctx, words.at(0), Cmp::Gt, 4)? as u64);
    shmem_atomic_set(ctx, w, 0b1100, pe)?;
    shmem_atomic_add(ctx, w, 1, pe)?;
    shmem_atomic_inc(ctx, w, pe)?;
    out.store(5, shmem_atomic_fetch(ctx, w, pe)?);
    out.store(6, shmem_atomic_fetch_inc(ctx, w, pe)?);
    out.store(7, shmem_atomic_fetch_add(ctx, w, 16, pe)?);
    shmem_atomic_and(ctx, w, 0b1_1010, pe)?;
    out.store(8, shmem_atomic_fetch_and(ctx, w, 0b1_1000, pe)?);
    shmem_atomic_or(ctx, w, 0b1, pe)?;
    out.store(9, shmem_atomic_fetch_or(ctx, w, 0b110, pe)?);
    shmem_atomic_xor(ctx, w, 0b1_0000, pe)?;
    out.store(10, shmem_atomic_fetch_xor(ctx, w, 0b1111, pe)?);
    out.store(11, shmem_atomic_swap(ctx, w, 70, pe)?);
    out.store(12, shmem_atomic_compare_swap(ctx, w, 70, 71, pe)?);
    out.store(13, shmem_atomic_compare_swap(ctx, w, 70, 72, pe)?);
    out.store(14, shmem_atomic_fetch(ctx, w, pe)?);
    out.store(15, shmem_signal_fetch(ctx, words.at(0))?);
    Ok(())
}
