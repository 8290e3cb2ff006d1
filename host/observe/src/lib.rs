//! Feeds the events of hosts, streams, kernels and NICs to the [timeline](trace) and the
//! [communication sanitizer](sanitize) of a job.
//!
//! `rushmem-trace` stores the spans of the timeline, and `rushmem-sanitizer` contains the engine that detects races.
//!
//! The crate is internal to `rushmem`: its items may change at any time.
#![deny(unsafe_code)]

pub mod descriptor;
pub mod sanitize;
pub mod trace;
