//! Primitives on a GPU, in PTX where `core` has no correct equivalent.
//!
//! Three rules apply in this file:
//!
//! - Every atomic specifies its `.sem` and `.scope`, because the back end drops both from `core`'s read-modify-writes.
//! - Every atomic is `.global`. All shared words are in global memory, and an atomic on a generic address waits for its
//!   result even if that is unused.
//! - Every barrier and warp operation is an LLVM intrinsic, because the optimiser does not know that inline assembly is
//!   convergent. The intrinsics are the unaligned forms (sm_70 and later), which remain correct when duplicated.
#![allow(unsafe_code, reason = "implements the primitives on raw addresses in PTX")]

use core::arch::{asm, nvptx};
use core::panic::Location;

use super::{Cta, FailedTests, Gpu, Scope, Sys, SysWord};

/// Returns the index of this thread in its block.
#[inline(always)]
pub fn thread() -> u32 {
    // SAFETY: reads a special register.
    unsafe { nvptx::_thread_idx_x() as u32 }
}

/// Returns the number of threads in a block.
#[inline(always)]
pub fn threads() -> u32 {
    // SAFETY: reads a special register.
    unsafe { nvptx::_block_dim_x() as u32 }
}

/// Returns the index of this block.
#[inline(always)]
pub fn block() -> u32 {
    // SAFETY: reads a special register.
    unsafe { nvptx::_block_idx_x() as u32 }
}

/// Returns the number of blocks in the grid.
#[inline(always)]
pub fn blocks() -> u32 {
    // SAFETY: reads a special register.
    unsafe { nvptx::_grid_dim_x() as u32 }
}

/// Does nothing in a wait loop of a GPU thread, because the hardware schedules other warps.
#[inline(always)]
pub fn spin() {}

/// Called at the start of a wait loop. Does nothing on a GPU; the native emulator needs it.
#[inline(always)]
pub fn wait_begins() {}

/// Suspends the thread for about `ns` nanoseconds.
#[inline(always)]
pub fn rest(ns: u32) {
    // SAFETY: changes nothing.
    unsafe { asm!("nanosleep.u32 {};", in(reg32) ns, options(nomem, nostack)) }
}

/// Number of iterations of a wait loop between two checks of the clock and the abort word. Reading the abort word is
/// slow, because it is in host memory.
pub const TURNS: u32 = 256;

/// Aborts the kernel. For broken invariants only, never for an error that a user can cause.
#[inline(always)]
pub fn trap() -> ! {
    // SAFETY: ends the grid; nothing runs after it.
    unsafe { nvptx::trap() }
}

/// Returns the time in nanoseconds, of a clock shared by all multiprocessors. Its origin is arbitrary.
#[inline(always)]
pub fn now_ns() -> u64 {
    let t: u64;
    // SAFETY: reads a special register.
    unsafe { asm!("mov.u64 {t}, %globaltimer;", t = out(reg64) t, options(nomem, nostack)) };
    t
}

/// Waits until the earlier work of the stream has completed and its stores are visible. The runtime starts kernels that
/// call this while the kernel before them exits, on Hopper and newer; on older GPUs, this is nothing.
#[inline(always)]
pub fn await_stream() {
    // SAFETY: waits only. The compiler moves no memory access before it.
    unsafe { asm!("griddepcontrol.wait;", options(nostack)) };
}

#[allow(improper_ctypes)] // `bool` is LLVM's i1 here
unsafe extern "C" {
    #[link_name = "llvm.nvvm.barrier.cta.red.or.all"]
    fn barrier_or(id: i32, vote: bool) -> bool;
    #[link_name = "llvm.nvvm.barrier.cta.sync.all"]
    fn barrier_sync(id: i32);
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    fn warp_sync(mask: i32);
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    fn shfl_idx(mask: i32, value: i32, lane: i32, clamp: i32) -> i32;
    #[link_name = "llvm.nvvm.vote.ballot.sync"]
    fn vote_ballot(mask: i32, vote: bool) -> i32;
    #[link_name = "llvm.nvvm.match.any.sync.i64"]
    fn match_any_64(mask: i32, value: i64) -> i32;
    #[link_name = "llvm.nvvm.activemask"]
    fn activemask() -> i32;
}

