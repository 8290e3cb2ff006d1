//! Live membership: what the host learns of losses, and the agreement on who is alive.

use rushmem_device::Team;
use rushmem_error::call_site;

use super::Pe;
use crate::bootstrap::{self, END, Epoch, Failure};
use crate::config::Membership as Setting;
use crate::{Error, Result, TeamConfig};

/// # Lost PEs
///
/// Calls of jobs with live membership (setting `membership`), which continue without lost PEs. docs/membership.md
/// describes what holds after a loss.
impl Pe {
    /// Returns whether `pe` was lost. Always `false` in jobs with fixed membership, where the job fails with its first loss.
    pub fn is_lost(&self, pe: u32) -> bool {
        self.membership.loss_of(pe).is_some()
    }

    /// Returns the number of this PE's epoch: 1 from the start of a job with live membership, and one more after each
    /// [`Pe::shrink`] that follows a loss. `None` with fixed membership.
    ///
    /// PEs with the same number have the same list of living PEs.
    pub fn epoch(&self) -> Option<u32> {
        self.membership.epoch()
    }

    /// Agrees with all other living PEs on who is alive, and returns a team of these PEs, in the order of their numbers.
    /// Collective over the living PEs. MPI: `MPIX_Comm_shrink`.
    ///
    /// Returns the team of the last call, without communication, if this PE knows of no loss since then. Before the first
    /// loss, that is [`Team::WORLD`].
    ///
    /// After a loss, collective calls of the host fail with [`Error::PeerLost`] on all PEs until this call. From then on,
    /// they are calls of the team's members: [`Pe::alloc`](crate::Pe::alloc), [`Pe::host_sync`] and others. Teams with lost
    /// members stay unusable, including [`Team::WORLD`]; [`Pe::team_destroy`] discards one without communication, and its
    /// slot stays in use. Symmetric objects, queues, captured graphs and running kernels are not affected.
    ///
    /// If another PE is lost during the call, some PEs may return a newer team than others, whose calls on the older one
    /// fail with [`Error::PeerLost`].
    ///
    /// A collective call of a kernel may succeed on some members and fail on others when a member is lost. The outcome
    /// of a call of the host after it shows whether all have succeeded:
    ///
    /// ```no_run
    /// # fn main() -> Result<(), rushmem::Error> {
    /// # rushmem::Job::new()?.run(|pe| {
    /// use rushmem::{Error, prelude::*};
    /// use rushmem_device::Team;
    ///
    /// let (mut team, mut step) = (Team::WORLD, 0);
    /// while step < 1000 {
    ///     let synced = pe.team_sync(team);
    ///     match pe.host_sync().and(synced) {
    ///         Ok(()) => step += 1,
    ///         Err(Error::PeerLost(_)) => team = pe.shrink()?,
    ///         Err(other) => return Err(other),
    ///     }
    /// }
    /// # Ok(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::Misuse`] in a job with fixed membership.
    /// - [`Error::Bootstrap`] if a living PE never makes the call. The job then fails.
    /// - The errors of [`Pe::team_from_pes`].
    #[track_caller]
    pub fn shrink(&self) -> Result<Team> {
        let _site = call_site::enter();
        if self.config().membership == Setting::Fixed {
            let what = "the job has fixed membership; set RUSHMEM_MEMBERSHIP=live";
            return Err(Error::misuse("shrink", what));
        }
        loop {
            // A loss may be noticed after the epoch that leaves the PE out.
            if let Some(team) = self.membership.living_team().filter(|team| self.teams.pes(*team).is_some()) {
                return Ok(team);
            }
            let epoch = self.form_epoch()?;
            match self.team_from_pes(&epoch.pes, TeamConfig::new()) {
                Ok(team) => self.membership.set_team(team),
                // Members that have made the team learn of the loss by their next call.
                Err(Error::PeerLost(lost)) if lost.survivable => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Forms the next epoch, and resets the counters of collective calls to values that are equal on all its PEs.
    fn form_epoch(&self) -> Result<Epoch> {
        let call = self.waits.known.host_call("shrink", None);
        let epoch = self.bootstrap.form_epoch_within(self.config().bootstrap_timeout)?;
        drop(call);
        // The low 32 bits are part of the stamps of handles, which should differ between epochs.
        *rushmem_base::lock(&self.collectives) = u64::from(epoch.number) << 24;
        self.teams.begin_epoch(epoch.number);
        self.membership.begin(epoch.clone());
        Ok(epoch)
    }

    /// Waits until all living PEs have reached the end of the job.
    pub(super) fn meet_at_end(&self) -> Result<()> {
        loop {
            match self.bootstrap.barrier(END).map_err(|error| self.failed(error)) {
                // Others may be in `shrink`, and wait for this PE's part in the team.
                Err(Error::PeerLost(_)) => match self.shrink() {
                    // There is no slot for the team, which nobody needs.
                    Ok(_) | Err(Error::Misuse { .. }) => {}
                    Err(error) => return Err(error),
                },
                outcome => return outcome,
            }
        }
    }

    /// Converts the error of a collective call. A loss that the job survives becomes [`Error::PeerLost`], and is known
    /// from then on.
    pub(super) fn failed(&self, error: impl Into<Error>) -> Error {
        match error.into() {
            Error::Bootstrap(bootstrap::Error::Failed(Failure::Lost(lost))) if lost.survivable => {
                if let Some(pe) = lost.pe {
                    self.membership.lose(pe, lost.clone());
                }
                Error::PeerLost(lost)
            }
            error => error,
        }
    }

    /// Returns whether `pe` takes part in collective calls of the host: whether it was alive in the last epoch.
    pub(crate) fn is_member(&self, pe: u32) -> bool {
        self.membership.is_member(pe)
    }

    /// Checks that the epoch has all PEs of the job, for calls that need them. Its PEs get the same answer.
    ///
    /// # Errors
    /// - [`Error::Unavailable`], which names the first PE outside the epoch.
    pub(crate) fn needs_all_pes(&self) -> Result<()> {
        match (0..self.n_pes()).find(|&pe| !self.is_member(pe)) {
            None => Ok(()),
            Some(pe) => {
                let what = "memory of all PEs".into();
                Err(Error::Unavailable { what, why: format!("the job goes on without PE {pe}") })
            }
        }
    }
}
