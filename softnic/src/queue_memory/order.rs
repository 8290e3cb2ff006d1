//! The memory order of queues in host memory: the accesses of the adapter to the words that it shares with a driver.
//!
//! | the adapter | after which it sees, or which publishes |
//! |---|---|
//! | takes a doorbell from its register: acquire | the WQEs, their data in host memory and the doorbell record, all of which the driver stores before a release of the register |
//! | loads a doorbell record: acquire | the WQEs that the record announces, also if its doorbell was overwritten. A GPU may store the record after the register. |
//! | loads a WQE: relaxed | nothing more: the doorbell or the record has been acquired |
//! | copies data: relaxed, and a release fence between WQEs | the data of earlier WQEs, before that of later ones: a consumer that acquires a flag sees the data written before it |
//! | stores a CQE: relaxed, then release of its last word | the rest of the CQE, and the data of its WQE, to a driver that polls the last word with acquire |
//! | invalidates a CQE: relaxed | nothing: the next CQE in the slot is stored to the same word |
//!
//! Both sides order what the other must see by these accesses alone, on any processor. The tests run them on loom's
//! atomics, which return every value that the order allows.

use std::sync::atomic::{AtomicU64, Ordering};

/// An 8-byte word that the adapter and its driver share.
pub(super) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn swap(&self, value: u64, order: Ordering) -> u64;
}

#[allow(clippy::disallowed_methods, reason = "queues are shared with programs and GPUs")]
impl Word for AtomicU64 {
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }

    #[inline]
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.swap(value, order)
    }
}

/// Swaps a register with 0. Returns its value unless that was 0.
#[inline]
pub(super) fn take(register: &impl Word) -> Option<u64> {
    match register.load(Ordering::Relaxed) {
        0 => None,
        _ => Some(register.swap(0, Ordering::Acquire)),
    }
}

/// Copies the words of a WQE.
#[inline]
pub(super) fn load_words(from: &[impl Word], to: &mut [u64]) {
    for (to, word) in to.iter_mut().zip(from) {
        *to = word.load(Ordering::Relaxed);
    }
}

/// Writes the words of a CQE, the last one of which consumers poll.
#[inline]
pub(super) fn store_cqe(to: &[impl Word], words: &[u64; 8]) {
    for (to, word) in to[..7].iter().zip(&words[..7]) {
        to.store(*word, Ordering::Relaxed);
    }
    to[7].store(words[7], Ordering::Release);
}

#[cfg(test)]
mod tests;
