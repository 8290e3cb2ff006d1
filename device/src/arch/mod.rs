//! Everything that differs between a GPU and a CPU: two files with the same functions.

#[cfg_attr(target_arch = "nvptx64", path = "nvptx.rs")]
#[cfg_attr(not(target_arch = "nvptx64"), path = "native.rs")]
mod imp;
#[cfg(not(target_arch = "nvptx64"))]
mod weak_memory;
mod word;

pub use imp::*;
#[cfg(not(target_arch = "nvptx64"))]
pub use weak_memory::WeakMemory;
pub use word::{Cta, Gpu, Scope, Sys, SysWord};
