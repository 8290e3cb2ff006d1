//! Fetch slots: 8 bytes of heap per block, to which the NIC writes the result of a blocking `g` or atomic.
#![allow(unsafe_code, reason = "accesses the busy words of the fetch slots, at addresses from the host")]

use core::mem::offset_of;

use super::Qp;
use crate::abi::{Connection, QpEntry};
use crate::arch::{Scope, SysWord};
use crate::error::{Error, Result, Site, record};
use crate::sharing::Sharing;
use crate::wait::Watch;

/// Value of a busy word whose result was lost with the connection.
const LOST: u64 = 2;

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
    /// - [`Error::Timeout`] or [`Error::Aborted`]. The QP is then poisoned: the block is reserved and can no longer be posted,
    ///   so it would block the queue forever.
    #[inline(always)]
    pub(crate) fn take_fetch_slot(&self, index: u64, site: Site) -> Result {
        if self.try_take_fetch_slot(index) {
            Ok(())
        } else {
            take_fetch_slot_slow::<S>(self.entry(), index, site)
        }
    }

    #[inline(always)]
    fn try_take_fetch_slot(&self, index: u64) -> bool {
        let word = self.fetch_busy(index);
        // Acquire: the previous user has read its result before the NIC may write the next one.
        // SAFETY: a busy word of this QP.
        unsafe {
            // A swap could replace a mark that the previous user has yet to see.
            if self.can_fail_over() {
                u64::compare_swap(word, 0, 1) == 0
            } else {
                S::Scope::swap_acq_rel(word, 1) == 0
            }
        }
    }

    /// Marks that the result for the fetch slot of block `index` will not come.
    #[inline(always)]
    pub(super) fn lose_fetch_slot(&self, index: u64) {
        // SAFETY: a busy word of this QP. Its user waits.
        unsafe { S::Scope::store_relaxed(self.fetch_busy(index), LOST) }
    }

    /// Checks whether the operation of block `index`, which is complete, has written its result to the fetch slot of this
    /// thread. If not, frees the slot.
    ///
    /// # Errors
    /// [`Error::ResultLost`].
    #[inline(always)]
    pub(crate) fn check_fetch_slot(&self, index: u64, site: Site) -> Result {
        // SAFETY: a busy word of this QP.
        if !self.can_fail_over() || unsafe { S::Scope::load_relaxed(self.fetch_busy(index)) } != LOST {
            return Ok(());
        }
        self.free_fetch_slot(index);
        Err(record(self.desc().pe_state, Error::ResultLost, self.detail(index, index), site))
    }

    /// Frees all fetch slots of a queue whose users have failed.
    #[inline(always)]
    pub(super) fn free_fetch_slots(&self) {
        let mut index = 0;
        while index < self.depth() {
            self.free_fetch_slot(index);
            index += 1;
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
    while !qp.try_take_fetch_slot(index) {
        if let Err(why) = watch.turn() {
            // This block can no longer be posted, and nothing after it can be announced. Give the QP up.
            return Err(qp.poison(why, qp.detail(index, index + 1), site));
        }
    }
    Ok(())
}
