//! Order and completion of operations.

use rushmem_device::{Ctx, Group, Result};
use rushmem_macros::export;

/// Orders the group's earlier puts, signals and atomics to each PE before its later ones.
#[export(thread, warp, block)]
fn fence(ctx: &Ctx<'_>, group: impl Group) -> Result {
    ctx.fence_group(group)
}

/// Waits until all operations that the group has posted are complete: puts have arrived, gets and fetches have returned.
#[export(thread, warp, block)]
fn quiet(ctx: &Ctx<'_>, group: impl Group) -> Result {
    ctx.quiet(group)
}
