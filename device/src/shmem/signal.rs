//! OpenSHMEM names of signal operations.

use bytemuck::Pod;

use crate::{Ctx, Group, Result, Sharing, Signal, SignalUpdate, Sym, SymSlice};

names! {
    shmem_put_signal = put_signal [G: Group, T: Pod] (
        group: G, dst: SymSlice<T>, src: SymSlice<T>, update: SignalUpdate, pe: u32
    ) -> Result;
    shmem_put_signal_nbi = put_signal_nbi [G: Group, T: Pod] (
        group: G, dst: SymSlice<T>, src: SymSlice<T>, update: SignalUpdate, pe: u32
    ) -> Result;
    shmem_signal_op = signal_op [] (update: SignalUpdate, pe: u32) -> Result;
    shmem_signal_fetch = signal_fetch [] (signal: Sym<Signal>) -> Result<u64>;
}

/// Calls [`Ctx::signal_op`] with [`Sym::add`].
///
/// # Errors
/// - The errors of [`Ctx::signal_op`].
#[inline(always)]
#[track_caller]
pub fn shmem_signal_add<S: Sharing>(ctx: &Ctx<S>, signal: Sym<Signal>, value: u64, pe: u32) -> Result {
    ctx.signal_op(signal.add(value), pe)
}

/// Calls [`Ctx::signal_op`] with [`Sym::set`].
///
/// # Errors
/// - The errors of [`Ctx::signal_op`].
#[inline(always)]
#[track_caller]
pub fn shmem_signal_set<S: Sharing>(ctx: &Ctx<S>, signal: Sym<Signal>, value: u64, pe: u32) -> Result {
    ctx.signal_op(signal.set(value), pe)
}
