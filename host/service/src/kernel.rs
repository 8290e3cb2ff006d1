//! The kernel. Its first warp polls the ring and executes requests; the other warps help with large copies.
#![allow(unsafe_code, reason = "accesses raw addresses, and declares the entry of the kernel")]

use crate::atomic;
use crate::copy::{Share, copy, store_words};
use crate::handshake::{Handshake, State, leave};
use crate::request::{Kind, Request, WORDS};
use crate::ring::{End, Ring, SLOTS};
use rushmem_device::arch::{self, Scope, Sys};

/// Number of threads of the block.
pub const THREADS: u32 = 256;

/// Most threads of a warp.
const WARP: u32 = 32;

/// Bytes of a copy from which the whole block takes part.
const BLOCK_COPY: u64 = 4096;

/// The times after which the kernel ends.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Limits {
    /// Time without a request, in nanoseconds.
    pub idle_ns: u64,
    /// Time since the start, in nanoseconds, after which the kernel ends as soon as the ring is empty.
    pub life_ns: u64,
}

/// Number of lives after which the kernel ends although requests are left, so that it can never occupy the GPU for ever.
const LIVES: u64 = 16;

/// Serves a ring, as one block of [`THREADS`] threads.
///
/// # Safety
/// `ring` is a ring at an address of the GPU. All its requests name memory that the GPU may access.
#[cfg(target_arch = "nvptx64")]
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn rushmem_service(ring: *mut Ring, idle_ns: u64, life_ns: u64) {
    // SAFETY: `ring` is a ring of this GPU, and its requests name memory that the GPU may access.
    unsafe { serve(ring, Limits { idle_ns, life_ns }) }
}

/// Lets `rushmem-ptx` limit the registers to those that a block of 512 threads has. The block thus takes half of a
/// multiprocessor at most, and fits beside a block of the application.
#[cfg(target_arch = "nvptx64")]
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "rushmem-ptx reads the name of the kernel from it")]
static rushmem_max_threads_512_rushmem_service: u8 = 0;

/// Executes requests until the kernel ends. Every thread of one block calls it.
///
/// # Safety
/// The conditions of the kernel hold: `ring` is a ring, and all its requests name memory that this thread may access.
pub unsafe fn serve(ring: *mut Ring, limits: Limits) {
    // SAFETY: `ring` is a ring, and its requests name memory that this thread may access.
    unsafe { if arch::thread() < WARP { Leader::new(End::new(ring)).run(limits) } else { follow() } }
}

/// A thread of the first warp.
struct Leader {
    ring: End,
    lane: u32,
    lanes: u32,
    mask: u32,
    /// Number of executed requests.
    executed: u64,
}

impl Leader {
    fn new(ring: End) -> Self {
        let lanes = arch::threads().min(WARP);
        Self { ring, lane: arch::thread(), lanes, mask: u32::MAX >> (WARP - lanes), executed: 0 }
    }

    /// Executes requests until the kernel ends.
    ///
    /// # Safety
    /// The rules of [`serve`] hold.
    unsafe fn run(mut self, limits: Limits) {
        // The clocks of the lanes differ, and the warp decides as one.
        let begin = arch::shuffle(self.mask, arch::now_ns(), 0);
        // The host posts nothing until it sees that the kernel is alive.
        self.executed = self.poll().0;
        if self.lane == 0 {
            self.ring.set_state(State::Alive);
        }
        let mut last = begin;
        loop {
            let (posted, stop) = self.poll();
            let now = arch::shuffle(self.mask, arch::now_ns(), 0);
            let age = now.saturating_sub(begin);
            let expires = age > limits.life_ns.saturating_mul(LIVES);
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

    /// Returns the number of posted requests and whether the kernel must leave, the same for all lanes.
    fn poll(&self) -> (u64, bool) {
        let (posted, stop) = self.ring.load_posted();
        (arch::shuffle(self.mask, posted, 0), arch::shuffle(self.mask, stop.into(), 0) != 0)
    }

    /// Executes up to one request for each lane, in order, and publishes their number.
    ///
    /// # Safety
    /// The rules of [`serve`] hold.
    unsafe fn execute_batch(&mut self, posted: u64) {
        Sys::acquire();
        let count = posted.wrapping_sub(self.executed).min(self.lanes.into()).min(SLOTS as u64) as u32;
        let mut own = Request::default();
        if self.lane < count {
            own = self.ring.load_request(self.executed + u64::from(self.lane));
        }
        for i in 0..count {
            let mut request = Request::default();
            for word in 0..WORDS {
                request.0[word] = arch::shuffle(self.mask, own.0[word], i);
            }
            // SAFETY: a request of the ring names memory that this thread may access.
            unsafe { self.execute(&request) };
            // The barrier collects what all lanes have stored, and the fence publishes it before the next request.
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

    /// Executes a request, without a fence after it.
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

/// Copies with the help of the other warps. Every thread of the first warp calls it.
///
/// # Safety
/// The rules of [`copy`] hold.
unsafe fn copy_by_block(to: u64, from: u64, len: u64) {
    let first = arch::thread() == 0;
    let given = |value| first.then_some(value);
    let _ = arch::block_broadcast(given(to), given(from), arch::sync_block);
    arch::sync_block();
    let _ = arch::block_broadcast(given(len), None, arch::sync_block);
    // SAFETY: every thread of the block may read the source and write the destination.
    unsafe { copy(to, from, len, Share { thread: arch::thread(), threads: arch::threads() }) };
    arch::sync_block();
}

/// Ends the other warps. Every thread of the first warp calls it.
fn dismiss_followers() {
    if arch::threads() > WARP {
        let zero = (arch::thread() == 0).then_some(0);
        let _ = arch::block_broadcast(zero, zero, arch::sync_block);
        arch::sync_block();
        let _ = arch::block_broadcast(zero, None, arch::sync_block);
    }
}

/// Takes part in the copies of the block until the first warp ends.
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
