//! Groups: the threads that make a call together. A group is a value, so that a collective call is visible at its call
//! site.

use core::ops::Range;

use crate::arch;
use crate::error::{Error, Result};

/// Threads that call an operation together, with the same arguments.
///
/// Every thread of the group must make the call, and all get the same result. Earlier writes of the group are visible
/// to the operation.
///
/// # Steps of the leader
/// Some steps are for one thread, such as the atomic that allocates a slot. If the leader leaves with `?`, the other
/// threads stay in their next barrier. A barrier of a group has no deadline. Two methods share an outcome among all
/// threads:
///
/// - [`leader_result`](Group::leader_result) runs a step in the leader and returns its value.
/// - [`agree`](Group::agree) fails in all threads if a step has failed in any of them.
///
/// ```
/// # use rushmem_device::prelude::*;
/// /// Sends the token of each warp to the expert `pe`. The leader allocates a slot there, and all lanes fill it.
/// #[kernel]
/// pub fn dispatch(
///     ctx: &Ctx,
///     slots: SymSlice<f32>,
///     used: Sym<u64>,
///     tokens: SymSlice<f32>,
///     width: usize,
///     pe: u32,
/// ) -> Result {
///     let warp = Warp::current();
///     let at = warp.id() as usize * width;
///     let slot = warp.leader_result(|| ctx.atomic_fetch_inc(used, pe))? as usize;
///     ctx.put_nbi(warp, slots.slice(slot * width..(slot + 1) * width), tokens.slice(at..at + width), pe)?;
///     ctx.quiet(warp)
/// }
/// # fn main() {}
/// ```
pub trait Group: Copy + sealed::Sealed {
    /// Returns the index of this thread in the group.
    fn rank(self) -> u32;
    /// Returns the number of threads in the group.
    fn size(self) -> u32;
    /// Synchronises the group; returns whether any thread voted true.
    fn any(self, vote: bool) -> bool;
    /// Synchronises the group, and orders memory among its threads.
    fn sync(self);
    /// Synchronises the group; returns whether any thread voted true, and the leader's value.
    ///
    /// The caller makes another barrier between any two such calls.
    fn broadcast_any(self, vote: bool, value: u64) -> (bool, u64);
    /// Returns the leader's value to all threads of the group. It makes two barriers.
    #[inline(always)]
    #[track_caller]
    fn broadcast(self, value: u64) -> u64 {
        self.sync();
        self.broadcast_any(false, value).1
    }
    /// Ends a step that may fail in some threads only. Makes a barrier; all threads of the group must call it.
    ///
    /// ```
    /// # use rushmem_device::prelude::*;
    /// /// Lets each lane write its number to the PE of that number. A lane without such a PE fails the whole warp.
    /// fn greet(ctx: &Ctx, warp: Warp, inbox: Sym<u32>) -> Result {
    ///     warp.agree(ctx.p(inbox, warp.rank(), warp.rank()))?;
    ///     ctx.quiet(warp)
    /// }
    /// ```
    ///
    /// # Errors
    /// - The thread's own error, in a thread with `Err`.
    /// - [`Error::InGroup`] in the other threads, if any thread has an error.
    #[inline(always)]
    #[track_caller]
    fn agree(self, mine: Result) -> Result {
        agree(self, mine)
    }
    /// Runs `step` in the leader, and returns its value to all threads of the group. Makes two barriers; all threads
    /// must call it.
    ///
    /// `step` must not make calls of the whole group.
    ///
    /// # Errors
    /// - The leader's own error, in the leader.
    /// - [`Error::InGroup`] in the other threads, if the leader has an error.
    #[inline(always)]
    #[track_caller]
    fn leader_result(self, step: impl FnOnce() -> Result<u64>) -> Result<u64> {
        let mine = if self.leader() { step() } else { Ok(0) };
        self.sync();
        agree_on(self, mine)
    }
    /// Returns whether this is the leader: true in exactly one thread of the group.
    fn leader(self) -> bool {
        self.rank() == 0
    }
    /// Returns whether this thread leads the helper warp: true in exactly one thread. If the group has several warps,
    /// it is not in the leader's warp, so that both can work at the same time.
    fn helper_warp(self) -> bool {
        self.leader()
    }
    /// Returns two values to all threads of the group: the helper warp's `one`, and the leader's or the helper warp's
    /// `other`. The rule of [`Group::broadcast_any`] holds.
    fn broadcast_both(self, one: Option<u64>, other: Option<u64>) -> (u64, u64);
    /// Returns the same threads as a group for calls that need no barrier.
    #[inline(always)]
    fn without_barrier(self) -> WithoutBarrier<Self> {
        WithoutBarrier(self)
    }
}

/// The calling thread alone. Calls that several lanes of a warp make at once are posted together.
#[derive(Clone, Copy, Debug)]
pub struct Thread;

/// The calling thread's warp: all of its lanes call.
#[derive(Clone, Copy, Debug)]
pub struct Warp(());

/// A tile: `2^k` neighbouring lanes of a warp. All of its lanes call. Other tiles of the warp may do something else
/// meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Tile {
    /// Number of lanes, less one.
    last: u32,
}

/// The calling thread's block: all of its threads call.
#[derive(Clone, Copy, Debug)]
pub struct Block(());

