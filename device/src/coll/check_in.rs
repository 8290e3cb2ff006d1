//! Check-ins of P2P teams: waits for the words of other members, and finds the cause of a mismatch.

#![allow(unsafe_code, reason = "exchanges call hashes in team words")]

use super::args::{check_in_word, needs_of, pe_of};
use crate::abi::{DevAddr, TeamDesc};
use crate::arch::{Scope, Sys};
use crate::error::{Detail, Error, Result, Site, record};
use crate::group::Group;
use crate::outlined::outlined;
use crate::sharing::PerGpu;
use crate::tend::{Tended, poll_until};
use crate::wait::{Needs, Until, lost, poll_briefly};

/// Waits until the word at `at` has been written by check-in `number`. Returns 0 or an error code, and the word found.
/// Does not record an error.
///
/// A lane without a member to wait for passes `comes = false` and gets `call_hash`, which keeps the lanes converged.
#[inline(always)]
#[track_caller]
pub(super) fn await_word(
    state: DevAddr,
    (needs, comes): (Needs, bool),
    at: *const u64,
    number: u64,
    call_hash: u32,
) -> (u32, u64) {
    let arrived = |found| has_number(found, number);
    let found = poll_briefly(|| word_at(at, comes, number, call_hash), arrived);
    let result =
        if arrived(found) { (0, found) } else { await_longer(state, (needs, comes), at, number, call_hash) };
    Sys::acquire();
    result
}

/// Continues [`await_word`] after the brief poll.
#[cold]
#[inline(never)]
#[track_caller]
fn await_longer(
    state: DevAddr,
    (needs, comes): (Needs, bool),
    at: *const u64,
    number: u64,
    call_hash: u32,
) -> (u32, u64) {
    poll_until(
        Tended::<PerGpu>::shared(state),
        Until::lost(needs),
        || word_at(at, comes, number, call_hash),
        |found| has_number(found, number),
    )
}

#[inline(always)]
fn word_at(at: *const u64, comes: bool, number: u64, call_hash: u32) -> u64 {
    // SAFETY: an aligned word of the runtime in the heap of this PE.
    let found = unsafe { Sys::load_relaxed(at) };
    if comes { found } else { number << 32 | call_hash as u64 }
}

#[inline(always)]
fn has_number(found: u64, number: u64) -> bool {
    (found >> 32) as u32 == number as u32
}

/// Observations of one lane about a check-in that failed.
pub(super) struct Mismatch {
    pub(super) state: DevAddr,
    pub(super) desc: *mut TeamDesc,
    /// Heap offset of the team's words.
    pub(super) words: u64,
    /// PE of member 0, and stride to the next member.
    pub(super) pes: (u32, u32),
    /// Number of members of the team, and this PE's rank among them.
    pub(super) members: (u32, u32),
    pub(super) number: u64,
    pub(super) call_hash: u32,
    /// First member whose word was late or different, as seen by this lane; `u32::MAX` if none.
    pub(super) odd: u32,
    /// Error code of the lane's wait, or 0, and the word that it found.
    pub(super) found: (u32, u64),
}

outlined! {
    /// Returns the outcome of a check-in that failed for some lane or member. All lanes call it and get the same
    /// outcome.
    ///
    /// The lane that saw the first late or different member records the error.
    #[cold]
    pub(super) fn outcome_of[F: Group](
        leaders: F,
        mine: Result,
        site: Site;
        m: Mismatch {
            state: DevAddr,
            desc: *mut TeamDesc,
            words: u64,
            pes: (u32, u32),
            members: (u32, u32),
            number: u64,
            call_hash: u32,
            odd: u32,
            found: (u32, u64),
        }
    ) -> Result {
        let Mismatch { state, desc, words, pes, members: (n, me), number, call_hash, odd, found: (how, found) } = m;
        let timed_out = leaders.any(how != 0);
        if leaders.any(how == Error::Aborted as u32) {
            return Err(Error::Aborted);
        }
        if leaders.any(how == Error::PeerLost as u32) {
            return Err(if leaders.leader() { lost(state, needs_of(desc), site) } else { Error::PeerLost });
        }
        // The member's own error explains the mismatch, but not why somebody else is late.
        if !timed_out {
            mine?;
        }
        // The lanes vote on each member in turn, so all agree on the first odd one and only its lane writes a record.
        let mut first = 0;
        while first < n && !leaders.any(odd == first && (how != 0 || !timed_out)) {
            first += 1;
        }
        let error = if timed_out { Error::WaitTimeout } else { Error::TeamMismatch };
        if odd == first && first < n {
            let pe = |member: u32| pe_of(desc, pes, member);
            let (peer, offset) = (pe(odd), words + check_in_word(number, n, odd));
            let d = if timed_out {
                Detail { peer, found: found >> 32, wanted: number as u32 as u64, offset, ..Detail::NONE }
            } else {
                let hashes = (call_hash as u64) << 32 | found as u32 as u64;
                Detail { peer, found: pe(me) as u64, wanted: hashes, ..Detail::NONE }
            };
            let _ = record(state, error, d, site);
        }
        Err(error)
    }
}
