//! A queue pair as seen by device code: descriptor, state words and owner.
#![allow(unsafe_code, reason = "accesses the table of QPs, at addresses from the host")]

use core::hint::assert_unchecked;
use core::marker::PhantomData;
use core::mem::offset_of;
use core::ptr::null_mut;

use rushmem_mlx5::{Flags, Wqe};

use super::send_queue::{DC_BLOCKS, SendQueueView};
use crate::abi::{Connection, DevAddr, FIRST_BLOCK, QpDesc, QpEntry, QpState, qp_flags};
use crate::arch::{self, Gpu, Scope, SysWord};
use crate::error::{Detail, Error, Site, record};
use crate::sharing::{Exclusive, Sharing};
use crate::wait::{Needs, lost};

/// Whether this build can post to DC initiators. GPU builds leave it out by default, because it costs every kernel
/// registers.
pub(crate) const HAS_DC: bool = cfg!(any(not(target_arch = "nvptx64"), feature = "dc"));

/// Scope of loads of a connection. It is written once, so the L1 cache of a thread that has seen it established has it. A
/// failover writes it again, and the cache may then have the earlier one.
#[cfg(any(not(target_arch = "nvptx64"), feature = "failover"))]
type ConnectionScope = Gpu;
#[cfg(all(target_arch = "nvptx64", not(feature = "failover")))]
type ConnectionScope = crate::arch::Cta;

/// Index one past the last block of a posting, which is complete once the QP's `done` index reaches it.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct EndIndex(pub(crate) u64);

/// A queue pair to a peer, connected or not. `S` says which threads share it.
#[derive(Clone, Copy)]
pub(crate) struct Qp<'a, S> {
    entry: *mut QpEntry,
    /// Table entry of the peer if the QP is a DC initiator, which several peers share; otherwise null.
    peer: *mut QpEntry,
    _sharing: PhantomData<(&'a QpEntry, S)>,
}

impl<'a, S: Sharing> Qp<'a, S> {
    /// Returns the QP of a table entry.
    ///
    /// # Safety
    /// `entry` leads to an entry that the host filled. It and every address in it are valid while the kernel runs.
    #[inline(always)]
    pub(crate) unsafe fn new(entry: *mut QpEntry) -> Self {
        Self { entry, peer: null_mut(), _sharing: PhantomData }
    }

    /// Returns the DC initiator that serves the PE of a table entry.
    ///
    /// # Safety
    /// The same as for [`Qp::new`]. The QPs of the set are DC initiators, so `desc.queue` leads to one's entry.
    #[inline(always)]
    pub(crate) unsafe fn towards(peer: *mut QpEntry) -> Self {
        // SAFETY: `peer` is an entry that the host filled, by this function's contract, so it is not null and
        // readable. The compiler then knows the answer of `is_dc`.
        let entry = unsafe {
            assert_unchecked(!peer.is_null());
            (*peer).desc.queue.ptr()
        };
        Self { entry, peer, _sharing: PhantomData }
    }

    /// Returns the QP that serves the PE of a table entry, DC initiator or not.
    ///
    /// # Safety
    /// The same as for [`Qp::new`].
    #[inline(always)]
    pub(crate) unsafe fn of(entry: *mut QpEntry) -> Self {
        // SAFETY: `entry` is an entry that the host filled, by this function's contract. Its flags say whether the QP
        // is a DC initiator, as `towards` demands.
        unsafe {
            let is_dc = HAS_DC && (*entry).desc.flags & qp_flags::DC != 0;
            if is_dc { Self::towards(entry) } else { Self::new(entry) }
        }
    }

    /// Returns the table entry that holds the queue and its state. Outlined functions take it instead of a `Qp`,
    /// because it fits in one register.
    #[inline(always)]
    pub(crate) fn entry(&self) -> *mut QpEntry {
        self.entry
    }

    /// Returns the table entry of the peer, from which [`Qp::of`] makes the same `Qp`. For outlined functions that also
    /// need the peer.
    #[inline(always)]
    pub(crate) fn peer_entry(&self) -> *mut QpEntry {
        if self.is_dc() { self.peer } else { self.entry }
    }

    #[inline(always)]
    pub(crate) fn is_dc(&self) -> bool {
        HAS_DC && !self.peer.is_null()
    }

