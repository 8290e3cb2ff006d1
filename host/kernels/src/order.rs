//! Kernel with which the host orders memory, completes operations and synchronises all PEs.

use rushmem_device::prelude::*;

use crate::code::Order;

/// Performs `what`, an [`Order`]. Only [`Order::QuietPe`] and [`Order::Meet`] use `pe`.
///
/// # Errors
/// - [`Error::PeerLost`] if `pe` is lost.
/// - The errors of [`Ctx::fence`], [`Ctx::quiet`], [`Ctx::quiet_pe`], [`Ctx::sync_all`] or [`Ctx::barrier_all`].
#[kernel]
pub fn rushmem_order(ctx: &Ctx, what: u32, pe: u32) -> Result {
    let block = Block::current();
    if what == Order::Fence as u32 {
        if block.leader() { ctx.fence() } else { Ok(()) }
    } else if what == Order::Quiet as u32 {
        ctx.quiet(block)
    } else if what == Order::QuietPe as u32 {
        if block.leader() { ctx.quiet_pe(pe) } else { Ok(()) }
    } else if what == Order::SyncAll as u32 {
        ctx.sync_all(block)
    } else if what == Order::BarrierAll as u32 {
        ctx.barrier_all(block)
    } else if what == Order::Meet as u32 {
        if block.leader() && ctx.is_lost(pe) { Err(Error::PeerLost) } else { Ok(()) }
    } else {
        Ok(())
    }
}
