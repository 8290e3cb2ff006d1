//! The memory of a PE that kernels refer to by offset, and the heaps of peers that kernels access by loads and stores.
//!
//! - [`Memory`]: the symmetric heap, the segments added to it, and registered buffers.
//! - [`p2p`]: the exchange of heaps between the PEs of a node.
//!
//! `rushmem` re-exports what applications need. Everything else is internal to the runtime and may change at any time.
#![deny(unsafe_code)]
#![allow(missing_docs, rustdoc::private_intra_doc_links, reason = "internal to the crates of the runtime")]

pub mod p2p;
mod symmetric;

pub use p2p::PeerRoute;
pub use symmetric::{ALIGNMENTS, GONE, Memory, Rejection, SEGMENT_ALIGN, Segment, SegmentMap, misuse};
