//! The setting `storage`.

use crate::value::Choice;

/// The path of data between files and GPU memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageKind {
    /// cuFile where it accesses GPU memory directly, otherwise plain files.
    Auto,
    /// Reads and writes of the host, which copies to and from GPU memory.
    Plain,
    /// cuFile. It is an error if it cannot be used.
    CuFile,
}

impl Choice for StorageKind {
    const NAMES: &'static [(&'static str, Self)] =
        &[("auto", StorageKind::Auto), ("plain", StorageKind::Plain), ("cufile", StorageKind::CuFile)];
}
