//! Teams
#![allow(unsafe_code, reason = "exports functions, and writes results for the caller")]
#![allow(clippy::missing_safety_doc, reason = "the introduction of the header states the rules for pointers")]

use rushmem::{Error, TeamConfig};

use super::natural;
use crate::caller_memory::team;
use crate::error::{number, status};
use crate::handle;
use crate::pointers::Out;
use crate::types::{RUSHMEM_TEAM_INVALID, rushmem_pe, rushmem_team};

/// Creates a team of the members `start + k * stride` of `parent`, for `k` from 0 to `size - 1`, in that order.
/// Collective over `parent`.
///
/// On PEs outside the new team, `*team` becomes `RUSHMEM_TEAM_INVALID`. The stride may be negative.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_team_split_strided(
    pe: *mut rushmem_pe,
    parent: rushmem_team,
    start: i32,
    stride: i32,
    size: i32,
    new_team: *mut rushmem_team,
) -> i32 {
    status(|| {
        const CALL: &str = "rushmem_team_split_strided";
        let handle = handle::get(CALL, pe)?;
        // SAFETY: promised by the caller.
        let out = unsafe { Out::new(CALL, "new_team", new_team) }?;
        let parent = team(CALL, handle.pe(), parent)?;
        let (start, size) = (natural(CALL, "start", start)?, natural(CALL, "size", size)?);
        let made = handle.pe().team_split_strided(parent, start, stride, size, TeamConfig::new())?;
        out.write(made.to_bits());
        Ok(())
    })
}

/// Destroys a team, which kernels must not use any more. Collective over its members.
///
/// `RUSHMEM_TEAM_INVALID` and the predefined teams are ignored.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_team_destroy(pe: *mut rushmem_pe, old_team: rushmem_team) -> i32 {
    status(|| {
        const CALL: &str = "rushmem_team_destroy";
        let handle = handle::get(CALL, pe)?;
        match old_team {
            RUSHMEM_TEAM_INVALID => Ok(()),
            old_team => handle.pe().team_destroy(team(CALL, handle.pe(), old_team)?),
        }
    })
}

/// Returns this PE's number in a team, or -1 if an argument is invalid.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_team_my_pe(pe: *mut rushmem_pe, in_team: rushmem_team) -> i32 {
    number(|| {
        const CALL: &str = "rushmem_team_my_pe";
        let handle = handle::get(CALL, pe)?;
        Ok(handle.pe().team_my_pe(team(CALL, handle.pe(), in_team)?).map_or(-1, |index| index as i32))
    })
}

/// Returns the number of members of a team, or -1 if an argument is invalid.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_team_n_pes(pe: *mut rushmem_pe, of_team: rushmem_team) -> i32 {
    number(|| {
        const CALL: &str = "rushmem_team_n_pes";
        let handle = handle::get(CALL, pe)?;
        Ok(handle.pe().team_n_pes(team(CALL, handle.pe(), of_team)?).map_or(-1, |n| n as i32))
    })
}

/// Returns the number in team `to` of member `index` of team `from`.
///
/// Returns -1 if that PE is not in `to`, or if an argument is invalid. With `RUSHMEM_TEAM_WORLD`, the result is the
/// PE's number in the job.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_team_translate_pe(
    pe: *mut rushmem_pe,
    from: rushmem_team,
    index: i32,
    to: rushmem_team,
) -> i32 {
    number(|| {
        const CALL: &str = "rushmem_team_translate_pe";
        let handle = handle::get(CALL, pe)?;
        let (from, to) = (team(CALL, handle.pe(), from)?, team(CALL, handle.pe(), to)?);
        let index = natural(CALL, "index", index)?;
        handle.pe().team_translate_pe(from, index, to).map(|index| index as i32).ok_or_else(|| {
            Error::misuse(CALL, format!("the second team has no PE that is member {index} of the first"))
        })
    })
}
