//! The host's end of a ring.
#![allow(unsafe_code, reason = "reads results at raw addresses")]

use crate::handshake::{Handshake, State, announce};
use crate::request::{INLINE, Request};
use crate::ring::{End, Ring, SLOTS};
use core::ptr::NonNull;
use rushmem_device::arch;
use std::vec::Vec;

/// The host's end of a ring. One thread at a time posts.
pub struct Client {
    end: End,
    /// Address of the ring for the GPU.
    address: u64,
    /// Number of posted requests.
    posted: u64,
    /// Number of requests that were executed by the kernel or taken back.
    settled: u64,
}

/// The requests that a kernel left unexecuted, in order.
pub type Left = Vec<Request>;

impl Client {
    /// Returns the host's end of `ring`. The GPU knows the ring by `address`.
    ///
    /// # Safety
    /// The ring is zeroed, has no other client, and stays valid while the client exists.
    #[must_use]
    pub unsafe fn new(ring: NonNull<Ring>, address: u64) -> Self {
        // SAFETY: the ring is zeroed, has no other client, and outlives this end.
        Self { end: unsafe { End::new(ring.as_ptr()) }, address, posted: 0, settled: 0 }
    }

    /// Returns the address of the ring for the GPU, which is the first argument of the kernel.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the state of the kernel.
    #[must_use]
    pub fn state(&self) -> State {
        self.end.state()
    }

    /// Prepares the launch of a kernel. The previous one has ended.
    pub fn prepare_launch(&mut self) {
        debug_assert!(self.state() == State::Gone && self.is_settled());
        self.end.set_stop(false);
        self.end.set_state(State::Starting);
    }

    /// Takes the launch back, which failed.
    pub fn cancel_launch(&mut self) {
        self.end.set_state(State::Gone);
    }

    /// Returns a function that asks the kernel to leave once the ring is empty. Any thread may call it while the ring is
    /// valid.
    pub fn stopper(&self) -> impl Fn() + Send + Sync + 'static {
        let end = self.end;
        move || end.set_stop(true)
    }

    /// Returns whether the ring has no room for another request.
    #[must_use]
    pub fn is_full(&mut self) -> bool {
        self.posted - self.settle() >= SLOTS as u64
    }

    /// Posts a request to a kernel that has begun. `make` gets the address for a result in the ring. Returns the number of
    /// the request, and the requests that the kernel left if it is gone, this request last.
    ///
    /// # Errors
    /// - the error of `wait`, which is called repeatedly while the kernel is leaving
    ///
    /// # Panics
    /// If the ring is full.
    pub fn post<E>(
        &mut self,
        make: impl FnOnce(u64) -> Request,
        wait: impl FnMut() -> Result<(), E>,
    ) -> Result<(u64, Left), E> {
        assert!(!self.is_full());
        let number = self.posted;
        let offset = self.end.result(number).addr() - self.end.base();
        self.end.store_request(number, &make(self.address + offset as u64));
        self.posted += 1;
        let left = if announce(&self.end, self.posted, wait)? { Left::new() } else { self.take_back() };
        Ok((number, left))
    }

    /// Returns the number of the first request that the kernel has not executed.
    pub fn settle(&mut self) -> u64 {
        self.settled = self.settled.max(self.end.executed());
        self.settled
    }

    /// Returns whether all requests have been executed.
    pub fn is_settled(&mut self) -> bool {
        self.settle() == self.posted
    }

    /// Takes back the requests that a kernel left, which is gone.
    pub fn take_back(&mut self) -> Left {
        let left = (self.settle()..self.posted).map(|number| self.end.load_request(number)).collect();
        self.settled = self.posted;
        left
    }

    /// Reads the result of an executed request, before the ring has gone round.
    pub fn read_result(&self, number: u64, to: &mut [u8]) {
        let from = self.end.result(number);
        for (i, byte) in to.iter_mut().take(INLINE).enumerate() {
            // SAFETY: inside of the result, which the kernel does not write any more.
            *byte = unsafe { arch::read(from.wrapping_add(i)) };
        }
    }
}
