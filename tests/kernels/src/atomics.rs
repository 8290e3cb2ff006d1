//! Test kernels of all atomics, alone and under contention.

use rushmem_device::prelude::*;

use crate::units::modulo;

/// Number of words that [`atomics_u64`] and its variants for other types use.
pub const ATOMICS: usize = 15;

/// Performs every atomic once on the next PE, each on a different word. Stores the results of the fetching atomics in
/// `olds`.
#[kernel]
pub fn atomics_u32(ctx: &Ctx, words: SymSlice<u32>, olds: SymSlice<u32>, a: u32, b: u32) -> Result {
    each(ctx, words, olds, a, b)
}

/// The `i32` variant of [`atomics_u32`].
#[kernel]
pub fn atomics_i32(ctx: &Ctx, words: SymSlice<i32>, olds: SymSlice<i32>, a: i32, b: i32) -> Result {
    each(ctx, words, olds, a, b)
}

/// The `u64` variant of [`atomics_u32`], through the exclusive queues of one thread.
#[kernel]
pub fn atomics_u64(ctx: &Ctx, words: SymSlice<u64>, olds: SymSlice<u64>, a: u64, b: u64) -> Result {
    if Thread::index() != 0 {
        return Ok(());
    }
    let own = ctx.exclusive(0)?;
    each(&own, words, olds, a, b)?;
    own.release();
    Ok(())
}

/// The `i64` variant of [`atomics_u32`], through the queues of the block.
#[kernel(per_block)]
pub fn atomics_i64(ctx: &Ctx, words: SymSlice<i64>, olds: SymSlice<i64>, a: i64, b: i64) -> Result {
    if Block::current().id() != 0 {
        return Ok(());
    }
    each(&ctx.per_block()?, words, olds, a, b)
}

/// Performs one `usize` atomic of each kind that a NIC implements. All types of one width share their code, so this
/// suffices.
#[kernel]
pub fn atomics_usize(ctx: &Ctx, words: SymSlice<usize>, olds: SymSlice<usize>, a: u64) -> Result {
    if Thread::index() != 0 {
        return Ok(());
    }
    let (old, pe, a) = (ctx.local(olds), ctx.pe_after(1), a as usize);
    old.store(2, ctx.atomic_swap(words.at(2), a, pe)?);
    old.store(6, ctx.atomic_fetch_add(words.at(6), a, pe)?);
    old.store(14, ctx.atomic_fetch_xor(words.at(14), a, pe)?);
    Ok(())
}

#[inline(always)]
fn each<S: Sharing, T: Amo>(ctx: &Ctx<S>, w: SymSlice<T>, olds: SymSlice<T>, a: T, b: T) -> Result {
    if Thread::index() != 0 {
        return Ok(());
    }
    let (old, pe) = (ctx.local(olds), ctx.pe_after(1));
    old.store(0, ctx.atomic_fetch(w.at(0), pe)?);
    ctx.atomic_set(w.at(1), a, pe)?;
    old.store(2, ctx.atomic_swap(w.at(2), a, pe)?);
    old.store(3, ctx.atomic_compare_swap(w.at(3), a, b, pe)?);
    old.store(4, ctx.atomic_compare_swap(w.at(4), b, a, pe)?);
    ctx.atomic_add(w.at(5), a, pe)?;
    old.store(6, ctx.atomic_fetch_add(w.at(6), a, pe)?);
    ctx.atomic_inc(w.at(7), pe)?;
    old.store(8, ctx.atomic_fetch_inc(w.at(8), pe)?);
    ctx.atomic_and(w.at(9), a, pe)?;
    old.store(10, ctx.atomic_fetch_and(w.at(10), a, pe)?);
    ctx.atomic_or(w.at(11), a, pe)?;
    old.store(12, ctx.atomic_fetch_or(w.at(12), a, pe)?);
    ctx.atomic_xor(w.at(13), a, pe)?;
    old.store(14, ctx.atomic_fetch_xor(w.at(14), a, pe)?);
    ctx.quiet(Thread)
}

