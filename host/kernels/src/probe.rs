//! Kernel that checks whether the operations of a NIC work.

use rushmem_device::prelude::*;

/// Performs a put, a fetching atomic and a non-fetching atomic on `pe`, and completes them.
///
/// Word 0 is put to word 1, to which the fetching atomic then adds `value`; its result is stored in word 2. Word 3 is
/// set to `value`.
///
/// # Errors
/// - The errors of [`Ctx::put`], [`Ctx::atomic_fetch_add`] and [`Ctx::quiet`].
#[kernel]
pub fn rushmem_probe(ctx: &Ctx, words: SymSlice<u64>, value: u64, pe: u32) -> Result {
    if Thread::index() != 0 {
        return Ok(());
    }
    ctx.put(Thread, words.slice(1..2), words.slice(0..1), pe)?;
    let found = ctx.atomic_fetch_add(words.at(1), value, pe)?;
    ctx.local(words).store(2, found);
    ctx.atomic_set(words.at(3), value, pe)?;
    ctx.quiet(Thread)
}
