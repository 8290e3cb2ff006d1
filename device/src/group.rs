//! Who calls an operation together: a value argument, so that a collective call is visible where it is made.

use core::ops::Range;

use crate::arch;
use crate::error::{Error, Result};

/// Threads that call an operation together, with the same arguments.
///
/// Every thread of the group must make the call; the call returns the same result to all of them. What the
/// group wrote before the call is visible to the operation.
pub trait Group: Copy + sealed::Sealed {
    /// Index of this thread in the group.
    fn rank(self) -> u32;
    /// Threads in the group.
    fn size(self) -> u32;
    /// Barrier of the group with an OR over all votes.
    fn any(self, vote: bool) -> bool;
    /// Barrier of the group; orders memory among its threads.
    fn sync(self);
    /// What the leader gave, for all threads of the group, with an OR over all votes; a barrier. There has been another one
    /// since the last such call.
    fn broadcast_any(self, vote: bool, value: u64) -> (bool, u64);
    /// What the leader gave, for all threads of the group; two barriers.
    #[inline(always)]
    #[track_caller]
    fn broadcast(self, value: u64) -> u64 {
        self.sync();
        self.broadcast_any(false, value).1
    }
    /// True in exactly one thread of the group.
    fn leader(self) -> bool {
        self.rank() == 0
    }
    /// True in exactly one thread of the group: of a warp of its own, if there is one, so that what it does goes on beside
    /// what the leader does.
    fn helper_warp(self) -> bool {
        self.leader()
    }
    /// What the helper_warp gave, and what the leader or the helper_warp gave, for all threads of the group; as [`Group::broadcast_any`].
    fn broadcast_both(self, one: Option<u64>, other: Option<u64>) -> (u64, u64);
    /// The same threads, for calls that need no barrier.
    #[inline(always)]
    fn ready(self) -> Ready<Self> {
        Ready(self)
    }
}

/// A thread by itself. Calls that several lanes of a warp make at once are posted together.
#[derive(Clone, Copy, Debug)]
pub struct Thread;

/// The warp of the calling thread: all of its lanes call.
#[derive(Clone, Copy, Debug)]
pub struct Warp(());

/// Lanes of a warp that work by themselves: `2^k` neighbours. All of the tile call; other tiles of the warp may do
/// something else meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Tile {
    /// Lanes, less one.
    last: u32,
}

/// The block of the calling thread: all of its threads call.
#[derive(Clone, Copy, Debug)]
pub struct Block(());

/// A group whose threads need no barrier at a call: what each of them wrote is visible to the others already, or none of
/// it is read. Non-blocking puts and gets of such a group begin and end without one, so that its warps go on to the next
/// while the last is on its way. `quiet` of the group itself, not of this one, ends them.
///
/// ```
/// # use rushmem_device::prelude::*;
/// /// Sends the parts of `src`, which a launch before this one has written, one after the other.
/// #[kernel]
/// pub fn scatter(ctx: &Ctx, dst: SymSlice<u32>, src: SymSlice<u32>, part: u64) -> Result {
///     let (block, part) = (Block::current(), part as usize);
///     let mut at = 0;
///     while at + part <= src.len() {
///         ctx.put_nbi(block.ready(), dst.slice(at..at + part), src.slice(at..at + part), ctx.pe_after(1))?;
///         at += part;
///     }
///     ctx.quiet(block)
/// }
/// # fn main() {}
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ready<G>(G);

mod sealed {
    pub trait Sealed: Sized {
        /// True if a call needs no barrier at its beginning, and none at its end if it completes nothing.
        const READY: bool = false;
        /// True if lanes that call at once post together: each is a group of its own.
        const TOGETHER: bool = false;
        /// Lanes of one warp.
        type LeaderWarp: super::Group;
        /// The lanes of the leader's warp, as a group with the same leader; none for threads that are not among them.
        fn leader_warp(self) -> Option<Self::LeaderWarp>;
        /// How many lanes that are, of this group; known to all its threads.
        #[inline(always)]
        fn leader_warp_size(self) -> u32
        where
            Self: super::Group,
        {
            self.size()
        }
    }
    impl Sealed for super::Thread {
        const TOGETHER: bool = true;
        type LeaderWarp = Self;
        #[inline(always)]
        fn leader_warp(self) -> Option<Self> {
            Some(self)
        }
    }
    impl Sealed for super::Warp {
        type LeaderWarp = Self;
        #[inline(always)]
        fn leader_warp(self) -> Option<Self> {
            Some(self)
        }
    }
    impl Sealed for super::Tile {
        type LeaderWarp = Self;
        #[inline(always)]
        fn leader_warp(self) -> Option<Self> {
            Some(self)
        }
    }
    impl<G: super::Group> Sealed for super::Ready<G> {
        const READY: bool = true;
        const TOGETHER: bool = G::TOGETHER;
        type LeaderWarp = G::LeaderWarp;
        #[inline(always)]
        fn leader_warp(self) -> Option<G::LeaderWarp> {
            self.0.leader_warp()
        }
        #[inline(always)]
        fn leader_warp_size(self) -> u32 {
            self.0.leader_warp_size()
        }
    }
    impl Sealed for super::Block {
        type LeaderWarp = super::Warp;
        #[inline(always)]
        fn leader_warp(self) -> Option<super::Warp> {
            if crate::arch::thread() < 32 { Some(super::Warp::current()) } else { None }
        }
        #[inline(always)]
        fn leader_warp_size(self) -> u32 {
            crate::arch::threads().min(32)
        }
    }
}

