//! GPU-initiated networking: runtime, symmetric heap, NIC bring-up and kernel launch.

pub mod bootstrap;
pub mod config;
pub mod native;
