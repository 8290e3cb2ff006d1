//! Programs about teams. A barrier of a team synchronizes its members only.

use rushmem::{Pe, TeamConfig};
use rushmem_device::prelude::*;

use crate::program::{Memory, ONE, Topic, host};

pub(crate) const TOPIC: Topic = Topic {
    name: "teams",
    title: "Teams",
    file: file!(),
    text: include_str!("teams.rs"),
    programs: &[
        host("barrier_of_a_team", barrier_of_a_team).pes(3),
        host("sync_of_a_team", sync_of_a_team).races().pes(3),
        host("sync_of_a_team_after_quiet", sync_of_a_team_after_quiet).pes(3),
        host("barrier_without_the_receiver", barrier_without_the_receiver).races().pes(3),
        host("barriers_of_two_teams", barriers_of_two_teams).pes(3),
        host("barriers_of_two_teams_in_wrong_order", barriers_of_two_teams_in_wrong_order).races().pes(3),
        host("broadcast_in_a_team", broadcast_in_a_team).pes(3),
        host("put_of_an_outsider_to_the_result", put_of_an_outsider_to_the_result).races().pes(3),
        host("put_of_an_outsider_after_signal", put_of_an_outsider_after_signal).pes(3),
        host("team_of_one", team_of_one),
    ],
};

/// Creates a team of `pes`, or returns [`Team::INVALID`] on other PEs.
fn team(pe: &Pe, pes: &[u32]) -> rushmem::Result<Team> {
    if pes.contains(&pe.my_pe()) { pe.team_from_pes(pes, TeamConfig::new()) } else { Ok(Team::INVALID) }
}

/// Puts to a member of the team, which loads the data after a barrier of the team.
fn barrier_of_a_team(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.run(ONE, put_and_barrier(m, team(pe, &[0, 1])?))
}

#[kernel]
fn put_and_barrier(ctx: &Ctx, m: Memory, team: Team) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?;
    }
    if ctx.my_pe() < 2 {
        ctx.barrier(Thread, team)?;
    }
    assert!(ctx.my_pe() != 1 || ctx.local(m.inbox).load(0) == 10);
    Ok(())
}

/// Puts to a member of the team, which loads the data after `team_sync`. A sync completes no puts.
fn sync_of_a_team(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.run(ONE, put_and_team_sync(m, team(pe, &[0, 1])?))
}

#[kernel]
fn put_and_team_sync(ctx: &Ctx, m: Memory, team: Team) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?; // first
    }
    if ctx.my_pe() < 2 {
        ctx.team_sync(Thread, team)?;
    }
    if ctx.my_pe() == 1 {
        let _ = ctx.local(m.inbox).load(0); // second
    }
    Ok(())
}

/// Puts to a member of the team, which loads the data after `quiet` of the sender and `team_sync`.
fn sync_of_a_team_after_quiet(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.run(ONE, put_quiet_and_team_sync(m, team(pe, &[0, 1])?))
}

#[kernel]
fn put_quiet_and_team_sync(ctx: &Ctx, m: Memory, team: Team) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 1)?;
        ctx.quiet(Thread)?;
    }
    if ctx.my_pe() < 2 {
        ctx.team_sync(Thread, team)?;
    }
    assert!(ctx.my_pe() != 1 || ctx.local(m.inbox).load(0) == 10);
    Ok(())
}

/// Puts to PE 2, which is not in the team of the barrier.
fn barrier_without_the_receiver(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.run(ONE, put_to_outsider_and_barrier(m, team(pe, &[0, 1])?))
}

#[kernel]
fn put_to_outsider_and_barrier(ctx: &Ctx, m: Memory, team: Team) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 2)?; // first
    }
    if ctx.my_pe() < 2 {
        return ctx.barrier(Thread, team);
    }
    let _ = ctx.local(m.inbox).load(0); // second
    Ok(())
}

/// Puts to PE 2 and synchronises with PE 1, which then synchronises with PE 2.
fn barriers_of_two_teams(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let (early, late) = (team(pe, &[0, 1])?, team(pe, &[1, 2])?);
    pe.run(ONE, put_and_two_barriers(m, early, late))
}

