//! Primitives on a CPU, where a kernel runs natively, with each GPU thread as a [`Lane`] of an executor.
//!
//! This file does not schedule lanes. An executor, such as that of the host runtime, installs a lane with [`enter`]
//! before it resumes it, and every primitive calls the installed lane.
#![allow(unsafe_code, reason = "implements the primitives on raw addresses with atomics")]
#![allow(clippy::disallowed_methods)] // `core`'s atomics are correct on a CPU
#![allow(clippy::panic, clippy::expect_used, clippy::indexing_slicing)] // and so is a panic

use core::cell::Cell;
use core::panic::Location;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::OnceLock;
use std::time::Instant;

use super::{Cta, FailedTests, Gpu, Scope, Sys, SysWord, WeakMemory};
use crate::event::Watcher;

/// One GPU thread, as its executor presents it to the device code that it runs.
///
/// Methods that may run other lanes take their call site. The executor uses it to find lanes that meet at the same
/// place, and to report deadlocks.
pub trait Lane {
    /// Returns the index of this thread in its block (`threadIdx.x`).
    fn thread(&self) -> u32;
    /// Returns the number of threads in a block (`blockDim.x`).
    fn threads(&self) -> u32;
    /// Returns the index of this block (`blockIdx.x`).
    fn block(&self) -> u32;
    /// Returns the number of blocks in the grid (`gridDim.x`).
    fn blocks(&self) -> u32;
    /// Runs one iteration of a wait loop: runs other lanes, other blocks and the software ConnectX.
    fn spin(&self, site: &'static Location<'static>);
    /// Synchronises the whole block (`barrier.sync`). Returns whether any lane passed `true`.
    fn block_any(&self, vote: bool, site: &'static Location<'static>) -> bool;
    /// Waits for all lanes of `mask`, and returns the value that each of them passed; entries outside of `mask` are
    /// zero.
    ///
    /// Bit `i` of `mask` is lane `i`. The caller's bit is set.
    fn warp_gather(&self, mask: u32, value: u64, site: &'static Location<'static>) -> [u64; 32];
    /// Returns the lanes of this warp that execute this call together (`activemask` at a point of convergence).
    ///
    /// Returns once every other live lane of the warp has reached `site`, waits at another call site, or has spun.
    fn converged(&self, site: &'static Location<'static>) -> u32;
    /// Returns the block's shared memory: one allocation for all its lanes, 16-byte aligned, zeroed at launch.
    fn shared(&self) -> (*mut u8, usize);
    /// Returns two words that all lanes of the block share, for [`block_broadcast`].
    fn broadcast_words(&self) -> &Cell<(u64, u64)>;
    /// Returns the statistics of this lane's failed tests. Initially there are none.
    fn failed_tests(&self) -> &Cell<FailedTests>;
    /// Yields to other lanes, without waiting for them.
    fn pass(&self, _site: &'static Location<'static>) {}
    /// Called at the start of a wait loop. It tells an executor that lets the CPU idle while no lane makes progress
    /// that this lane has made some.
    fn wait_begins(&self) {}
    /// Returns the watcher of this lane, if the sanitizer watches the launch.
    fn watcher(&self) -> Option<&dyn Watcher> {
        None
    }
    /// Returns the weak memory of this block, if plain accesses are to be delayed.
    fn weak_memory(&self) -> Option<&WeakMemory> {
        None
    }
}

std::thread_local! {
    static LANE: Cell<Option<NonNull<dyn Lane>>> = const { Cell::new(None) };
}

/// Runs `f` with `lane` as the current lane of this OS thread. Executors call it around each resumption.
pub fn enter<R>(lane: &dyn Lane, f: impl FnOnce() -> R) -> R {
    struct Restore(Option<NonNull<dyn Lane>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            // Lanes nest: an executor may resume a lane from within another one.
            LANE.set(self.0);
        }
    }
    // SAFETY: only the lifetime is erased; `Restore` takes the pointer out again before `lane` can end.
    let erased: NonNull<dyn Lane> = unsafe { core::mem::transmute(NonNull::from(lane)) };
    let _restore = Restore(LANE.replace(Some(erased)));
    f()
}

fn lane<R>(f: impl FnOnce(&dyn Lane) -> R) -> R {
    let current = LANE.get().expect("device code runs only inside a kernel launch");
    // SAFETY: `enter` keeps the lane alive while it is installed.
    f(unsafe { current.as_ref() })
}

