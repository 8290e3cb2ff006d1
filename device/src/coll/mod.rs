//! Collective calls: synchronisation, data movement and reductions of teams.
//!
//! One group of each member of a team calls: a thread, a warp or a block. The members must make the same collective
//! calls of a team in the same order; different teams may be used by different groups at the same time, and one team
//! again at once. All of them call with the same arguments, but for sources that only they read.
//!
//! Every call has a meeting, in which the members prove to each other that they mean the same call (see
//! [`call`], and [`p2p`] where nothing goes through a NIC). So nobody writes to a destination of another's before that one has
//! come, and a member that differs is an error of all of them, which leaves the team as usable as before; the destinations hold
//! anything then. The result is complete, and sources and destinations may be reused, when a call returns. Zero elements are
//! legal, and so is a team of one. [`Ctx::alltoall_ll`](crate::Ctx::alltoall_ll) alone does without meetings.
//!
//! | call | writes | may overlap |
//! |---|---|---|
//! | `broadcast` | every member's destination, the root's too | the same memory |
//! | `fcollect`, `collect` | every member's destination | the source may be this member's part of the destination |
//! | `alltoall`, `alltoalls`, `alltoallv` | every member's destination | nothing |
//! | `reduce`, `sum_scan` | every member's destination | the same memory |
//! | `reduce_scatter` | every member's destination | the destination may be this member's part of the source |

mod alltoall_ll;
mod call;
mod element;
mod fold;
mod grid;
mod half;
mod ll;
mod meeting;
mod p2p;
mod p2p_team;
mod reduce;
mod spread;
mod strided;
mod sync;
mod team_lock;

pub use element::{Element, ElementKind, Located, Reduce, Scan};
pub use half::{Bf16, F16};
pub use strided::Parts;

/// The calls, as their members tell each other.
mod kind {
    pub(super) const SYNC: u32 = 1;
    pub(super) const BROADCAST: u32 = 2;
    pub(super) const FCOLLECT: u32 = 3;
    pub(super) const COLLECT: u32 = 4;
    pub(super) const ALLTOALL: u32 = 5;
    pub(super) const ALLTOALLS: u32 = 6;
    pub(super) const ALLTOALLV: u32 = 7;
    pub(super) const REDUCE: u32 = 8;
    pub(super) const REDUCE_SCATTER: u32 = 9;
    pub(super) const SCAN: u32 = 10;
    /// A step of a call, after its first meeting.
    pub(super) const STEP: u32 = 11;
}