/// Ends a step that only some threads, the leader as a rule, could fail at: the same verdict for all threads of the group, and
/// a barrier.
///
/// # Errors
/// Of those who have met one, their own; [`Error::InGroup`] for the others.
#[inline(always)]
#[track_caller]
pub(crate) fn agree<G: Group>(group: G, mine: Result) -> Result {
    if group.any(mine.is_err()) { mine.and(Err(Error::InGroup)) } else { Ok(()) }
}

/// As [`agree`], on what the leader has found; as [`Group::broadcast_any`].
///
/// # Errors
/// As there.
#[inline(always)]
#[track_caller]
pub(crate) fn agree_on<G: Group>(group: G, mine: Result<u64>) -> Result<u64> {
    match group.broadcast_any(mine.is_err(), mine.unwrap_or(0)) {
        (false, value) => Ok(value),
        (true, _) => mine.and(Err(Error::InGroup)),
    }
}

/// The error of a call whose arguments are wrong, which every thread of the group has seen for itself: `why` of the leader,
/// who has recorded it; [`Error::InGroup`] for the others.
#[cold]
#[inline(always)]
pub(crate) fn refused(why: Result) -> Error {
    why.err().unwrap_or(Error::InGroup)
}

impl Thread {
    /// Index of the calling thread in the whole grid.
    #[inline(always)]
    pub fn index() -> usize {
        arch::block() as usize * arch::threads() as usize + arch::thread() as usize
    }

    /// Threads in the whole grid.
    #[inline(always)]
    pub fn count() -> usize {
        arch::blocks() as usize * arch::threads() as usize
    }
}

impl Group for Thread {
    #[inline(always)]
    fn rank(self) -> u32 {
        0
    }
    #[inline(always)]
    fn size(self) -> u32 {
        1
    }
    #[inline(always)]
    fn any(self, vote: bool) -> bool {
        vote
    }
    #[inline(always)]
    fn sync(self) {}
    #[inline(always)]
    fn broadcast_any(self, vote: bool, value: u64) -> (bool, u64) {
        (vote, value)
    }
    #[inline(always)]
    fn broadcast_both(self, one: Option<u64>, other: Option<u64>) -> (u64, u64) {
        (one.unwrap_or(0), other.unwrap_or(0))
    }
}

impl Warp {
    /// The calling thread's warp.
    #[inline(always)]
    pub fn current() -> Self {
        Self(())
    }

    /// Index of this warp in its block.
    #[inline(always)]
    pub fn id(self) -> u32 {
        arch::thread() / 32
    }

    /// The lanes that this warp has: all 32, but for the last warp of a block whose size is no multiple of 32.
    #[inline(always)]
    pub fn mask(self) -> u32 {
        u32::MAX >> (32 - self.size())
    }
}

impl Group for Warp {
    #[inline(always)]
    fn rank(self) -> u32 {
        arch::thread() & 31
    }
    #[inline(always)]
    fn size(self) -> u32 {
        (arch::threads() - (arch::thread() & !31)).min(32)
    }
    #[inline(always)]
    #[track_caller]
    fn any(self, vote: bool) -> bool {
        let any = arch::ballot(self.mask(), vote) != 0;
        arch::sync_warp(self.mask());
        any
    }
    #[inline(always)]
    #[track_caller]
    fn sync(self) {
        arch::sync_warp(self.mask())
    }
    #[inline(always)]
    #[track_caller]
    fn broadcast_any(self, vote: bool, value: u64) -> (bool, u64) {
        let value = arch::shuffle(self.mask(), value, 0);
        (self.any(vote), value)
    }
    #[inline(always)]
    #[track_caller]
    fn broadcast_both(self, one: Option<u64>, other: Option<u64>) -> (u64, u64) {
        shuffle_both(self.mask(), one, other, 0)
    }
}

/// [`Group::broadcast_both`] of lanes of `mask` with the leader `first`, which is the helper_warp too.
#[inline(always)]
#[track_caller]
fn shuffle_both(mask: u32, one: Option<u64>, other: Option<u64>, first: u32) -> (u64, u64) {
    let cast = |value: Option<u64>| arch::shuffle(mask, value.unwrap_or(0), first);
    (cast(one), cast(other))
}

