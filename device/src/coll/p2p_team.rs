//! Teams of P2P peers, with the fields of a context that their collective calls need.

#![allow(unsafe_code, reason = "reads the team table of the launch")]

use bytemuck::Zeroable;

use super::args::{Span, call_hash, scratch_of};
use crate::abi::team_words::{self, MAX_CHANNELS};
use crate::abi::{CtxParts, DevAddr, TeamDesc, ctx_flags, team_flags};
use crate::arch;
use crate::ctx::Ctx;
use crate::group::Group;
use crate::sharing::Sharing;
use crate::team::Team;
use crate::wait::Needs;

/// Maximum number of PEs in a job whose P2P teams use these algorithms. Larger jobs use those for NIC peers.
const MAX_PES: u32 = 1 << 15;

/// A team of P2P peers, and the fields of the context that its calls read.
///
/// The fields are kernel parameters. [`outlined`](crate::outlined) passes them to functions in registers.
#[derive(Clone, Copy)]
pub(super) struct P2pTeam {
    /// Address of this PE's heap.
    pub(super) heap: u64,
    pub(super) heap_bytes: u64,
    /// Address at which the heap of PE 0 is mapped, or would be. The heaps of successive PEs are `p2p_stride` bytes
    /// apart.
    pub(super) p2p_base: u64,
    pub(super) p2p_stride: u64,
    pub(super) segments: u64,
    pub(super) state: u64,
    /// Address of the table of teams.
    pub(super) teams: u64,
    /// Heap offset of the words of team slot 0. The words of successive slots are `team_bytes` bytes apart.
    pub(super) team_words: u64,
    pub(super) team_bytes: u64,
    /// Number of PEs in the upper half, this PE's own number in the lower half.
    pub(super) pes: u64,
    pub(super) team: Team,
}

impl P2pTeam {
    /// Returns the team if the job has no NIC peers, and the handle refers to a team slot. Reads only kernel
    /// parameters, so call sites can test this before they call a function. All members get the same answer, whatever
    /// segments they had registered at their launch.
    #[inline(always)]
    pub(super) fn of<G: Group, S: Sharing>(group: G, ctx: &Ctx<S>, team: Team) -> Option<Self> {
        if ctx.p2p_heaps() { Self::by_slot(group, ctx, team) } else { None }
    }

    /// Returns the team like [`P2pTeam::of`], provided that `span` is in the heap. `span` is the range that other
    /// members access.
    #[inline(always)]
    pub(super) fn to<G: Group, S: Sharing>(group: G, ctx: &Ctx<S>, team: Team, span: Span) -> Option<Self> {
        if in_heap(ctx, span) { Self::of(group, ctx, team) } else { None }
    }

    /// Returns the team if the job has NIC peers but the team has none, and `span` is in the heap. Reads the table of
    /// teams, so this test is left to the outlined functions.
    #[inline(always)]
    pub(super) fn in_mixed_job<G: Group, S: Sharing>(
        group: G,
        ctx: &Ctx<S>,
        team: Team,
        span: Span,
    ) -> Option<Self> {
        let p = ctx.parts_ref();
        if ctx.p2p_heaps() || p.flags & ctx_flags::NODE_ATOMICS == 0 || !in_heap(ctx, span) {
            return None;
        }
        Self::by_slot(group, ctx, team).filter(|team| is_p2p(team.desc()))
    }

    /// Returns the team in the slot of the handle, if the job has such a slot.
    #[inline(always)]
    fn by_slot<G: Group, S: Sharing>(group: G, ctx: &Ctx<S>, team: Team) -> Option<Self> {
        let p = ctx.parts_ref();
        if team.slot() >= p.team_slots || p.n_pes > MAX_PES {
            return None;
        }
        if !ctx.p2p_all() {
            // Other members may wait for these postings.
            ctx.announce_batches();
        }
        // Unchanged kernel parameters cost no registers.
        let parameters = Self {
            heap: p.heap.0,
            heap_bytes: p.heap_bytes,
            p2p_base: p.p2p_base.0,
            p2p_stride: p.p2p_stride,
            segments: p.segments.0,
            state: p.state.0,
            teams: p.teams.0,
            team_words: p.team_words,
            team_bytes: p.team_bytes,
            pes: (p.n_pes as u64) << 32 | p.pe as u64,
            team,
        };
        Some(if group.channel() == 0 { parameters } else { parameters.in_channel(group) })
    }

