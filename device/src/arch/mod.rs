//! Primitives that differ between a GPU and a CPU. `nvptx` and `native` implement the same functions.

#[cfg_attr(target_arch = "nvptx64", path = "nvptx.rs")]
#[cfg_attr(not(target_arch = "nvptx64"), path = "native.rs")]
mod imp;
#[cfg(not(target_arch = "nvptx64"))]
mod weak_memory;
mod word;

/// Statistics of a thread's consecutive failed tests, such as `test` calls in a loop, by which such a loop times out. A
/// GPU keeps them per warp; in large blocks, several warps share one copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailedTests {
    /// Time for which the thread has repeated the test, in nanoseconds.
    pub waited: u64,
    /// Time of the last failed test, in nanoseconds; 0 if there is none.
    pub last: u64,
    /// Time of the last failed test, in [`ticks`].
    pub ticks: u64,
}

pub use imp::*;
#[cfg(not(target_arch = "nvptx64"))]
pub use weak_memory::WeakMemory;
pub use word::{Cta, Gpu, Scope, Sys, SysWord};