/// Synchronises the whole block. Returns whether any thread passed `true`.
#[inline(always)]
pub fn block_any(vote: bool) -> bool {
    // SAFETY: barrier 0 is the block's own; every thread of the block calls (contract of block-group calls).
    unsafe { barrier_or(0, vote) }
}

/// Synchronises the whole block.
///
/// There must be no outlined call between two barriers in one basic block. ptxas considers the lanes of a warp
/// converged after the call, because they were at the first barrier. If they return at different times, the second
/// barrier is an illegal instruction. `rushmem-ptx` rejects such code.
#[inline(always)]
pub fn sync_block() {
    // SAFETY: as `block_any`.
    unsafe { barrier_sync(0) }
}

core::arch::global_asm!(".shared .align 16 .b64 rushmem_cast[2];");

/// Returns the result of the barrier `meet`, and two values for the whole block, each passed by one thread.
///
/// Two such calls need another barrier between them, or a thread could overwrite the values before all have read them.
#[inline(always)]
pub fn block_broadcast<R>(one: Option<u64>, other: Option<u64>, meet: impl FnOnce() -> R) -> (R, u64, u64) {
    if let Some(a) = one {
        // SAFETY: a word of the block's own; nobody reads it before the barrier below.
        unsafe { asm!("st.shared.b64 [rushmem_cast], {a};", a = in(reg64) a) };
    }
    if let Some(b) = other {
        // SAFETY: as above.
        unsafe { asm!("st.shared.b64 [rushmem_cast+8], {b};", b = in(reg64) b) };
    }
    let met = meet();
    let (a, b);
    // SAFETY: written before the barrier above, and by no thread before the next one. Unused values are not loaded.
    unsafe {
        asm!("ld.shared.b64 {a}, [rushmem_cast];", a = out(reg64) a, options(pure, readonly, nostack));
        asm!("ld.shared.b64 {b}, [rushmem_cast+8];", b = out(reg64) b, options(pure, readonly, nostack));
    }
    (met, a, b)
}

// Four words per warp: the launch that wrote them, and its `FailedTests`. They are in shared memory because a register
// does not survive a call. Shared memory is not zeroed when a kernel starts, so the words are only valid for the launch
// they name. There are four sets, one allocation unit of shared memory; the warps of larger blocks share them.
core::arch::global_asm!(".shared .align 16 .b64 rushmem_tests[16];");

/// Returns the address of the words in shared memory that hold the failed tests of this warp.
#[inline(always)]
fn tests_of_warp() -> u32 {
    let base: u32;
    // SAFETY: the address of a variable.
    unsafe { asm!("mov.u32 {b}, rushmem_tests;", b = out(reg32) base, options(pure, nomem, nostack)) };
    base + (thread() >> 5 & 3) * 32
}

/// Returns an ID of the kernel launch, `%gridid`.
#[inline(always)]
fn launch_number() -> u64 {
    let n: u64;
    // SAFETY: reads a special register.
    unsafe { asm!("mov.u64 {n}, %gridid;", n = out(reg64) n, options(pure, nomem, nostack)) };
    n
}

/// Returns the time in a unit that is cheap to read: cycles on a GPU, nanoseconds on a CPU.
#[inline(always)]
pub fn ticks() -> u64 {
    let t: u64;
    // SAFETY: reads a special register.
    unsafe { asm!("mov.u64 {t}, %clock64;", t = out(reg64) t, options(nomem, nostack)) };
    t
}

/// Maximum number of ticks between two tests of the same loop, about a microsecond. After a longer pause, the thread
/// has done other work.
pub const PAUSE: u64 = 2000;

/// Returns the statistics of this warp's failed tests.
#[inline(always)]
pub fn failed_tests() -> FailedTests {
    let (launch, waited, last, ticks): (u64, u64, u64, u64);
    // SAFETY: words of the warp's own.
    unsafe {
        asm!("ld.shared.v2.b64 {{{a}, {b}}}, [{p}];", "ld.shared.v2.b64 {{{c}, {d}}}, [{p}+16];", p = in(reg32) tests_of_warp(),
            a = out(reg64) launch, b = out(reg64) waited, c = out(reg64) last, d = out(reg64) ticks)
    };
    if launch == launch_number() { FailedTests { waited, last, ticks } } else { FailedTests::default() }
}

