//! The host's side of a request ring: posts requests and tracks their execution.
#![allow(unsafe_code, reason = "reads results at raw addresses")]

use crate::handshake::{Handshake, State, announce};
use crate::request::{INLINE, Request};
use crate::ring::{End, Ring, SLOTS};
use core::ptr::NonNull;
use rushmem_device::arch;
use std::vec::Vec;

/// Posts requests to a ring and tracks their execution. Only one client may use a ring.
pub struct Client {
    end: End,
    /// Address of the ring for the GPU.
    address: u64,
    /// Number of requests posted so far.
    posted: u64,
    /// Number of requests that the kernel has executed or the host has taken back.
    settled: u64,
}

/// Requests that a kernel left unexecuted, in posting order.
pub type Left = Vec<Request>;

impl Client {
    /// Creates the client of `ring`, whose address for the GPU is `address`.
    ///
    /// # Safety
    /// The ring is zeroed, has no other client, and stays valid while the client exists.
    #[must_use]
    pub unsafe fn new(ring: NonNull<Ring>, address: u64) -> Self {
        // SAFETY: the ring is zeroed, has no other client, and outlives this end.
        Self { end: unsafe { End::new(ring.as_ptr()) }, address, posted: 0, settled: 0 }
    }

    /// Returns the GPU's address of the ring: the first argument of the kernel.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the state of the service kernel that serves the ring.
    #[must_use]
    pub fn state(&self) -> State {
        self.end.state()
    }

    /// Prepares the launch of a kernel. The previous kernel must be gone, and all requests settled.
    pub fn prepare_launch(&mut self) {
        debug_assert!(self.state() == State::Gone && self.is_settled());
        // Clear the stop flag before the state leaves `Gone`: a stop requested from now on is meant for the new kernel.
        self.end.set_stop(false);
        self.end.set_state(State::Starting);
    }

    /// Undoes [`prepare_launch`](Self::prepare_launch) after a failed launch.
    pub fn cancel_launch(&mut self) {
        self.end.set_state(State::Gone);
    }

    /// Returns a function that asks the kernel to exit once the ring is empty. Any thread may call it while the ring is
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

    /// Posts a request to a service kernel that has started. `make` receives the GPU address of a result slot in the
    /// ring. Returns the request's sequence number. If the kernel has exited, also returns all requests that it did not
    /// execute, the new one last.
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

    /// Updates and returns the number of settled requests: those that the kernel has executed or the host has taken
    /// back. This is also the sequence number of the first request that is not settled.
    pub fn settle(&mut self) -> u64 {
        self.settled = self.settled.max(self.end.executed());
        self.settled
    }

    /// Returns whether every posted request has been executed by the kernel or taken back by the host.
    pub fn is_settled(&mut self) -> bool {
        self.settle() == self.posted
    }

    /// Takes back all unsettled requests of a kernel that is gone.
    pub fn take_back(&mut self) -> Left {
        let left = (self.settle()..self.posted).map(|number| self.end.load_request(number)).collect();
        self.settled = self.posted;
        left
    }

    /// Copies out the result of an executed request. It is overwritten once the ring wraps around.
    pub fn read_result(&self, number: u64, to: &mut [u8]) {
        let from = self.end.result(number);
        for (i, byte) in to.iter_mut().take(INLINE).enumerate() {
            // SAFETY: inside of the result, which the kernel does not write any more.
            *byte = unsafe { arch::read(from.wrapping_add(i)) };
        }
    }
}
