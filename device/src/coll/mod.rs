//! Collective calls: synchronization, data movement and reductions of teams.
//!
//! One group of each member calls: a thread, a warp or a block. Broadcasts, `fcollect`, `alltoall` and reductions can also be
//! called by all blocks of a kernel: see [`WholeGrid`](crate::WholeGrid) and [`group`]. The members make the same collective calls of a team in
//! the same order, with the same arguments. Only sources that other members do not read may differ. Different groups may
//! use different teams at the same time.
//!
//! Every call begins with a check-in: the members prove to each other that they make the same call. So no member writes
//! to a destination before its owner has called. If the calls differ, all members get an error and the team stays usable;
//! the destinations then hold arbitrary data. [`Ctx::alltoall_ll`](crate::Ctx::alltoall_ll) is the only call without a
//! check-in.
//!
//! When a call returns, its result is complete, and sources and destinations may be reused. Zero elements are legal, and
//! so are teams of one.
//!
//! [`args`] holds the arguments, their checks and their hash. Two implementations share it: [`p2p`] for teams that reach
//! all members by loads and stores, [`call`] with [`movement`], [`reduce`] and [`strided`] for teams with NIC peers.
//!
//! | call | writes | may overlap |
//! |---|---|---|
//! | `broadcast` | every member's destination, including the root's | the same memory |
//! | `fcollect`, `collect` | every member's destination | the source may be this member's part of the destination |
//! | `alltoall`, `alltoalls`, `alltoallv` | every member's destination | nothing |
//! | `reduce`, `sum_scan` | every member's destination | the same memory |
//! | `reduce_scatter` | every member's destination | the destination may be this member's part of the source |

mod movement;
mod reduce;
mod sync;

mod alltoall_ll;
mod args;
mod call;
mod check_in;
mod element;
mod fold;
mod grid;
mod group;
mod ll;
mod nic_check_in;
mod nodes;
mod p2p;
mod p2p_team;
mod spread;
mod strided;
mod team_lock;

pub use args::is_defined_for;
pub use element::{Element, ElementKind, Reduce, Scan, ValueIndex};
pub use group::{ChannelWords, CollectiveGroup, WholeGrid};
pub use p2p::SmallCall;
pub use strided::Parts;