/// Replaces the statistics of this warp's failed tests.
#[inline(always)]
pub fn set_failed_tests(FailedTests { waited, last, ticks }: FailedTests) {
    // SAFETY: words of the warp's own. Lanes that store together store equal values, or one of them wins.
    unsafe {
        asm!("st.shared.v2.b64 [{p}], {{{a}, {b}}};", "st.shared.v2.b64 [{p}+16], {{{c}, {d}}};", p = in(reg32) tests_of_warp(),
            a = in(reg64) launch_number(), b = in(reg64) waited, c = in(reg64) last, d = in(reg64) ticks)
    };
}

/// Resets the statistics of failed tests, after a successful test. Costs one store.
#[inline(always)]
pub fn clear_failed_tests() {
    // SAFETY: a word of the warp's own.
    unsafe { asm!("st.shared.b64 [{p}+16], {z};", p = in(reg32) tests_of_warp(), z = in(reg64) 0u64) };
}

#[cfg(feature = "trace")]
core::arch::global_asm!(".shared .align 16 .b64 rushmem_trace[3];");

// Marks the PTX of kernels that can post to DC initiators, for the host to find.
#[cfg(feature = "dc")]
core::arch::global_asm!(".global .align 4 .b32 rushmem_dc[1];");

// Marks the PTX of kernels that can hand queues over to the host.
#[cfg(feature = "failover")]
core::arch::global_asm!(".global .align 4 .b32 rushmem_failover[1];");

/// Sets the address of the timeline and the launch ID for the block. All threads of the block set the same values,
/// before any of them reads them.
#[cfg(feature = "trace")]
#[inline(always)]
pub fn set_trace(area: u64, launch: u64) {
    // SAFETY: words of the block's own, which have one value from the first write on.
    unsafe {
        asm!("st.shared.b64 [rushmem_trace], {a};", "st.shared.b64 [rushmem_trace+8], {b};",
            a = in(reg64) area, b = in(reg64) launch);
    }
}

/// Returns the address of the timeline and the launch ID, as set by [`set_trace`].
#[cfg(feature = "trace")]
#[inline(always)]
pub fn trace() -> (u64, u64) {
    let (a, b);
    // SAFETY: see `set_trace`.
    unsafe {
        asm!("ld.shared.b64 {a}, [rushmem_trace];", "ld.shared.b64 {b}, [rushmem_trace+8];",
            a = out(reg64) a, b = out(reg64) b, options(readonly, nostack));
    }
    (a, b)
}

/// Saves the timeline entry of the running kernel. Called by the first thread of the block.
#[cfg(feature = "trace")]
#[inline(always)]
pub fn set_traced_kernel(entry: u64) {
    // SAFETY: one thread of the block uses this word.
    unsafe { asm!("st.shared.b64 [rushmem_trace+16], {e};", e = in(reg64) entry) };
}

/// Returns the timeline entry saved by [`set_traced_kernel`].
#[cfg(feature = "trace")]
#[inline(always)]
pub fn traced_kernel() -> u64 {
    let entry;
    // SAFETY: see `set_traced_kernel`.
    unsafe {
        asm!("ld.shared.b64 {e}, [rushmem_trace+16];", e = out(reg64) entry, options(readonly, nostack))
    };
    entry
}

/// Returns `value` in a form that ptxas cannot prove to be warp-uniform.
///
/// Before an atomic add of a warp-uniform value, ptxas inserts a sum over the warp: a dozen dependent instructions,
/// which do not pay off if only one thread adds.
#[inline(always)]
pub fn opaque(value: u64) -> u64 {
    let v;
    // SAFETY: arithmetic with a special register: a block has 1024 threads at most.
    unsafe {
        asm!("{{ .reg .u32 t; .reg .u64 w; mov.u32 t, %tid.x; shr.u32 t, t, 10; cvt.u64.u32 w, t; add.u64 {v}, {value}, w; }}",
            value = in(reg64) value, v = out(reg64) v, options(pure, nomem, nostack))
    }
    v
}

/// Returns `value` and keeps the compiler from moving its computation. Used where earlier loads are still in flight, so
/// the computation overlaps with them.
#[inline(always)]
pub fn overlap(value: u64) -> u64 {
    let v;
    // SAFETY: a copy of a register.
    unsafe {
        asm!("mov.b64 {v}, {value};", value = in(reg64) value, v = out(reg64) v, options(nomem, nostack))
    }
    v
}

