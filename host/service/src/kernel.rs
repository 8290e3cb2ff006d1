//! The service kernel. Its first warp polls the ring and executes requests; the other warps help with large copies.
#![allow(unsafe_code, reason = "accesses raw addresses, and declares the entry of the kernel")]

use crate::atomic;
use crate::copy::{Share, copy, store_words};
use crate::handshake::{Handshake, State, leave};
use crate::request::{Kind, Request, WORDS};
use crate::ring::{End, Ring, SLOTS};
use rushmem_device::arch::{self, Scope, Sys};

/// Number of threads in the service kernel's only block.
pub const THREADS: u32 = 256;

/// Number of threads in a full warp. Tests also run the kernel with fewer.
const WARP: u32 = 32;

/// Copies of at least this many bytes are shared among all warps of the block.
const BLOCK_COPY: u64 = 4096;

/// When the kernel exits.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Limits {
    /// Exit after this time without a request, in nanoseconds.
    pub idle_ns: u64,
    /// Exit at this age, in nanoseconds, as soon as the ring is empty.
    pub life_ns: u64,
}

/// Multiple of [`Limits::life_ns`] at which the kernel exits even if requests are left. This bounds how long it can
/// occupy the GPU under a steady stream of requests.
const MAX_LIFETIMES: u64 = 16;

/// Serves a ring, as a single block of [`THREADS`] threads.
///
/// # Safety
/// `ring` is a ring at its GPU address. All its requests name memory that the GPU may access.
#[cfg(target_arch = "nvptx64")]
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn rushmem_service(ring: *mut Ring, idle_ns: u64, life_ns: u64) {
    // SAFETY: `ring` is a ring of this GPU, and its requests name memory that the GPU may access.
    unsafe { serve(ring, Limits { idle_ns, life_ns }) }
}

/// Makes `rushmem-ptx` limit the registers to those of a block of 512 threads. The block then takes at most half of a
/// multiprocessor, and fits next to a block of the application.
#[cfg(target_arch = "nvptx64")]
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "rushmem-ptx reads the name of the kernel from it")]
static rushmem_max_threads_512_rushmem_service: u8 = 0;

/// Executes requests until the kernel exits. Called by every thread of the block.
///
/// # Safety
/// The conditions of the kernel hold: `ring` is a ring, and all its requests name memory that this thread may access.
pub unsafe fn serve(ring: *mut Ring, limits: Limits) {
    // SAFETY: `ring` is a ring, and its requests name memory that this thread may access.
    unsafe { if arch::thread() < WARP { Leader::new(End::new(ring)).run(limits) } else { follow() } }
}

/// State of a thread in the first warp, which executes requests. All its threads follow the same control flow.
struct Leader {
    ring: End,
    lane: u32,
    lanes: u32,
    mask: u32,
    /// Sequence number that the next request to execute must have.
    executed: u64,
}

impl Leader {
    fn new(ring: End) -> Self {
        let lanes = arch::threads().min(WARP);
        Self { ring, lane: arch::thread(), lanes, mask: u32::MAX >> (WARP - lanes), executed: 0 }
    }

    /// Executes requests until the kernel exits.
    ///
    /// # Safety
    /// The rules of [`serve`] hold.
    unsafe fn run(mut self, limits: Limits) {
        // The lanes' clocks differ, but the warp must decide as one, so all use lane 0's.
        let begin = arch::shuffle(self.mask, arch::now_ns(), 0);
        // All requests posted so far were settled with the previous kernel. The host posts nothing until it sees that
        // this one is alive.
        self.executed = self.poll().0;
        if self.lane == 0 {
            self.ring.set_state(State::Alive);
        }
        let mut last = begin;
        loop {
            let (posted, stop) = self.poll();
            let now = arch::shuffle(self.mask, arch::now_ns(), 0);
            let age = now.saturating_sub(begin);
            let expires = age > limits.life_ns.saturating_mul(MAX_LIFETIMES);
            if posted != self.executed && !expires {
                // SAFETY: all requests of the ring name memory that this thread may access.
                unsafe { self.execute_batch(posted) };
                last = now;
            } else if expires || stop || age > limits.life_ns || now.saturating_sub(last) > limits.idle_ns {
                let ends = self.lane == 0 && leave(&self.ring, self.executed, expires);
                if arch::shuffle(self.mask, ends.into(), 0) != 0 {
                    break;
                }
                last = now;
            } else {
                arch::spin();
            }
        }
        dismiss_followers();
    }

