//! OpenSHMEM names of team queries.

use crate::{Ctx, Sharing, Team};

/// Calls [`Ctx::team_my_pe`]. Returns -1 if the handle refers to no team.
#[inline(always)]
pub fn shmem_team_my_pe<S: Sharing>(ctx: &Ctx<S>, team: Team) -> i32 {
    number(ctx.team_my_pe(team))
}

/// Calls [`Ctx::team_n_pes`]. Returns -1 if the handle refers to no team.
#[inline(always)]
pub fn shmem_team_n_pes<S: Sharing>(ctx: &Ctx<S>, team: Team) -> i32 {
    number(ctx.team_n_pes(team))
}

/// Calls [`Ctx::translate_pe`]. Returns -1 if that returns `None`.
#[inline(always)]
pub fn shmem_team_translate_pe<S: Sharing>(ctx: &Ctx<S>, from: Team, index: u32, to: Team) -> i32 {
    number(ctx.translate_pe(from, index, to))
}

#[inline(always)]
fn number(value: Option<u32>) -> i32 {
    match value {
        Some(value) => value as i32,
        None => -1,
    }
}
