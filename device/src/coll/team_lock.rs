//! The team lock: one group of this PE uses a team at a time.
//!
//! A single word holds the lock bit, the failed bit and the number of check-ins ([`team_word`]). A group locks the team
//! by setting the bit and unlocks it by storing the word. Only the lock holder changes the number.
//!
//! Neither step orders memory. A call starts and finishes with a group barrier, and messages to other members have
//! their own ordering. Calls that use further counters fence for those themselves.

#![allow(unsafe_code, reason = "updates the words of a team")]

use crate::abi::{DevAddr, TeamDesc, team_word};
use crate::arch::{Gpu, Scope};
use crate::error::{Detail, Error, Result, Site, record};
use crate::team::Team;
use crate::wait::{Needs, lost};

/// Tries to lock the team. Returns the previous lock word, which the caller passes to [`check_locked`].
///
/// Locking takes two steps, so the caller can overlap the latency of the atomic with other work.
///
/// # Safety
/// `desc` leads to an entry of the team table that the host made, of any team, and stays valid while the kernel runs.
#[inline(always)]
pub(super) unsafe fn try_lock(desc: *mut TeamDesc) -> u64 {
    // SAFETY: `desc` leads to a team entry of the host, by this function's contract. All accesses to its lock word
    // are atomic.
    unsafe { Gpu::fetch_or_relaxed(&raw mut (*desc).word.word, team_word::BUSY) }
}

/// Undoes a [`try_lock`] that returned `word`.
///
/// # Safety
/// The same as for [`try_lock`]. `word` is what it has returned to this thread.
#[cold]
pub(super) unsafe fn restore(desc: *mut TeamDesc, word: u64) {
    if word & team_word::BUSY == 0 {
        // SAFETY: `desc` leads to a team entry, by this function's contract. This thread set the bit, so it may clear it.
        unsafe { Gpu::store_relaxed(&raw mut (*desc).word.word, word) }
    }
}

/// Returns the number of the last check-in if [`try_lock`], which returned `word`, has locked the team. `generation` is
/// that of the entry; the generation of a stale team handle differs.
///
/// # Safety
/// The same as for [`try_lock`]. `word` is what it has returned to this thread.
#[inline(always)]
#[track_caller]
pub(super) unsafe fn check_locked(
    state: DevAddr,
    desc: *mut TeamDesc,
    generation: u32,
    word: u64,
    team: Team,
) -> Result<u64> {
    let (current, free) = (generation == team.generation() && generation != 0, word & team_word::BUSY == 0);
    if current && free && word & team_word::FAILED == 0 {
        return Ok(word >> team_word::SHIFT);
    }
    // SAFETY: `desc` leads to a team entry of the host, as `lock_error` demands, and `word` is what this thread's
    // `try_lock` returned.
    Err(unsafe { lock_error(state, desc, (current, free), word, team, core::panic::Location::caller()) })
}

/// Records why [`try_lock`], which returned `word`, could not lock the team: the entry is not `current`, another group
/// holds the lock (not `free`), or the team has failed. Releases the lock if this thread took it.
///
/// # Safety
/// The same as for [`check_locked`].
#[cold]
#[inline(never)]
unsafe fn lock_error(
    state: DevAddr,
    desc: *mut TeamDesc,
    (current, free): (bool, bool),
    word: u64,
    team: Team,
    site: Site,
) -> Error {
    // SAFETY: `desc` leads to a team entry of the host, by this function's contract, and both words are only accessed
    // atomically. `word` is what this thread's `try_lock` returned.
    let failed = unsafe {
        restore(desc, word);
        // Pairs with the fence in `failed`, so the error code is visible once the failed bit is.
        Gpu::fence();
        Gpu::load_relaxed(&raw const (*desc).counters.failed)
    };
    let (error, found, wanted) = if !current {
        (Error::BadTeam, team.slot() as u64, team.generation() as u64)
    } else if !free {
        (Error::TeamBusy, Detail::NONE.found, Detail::NONE.wanted)
    } else if Needs::members(team.slot()).is_lost(state) {
        return lost(state, Needs::members(team.slot()), site);
    } else {
        (Error::TeamFailed, failed, Detail::NONE.wanted)
    };
    record(state, error, Detail { found, wanted, ..Detail::NONE }, site)
}

/// Unlocks the team after check-in `number`, and marks it as failed if `result` leaves the members' counters different.
///
/// # Safety
/// The same as for [`try_lock`]. The group of this thread holds the lock, and all its threads have arrived.
#[inline(always)]
pub(super) unsafe fn unlock(desc: *mut TeamDesc, number: u64, result: Result) {
    let failed = match result {
        Ok(()) => 0,
        // SAFETY: this thread's group holds the lock, by this function's contract, as `failed` demands.
        Err(error) => unsafe { failed(desc, error) },
    };
    // SAFETY: the group holds the lock, by this function's contract, so no other thread stores to the word. `desc`
    // leads to its team entry.
    unsafe { Gpu::store_relaxed(&raw mut (*desc).word.word, number << team_word::SHIFT | failed) }
}

/// Returns the lock word's failed bit if a call with this error leaves the members' counters different, and otherwise
/// 0.
///
/// # Safety
/// The same as for [`unlock`].
#[cold]
#[inline(never)]
unsafe fn failed(desc: *mut TeamDesc, error: Error) -> u64 {
    use Error::{BadPe, BadReduction, LengthMismatch, OutOfRange, Overlap, TeamBusy, TeamMismatch};
    match error {
        // These errors are found by a check-in, so all members know of them, or, like `TeamBusy`, before anything has
        // changed.
        BadPe | BadReduction | LengthMismatch | OutOfRange | Overlap | TeamMismatch | TeamBusy => 0,
        error => {
            // SAFETY: the group holds the lock, by this function's contract, so no other thread stores to the
            // counter. `desc` leads to its team entry.
            unsafe { Gpu::store_relaxed(&raw mut (*desc).counters.failed, error as u64) };
            Gpu::fence();
            team_word::FAILED
        }
    }
}
