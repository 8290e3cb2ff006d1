//! NVIDIA's DOCA GPUNetIO device code beside ours, on queues that the software ConnectX executes.
//!
//! Each [`Case`] is one operation. [`ours`] posts it with `rushmem-device`, natively; [`theirs`] posts it on a GPU with
//! NVIDIA's own headers, which are compiled there and are no part of this repository. Either has a [`Bed`] of its own:
//! a fresh software ConnectX with two QPs, brought up in the same order, so that numbers, keys and addresses are equal
//! and the send queues can be compared byte by byte ([`compare`]). What may differ, and why, is a list
//! ([`known`](compare::KNOWN)) that `docs/wqe-compat.md` explains; any other difference is an error.
//!
//! How fast both post, on a GPU and into queues that nobody executes, is for [`posting`].

pub mod bed;
pub mod case;
pub mod compare;
mod error;
pub mod ours;
pub mod posting;
pub mod record;
pub mod theirs;

pub use bed::Bed;
pub use case::Case;
pub use error::{Error, Result};
