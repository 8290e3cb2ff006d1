//! Test kernels that call every function of `rushmem_device::shmem` by its OpenSHMEM name.

use rushmem_device::prelude::*;
use rushmem_device::shmem::*;

/// Number of results that the kernel [`names`] stores.
pub const NAMES: usize = 16;
/// Number of results that the kernel [`more_names`] stores.
pub const MORE_NAMES: usize = 24;

/// Calls the basic OpenSHMEM functions with the next PE as the target. `data` has 4 elements for each of its parts:
/// source, put, got, signalled. `words` is for atomics.
#[kernel]
pub fn names(
    ctx: &Ctx,
    data: SymSlice<i32>,
    words: SymSlice<u64>,
    signal: Sym<Signal>,
    results: SymSlice<u64>,
) -> Result {
    let (block, pe) = (Block::current(), ctx.pe_after(1));
    let out = ctx.local(results);
    shmem_put(ctx, block, data.slice(4..6), data.slice(0..2), pe)?;
    shmem_put_nbi(ctx, block, data.slice(6..8), data.slice(2..4), pe)?;
    shmem_quiet(ctx, block)?;
    shmem_get(ctx, block, data.slice(8..10), data.slice(0..2), pe)?;
    shmem_get_nbi(ctx, block, data.slice(10..12), data.slice(2..4), pe)?;
    shmem_barrier_all(ctx, block)?;
    let (first, second) = (data.slice(0..2), data.slice(2..4));
    shmem_put_signal(ctx, block, data.slice(12..14), first, signal.add(1), pe)?;
    shmem_put_signal_nbi(ctx, block, data.slice(14..16), second, signal.add(10), pe)?;
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

/// Sets words and a signal on the next PE, and waits until the previous PE has set this PE's.
#[inline(always)]
fn one_by_one(ctx: &Ctx, words: SymSlice<u64>, signal: Sym<Signal>, pe: u32) -> Result {
    shmem_p(ctx, words.at(0), 5, pe)?;
    shmem_fence(ctx)?;
    shmem_signal_op(ctx, signal.set(99), pe)?;
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

/// Calls the remaining OpenSHMEM functions with the next PE as the target.
///
/// - Strided calls use `data`: `0..8` is the source, `8..16` is put to, `16..24` is got into.
/// - Waits and tests use `words`; word 1 becomes 7.
/// - Nonblocking atomics use `sum`, and lock functions use `lock`.
#[kernel]
#[allow(clippy::too_many_arguments)] // an object for each kind
pub fn more_names(
    ctx: &Ctx,
    data: SymSlice<i32>,
    words: SymSlice<u64>,
    wanted: SymSlice<u64>,
    status: SymSlice<i32>,
    sum: Sym<u64>,
    fetched: SymSlice<Fetched<u64>>,
    pes: SymSlice<u32>,
    lock: Sym<Lock>,
    results: SymSlice<u64>,
) -> Result {
    let (block, pe) = (Block::current(), ctx.pe_after(1));
    let (source, put, got) = (data.slice(0..8), data.slice(8..16), data.slice(16..24));
    shmem_iput(ctx, block, put, source, 1, 2, 4, pe)?;
    shmem_ibput(ctx, block, put.slice(4..8), source, 2, 4, 2, 2, pe)?;
    shmem_iget(ctx, block, got, source, 2, 1, 4, pe)?;
    shmem_ibget(ctx, block, got.slice(1..8), source.slice(4..8), 2, 1, 1, 3, pe)?;
    shmem_pe_quiet(ctx, block, ctx.local(pes))?;
    if !block.leader() {
        return Ok(());
    }
    shmem_signal_set(ctx, words.at(1), 5, pe)?;
    shmem_quiet(ctx, Thread)?;
    shmem_signal_add(ctx, words.at(1), 2, pe)?;
    sets(ctx, words, ctx.local(wanted), ctx.local(status), results)?;
    fetches(ctx, sum, fetched, results, pe)?;
    shmem_set_lock(ctx, lock)?;
    shmem_clear_lock(ctx, lock)?;
    shmem_barrier_all(ctx, Thread)?;
    if ctx.my_pe() == 0 {
        ctx.local(results).store(18, shmem_test_lock(ctx, lock)? as u64);
    }
    shmem_barrier_all(ctx, Thread)?;
    if ctx.my_pe() != 0 {
        ctx.local(results).store(18, shmem_test_lock(ctx, lock)? as u64);
    }
    shmem_barrier_all(ctx, Thread)?;
    if ctx.my_pe() == 0 { shmem_clear_lock(ctx, lock) } else { Ok(()) }
}

#[inline(always)]
fn sets(
    ctx: &Ctx,
    set: SymSlice<u64>,
    wanted: View<u64>,
    status: View<i32>,
    results: SymSlice<u64>,
) -> Result {
    let (some, t) = (Some(status), Thread);
    let (out, found) = (ctx.local(results), ctx.local(results.slice(20..24)));
    let index = |i: Option<usize>| i.map_or(u64::MAX, |i| i as u64);
    out.store(0, index(shmem_wait_until_any(ctx, t, set, some, Cmp::Eq, 7)?));
    out.store(1, shmem_wait_until_some(ctx, t, set, found, some, Cmp::Ge, 7)? as u64);
    out.store(2, index(shmem_wait_until_any_vector(ctx, t, set, some, Cmp::Gt, wanted)?));
    out.store(3, shmem_wait_until_some_vector(ctx, t, set, found, some, Cmp::Ge, wanted)? as u64);
    shmem_wait_until_all(ctx, t, set, some, Cmp::Le, 7)?;
    shmem_wait_until_all_vector(ctx, t, set, some, Cmp::Ge, wanted)?;
    out.store(4, shmem_test_all(ctx, t, set, some, Cmp::Eq, 7)? as u64);
    out.store(5, shmem_test_all_vector(ctx, t, set, some, Cmp::Ge, wanted)? as u64);
    out.store(6, index(shmem_test_any(ctx, t, set, some, Cmp::Gt, 7)?));
    out.store(7, index(shmem_test_any_vector(ctx, t, set, some, Cmp::Gt, wanted)?));
    out.store(8, shmem_test_some(ctx, t, set, found, some, Cmp::Eq, 7)? as u64);
    out.store(9, shmem_test_some_vector(ctx, t, set, found, some, Cmp::Lt, wanted)? as u64);
    Ok(())
}

#[inline(always)]
fn fetches(ctx: &Ctx, w: Sym<u64>, to: SymSlice<Fetched<u64>>, results: SymSlice<u64>, pe: u32) -> Result {
    shmem_atomic_set(ctx, w, 0b1100, pe)?;
    shmem_atomic_fetch_nbi(ctx, to.at(0), w, pe)?;
    shmem_quiet(ctx, Thread)?;
    shmem_atomic_fetch_inc_nbi(ctx, to.at(1), w, pe)?;
    shmem_quiet(ctx, Thread)?;
    shmem_atomic_fetch_add_nbi(ctx, to.at(2), w, 16, pe)?;
    shmem_quiet(ctx, Thread)?;
    shmem_atomic_fetch_and_nbi(ctx, to.at(3), w, 0b1_1001, pe)?;
    shmem_quiet(ctx, Thread)?;
    shmem_atomic_fetch_or_nbi(ctx, to.at(4), w, 0b110, pe)?;
    shmem_quiet(ctx, Thread)?;
    shmem_atomic_fetch_xor_nbi(ctx, to.at(5), w, 0b1_1111, pe)?;
    shmem_quiet(ctx, Thread)?;
    shmem_atomic_swap_nbi(ctx, to.at(6), w, 70, pe)?;
    shmem_quiet(ctx, Thread)?;
    shmem_atomic_compare_swap_nbi(ctx, to.at(7), w, 70, 71, pe)?;
    shmem_quiet(ctx, Thread)?;
    let out = ctx.local(results);
    let mut i = 0;
    while i < 8 {
        out.store(10 + i, ctx.fetched(to.at(i))?);
        i += 1;
    }
    Ok(())
}
