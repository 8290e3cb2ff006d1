//! Everything that differs between a GPU and a CPU: two files with the same functions.

#[cfg_attr(target_arch = "nvptx64", path = "nvptx.rs")]
#[cfg_attr(not(target_arch = "nvptx64"), path = "native.rs")]
mod imp;
#[cfg(not(target_arch = "nvptx64"))]
mod weak_memory;
mod word;

/// Consecutive failed tests of a thread. A GPU keeps them per warp; in large blocks, several warps share one copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailedTests {
    /// Time spent waiting in them, in nanoseconds.
    pub waited: u64,
    /// Time of the last one, in nanoseconds; 0 if there is none.
    pub last: u64,
    /// The same time, in [`ticks`].
    pub ticks: u64,
}

pub use imp::*;
#[cfg(not(target_arch = "nvptx64"))]
pub use weak_memory::WeakMemory;
pub use word::{Cta, Gpu, Scope, Sys, SysWord};
