//! Interprets operations that few litmus tests need.

use rushmem_device::prelude::*;

use crate::code::{Code, Op};
use crate::memory::Memory;
use crate::{MAX_TURNS, never};

/// Number of `wait_until_any` calls after which [`Code::AnyEach`] gives up.
const CALLS: u32 = 64;

#[inline(never)]
pub(crate) fn step(ctx: &Ctx, m: &Memory, op: &Op, value: u64) -> Result {
    let pe = op.pe;
    if op.is(Code::QuietPe) {
        ctx.quiet_pe(pe)?;
    } else if op.is(Code::PtrStore) {
        match ctx.ptr(m.array(op.a, 1), pe) {
            Some(there) => there.store(0, value),
            None => m.keep(ctx, op.r, 1),
        }
    } else if op.is(Code::Batch) {
        let batch = ctx.batch();
        batch.p(m.word(op.a), value, pe)?;
        batch.quiet(Thread)?;
        batch.p(m.word(op.b), value, pe)?;
        batch.end();
    } else if op.is(Code::ReleaseGpu) {
        ctx.fence_release(FenceScope::Gpu);
    } else if op.is(Code::AcquireGpu) {
        ctx.fence_acquire(FenceScope::Gpu);
    } else if op.is(Code::StoreRelaxed) {
        ctx.local_one(m.word(op.a)).store_relaxed(0, value);
    } else if op.is(Code::SpinRelaxed) {
        let view = ctx.local_one(m.word(op.a));
        m.keep(ctx, op.r, never(MAX_TURNS, || Ok(view.load_relaxed(0) == value))?);
    } else if op.is(Code::LastPut) {
        last_put(ctx, m, op)?;
    } else if op.is(Code::AnyEach) {
        any_each(ctx, m, op)?;
    } else if op.is(Code::NoWords) {
        no_words(ctx, m, op)?;
    } else if op.is(Code::SetLock) {
        ctx.set_lock(m.lock)?;
    } else if op.is(Code::ClearLock) {
        ctx.clear_lock(m.lock)?;
    } else if op.is(Code::AddFloat) {
        ctx.atomic_add(m.float(op.a), 1.0, pe)?;
    } else {
        let found = ctx.atomic_fetch(m.float(op.a), pe)?;
        m.keep(ctx, op.r, found as u64);
    }
    Ok(())
}

#[inline(always)]
fn last_put(ctx: &Ctx, m: &Memory, op: &Op) -> Result {
    if ctx.atomic_fetch_add(m.word(op.s + 1), 1, ctx.my_pe())? + 1 != op.v {
        return Ok(());
    }
    if op.k != 0 {
        ctx.fence_acquire(FenceScope::Gpu);
    }
    let (dst, src) = (m.array(op.a, op.n), m.array(op.b, op.n));
    ctx.put_signal_nbi(Thread, dst, src, m.word(op.s).set(1), op.pe)
}

#[inline(always)]
fn any_each(ctx: &Ctx, m: &Memory, op: &Op) -> Result {
    let array = m.array(op.a, 4);
    let (view, mut words) = (ctx.local(array), WaitWords::new(array, Cmp::Ne, 0));
    let (mut seen, mut calls) = (0u32, 0);
    while seen != 0b1111 && calls < CALLS {
        if let Some(i) = ctx.wait_until_any(Thread, &mut words)? {
            // Nobody else writes the words that have already been returned.
            seen |= 1 << (i & 3);
            view.store(i, (i == 0) as u64);
        }
        calls += 1;
    }
    m.keep(ctx, op.r, (seen != 0b1111) as u64);
    Ok(())
}

#[inline(always)]
fn no_words(ctx: &Ctx, m: &Memory, op: &Op) -> Result {
    let found = ctx.local(m.array(op.b, 4));
    let mut none = WaitWords::new(m.array(op.a, 0), Cmp::Eq, 1);
    let mut zeros = WaitWords::new(m.array(op.a, 4), Cmp::Eq, 1);
    ctx.wait_until_all(Thread, &none)?;
    let right = ctx.wait_until_any(Thread, &mut none)?.is_none()
        && ctx.wait_until_some(Thread, &mut none, found)? == 0
        && ctx.test_all(Thread, &none)?
        && ctx.test_any(Thread, &mut zeros)?.is_none()
        && ctx.test_some(Thread, &mut zeros, found)? == 0
        && !ctx.test_all(Thread, &zeros)?;
    m.keep(ctx, op.r, !right as u64);
    Ok(())
}
