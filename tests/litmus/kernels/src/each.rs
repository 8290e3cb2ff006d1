//! Interprets the operations that all threads of a litmus test's actor perform.

use rushmem_device::prelude::*;

use crate::code::{Code, Op};
use crate::memory::{Memory, comparison};
use crate::{agreed, one, pause, random};

#[inline(always)]
pub(crate) fn step<G: Group>(ctx: &Ctx, group: G, m: &Memory, op: &Op, dice: &mut u64) -> Result {
    if op.is(Code::Delay) {
        pause(random(dice), op.n);
        return Ok(());
    }
    if op.code <= Code::Diverge as u64 {
        return together(ctx, group, m, op);
    }
    let mine = if group.rank() as u64 == op.by { one::step(ctx, m, op) } else { Ok(()) };
    agreed(group, mine)
}

#[inline(never)]
fn together<G: Group>(ctx: &Ctx, group: G, m: &Memory, op: &Op) -> Result {
    let value = m.value(ctx, op);
    if op.is(Code::GroupSync) {
        group.sync();
    } else if op.is(Code::Fill) {
        let (view, mut i) = (ctx.local(m.array(op.a, op.n)), group.rank() as usize);
        while i < view.len() {
            view.store(i, value);
            i += group.size() as usize;
        }
    } else if op.is(Code::Expect) {
        let (view, mut i) = (ctx.local(m.array(op.a, op.n)), group.rank() as usize);
        while i < view.len() {
            if view.load(i) != value {
                m.keep(ctx, op.r, 1);
            }
            i += group.size() as usize;
        }
        group.sync();
    } else if op.is(Code::Put) {
        ctx.put(group, m.array(op.a, op.n), m.array(op.b, op.n), op.pe)?;
    } else if op.is(Code::PutNbi) {
        ctx.put_nbi(group, m.array(op.a, op.n), m.array(op.b, op.n), op.pe)?;
    } else if op.is(Code::Get) {
        ctx.get(group, m.array(op.a, op.n), m.array(op.b, op.n), op.pe)?;
    } else if op.is(Code::GetNbi) {
        ctx.get_nbi(group, m.array(op.a, op.n), m.array(op.b, op.n), op.pe)?;
    } else if op.is(Code::PutSignal) || op.is(Code::PutSignalNbi) {
        let (dst, src, signal) = (m.array(op.a, op.n), m.array(op.b, op.n), m.word(op.s));
        let update = if op.r == 1 { signal.add(value) } else { signal.set(value) };
        if op.is(Code::PutSignal) {
            ctx.put_signal(group, dst, src, update, op.pe)?;
        } else {
            ctx.put_signal_nbi(group, dst, src, update, op.pe)?;
        }
    } else if op.is(Code::QuietAll) {
        ctx.quiet(group)?;
    } else if op.is(Code::FlushAll) {
        ctx.flush(group)?;
    } else if op.is(Code::StrongSignal) {
        ctx.signal_strong(group, m.word(op.s).add(value), op.pe)?;
    } else if op.is(Code::SignalWaitAll) {
        let found = ctx.signal_wait_until(group, m.word(op.s), comparison(op.n), value)?;
        if group.leader() {
            m.keep(ctx, op.r, found);
        }
    } else if op.is(Code::Barrier) {
        ctx.barrier_all(group)?;
    } else if op.is(Code::Sync) {
        ctx.sync_all(group)?;
    } else {
        let mine = each(ctx, m, op, group.rank() as u64, value);
        agreed(group, mine)?;
    }
    Ok(())
}

#[inline(always)]
fn each(ctx: &Ctx, m: &Memory, op: &Op, rank: u64, value: u64) -> Result {
    let value = value.wrapping_add(rank);
    let to = m.array(op.a + rank, 1);
    if op.is(Code::EachPut) {
        let from = m.array(op.b + rank, 1);
        ctx.local(from).store(0, value);
        ctx.put_nbi(Thread, to, from, op.pe)
    } else if op.is(Code::EachExpect) {
        if ctx.local(to).load(0) != value {
            m.keep(ctx, op.r, 1);
        }
        Ok(())
    } else if rank & 1 == 1 {
        ctx.p(to.at(0), value, op.pe)
    } else {
        ctx.p(to.at(0), value, op.n as u32)
    }
}
