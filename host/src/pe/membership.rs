//! Live membership: what the host learns of losses, and the agreement on who is alive.

use rushmem_device::Team;
use rushmem_error::call_site;

use super::Pe;
use crate::bootstrap::{self, END, Epoch, Failure, PeerLost};
use crate::config::Membership as Setting;
use crate::{Error, Result, TeamConfig};

/// # Lost PEs
///
/// Calls of jobs with live membership (setting `membership`), which go on without lost PEs. docs/membership.md describes
/// what holds after a loss.
impl Pe {
    /// Returns whether `pe` was lost. Always `false` in jobs with fixed membership, where a loss ends the job.
    pub fn is_lost(&self, pe: u32) -> bool {
        self.membership.loss_of(Some(pe)).is_some()
    }

    /// Returns the number of the epoch of this PE: 1 from the start of a job with live membership, and one more after
    /// each [`Pe::shrink`]. `None` with fixed membership.
    ///
    /// PEs with the same number have the same list of living PEs.
    pub fn epoch(&self) -> Option<u32> {
        self.membership.epoch().map(|epoch| epoch.number)
    }

    /// Agrees with all other living PEs on who is alive, and returns a new team of these PEs, in the order of their
    /// numbers. Collective over the living PEs. MPI: `MPIX_Comm_shrink`.
    ///
    /// After a loss, collective calls of the host fail with [`Error::PeerLost`] until this call. From then on, they are
    /// calls of the team's members: [`Pe::alloc`](crate::Pe::alloc), [`Pe::host_sync`] and others. Teams with lost
    /// members stay unusable, including [`Team::WORLD`]; [`Pe::team_destroy`] discards one without communication, and its
    /// slot stays in use. Symmetric objects, queues, captured graphs and running kernels are not affected.
    ///
    /// If another PE is lost during the call, some PEs may return an error and others the team. All then call again.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), rushmem::Error> {
    /// # rushmem::Job::new()?.run(|pe| {
    /// use rushmem::{Error, prelude::*};
    /// use rushmem_device::Team;
    ///
    /// let mut team = Team::WORLD;
    /// for step in 0..1000 {
    ///     while let Err(Error::PeerLost(lost)) = pe.team_sync(team) {
    ///         eprintln!("step {step}: {lost}");
    ///         team = pe.shrink()?;
    ///     }
    /// }
    /// # Ok::<_, Error>(())
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::Misuse`] in a job with fixed membership.
    /// - [`Error::PeerLost`] if another PE was lost during the call.
    /// - [`Error::Bootstrap`] if a living PE never makes the call. This ends the job.
    /// - The errors of [`Pe::team_from_pes`].
    #[track_caller]
    pub fn shrink(&self) -> Result<Team> {
        let _site = call_site::enter();
        if self.config().membership == Setting::Fixed {
            let what = "the job has fixed membership; set RUSHMEM_MEMBERSHIP=live";
            return Err(Error::misuse("shrink", what));
        }
        let epoch = self.form_epoch()?;
        self.team_from_pes(&epoch.pes, TeamConfig::new())
    }

    /// Forms the next epoch, from which on the counters of collective calls are equal on all living PEs again.
    fn form_epoch(&self) -> Result<Epoch> {
        let call = self.waits.known.host_call("shrink", None);
        let epoch = self.bootstrap.form_epoch_within(self.config().bootstrap_timeout)?;
        drop(call);
        *rushmem_base::lock(&self.collectives) = u64::from(epoch.number) << 32;
        self.teams.begin_epoch(epoch.number);
        self.membership.begin(epoch.clone());
        Ok(epoch)
    }

    /// Waits until all living PEs have reached the end of the job.
    pub(super) fn meet_at_end(&self) -> Result<()> {
        loop {
            match self.bootstrap.barrier(END) {
                Err(bootstrap::Error::Failed(Failure::Lost(PeerLost { survivable: true, .. }))) => {
                    self.form_epoch()?;
                }
                outcome => return Ok(outcome?),
            }
        }
    }

    /// Returns whether `pe` takes part in collective calls of the host: whether it was alive in the last epoch.
    pub(crate) fn is_member(&self, pe: u32) -> bool {
        self.membership.epoch().is_none_or(|epoch| epoch.pes.contains(&pe))
    }

    /// Checks that the job has all its PEs, for calls that need them. Members of an epoch get the same answer.
    ///
    /// # Errors
    /// - [`Error::PeerLost`] with the first PE that is not in the epoch.
    pub(super) fn needs_all_pes(&self) -> Result<()> {
        let lost = (0..self.n_pes()).find(|&pe| !self.is_member(pe));
        lost.and_then(|pe| self.membership.loss_of(Some(pe)))
            .map_or(Ok(()), |lost| Err(Error::PeerLost(lost)))
    }

    /// Returns the loss that ends a call between the PEs `pes`.
    pub(super) fn lost_among(&self, pes: &[u32]) -> Option<PeerLost> {
        self.membership.lost_among(pes)
    }
}
