//! Puts, gets and signals
//!
//! Each function has a form for the host, which returns when the operation has finished, and one for a stream, which
//! queues the operation. A put has finished when its source may be reused; `rushmem_quiet` completes it. Symmetric
//! memory is named by its address on this PE.
#![allow(unsafe_code, reason = "exports functions, and passes streams of the caller on")]
#![allow(clippy::missing_safety_doc, reason = "the introduction of the header states the rules for pointers")]
#![allow(clippy::too_many_arguments, reason = "the signatures of OpenSHMEM and NVSHMEM")]

use std::ffi::c_void;

use rushmem::Result;
use rushmem_device::{SignalOp, SignalUpdate};

use super::{in_stream, issue, natural};
use crate::handle::{Handle, On};
use crate::operation::Operation;
use crate::types::{cmp, rushmem_pe, signal_op};

const PUT: &str = "rushmem_putmem";
const GET: &str = "rushmem_getmem";
const PUT_SIGNAL: &str = "rushmem_putmem_signal";
const SIGNAL_OP: &str = "rushmem_signal_op";
const WAIT: &str = "rushmem_signal_wait_until";

/// Copies `nbytes` bytes from `src` on this PE to `dst` on PE `peer`.
///
/// `dst` is in symmetric memory, and `src` in symmetric memory or a local buffer.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_putmem(
    pe: *mut rushmem_pe,
    dst: *mut c_void,
    src: *const c_void,
    nbytes: usize,
    peer: i32,
) -> i32 {
    issue(PUT, pe, On::Host, |handle| put(handle, dst, src, nbytes, peer))
}

/// Queues `rushmem_putmem` in a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_putmem_on_stream(
    pe: *mut rushmem_pe,
    dst: *mut c_void,
    src: *const c_void,
    nbytes: usize,
    peer: i32,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: promised by the caller.
    let on = unsafe { in_stream(stream) };
    issue(PUT, pe, on, |handle| put(handle, dst, src, nbytes, peer))
}

fn put(handle: &Handle, dst: *mut c_void, src: *const c_void, nbytes: usize, peer: i32) -> Result<Operation> {
    let dst = handle.addresses.symmetric((PUT, "dst"), dst, nbytes)?;
    let src = handle.addresses.local((PUT, "src"), src, nbytes)?;
    Ok(Operation::Put { dst, src, peer: natural(PUT, "peer", peer)? })
}

/// Copies `nbytes` bytes from `src` on PE `peer` to `dst` on this PE. The data has arrived when the call has finished.
///
/// `src` is in symmetric memory, and `dst` in symmetric memory or a local buffer.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_getmem(
    pe: *mut rushmem_pe,
    dst: *mut c_void,
    src: *const c_void,
    nbytes: usize,
    peer: i32,
) -> i32 {
    issue(GET, pe, On::Host, |handle| get(handle, dst, src, nbytes, peer))
}

/// Queues `rushmem_getmem` in a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_getmem_on_stream(
    pe: *mut rushmem_pe,
    dst: *mut c_void,
    src: *const c_void,
    nbytes: usize,
    peer: i32,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: promised by the caller.
    let on = unsafe { in_stream(stream) };
    issue(GET, pe, on, |handle| get(handle, dst, src, nbytes, peer))
}

fn get(handle: &Handle, dst: *mut c_void, src: *const c_void, nbytes: usize, peer: i32) -> Result<Operation> {
    let dst = handle.addresses.local((GET, "dst"), dst, nbytes)?;
    let src = handle.addresses.symmetric((GET, "src"), src, nbytes)?;
    Ok(Operation::Get { dst, src, peer: natural(GET, "peer", peer)? })
}

/// Copies data as `rushmem_putmem` does, and then updates `signal` on PE `peer`.
///
/// `op` is a `rushmem_signal`. Whoever sees the new value of the signal also sees the data.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_putmem_signal(
    pe: *mut rushmem_pe,
    dst: *mut c_void,
    src: *const c_void,
    nbytes: usize,
    signal: *mut u64,
    value: u64,
    op: i32,
    peer: i32,
) -> i32 {
    issue(PUT_SIGNAL, pe, On::Host, |handle| {
        put_signal(handle, (dst, src, nbytes), update(handle, PUT_SIGNAL, signal, value, op)?, peer)
    })
}

