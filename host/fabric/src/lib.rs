//! The fabric of a job: NICs, and the queues through which kernels use them.
//!
//! - [`provider`]: a common interface to RDMA devices and the software ConnectX.
//! - [`nics`]: selection of NICs, and their assignment to PEs.
//! - [`queues`]: memory registrations, QPs and CQs, their connections, and the service thread that creates them on
//!   demand.
//!
//! This crate is internal to the runtime and may change at any time.
#![deny(unsafe_code)]
#![allow(missing_docs, rustdoc::private_intra_doc_links, reason = "internal to the crates of the runtime")]

pub mod nics;
pub mod provider;
pub mod queues;

pub use queues::QpInfo;