    /// Returns the team with the words of another channel, which then look like those of channel 0 in another table of
    /// teams.
    #[inline(always)]
    fn in_channel<G: Group>(self, group: G) -> Self {
        let teams = self.teams + group.channel() as u64 * size_of::<TeamDesc>() as u64;
        let desc = Self { teams, ..self }.desc();
        let (words, team_bytes) = match group.channel_words() {
            Some(told) => told,
            // SAFETY: the host made the entry, of whichever team.
            None => unsafe { (arch::read(&raw const (*desc).words), arch::read(&raw const (*desc).bytes)) },
        };
        let team_words = words.wrapping_sub(team_bytes.wrapping_mul(self.team.slot() as u64));
        Self { teams, team_words, team_bytes, ..self }
    }

    #[inline(always)]
    pub(super) fn pe(self) -> u32 {
        self.pes as u32
    }

    #[inline(always)]
    pub(super) fn n_pes(self) -> u32 {
        (self.pes >> 32) as u32
    }

    /// Returns a context with the fields that P2P collectives read; all others are zero.
    #[inline(always)]
    pub(super) fn ctx<'k>(self) -> Ctx<'k> {
        let parts = CtxParts {
            state: self.state(),
            heap: DevAddr(self.heap),
            heap_bytes: self.heap_bytes,
            segments: DevAddr(self.segments),
            p2p_base: DevAddr(self.p2p_base),
            p2p_stride: self.p2p_stride,
            pe: self.pe(),
            n_pes: self.n_pes(),
            ..Zeroable::zeroed()
        };
        // SAFETY: `of` copied these from a context, and these calls read no other field.
        unsafe { Ctx::from_parts(parts) }
    }

    #[inline(always)]
    pub(super) fn state(self) -> DevAddr {
        DevAddr(self.state)
    }

    /// Returns the call hash of a collective call of this team, or of a step of it.
    #[inline(always)]
    pub(super) fn call_hash<G: Group>(self, group: G, kind: u32, arguments: [u64; 4]) -> u32 {
        call_hash(group, self.team.generation(), kind, arguments)
    }

    /// Returns whether both spans are in the heap and do not overlap, unless `src` starts at `may`. This is a
    /// branch-free test for the common case of [`check_spans`](super::args::check_spans).
    #[inline(always)]
    pub(super) fn are_plain(self, dst: Span, src: Span, may: u64) -> bool {
        let all = self.heap_bytes;
        let inside = |(offset, bytes): Span| (offset <= all) & (bytes <= all.wrapping_sub(offset));
        let (dst_end, src_end) = (dst.0.wrapping_add(dst.1), src.0.wrapping_add(src.1));
        inside(dst) & inside(src) & ((dst_end <= src.0) | (src_end <= dst.0) | (src.0 == may))
    }

    /// Returns the team's table entry. It exists, because [`P2pTeam::of`] has checked the slot.
    #[inline(always)]
    pub(super) fn desc(self) -> *mut TeamDesc {
        DevAddr(self.teams).ptr::<TeamDesc>().wrapping_add(self.team.slot() as usize * MAX_CHANNELS as usize)
    }

    /// Returns what the waits of a call need: all members.
    #[inline(always)]
    pub(super) fn needs(self) -> Needs {
        Needs::members(self.team.slot())
    }

    /// Returns `[my_pe, n_pes, start, stride]` of the team's table entry, and its generation. Reads no memory for the
    /// world team.
    #[inline(always)]
    pub(super) fn entry(self) -> ([u32; 4], u32) {
        if self.team == Team::WORLD {
            return ([self.pe(), self.n_pes(), 0, 1], self.team.generation());
        }
        let desc = self.desc();
        // SAFETY: the host made the entry. These fields do not change while the team exists.
        let (members, [generation, ..]) =
            unsafe { (arch::load16(desc.cast()), arch::load16(desc.cast::<[u32; 4]>().add(1))) };
        (members, generation)
    }

    /// Returns the heap offset of the team's words.
    #[inline(always)]
    pub(super) fn words(self) -> u64 {
        self.team_words.wrapping_add(self.team_bytes.wrapping_mul(self.team.slot() as u64))
    }

    /// Returns the heap offset of the scratch of a team of `n`, and the length of one set of LL slots in it, in bytes.
    #[inline(always)]
    pub(super) fn scratch(self, n: u32) -> (u64, u64) {
        let (offset, bytes) = scratch_of(self.team_bytes, n);
        (self.words() + offset, team_words::slots(bytes, n))
    }
}

#[inline(always)]
fn in_heap<S: Sharing>(ctx: &Ctx<S>, (offset, bytes): Span) -> bool {
    offset.saturating_add(bytes) <= ctx.parts_ref().heap_bytes
}

/// Returns whether all members of the team with this entry are P2P peers of each other.
#[inline(always)]
fn is_p2p(desc: *mut TeamDesc) -> bool {
    // SAFETY: the host made the table. The flags do not change while the team exists.
    unsafe { arch::read(&raw const (*desc).flags) & team_flags::P2P != 0 }
}