/// Updates the same words from all threads of all PEs, `rounds` times. Each thread:
///
/// - draws a ticket from PE 0, and counts it in the element of `drawn` with that index;
/// - adds to a wide and a narrow sum of every PE;
/// - flips, clears and sets its own bit of `bits` on PE 0;
/// - and, if it leads its block, adds 1 to `swapped` of PE 0 by compare-and-swap.
#[kernel]
#[allow(clippy::too_many_arguments)] // one word for each kind
pub fn contend(
    ctx: &Ctx,
    tickets: Sym<u64>,
    drawn: SymSlice<u32>,
    wide: Sym<u64>,
    narrow: Sym<u32>,
    bits: SymSlice<u64>,
    swapped: Sym<u32>,
    rounds: u32,
) -> Result {
    let id = ctx.my_pe() as usize * Thread::count() + Thread::index();
    let mut round = 0;
    while round < rounds {
        let ticket = ctx.atomic_fetch_add(tickets, 1, 0)?;
        ctx.atomic_inc(drawn.at(modulo(ticket as usize, drawn.len())), 0)?;
        let mut pe = 0;
        while pe < ctx.n_pes() {
            ctx.atomic_add(wide, id as u64 + (1 << 33), pe)?;
            ctx.atomic_inc(narrow, pe)?;
            pe += 1;
        }
        let (word, bit) = (bits.at(id / 64), 1u64 << (id & 63));
        ctx.atomic_xor(word, bit, 0)?;
        ctx.atomic_and(word, !bit, 0)?;
        ctx.atomic_or(word, bit, 0)?;
        if Block::current().leader() {
            let mut found = 0;
            loop {
                let old = ctx.atomic_compare_swap(swapped, found, found + 1, 0)?;
                if old == found {
                    break;
                }
                found = old;
            }
        }
        round += 1;
    }
    ctx.quiet(Thread)
}

/// Performs the fetching atomics of [`atomics_u32`] in their nonblocking forms.
#[kernel]
pub fn starting_u32(
    ctx: &Ctx,
    w: SymSlice<u32>,
    results: SymSlice<Fetched<u32>>,
    olds: SymSlice<u32>,
    a: u32,
    b: u32,
) -> Result {
    started(ctx, w, results, olds, a, b)
}

/// The `u64` variant of [`starting_u32`].
#[kernel]
pub fn starting_u64(
    ctx: &Ctx,
    w: SymSlice<u64>,
    results: SymSlice<Fetched<u64>>,
    olds: SymSlice<u64>,
    a: u64,
    b: u64,
) -> Result {
    started(ctx, w, results, olds, a, b)
}

#[inline(always)]
fn started<T: Amo>(
    ctx: &Ctx,
    w: SymSlice<T>,
    r: SymSlice<Fetched<T>>,
    olds: SymSlice<T>,
    a: T,
    b: T,
) -> Result {
    if Thread::index() != 0 {
        return Ok(());
    }
    let (old, pe) = (ctx.local(olds), ctx.pe_after(1));
    ctx.atomic_fetch_nbi(r.at(0), w.at(0), pe)?;
    ctx.atomic_swap_nbi(r.at(2), w.at(2), a, pe)?;
    ctx.atomic_compare_swap_nbi(r.at(3), w.at(3), a, b, pe)?;
    ctx.atomic_compare_swap_nbi(r.at(4), w.at(4), b, a, pe)?;
    ctx.atomic_fetch_add_nbi(r.at(6), w.at(6), a, pe)?;
    ctx.atomic_fetch_inc_nbi(r.at(8), w.at(8), pe)?;
    ctx.atomic_fetch_and_nbi(r.at(10), w.at(10), a, pe)?;
    ctx.atomic_fetch_or_nbi(r.at(12), w.at(12), a, pe)?;
    ctx.atomic_fetch_xor_nbi(r.at(14), w.at(14), a, pe)?;
    ctx.quiet(Thread)?;
    for i in [0, 2, 3, 4, 6, 8, 10, 12, 14] {
        old.store(i, ctx.fetched(r.at(i))?);
    }
    Ok(())
}

