//! Interprets the operations that a single thread of a litmus test's actor performs.

use rushmem_device::arch;
use rushmem_device::prelude::*;

use crate::code::{Code, Op};
use crate::memory::{BYTES, Memory, comparison};
use crate::{MAX_TURNS, never, rare};

/// Maximum turns of a loop that need not see the value, because a GPU's L1 cache may keep returning a stale one.
const MAX_STALE_TURNS: u32 = 1 << 16;

#[inline(never)]
pub(crate) fn step(ctx: &Ctx, m: &Memory, op: &Op) -> Result {
    let (value, pe) = (m.value(ctx, op), op.pe);
    let keep = |found: u64| m.keep(ctx, op.r, found);
    if op.is(Code::Store) {
        ctx.local_one(m.word(op.a)).store(0, value);
    } else if op.is(Code::Load) {
        keep(ctx.local_one(m.word(op.a)).load(0));
    } else if op.is(Code::SpinUntil) {
        let view = ctx.local_one(m.word(op.a));
        keep(never(MAX_STALE_TURNS, || Ok(view.load(0) == value))?);
    } else if op.is(Code::TestUntil) {
        keep(never(MAX_TURNS, || ctx.test(m.word(op.a), comparison(op.n), value))?);
    } else if op.is(Code::P) {
        ctx.p(m.word(op.a), value, pe)?;
    } else if op.is(Code::Flood) {
        let mut i = 0;
        while i < op.n {
            ctx.p(m.word(op.a + i), value, pe)?;
            i += 1;
        }
    } else if op.is(Code::G) {
        keep(ctx.g(m.word(op.a), pe)?);
    } else if op.is(Code::SignalOp) {
        let signal = m.word(op.s);
        ctx.signal_op(if op.n == 1 { signal.add(value) } else { signal.set(value) }, pe)?;
    } else if op.is(Code::SignalWait) {
        keep(ctx.signal_wait_until(Thread, m.word(op.s), comparison(op.n), value)?);
    } else if op.is(Code::SignalFetch) {
        keep(ctx.signal_fetch(m.word(op.s))?);
    } else if op.is(Code::Wait) {
        ctx.wait_until(Thread, m.word(op.a), comparison(op.n), value)?;
    } else if op.is(Code::Fence) {
        ctx.fence()?;
    } else if op.is(Code::Quiet) {
        ctx.quiet(Thread)?;
    } else if op.is(Code::Hand) {
        ctx.fence_system();
        ctx.signal_op(m.word(op.s).add(1), ctx.my_pe())?;
    } else if op.code <= Code::Lock as u64 {
        atomic(ctx, m, op, value)?;
    } else if op.code <= Code::PrivateQuiet as u64 {
        private(ctx, m, op, value)?;
    } else if op.code <= Code::FetchFloat as u64 {
        rare::step(ctx, m, op, value)?;
    } else {
        narrow(ctx, m, op, value)?;
    }
    Ok(())
}

#[inline(always)]
fn atomic(ctx: &Ctx, m: &Memory, op: &Op, value: u64) -> Result {
    let (word, pe) = (m.word(op.a), op.pe);
    if op.is(Code::Add) {
        return ctx.atomic_add(word, value, pe);
    } else if op.is(Code::Set) {
        return ctx.atomic_set(word, value, pe);
    } else if op.is(Code::Lock) {
        while ctx.atomic_compare_swap(word, 0, value, pe)? != 0 {
            arch::spin();
        }
        return Ok(());
    }
    let old = if op.is(Code::FetchAdd) {
        ctx.atomic_fetch_add(word, value, pe)?
    } else if op.is(Code::Swap) {
        ctx.atomic_swap(word, value, pe)?
    } else if op.is(Code::CompareSwap) {
        ctx.atomic_compare_swap(word, op.n, value, pe)?
    } else {
        ctx.atomic_fetch(word, pe)?
    };
    m.keep(ctx, op.r, old);
    Ok(())
}

#[inline(always)]
fn private(ctx: &Ctx, m: &Memory, op: &Op, value: u64) -> Result {
    let own = ctx.exclusive(op.b as u32)?;
    if op.is(Code::PrivateP) {
        own.p(m.word(op.a), value, op.pe)?;
    } else if op.is(Code::PrivateFence) {
        own.fence()?;
    } else {
        own.quiet(Thread)?;
    }
    own.release();
    Ok(())
}

#[inline(always)]
fn narrow(ctx: &Ctx, m: &Memory, op: &Op, value: u64) -> Result {
    let keep = |found: u64| m.keep(ctx, op.r, found);
    if op.is(Code::StoreHalf) {
        ctx.local_one(m.half(op.a)).store(0, value as u32);
    } else if op.is(Code::LoadHalf) {
        keep(ctx.local_one(m.half(op.a)).load(0) as u64);
    } else if op.is(Code::AddHalf) {
        ctx.atomic_add(m.half(op.a), value as u32, op.pe)?;
    } else if op.is(Code::WaitHalf) {
        ctx.wait_until(Thread, m.half(op.a), comparison(op.n), value as u32)?;
    } else if op.is(Code::PByte) {
        ctx.p(m.bytes().at(BYTES / 3 * 2 + op.a as usize), value as u8, op.pe)?;
    } else if op.is(Code::LoadByte) {
        keep(ctx.local(m.bytes()).load(BYTES / 3 * 2 + op.a as usize) as u64);
    } else {
        piece(ctx, m, op)?;
    }
    Ok(())
}

/// Returns byte `i` of the source of pieces. It is never 0, unlike the bytes around the destination.
#[inline(always)]
fn pattern(i: usize) -> u8 {
    (i * 29) as u8 | 1
}

fn piece(ctx: &Ctx, m: &Memory, op: &Op) -> Result {
    let (to, from, len) = m.piece();
    let (all, third) = (m.bytes(), BYTES / 3);
    let view = ctx.local(all);
    let mut i = 0;
    if op.is(Code::PutPiece) {
        while i < third {
            view.store(third + i, pattern(i));
            i += 1;
        }
        let from = third + from;
        return ctx.put(Thread, all.slice(to..to + len), all.slice(from..from + len), op.pe);
    }
    while i < third {
        let wanted = if i >= to && i < to + len { pattern(i - to + from) } else { 0 };
        if view.load(i) != wanted {
            m.keep(ctx, op.r, 1);
        }
        i += 1;
    }
    Ok(())
}
