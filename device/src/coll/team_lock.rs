//! Who uses a team on this PE: one group at a time.
//!
//! One word of the team says whether a group has it, whether its members are out of step, and how often they have met
//! ([`team_word`]). A group takes the team by setting a bit, and gives it back by storing the word anew: only the group that
//! has the team changes its number. Neither orders anything: a group that has the team begins and ends
//! with a barrier, what it tells other members has an order of its own, and the calls that count more than meetings see to
//! the rest themselves.
#![allow(unsafe_code, reason = "updates the words of a team")]

use crate::abi::{DevAddr, TeamDesc, team_word};
use crate::arch::{Gpu, Scope};
use crate::error::{Detail, Error, Result, Site, record};
use crate::team::Team;

/// Asks for the team: what its word was. [`check_locked`] says what that means. Two steps, since an answer takes its time.
///
/// # Safety
/// The host made the entry, whichever team it is of.
#[inline(always)]
pub(super) unsafe fn try_lock(desc: *mut TeamDesc) -> u64 {
    // SAFETY: the caller's promise; only atomics touch the word.
    unsafe { Gpu::fetch_or_relaxed(&raw mut (*desc).word.word, team_word::BUSY) }
}

/// The number of the team's last meeting, if the group that found `word` has it now. The entry is of the team with this
/// `generation`.
///
/// # Safety
/// As [`try_lock`], which this thread has called.
#[inline(always)]
#[track_caller]
pub(super) unsafe fn check_locked(
    state: DevAddr,
    desc: *mut TeamDesc,
    generation: u32,
    word: u64,
    team: Team,
) -> Result<u64> {
    let (right, free) = (generation == team.generation() && generation != 0, word & team_word::BUSY == 0);
    if right && free && word & team_word::FAILED == 0 {
        return Ok(word >> team_word::SHIFT);
    }
    // SAFETY: the caller's promise.
    Err(unsafe { not_locked(state, desc, (right, free), word, team, core::panic::Location::caller()) })
}

/// Why the group that found `word` does not have the team, if the entry is the `right` one, and the team was `free`.
///
/// # Safety
/// As [`check_locked`].
#[cold]
#[inline(never)]
unsafe fn not_locked(
    state: DevAddr,
    desc: *mut TeamDesc,
    (right, free): (bool, bool),
    word: u64,
    team: Team,
    site: Site,
) -> Error {
    // SAFETY: the caller's promise; a group that has set the bit, and does not stay, takes it back.
    let failed = unsafe {
        if free {
            Gpu::store_relaxed(&raw mut (*desc).word.word, word);
        }
        Gpu::fence();
        Gpu::load_relaxed(&raw const (*desc).counters.failed)
    };
    let (error, found, wanted) = if !right {
        (Error::BadTeam, team.slot() as u64, team.generation() as u64)
    } else if !free {
        (Error::TeamBusy, Detail::NONE.found, Detail::NONE.wanted)
    } else {
        (Error::TeamFailed, failed, Detail::NONE.wanted)
    };
    record(state, error, Detail { found, wanted, ..Detail::NONE }, site)
}

/// Gives the team back after meeting number `number`; of no use if the members are out of step.
///
/// # Safety
/// The group of this thread has the team, and has come here.
#[inline(always)]
pub(super) unsafe fn unlock(desc: *mut TeamDesc, number: u64, result: Result) {
    let failed = match result {
        Ok(()) => 0,
        // SAFETY: the caller's promise.
        Err(error) => unsafe { failed(desc, error) },
    };
    // SAFETY: as above.
    unsafe { Gpu::store_relaxed(&raw mut (*desc).word.word, number << team_word::SHIFT | failed) }
}

/// What the team's word says after a call that ended so.
///
/// # Safety
/// As [`unlock`].
#[cold]
#[inline(never)]
unsafe fn failed(desc: *mut TeamDesc, error: Error) -> u64 {
    use Error::{BadPe, BadReduction, LengthMismatch, OutOfRange, Overlap, TeamBusy, TeamMismatch};
    match error {
        // Of these, all members know from a meeting; the last has changed nothing.
        BadPe | BadReduction | LengthMismatch | OutOfRange | Overlap | TeamMismatch | TeamBusy => 0,
        error => {
            // SAFETY: the caller's promise.
            unsafe { Gpu::store_relaxed(&raw mut (*desc).counters.failed, error as u64) };
            Gpu::fence();
            team_word::FAILED
        }
    }
}
