//! Order and completion of operations.

use rushmem_device::{Group, Result};
use rushmem_macros::export;

use crate::call::Ctx;

/// Orders the group's earlier puts, signals and atomics to each PE before its later ones.
#[export(thread, warp, block, direct = ctx.orders_directly())]
fn fence(ctx: &Ctx<'_>, group: impl Group) -> Result {
    ctx.fence_group(group)
}

/// Waits until all operations that the group has posted are complete: puts have arrived, gets and fetches have returned.
#[export(thread, warp, block, direct = ctx.orders_directly())]
fn quiet(ctx: &Ctx<'_>, group: impl Group) -> Result {
    ctx.quiet(group)
}
