//! What members of a team with near heaps do when they meet: look for words, and say what is wrong with them.
#![allow(unsafe_code, reason = "exchanges call hashes in scratch memory")]

use core::panic::Location;

use super::call::meeting_at;
use crate::abi::{DevAddr, TeamDesc};
use crate::arch::{self, Scope, Sys};
use crate::error::{Detail, Error, Result, record};
use crate::group::Group;
use crate::wait::{glance, until};

/// The PE of a member: the first one's, and the step from one to the next, unless that is 0.
#[inline(always)]
pub(super) fn pe_of(desc: *mut TeamDesc, pes: (u32, u32), member: u32) -> u32 {
    match pes {
        (_, 0) => listed(desc, member),
        (start, stride) => start.wrapping_add(member.wrapping_mul(stride)),
    }
}

/// The PE of a member, of a team whose PEs do not lie at equal distances. Not inlined: few teams are such.
#[cold]
#[inline(never)]
fn listed(desc: *mut TeamDesc, member: u32) -> u32 {
    // SAFETY: the caller has it of a team with that member, and the list has a word for each.
    unsafe { arch::read((*desc).pes.ptr::<u32>().add(member as usize)) }
}

/// Looks at a word until it is of meeting `number`: what it holds. Nothing is recorded. If nobody `comes`, it is as if the word
/// said what was `said`; the lanes stay together. An error's code, or 0, and what was there.
#[inline(always)]
#[track_caller]
pub(super) fn await_word(
    state: DevAddr,
    comes: bool,
    at: *const u64,
    number: u64,
    call_hash: u32,
) -> (u32, u64) {
    let is_it = |found| has_number(found, number);
    let found = glance(|| word_at(at, comes, number, call_hash), is_it);
    let met = if is_it(found) { (0, found) } else { await_longer(state, comes, at, number, call_hash) };
    Sys::acquire();
    met
}

/// As [`await_word`], where it takes longer than a few looks.
#[cold]
#[inline(never)]
#[track_caller]
fn await_longer(state: DevAddr, comes: bool, at: *const u64, number: u64, call_hash: u32) -> (u32, u64) {
    until(state, None, || word_at(at, comes, number, call_hash), |found| has_number(found, number))
}

#[inline(always)]
fn word_at(at: *const u64, comes: bool, number: u64, call_hash: u32) -> u64 {
    // SAFETY: a word of the runtime's own in this PE's heap, aligned.
    let found = unsafe { Sys::load_relaxed(at) };
    if comes { found } else { number << 32 | call_hash as u64 }
}

#[inline(always)]
fn has_number(found: u64, number: u64) -> bool {
    (found >> 32) as u32 == number as u32
}

/// Why a meeting came to nothing, for all lanes, each of which knows of its first `odd` member that did not come, or differs: the
/// first of all is recorded. The team is given by its PEs, as in [`pe_of`], its members, and this one's number.
#[cold]
#[inline(never)]
#[allow(clippy::too_many_arguments)] // plain words
pub(super) fn verdict<F: Group>(
    front: F,
    state: DevAddr,
    words: u64,
    desc: *mut TeamDesc,
    (start, stride, n, me): (u32, u32, u32, u32),
    odd: u32,
    (how, heard): (u32, u64),
    number: u64,
    mine: Result,
    site: &'static Location<'static>,
) -> Result {
    let waited = front.any(how != 0);
    if front.any(how == Error::Aborted as u32) {
        return Err(Error::Aborted);
    }
    if !waited {
        mine?;
    }
    let mut first = 0;
    while first < n && !front.any(odd == first && (how != 0 || !waited)) {
        first += 1;
    }
    let error = if waited { Error::WaitTimeout } else { Error::TeamMismatch };
    if odd == first && first < n {
        let pe = |member: u32| pe_of(desc, (start, stride), member);
        let (peer, offset) = (pe(odd), words + meeting_at(number, n, odd));
        let d = if waited {
            Detail { peer, found: heard >> 32, wanted: number as u32 as u64, offset, ..Detail::NONE }
        } else {
            Detail { peer, found: pe(me) as u64, wanted: number, ..Detail::NONE }
        };
        let _ = record(state, error, d, site);
    }
    Err(error)
}
