//! Barriers of teams.

use crate::coll::call::Call;
use crate::coll::kind;
use crate::coll::p2p;
use crate::coll::p2p_team::P2pTeam;
use crate::ctx::Ctx;
use crate::ctx_ref::CtxRef;
use crate::error::Result;
use crate::group::Group;
use crate::sharing::Sharing;
use crate::team::Team;

impl<S: Sharing> Ctx<S> {
    /// Waits until every member of the team has called it: synchronises, completes nothing. What the group stored to
    /// its own PE's memory before is there for who gets it afterwards; puts are delivered only if `quiet` came first.
    /// OpenSHMEM 1.6 section 9.9, `shmem_team_sync`.
    ///
    /// # Errors
    /// [`Error::WaitTimeout`](crate::Error::WaitTimeout) with the PE that did not come,
    /// [`Error::TeamMismatch`](crate::Error::TeamMismatch) with one that is in another call,
    /// [`Error::BadTeam`](crate::Error::BadTeam), [`Error::TeamBusy`](crate::Error::TeamBusy) if another group of this PE
    /// uses the team, [`Error::TeamFailed`](crate::Error::TeamFailed), and those of the atomics. The same holds for all
    /// collective calls.
    #[inline(always)]
    #[track_caller]
    pub fn team_sync<G: Group>(&self, group: G, team: Team) -> Result {
        if let Some(w) = P2pTeam::of(self, team) {
            return p2p::sync(group, w.heap, w.near, w.rest, w.teams, w.sizes, team);
        }
        sync::<G, S>(group, CtxRef::of(self), team)
    }

    /// [`Ctx::quiet`] and then [`Ctx::team_sync`]: after it, everything that any member posted before it is complete.
    /// NVSHMEM's `nvshmem_barrier`.
    ///
    /// # Errors
    /// Those of both.
    #[inline(always)]
    #[track_caller]
    pub fn barrier<G: Group>(&self, group: G, team: Team) -> Result {
        // A meeting begins with a fence, and that is all there is to complete where nothing goes through a NIC.
        if !self.p2p_all() {
            self.quiet(group)?;
        }
        self.team_sync(group, team)
    }

    /// [`Ctx::team_sync`] of all PEs. OpenSHMEM 1.6 section 9.9, `shmem_sync_all`.
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    #[track_caller]
    pub fn sync_all<G: Group>(&self, group: G) -> Result {
        self.team_sync(group, Team::WORLD)
    }

    /// [`Ctx::barrier`] of all PEs. OpenSHMEM 1.6 section 9.9, `shmem_barrier_all`.
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    #[track_caller]
    pub fn barrier_all<G: Group>(&self, group: G) -> Result {
        self.barrier(group, Team::WORLD)
    }

    /// The first half of a [`Ctx::team_sync`]: says that this member has come, and waits for nobody. Every arrival is
    /// followed by a [`Ctx::sync_wait`] before the next; other calls of the team may come between. NCCL's
    /// `ncclLsaBarrierSession::arrive`.
    ///
    /// # Errors
    /// [`Error::TeamBusy`](crate::Error::TeamBusy) if the last arrival has not been waited for;
    /// [`Error::BadTeam`](crate::Error::BadTeam), and those of the atomics.
    #[inline(always)]
    #[track_caller]
    pub fn sync_arrive<G: Group>(&self, group: G, team: Team) -> Result {
        let call = Call::<G, S>::begin(group, CtxRef::of(self), team)?;
        let arrived = call.arrive();
        call.end(arrived)
    }

    /// The second half: waits until every member has arrived.
    ///
    /// # Errors
    /// [`Error::TeamBusy`](crate::Error::TeamBusy) without an arrival;
    /// [`Error::WaitTimeout`](crate::Error::WaitTimeout) if a member does not arrive;
    /// [`Error::BadTeam`](crate::Error::BadTeam).
    #[inline(always)]
    #[track_caller]
    pub fn sync_wait<G: Group>(&self, group: G, team: Team) -> Result {
        let call = Call::<G, S>::begin(group, CtxRef::of(self), team)?;
        let came = call.await_arrivals();
        call.end(came)
    }
}

#[inline(never)]
#[track_caller]
fn sync<G: Group, S: Sharing>(group: G, ctx_ref: CtxRef, team: Team) -> Result {
    let call = Call::<G, S>::begin(group, ctx_ref, team)?;
    let met = call.meet(call.call_hash(kind::SYNC, [0; 4]), Ok(()));
    call.end(met)
}
