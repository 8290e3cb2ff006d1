//! Words that several observers share: the scope is a type, the ordering is in the name.
#![allow(unsafe_code, reason = "declares accesses to raw addresses")]

/// A set of observers that must see a store, with the accesses to 64-bit words at that scope that the send-queue
/// protocol needs.
///
/// # Safety
/// For every function with a pointer: the pointer is aligned to the size of its word and valid for reads, if the function
/// loads, and for writes, if it stores. On a GPU it lies in global memory. While others may use the word at the same
/// time, all accesses to it are atomic.
#[allow(clippy::missing_safety_doc)] // stated once, above
pub trait Scope: Copy + 'static {
    /// Makes an acquire-release fence: `fence.acq_rel` at this scope.
    fn fence();
    /// Makes a release fence: stores after it come after everything done before it. It waits as long as `fence`, but
    /// does not empty the L1 cache.
    fn release();
    /// Makes an acquire fence: after a relaxed load has seen a store, loads see what was done before that store. It
    /// empties a GPU's L1 cache and waits for nothing.
    fn acquire();
    /// Loads, relaxed.
    unsafe fn load_relaxed(p: *const u64) -> u64;
    /// Loads, relaxed, to open a gate. The caller branches on the value. Behind the branch it only stores, or loads by
    /// `asm!` that stays in place. A GPU issues neither before the branch is decided. A CPU may speculate, so natively
    /// this is an acquire load.
    unsafe fn load_gate(p: *const u64) -> u64;
    /// Loads with acquire ordering.
    unsafe fn load_acquire(p: *const u64) -> u64;
    /// Stores, relaxed.
    unsafe fn store_relaxed(p: *mut u64, v: u64);
    /// Stores with release ordering.
    unsafe fn store_release(p: *mut u64, v: u64);
    /// Adds, wrapping; returns the old value.
    unsafe fn fetch_add_relaxed(p: *mut u64, v: u64) -> u64;
    /// Sets bits with release ordering; returns the old value.
    unsafe fn fetch_or_release(p: *mut u64, v: u64) -> u64;
    /// Writes `new` if the word holds `old`, with release ordering; returns the value found.
    unsafe fn compare_swap_release(p: *mut u64, old: u64, new: u64) -> u64;
    /// Exchanges with acquire ordering; returns the old value.
    unsafe fn swap_acquire(p: *mut u64, v: u64) -> u64;
    /// Sets bits; returns the old value.
    unsafe fn fetch_or_relaxed(p: *mut u64, v: u64) -> u64;
    /// Exchanges; returns the old value.
    unsafe fn swap_acq_rel(p: *mut u64, v: u64) -> u64;
}

/// Every observer in the system: other GPUs, the CPU, NICs.
#[derive(Clone, Copy, Debug)]
pub struct Sys;

/// The threads of this GPU.
#[derive(Clone, Copy, Debug)]
pub struct Gpu;

/// The threads of this block.
#[derive(Clone, Copy, Debug)]
pub struct Cta;

/// Accesses at system scope to words of the sizes that remote atomics have.
///
/// # Safety
/// The same as for [`Scope`].
#[allow(clippy::missing_safety_doc)] // stated once, above
pub trait SysWord: Copy + PartialEq + 'static {
    /// Loads, relaxed.
    unsafe fn load_relaxed(p: *const Self) -> Self;
    /// Loads with acquire ordering.
    unsafe fn load_acquire(p: *const Self) -> Self;
    /// Stores, relaxed.
    unsafe fn store_relaxed(p: *mut Self, v: Self);
    /// Stores with release ordering.
    unsafe fn store_release(p: *mut Self, v: Self);
    /// Adds, wrapping; returns the old value.
    unsafe fn fetch_add(p: *mut Self, v: Self) -> Self;
    /// Applies bitwise and; returns the old value.
    unsafe fn fetch_and(p: *mut Self, v: Self) -> Self;
    /// Applies bitwise or; returns the old value.
    unsafe fn fetch_or(p: *mut Self, v: Self) -> Self;
    /// Applies bitwise exclusive or; returns the old value.
    unsafe fn fetch_xor(p: *mut Self, v: Self) -> Self;
    /// Adds, wrapping, without a result. Like the three below, it saves the answer over the link.
    unsafe fn add(p: *mut Self, v: Self);
    /// Applies bitwise and, without a result.
    unsafe fn and(p: *mut Self, v: Self);
    /// Applies bitwise or, without a result.
    unsafe fn or(p: *mut Self, v: Self);
    /// Applies bitwise exclusive or, without a result.
    unsafe fn xor(p: *mut Self, v: Self);
    /// Exchanges; returns the old value.
    unsafe fn swap(p: *mut Self, v: Self) -> Self;
    /// Writes `new` if the word holds `old`; returns the value found.
    unsafe fn compare_swap(p: *mut Self, old: Self, new: Self) -> Self;
}
