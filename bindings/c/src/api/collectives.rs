//! Collective operations
//!
//! All members of the team make the call with the same sizes. Sources and destinations are in symmetric memory, and do
//! not overlap except where they are equal. At most one such call of a team may be in progress on each PE, be it from
//! the host, a stream or a kernel.
#![allow(unsafe_code, reason = "exports functions, and passes streams of the caller on")]
#![allow(clippy::missing_safety_doc, reason = "the introduction of the header states the rules for pointers")]
#![allow(clippy::too_many_arguments, reason = "the signatures of OpenSHMEM and NVSHMEM")]

use std::ffi::c_void;

use rushmem::Result;
use rushmem_device::Team;

use super::{in_stream, issue, natural, size};
use crate::caller_memory::team;
use crate::handle::{Handle, On};
use crate::operation::{Operation, Reduction};
use crate::types::{element_type, reduce_op, rushmem_pe, rushmem_team};

const BARRIER: &str = "rushmem_barrier";
const BROADCAST: &str = "rushmem_broadcastmem";
const FCOLLECT: &str = "rushmem_fcollectmem";
const ALLTOALL: &str = "rushmem_alltoallmem";
const REDUCE: &str = "rushmem_reduce";
const REDUCE_SCATTER: &str = "rushmem_reduce_scatter";

/// The destination and the source of a call.
type Ends = (*mut c_void, *const c_void);

/// Completes operations as `rushmem_quiet` does, and waits until all members of the team have made the call.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_barrier(pe: *mut rushmem_pe, of_team: rushmem_team) -> i32 {
    issue(BARRIER, pe, On::Host, |handle| Ok(Operation::Barrier(team(BARRIER, handle.pe(), of_team)?)))
}

/// Queues `rushmem_barrier` in a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_barrier_on_stream(
    pe: *mut rushmem_pe,
    of_team: rushmem_team,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: promised by the caller.
    let on = unsafe { in_stream(stream) };
    issue(BARRIER, pe, on, |handle| Ok(Operation::Barrier(team(BARRIER, handle.pe(), of_team)?)))
}

/// Copies `nbytes` bytes from `src` on member `root` to `dst` on every member, including the root.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_broadcastmem(
    pe: *mut rushmem_pe,
    of_team: rushmem_team,
    dst: *mut c_void,
    src: *const c_void,
    nbytes: usize,
    root: i32,
) -> i32 {
    issue(BROADCAST, pe, On::Host, |handle| broadcast(handle, of_team, (dst, src), nbytes, root))
}

/// Queues `rushmem_broadcastmem` in a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_broadcastmem_on_stream(
    pe: *mut rushmem_pe,
    of_team: rushmem_team,
    dst: *mut c_void,
    src: *const c_void,
    nbytes: usize,
    root: i32,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: promised by the caller.
    let on = unsafe { in_stream(stream) };
    issue(BROADCAST, pe, on, |handle| broadcast(handle, of_team, (dst, src), nbytes, root))
}

fn broadcast(
    handle: &Handle,
    of_team: rushmem_team,
    (dst, src): Ends,
    nbytes: usize,
    root: i32,
) -> Result<Operation> {
    let team = team(BROADCAST, handle.pe(), of_team)?;
    let dst = handle.addresses.symmetric((BROADCAST, "dst"), dst, nbytes)?;
    let src = handle.addresses.symmetric((BROADCAST, "src"), src, nbytes)?;
    Ok(Operation::Broadcast { team, dst, src, root: natural(BROADCAST, "root", root)? })
}

/// Concatenates the `nbytes` bytes at `src` of all members, in team order, at `dst` on every member.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_fcollectmem(
    pe: *mut rushmem_pe,
    of_team: rushmem_team,
    dst: *mut c_void,
    src: *const c_void,
    nbytes: usize,
) -> i32 {
    issue(FCOLLECT, pe, On::Host, |handle| fcollect(handle, of_team, (dst, src), nbytes))
}

/// Queues `rushmem_fcollectmem` in a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_fcollectmem_on_stream(
    pe: *mut rushmem_pe,
    of_team: rushmem_team,
    dst: *mut c_void,
    src: *const c_void,
    nbytes: usize,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: promised by the caller.
    let on = unsafe { in_stream(stream) };
    issue(FCOLLECT, pe, on, |handle| fcollect(handle, of_team, (dst, src), nbytes))
}

fn fcollect(handle: &Handle, of_team: rushmem_team, (dst, src): Ends, nbytes: usize) -> Result<Operation> {
    let team = team(FCOLLECT, handle.pe(), of_team)?;
    let all = size(FCOLLECT, members(handle, team), nbytes)?;
    let dst = handle.addresses.symmetric((FCOLLECT, "dst"), dst, all)?;
    let src = handle.addresses.symmetric((FCOLLECT, "src"), src, nbytes)?;
    Ok(Operation::Fcollect { team, dst, src })
}

