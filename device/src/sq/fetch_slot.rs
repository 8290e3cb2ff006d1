//! Fetch slots: 8 bytes of heap per block, to which the NIC writes the result of a blocking `g` or atomic.
#![allow(unsafe_code, reason = "accesses the busy words of the fetch slots, at addresses from the host")]

use core::mem::offset_of;

use super::Qp;
use crate::abi::{Connection, QpEntry};
use crate::arch::Scope;
use crate::error::{Result, Site};
use crate::sharing::Sharing;
use crate::wait::Watch;

impl<S: Sharing> Qp<'_, S> {
    /// Returns the heap offset of the fetch slot that belongs to block `index`.
    #[inline(always)]
    pub(crate) fn fetch_slot(&self, index: u64) -> u64 {
        self.connected(offset_of!(Connection, fetch_slots)).0 + (index & (self.depth() - 1)) * 8
    }

    #[inline(always)]
    fn fetch_busy(&self, index: u64) -> *mut u64 {
        let words = self.connected(offset_of!(Connection, fetch_busy)).ptr::<u64>();
        words.wrapping_add((index & (self.depth() - 1)) as usize)
    }

    /// Takes the fetch slot of block `index`, which this thread has reserved. Waits until the previous user of the slot
    /// has read its result: a complete WQE frees its block, but not the result, which another thread may not have read
    /// yet.
    ///
    /// # Errors
    /// - [`Error::Timeout`](crate::Error::Timeout) or [`Error::Aborted`](crate::Error::Aborted). The QP is then
    ///   poisoned: the block is reserved and can no longer be posted, so it would block the queue forever.
    #[inline(always)]
    pub(crate) fn take_fetch_slot(&self, index: u64, site: Site) -> Result {
        // Acquire: the previous user has read its result before the NIC may write the next one.
        // SAFETY: a busy word of this QP.
        if unsafe { S::Scope::swap_acq_rel(self.fetch_busy(index), 1) } == 0 {
            Ok(())
        } else {
            take_fetch_slot_slow::<S>(self.entry(), index, site)
        }
    }

    #[inline(always)]
    pub(crate) fn free_fetch_slot(&self, index: u64) {
        // Release: the result has been read before another thread takes the slot.
        // SAFETY: a busy word of this QP, taken by this thread.
        unsafe { S::Scope::store_release(self.fetch_busy(index), 0) }
    }
}

/// Waits for a fetch slot that is in use. Outlined, because it would cost every kernel registers if inlined.
#[cold]
#[inline(never)]
fn take_fetch_slot_slow<S: Sharing>(entry: *mut QpEntry, index: u64, site: Site) -> Result {
    // SAFETY: the caller has it from a QP.
    let qp = unsafe { Qp::<S>::new(entry) };
    let mut watch = Watch::needing(qp.desc().pe_state, qp.needs());
    // SAFETY: a busy word of this QP.
    while unsafe { S::Scope::swap_acq_rel(qp.fetch_busy(index), 1) } != 0 {
        if let Err(why) = watch.turn() {
            // This block can no longer be posted, and nothing after it can be announced. Give the QP up.
            return Err(qp.poison(why, qp.detail(index, index + 1), site));
        }
    }
    Ok(())
}
