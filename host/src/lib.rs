//! GPU-initiated networking: runtime, symmetric heap, NIC bring-up and kernel launch.

pub mod cuda;
pub mod native;
