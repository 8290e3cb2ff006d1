//! Registers in which programs read the clock that completions use.
//!
//! The adapter stores the time of each pass before the pass checks doorbells, and all completions of the pass carry
//! that time. An operation that a program posts after reading the clock therefore never completes with an earlier time.

use crate::queue_memory::QueueMemory;

pub(crate) const BYTES: usize = 8;

#[derive(Default)]
pub(crate) struct ClockRegisters(Vec<(u32, QueueMemory)>);

impl ClockRegisters {
    pub(crate) fn add(&mut self, owner: u32, register: QueueMemory) {
        self.0.push((owner, register));
    }

    /// Removes the clock registers of a context. Programs still read the last value from them.
    pub(crate) fn remove(&mut self, owner: u32) {
        self.0.retain(|(of, _)| *of != owner);
    }

    #[inline]
    pub(crate) fn store(&self, clock: impl Fn() -> u64) {
        for (_, register) in &self.0 {
            register.store_u64(0, clock().to_be());
        }
    }
}
