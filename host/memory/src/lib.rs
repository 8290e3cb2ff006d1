//! The symmetric memory of a PE, and its mapping into other PEs of the node.
//!
//! - [`Memory`]: the symmetric heap, the segments added to it, and registered buffers. Kernels refer to it by offset.
//! - [`p2p`]: the exchange of heaps between the PEs of a node, which kernels then access by loads and stores.
//!
//! `rushmem` re-exports what applications need. Everything else is internal to the runtime and may change at any time.
#![deny(unsafe_code)]
#![allow(missing_docs, rustdoc::private_intra_doc_links, reason = "internal to the crates of the runtime")]

pub mod p2p;
mod symmetric;

pub use p2p::PeerRoute;
pub use symmetric::{
    ALIGNMENTS, GONE, Located, Memory, Rejection, SEGMENT_ALIGN, Segment, SegmentMap, misuse,
};