/// Synchronises the lanes of `mask`, and orders memory among them.
#[inline(always)]
pub fn sync_warp(mask: u32) {
    // SAFETY: the caller's lane is in `mask`, and all lanes of it call (contract of warp-group calls).
    unsafe { warp_sync(mask as i32) }
}

/// Returns the value passed by lane `from` of the warp.
#[inline(always)]
pub fn shuffle(mask: u32, value: u64, from: u32) -> u64 {
    let half = |v: u32| {
        // SAFETY: as `sync_warp`; `from` is in `mask`.
        unsafe { shfl_idx(mask as i32, v as i32, from as i32, 31) as u32 as u64 }
    };
    half(value as u32) | half((value >> 32) as u32) << 32
}

/// Returns the lanes of `mask` that passed `true`.
#[inline(always)]
pub fn ballot(mask: u32, vote: bool) -> u32 {
    // SAFETY: as `sync_warp`.
    unsafe { vote_ballot(mask as i32, vote) as u32 }
}

/// Returns the lanes of `mask` that passed the same value as the calling lane.
#[inline(always)]
pub fn match_any(mask: u32, value: u64) -> u32 {
    // SAFETY: as `sync_warp`.
    unsafe { match_any_64(mask as i32, value as i64) as u32 }
}

/// Returns the lanes that are converged with the calling lane. Any set that includes this lane is correct.
#[inline(always)]
pub fn converged(_: &'static Location<'static>) -> u32 {
    // SAFETY: reads a special value.
    unsafe { activemask() as u32 }
}

/// Returns whether `condition` holds in each lane converged with this one. May also return `false` if it does.
///
/// A vote proves to ptxas that these lanes take the same branch, which saves the barrier at their reconvergence; that
/// barrier would cost more than a store. ptxas 13.0 crashes if a predicate is both operand and result of the vote.
#[inline(always)]
pub fn together(condition: bool) -> bool {
    let all: u32;
    // SAFETY: a vote of the lanes that execute it.
    unsafe {
        asm!("{{ .reg .b32 m; .reg .pred p, q; activemask.b32 m; setp.ne.u32 p, {one}, 0; vote.sync.all.pred q, p, m; selp.u32 {all}, 1, 0, q; }}",
            one = in(reg32) condition as u32, all = out(reg32) all, options(pure, nomem, nostack))
    }
    all != 0
}

core::arch::global_asm!(".extern .shared .align 16 .b8 rushmem_shared[];");

/// Returns the base address and the length, in bytes, of the block's dynamic shared memory.
#[inline(always)]
pub fn shared() -> (*mut u8, usize) {
    let (base, bytes): (u64, u32);
    // SAFETY: address arithmetic and a special register only.
    unsafe {
        asm!(
            "{{ .reg .u64 s; mov.u64 s, rushmem_shared; cvta.shared.u64 {b}, s; }}", "mov.u32 {n}, %dynamic_smem_size;",
            b = out(reg64) base, n = out(reg32) bytes, options(nomem, nostack)
        )
    };
    (base as *mut u8, bytes as usize)
}

/// Stores 16 bytes with one instruction. In the PTX model, a vector is a set of separate elements, here words of 8
/// bytes: a thread polling for one never sees half of it.
///
/// # Safety
/// `p` lies in global memory, is aligned to 16 bytes and valid for writes of 16 bytes, until the kernel returns.
#[inline(always)]
pub unsafe fn store16(p: *mut [u32; 4], v: [u32; 4]) {
    // SAFETY: writes the 16 bytes at `p`, which are aligned, writable global memory by this function's contract.
    unsafe {
        asm!("{{ .reg .b64 x, y; mov.b64 x, {{{a}, {b}}}; mov.b64 y, {{{c}, {d}}}; st.global.v2.b64 [{p}], {{x, y}}; }}",
            p = in(reg64) p, a = in(reg32) v[0], b = in(reg32) v[1], c = in(reg32) v[2], d = in(reg32) v[3])
    }
}

