//! PEs, teams and the memory of peers.

use core::ffi::c_void;
use core::ptr;

use rushmem_device::{Result, Thread};
use rushmem_macros::export;

use crate::call::{Ctx, TeamBits, symmetric_at, team_of};

/// Returns this PE's number.
#[export(thread)]
fn my_pe(ctx: &Ctx<'_>) -> Result<i32> {
    Ok(ctx.my_pe() as i32)
}

/// Returns the number of PEs of the job.
#[export(thread)]
fn n_pes(ctx: &Ctx<'_>) -> Result<i32> {
    Ok(ctx.n_pes() as i32)
}

/// Returns 1 if `pe` was lost, and 0 if not. Only in jobs with live membership.
#[export(thread, warp, block)]
fn is_lost(ctx: &Ctx<'_>, pe: i32) -> Result<i32> {
    Ok(ctx.is_lost(pe as u32).into())
}

/// Returns the address at which this PE can access `address` of `pe` by loads and stores, or null.
#[export(thread)]
fn ptr(ctx: &Ctx<'_>, address: *const c_void, pe: i32) -> Result<*mut c_void> {
    let there = ctx.ptr(symmetric_at(ctx, Thread, address, 1)?, pe as u32);
    Ok(there.map_or(ptr::null_mut(), |view| view.as_ptr().cast()))
}

/// Returns this PE's number in `team`, or -1 if it is not a member.
#[export(thread)]
fn team_my_pe(ctx: &Ctx<'_>, team: TeamBits) -> Result<i32> {
    Ok(ctx.team_my_pe(team_of(team)).map_or(-1, |pe| pe as i32))
}

/// Returns the number of members of `team`, or -1 if this PE is not one of them.
#[export(thread)]
fn team_n_pes(ctx: &Ctx<'_>, team: TeamBits) -> Result<i32> {
    Ok(ctx.team_n_pes(team_of(team)).map_or(-1, |n| n as i32))
}

/// Returns the number in `to` of the PE that has the number `pe` in `from`, or -1 if there is none.
#[export(thread)]
fn team_translate_pe(ctx: &Ctx<'_>, from: TeamBits, pe: i32, to: TeamBits) -> Result<i32> {
    Ok(ctx.translate_pe(team_of(from), pe as u32, team_of(to)).map_or(-1, |pe| pe as i32))
}
