//! Barriers of teams, with or without completion of pending operations.

use crate::coll::args::kind;
use crate::coll::call::Call;
use crate::coll::p2p;
use crate::coll::p2p_team::P2pTeam;
use crate::ctx::Ctx;
use crate::ctx::CtxRef;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::sharing::Sharing;
use crate::team::Team;
use crate::watch::{self, Collective, Meeting};

/// # Barriers
///
/// Synchronisation of the members of a team, with or without completion of their operations.
impl<S: Sharing> Ctx<'_, S> {
    /// Waits until every member of the team has called it. OpenSHMEM 1.6 section 9.9, `shmem_team_sync`.
    ///
    /// Synchronises but does not complete anything: puts are delivered only if [`Ctx::quiet`] came first. Earlier
    /// stores of the group to its own PE's memory are visible to members that read them afterwards.
    ///
    /// # Errors
    /// These are common to all collective calls:
    /// - [`Error::WaitTimeout`](crate::Error::WaitTimeout): a member had not arrived at the deadline. The record names
    ///   its PE.
    /// - [`Error::TeamMismatch`](crate::Error::TeamMismatch): a member is in a different call. The record names its PE.
    /// - [`Error::BadTeam`](crate::Error::BadTeam): the team does not exist, or has been destroyed.
    /// - [`Error::TeamBusy`](crate::Error::TeamBusy): another group of this PE is using the team.
    /// - [`Error::TeamFailed`](crate::Error::TeamFailed): an earlier failure has made the team unusable.
    /// - [`Error::PeerLost`](crate::Error::PeerLost): a member was lost.
    /// - [`Error::Aborted`](crate::Error::Aborted): the job is being aborted.
    /// - All errors of the atomics, for example [`Error::Completion`](crate::Error::Completion).
    #[inline(always)]
    #[track_caller]
    pub fn team_sync<G: Group>(&self, group: G, team: Team) -> Result {
        let _call = watch::collective(group, "team_sync", Collective::sync(team.key(), Meeting::Whole));
        if let Some(p2p_team) = P2pTeam::of(group, self, team) {
            return p2p::sync(group, p2p_team);
        }
        sync::<G, S>(group, CtxRef::of(self), team)
    }

    /// Calls [`Ctx::quiet`] and then [`Ctx::team_sync`]. Afterwards, all earlier postings of all members are complete.
    /// NVSHMEM: `nvshmem_barrier`.
    ///
    /// # Errors
    /// - All errors of [`Ctx::quiet`].
    /// - All errors of [`Ctx::team_sync`].
    #[inline(always)]
    #[track_caller]
    pub fn barrier<G: Group>(&self, group: G, team: Team) -> Result {
        let completes = Some(self.parts_ref().first_set);
        let barrier = Collective { completes, ..Collective::sync(team.key(), Meeting::Whole) };
        let _call = watch::collective(group, "barrier", barrier);
        // Without NICs there are no postings, and the fence of the check-in completes all stores.
        if !self.p2p_all() {
            group.sync();
            match self.complete_postings(group) {
                // Only members matter, and the check-in finds lost ones.
                Ok(()) | Err(Error::PeerLost) => {}
                failed => return failed,
            }
        }
        self.team_sync(group, team)
    }

    /// Synchronises all PEs with [`Ctx::team_sync`]. OpenSHMEM 1.6 section 9.9, `shmem_sync_all`.
    ///
    /// # Errors
    /// - All errors of [`Ctx::team_sync`].
    #[inline(always)]
    #[track_caller]
    pub fn sync_all<G: Group>(&self, group: G) -> Result {
        self.team_sync(group, Team::WORLD)
    }

    /// Calls [`Ctx::barrier`] for all PEs. OpenSHMEM 1.6 section 9.9, `shmem_barrier_all`.
    ///
    /// # Errors
    /// - All errors of [`Ctx::barrier`].
    #[inline(always)]
    #[track_caller]
    pub fn barrier_all<G: Group>(&self, group: G) -> Result {
        self.barrier(group, Team::WORLD)
    }

    /// Arrives at the split barrier of the team, without waiting. NCCL: `ncclLsaBarrierSession::arrive`.
    ///
    /// [`Ctx::sync_wait`] must follow before the next arrival. Other calls on the team may come in between.
    ///
    /// # Errors
    /// - [`Error::TeamBusy`](crate::Error::TeamBusy): the last arrival has not been followed by a wait.
    /// - [`Error::BadTeam`](crate::Error::BadTeam): the team does not exist.
    /// - All errors of the atomics.
    #[inline(always)]
    #[track_caller]
    pub fn sync_arrive<G: Group>(&self, group: G, team: Team) -> Result {
        let _call =
            watch::collective(group, "sync_arrive", Collective::sync(team.key(), Meeting::SplitArrive));
        let call = Call::<G, S>::begin(group, CtxRef::of(self), team)?;
        let arrived = call.arrive();
        call.end(arrived)
    }

    /// Waits until every member has arrived at the split barrier of the team.
    ///
    /// # Errors
    /// - [`Error::TeamBusy`](crate::Error::TeamBusy): this PE has not arrived.
    /// - [`Error::WaitTimeout`](crate::Error::WaitTimeout): a member had not arrived at the deadline.
    /// - [`Error::BadTeam`](crate::Error::BadTeam): the team does not exist.
    #[inline(always)]
    #[track_caller]
    pub fn sync_wait<G: Group>(&self, group: G, team: Team) -> Result {
        let _call = watch::collective(group, "sync_wait", Collective::sync(team.key(), Meeting::SplitWait));
        let call = Call::<G, S>::begin(group, CtxRef::of(self), team)?;
        let arrived = call.await_arrivals();
        call.end(arrived)
    }
}

#[inline(never)]
#[track_caller]
fn sync<G: Group, S: Sharing>(group: G, ctx_ref: CtxRef, team: Team) -> Result {
    if let Some(p2p_team) = P2pTeam::in_mixed_job(group, &ctx_ref.ctx::<S>(), team, (0, 0)) {
        return p2p::sync(group, p2p_team);
    }
    let call = Call::<G, S>::begin(group, ctx_ref, team)?;
    let checked_in = call.check_in(call.call_hash(kind::SYNC, [0; 4]), Ok(()));
    call.end(checked_in)
}