impl Tile {
    /// The calling thread's tile of `lanes` lanes: 1, 2, 4, 8, 16 or 32. `None` for another number, or if the block's last
    /// warp is not made of whole tiles. `ncclCoopTile`.
    #[inline(always)]
    pub fn of(lanes: u32) -> Option<Self> {
        let fits = lanes.is_power_of_two() && lanes <= 32;
        let last = lanes.wrapping_sub(1);
        if fits && Warp::current().size() & last == 0 { Some(Self { last }) } else { None }
    }

    /// Index of this tile in its block.
    #[inline(always)]
    pub fn id(self) -> u32 {
        arch::thread() >> (self.last + 1).trailing_zeros()
    }

    /// Its lanes, as bits of the warp.
    #[inline(always)]
    pub fn mask(self) -> u32 {
        (u32::MAX >> (31 - self.last)) << self.first()
    }

    /// The lane that is its first.
    #[inline(always)]
    fn first(self) -> u32 {
        arch::thread() & 31 & !self.last
    }
}

impl Group for Tile {
    #[inline(always)]
    fn rank(self) -> u32 {
        arch::thread() & self.last
    }
    #[inline(always)]
    fn size(self) -> u32 {
        self.last + 1
    }
    #[inline(always)]
    #[track_caller]
    fn any(self, vote: bool) -> bool {
        let any = arch::ballot(self.mask(), vote) != 0;
        arch::sync_warp(self.mask());
        any
    }
    #[inline(always)]
    #[track_caller]
    fn sync(self) {
        arch::sync_warp(self.mask())
    }
    #[inline(always)]
    #[track_caller]
    fn broadcast_any(self, vote: bool, value: u64) -> (bool, u64) {
        let value = arch::shuffle(self.mask(), value, self.first());
        (self.any(vote), value)
    }
    #[inline(always)]
    #[track_caller]
    fn broadcast_both(self, one: Option<u64>, other: Option<u64>) -> (u64, u64) {
        shuffle_both(self.mask(), one, other, self.first())
    }
}

impl<G: Group> Group for Ready<G> {
    #[inline(always)]
    fn rank(self) -> u32 {
        self.0.rank()
    }
    #[inline(always)]
    fn size(self) -> u32 {
        self.0.size()
    }
    #[inline(always)]
    #[track_caller]
    fn any(self, vote: bool) -> bool {
        self.0.any(vote)
    }
    #[inline(always)]
    #[track_caller]
    fn sync(self) {
        self.0.sync()
    }
    #[inline(always)]
    #[track_caller]
    fn broadcast_any(self, vote: bool, value: u64) -> (bool, u64) {
        self.0.broadcast_any(vote, value)
    }
    #[inline(always)]
    fn helper_warp(self) -> bool {
        self.0.helper_warp()
    }
    #[inline(always)]
    #[track_caller]
    fn broadcast_both(self, one: Option<u64>, other: Option<u64>) -> (u64, u64) {
        self.0.broadcast_both(one, other)
    }
}

impl Block {
    /// The calling thread's block.
    #[inline(always)]
    pub fn current() -> Self {
        Self(())
    }

    /// Index of this block in the grid.
    #[inline(always)]
    pub fn id(self) -> u32 {
        arch::block()
    }

    /// Blocks in the grid.
    #[inline(always)]
    pub fn count(self) -> u32 {
        arch::blocks()
    }

    /// This block's share of `0..n`: contiguous, the shares of all blocks cover it once.
    #[inline(always)]
    pub fn share(self, n: usize) -> Range<usize> {
        let (id, count) = (self.id() as u64, self.count() as u64);
        let cut = |i: u64| (n as u64).wrapping_mul(i).checked_div(count).unwrap_or(0) as usize;
        cut(id)..cut(id + 1)
    }
}

impl Group for Block {
    #[inline(always)]
    fn rank(self) -> u32 {
        arch::thread()
    }
    #[inline(always)]
    fn size(self) -> u32 {
        arch::threads()
    }
    #[inline(always)]
    #[track_caller]
    fn any(self, vote: bool) -> bool {
        arch::block_any(vote)
    }
    #[inline(always)]
    #[track_caller]
    fn sync(self) {
        arch::sync_block()
    }
    #[inline(always)]
    #[track_caller]
    fn broadcast_any(self, vote: bool, value: u64) -> (bool, u64) {
        let one = if self.leader() { Some(value) } else { None };
        let (any, _, value) = arch::block_broadcast(None, one, || self.any(vote));
        (any, value)
    }
    #[inline(always)]
    fn helper_warp(self) -> bool {
        self.rank() == if self.size() > 32 { 32 } else { 0 }
    }
    #[inline(always)]
    #[track_caller]
    fn broadcast_both(self, one: Option<u64>, other: Option<u64>) -> (u64, u64) {
        let ((), one, other) = arch::block_broadcast(one, other, || self.sync());
        (one, other)
    }
}
