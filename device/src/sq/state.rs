//! The state words of a send queue, on which the protocol works.

/// Blocks of the deepest send queue.
pub const MAX_DEPTH: u64 = 1 << 14;

/// The doorbell word of a send queue: the count of announced blocks and three bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoorbellState(pub u64);

impl DoorbellState {
    /// The bits that a poster sets: a thread holds the doorbell, and postings may be pending.
    pub const HELD_PENDING: u64 = Self::HELD | Self::PENDING;
    /// A state that equals no real one, for posters that do not look.
    pub(crate) const UNKNOWN: Self = Self(u64::MAX);
    pub(super) const HELD: u64 = 1 << 63;
    pub(super) const PENDING: u64 = 1 << 62;
    /// A posting may be published after one that is not.
    pub(super) const GAP: u64 = 1 << 61;

    /// Returns the state of a free doorbell.
    #[inline(always)]
    pub(super) const fn free(announced: u64, gap: bool) -> Self {
        Self(if gap { announced | Self::GAP } else { announced })
    }

    /// Returns the state of a held doorbell without pending postings.
    #[inline(always)]
    pub(super) const fn held(announced: u64) -> Self {
        Self(announced | Self::HELD)
    }

    /// Returns the state that tells the doorbell holder, another thread, that all blocks before `announced` are announced.
    #[inline(always)]
    pub(super) const fn held_pending(announced: u64) -> Self {
        Self(announced | Self::HELD_PENDING)
    }

    /// Returns whether the doorbell is free, without a gap, and all blocks before `first` and no others are announced.
    #[inline(always)]
    pub fn is_idle_at(self, first: u64) -> bool {
        self == Self::free(first, false)
    }

    /// Returns the count of announced blocks.
    #[inline(always)]
    pub(super) const fn announced(self) -> u64 {
        self.0 & !(Self::HELD | Self::PENDING | Self::GAP)
    }

    #[inline(always)]
    pub(super) const fn is_held(self) -> bool {
        self.0 & Self::HELD != 0
    }
}

/// The word of a slot: the last reservation published among those that begin there. 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyEntry(pub u64);

impl ReadyEntry {
    /// Bits of the length, which is at most [`MAX_DEPTH`]. The other bits hold the first block; no queue posts enough to
    /// overflow them.
    const LENGTH: u32 = 15;

    /// Returns the entry that publishes the blocks `first..end`.
    #[inline(always)]
    pub const fn new(first: u64, end: u64) -> Self {
        Self(first << Self::LENGTH | (end - first))
    }

    /// Returns the length of the reservation published at block `first`, or 0 if the entry belongs to another one.
    #[inline(always)]
    pub(super) const fn blocks(self, first: u64) -> u64 {
        let length = self.0 & ((1 << Self::LENGTH) - 1);
        if self.0 == first << Self::LENGTH | length { length } else { 0 }
    }
}

const _: () = assert!(MAX_DEPTH < 1 << ReadyEntry::LENGTH);

/// The state words of one send queue, with the memory ordering of each access.
///
/// The device implements it on memory that the host lays out, the loom model on loom's atomics.
pub trait SendQueueState {
    /// Adds `blocks` to the reserved blocks and returns the old count. Relaxed.
    fn fetch_add_reserved(&self, blocks: u64) -> u64;
    /// Returns the reserved blocks. Relaxed.
    fn reserved(&self) -> u64;
    /// Returns the ready entry of `slot`. Relaxed: the fence before the doorbell makes it an acquire.
    fn ready_entry(&self, slot: u64) -> ReadyEntry;
    /// Sets the ready entry of `slot`. Release: a thread that reads the entry sees the WQEs.
    fn set_ready_entry(&self, slot: u64, entry: ReadyEntry);
    /// Returns the doorbell state. Relaxed.
    fn doorbell(&self) -> DoorbellState;
    /// Sets [`DoorbellState::HELD_PENDING`] and returns the old state. Release.
    fn set_pending(&self) -> DoorbellState;
    /// Replaces the doorbell state, which the caller holds, with `held` and returns the old state. Acquire: everything done
    /// before the pending bit was set is visible.
    fn take_pending(&self, held: DoorbellState) -> DoorbellState;
    /// Replaces the doorbell state `from` with `to` and returns the state found. Release.
    fn compare_swap_doorbell(&self, from: DoorbellState, to: DoorbellState) -> DoorbellState;
}
