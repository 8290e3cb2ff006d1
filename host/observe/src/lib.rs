//! Observers of the PEs of a job: the [timeline](trace) and the [communication sanitizer](sanitize).
//!
//! `rushmem-trace` holds the spans of a timeline, and `rushmem-sanitizer` has the engine that finds races. This crate
//! feeds both with events of hosts, streams, kernels and NICs.
//!
//! The crate is internal to `rushmem`: its items may change at any time.
#![deny(unsafe_code)]

pub mod descriptor;
pub mod sanitize;
pub mod trace;
