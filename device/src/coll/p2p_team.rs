//! What collective calls need of a context where all heaps are near, in words that kernels pass in registers.
#![allow(unsafe_code, reason = "reads the team table of the launch")]

use bytemuck::Zeroable;

use super::call::{call_hash, scratch_of};
use super::spread::Span;
use crate::abi::{CtxParts, DevAddr, TeamDesc, team_words};
use crate::arch;
use crate::ctx::Ctx;
use crate::sharing::Sharing;
use crate::team::Team;

/// Most PEs of a job with these calls: what a kernel says to itself of a team fits into two words.
const MOST_PES: u32 = 1 << 15;

/// What Rust passes in registers.
pub(super) type Pair = (u64, u64);

/// What these calls need of the context and the handle.
#[derive(Clone, Copy)]
pub(super) struct P2pTeam {
    /// This PE's heap, and its bytes.
    pub(super) heap: Pair,
    /// Those of all PEs: the first, and the bytes from one to the next.
    pub(super) near: Pair,
    /// The segments, and the PE's state.
    pub(super) rest: Pair,
    /// The table of teams, and the heap offset of the first one's words.
    pub(super) teams: Pair,
    /// Bytes of heap that each team has; in the next word the PEs, and this one in the lower half.
    pub(super) sizes: Pair,
    pub(super) team: Team,
}

impl P2pTeam {
    /// Those of a team; none if not all heaps are near, or the handle is that of no team at all. The same for all members,
    /// whatever they have registered when they were launched.
    #[inline(always)]
    pub(super) fn of<S: Sharing>(ctx: &Ctx<S>, team: Team) -> Option<Self> {
        let p = ctx.parts_ref();
        if !ctx.p2p_heaps() || team.slot() >= p.team_slots || p.n_pes > MOST_PES {
            return None;
        }
        if !ctx.p2p_all() {
            // What others wait for must not be held back.
            ctx.announce_batches();
        }
        // Parameters of the kernel as they are: what is made of them would take registers of it.
        Some(Self {
            heap: (p.heap.0, p.heap_bytes),
            near: (p.p2p_base.0, p.p2p_stride),
            rest: (p.segments.0, p.state.0),
            teams: (p.teams.0, p.team_words),
            sizes: (p.team_bytes, (p.n_pes as u64) << 32 | p.pe as u64),
            team,
        })
    }

    /// As [`P2pTeam::of`]; none also if what others access, which is the same for all members, does not lie in the heap itself.
    #[inline(always)]
    pub(super) fn to<S: Sharing>(ctx: &Ctx<S>, team: Team, (offset, bytes): Span) -> Option<Self> {
        if offset.saturating_add(bytes) > ctx.parts_ref().heap_bytes { None } else { Self::of(ctx, team) }
    }

    /// A context with what these calls look at.
    #[inline(always)]
    pub(super) fn ctx(self) -> Ctx {
        let parts = CtxParts {
            state: self.state(),
            heap: DevAddr(self.heap.0),
            heap_bytes: self.heap.1,
            segments: DevAddr(self.rest.0),
            p2p_base: DevAddr(self.near.0),
            p2p_stride: self.near.1,
            pe: self.sizes.1 as u32,
            n_pes: (self.sizes.1 >> 32) as u32,
            team_bytes: self.sizes.0,
            ..Zeroable::zeroed()
        };
        // SAFETY: `of` had these from a context; of the others nothing is used.
        unsafe { Ctx::from_parts(parts) }
    }

    #[inline(always)]
    pub(super) fn state(self) -> DevAddr {
        DevAddr(self.rest.1)
    }

    /// What the members say of a step.
    #[inline(always)]
    pub(super) fn call_hash(self, kind: u32, arguments: [u64; 4]) -> u32 {
        call_hash(self.team.generation(), kind, arguments)
    }

    /// True if both lie in the heap itself, and `src` is apart from `dst` or begins where it `may`: what `check_spans` would allow,
    /// without a branch.
    #[inline(always)]
    pub(super) fn are_plain(self, dst: Span, src: Span, may: u64) -> bool {
        let all = self.heap.1;
        let inside = |(offset, bytes): Span| (offset <= all) & (bytes <= all.wrapping_sub(offset));
        let (dst_end, src_end) = (dst.0.wrapping_add(dst.1), src.0.wrapping_add(src.1));
        inside(dst) & inside(src) & ((dst_end <= src.0) | (src_end <= dst.0) | (src.0 == may))
    }

    /// The team's entry: `of` has seen that there is one.
    #[inline(always)]
    pub(super) fn desc(self) -> *mut TeamDesc {
        DevAddr(self.teams.0).ptr::<TeamDesc>().wrapping_add(self.team.slot() as usize)
    }

    /// What the team's entry says: this member's number, that of all, the first one's PE, and the step from one to the next;
    /// and the generation of the team whose entry it is. Of the world, that is known without a look.
    #[inline(always)]
    pub(super) fn entry(self) -> ([u32; 4], u32) {
        if self.team == Team::WORLD {
            return ([self.sizes.1 as u32, (self.sizes.1 >> 32) as u32, 0, 1], self.team.generation());
        }
        let desc = self.desc();
        // SAFETY: the host made the entry, of whichever team; what is read does not change while the team is one.
        let (members, [generation, ..]) =
            unsafe { (arch::load16(desc.cast()), arch::load16(desc.cast::<[u32; 4]>().add(1))) };
        (members, generation)
    }

    /// The heap offset of the team's words.
    #[inline(always)]
    pub(super) fn words(self) -> u64 {
        self.teams.1 + self.sizes.0 * self.team.slot() as u64
    }

    /// The heap offset of the scratch, and the bytes of a set of slots there.
    #[inline(always)]
    pub(super) fn scratch(self) -> (u64, u64) {
        let (offset, bytes) = scratch_of(&self.ctx());
        (self.words() + offset, team_words::slots(bytes))
    }
}