/// Loads 16 bytes with one instruction, as two words of 8 bytes.
///
/// # Safety
/// `p` lies in global memory, is aligned to 16 bytes and valid for reads of 16 bytes.
#[inline(always)]
pub unsafe fn load16(p: *const [u32; 4]) -> [u32; 4] {
    let (a, b, c, d);
    // SAFETY: reads the 16 bytes at `p`, which are aligned, readable global memory by this function's contract.
    unsafe {
        asm!("{{ .reg .b64 x, y; ld.global.v2.b64 {{x, y}}, [{p}]; mov.b64 {{{a}, {b}}}, x; mov.b64 {{{c}, {d}}}, y; }}",
            p = in(reg64) p, a = out(reg32) a, b = out(reg32) b, c = out(reg32) c, d = out(reg32) d)
    };
    [a, b, c, d]
}

/// Loads 16 bytes as the kernel found them, or as they have become since its launch. The compiler may load them earlier,
/// or once for several calls.
///
/// # Safety
/// `p` is aligned to 16 bytes and points to global memory, valid for reads of 16 bytes while the kernel runs.
#[inline(always)]
pub unsafe fn load_constant(p: *const [u64; 2]) -> [u64; 2] {
    let (a, b);
    // SAFETY: `p` is aligned and readable, by this function's contract. The result may be as old as the launch, so the
    // load depends on nothing but its address.
    unsafe {
        asm!("ld.global.nc.v2.b64 {{{a}, {b}}}, [{p}];", p = in(reg64) p, a = out(reg64) a, b = out(reg64) b,
            options(pure, nomem, nostack))
    };
    [a, b]
}

/// Loads a word that no other thread uses. The load is weak on purpose: in loops with strong loads, ptxas inserts an
/// instruction that yields to other threads and takes 55 cycles.
///
/// # Safety
/// `p` is an aligned word of global memory, valid for reads and writes. No other thread accesses it at the same time.
#[inline(always)]
pub unsafe fn load_own(p: *const u64) -> u64 {
    let v;
    // SAFETY: reads the word at `p`, which is aligned, readable global memory by this function's contract. No other
    // thread writes it at the same time.
    unsafe { asm!("ld.global.b64 {v}, [{p}];", p = in(reg64) p, v = out(reg64) v) };
    v
}

/// Stores a word that no other thread uses.
///
/// # Safety
/// The same as for [`load_own`].
#[inline(always)]
pub unsafe fn store_own(p: *mut u64, v: u64) {
    // SAFETY: writes the word at `p`, which is aligned, writable global memory by the contract of `load_own`. No other
    // thread accesses it at the same time.
    unsafe { asm!("st.global.b64 [{p}], {v};", p = in(reg64) p, v = in(reg64) v) }
}

/// Stores `v` with relaxed ordering at system scope, provided that `does` is `true`. The store is predicated instead of
/// branched around, which keeps the lanes of a warp converged.
///
/// # Safety
/// If `does`, `p` lies in global memory, is aligned and valid for writes.
#[inline(always)]
pub unsafe fn store_if(does: bool, p: *mut u64, v: u64) {
    // SAFETY: writes the word at `p` only if `does`. It is aligned, writable global memory then, by this function's
    // contract.
    unsafe {
        asm!("{{ .reg .pred q; setp.ne.u32 q, {d}, 0; @q st.relaxed.sys.global.b64 [{p}], {v}; }}",
            d = in(reg32) does as u32, p = in(reg64) p, v = in(reg64) v)
    }
}

/// Stores two adjacent words of 8 bytes, relaxed, at system scope.
///
/// # Safety
/// `p` lies in global memory, is aligned to 16 bytes and valid for writes of 16 bytes.
#[inline(always)]
pub unsafe fn store_two(p: *mut [u64; 2], [a, b]: [u64; 2]) {
    // SAFETY: writes the 16 bytes at `p`, which are aligned, writable global memory by this function's contract.
    unsafe {
        asm!("st.relaxed.sys.global.v2.b64 [{p}], {{{a}, {b}}};", p = in(reg64) p, a = in(reg64) a, b = in(reg64) b)
    }
}

/// Loads two adjacent words of 8 bytes, relaxed, at system scope.
///
/// # Safety
/// `p` lies in global memory, is aligned to 16 bytes and valid for reads of 16 bytes.
#[inline(always)]
pub unsafe fn load_two(p: *const [u64; 2]) -> [u64; 2] {
    let (a, b);
    // SAFETY: reads the 16 bytes at `p`, which are aligned, readable global memory by this function's contract.
    unsafe {
        asm!("ld.relaxed.sys.global.v2.b64 {{{a}, {b}}}, [{p}];", p = in(reg64) p, a = out(reg64) a, b = out(reg64) b)
    };
    [a, b]
}

