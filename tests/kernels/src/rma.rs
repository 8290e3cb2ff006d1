//! Test kernels of puts and gets of every kind.

use rushmem_device::prelude::*;
use rushmem_device::{Bf16, F16};

use crate::units::{GroupKind, QueueSharing, Unit, modulo};

/// A call that transfers an array, as a kernel argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Transfer {
    /// Calls `put`.
    Put,
    /// Calls `put_nbi`.
    PutNbi,
    /// Calls `get`.
    Get,
    /// Calls `get_nbi`.
    GetNbi,
    /// Calls `put_signal`.
    PutSignal,
    /// Calls `put_signal_nbi`.
    PutSignalNbi,
}

#[derive(Clone, Copy)]
struct PieceArgs {
    /// The call to make, as a [`Transfer`].
    call: u32,
    /// Destinations of `n_pes` PEs' data, one part for each source PE.
    landing: SymSlice<u8>,
    source: SymSlice<u8>,
    piece: usize,
    arrived: Sym<Signal>,
}

/// Transfers `source` to the destinations in pieces of `piece` bytes.
///
/// Piece `k` goes from PE `s` to PE `(k + s) mod n`; a get transfers it in the opposite direction. The units of the
/// grid take the pieces round-robin. With a signal, each piece adds 1 to `arrived`, and the first thread waits for
/// `expected` of them. To limit the size of the PTX, not all combinations exist: the block's queues serve threads and
/// blocks with the calls of `put_or_get` only, and exclusive queues serve threads only.
#[kernel(per_block)]
#[allow(clippy::too_many_arguments)] // a kernel that can do everything
pub fn move_pieces(
    ctx: &Ctx,
    call: u32,
    group_kind: u32,
    sharing: u32,
    landing: SymSlice<u8>,
    source: SymSlice<u8>,
    piece: u32,
    arrived: Sym<Signal>,
    expected: u64,
) -> Result {
    let args = PieceArgs { call, landing, source, piece: piece as usize, arrived };
    if sharing == QueueSharing::Gpu as u32 {
        if group_kind == GroupKind::Thread as u32 {
            units(ctx, Thread, args, any_call)?;
        } else if group_kind == GroupKind::Warp as u32 {
            units(ctx, Warp::current(), args, any_call)?;
        } else {
            units(ctx, Block::current(), args, any_call)?;
        }
    } else if sharing == QueueSharing::Block as u32 {
        let own = ctx.per_block()?;
        if group_kind == GroupKind::Thread as u32 {
            units(&own, Thread, args, put_or_get)?;
        } else {
            units(&own, Block::current(), args, put_or_get)?;
        }
    } else {
        let own = ctx.exclusive(Thread::index() as u32)?;
        units(&own, Thread, args, any_call)?;
        own.release();
    }
    if Thread::index() == 0 {
        ctx.signal_wait_until(Thread, arrived, Cmp::Ge, expected)?;
    }
    Ok(())
}

/// Remote and local range of a piece, and the destination of a get.
struct Piece {
    there: SymSlice<u8>,
    here: SymSlice<u8>,
    back: SymSlice<u8>,
    pe: u32,
}

/// Divides the pieces among the groups of the grid, transfers each piece with `one`, and waits for completion.
#[inline(always)]
fn units<S: Sharing, G: Unit>(
    ctx: &Ctx<S>,
    group: G,
    args: PieceArgs,
    one: impl Fn(&Ctx<S>, G, PieceArgs, Piece) -> Result,
) -> Result {
    let PieceArgs { landing, source, piece, .. } = args;
    let (n_pes, me) = (ctx.n_pes() as usize, ctx.my_pe() as usize);
    let len = source.len();
    let (mut k, count) = group.place();
    while k * piece < len {
        let (from, to) = (k * piece, (k * piece + piece).min(len));
        let pe = modulo(k + me, n_pes);
        let there = landing.slice(me * len + from..me * len + to);
        let back = landing.slice(pe * len + from..pe * len + to);
        one(ctx, group, args, Piece { there, here: source.slice(from..to), back, pe: pe as u32 })?;
        k += count;
    }
    ctx.quiet(group)
}

#[inline(always)]
fn any_call<S: Sharing, G: Group>(ctx: &Ctx<S>, group: G, args: PieceArgs, piece: Piece) -> Result {
    let Piece { there, here, back, pe } = piece;
    let (call, arrived) = (args.call, args.arrived);
    if call == Transfer::Put as u32 {
        ctx.put(group, there, here, pe)
    } else if call == Transfer::Get as u32 {
        ctx.get(group, back, here, pe)
    } else if call == Transfer::PutSignal as u32 {
        ctx.put_signal(group, there, here, arrived.add(1), pe)
    } else if call == Transfer::PutSignalNbi as u32 {
        ctx.put_signal_nbi(group, there, here, arrived.add(1), pe)
    } else {
        put_or_get(ctx, group, args, Piece { there, here, back, pe })
    }
}

#[inline(always)]
fn put_or_get<S: Sharing, G: Group>(ctx: &Ctx<S>, group: G, args: PieceArgs, piece: Piece) -> Result {
    let Piece { there, here, back, pe } = piece;
    if args.call == Transfer::PutNbi as u32 {
        ctx.put_nbi(group, there, here, pe)
    } else {
        ctx.get_nbi(group, back, here, pe)
    }
}