#[kernel]
fn put_and_two_barriers(ctx: &Ctx, m: Memory, early: Team, late: Team) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 2)?;
    }
    if ctx.my_pe() < 2 {
        ctx.barrier(Thread, early)?;
    }
    if ctx.my_pe() > 0 {
        ctx.barrier(Thread, late)?;
    }
    assert!(ctx.my_pe() != 2 || ctx.local(m.inbox).load(0) == 10);
    Ok(())
}

/// Puts to PE 2 and synchronises with PE 1, which has already synchronised with PE 2.
fn barriers_of_two_teams_in_wrong_order(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    let (early, late) = (team(pe, &[0, 1])?, team(pe, &[1, 2])?);
    pe.run(ONE, put_and_two_wrong_barriers(m, early, late))
}

#[kernel]
fn put_and_two_wrong_barriers(ctx: &Ctx, m: Memory, early: Team, late: Team) -> Result {
    if ctx.my_pe() == 0 {
        ctx.put(Thread, m.inbox, m.outbox, 2)?; // first
    }
    if ctx.my_pe() > 0 {
        ctx.barrier(Thread, late)?;
    }
    if ctx.my_pe() < 2 {
        return ctx.barrier(Thread, early);
    }
    let _ = ctx.local(m.inbox).load(0); // second
    Ok(())
}

/// Broadcasts among the members of a team, while the remaining PE uses its copy of the buffers.
fn broadcast_in_a_team(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.run(ONE, broadcast_to_members(m, team(pe, &[0, 1])?))
}

#[kernel]
fn broadcast_to_members(ctx: &Ctx, m: Memory, team: Team) -> Result {
    if ctx.my_pe() < 2 {
        ctx.broadcast(Thread, team, m.inbox, m.outbox, 1)?;
        assert_eq!(ctx.local(m.inbox).load(0), 20);
    } else {
        ctx.local(m.inbox).store(0, 1);
    }
    Ok(())
}

/// Puts from a PE outside the team to a member's result.
fn put_of_an_outsider_to_the_result(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.run(ONE, broadcast_beside_put(m, team(pe, &[0, 1])?))
}

#[kernel]
fn broadcast_beside_put(ctx: &Ctx, m: Memory, team: Team) -> Result {
    if ctx.my_pe() == 2 {
        return ctx.p(m.inbox.at(0), 1, 0); // first
    }
    ctx.broadcast(Thread, team, m.inbox, m.outbox, 1) // second
}

/// Puts from a PE outside the team to a member's result, after a signal from that member.
fn put_of_an_outsider_after_signal(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.run(ONE, broadcast_and_invite(m, team(pe, &[0, 1])?))
}

#[kernel]
fn broadcast_and_invite(ctx: &Ctx, m: Memory, team: Team) -> Result {
    if ctx.my_pe() == 2 {
        ctx.signal_wait_until(Thread, m.flag, Cmp::Eq, 1)?;
        return ctx.p(m.inbox.at(0), 1, 0);
    }
    ctx.broadcast(Thread, team, m.inbox, m.outbox, 1)?;
    assert_eq!(ctx.local(m.inbox).load(1), 21);
    ctx.fence()?;
    if ctx.my_pe() == 0 { ctx.signal_op(m.flag.set(1), 2) } else { Ok(()) }
}

/// Makes collective calls in a team of one PE.
fn team_of_one(pe: &Pe, m: Memory) -> rushmem::Result<()> {
    pe.run(ONE, reduce_alone(m, team(pe, &[pe.my_pe()])?))
}

#[kernel]
fn reduce_alone(ctx: &Ctx, m: Memory, team: Team) -> Result {
    ctx.reduce(Thread, team, Reduce::Sum, m.inbox, m.outbox)?;
    ctx.barrier(Thread, team)?;
    assert_eq!(ctx.local(m.inbox).load(0), ctx.local(m.outbox).load(0));
    Ok(())
}