/// Stores to a NIC's doorbell register: one 8-byte transaction, neither merged nor split.
///
/// # Safety
/// `p` is the doorbell register of a NIC, mapped for this GPU.
#[inline(always)]
pub unsafe fn store_mmio(p: *mut u64, v: u64) {
    // SAFETY: `p` is a mapped doorbell register, by this function's contract. The store changes no memory of the
    // kernel.
    unsafe { asm!("st.mmio.relaxed.sys.global.b64 [{p}], {v};", p = in(reg64) p, v = in(reg64) v) }
}

/// Reads one element of memory that other threads and NICs may be writing.
///
/// # Safety
/// `p` is aligned and valid for reads, and so is the aligned 8-byte word around it. Any bytes are a valid `T`.
#[inline(always)]
pub unsafe fn read<T: Copy>(p: *const T) -> T {
    // SAFETY: `p` is aligned and valid for reads of a `T`, by this function's contract. A plain load compiles to the
    // weak load of PTX, which other threads' stores may race with.
    unsafe { p.read() }
}

/// Writes one element of memory that other threads and NICs may be reading.
///
/// # Safety
/// `p` is aligned and valid for writes, until the kernel returns. `T` has no padding.
#[inline(always)]
pub unsafe fn write<T: Copy>(p: *mut T, v: T) {
    // SAFETY: `p` is aligned and valid for writes of a `T`, by this function's contract. A plain store compiles to
    // the weak store of PTX, which other threads' loads may race with.
    unsafe { p.write(v) }
}

macro_rules! access {
    (load $t:ty, $reg:ident, $name:ident, $asm:expr) => {
        #[inline(always)]
        unsafe fn $name(p: *const $t) -> $t {
            let r;
            // SAFETY: reads the word at `p`, which is aligned, readable global memory by the trait's contract.
            unsafe { asm!($asm, p = in(reg64) p, r = out($reg) r) };
            r
        }
    };
    (store $t:ty, $reg:ident, $name:ident, $asm:expr) => {
        #[inline(always)]
        unsafe fn $name(p: *mut $t, v: $t) {
            // SAFETY: writes the word at `p`, which is aligned, writable global memory by the trait's contract.
            unsafe { asm!($asm, p = in(reg64) p, v = in($reg) v) }
        }
    };
    (rmw $t:ty, $reg:ident, $name:ident, $asm:expr) => {
        #[inline(always)]
        unsafe fn $name(p: *mut $t, v: $t) -> $t {
            let r;
            // SAFETY: updates the word at `p`, which is aligned, writable global memory by the trait's contract.
            unsafe { asm!($asm, p = in(reg64) p, v = in($reg) v, r = out($reg) r) };
            r
        }
    };
    (cas $t:ty, $reg:ident, $name:ident, $asm:expr) => {
        #[inline(always)]
        unsafe fn $name(p: *mut $t, old: $t, new: $t) -> $t {
            let r;
            // SAFETY: updates the word at `p`, which is aligned, writable global memory by the trait's contract.
            unsafe { asm!($asm, p = in(reg64) p, o = in($reg) old, n = in($reg) new, r = out($reg) r) };
            r
        }
    };
}