    #[inline(always)]
    pub(crate) fn desc(&self) -> &'a QpDesc {
        // SAFETY: nobody changes it while kernels run.
        unsafe { &(*self.entry).desc }
    }

    /// Returns the descriptor of the peer: its PE number, its keys, and the address vector of its DC target.
    #[inline(always)]
    pub(crate) fn peer(&self) -> &'a QpDesc {
        // SAFETY: nobody changes it while kernels run.
        unsafe { if self.is_dc() { &(*self.peer).desc } else { self.desc() } }
    }

    /// Returns the number of blocks that `wqes` WQEs take, which is `blocks` plus the blocks for address vectors.
    #[inline(always)]
    pub(crate) fn blocks(&self, wqes: u64, blocks: u64) -> u64 {
        if self.is_dc() { wqes * DC_BLOCKS } else { blocks }
    }

    /// Writes one WQE at block `index` of a reservation to `queue`, the view of this QP. Returns the index of the next
    /// block.
    #[inline(always)]
    pub(crate) fn write(&self, queue: SendQueueView, index: u64, wqe: &Wqe, flags: Flags) -> u64 {
        if self.is_dc() {
            return queue.write_to(&self.peer().target, index, wqe, flags);
        }
        let next = queue.write(index, wqe, flags);
        if next != index + 1 {
            self.count_second_block();
        }
        next
    }

    /// Returns the view of the connected send queue, which is `depth` blocks deep.
    ///
    /// The caller has a reservation, so it has seen the connection established. The loads must not be hoisted above
    /// that check: they could then see what was there before. An exclusive thread wrote the connection itself and may
    /// use plain loads.
    #[inline(always)]
    pub(crate) fn send_queue(&self, depth: u64) -> SendQueueView {
        // SAFETY: 32 bytes of the entry; the connection was written before that.
        let (head, tail) = unsafe {
            let at = (&raw const (*self.entry).connection).cast::<[u32; 4]>();
            if S::SHARED {
                (ConnectionScope::load16_gated(at), ConnectionScope::load16_gated(at.add(1)))
            } else {
                (arch::load16(at), arch::load16(at.add(1)))
            }
        };
        SendQueueView::new(head, tail, depth)
    }

    /// Returns the connection's word at byte offset `field`. As for [`Qp::send_queue`], the QP must be known to be
    /// connected.
    #[inline(always)]
    pub(super) fn connected(&self, field: usize) -> DevAddr {
        let connection = self.entry.cast::<u8>().wrapping_add(offset_of!(QpEntry, connection));
        // SAFETY: a field of the entry; the connection was written before that.
        DevAddr(unsafe { ConnectionScope::load_relaxed(connection.wrapping_add(field).cast()) })
    }

    #[inline(always)]
    pub(crate) fn connection_flags(&self) -> u32 {
        const AT: usize = offset_of!(Connection, qpn);
        const { assert!(offset_of!(Connection, flags) == AT + 4 && AT.is_multiple_of(8)) };
        (self.connected(AT).0 >> 32) as u32
    }

    /// Returns whether the QP is connected and delivers WRITEs in the order in which they were posted.
    #[inline(always)]
    pub(crate) fn is_in_order(&self) -> bool {
        const AT: usize = offset_of!(Connection, qpn);
        // One load returns both QP number and flags. The QP number of a connected QP is never 0.
        let word = self.connected(AT).0;
        word as u32 != 0 && (word >> 32) as u32 & qp_flags::UNORDERED == 0
    }

    /// Returns lkey, rkey, peer and log2 of the depth, all in one load.
    #[inline(always)]
    fn fixed(&self) -> [u32; 4] {
        const AT: usize = offset_of!(QpDesc, lkey);
        const { assert!(offset_of!(QpDesc, log_depth) == AT + 12 && AT.is_multiple_of(16)) };
        // SAFETY: 16 bytes of the descriptor, which nobody changes while kernels run.
        unsafe { arch::load16(self.entry.cast::<u8>().add(AT).cast()) }
    }

    /// Returns the lkey of this PE's heap and the rkey of the peer's.
    #[inline(always)]
    pub(crate) fn keys(&self) -> (u32, u32) {
        let [lkey, rkey, ..] = self.fixed();
        (lkey, rkey)
    }

    /// Returns the depth of the queue, in blocks.
    #[inline(always)]
    pub(crate) fn depth(&self) -> u64 {
        let [.., log_depth] = self.fixed();
        1 << (log_depth & 31)
    }

    /// Returns the address of the [`QpState`] word at offset `field`.
    #[inline(always)]
    pub(crate) fn word(&self, field: usize) -> *mut u64 {
        // SAFETY: inside of the entry.
        unsafe { self.entry.cast::<u8>().add(offset_of!(QpEntry, state) + field).cast() }
    }

    /// Returns the details of an error on a connected QP; `found` and `wanted` are block indices. Omits the peer of a
    /// DC initiator, which has several; the host finds the peer by block.
    #[inline(always)]
    pub(super) fn detail(&self, found: u64, wanted: u64) -> Detail {
        let (peer, qpn) = (self.desc().peer, self.send_queue(self.depth()).qpn);
        Detail { peer, qpn, found: found - FIRST_BLOCK, wanted: wanted - FIRST_BLOCK, ..Detail::NONE }
    }

    /// Poisons the QP: all later operations on it fail. The first thread writes the error record and gets `error` back;
    /// all others get [`Error::Poisoned`], or [`Error::PeerLost`] after a loss.
    #[cold]
    #[inline(always)]
    pub(super) fn poison(&self, error: Error, detail: Detail, site: Site) -> Error {
        match self.mark_poisoned(error) {
            0 if error == Error::PeerLost => lost(self.desc().pe_state, self.needs(), site),
            0 => record(self.desc().pe_state, error, detail, site),
            _ => self.poisoned(),
        }
    }

    /// Sets the poison word to `error`, unless the QP is poisoned. Returns the earlier value, which is 0 in only one thread.
    #[inline(always)]
    pub(super) fn mark_poisoned(&self, error: Error) -> u64 {
        // Never overwritten: the word also says which losses have been reported.
        // SAFETY: a word of the QP's state.
        unsafe { S::Scope::compare_swap_release(self.poison_word(), 0, error as u64) }
    }

    /// Returns the error for later operations on the QP, which is poisoned. A loss explains every earlier cause.
    #[inline(always)]
    pub(crate) fn poisoned(&self) -> Error {
        // SAFETY: the entry that the host filled.
        unsafe { poisoned::<S>(self.entry) }
    }

    /// Returns whether the loss of the peer has been reported for all blocks before `end`, and notes that it has been.
    #[cold]
    #[inline(always)]
    pub(super) fn has_reported(&self, end: u64) -> bool {
        // SAFETY: a word of the QP's state. If two threads race, both report the loss. If another one has renewed the queue,
        // the blocks are dropped.
        unsafe {
            let found = S::Scope::load_relaxed(self.poison_word());
            let reported = found == 0 || found >> POISON_BITS >= end;
            if !reported {
                let word = end << POISON_BITS | Error::PeerLost as u64;
                let _ = S::Scope::compare_swap_release(self.poison_word(), found, word);
            }
            reported
        }
    }

    /// Returns what the QP's completions depend on. DC initiators, which serve several peers, exist only in jobs with
    /// fixed membership, where no peer counts as lost.
    #[inline(always)]
    pub(super) fn needs(&self) -> Needs {
        Needs::pe(self.desc().peer)
    }

    #[inline(always)]
    pub(super) fn poison_word(&self) -> *mut u64 {
        self.word(offset_of!(QpState, poison))
    }
}

