//! Callers of collective calls: groups, and all blocks of a kernel.

#![allow(unsafe_code, reason = "reads the team table of the launch")]

use crate::abi::team_words::MAX_CHANNELS;
use crate::arch;
use crate::ctx::Ctx;
use crate::error::Result;
use crate::group::{Block, Group, Warp, WithoutBarrier, sealed::Sealed};
use crate::kernel::KernelArg;
use crate::sharing::Sharing;
use crate::team::Team;

/// The threads of a PE that make a collective call together: a [`Group`], or all blocks of a kernel ([`WholeGrid`]).
pub trait CollectiveGroup: Copy + sealed::Enter {}

impl<C: Copy + sealed::Enter> CollectiveGroup for C {}

/// All blocks of a kernel, for collective calls that use the full bandwidth of memory and links.
///
/// Every thread of every block makes the call, with the same arguments. Each block moves or combines part of the data,
/// in parallel with the others. Block `b` synchronises with block `b` of each other member, so:
///
/// - The kernels of all members must have the same number of blocks. Calls by different grids are different calls, and
///   fail with [`Error::TeamMismatch`](crate::Error::TeamMismatch). Blocks without a counterpart wait until the
///   deadline, and the team is unusable afterwards.
/// - All blocks of all members must be resident at the same time. The host's `launch_collective` checks this for one
///   PE, but does not know about other kernels on the GPU.
///
/// At most 64 blocks do work, and fewer in a large team that is not all P2P peers. The others wait at the end, so
/// larger grids are allowed. A grid of one block is equivalent to that block, and may meet blocks in one call.
///
/// [`Ctx::sync_grid`] precedes and follows the call. Earlier stores of all blocks are thus visible to the call, and all
/// blocks see the complete result. A call that fails in one block fails in all. [`WholeGrid::without_barrier`] omits
/// these barriers.
///
/// ```
/// # use rushmem_device::prelude::*;
/// /// Adds the gradients of all PEs. The host launches it with `launch_collective`.
/// #[kernel(max_threads = 512)]
/// pub fn all_reduce(ctx: &Ctx, sums: SymSlice<f32>, gradients: SymSlice<f32>) -> Result {
///     ctx.reduce(WholeGrid::current(), Team::WORLD, Reduce::Sum, sums, gradients)
/// }
/// # fn main() {}
/// ```
#[derive(Clone, Copy, Debug)]
pub struct WholeGrid(());

impl WholeGrid {
    /// Returns all blocks of the calling thread's kernel.
    #[inline(always)]
    pub fn current() -> Self {
        Self(())
    }

    /// Returns a group of the same blocks, for collectives that do not start and finish with a grid barrier.
    ///
    /// Such a call does not imply a barrier at all. Within the kernel, a [`Ctx::sync_grid`] must separate it from
    /// earlier writes to the source or reads of the destination by any block, and another one from later uses of the
    /// destination or changes of the source. A kernel that only makes this call needs neither. A call that fails in one
    /// block may succeed in others.
    ///
    /// ```
    /// # use rushmem_device::prelude::*;
    /// /// Collects the parts of all PEs, written by earlier kernels.
    /// #[kernel(max_threads = 512)]
    /// pub fn collect(ctx: &Ctx, all: SymSlice<u64>, part: SymSlice<u64>) -> Result {
    ///     ctx.fcollect(WholeGrid::current().without_barrier(), Team::WORLD, all, part)
    /// }
    /// # fn main() {}
    /// ```
    #[inline(always)]
    pub fn without_barrier(self) -> WithoutBarrier<Self> {
        WithoutBarrier(self)
    }

    /// Returns a group like [`WholeGrid::without_barrier`], for a grid that has no more blocks than the team has
    /// channels, as the host's operations launch them. `words` are those of the call's team. That saves loads at the
    /// start of the call.
    #[doc(hidden)]
    #[inline(always)]
    pub fn of_channels(self, words: ChannelWords) -> GridOfChannels {
        GridOfChannels(words)
    }
}

/// Where the words of a team's additional channels are in the symmetric heap. The host passes it, which
/// saves kernels a lookup.
#[doc(hidden)]
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelWords {
    /// Heap offset of the words of channel 1.
    first: u64,
    /// Distance to the words of the next channel, and their length.
    bytes: u64,
}

// SAFETY: `repr(C)`, two words without padding; safe code gets one from the host only.
unsafe impl KernelArg for ChannelWords {}

impl ChannelWords {
    /// Returns the words of channels that start at heap offset `first` and have `bytes` bytes each.
    ///
    /// # Safety
    /// These are the additional channels of a team. Calls use the value for this team only, in grids that have no more
    /// blocks than the team has channels.
    #[doc(hidden)]
    pub const unsafe fn from_raw(first: u64, bytes: u64) -> Self {
        Self { first, bytes }
    }

    /// Returns the length of each channel's words, in bytes.
    #[doc(hidden)]
    pub const fn bytes(self) -> u64 {
        self.bytes
    }
}

pub(crate) mod sealed {
    use super::{Ctx, Group, Result, Sharing, Team};

