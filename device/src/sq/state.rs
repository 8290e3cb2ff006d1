//! State words of a send queue, and the memory ordering of accesses to them.

/// Maximum depth of a send queue, in 64-byte blocks.
pub const MAX_DEPTH: u64 = 1 << 14;

/// The doorbell word of a send queue: the index one past the last announced block, and three flag bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoorbellState(pub u64);

impl DoorbellState {
    /// Bits that a poster sets to announce its posting: the doorbell is held, and postings may be pending.
    pub const HELD_PENDING: u64 = Self::HELD | Self::PENDING;
    /// Equals no real state. Used by posters that never take the uncontended path and so skip the load.
    pub(crate) const UNKNOWN: Self = Self(u64::MAX);
    pub(super) const HELD: u64 = 1 << 63;
    pub(super) const PENDING: u64 = 1 << 62;
    /// Bit that is set if blocks past the last announced one are reserved, so a posting may be published after a gap.
    pub(super) const GAP: u64 = 1 << 61;

    #[inline(always)]
    pub(super) const fn free(announced: u64, gap: bool) -> Self {
        Self(if gap { announced | Self::GAP } else { announced })
    }

    #[inline(always)]
    pub(super) const fn held(announced: u64) -> Self {
        Self(announced | Self::HELD)
    }

    /// Returns the state in which a poster leaves a doorbell held by another thread, after the poster has announced the
    /// blocks before `announced`.
    #[inline(always)]
    pub(super) const fn held_pending(announced: u64) -> Self {
        Self(announced | Self::HELD_PENDING)
    }

    /// Returns whether the doorbell is free, has no gap, and has announced exactly the blocks before `first`.
    #[inline(always)]
    pub fn is_idle_at(self, first: u64) -> bool {
        self == Self::free(first, false)
    }

    #[inline(always)]
    pub(super) const fn announced(self) -> u64 {
        self.0 & !(Self::HELD | Self::PENDING | Self::GAP)
    }

    #[inline(always)]
    pub(super) const fn is_held(self) -> bool {
        self.0 & Self::HELD != 0
    }
}

/// The ready word of a slot: the reservation last published at this slot. Zero means none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyEntry(pub u64);

impl ReadyEntry {
    /// Width of the length field in bits; the length is at most [`MAX_DEPTH`]. The remaining 49 bits hold the first
    /// block; no queue lives long enough to overflow them.
    const LENGTH: u32 = 15;

    /// Returns the entry that publishes blocks `first..end`.
    #[inline(always)]
    pub const fn new(first: u64, end: u64) -> Self {
        Self(first << Self::LENGTH | (end - first))
    }

    /// Returns the length of the reservation published at block `first`, or 0 if the entry belongs to another
    /// reservation.
    #[inline(always)]
    pub(super) const fn blocks(self, first: u64) -> u64 {
        let length = self.0 & ((1 << Self::LENGTH) - 1);
        // Comparing all upper bits rejects entries of earlier laps, whose `first` maps to the same slot.
        if self.0 == first << Self::LENGTH | length { length } else { 0 }
    }

    /// Returns the entry of a reservation at block `first` whose poster waits for room in the queue.
    #[inline(always)]
    pub(super) const fn waiting(first: u64) -> Self {
        Self::new(first, first)
    }
}

const _: () = assert!(MAX_DEPTH < 1 << ReadyEntry::LENGTH);

/// State words of one send queue, with the memory ordering that each access needs.
///
/// Device code implements it on memory laid out by the host, the loom model on loom's atomics.
pub trait SendQueueState {
    /// Adds `blocks` to the reserved index and returns its old value. Relaxed: the add alone makes the blocks the
    /// caller's.
    fn fetch_add_reserved(&self, blocks: u64) -> u64;
    /// Returns the index one past the last reserved block. Relaxed.
    fn reserved(&self) -> u64;
    /// Replaces the reserved index with `to` if it equals `from`, and returns the index found. Relaxed.
    fn compare_swap_reserved(&self, from: u64, to: u64) -> u64;
    /// Returns the ready entry of `slot`. Relaxed, because the fence before the doorbell makes it an acquire.
    fn ready_entry(&self, slot: u64) -> ReadyEntry;
    /// Sets the ready entry of `slot`. Release, so a thread that reads the entry also sees the WQEs.
    fn set_ready_entry(&self, slot: u64, entry: ReadyEntry);
    /// Returns the doorbell state by a relaxed load.
    fn doorbell(&self) -> DoorbellState;
    /// Sets [`DoorbellState::HELD_PENDING`] and returns the old state. Release, so the next holder sees what the caller
    /// published.
    fn set_pending(&self) -> DoorbellState;
    /// Replaces the doorbell state, held by the caller, with `held` and returns the old state. Acquire, so everything
    /// done before the pending bit was set is visible.
    fn take_pending(&self, held: DoorbellState) -> DoorbellState;
    /// Replaces the doorbell state with `to` if it equals `from`, and returns the state found. Release.
    fn compare_swap_doorbell(&self, from: DoorbellState, to: DoorbellState) -> DoorbellState;
}