/// Implements [`Qp::poisoned`]. Outlined, because postings are inlined.
///
/// # Safety
/// The same as for [`Qp::new`].
#[cold]
#[inline(never)]
unsafe fn poisoned<S: Sharing>(entry: *mut QpEntry) -> Error {
    // SAFETY: `entry` leads to an entry that the host filled, by this function's contract.
    let qp = unsafe { Qp::<S>::new(entry) };
    // SAFETY: a word of the QP's state.
    let word = unsafe { S::Scope::load_relaxed(qp.poison_word()) };
    // 0 if another thread has just renewed the queue.
    let by_loss = word == 0 || word & ((1 << POISON_BITS) - 1) == Error::PeerLost as u64;
    if by_loss || qp.needs().is_lost(qp.desc().pe_state) || qp.is_stale() {
        Error::PeerLost
    } else {
        Error::Poisoned
    }
}

/// Number of bits of the poison word that hold an error code. The others are the index one past the last block for which
/// the loss of the peer has been reported.
const POISON_BITS: u32 = 8;

/// Mask of the owner word's low 40 bits: the block that holds a claim on the QP set. The bits above count its claims.
const OWNER_BLOCK: u64 = (1 << 40) - 1;

const ONE_CLAIM: u64 = OWNER_BLOCK + 1;

