//! Lost PEs
//!
//! Calls of jobs with live membership (the setting `membership`), which continue without lost PEs. docs/membership.md
//! describes what holds after a loss.
#![allow(unsafe_code, reason = "exports functions, and writes results for the caller")]
#![allow(clippy::missing_safety_doc, reason = "the introduction of the header states the rules for pointers")]

use super::peer_of;
use crate::error::{number, status};
use crate::handle;
use crate::pointers::Out;
use crate::types::{rushmem_pe, rushmem_team};

/// Agrees with all other living PEs on who is alive, and creates a team of these PEs, in the order of their numbers.
/// Collective over the living PEs.
///
/// Without a loss since the last call, returns the team of that call, at first `RUSHMEM_TEAM_WORLD`. After a loss,
/// `rushmem_host_sync`, `rushmem_malloc` and the like fail with `RUSHMEM_STATUS_PEER_LOST` until this call; from then on,
/// they are calls of the living PEs. Teams with lost members stay unusable.
///
/// A reduction or another call of a team may succeed on some members and fail on others when one is lost. If
/// `rushmem_host_sync` succeeds after it, it has succeeded on all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_shrink(pe: *mut rushmem_pe, team: *mut rushmem_team) -> i32 {
    status(|| {
        const CALL: &str = "rushmem_shrink";
        let handle = handle::get(CALL, pe)?;
        // SAFETY: promised by the caller.
        let out = unsafe { Out::new(CALL, "team", team) }?;
        out.write(handle.pe().shrink()?.to_bits());
        Ok(())
    })
}

/// Agrees with all other living PEs on who is alive, as `rushmem_shrink` does, and takes in the processes that wait to replace lost
/// PEs. Stores the team of the living PEs in `*team`. Collective over them.
///
/// Always communicates, and stores the same team as the last call if nothing has changed. A lost PE is replaced at the earliest
/// by the call after the one that leaves it out; until then, no kernel may communicate with the lost PE or wait for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_grow(pe: *mut rushmem_pe, team: *mut rushmem_team) -> i32 {
    status(|| {
        const CALL: &str = "rushmem_grow";
        let handle = handle::get(CALL, pe)?;
        // SAFETY: promised by the caller.
        let out = unsafe { Out::new(CALL, "team", team) }?;
        out.write(handle.pe().grow()?.to_bits());
        Ok(())
    })
}

/// Returns 1 if this process replaces a lost PE, 0 if not, or -1 if `pe` is invalid.
///
/// Its first allocations return the objects of the other PEs, in the order of their allocation, and its first `rushmem_grow` the
/// team of the call by which they have taken it in.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_is_replacement(pe: *mut rushmem_pe) -> i32 {
    number(|| Ok(handle::get("rushmem_is_replacement", pe)?.pe().is_replacement().into()))
}

/// Returns the epoch in which the current processes of this PE and of `peer` met: 1, unless one of them replaces a lost PE. Equal on
/// both. Returns 0 with fixed membership, and -1 if an argument is invalid.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_together_since(pe: *mut rushmem_pe, peer: i32) -> i32 {
    number(|| {
        const CALL: &str = "rushmem_together_since";
        let handle = handle::get(CALL, pe)?;
        let peer = peer_of(CALL, handle.pe(), peer)?;
        Ok(handle.pe().together_since(peer).unwrap_or(0) as i32)
    })
}

/// Returns 1 if PE `peer` was lost, 0 if not, or -1 if an argument is invalid. Always 0 with fixed membership.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_is_lost(pe: *mut rushmem_pe, peer: i32) -> i32 {
    number(|| {
        const CALL: &str = "rushmem_is_lost";
        let handle = handle::get(CALL, pe)?;
        Ok(handle.pe().is_lost(peer_of(CALL, handle.pe(), peer)?).into())
    })
}

/// Returns the number of this PE's epoch: 1 at the start, or 2 with vacant PEs, and one more after each `rushmem_shrink` that
/// follows a loss and each `rushmem_grow`.
///
/// PEs with the same number have the same list of living PEs. Returns 0 with fixed membership, and -1 if `pe` is invalid.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_epoch(pe: *mut rushmem_pe) -> i32 {
    number(|| Ok(handle::get("rushmem_epoch", pe)?.pe().epoch().unwrap_or(0) as i32))
}
