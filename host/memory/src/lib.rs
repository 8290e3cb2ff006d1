//! The memory of a PE that kernels name by offsets, and the heaps of peers that kernels access by loads and stores.
//!
//! - [`Memory`]: the symmetric heap, its later segments, and registered buffers.
//! - [`p2p`]: the exchange of heaps between the PEs of a node.
//!
//! `rushmem` re-exports what applications need. The rest is internal to the crates of the runtime and may change at any time.
#![deny(unsafe_code)]
#![expect(missing_docs, reason = "internal to the crates of the runtime")]

pub mod p2p;
mod symmetric;

pub use p2p::PeerRoute;
pub use symmetric::{ALIGNMENTS, GONE, Memory, Rejection, SEGMENT_ALIGN, Segment, SegmentMap, misuse};