/// Puts every thread's element `times` times to the PE that is `ahead` ranks after this one, with all lanes converged,
/// and then calls `quiet`. `dst` has a row of elements for each time.
#[kernel]
pub fn small_puts(ctx: &Ctx, dst: SymSlice<u32>, src: SymSlice<u32>, times: u32, ahead: u32) -> Result {
    let i = Thread::index();
    let pe = ctx.pe_after(ahead);
    let mut round = 0;
    while round < times {
        let at = round as usize * Thread::count() + i;
        ctx.put_nbi(Thread, dst.slice(at..at + 1), src.slice(i..i + 1), pe)?;
        round += 1;
    }
    ctx.quiet(Thread)
}

/// Transfers zero elements with every kind of group, in both directions. The signals must still arrive.
#[kernel]
pub fn no_elements(ctx: &Ctx, data: SymSlice<u32>, arrived: Sym<Signal>) -> Result {
    let block = Block::current();
    let (none, pe) = (data.slice(3..3), ctx.pe_after(1));
    ctx.put(Thread, none, none, pe)?;
    ctx.put_nbi(Warp::current(), none, none, pe)?;
    ctx.get(block, none, none, pe)?;
    ctx.get_nbi(Thread, none, none, pe)?;
    ctx.put_signal(Thread, none, none, arrived.add(1), pe)?;
    ctx.put_signal_nbi(block, none, none, arrived.add(1000), pe)?;
    ctx.quiet(block)
}

/// Checks `p` and `g` of every scalar type. Each thread puts a value to the next PE and gets it back.
#[kernel]
#[allow(clippy::too_many_arguments)] // one for each type
pub fn scalars(
    ctx: &Ctx,
    u8s: SymSlice<u8>,
    i8s: SymSlice<i8>,
    u16s: SymSlice<u16>,
    i16s: SymSlice<i16>,
    u32s: SymSlice<u32>,
    i32s: SymSlice<i32>,
    f32s: SymSlice<f32>,
    u64s: SymSlice<u64>,
    i64s: SymSlice<i64>,
    f64s: SymSlice<f64>,
    usizes: SymSlice<usize>,
    isizes: SymSlice<isize>,
    halves: SymSlice<F16>,
    brains: SymSlice<Bf16>,
) -> Result {
    let i = Thread::index() as u32;
    let value = i.wrapping_mul(0x9e37_79b9) ^ ctx.my_pe();
    let wide = (value as u64) << 31 | i as u64;
    round_trip(ctx, u8s, value as u8)?;
    round_trip(ctx, i8s, value as i8)?;
    round_trip(ctx, u16s, value as u16)?;
    round_trip(ctx, i16s, value as i16)?;
    round_trip(ctx, u32s, value)?;
    round_trip(ctx, i32s, value as i32)?;
    round_trip(ctx, f32s, value as f32)?;
    round_trip(ctx, u64s, wide)?;
    round_trip(ctx, i64s, wide as i64)?;
    round_trip(ctx, f64s, wide as f64)?;
    round_trip(ctx, usizes, wide as usize)?;
    round_trip(ctx, isizes, wide as isize)?;
    round_trip(ctx, halves, F16(value as u16))?;
    round_trip(ctx, brains, Bf16(value as u16))
}

/// Puts `value` into the first half of `all` on the next PE, and gets it back into the second half of `all` on this PE.
#[inline(always)]
fn round_trip<T: Scalar>(ctx: &Ctx, all: SymSlice<T>, value: T) -> Result {
    let (i, half, pe) = (Thread::index(), all.len() / 2, ctx.pe_after(1));
    ctx.p(all.at(i), value, pe)?;
    ctx.quiet(Thread)?;
    ctx.local(all).store(half + i, ctx.g(all.at(i), pe)?);
    Ok(())
}

/// Puts `src` to `dst` of the next PE in pieces of `piece` elements and gets it back, with a group `without_barrier`.
/// Only `quiet` separates dependent calls.
#[kernel]
pub fn ready_pieces(
    ctx: &Ctx,
    group_kind: u32,
    dst: SymSlice<u32>,
    back: SymSlice<u32>,
    src: SymSlice<u32>,
    piece: u64,
) -> Result {
    if group_kind == GroupKind::Block as u32 {
        there_and_back(ctx, Block::current(), dst, back, src, piece as usize)
    } else if Block::current().id() == 0 && Warp::current().id() == 0 {
        there_and_back(ctx, Warp::current(), dst, back, src, piece as usize)
    } else {
        Ok(())
    }
}

#[inline(always)]
fn there_and_back<G: Group>(
    ctx: &Ctx,
    group: G,
    dst: SymSlice<u32>,
    back: SymSlice<u32>,
    src: SymSlice<u32>,
    piece: usize,
) -> Result {
    let pe = ctx.pe_after(1);
    let mut at = 0;
    while at < src.len() {
        let part = at..(at + piece).min(src.len());
        ctx.put_nbi(group.without_barrier(), dst.slice(part.clone()), src.slice(part), pe)?;
        at += piece;
    }
    ctx.quiet(group)?;
    let mut at = 0;
    while at < src.len() {
        let part = at..(at + piece).min(src.len());
        ctx.get_nbi(group.without_barrier(), back.slice(part.clone()), dst.slice(part), pe)?;
        at += piece;
    }
    ctx.quiet(group)
}
