//! Groups of threads that make a call together. A group is a value, so collective calls are visible at the call site.

use core::ops::Range;

use crate::arch;
use crate::error::{Error, Result};

/// Threads that make a call together, with the same arguments.
///
/// Every thread of the group must make the call, and all get the same result. Earlier writes by the group are visible
/// to the operation.
///
/// # Steps of the leader
/// Some steps are for a single thread, such as the atomic that allocates a slot. If the leader returns early with `?`,
/// the other threads hang in their next barrier, which has no deadline. Two methods share an outcome among all threads:
///
/// - [`leader_result`](Group::leader_result) runs a step in the leader and returns its value to all threads.
/// - [`agree`](Group::agree) fails in all threads if a step has failed in any of them.
///
/// ```
/// # use rushmem_device::prelude::*;
/// /// Sends each warp's token to expert `pe`. The leader allocates a slot there, and all lanes fill it.
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
    /// Returns the index of this thread in the group. The leader has rank 0.
    fn rank(self) -> u32;
    /// Returns the number of threads in the group.
    fn size(self) -> u32;
    /// Synchronises the group. Returns whether any thread passed `true`.
    fn any(self, vote: bool) -> bool;
    /// Synchronises the group, and orders memory among its threads.
    fn sync(self);
    /// Synchronises the group. Returns whether any thread passed `true` as `vote`, and the leader's `value`.
    ///
    /// Two such calls need another barrier between them: a fast thread would otherwise overwrite the values before a
    /// slow one has read them.
    fn broadcast_any(self, vote: bool, value: u64) -> (bool, u64);
    /// Returns the leader's value to all threads of the group. Costs two barriers.
    #[inline(always)]
    #[track_caller]
    fn broadcast(self, value: u64) -> u64 {
        self.sync();
        self.broadcast_any(false, value).1
    }
    /// Shares the failure of a step among the threads: if the step failed in any of them, the call returns an error in
    /// all. Costs a barrier; all threads of the group must call it.
    ///
    /// ```
    /// # use rushmem_device::prelude::*;
    /// /// Each lane writes its rank to the PE with that number. A lane without such a PE fails the whole warp.
    /// fn greet(ctx: &Ctx, warp: Warp, inbox: Sym<u32>) -> Result {
    ///     warp.agree(ctx.p(inbox, warp.rank(), warp.rank()))?;
    ///     ctx.quiet(warp)
    /// }
    /// ```
    ///
    /// # Errors
    /// - The thread's own error, in a thread with `Err`.
    /// - [`Error::InGroup`] in the others, if any thread has an error.
    #[inline(always)]
    #[track_caller]
    fn agree(self, mine: Result) -> Result {
        agree(self, mine)
    }
    /// Runs `step` in the leader, and returns its value to all threads of the group. Costs two barriers; all threads of
    /// the group must call it.
    ///
    /// `step` must not make calls of the whole group.
    ///
    /// # Errors
    /// - The leader's own error, in the leader.
    /// - [`Error::InGroup`] in the others, if the leader has an error.
    #[inline(always)]
    #[track_caller]
    fn leader_result(self, step: impl FnOnce() -> Result<u64>) -> Result<u64> {
        let mine = if self.leader() { step() } else { Ok(0) };
        // Nobody may still be reading the value of an earlier broadcast.
        self.sync();
        agree_on(self, mine)
    }
    /// Returns whether this thread is the leader, which holds in exactly one thread of the group.
    fn leader(self) -> bool {
        self.rank() == 0
    }
    /// Returns whether this thread leads the helper warp, which is true in exactly one thread. In a group of several
    /// warps, the helper warp is not the leader's warp, so the two can work in parallel.
    fn helper_warp(self) -> bool {
        self.leader()
    }
    /// Returns two values to all threads of the group: `one` from the helper warp, and `other` from the leader or the
    /// helper warp. As with [`Group::broadcast_any`], two such calls need another barrier between them.
    fn broadcast_both(self, one: Option<u64>, other: Option<u64>) -> (u64, u64);
    /// Returns a group of the same threads whose calls skip barriers.
    #[inline(always)]
    fn without_barrier(self) -> WithoutBarrier<Self> {
        WithoutBarrier(self)
    }
}

/// A group of only the calling thread. If several lanes of a warp make a call together, their WQEs are posted together.
#[derive(Clone, Copy, Debug)]
pub struct Thread;

/// A group of all threads of the calling thread's warp.
#[derive(Clone, Copy, Debug)]
pub struct Warp(());

/// A group of `2^k` adjacent lanes of a warp, independent of other tiles of the warp.
#[derive(Clone, Copy, Debug)]
pub struct Tile {
    /// Number of lanes of the tile, minus 1.
    last: u32,
}

/// A group of all threads of the calling thread's block.
#[derive(Clone, Copy, Debug)]
pub struct Block(());

