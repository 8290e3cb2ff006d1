//! Builds a kernel crate into checked PTX.