/// Bit of the owner word that is set if a single thread owns the QP set, rather than a block.
const OWNER_THREAD: u64 = 1 << 63;

/// Returns whether the claim count in an owner word has saturated. The block can then no longer release the QP set.
#[inline(always)]
const fn is_full(owner: u64) -> bool {
    (owner | OWNER_BLOCK) + ONE_CLAIM >= OWNER_THREAD
}

/// Returns the owner word after a claim by `claimant`, or `None` if another block or thread owns the QP set.
#[inline(always)]
const fn claimed(owner: u64, claimant: u64) -> Option<u64> {
    if owner == 0 {
        // A single thread is not counted. The first claim of a block starts its count at 1.
        Some(if claimant & OWNER_THREAD != 0 { claimant } else { claimant | ONE_CLAIM })
    } else if owner & (OWNER_THREAD | OWNER_BLOCK) != claimant || claimant & OWNER_THREAD != 0 {
        // Owned by somebody else, or by a thread, which claims only once.
        None
    } else if is_full(owner) {
        // Saturated. `released` does not count down any more either.
        Some(owner)
    } else {
        Some(owner + ONE_CLAIM)
    }
}

/// Returns the owner word after one claim is released.
#[inline(always)]
const fn released(owner: u64) -> u64 {
    if owner & OWNER_THREAD != 0 || owner <= ONE_CLAIM | OWNER_BLOCK {
        0
    } else if is_full(owner) {
        owner
    } else {
        owner - ONE_CLAIM
    }
}

impl Qp<'_, Exclusive> {
    /// Claims the QP set for `claimant`, which is not 0. Returns whether it succeeded.
    ///
    /// A claimant with its top bit set is a single thread, which can claim a set once. Any other claimant is a block:
    /// each of its threads may claim the set, which becomes free when all of them have released it.
    #[inline(always)]
    pub(crate) fn take_set(&self, claimant: u64) -> bool {
        let taken = self.update_owner(|owner| claimed(owner, claimant));
        // Pairs with the fence in `release_set`: the previous owner has used the state words without ordering them for
        // others.
        Gpu::fence();
        taken
    }

    /// Releases one claim on the QP set.
    #[inline(always)]
    pub(crate) fn release_set(&self) {
        // Publishes what this owner has done to the next one.
        Gpu::fence();
        self.update_owner(|owner| Some(released(owner)));
    }

    /// Replaces the owner word with the result of `update`, retrying on contention. Returns `false` if `update` returns
    /// `None`.
    #[inline(always)]
    fn update_owner(&self, update: impl Fn(u64) -> Option<u64>) -> bool {
        let word = self.word(offset_of!(QpState, owner));
        // Expect a free set. A failed swap returns the actual owner.
        let mut owner = 0;
        while let Some(next) = update(owner) {
            // SAFETY: a word of the QP's state.
            let found = unsafe { u64::compare_swap(word, owner, next) };
            if found == owner {
                return true;
            }
            owner = found;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_owns_a_set_until_all_claims_are_released() {
        let (one, two) = (ONE_CLAIM | 7, (2 * ONE_CLAIM) | 7);
        assert_eq!((claimed(0, 7), claimed(one, 7)), (Some(one), Some(two)));
        assert_eq!((claimed(two, 8), claimed(two, OWNER_THREAD | 7)), (None, None));
        assert_eq!((released(two), released(one)), (one, 0));
    }

    #[test]
    fn thread_claims_a_set_only_once() {
        let own = OWNER_THREAD | 7;
        assert_eq!((claimed(0, own), claimed(own, own), released(own)), (Some(own), None, 0));
    }

    #[test]
    fn saturated_claim_count_stays_saturated() {
        let full = (OWNER_THREAD - ONE_CLAIM) | 7;
        assert_eq!((claimed(full, 7), released(full)), (Some(full), full));
    }
}