/// Queues `rushmem_putmem_signal` in a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_putmem_signal_on_stream(
    pe: *mut rushmem_pe,
    dst: *mut c_void,
    src: *const c_void,
    nbytes: usize,
    signal: *mut u64,
    value: u64,
    op: i32,
    peer: i32,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: promised by the caller.
    let on = unsafe { in_stream(stream) };
    issue(PUT_SIGNAL, pe, on, |handle| {
        put_signal(handle, (dst, src, nbytes), update(handle, PUT_SIGNAL, signal, value, op)?, peer)
    })
}

fn put_signal(
    handle: &Handle,
    (dst, src, nbytes): (*mut c_void, *const c_void, usize),
    update: SignalUpdate,
    peer: i32,
) -> Result<Operation> {
    let dst = handle.addresses.symmetric((PUT_SIGNAL, "dst"), dst, nbytes)?;
    let src = handle.addresses.local((PUT_SIGNAL, "src"), src, nbytes)?;
    Ok(Operation::PutSignal { dst, src, update, peer: natural(PUT_SIGNAL, "peer", peer)? })
}

/// Updates `signal` on PE `peer`. `op` is a `rushmem_signal`.
///
/// Only `rushmem_quiet` in between orders the update after earlier puts.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_signal_op(
    pe: *mut rushmem_pe,
    signal: *mut u64,
    value: u64,
    op: i32,
    peer: i32,
) -> i32 {
    issue(SIGNAL_OP, pe, On::Host, |handle| signal_update(handle, signal, (value, op), peer))
}

/// Queues `rushmem_signal_op` in a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_signal_op_on_stream(
    pe: *mut rushmem_pe,
    signal: *mut u64,
    value: u64,
    op: i32,
    peer: i32,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: promised by the caller.
    let on = unsafe { in_stream(stream) };
    issue(SIGNAL_OP, pe, on, |handle| signal_update(handle, signal, (value, op), peer))
}

fn signal_update(handle: &Handle, signal: *mut u64, (value, op): (u64, i32), peer: i32) -> Result<Operation> {
    let update = update(handle, SIGNAL_OP, signal, value, op)?;
    Ok(Operation::SignalOp { update, peer: natural(SIGNAL_OP, "peer", peer)? })
}

fn update(
    handle: &Handle,
    call: &'static str,
    signal: *mut u64,
    value: u64,
    op: i32,
) -> Result<SignalUpdate> {
    let signal = handle.addresses.signal(call, signal)?;
    Ok(match signal_op(call, op)? {
        SignalOp::Set => signal.set(value),
        SignalOp::Add => signal.add(value),
    })
}

/// Waits until `signal` on this PE compares with `value` as the `rushmem_cmp` `cmp` says.
///
/// Data delivered before the signal can then be read. Fails after the setting `timeout`.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_signal_wait_until(
    pe: *mut rushmem_pe,
    signal: *mut u64,
    cmp: i32,
    value: u64,
) -> i32 {
    issue(WAIT, pe, On::Host, |handle| wait(handle, signal, cmp, value))
}

/// Queues `rushmem_signal_wait_until` in a stream. Later work in the stream waits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_signal_wait_until_on_stream(
    pe: *mut rushmem_pe,
    signal: *mut u64,
    cmp: i32,
    value: u64,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: promised by the caller.
    let on = unsafe { in_stream(stream) };
    issue(WAIT, pe, on, |handle| wait(handle, signal, cmp, value))
}

fn wait(handle: &Handle, signal: *mut u64, comparison: i32, value: u64) -> Result<Operation> {
    let signal = handle.addresses.signal(WAIT, signal)?;
    Ok(Operation::Wait { signal, cmp: cmp(WAIT, comparison)?, value })
}
