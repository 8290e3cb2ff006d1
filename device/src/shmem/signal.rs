//! Signals.

use bytemuck::Pod;

use crate::{Ctx, Group, Result, Sharing, Signal, SignalOp, Sym, SymSlice};

names! {
    shmem_put_signal = put_signal [G: Group, T: Pod] (
        group: G, dst: SymSlice<T>, src: SymSlice<T>, signal: Sym<Signal>, op: SignalOp, value: u64, pe: u32
    ) -> Result;
    shmem_put_signal_nbi = put_signal_nbi [G: Group, T: Pod] (
        group: G, dst: SymSlice<T>, src: SymSlice<T>, signal: Sym<Signal>, op: SignalOp, value: u64, pe: u32
    ) -> Result;
    shmem_signal_op = signal_op [] (signal: Sym<Signal>, op: SignalOp, value: u64, pe: u32) -> Result;
    shmem_signal_fetch = signal_fetch [] (signal: Sym<Signal>) -> Result<u64>;
}

/// Calls [`Ctx::signal_op`] with [`SignalOp::Add`].
///
/// # Errors
/// - The errors of [`Ctx::signal_op`].
#[inline(always)]
#[track_caller]
pub fn shmem_signal_add<S: Sharing>(ctx: &Ctx<S>, signal: Sym<Signal>, value: u64, pe: u32) -> Result {
    ctx.signal_op(signal, SignalOp::Add, value, pe)
}

/// Calls [`Ctx::signal_op`] with [`SignalOp::Set`].
///
/// # Errors
/// - The errors of [`Ctx::signal_op`].
#[inline(always)]
#[track_caller]
pub fn shmem_signal_set<S: Sharing>(ctx: &Ctx<S>, signal: Sym<Signal>, value: u64, pe: u32) -> Result {
    ctx.signal_op(signal, SignalOp::Set, value, pe)
}
