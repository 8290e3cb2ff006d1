//! Kernel that reads the clock of the device.

use rushmem_device::arch;
use rushmem_device::prelude::*;

/// Stores the device clock in `result`, in nanoseconds.
#[kernel]
pub fn rushmem_clock(ctx: &Ctx, result: Sym<u64>) {
    ctx.local(result.as_slice()).store(0, arch::now_ns());
}
