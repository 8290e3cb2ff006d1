//! The request ring, in page-locked host memory.
#![allow(unsafe_code, reason = "words that the CPU and a GPU share by address")]

use crate::handshake::{Handshake, State};
use crate::request::{INLINE, Request, WORDS};
use rushmem_device::arch::{self, Scope, Sys};

/// Capacity of the ring in requests.
pub const SLOTS: usize = 64;

/// Words that only one side writes, in a separate cache line to avoid false sharing.
#[derive(Clone, Copy, Default)]
#[repr(C, align(128))]
struct CacheLine([u64; 2]);

/// The request ring. The CPU and the GPU access it concurrently, so never through a reference.
///
/// A zeroed ring is empty, and no kernel serves it.
#[repr(C, align(128))]
pub struct Ring {
    /// Number of posted requests, and the stop flag. Written by the host. One load reads both.
    posted: CacheLine,
    /// Number of executed requests. Written by the kernel.
    executed: CacheLine,
    /// The [`State`]. Written by the kernel, and by the host while no kernel runs.
    state: CacheLine,
    requests: [[u64; WORDS]; SLOTS],
    /// Results of copies and atomics that the host wants back, one slot per request.
    results: [[u64; INLINE / 8]; SLOTS],
}

/// Access to a ring by its address on one side: the host or the GPU.
#[derive(Clone, Copy)]
pub(crate) struct End(*mut Ring);

// SAFETY: an address; all accesses to the ring are atomic.
unsafe impl Send for End {}
// SAFETY: as above.
unsafe impl Sync for End {}

impl End {
    /// Creates one side's access to `ring`.
    ///
    /// # Safety
    /// `ring` points to a ring that this side may access as long as the result exists.
    pub(crate) unsafe fn new(ring: *mut Ring) -> Self {
        Self(ring)
    }

    fn posted_word(self) -> *mut u64 {
        // SAFETY: the constructor promises a ring.
        unsafe { &raw mut (*self.0).posted }.cast()
    }

    fn stop_word(self) -> *mut u64 {
        self.posted_word().wrapping_add(1)
    }

    fn executed_word(self) -> *mut u64 {
        // SAFETY: as above.
        unsafe { &raw mut (*self.0).executed }.cast()
    }

    fn state_word(self) -> *mut u64 {
        // SAFETY: as above.
        unsafe { &raw mut (*self.0).state }.cast()
    }

    fn request_word(self, number: u64) -> *mut u64 {
        // SAFETY: as above.
        let first: *mut u64 = unsafe { &raw mut (*self.0).requests }.cast();
        first.wrapping_add(slot(number) * WORDS)
    }

    /// Returns the number of posted requests and the stop flag.
    pub(crate) fn load_posted(self) -> (u64, bool) {
        // SAFETY: the first two words of an aligned line.
        let [posted, stop] = unsafe { arch::load_two(self.posted_word().cast()) };
        (posted, stop != 0)
    }

    pub(crate) fn set_stop(self, stop: bool) {
        // SAFETY: an aligned word of the ring.
        unsafe { Sys::store_relaxed(self.stop_word(), stop.into()) }
    }

    pub(crate) fn executed(self) -> u64 {
        // SAFETY: as above.
        unsafe { Sys::load_acquire(self.executed_word()) }
    }

    /// Publishes the number of executed requests. The caller has issued a fence after their effects.
    pub(crate) fn set_executed(self, number: u64) {
        // SAFETY: as above.
        unsafe { Sys::store_relaxed(self.executed_word(), number) }
    }

    /// Loads a request. The caller has seen that it was posted.
    pub(crate) fn load_request(self, number: u64) -> Request {
        let at = self.request_word(number);
        // SAFETY: four aligned pairs of words inside of the slot.
        let pair = |i: usize| unsafe { arch::load_two(at.wrapping_add(2 * i).cast()) };
        let ([a, b], [c, d], [e, f], [g, h]) = (pair(0), pair(1), pair(2), pair(3));
        Request([a, b, c, d, e, f, g, h])
    }

    /// Writes a request to a slot that no side reads now.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn store_request(self, number: u64, request: &Request) {
        for (i, word) in request.0.iter().enumerate() {
            // SAFETY: an aligned word inside of the slot.
            unsafe { Sys::store_relaxed(self.request_word(number).wrapping_add(i), *word) };
        }
    }

    /// Address of the ring on the side of the caller.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn base(self) -> usize {
        self.0.addr()
    }

    /// Address of the result slot of request `number`, on the side of the caller.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn result(self, number: u64) -> *mut u8 {
        // SAFETY: the constructor promises a ring.
        let first: *mut u8 = unsafe { &raw mut (*self.0).results }.cast();
        first.wrapping_add(slot(number) * INLINE)
    }
}

fn slot(number: u64) -> usize {
    (number % SLOTS as u64) as usize
}

impl Handshake for End {
    fn posted(&self) -> u64 {
        // SAFETY: an aligned word of the ring.
        unsafe { Sys::load_relaxed(self.posted_word()) }
    }

    fn set_posted(&self, number: u64) {
        // SAFETY: as above.
        unsafe { Sys::store_release(self.posted_word(), number) }
    }

    fn state(&self) -> State {
        // SAFETY: as above.
        State::from_word(unsafe { Sys::load_acquire(self.state_word()) })
    }

    fn set_state(&self, state: State) {
        // SAFETY: as above.
        unsafe { Sys::store_release(self.state_word(), state as u64) }
    }

    fn fence(&self) {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: a fence has no operands.
        unsafe {
            core::arch::asm!("fence.sc.sys;")
        }
        #[cfg(not(target_arch = "nvptx64"))]
        core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    }
}