/// Calls `f` with the watcher of the current lane. Returns `None` if there is none.
#[cfg(any(debug_assertions, feature = "sanitize"))]
pub(crate) fn watched<R>(f: impl FnOnce(&dyn Watcher) -> R) -> Option<R> {
    // SAFETY: `enter` keeps the lane alive while it is installed.
    let lane = unsafe { LANE.get()?.as_ref() };
    lane.watcher().map(f)
}

/// Calls `f` with the weak memory of the current block and the index of the current thread. Returns `None` if plain
/// accesses go straight to memory.
#[cfg(any(debug_assertions, feature = "sanitize"))]
#[inline(always)]
fn weakly<R>(f: impl FnOnce(&WeakMemory, u32) -> R) -> Option<R> {
    // SAFETY: `enter` keeps the lane alive while it is installed.
    let lane = unsafe { LANE.get()?.as_ref() };
    lane.weak_memory().map(|memory| f(memory, lane.thread()))
}

/// Returns `None`: builds without debug assertions or the sanitizer have no weak memory.
#[cfg(not(any(debug_assertions, feature = "sanitize")))]
#[inline(always)]
fn weakly<R>(_f: impl FnOnce(&WeakMemory, u32) -> R) -> Option<R> {
    None
}

#[cfg(any(debug_assertions, feature = "sanitize"))]
pub(crate) fn pass(site: &'static Location<'static>) {
    lane(|l| l.pass(site));
}

/// Returns the index of this thread in its block.
pub fn thread() -> u32 {
    lane(|l| l.thread())
}

/// Returns the number of threads in a block.
pub fn threads() -> u32 {
    lane(|l| l.threads())
}

/// Returns the index of this block.
pub fn block() -> u32 {
    lane(|l| l.block())
}

/// Returns the number of blocks in the grid.
pub fn blocks() -> u32 {
    lane(|l| l.blocks())
}

/// Runs one iteration of a wait loop: runs other lanes, other blocks and the software ConnectX.
#[track_caller]
pub fn spin() {
    let site = Location::caller();
    // Without this, a loop that waits for its own delayed store would never see it.
    weakly(|memory, thread| memory.pass(thread));
    lane(|l| l.spin(site))
}

/// Called once at the start of a wait loop. Informs the executor that this lane has made progress.
pub fn wait_begins() {
    lane(|l| l.wait_begins())
}

/// Returns the time in a unit that is cheap to read: nanoseconds on a CPU, cycles on a GPU.
pub fn ticks() -> u64 {
    now_ns()
}

/// Maximum number of ticks between two tests of the same loop. After a longer pause, the thread has done other work.
/// Loops are slower in debug builds.
pub const PAUSE: u64 = if cfg!(debug_assertions) { 2000 } else { 200 };

/// Returns the statistics of this thread's failed tests.
pub fn failed_tests() -> FailedTests {
    lane(|l| l.failed_tests().get())
}

/// Replaces the statistics of this thread's failed tests.
pub fn set_failed_tests(tests: FailedTests) {
    lane(|l| l.failed_tests().set(tests))
}

/// Resets the statistics of failed tests, after a successful test.
pub fn clear_failed_tests() {
    set_failed_tests(FailedTests::default())
}

/// Does nothing. On a GPU, suspends the thread for about `ns` nanoseconds; on a CPU, [`spin`] runs other lanes instead.
#[inline(always)]
pub fn rest(_ns: u32) {}

/// Number of iterations of a wait loop between two checks of the clock and the abort word.
pub const TURNS: u32 = 16;

/// Aborts the kernel. For broken invariants only, never for an error that a user can cause.
#[track_caller]
pub fn trap() -> ! {
    panic!("device trap")
}

/// Returns the time of a monotonic clock, in nanoseconds. Its origin is arbitrary.
pub fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Native kernels start when the earlier work of their stream has completed.
pub fn await_stream() {}

/// Synchronises the whole block. Returns whether any thread passed `true`.
#[track_caller]
pub fn block_any(vote: bool) -> bool {
    let site = Location::caller();
    // A barrier shows this thread's stores to its block.
    weakly(|memory, thread| memory.show(thread));
    lane(|l| l.block_any(vote, site))
}

/// Synchronises all threads of the block.
#[track_caller]
pub fn sync_block() {
    block_any(false);
}

