//! OpenSHMEM names of ordering, completion, barriers and locks.

use crate::{Ctx, Group, Lock, Result, Sharing, Sym, View};

names! {
    shmem_fence = fence [] () -> Result;
    shmem_quiet = quiet [G: Group] (group: G) -> Result;
    shmem_pe_quiet = quiet_pes [G: Group] (group: G, pes: View<u32>) -> Result;
    shmem_sync_all = sync_all [G: Group] (group: G) -> Result;
    shmem_barrier_all = barrier_all [G: Group] (group: G) -> Result;
    shmem_set_lock = set_lock [] (lock: Sym<Lock>) -> Result;
    shmem_clear_lock = clear_lock [] (lock: Sym<Lock>) -> Result;
}

/// Calls [`Ctx::test_lock`]. Returns 0 if this PE now holds the lock, and 1 if another PE does.
///
/// # Errors
/// - The errors of [`Ctx::test_lock`].
#[inline(always)]
#[track_caller]
pub fn shmem_test_lock<S: Sharing>(ctx: &Ctx<S>, lock: Sym<Lock>) -> Result<i32> {
    Ok(!ctx.test_lock(lock)? as i32)
}
