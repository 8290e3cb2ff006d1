//! Accesses to words that several observers share. The scope is a type, and the ordering is part of the method name.
#![allow(unsafe_code, reason = "declares accesses to raw addresses")]

/// A set of observers that must see a store, and the accesses to 64-bit words at that scope that the send-queue
/// protocol needs.
///
/// # Safety
/// For every function with a pointer: the pointer is aligned to the size of its word and valid for reads, if the function
/// loads, and for writes, if it stores. On a GPU it lies in global memory. While others may use the word at the same
/// time, all accesses to it are atomic.
#[allow(clippy::missing_safety_doc)] // stated once, above
pub trait Scope: Copy + 'static {
    /// Issues an acquire-release fence: `fence.acq_rel` at this scope.
    fn fence();
    /// Issues a release fence: later stores are ordered after everything before it. It waits as long as `fence` does,
    /// but does not invalidate the L1 cache.
    fn release();
    /// Issues an acquire fence: once a relaxed load has seen a store, later loads see what precedes that store. It
    /// invalidates a GPU's L1 cache and waits for nothing.
    fn acquire();
    /// Loads a word with relaxed ordering.
    unsafe fn load_relaxed(p: *const u64) -> u64;
    /// Loads with relaxed ordering, to open a gate. The caller branches on the value, and after the branch only stores,
    /// or loads with `asm!` that is not moved. A GPU issues neither before the branch is decided. A CPU may speculate,
    /// so there this is an acquire load.
    unsafe fn load_gate(p: *const u64) -> u64;
    /// Loads 16 bytes after a gate, with relaxed ordering. On a CPU, the gate itself orders the load. `p` is aligned to 16
    /// bytes and valid for reads of them.
    unsafe fn load16_gated(p: *const [u32; 4]) -> [u32; 4];
    /// Loads a word with acquire ordering.
    unsafe fn load_acquire(p: *const u64) -> u64;
    /// Stores a word with relaxed ordering.
    unsafe fn store_relaxed(p: *mut u64, v: u64);
    /// Stores a word with release ordering.
    unsafe fn store_release(p: *mut u64, v: u64);
    /// Adds, wrapping, with relaxed ordering. Returns the old value.
    unsafe fn fetch_add_relaxed(p: *mut u64, v: u64) -> u64;
    /// Sets bits with release ordering. Returns the old value.
    unsafe fn fetch_or_release(p: *mut u64, v: u64) -> u64;
    /// Stores `new` if the word equals `old`, with release ordering. Returns the value found.
    unsafe fn compare_swap_release(p: *mut u64, old: u64, new: u64) -> u64;
    /// Swaps with acquire ordering. Returns the old value.
    unsafe fn swap_acquire(p: *mut u64, v: u64) -> u64;
    /// Sets bits with relaxed ordering. Returns the old value.
    unsafe fn fetch_or_relaxed(p: *mut u64, v: u64) -> u64;
    /// Swaps with acquire-release ordering. Returns the old value.
    unsafe fn swap_acq_rel(p: *mut u64, v: u64) -> u64;
}

/// System scope: all observers, including other GPUs, the CPU and NICs.
#[derive(Clone, Copy, Debug)]
pub struct Sys;

/// GPU scope: the threads of this GPU.
#[derive(Clone, Copy, Debug)]
pub struct Gpu;

/// Block scope: the threads of this block.
#[derive(Clone, Copy, Debug)]
pub struct Cta;

/// Accesses at system scope to words of the sizes supported by remote atomics.
///
/// # Safety
/// The same as for [`Scope`].
#[allow(clippy::missing_safety_doc)] // stated once, above
pub trait SysWord: Copy + PartialEq + 'static {
    /// Loads the word with relaxed ordering.
    unsafe fn load_relaxed(p: *const Self) -> Self;
    /// Loads the word with acquire ordering.
    unsafe fn load_acquire(p: *const Self) -> Self;
    /// Stores `v` with relaxed ordering.
    unsafe fn store_relaxed(p: *mut Self, v: Self);
    /// Stores `v` with release ordering.
    unsafe fn store_release(p: *mut Self, v: Self);
    /// Adds `v`, wrapping, with relaxed ordering. Returns the old value.
    unsafe fn fetch_add(p: *mut Self, v: Self) -> Self;
    /// Applies bitwise and. Returns the old value.
    unsafe fn fetch_and(p: *mut Self, v: Self) -> Self;
    /// Applies bitwise or. Returns the old value.
    unsafe fn fetch_or(p: *mut Self, v: Self) -> Self;
    /// Applies bitwise exclusive or. Returns the old value.
    unsafe fn fetch_xor(p: *mut Self, v: Self) -> Self;
    /// Adds `v`, wrapping, without a result. No response travels over the link, unlike for `fetch_add`.
    unsafe fn add(p: *mut Self, v: Self);
    /// Applies bitwise and, without a result.
    unsafe fn and(p: *mut Self, v: Self);
    /// Applies bitwise or, without a result.
    unsafe fn or(p: *mut Self, v: Self);
    /// Applies bitwise exclusive or, without a result.
    unsafe fn xor(p: *mut Self, v: Self);
    /// Replaces the word by `v`, and returns the old value.
    unsafe fn swap(p: *mut Self, v: Self) -> Self;
    /// Stores `new` if the word equals `old`. Returns the value found.
    unsafe fn compare_swap(p: *mut Self, old: Self, new: Self) -> Self;
}
