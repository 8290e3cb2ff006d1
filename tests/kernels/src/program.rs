//! Test kernel that interprets programs: each thread performs a list of operations that the host generated.

use rushmem_device::prelude::*;

/// Number of words per operation: code, PE, and four operands.
pub const OP_WORDS: usize = 6;

/// An operation of the interpreter, with operands `a`, `b`, `n` and `v`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Operation {
    /// Terminates the list of operations.
    End,
    /// Calls `put` of `n` bytes from `b` to `a` of the PE.
    Put,
    /// Calls `put_nbi`, with the operands of `Put`.
    PutNbi,
    /// Calls `get` of `n` bytes from `b` of the PE to `a`.
    Get,
    /// Calls `get_nbi`, with the operands of `Get`.
    GetNbi,
    /// Calls `put_signal`, with the operands of `Put`. Adds `v` to signal 0.
    PutSignal,
    /// Calls `put_signal_nbi`, with the operands of `PutSignal`.
    PutSignalNbi,
    /// Calls `p` with the value `v` for word `a`.
    P,
    /// Calls `g` for word `a`, and stores result `b`.
    G,
    /// Calls `atomic_add` with the addend `v` for word `a`.
    Add,
    /// Calls `atomic_fetch_add` with the addend `v` for word `a`, and stores result `b`.
    FetchAdd,
    /// Calls `atomic_swap` with the value `v` for word `a`, and stores result `b`.
    Swap,
    /// Calls `atomic_compare_swap`, which changes word `a` from `n` to `v`, and stores result `b`.
    CompareSwap,
    /// Calls `atomic_fetch_or` with the bits `v` for word `a`, and stores result `b`.
    FetchOr,
    /// Calls `atomic_xor` with the bits `v` for word `a`.
    Xor,
    /// Calls `signal_op` to add `v` to signal 1.
    Signal,
    /// Calls `fence`.
    Fence,
    /// Calls `quiet`.
    Quiet,
}

/// Performs each thread's part of `programs`. Operations access `bytes` and `words`. Only this PE's interpreter writes
/// its `results`.
#[kernel]
pub fn interpret(
    ctx: &Ctx,
    programs: SymSlice<u64>,
    bytes: SymSlice<u8>,
    words: SymSlice<u64>,
    signals: SymSlice<Signal>,
    results: SymSlice<u64>,
) -> Result {
    let share = programs.len().checked_div(Thread::count()).unwrap_or(0);
    let program = ctx.local(programs);
    let mut at = Thread::index() * share;
    let end = at + share;
    while at + OP_WORDS <= end && program.load(at) != Operation::End as u64 {
        let op = [0, 1, 2, 3, 4, 5].map(|i| program.load(at + i));
        step(ctx, op, bytes, words, signals, results)?;
        at += OP_WORDS;
    }
    ctx.quiet(Thread)
}

#[inline(always)]
fn step(
    ctx: &Ctx,
    [code, pe, a, b, n, v]: [u64; OP_WORDS],
    bytes: SymSlice<u8>,
    words: SymSlice<u64>,
    signals: SymSlice<Signal>,
    results: SymSlice<u64>,
) -> Result {
    let (pe, len) = (pe as u32, n as usize);
    let part = |from: u64| bytes.slice(from as usize..from as usize + len);
    let word = words.at(a as usize);
    let keep = |value: u64| ctx.local(results).store(b as usize, value);
    if code == Operation::Put as u64 {
        ctx.put(Thread, part(a), part(b), pe)?;
    } else if code == Operation::PutNbi as u64 {
        ctx.put_nbi(Thread, part(a), part(b), pe)?;
    } else if code == Operation::Get as u64 {
        ctx.get(Thread, part(a), part(b), pe)?;
    } else if code == Operation::GetNbi as u64 {
        ctx.get_nbi(Thread, part(a), part(b), pe)?;
    } else if code == Operation::PutSignal as u64 {
        ctx.put_signal(Thread, part(a), part(b), signals.at(0).add(v), pe)?;
    } else if code == Operation::PutSignalNbi as u64 {
        ctx.put_signal_nbi(Thread, part(a), part(b), signals.at(0).add(v), pe)?;
    } else if code == Operation::P as u64 {
        ctx.p(word, v, pe)?;
    } else if code == Operation::G as u64 {
        keep(ctx.g(word, pe)?);
    } else if code == Operation::Add as u64 {
        ctx.atomic_add(word, v, pe)?;
    } else if code == Operation::FetchAdd as u64 {
        keep(ctx.atomic_fetch_add(word, v, pe)?);
    } else if code == Operation::Swap as u64 {
        keep(ctx.atomic_swap(word, v, pe)?);
    } else if code == Operation::CompareSwap as u64 {
        keep(ctx.atomic_compare_swap(word, n, v, pe)?);
    } else if code == Operation::FetchOr as u64 {
        keep(ctx.atomic_fetch_or(word, v, pe)?);
    } else if code == Operation::Xor as u64 {
        ctx.atomic_xor(word, v, pe)?;
    } else if code == Operation::Signal as u64 {
        ctx.signal_op(signals.at(1).add(v), pe)?;
    } else if code == Operation::Fence as u64 {
        ctx.fence()?;
    } else {
        ctx.quiet(Thread)?;
    }
    Ok(())
}
