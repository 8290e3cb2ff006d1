//! NVIDIA's DOCA GPUNetIO device code beside ours, on queues that the software ConnectX executes.
//!
//! Each [`Case`] is one operation. [`ours`] posts it with `rushmem-device`, natively. [`theirs`] posts it on a GPU with
//! NVIDIA's own headers, which are compiled there and are no part of this repository. Each half has its own [`Bed`]:
//! a fresh software ConnectX with two QPs. Both are created in the same order, so that numbers, keys and addresses are
//! equal. [`compare`] compares the send queues byte by byte. [`KNOWN`](compare::KNOWN) lists the allowed differences with
//! their reasons, and `docs/wqe-compat.md` explains them. Any other difference is an error.
//!
//! [`posting`] measures how fast both post, on a GPU and into queues that no NIC executes.

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