/// Returns the result of the barrier `meet`, and two values for the whole block, each passed by one thread.
///
/// Two such calls need another barrier between them, or a thread could overwrite the values before all have read them.
pub fn block_broadcast<R>(one: Option<u64>, other: Option<u64>, meet: impl FnOnce() -> R) -> (R, u64, u64) {
    lane(|l| {
        // Threads that pass no value keep what another thread has stored.
        let (a, b) = l.broadcast_words().get();
        l.broadcast_words().set((one.unwrap_or(a), other.unwrap_or(b)));
    });
    let met = meet();
    let (a, b) = lane(|l| l.broadcast_words().get());
    (met, a, b)
}

#[track_caller]
fn gather(mask: u32, value: u64) -> [u64; 32] {
    let site = Location::caller();
    // Synchronising a warp orders memory among its lanes.
    weakly(|memory, thread| memory.show(thread));
    lane(|l| l.warp_gather(mask, value, site))
}

/// Returns `value`. On a GPU, hides from ptxas that the value is warp-uniform.
pub fn opaque(value: u64) -> u64 {
    value
}

/// Returns `value`. On a GPU, keeps the compiler from computing it elsewhere.
pub fn overlap(value: u64) -> u64 {
    value
}

/// Synchronises the lanes of `mask`, and orders memory among them.
#[track_caller]
pub fn sync_warp(mask: u32) {
    gather(mask, 0);
}

/// Returns the value passed by lane `from` of the warp.
#[track_caller]
pub fn shuffle(mask: u32, value: u64, from: u32) -> u64 {
    gather(mask, value)[from as usize & 31]
}

/// Returns the lanes of `mask` that passed `true`.
#[track_caller]
pub fn ballot(mask: u32, vote: bool) -> u32 {
    lanes_where(mask, &gather(mask, vote as u64), 1)
}

/// Returns the lanes of `mask` that passed the same value as the calling lane.
#[track_caller]
pub fn match_any(mask: u32, value: u64) -> u32 {
    lanes_where(mask, &gather(mask, value), value)
}

fn lanes_where(mask: u32, values: &[u64; 32], wanted: u64) -> u32 {
    (0..32).filter(|&i| mask >> i & 1 == 1 && values[i] == wanted).fold(0, |m, i| m | 1 << i)
}

/// Returns `condition`. On a CPU, every lane counts as converged only with itself.
#[inline(always)]
pub fn together(condition: bool) -> bool {
    condition
}

/// Returns the lanes that are converged at `site`. Any set that includes this lane is correct.
pub fn converged(site: &'static Location<'static>) -> u32 {
    lane(|l| l.converged(site))
}

/// Returns the base address and the length, in bytes, of the block's dynamic shared memory.
pub fn shared() -> (*mut u8, usize) {
    lane(|l| l.shared())
}

/// Stores 16 bytes.
///
/// # Safety
/// `p` is aligned to 16 bytes and valid for writes of 16 bytes, until the kernel returns.
pub unsafe fn store16(p: *mut [u32; 4], v: [u32; 4]) {
    // SAFETY: `p` is valid for writes of 16 bytes until the kernel returns, by this function's contract. The memory
    // writes them by then.
    if weakly(|memory, thread| unsafe { memory.store(thread, p.cast(), bytemuck::bytes_of(&v)) }).is_none() {
        // SAFETY: `p` is aligned to 16 bytes and valid for writes of two words, by this function's contract.
        unsafe { store_two(p.cast(), bytemuck::cast(v)) }
    }
}

/// Loads 16 bytes.
///
/// # Safety
/// `p` is aligned to 16 bytes and valid for reads of 16 bytes.
pub unsafe fn load16(p: *const [u32; 4]) -> [u32; 4] {
    let mut v = [0; 4];
    // SAFETY: `p` is aligned to 16 bytes, so its bytes are whole words, which are readable by this function's
    // contract.
    match weakly(|memory, thread| unsafe { memory.load(thread, p.cast(), bytemuck::bytes_of_mut(&mut v)) }) {
        Some(()) => v,
        // SAFETY: `p` is aligned to 16 bytes and valid for reads of two words, by this function's contract.
        None => bytemuck::cast(unsafe { load_two(p.cast()) }),
    }
}

