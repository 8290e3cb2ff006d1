//! The fabric of a job: NICs, and the queues with which kernels use them.
//!
//! - [`provider`]: one interface to RDMA devices and to the software ConnectX.
//! - [`nics`]: the choice between them, and the assignment of NICs to PEs.
//! - [`queues`]: memory registrations, QPs and CQs, their connections, and the service thread that creates them on demand.
//!
//! This crate is internal to the crates of the runtime and may change at any time.
#![deny(unsafe_code)]
#![expect(missing_docs, reason = "internal to the crates of the runtime")]

pub mod nics;
pub mod provider;
pub mod queues;

pub use queues::QpInfo;