    pub trait Enter {
        /// The group that makes one channel's part of a collective call.
        type Group: Group;
        /// Starts a collective call. Returns the group of this thread, or `None` if the thread has no part in the call.
        ///
        /// # Errors
        /// - The errors of [`Ctx::sync_grid`].
        #[track_caller]
        fn enter<S: Sharing>(self, ctx: &Ctx<S>, team: Team) -> Result<Option<Self::Group>>;
        /// Finishes a collective call with the result `done` of this thread's group.
        ///
        /// # Errors
        /// - The error of the group.
        /// - The errors of [`Ctx::sync_grid`].
        #[track_caller]
        fn leave<S: Sharing>(self, ctx: &Ctx<S>, done: Result) -> Result;
    }
}

impl<G: Group> sealed::Enter for G {
    type Group = G;
    #[inline(always)]
    fn enter<S: Sharing>(self, _: &Ctx<S>, _: Team) -> Result<Option<G>> {
        Ok(Some(self))
    }
    #[inline(always)]
    fn leave<S: Sharing>(self, _: &Ctx<S>, done: Result) -> Result {
        done
    }
}

impl sealed::Enter for WholeGrid {
    type Group = GridBlock;
    #[inline(always)]
    #[track_caller]
    fn enter<S: Sharing>(self, ctx: &Ctx<S>, team: Team) -> Result<Option<GridBlock>> {
        ctx.sync_grid(Block::current())?;
        Ok(GridBlock::of(ctx, team))
    }
    #[inline(always)]
    #[track_caller]
    fn leave<S: Sharing>(self, ctx: &Ctx<S>, done: Result) -> Result {
        ctx.agree_grid(Block::current(), done)
    }
}

impl sealed::Enter for WithoutBarrier<WholeGrid> {
    type Group = GridBlock;
    #[inline(always)]
    fn enter<S: Sharing>(self, ctx: &Ctx<S>, team: Team) -> Result<Option<GridBlock>> {
        Ok(GridBlock::of(ctx, team))
    }
    #[inline(always)]
    fn leave<S: Sharing>(self, _: &Ctx<S>, done: Result) -> Result {
        done
    }
}

/// All blocks of a kernel that has no more of them than the team has channels.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct GridOfChannels(ChannelWords);

impl sealed::Enter for GridOfChannels {
    type Group = GridBlock;
    #[inline(always)]
    fn enter<S: Sharing>(self, _: &Ctx<S>, _: Team) -> Result<Option<GridBlock>> {
        Ok(Some(GridBlock { channels: arch::blocks(), words: Some(self.0) }))
    }
    #[inline(always)]
    fn leave<S: Sharing>(self, _: &Ctx<S>, done: Result) -> Result {
        done
    }
}

/// One block of a collective call by the whole grid. It uses the team channel with the block's index.
#[derive(Clone, Copy, Debug)]
pub struct GridBlock {
    /// Number of blocks that take part in the call.
    channels: u32,
    words: Option<ChannelWords>,
}

impl GridBlock {
    /// Returns the calling thread's block, if the team has a channel for it. For a team that does not exist, that is
    /// block 0, which reports the error.
    #[inline(always)]
    fn of<S: Sharing>(ctx: &Ctx<S>, team: Team) -> Option<Self> {
        let block = arch::block();
        let of_team = match ctx.team_entry(team) {
            // Each channel's entry has the number of channels. The call needs this entry next anyway. It is 0 for
            // channels that do not exist.
            Some(desc) if block < MAX_CHANNELS => {
                let desc = desc.wrapping_add(block as usize);
                // SAFETY: the host made the entry, of whichever team.
                unsafe { arch::read(&raw const (*desc).channels) }
            }
            _ => 0,
        };
        let channels = arch::blocks().min(of_team.max(1));
        if block < channels { Some(Self { channels, words: None }) } else { None }
    }
}

impl Sealed for GridBlock {
    type LeaderWarp = Warp;
    #[inline(always)]
    fn leader_warp(self) -> Option<Warp> {
        Block::current().leader_warp()
    }
    #[inline(always)]
    fn leader_warp_size(self) -> u32 {
        Block::current().leader_warp_size()
    }
    #[inline(always)]
    fn channel(self) -> u32 {
        arch::block()
    }
    #[inline(always)]
    fn channel_words(self) -> Option<(u64, u64)> {
        let ChannelWords { first, bytes } = self.words?;
        Some((first + (self.channel() as u64 - 1) * bytes, bytes))
    }
    #[inline(always)]
    fn channels(self) -> u32 {
        self.channels
    }
}

impl Group for GridBlock {
    #[inline(always)]
    fn rank(self) -> u32 {
        Block::current().rank()
    }
    #[inline(always)]
    fn size(self) -> u32 {
        Block::current().size()
    }
    #[inline(always)]
    #[track_caller]
    fn any(self, vote: bool) -> bool {
        Block::current().any(vote)
    }
    #[inline(always)]
    #[track_caller]
    fn sync(self) {
        Block::current().sync()
    }
    #[inline(always)]
    #[track_caller]
    fn broadcast_any(self, vote: bool, value: u64) -> (bool, u64) {
        Block::current().broadcast_any(vote, value)
    }
    #[inline(always)]
    fn helper_warp(self) -> bool {
        Block::current().helper_warp()
    }
    #[inline(always)]
    #[track_caller]
    fn broadcast_both(self, one: Option<u64>, other: Option<u64>) -> (u64, u64) {
        Block::current().broadcast_both(one, other)
    }
}
