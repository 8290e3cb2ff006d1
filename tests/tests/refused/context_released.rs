//! A context cannot be used after its release.

use rushmem_device::prelude::*;

#[kernel]
pub fn use_after_release(ctx: &Ctx) -> Result {
    let own = ctx.exclusive(0)?;
    own.release();
    own.quiet(Thread)
}

#[kernel]
pub fn batch_after_release(ctx: &Ctx) -> Result {
    let own = ctx.exclusive(0)?;
    let batch = own.batch();
    own.release();
    batch.quiet(Thread)
}

#[kernel]
pub fn wait_after_release(ctx: &Ctx, dst: SymSlice<u64>, src: SymSlice<u64>) -> Result {
    let own = ctx.exclusive(0)?;
    let pending = own.put_async(Thread, dst, src, 1)?;
    own.release();
    pending.wait(Thread)
}

/// Would be two owners of one set of queues.
#[kernel]
pub fn release_of_a_part(ctx: &Ctx) -> Result {
    let own = ctx.exclusive(0)?;
    own.queue(0)?.release();
    own.quiet(Thread)
}

fn main() {}