/// A group that needs no barrier at a call: the other threads see its writes already, or the call reads none of them.
///
/// Non-blocking puts and gets of such a group begin and end without a barrier. So its warps go on to the next transfer
/// while the last one is in flight. The `quiet` of the group itself, not of this one, completes them.
///
/// ```
/// # use rushmem_device::prelude::*;
/// /// Sends the parts of `src`, which an earlier launch has written, one after the other.
/// #[kernel]
/// pub fn scatter(ctx: &Ctx, dst: SymSlice<u32>, src: SymSlice<u32>, part: u64) -> Result {
///     let (block, part) = (Block::current(), part as usize);
///     let mut at = 0;
///     while at + part <= src.len() {
///         ctx.put_nbi(block.without_barrier(), dst.slice(at..at + part), src.slice(at..at + part), ctx.pe_after(1))?;
///         at += part;
///     }
///     ctx.quiet(block)
/// }
/// # fn main() {}
/// ```
#[derive(Clone, Copy, Debug)]
pub struct WithoutBarrier<G>(pub(crate) G);

pub(crate) mod sealed {
    pub trait Sealed: Sized {
        /// Whether a call needs no barrier at its beginning, and none at its end if it completes nothing.
        const NEEDS_NO_BARRIER: bool = false;
        /// Whether lanes that call at once post together; each is a group of its own.
        const TOGETHER: bool = false;
        /// The leader warp's lanes as a group.
        type LeaderWarp: super::Group;
        /// Returns the lanes of the leader warp, as a group with the same leader; `None` in threads outside of it.
        fn leader_warp(self) -> Option<Self::LeaderWarp>;
        /// Returns the channel of a team that this group uses in collective calls.
        #[inline(always)]
        fn channel(self) -> u32 {
            0
        }
        /// Returns the number of groups of the PE that make a collective call together, one for each channel.
        #[inline(always)]
        fn channels(self) -> u32 {
            1
        }
        /// Returns the number of lanes in the leader warp, in every thread of the group.
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
    impl<G: super::Group> Sealed for super::WithoutBarrier<G> {
        const NEEDS_NO_BARRIER: bool = true;
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

/// Ends a step that only some threads, usually the leader, can fail at. Makes a barrier and returns the same outcome to
/// all threads of the group.
///
/// # Errors
/// - A thread that failed gets its own error.
/// - [`Error::InGroup`] in the other threads.
#[inline(always)]
#[track_caller]
pub(crate) fn agree<G: Group>(group: G, mine: Result) -> Result {
    if group.any(mine.is_err()) { mine.and(Err(Error::InGroup)) } else { Ok(()) }
}

/// Ends a step like [`agree`], and returns the leader's value. The rule of [`Group::broadcast_any`] holds.
#[inline(always)]
#[track_caller]
pub(crate) fn agree_on<G: Group>(group: G, mine: Result<u64>) -> Result<u64> {
    match group.broadcast_any(mine.is_err(), mine.unwrap_or(0)) {
        (false, value) => Ok(value),
        (true, _) => mine.and(Err(Error::InGroup)),
    }
}

/// Returns the error of a call with wrong arguments, which every thread of the group has checked itself: the leader's
/// recorded `why`, or [`Error::InGroup`] in the other threads.
#[cold]
#[inline(always)]
pub(crate) fn refused(why: Result) -> Error {
    why.err().unwrap_or(Error::InGroup)
}

impl Thread {
    /// Returns the index of the calling thread in the whole grid.
    #[inline(always)]
    pub fn index() -> usize {
        arch::block() as usize * arch::threads() as usize + arch::thread() as usize
    }

    /// Returns the number of threads in the whole grid.
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
    /// Returns the calling thread's warp.
    #[inline(always)]
    pub fn current() -> Self {
        Self(())
    }

    /// Returns the index of this warp in its block.
    #[inline(always)]
    pub fn id(self) -> u32 {
        arch::thread() / 32
    }

    /// Returns the lanes of this warp: all 32, except in the last warp of a block with another size than a multiple of
    /// 32.
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

/// Broadcasts both values of [`Group::broadcast_both`] among the lanes of `mask`. Lane `first` is leader and helper.
#[inline(always)]
#[track_caller]
fn shuffle_both(mask: u32, one: Option<u64>, other: Option<u64>, first: u32) -> (u64, u64) {
    let cast = |value: Option<u64>| arch::shuffle(mask, value.unwrap_or(0), first);
    (cast(one), cast(other))
}

impl Tile {
    /// Returns the calling thread's tile of `lanes` lanes: 1, 2, 4, 8, 16 or 32.
    ///
    /// Returns `None` for another number, or if the block's last warp does not consist of whole tiles. NCCL:
    /// `ncclCoopTile`.
    #[inline(always)]
    pub fn of(lanes: u32) -> Option<Self> {
        let fits = lanes.is_power_of_two() && lanes <= 32;
        let last = lanes.wrapping_sub(1);
        if fits && Warp::current().size() & last == 0 { Some(Self { last }) } else { None }
    }

    /// Returns the index of this tile in its block.
    #[inline(always)]
    pub fn id(self) -> u32 {
        arch::thread() >> (self.last + 1).trailing_zeros()
    }

    /// Returns its lanes, as bits of the warp.
    #[inline(always)]
    pub fn mask(self) -> u32 {
        (u32::MAX >> (31 - self.last)) << self.first()
    }

    /// Returns its first lane.
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

impl<G: Group> Group for WithoutBarrier<G> {
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
    /// Returns the calling thread's block.
    #[inline(always)]
    pub fn current() -> Self {
        Self(())
    }

    /// Returns the index of this block in the grid.
    #[inline(always)]
    pub fn id(self) -> u32 {
        arch::block()
    }

    /// Returns the number of blocks in the grid.
    #[inline(always)]
    pub fn count(self) -> u32 {
        arch::blocks()
    }

    /// Returns this block's share of `0..n`: a contiguous range. The shares of all blocks cover `0..n` exactly once.
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
