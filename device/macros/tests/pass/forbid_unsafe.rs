//! A kernel crate may forbid `unsafe` and require documentation. The expansion satisfies both.
#![forbid(unsafe_code)]
#![deny(missing_docs, unused)]

use rushmem_device::Ctx;
use rushmem_device::kernel::kernel;

/// Runs as a documented kernel.
#[kernel]
#[inline(never)]
pub fn documented(_ctx: &Ctx, _n: u32) {}

/// Has arguments with names that the expansion might use itself.
#[kernel]
pub fn names(result: &Ctx, body: u32, name: u32, args: u32) -> Result<(), u32> {
    let _ = result;
    if body == name + args { Ok(()) } else { Err(1) }
}

/// Limits the size of its blocks.
#[kernel(max_threads = 512)]
pub fn bounded(_ctx: &Ctx) {}

fn main() {
    assert_eq!(bounded().max_threads(), Some(512));
    assert_eq!(documented(1).max_threads(), None);
    assert_eq!(documented(1).name(), "documented");
    assert_eq!(names(1, 2, 3).args().len(), 3);
}
