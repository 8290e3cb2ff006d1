//! Everything that differs between a GPU and a CPU: two files with the same functions.

#[cfg_attr(target_arch = "nvptx64", path = "nvptx.rs")]
#[cfg_attr(not(target_arch = "nvptx64"), path = "native.rs")]
mod imp;
#[cfg(not(target_arch = "nvptx64"))]
mod weak_memory;
mod word;

/// The tests of a thread that have failed one after the other. A GPU keeps them for each warp, or for the warps of a large
/// block that share their words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailedTests {
    /// Time that they have waited, in nanoseconds.
    pub waited: u64,
    /// Time of the last one, in nanoseconds; 0 if there is none.
    pub last: u64,
    /// The same time in [`ticks`].
    pub ticks: u64,
}

pub use imp::*;
#[cfg(not(target_arch = "nvptx64"))]
pub use weak_memory::WeakMemory;
pub use word::{Cta, Gpu, Scope, Sys, SysWord};
