//! Kernels that do one thing many times.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]
#![forbid(unsafe_code)]

use rushmem_device::prelude::*;

/// One thread of PE 0 puts `src` to PE 1 and waits for its completion, `rounds` times.
#[kernel]
pub fn put_quiet(ctx: &Ctx, dst: SymSlice<u8>, src: SymSlice<u8>, rounds: u32) -> Result {
    if ctx.my_pe() == 0 && Thread::index() == 0 {
        for _ in 0..rounds {
            ctx.put_nbi(Thread, dst, src, 1)?;
            ctx.quiet(Thread)?;
        }
    }
    Ok(())
}

/// One thread of PE 0 adds 1 to a word of PE 1 and waits for the old value, `rounds` times.
#[kernel]
pub fn fetch_add(ctx: &Ctx, word: Sym<u64>, rounds: u32) -> Result {
    if ctx.my_pe() == 0 && Thread::index() == 0 {
        for _ in 0..rounds {
            ctx.atomic_fetch_add(word, 1, 1)?;
        }
    }
    Ok(())
}

/// PE 0 and PE 1 send a signal to and fro, `rounds` times; the word has counted `before` signals so far.
#[kernel]
pub fn ping_pong(ctx: &Ctx, signal: Sym<Signal>, before: u64, rounds: u32) -> Result {
    if ctx.my_pe() > 1 || Thread::index() != 0 {
        return Ok(());
    }
    let peer = 1 - ctx.my_pe();
    for round in 1..=rounds as u64 {
        if ctx.my_pe() == 0 {
            ctx.signal_op(signal, SignalOp::Add, 1, peer)?;
        }
        ctx.signal_wait_until(Thread, signal, Cmp::Ge, before + round)?;
        if ctx.my_pe() == 1 {
            ctx.signal_op(signal, SignalOp::Add, 1, peer)?;
        }
    }
    Ok(())
}

/// Every warp of PE 0 puts a message of its own to PE 1, `rounds` times, and waits for all of them once.
#[kernel]
pub fn put_warps(ctx: &Ctx, dst: SymSlice<u8>, src: SymSlice<u8>, bytes: u64, rounds: u32) -> Result {
    let (block, warp) = (Block::current(), Warp::current());
    if ctx.my_pe() == 0 {
        let first = (Thread::index() >> 5) * bytes as usize;
        let range = first..first + bytes as usize;
        for _ in 0..rounds {
            ctx.put_nbi(warp, dst.slice(range.clone()), src.slice(range.clone()), 1)?;
        }
        ctx.quiet(block)?;
    }
    Ok(())
}

/// Every lane of PE 0 puts 8 bytes of its own to PE 1, `rounds` times; lanes that post at once share a doorbell.
#[kernel]
pub fn put_lanes(ctx: &Ctx, dst: SymSlice<u64>, rounds: u32) -> Result {
    if ctx.my_pe() == 0 {
        for _ in 0..rounds {
            ctx.p(dst.at(Thread::index()), 1u64, 1)?;
        }
        ctx.quiet(Block::current())?;
    }
    Ok(())
}

/// A barrier of all PEs, `rounds` times.
#[kernel]
pub fn barriers(ctx: &Ctx, rounds: u32) -> Result {
    for _ in 0..rounds {
        ctx.barrier_all(Block::current())?;
    }
    Ok(())
}