macro_rules! scope {
    ($scope:ty, $s:literal) => {
        impl Scope for $scope {
            #[inline(always)]
            fn fence() {
                // SAFETY: a fence has no operands.
                unsafe { asm!(concat!("fence.acq_rel.", $s, ";")) }
            }
            #[inline(always)]
            fn release() {
                // SAFETY: as above.
                unsafe { asm!(concat!("fence.release.", $s, ";")) }
            }
            #[inline(always)]
            fn acquire() {
                // SAFETY: as above.
                unsafe { asm!(concat!("fence.acquire.", $s, ";")) }
            }
            access!(load u64, reg64, load_relaxed, concat!("ld.relaxed.", $s, ".global.b64 {r}, [{p}];"));
            access!(load u64, reg64, load_gate, concat!("ld.relaxed.", $s, ".global.b64 {r}, [{p}];"));
            #[inline(always)]
            unsafe fn load16_gated(p: *const [u32; 4]) -> [u32; 4] {
                let (a, b, c, d);
                // SAFETY: reads the 16 bytes at `p`, which are aligned, readable global memory by the trait's contract.
                unsafe {
                    asm!(concat!("ld.relaxed.", $s, ".global.v4.b32 {{{a}, {b}, {c}, {d}}}, [{p}];"), p = in(reg64) p,
                        a = out(reg32) a, b = out(reg32) b, c = out(reg32) c, d = out(reg32) d)
                };
                [a, b, c, d]
            }
            access!(load u64, reg64, load_acquire, concat!("ld.acquire.", $s, ".global.b64 {r}, [{p}];"));
            access!(store u64, reg64, store_relaxed, concat!("st.relaxed.", $s, ".global.b64 [{p}], {v};"));
            access!(store u64, reg64, store_release, concat!("st.release.", $s, ".global.b64 [{p}], {v};"));
            access!(rmw u64, reg64, fetch_add_relaxed,
                concat!("atom.relaxed.", $s, ".global.add.u64 {r}, [{p}], {v};"));
            access!(rmw u64, reg64, fetch_or_release,
                concat!("atom.release.", $s, ".global.or.b64 {r}, [{p}], {v};"));
            access!(rmw u64, reg64, swap_acquire,
                concat!("atom.acquire.", $s, ".global.exch.b64 {r}, [{p}], {v};"));
            access!(rmw u64, reg64, swap_acq_rel,
                concat!("atom.acq_rel.", $s, ".global.exch.b64 {r}, [{p}], {v};"));
            access!(cas u64, reg64, compare_swap_release,
                concat!("atom.release.", $s, ".global.cas.b64 {r}, [{p}], {o}, {n};"));
            access!(rmw u64, reg64, fetch_or_relaxed,
                concat!("atom.relaxed.", $s, ".global.or.b64 {r}, [{p}], {v};"));
        }
    };
}

macro_rules! sys_word {
    ($t:ty, $reg:ident, $bits:literal) => {
        impl SysWord for $t {
            access!(load $t, $reg, load_relaxed, concat!("ld.relaxed.sys.global.b", $bits, " {r}, [{p}];"));
            access!(load $t, $reg, load_acquire, concat!("ld.acquire.sys.global.b", $bits, " {r}, [{p}];"));
            access!(store $t, $reg, store_relaxed, concat!("st.relaxed.sys.global.b", $bits, " [{p}], {v};"));
            access!(store $t, $reg, store_release, concat!("st.release.sys.global.b", $bits, " [{p}], {v};"));
            access!(rmw $t, $reg, fetch_add, concat!("atom.relaxed.sys.global.add.u", $bits, " {r}, [{p}], {v};"));
            access!(rmw $t, $reg, fetch_and, concat!("atom.relaxed.sys.global.and.b", $bits, " {r}, [{p}], {v};"));
            access!(rmw $t, $reg, fetch_or, concat!("atom.relaxed.sys.global.or.b", $bits, " {r}, [{p}], {v};"));
            access!(rmw $t, $reg, fetch_xor, concat!("atom.relaxed.sys.global.xor.b", $bits, " {r}, [{p}], {v};"));
            access!(store $t, $reg, add, concat!("red.relaxed.sys.global.add.u", $bits, " [{p}], {v};"));
            access!(store $t, $reg, and, concat!("red.relaxed.sys.global.and.b", $bits, " [{p}], {v};"));
            access!(store $t, $reg, or, concat!("red.relaxed.sys.global.or.b", $bits, " [{p}], {v};"));
            access!(store $t, $reg, xor, concat!("red.relaxed.sys.global.xor.b", $bits, " [{p}], {v};"));
            access!(rmw $t, $reg, swap, concat!("atom.relaxed.sys.global.exch.b", $bits, " {r}, [{p}], {v};"));
            access!(cas $t, $reg, compare_swap,
                concat!("atom.relaxed.sys.global.cas.b", $bits, " {r}, [{p}], {o}, {n};"));
        }
    };
}

scope!(Sys, "sys");
scope!(Gpu, "gpu");
scope!(Cta, "cta");
sys_word!(u32, reg32, "32");
sys_word!(u64, reg64, "64");
