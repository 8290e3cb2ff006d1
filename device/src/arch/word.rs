//! Words that several observers share: the scope is a type, the ordering is in the name.
#![allow(unsafe_code, reason = "declares accesses to raw addresses")]

/// Who must see a store, and the accesses to 64-bit words at that scope that the send-queue protocol needs.
///
/// # Safety
/// For every function with a pointer: it is aligned, valid for the access, and while others may use the word at
/// the same time, all accesses to it are atomic.
#[allow(clippy::missing_safety_doc)] // stated once, above
pub trait Scope: Copy + 'static {
    /// `fence.acq_rel` at this scope.
    fn fence();
    /// `fence.release` at this scope: what was done before it is there before the stores after it. It waits as `fence` does,
    /// and leaves the L1 cache as it is, which `fence` empties.
    fn release();
    /// `fence.acquire` at this scope: what was done before a store that a relaxed load has seen is there for the loads after
    /// it. It empties a GPU's L1 cache, and waits for nothing.
    fn acquire();
    /// A relaxed load.
    unsafe fn load_relaxed(p: *const u64) -> u64;
    /// A relaxed load that opens a gate: the caller branches on the value, and behind the branch only stores, and makes the
    /// loads that are made where they are written (asm). A GPU issues neither before the branch is decided. A CPU may guess, so
    /// that natively it is an acquire load.
    unsafe fn load_gate(p: *const u64) -> u64;
    /// An acquire load.
    unsafe fn load_acquire(p: *const u64) -> u64;
    /// A relaxed store.
    unsafe fn store_relaxed(p: *mut u64, v: u64);
    /// A release store.
    unsafe fn store_release(p: *mut u64, v: u64);
    /// Adds, wrapping; returns the old value.
    unsafe fn fetch_add_relaxed(p: *mut u64, v: u64) -> u64;
    /// Sets bits, after all that was done before; returns the old value.
    unsafe fn fetch_or_release(p: *mut u64, v: u64) -> u64;
    /// Writes `new` if the word holds `old`, after all that was done before; returns the value found.
    unsafe fn compare_swap_release(p: *mut u64, old: u64, new: u64) -> u64;
    /// Exchanges, before all that is done after it; returns the old value.
    unsafe fn swap_acquire(p: *mut u64, v: u64) -> u64;
    /// Bitwise or; returns the old value.
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
/// As [`Scope`].
#[allow(clippy::missing_safety_doc)] // stated once, above
pub trait SysWord: Copy + PartialEq + 'static {
    /// A relaxed load.
    unsafe fn load_relaxed(p: *const Self) -> Self;
    /// An acquire load.
    unsafe fn load_acquire(p: *const Self) -> Self;
    /// A relaxed store.
    unsafe fn store_relaxed(p: *mut Self, v: Self);
    /// A release store.
    unsafe fn store_release(p: *mut Self, v: Self);
    /// Adds, wrapping; returns the old value.
    unsafe fn fetch_add(p: *mut Self, v: Self) -> Self;
    /// Bitwise and; returns the old value.
    unsafe fn fetch_and(p: *mut Self, v: Self) -> Self;
    /// Bitwise or; returns the old value.
    unsafe fn fetch_or(p: *mut Self, v: Self) -> Self;
    /// Bitwise exclusive or; returns the old value.
    unsafe fn fetch_xor(p: *mut Self, v: Self) -> Self;
    /// Adds, wrapping. Nothing comes back, as of the three below: the other ends of links have less to do.
    unsafe fn add(p: *mut Self, v: Self);
    /// Bitwise and.
    unsafe fn and(p: *mut Self, v: Self);
    /// Bitwise or.
    unsafe fn or(p: *mut Self, v: Self);
    /// Bitwise exclusive or.
    unsafe fn xor(p: *mut Self, v: Self);
    /// Exchanges; returns the old value.
    unsafe fn swap(p: *mut Self, v: Self) -> Self;
    /// Writes `new` if the word holds `old`; returns the value found.
    unsafe fn compare_swap(p: *mut Self, old: Self, new: Self) -> Self;
}