/// Draws `each` tickets from PE 0 in each thread with nonblocking atomics, and stores them in `drawn`.
#[kernel]
pub fn many_tickets(
    ctx: &Ctx,
    tickets: Sym<u64>,
    results: SymSlice<Fetched<u64>>,
    drawn: SymSlice<u64>,
    each: u32,
) -> Result {
    let from = Thread::index() * each as usize;
    let mut k = 0;
    while k < each as usize {
        ctx.atomic_fetch_inc_nbi(results.at(from + k), tickets, 0)?;
        k += 1;
    }
    ctx.quiet(Thread)?;
    let drawn = ctx.local(drawn);
    let mut k = 0;
    while k < each as usize {
        drawn.store(from + k, ctx.fetched(results.at(from + k))?);
        k += 1;
    }
    Ok(())
}

/// Sets, fetches and swaps the floating-point numbers with these `bits` on the next PE, and stores the fetched and
/// swapped values in `found`. Then all threads of all PEs add 1 to a sum on PE 0, `rounds` times, and count each value
/// that the sum had before in `drawn` on PE 0.
#[kernel]
pub fn float_atomics(
    ctx: &Ctx,
    narrow: SymSlice<f32>,
    wide: SymSlice<f64>,
    bits: u64,
    found: SymSlice<u64>,
    drawn: SymSlice<u32>,
    rounds: u32,
) -> Result {
    let (pe, found) = (ctx.pe_after(1), ctx.local(found));
    if Thread::index() == 0 {
        let (a, b) = (f32::from_bits(bits as u32), f64::from_bits(bits));
        ctx.atomic_set(narrow.at(0), a, pe)?;
        ctx.atomic_set(wide.at(0), b, pe)?;
        ctx.quiet(Thread)?;
        found.store(0, ctx.atomic_fetch(narrow.at(0), pe)?.to_bits() as u64);
        found.store(1, ctx.atomic_fetch(wide.at(0), pe)?.to_bits());
        found.store(2, ctx.atomic_swap(narrow.at(0), 1.5, pe)?.to_bits() as u64);
        found.store(3, ctx.atomic_swap(wide.at(0), -2.5, pe)?.to_bits());
    }
    let mut round = 0;
    while round < rounds {
        let before = ctx.atomic_fetch_add(wide.at(1), 1.0, 0)?;
        ctx.atomic_inc(drawn.at(before as usize), 0)?;
        ctx.atomic_add(narrow.at(1), 1.0, 0)?;
        round += 1;
    }
    ctx.quiet(Thread)
}

/// Performs masked atomics on the next PE's words and stores the old values in `olds`. For each size, word 0 gets a
/// swap whose comparison holds, word 1 a swap whose comparison fails, and word 2 an addition in fields.
#[kernel]
pub fn masked(
    ctx: &Ctx,
    narrow: SymSlice<u32>,
    wide: SymSlice<u64>,
    olds: SymSlice<u64>,
    operands: SymSlice<u64>,
) -> Result {
    if Thread::index() != 0 {
        return Ok(());
    }
    let (olds, o, pe) = (ctx.local(olds), ctx.local(operands), ctx.pe_after(1));
    let (compare, compare_mask, value, mask) = (o.load(0), o.load(1), o.load(2), o.load(3));
    let low = |bits: u64| bits as u32;
    let mut i = 0;
    while i < 2 {
        let wide_old = ctx.atomic_masked_compare_swap(wide.at(i), compare, compare_mask, value, mask, pe)?;
        let old = ctx.atomic_masked_compare_swap(
            narrow.at(i),
            low(compare),
            low(compare_mask),
            low(value),
            low(mask),
            pe,
        )?;
        olds.store(i, wide_old);
        olds.store(3 + i, old as u64);
        i += 1;
    }
    olds.store(2, ctx.atomic_masked_fetch_add(wide.at(2), value, mask, pe)?);
    olds.store(5, ctx.atomic_masked_fetch_add(narrow.at(2), low(value), low(mask), pe)? as u64);
    ctx.quiet(Thread)
}