/// Loads 16 bytes as the kernel found them, or as they have become since its launch.
///
/// # Safety
/// `p` is aligned to 8 bytes and valid for reads of two words while the kernel runs.
pub unsafe fn load_constant(p: *const [u64; 2]) -> [u64; 2] {
    // SAFETY: both words are aligned and readable, by this function's contract. The host may be writing them.
    unsafe { load_two(p) }
}

/// Loads a word that no other thread uses.
///
/// # Safety
/// `p` is an aligned word, valid for reads and writes. No other thread accesses it at the same time.
pub unsafe fn load_own(p: *const u64) -> u64 {
    // SAFETY: `p` is an aligned, readable word, by this function's contract.
    unsafe { <u64 as SysWord>::load_relaxed(p) }
}

/// Stores a word that no other thread uses.
///
/// # Safety
/// The same as for [`load_own`].
pub unsafe fn store_own(p: *mut u64, v: u64) {
    // SAFETY: `p` is an aligned, writable word, by the contract of `load_own`.
    unsafe { <u64 as SysWord>::store_relaxed(p, v) }
}

/// Stores `v` with relaxed ordering, provided that `does` is `true`.
///
/// # Safety
/// If `does`, `p` is aligned and valid for writes.
pub unsafe fn store_if(does: bool, p: *mut u64, v: u64) {
    if does {
        // SAFETY: `does` holds, so `p` is an aligned, writable word, by this function's contract.
        unsafe { <u64 as SysWord>::store_relaxed(p, v) }
    }
}

/// Stores two adjacent words of 8 bytes, relaxed.
///
/// # Safety
/// `p` is aligned to 16 bytes and valid for writes of 16 bytes.
pub unsafe fn store_two(p: *mut [u64; 2], [a, b]: [u64; 2]) {
    // SAFETY: both words at `p` are aligned and writable, by this function's contract. Each is stored atomically,
    // since peers and the software NIC read at the same time.
    unsafe {
        <u64 as SysWord>::store_relaxed(p.cast(), a);
        <u64 as SysWord>::store_relaxed(p.cast::<u64>().add(1), b);
    }
}

/// Loads two adjacent words of 8 bytes, relaxed.
///
/// # Safety
/// `p` is aligned to 8 bytes, on a GPU to 16, and valid for reads of 16 bytes.
pub unsafe fn load_two(p: *const [u64; 2]) -> [u64; 2] {
    // SAFETY: both words at `p` are aligned and readable, by this function's contract. Each is loaded atomically,
    // since peers and the software NIC write at the same time.
    unsafe {
        [<u64 as SysWord>::load_relaxed(p.cast()), <u64 as SysWord>::load_relaxed(p.cast::<u64>().add(1))]
    }
}

/// Stores to the software ConnectX's doorbell register.
///
/// # Safety
/// `p` is the doorbell register of a software ConnectX, mapped in this process.
pub unsafe fn store_mmio(p: *mut u64, v: u64) {
    // SAFETY: `p` is an aligned, mapped word that kernels and the software NIC access atomically, by this function's
    // contract. Release stands for the fence that a GPU issues before it.
    unsafe { AtomicU64::from_ptr(p) }.store(v, Ordering::Release)
}

/// Reads one element of memory that other threads and NICs may be writing.
///
/// # Safety
/// `p` is aligned and valid for reads, and so is the aligned 8-byte word around it. Any bytes are a valid `T`.
pub unsafe fn read<T: Copy>(p: *const T) -> T {
    let mut v = core::mem::MaybeUninit::<T>::zeroed();
    let out = v.as_mut_ptr();
    let held = weakly(|memory, thread| {
        // SAFETY: the bytes of `v`, which is zeroed. No other reference to it exists.
        let out = unsafe { core::slice::from_raw_parts_mut(out.cast(), size_of::<T>()) };
        // SAFETY: `p` and the words that contain its first and last byte are readable, by this function's contract.
        unsafe { memory.load(thread, p.cast(), out) }
    });
    if held.is_some() {
        // SAFETY: any bytes are a valid `T`, by this function's contract.
        return unsafe { v.assume_init() };
    }
    // SAFETY: `p` is readable, by this function's contract, and aligned to the size of the atomic in each arm that
    // has one. `out` has the size of `T`, so `v` is written as a whole, and any bytes are a valid `T`.
    unsafe {
        // Other threads and NICs may be writing, so use an atomic load where there is one of this size and alignment.
        match (size_of::<T>(), p.addr() % size_of::<T>().max(1)) {
            (1, 0) => out.cast::<u8>().write(AtomicU8::from_ptr(p.cast_mut().cast()).load(Ordering::Relaxed)),
            (2, 0) => out
                .cast::<u16>()
                .write_unaligned(AtomicU16::from_ptr(p.cast_mut().cast()).load(Ordering::Relaxed)),
            (4, 0) => out
                .cast::<u32>()
                .write_unaligned(AtomicU32::from_ptr(p.cast_mut().cast()).load(Ordering::Relaxed)),
            (8, 0) => out
                .cast::<u64>()
                .write_unaligned(AtomicU64::from_ptr(p.cast_mut().cast()).load(Ordering::Relaxed)),
            _ => out.write(p.read_volatile()),
        }
        v.assume_init()
    }
}

