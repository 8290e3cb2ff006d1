//! A kernel crate may forbid `unsafe` and require documentation. The expansion satisfies both.
#![forbid(unsafe_code)]
#![deny(missing_docs, unused)]

use rushmem_device::kernel::{KernelArg, kernel};
use rushmem_device::{Ctx, SymSlice};

/// Has a doc comment, which the expansion must keep.
#[kernel]
#[inline(never)]
pub fn documented(_ctx: &Ctx, _n: u32) {}

/// Has parameters with names that the expansion might use for its own variables.
#[kernel]
pub fn names(result: &Ctx, body: u32, name: u32, args: u32) -> Result<(), u32> {
    let _ = result;
    if body == name + args { Ok(()) } else { Err(1) }
}

/// A struct with a generic field, as a kernel argument.
#[derive(Clone, Copy, KernelArg)]
#[repr(C)]
pub struct Table<T: Copy + Send + Sync + 'static> {
    /// Words in symmetric memory.
    pub words: SymSlice<T>,
    /// Whether the words of the table are sorted.
    pub sorted: bool,
}

/// Takes a struct, and a parameter with a name that the expansion might use for its own variables.
#[kernel]
pub fn look(_ctx: &Ctx, rushmem_table: Table<u64>, native: u32) {
    let _ = (rushmem_table.sorted, native);
}

/// Limits the number of threads per block.
#[kernel(max_threads = 512)]
pub fn bounded(_ctx: &Ctx) {}

/// Uses the per-block queues, and limits the number of threads per block.
#[kernel(per_block, max_threads = 64)]
pub fn with_block_queues(_ctx: &Ctx) {}

fn main() {
    assert_eq!(bounded().max_threads(), Some(512));
    assert_eq!(with_block_queues().max_threads(), Some(64));
    assert!(with_block_queues().uses_per_block() && !bounded().uses_per_block());
    assert_eq!(documented(1).max_threads(), None);
    assert_eq!(documented(1).name(), "documented");
    assert_eq!(names(1, 2, 3).args().len(), 3);
}