/// Sends part `j` of `src` to member `j`, and stores the part received from member `i` as part `i` of `dst`.
///
/// Each part has `nbytes` bytes.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_alltoallmem(
    pe: *mut rushmem_pe,
    of_team: rushmem_team,
    dst: *mut c_void,
    src: *const c_void,
    nbytes: usize,
) -> i32 {
    issue(ALLTOALL, pe, On::Host, |handle| alltoall(handle, of_team, (dst, src), nbytes))
}

/// Queues `rushmem_alltoallmem` in a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_alltoallmem_on_stream(
    pe: *mut rushmem_pe,
    of_team: rushmem_team,
    dst: *mut c_void,
    src: *const c_void,
    nbytes: usize,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: promised by the caller.
    let on = unsafe { in_stream(stream) };
    issue(ALLTOALL, pe, on, |handle| alltoall(handle, of_team, (dst, src), nbytes))
}

fn alltoall(handle: &Handle, of_team: rushmem_team, (dst, src): Ends, nbytes: usize) -> Result<Operation> {
    let team = team(ALLTOALL, handle.pe(), of_team)?;
    let all = size(ALLTOALL, members(handle, team), nbytes)?;
    let dst = handle.addresses.symmetric((ALLTOALL, "dst"), dst, all)?;
    let src = handle.addresses.symmetric((ALLTOALL, "src"), src, all)?;
    Ok(Operation::Alltoall { team, dst, src })
}

/// Combines the `n` elements at `src` of all members with `op`, index by index, and stores the results at `dst` on
/// every member.
///
/// `type` is a `rushmem_type`, and `op` a `rushmem_op`. Elements are aligned to their size.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_reduce(
    pe: *mut rushmem_pe,
    of_team: rushmem_team,
    dst: *mut c_void,
    src: *const c_void,
    n: usize,
    r#type: i32,
    op: i32,
) -> i32 {
    issue(REDUCE, pe, On::Host, |handle| {
        reduce((REDUCE, handle), of_team, (dst, src), [n, n], (r#type, op)).map(Operation::Reduce)
    })
}

/// Queues `rushmem_reduce` in a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_reduce_on_stream(
    pe: *mut rushmem_pe,
    of_team: rushmem_team,
    dst: *mut c_void,
    src: *const c_void,
    n: usize,
    r#type: i32,
    op: i32,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: promised by the caller.
    let on = unsafe { in_stream(stream) };
    issue(REDUCE, pe, on, |handle| {
        reduce((REDUCE, handle), of_team, (dst, src), [n, n], (r#type, op)).map(Operation::Reduce)
    })
}

/// Combines elements as `rushmem_reduce` does, and stores part `i` of the result at `dst` on member `i`.
///
/// Each part has `n` elements, so `src` has `n` elements for each member.
#[unsafe(no_mangle)]
pub extern "C" fn rushmem_reduce_scatter(
    pe: *mut rushmem_pe,
    of_team: rushmem_team,
    dst: *mut c_void,
    src: *const c_void,
    n: usize,
    r#type: i32,
    op: i32,
) -> i32 {
    issue(REDUCE_SCATTER, pe, On::Host, |handle| reduce_scatter(handle, of_team, (dst, src), n, (r#type, op)))
}

/// Queues `rushmem_reduce_scatter` in a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rushmem_reduce_scatter_on_stream(
    pe: *mut rushmem_pe,
    of_team: rushmem_team,
    dst: *mut c_void,
    src: *const c_void,
    n: usize,
    r#type: i32,
    op: i32,
    stream: *mut c_void,
) -> i32 {
    // SAFETY: promised by the caller.
    let on = unsafe { in_stream(stream) };
    issue(REDUCE_SCATTER, pe, on, |handle| reduce_scatter(handle, of_team, (dst, src), n, (r#type, op)))
}

fn reduce_scatter(
    handle: &Handle,
    of_team: rushmem_team,
    ends: Ends,
    n: usize,
    what: (i32, i32),
) -> Result<Operation> {
    let all = size(REDUCE_SCATTER, members(handle, team(REDUCE_SCATTER, handle.pe(), of_team)?), n)?;
    reduce((REDUCE_SCATTER, handle), of_team, ends, [n, all], what).map(Operation::ReduceScatter)
}

/// Describes a reduction from the numbers of elements at destination and source, and the numbers of its type and
/// operation.
fn reduce(
    (call, handle): (&'static str, &Handle),
    of_team: rushmem_team,
    (dst, src): Ends,
    [to, from]: [usize; 2],
    (element, op): (i32, i32),
) -> Result<Reduction> {
    let (team, op) = (team(call, handle.pe(), of_team)?, reduce_op(call, op)?);
    let element = element_type(call, element)?;
    let dst = handle.addresses.symmetric((call, "dst"), dst, size(call, to, element.bytes())?)?;
    let src = handle.addresses.symmetric((call, "src"), src, size(call, from, element.bytes())?)?;
    Ok(Reduction { team, dst, src, element, op })
}

fn members(handle: &Handle, team: Team) -> usize {
    handle.pe().team_n_pes(team).unwrap_or(0) as usize
}