/// Writes one element of memory that other threads and NICs may be reading.
///
/// # Safety
/// `p` is aligned and valid for writes, until the kernel returns. `T` has no padding.
pub unsafe fn write<T: Copy>(p: *mut T, v: T) {
    let from = &raw const v;
    let held = weakly(|memory, thread| {
        // SAFETY: the bytes of `v`, which are all initialised, since `T` has no padding.
        let bytes = unsafe { core::slice::from_raw_parts(from.cast(), size_of::<T>()) };
        // SAFETY: `p` is valid for writes until the kernel returns, by this function's contract. The memory writes
        // them by then.
        unsafe { memory.store(thread, p.cast(), bytes) }
    });
    if held.is_some() {
        return;
    }
    // SAFETY: `p` is writable, by this function's contract, and aligned to the size of the atomic in each arm that
    // has one. `v` has the size of that atomic.
    unsafe {
        // Other threads and NICs may be reading, so use an atomic store where there is one of this size and alignment.
        match (size_of::<T>(), p.addr() % size_of::<T>().max(1)) {
            (1, 0) => AtomicU8::from_ptr(p.cast()).store(from.cast::<u8>().read(), Ordering::Relaxed),
            (2, 0) => {
                AtomicU16::from_ptr(p.cast()).store(from.cast::<u16>().read_unaligned(), Ordering::Relaxed)
            }
            (4, 0) => {
                AtomicU32::from_ptr(p.cast()).store(from.cast::<u32>().read_unaligned(), Ordering::Relaxed)
            }
            (8, 0) => {
                AtomicU64::from_ptr(p.cast()).store(from.cast::<u64>().read_unaligned(), Ordering::Relaxed)
            }
            _ => p.write_volatile(v),
        }
    }
}

/// Prepares an atomic access to `len` bytes at `at` in the emulated weak memory: writes the plain stores that must
/// precede it, and drops the stale copies that must not be read after it.
#[inline(always)]
fn order_weak<const WRITES: bool>(at: usize, len: usize, order: Ordering) {
    weakly(|memory, thread| {
        // Plain stores to the same bytes precede the strong access in program order.
        memory.strong(thread, at, len, WRITES);
        if matches!(order, Ordering::Release | Ordering::AcqRel) {
            memory.release(thread);
        }
        if matches!(order, Ordering::Acquire | Ordering::AcqRel) {
            memory.acquire();
        }
    });
}

#[inline(always)]
fn release_weak() {
    weakly(|memory, thread| memory.release(thread));
}

#[inline(always)]
fn acquire_weak() {
    weakly(|memory, _| memory.acquire());
}

#[inline(always)]
fn show_weak() {
    weakly(|memory, thread| memory.show(thread));
}

/// Does nothing for an acquire at block scope, because the threads of a block share their copies of memory.
#[inline(always)]
fn keep_weak() {}

/// Evaluates to the atomic word at `$p`, after ordering the plain accesses around its access in the emulated weak
/// memory.
macro_rules! strong {
    ($atomic:ty, $p:ident, $writes:literal, $order:ident) => {{
        order_weak::<$writes>($p.addr(), size_of::<$atomic>(), Ordering::$order);
        // SAFETY: the pointer is aligned and valid for the access, and concurrent accesses to the word are atomic, by the
        // contract of `Scope` and `SysWord`. The reference lives no longer than the access.
        unsafe { <$atomic>::from_ptr($p) }
    }};
}

