//! Calls after the loss of a PE.

use rushmem_device::prelude::*;

/// Names of the outcomes that [`after_loss`] stores, in order.
pub const AFTER_LOSS: [&str; 9] = [
    "is_lost, of the lost PE",
    "is_lost, of a living PE",
    "put to the lost PE",
    "quiet after that",
    "put to a living PE",
    "wait for the lost PE",
    "fetch from the lost PE",
    "team_sync",
    "team_sync again",
];

/// Makes calls that concern the lost PE `lost`, the living PE `living`, and a team of both. Stores 0, 1 or the error code of
/// each. One thread.
#[kernel]
pub fn after_loss(
    ctx: &Ctx,
    outcomes: SymSlice<u32>,
    cells: SymSlice<u64>,
    signal: Sym<Signal>,
    team: Team,
    lost: u32,
    living: u32,
) -> Result {
    let out = ctx.local(outcomes);
    let code = |outcome: Result| outcome.map_or_else(|error| error as u32, |()| 0);
    let put = |pe| ctx.put_nbi(Thread, cells, cells, pe).and_then(|()| ctx.quiet_pe(pe));
    out.store(0, ctx.is_lost(lost).into());
    out.store(1, ctx.is_lost(living).into());
    out.store(2, code(put(lost)));
    out.store(3, code(ctx.quiet(Thread)));
    out.store(4, code(put(living)));
    out.store(5, code(ctx.signal_wait_until_from(Thread, signal, Cmp::Ne, 0, lost).map(drop)));
    out.store(6, code(ctx.atomic_fetch(cells.at(0), lost).map(drop)));
    out.store(7, code(ctx.team_sync(Thread, team)));
    out.store(8, code(ctx.team_sync(Thread, team)));
    Ok(())
}