/// A group whose calls skip barriers. The other threads must see its writes already, or the call must read none of
/// them.
///
/// Non-blocking puts and gets of such a group have no barrier at either end, so its warps proceed to the next transfer
/// while the last one is in flight. They are completed by `quiet` of the wrapped group, not of this one.
///
/// ```
/// # use rushmem_device::prelude::*;
/// /// Sends the parts of `src`, written by an earlier launch, one after the other.
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
        /// Whether calls skip the entry barrier, and the exit barrier too unless they complete operations.
        const NEEDS_NO_BARRIER: bool = false;
        /// Whether converged lanes post together although each of them is a group by itself.
        const TOGETHER: bool = false;
        /// Group of the lanes of the leader warp.
        type LeaderWarp: super::Group;
        /// Returns the leader warp as a group with the same leader, or `None` in threads outside that warp.
        fn leader_warp(self) -> Option<Self::LeaderWarp>;
        /// Returns the team channel that this group uses in collective calls.
        #[inline(always)]
        fn channel(self) -> u32 {
            0
        }
        /// Returns where the words of the group's channel are, if the host has told the kernel: see
        /// [`ChannelWords`](crate::coll::ChannelWords).
        #[inline(always)]
        fn channel_words(self) -> Option<(u64, u64)> {
            None
        }
        /// Returns the number of groups of this PE that make a collective call together, with one channel each.
        #[inline(always)]
        fn channels(self) -> u32 {
            1
        }
        /// Returns the number of lanes of the leader warp, in every thread of the group.
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

/// Shares the failure of a step that only some threads, usually the leader, can fail. Costs a barrier. All threads of
/// the group fail if one of them did.
///
/// # Errors
/// - The thread's own error, in threads that failed.
/// - In the other threads [`Error::PeerLost`] if no thread has another error, since programs may survive a loss, and
///   otherwise [`Error::InGroup`].
#[inline(always)]
#[track_caller]
pub(crate) fn agree<G: Group>(group: G, mine: Result) -> Result {
    // All threads vote, so none stays in the barrier.
    if group.any(mine.is_err()) { Err(shared_error(group, mine)) } else { Ok(()) }
}

/// Shares the failure of a step like [`agree`], and otherwise returns the leader's value. As with
/// [`Group::broadcast_any`], two such calls need another barrier between them.
#[inline(always)]
#[track_caller]
pub(crate) fn agree_on<G: Group>(group: G, mine: Result<u64>) -> Result<u64> {
    match group.broadcast_any(mine.is_err(), mine.unwrap_or(0)) {
        (false, value) => Ok(value),
        (true, _) => Err(shared_error(group, mine.map(|_| ()))),
    }
}

/// Returns the error of a thread whose own result is `mine`, in a group of which some thread has failed.
#[cold]
#[inline(always)]
#[track_caller]
fn shared_error<G: Group>(group: G, mine: Result) -> Error {
    let others = group.any(mine.is_err() && mine != Err(Error::PeerLost));
    mine.err().unwrap_or(if others { Error::InGroup } else { Error::PeerLost })
}

/// Returns the error of a call whose arguments every thread of the group has found to be wrong: the recorded `why` in
/// the leader, [`Error::InGroup`] in the others.
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

    /// Returns the lanes of this warp as a bit mask: all 32, except in the last warp of a block whose size is not a
    /// multiple of 32.
    #[inline(always)]
    pub fn mask(self) -> u32 {
        // The size is at least 1, so the shift stays below 32.
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
        // A ballot synchronises but does not order memory.
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

/// Implements [`Group::broadcast_both`] among the lanes of `mask`. Lane `first` is both leader and helper.
#[inline(always)]
#[track_caller]
fn shuffle_both(mask: u32, one: Option<u64>, other: Option<u64>, first: u32) -> (u64, u64) {
    let cast = |value: Option<u64>| arch::shuffle(mask, value.unwrap_or(0), first);
    (cast(one), cast(other))
}

impl Tile {
    /// Returns the calling thread's tile of `lanes` lanes, which is 1, 2, 4, 8, 16 or 32.
    ///
    /// Returns `None` for any other number, or if the block's last warp does not divide into whole tiles. NCCL:
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

    /// Returns the lanes of this tile as a bit mask within the warp.
    #[inline(always)]
    pub fn mask(self) -> u32 {
        (u32::MAX >> (31 - self.last)) << self.first()
    }

    /// Returns the lane of the warp that has rank 0 in the tile.
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
        // A ballot synchronises but does not order memory.
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

    /// Returns this block's contiguous share of `0..n`. The shares of all blocks partition `0..n`.
    #[inline(always)]
    pub fn share(self, n: usize) -> Range<usize> {
        let (id, count) = (self.id() as u64, self.count() as u64);
        // Successive cuts are rounded alike, so the shares meet without overlap.
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