macro_rules! access {
    (load $t:ty, $atomic:ty, $name:ident, $order:ident) => {
        unsafe fn $name(p: *const $t) -> $t {
            let p = p.cast_mut();
            strong!($atomic, p, false, $order).load(Ordering::$order)
        }
    };
    (store $t:ty, $atomic:ty, $name:ident, $order:ident) => {
        unsafe fn $name(p: *mut $t, v: $t) {
            strong!($atomic, p, true, $order).store(v, Ordering::$order)
        }
    };
    (rmw $t:ty, $atomic:ty, $name:ident, $op:ident, $order:ident) => {
        unsafe fn $name(p: *mut $t, v: $t) -> $t {
            strong!($atomic, p, true, $order).$op(v, Ordering::$order)
        }
    };
    (red $t:ty, $atomic:ty, $name:ident, $op:ident, $order:ident) => {
        unsafe fn $name(p: *mut $t, v: $t) {
            strong!($atomic, p, true, $order).$op(v, Ordering::$order);
        }
    };
    (cas $t:ty, $atomic:ty, $name:ident, $order:ident) => {
        unsafe fn $name(p: *mut $t, old: $t, new: $t) -> $t {
            let word = strong!($atomic, p, true, $order);
            match word.compare_exchange(old, new, Ordering::$order, Ordering::Relaxed) {
                Ok(found) | Err(found) => found,
            }
        }
    };
}

macro_rules! scope {
    ($scope:ty, $released:ident, $acquired:ident) => {
        impl Scope for $scope {
            fn fence() {
                $released();
                $acquired();
                fence(Ordering::AcqRel);
            }
            fn acquire() {
                $acquired();
                fence(Ordering::Acquire);
            }
            fn release() {
                $released();
                fence(Ordering::AcqRel); // stores after a gate must also follow what opened it
            }
            access!(load u64, AtomicU64, load_relaxed, Relaxed);
            access!(load u64, AtomicU64, load_gate, Acquire);
            unsafe fn load16_gated(p: *const [u32; 4]) -> [u32; 4] {
                // SAFETY: `p` is aligned to 16 bytes and valid for reads of two words, by the trait's contract.
                bytemuck::cast(unsafe { load_two(p.cast()) })
            }
            access!(load u64, AtomicU64, load_acquire, Acquire);
            access!(store u64, AtomicU64, store_relaxed, Relaxed);
            access!(store u64, AtomicU64, store_release, Release);
            access!(rmw u64, AtomicU64, fetch_add_relaxed, fetch_add, Relaxed);
            access!(rmw u64, AtomicU64, fetch_or_release, fetch_or, Release);
            access!(rmw u64, AtomicU64, swap_acquire, swap, Acquire);
            access!(rmw u64, AtomicU64, fetch_or_relaxed, fetch_or, Relaxed);
            access!(rmw u64, AtomicU64, swap_acq_rel, swap, AcqRel);
            access!(cas u64, AtomicU64, compare_swap_release, Release);
        }
    };
}

macro_rules! sys_word {
    ($t:ty, $atomic:ty) => {
        impl SysWord for $t {
            access!(load $t, $atomic, load_relaxed, Relaxed);
            access!(load $t, $atomic, load_acquire, Acquire);
            access!(store $t, $atomic, store_relaxed, Relaxed);
            access!(store $t, $atomic, store_release, Release);
            access!(rmw $t, $atomic, fetch_add, fetch_add, Relaxed);
            access!(rmw $t, $atomic, fetch_and, fetch_and, Relaxed);
            access!(rmw $t, $atomic, fetch_or, fetch_or, Relaxed);
            access!(rmw $t, $atomic, fetch_xor, fetch_xor, Relaxed);
            access!(red $t, $atomic, add, fetch_add, Relaxed);
            access!(red $t, $atomic, and, fetch_and, Relaxed);
            access!(red $t, $atomic, or, fetch_or, Relaxed);
            access!(red $t, $atomic, xor, fetch_xor, Relaxed);
            access!(rmw $t, $atomic, swap, swap, Relaxed);
            access!(cas $t, $atomic, compare_swap, Relaxed);
        }
    };
}

scope!(Sys, release_weak, acquire_weak);
scope!(Gpu, release_weak, acquire_weak);
scope!(Cta, show_weak, keep_weak);
sys_word!(u32, AtomicU32);
sys_word!(u64, AtomicU64);