    /// Returns the number of posted requests and the stop flag, as lane 0 sees them.
    fn poll(&self) -> (u64, bool) {
        let (posted, stop) = self.ring.load_posted();
        (arch::shuffle(self.mask, posted, 0), arch::shuffle(self.mask, stop.into(), 0) != 0)
    }

    /// Executes up to one request per lane, in order, and publishes their number.
    ///
    /// # Safety
    /// The rules of [`serve`] hold.
    unsafe fn execute_batch(&mut self, posted: u64) {
        // Pairs with the host's release of the number of posted requests, which `poll` loads without ordering.
        Sys::acquire();
        let count = posted.wrapping_sub(self.executed).min(self.lanes.into()).min(SLOTS as u64) as u32;
        let mut own = Request::default();
        if self.lane < count {
            own = self.ring.load_request(self.executed + u64::from(self.lane));
        }
        // Each lane has loaded one request. They are executed one after the other, each by all lanes.
        for i in 0..count {
            let mut request = Request::default();
            for word in 0..WORDS {
                request.0[word] = arch::shuffle(self.mask, own.0[word], i);
            }
            // SAFETY: a request of the ring names memory that this thread may access.
            unsafe { self.execute(&request) };
            // The barrier makes the stores of all lanes visible to lane 0, whose fence orders them, for the whole
            // system, before those of the next request.
            arch::sync_warp(self.mask);
            if self.lane == 0 {
                Sys::fence();
            }
            arch::sync_warp(self.mask);
        }
        self.executed += u64::from(count);
        if self.lane == 0 {
            self.ring.set_executed(self.executed);
        }
    }

    /// Executes one request, without a fence after it.
    ///
    /// # Safety
    /// The rules of [`serve`] hold.
    unsafe fn execute(&self, request: &Request) {
        let (to, from, len) = (request.target(), request.other(), request.len());
        // SAFETY: the request names memory that this thread may access.
        unsafe {
            match request.kind() {
                Kind::Copy if len >= BLOCK_COPY && arch::threads() > self.lanes => {
                    copy_by_block(to, from, len)
                }
                Kind::Copy => copy(to, from, len, Share { thread: self.lane, threads: self.lanes }),
                Kind::Store if self.lane == 0 => store_words(to, request.words(), len),
                Kind::Add | Kind::CompareSwap if self.lane == 0 => atomic::execute(request),
                _ => {}
            }
        }
    }
}

/// Copies with the help of the other warps. Called by every thread of the first warp; the others are in [`follow`].
///
/// # Safety
/// The rules of [`copy`] hold.
unsafe fn copy_by_block(to: u64, from: u64, len: u64) {
    // A broadcast carries two words, so two of them pass the three parameters.
    let first = arch::thread() == 0;
    let given = |value| first.then_some(value);
    let _ = arch::block_broadcast(given(to), given(from), arch::sync_block);
    arch::sync_block();
    let _ = arch::block_broadcast(given(len), None, arch::sync_block);
    // SAFETY: every thread of the block may read the source and write the destination.
    unsafe { copy(to, from, len, Share { thread: arch::thread(), threads: arch::threads() }) };
    arch::sync_block();
}

/// Makes the other warps exit. Called by every thread of the first warp.
fn dismiss_followers() {
    if arch::threads() > WARP {
        // A copy of length 0 is the signal to exit: `copy_by_block` is never called with one.
        let zero = (arch::thread() == 0).then_some(0);
        let _ = arch::block_broadcast(zero, zero, arch::sync_block);
        arch::sync_block();
        let _ = arch::block_broadcast(zero, None, arch::sync_block);
    }
}

/// Takes part in the copies of the block until the first warp exits.
///
/// # Safety
/// The rules of [`copy`] hold for all that the first warp copies.
unsafe fn follow() {
    loop {
        let (_, to, from) = arch::block_broadcast(None, None, arch::sync_block);
        arch::sync_block();
        let (_, len, _) = arch::block_broadcast(None, None, arch::sync_block);
        if len == 0 {
            return;
        }
        // SAFETY: the first warp passes a source that this thread may read and a destination that it may write.
        unsafe { copy(to, from, len, Share { thread: arch::thread(), threads: arch::threads() }) };
        arch::sync_block();
    }
}
