//! Atomic operations by the GPU's own instructions, at system scope.
#![allow(unsafe_code, reason = "atomics on raw addresses")]

use crate::copy::store_words;
use crate::request::Request;
use rushmem_device::arch::SysWord;
use rushmem_mlx5::{AtomicOp, Width};

/// Executes an atomic request and writes the old value to its result address, if it has one.
///
/// # Safety
/// The target is an aligned word that this thread may access. The result address is memory that it may write, at any
/// alignment.
pub(crate) unsafe fn execute(request: &Request) {
    let (at, op, result) = (request.target(), request.op(), request.other());
    // SAFETY: the request names an aligned word that this thread may access.
    let (old, len) = unsafe {
        match request.width() {
            Width::Eight => (modify_u64(at as *mut u64, op), 8),
            // A ConnectX returns the old value of a 4-byte atomic in big-endian order.
            Width::Four => (modify_u32(at as *mut u32, op).swap_bytes().into(), 4),
        }
    };
    if result != 0 {
        // SAFETY: the result address is memory that this thread may write, at any alignment.
        unsafe { store_words(result, [old, 0, 0, 0], len) };
    }
}

/// Executes an 8-byte atomic and returns the old value. Uses a native instruction where there is one.
///
/// # Safety
/// `p` is an aligned word that this thread may access.
unsafe fn modify_u64(p: *mut u64, op: AtomicOp) -> u64 {
    // SAFETY: `p` is aligned, and this thread may access it.
    unsafe {
        match op {
            AtomicOp::Add { add, boundary: 0 } => SysWord::fetch_add(p, add),
            AtomicOp::CompareSwap { compare, swap, compare_mask: u64::MAX, swap_mask: u64::MAX } => {
                SysWord::compare_swap(p, compare, swap)
            }
            AtomicOp::CompareSwap { swap, compare_mask: 0, swap_mask: u64::MAX, .. } => {
                SysWord::swap(p, swap)
            }
            _ => modify(p, |old| op.apply(old, Width::Eight)),
        }
    }
}

/// Executes a 4-byte atomic and returns the old value.
///
/// # Safety
/// `p` is an aligned word that this thread may access.
unsafe fn modify_u32(p: *mut u32, op: AtomicOp) -> u32 {
    let low = |value: u64| value as u32;
    // SAFETY: `p` is aligned, and this thread may access it.
    unsafe {
        match op {
            AtomicOp::Add { add, boundary } if low(boundary) == 0 => SysWord::fetch_add(p, low(add)),
            _ => modify(p, |old| op.apply(old.into(), Width::Four).map(low)),
        }
    }
}

/// Applies `change` to the word in a compare-and-swap loop, until it returns `None` or no other update intervenes.
/// Returns the old value.
///
/// # Safety
/// `p` is an aligned word that this thread may access.
unsafe fn modify<T: SysWord>(p: *mut T, change: impl Fn(T) -> Option<T>) -> T {
    // SAFETY: `p` is aligned, and this thread may access it.
    let mut old = unsafe { T::load_relaxed(p) };
    while let Some(new) = change(old) {
        // SAFETY: as above.
        let found = unsafe { T::compare_swap(p, old, new) };
        if found == old {
            break;
        }
        old = found;
    }
    old
}
