//! Small collective calls whose arguments the host has checked.
//!
//! A kernel that makes one call spends most of its time before data leaves: it loads code and arguments, checks them and
//! hashes the call. The host has done the last two, and a kernel for these calls alone has less code. It locks the team
//! while it learns whether an earlier launch has failed.

#![allow(unsafe_code, reason = "trusts the host's checks")]

use super::{exchange_blocks, exchange_from, part};
use crate::abi::team_words;
use crate::coll::args::{Reduction, kind, longest_part, scratch_of};
use crate::coll::fold::has_words;
use crate::coll::group::CollectiveGroup;
use crate::coll::ll;
use crate::coll::p2p::P2pCall;
use crate::coll::p2p_team::P2pTeam;
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::kernel::KernelArg;
use crate::sharing::Sharing;
use crate::team::Team;
use crate::watch::{self, Collective};

/// A small collective call of a P2P team: `broadcast`, `fcollect`, `alltoall`, `reduce` or `reduce_scatter`.
#[doc(hidden)]
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallCall {
    /// Heap offset and length of the destination, in bytes.
    pub dst: [u64; 2],
    /// Heap offset and length of the source, in bytes.
    pub src: [u64; 2],
    /// Length of a member's block, in bytes.
    pub block: u64,
    /// Hash of the call: [`kind::hash`].
    pub hash: u32,
    /// One of [`call_kind`](crate::abi::call_kind).
    pub kind: u32,
    /// Root of a broadcast, or [`Reduce`](crate::Reduce).
    pub root_or_op: u32,
    /// [`ElementKind`](crate::ElementKind) of a reduction.
    pub element: u32,
}

// SAFETY: `repr(C)` words without padding. Kernels that take one are launched by the host's operations only.
unsafe impl KernelArg for SmallCall {}

impl SmallCall {
    #[inline(always)]
    fn name(&self) -> &'static str {
        match self.kind {
            kind::BROADCAST => "broadcast",
            kind::FCOLLECT => "fcollect",
            kind::ALLTOALL => "alltoall",
            kind::REDUCE => "reduce",
            _ => "reduce_scatter",
        }
    }

    /// Returns whether LL slots have room for the call of a team of `n` members by `channels` groups. `bytes` are the
    /// lengths of the team's channels, words included.
    #[doc(hidden)]
    pub fn fits(&self, n: u32, channels: u32, bytes: &[u64], n_pes: u32) -> bool {
        let (blocks, has_slots) = match self.kind {
            kind::BROADCAST => (1, true),
            kind::REDUCE | kind::REDUCE_SCATTER => ((n - 1).max(1), has_words(self.element)),
            _ => (n, true),
        };
        let wanted = ll::bytes(longest_part(channels, self.block, n_pes)).saturating_mul(blocks as u64);
        has_slots && bytes.iter().all(|&bytes| wanted <= team_words::slots(scratch_of(bytes, n).1, n))
    }
}

impl<S: Sharing> Ctx<'_, S> {
    /// Makes a small collective call, or none if an earlier launch of the same launch queue has failed. The kernel has
    /// done nothing before. The host has checked that all spans are in the heap, that the team is a P2P team that
    /// exists, and that the call [fits](SmallCall::fits).
    ///
    /// # Errors
    /// - [`Error::BadTeam`]: the handle refers to no team.
    /// - All errors of [`Ctx::team_sync`].
    #[doc(hidden)]
    #[inline(always)]
    #[track_caller]
    pub fn small_collective<C: CollectiveGroup>(&self, callers: C, team: Team, what: SmallCall) -> Result {
        let done = match callers.enter(self, team)? {
            Some(group) => {
                let root = (what.kind == kind::BROADCAST).then_some(what.root_or_op);
                let moved =
                    Collective { root, ..Collective::moves(team.key(), what.dst.into(), what.src.into()) };
                let _call = watch::collective(group, what.name(), moved);
                match P2pTeam::of(group, self, team) {
                    Some(team) => exchange(group, team, what, || self.follows_failure()),
                    None => Err(Error::BadTeam),
                }
            }
            None => Ok(()),
        };
        callers.leave(self, done)
    }
}

#[inline(always)]
#[track_caller]
fn exchange<G: Group>(
    group: G,
    team: P2pTeam,
    what: SmallCall,
    follows_failure: impl FnOnce() -> bool,
) -> Result {
    let (begin, bytes) = part(group, team, what.block);
    let Some(mut call) = P2pCall::begin_small(group, team, what.hash, follows_failure)? else {
        return Ok(());
    };
    let (dst, src) = (what.dst[0] + begin, what.src[0] + begin);
    let done = match what.kind {
        kind::BROADCAST => exchange_from(&mut call, Ok(()), (dst, bytes), src, what.root_or_op),
        kind::FCOLLECT => exchange_blocks(&mut call, Ok(()), (dst, bytes), (src, 0), what.block),
        kind::ALLTOALL => exchange_blocks(&mut call, Ok(()), (dst, bytes), (src, what.block), what.block),
        _ => {
            let reduction = Reduction { op: what.root_or_op, kind: what.element };
            let step = if what.kind == kind::REDUCE { 0 } else { what.block };
            call.exchange_to_combine(Ok(()), reduction, dst, (src, step), bytes)
        }
    };
    call.end(done)
}
