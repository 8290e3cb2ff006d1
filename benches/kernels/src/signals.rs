//! Benchmarks of a ping-pong between one block of PE 0 and one block of PE 1.

use rushmem_device::prelude::*;

use crate::span::Span;

/// Ping-pong with signals only, from one thread of each PE. The signal must be 0 at the launch.
#[kernel]
pub fn ping_pong(ctx: &Ctx, spans: SymSlice<u64>, signal: Sym<Signal>, rounds: u32) -> Result {
    let block = Block::current();
    ctx.sync_all(block)?;
    if ctx.my_pe() > 1 {
        return Ok(());
    }
    let (begins, peer) = (ctx.my_pe() == 0, 1 - ctx.my_pe());
    let span = Span::begin(ctx, spans);
    let (mut now, last) = (0, rounds as u64);
    while now < last && block.leader() {
        now += 1;
        if begins {
            ctx.signal_op(signal.add(1), peer)?;
        }
        ctx.signal_wait_until(Thread, signal, Cmp::Ge, now)?;
        if !begins {
            ctx.signal_op(signal.add(1), peer)?;
        }
    }
    span.end();
    Ok(())
}

/// Ping-pong in which the whole block puts `src` with a signal. The signal must be 0 at the launch.
#[kernel]
pub fn put_signal_ping_pong(
    ctx: &Ctx,
    spans: SymSlice<u64>,
    dst: SymSlice<u64>,
    src: SymSlice<u64>,
    signal: Sym<Signal>,
    rounds: u32,
) -> Result {
    let block = Block::current();
    ctx.sync_all(block)?;
    if ctx.my_pe() > 1 {
        return Ok(());
    }
    let (me, peer) = (ctx.my_pe(), 1 - ctx.my_pe());
    let span = Span::begin(ctx, spans);
    let (mut now, last) = (0, 2 * rounds as u64);
    while now < last {
        // PE 0 sends in even turns and PE 1 in odd ones; the other PE waits for its next arrival.
        if now & 1 == u64::from(me) {
            // The preceding wait was already a barrier of the block.
            ctx.put_signal_nbi(block.without_barrier(), dst, src, signal.add(1), peer)?;
        } else {
            ctx.signal_wait_until(block, signal, Cmp::Ge, (now >> 1) + 1)?;
        }
        now += 1;
    }
    span.end();
    ctx.quiet(block)
}
