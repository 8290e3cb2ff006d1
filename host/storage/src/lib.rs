//! Moves bytes between files and the memory of a PE, and defines the format of checkpoints.
//!
//! - [`read_file`] and [`write_file`]: copies between a file and a [`Span`] of memory.
//! - [`checkpoint`]: the parts of a checkpoint, one for each PE, and the manifest that makes them one.
//!
//! The crate knows nothing about jobs: `rushmem` calls it on each PE, and makes the PEs agree between the steps.
#![deny(unsafe_code)]
#![allow(missing_docs, rustdoc::private_intra_doc_links, reason = "internal to the crates of the runtime")]

pub mod checkpoint;
mod chunks;
mod copy;
mod files;
mod format;
mod frame;
mod span;

pub use chunks::Stop;
pub use copy::{read_file, write_file};
pub use files::{Disk, Files};
pub use format::check_any_bytes;
pub use span::Span;

#[cfg(test)]
mod tests;
