//! Compares NVIDIA's DOCA GPUNetIO device code with ours, on queues that the software ConnectX executes.
//!
//! Each [`Case`] is one operation. [`ours`] posts it with `rushmem-device`, natively. [`theirs`] posts it on a GPU with
//! NVIDIA's headers, which are compiled at run time and are not part of this repository. Each half has its own [`Bed`]:
//! a fresh software ConnectX with two QPs, created in the same order, so QPNs, keys and addresses agree. [`compare`]
//! compares the send queues byte by byte. [`KNOWN`](compare::KNOWN) lists the accepted differences with their reasons,
//! and `docs/wqe-compat.md` explains them. Any other difference is an error.
//!
//! [`posting`] measures how fast both post on a GPU, into queues that no NIC executes.

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
