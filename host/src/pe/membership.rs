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

    /// Returns the number of this PE's epoch: 1 from the start of a job with live membership, or 2 with vacant PEs, and one
    /// more after each [`Pe::shrink`] that follows a loss and each [`Pe::grow`]. `None` with fixed membership.
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
        self.check_live("shrink")?;
        self.membership.take_joined();
        match self.living_team() {
            Some(team) => Ok(team),
            None => self.agree_on_members("shrink", false),
        }
    }

    /// Agrees with all other living PEs on who is alive, as [`Pe::shrink`] does, and takes in the processes that wait to
    /// [replace](Self::is_replacement) lost PEs. Returns a team of the living PEs, in the order of their numbers. Collective
    /// over the living PEs.
    ///
    /// Vacant PEs (setting `vacant_pes`) are lost from the start, and processes join as these PEs in the same way.
    ///
    /// Does not wait for such processes, and returns the same team as the last call if nothing has changed. It always
    /// communicates, so programs call it where a PE may join: between the steps of a simulation, say. A lost PE is replaced at
    /// the earliest by the call after the one that leaves it out. Before that call, the program must make sure that none of its
    /// kernels still communicates with the lost PE, waits for it, or is in a collective call on a team with it.
    ///
    /// From then on, the processes are the PEs that they replace, with the same numbers. Their copies of the symmetric objects
    /// are zero. They are members of the returned team, and of none that existed before. Slots of destroyed teams are free again with
    /// the next epoch of all their members. Kernels that are running reach the new processes once
    /// [`Ctx::is_lost`](rushmem_device::Ctx::is_lost) says so, or once they see what the host has written after the call. Contexts
    /// with queues of their own need the former if a NIC serves the PE. Without `failover=on`, no one is taken in by NIC while
    /// a launch has not been waited for. No one is taken in while the job has windows or after its heap has grown.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), rushmem::Error> {
    /// # rushmem::Job::new()?.run(|pe| {
    /// use rushmem::{Error, prelude::*};
    /// use rushmem_device::{Reduce, Team};
    ///
    /// let (step, last) = (pe.alloc_one::<u64>()?, pe.alloc_one::<u64>()?);
    /// let mut team = Team::WORLD;
    /// while pe.read_one(step)? < 1000 {
    ///     let members = pe.grow()?;
    ///     if members != team {
    ///         pe.team_destroy(std::mem::replace(&mut team, members))?;
    ///     }
    ///     // A PE that has just joined continues with the others.
    ///     let found = pe.reduce(team, Reduce::Max, last.as_slice(), step.as_slice());
    ///     match pe.host_sync().and(found) {
    ///         Ok(()) => pe.write(step.as_slice(), &[pe.read_one(last)? + 1])?,
    ///         Err(Error::PeerLost(_)) => {}
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
    /// - The errors of [`Pe::shrink`].
    #[track_caller]
    pub fn grow(&self) -> Result<Team> {
        let _site = call_site::enter();
        self.check_live("grow")?;
        let has_joined = self.membership.take_joined();
        match self.living_team().filter(|_| has_joined) {
            Some(team) => Ok(team),
            None => self.agree_on_members("grow", self.may_admit()),
        }
    }

    /// Returns whether this process replaces a lost PE.
    ///
    /// Such a process runs the same program from its start, and joins the job when the others call [`Pe::grow`]. Its first calls
    /// that allocate, [`Pe::alloc`] and the like, return the objects that the others have at that time, in the order in which
    /// they allocated them, and do not communicate. They must name the same sizes. Its first call of `grow` returns the team of
    /// that of the others, without communication. All other collective calls are those that the others make after `grow`; before
    /// it, they fail with [`Error::Misuse`].
    pub fn is_replacement(&self) -> bool {
        self.bootstrap.replaces()
    }

    /// Returns whether this process is a [replacement](Self::is_replacement) that has not called [`Pe::grow`] yet, so the calls of
    /// this PE that allocate find objects of the others, and other collective calls fail.
    ///
    /// Libraries that allocate and also exchange facts about the PEs can leave out the exchange.
    pub fn is_joining(&self) -> bool {
        self.membership.has_joined()
    }

    /// Returns the epoch in which the current processes of this PE and of `pe` met: 1, unless one of them is a
    /// [replacement](Self::is_replacement). Equal on both. `None` with fixed membership.
    ///
    /// Programs put it into messages to distinguish a process from its predecessor.
    pub fn together_since(&self, pe: u32) -> Option<u32> {
        self.membership.together_since(pe, self.my_pe())
    }

    fn check_live(&self, call: &'static str) -> Result<()> {
        match self.config().membership {
            Setting::Live => Ok(()),
            Setting::Fixed => {
                Err(Error::misuse(call, "the job has fixed membership; set RUSHMEM_MEMBERSHIP=live"))
            }
        }
    }

    /// Returns the team of the PEs of the epoch, unless one of them is known to be lost or the team was destroyed.
    fn living_team(&self) -> Option<Team> {
        self.membership.living_team().filter(|team| self.teams.pes(*team).is_some())
    }

    /// Returns whether other processes may replace lost PEs now. Without failover, kernels that are running could use the connections
    /// through a NIC that this PE then renews. Some memory cannot be passed on.
    fn may_admit(&self) -> bool {
        let has_nic_peers = self.peer_map.without_nic().contains(&false);
        let may_renew = !has_nic_peers || self.service.fails_over() || !self.service.is_busy();
        may_renew && self.memory.objects().is_some()
    }

    /// Forms epochs until there is a team of all PEs of one. Takes others in only if all PEs admit that.
    pub(super) fn agree_on_members(&self, call: &str, admits: bool) -> Result<Team> {
        loop {
            let waits = self.waits.known.host_call(call, None);
            let epoch = self.bootstrap.form_epoch(admits, self.config().bootstrap_timeout)?;
            drop(waits);
            self.enter(&epoch)?;
            // A loss may be noticed after the epoch that leaves the PE out.
            if let Some(team) = self.living_team() {
                return Ok(team);
            }
        }
    }

    /// Joins the job with `epoch`, as a process that replaces a lost PE.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if another PE cannot take it in.
    /// - The errors of [`Pe::shrink`].
    pub(super) fn join(&self, epoch: Epoch) -> Result<()> {
        self.enter(&epoch)?;
        if self.living_team().is_none() {
            self.agree_on_members("the start of the job", self.may_admit())?;
        }
        self.membership.set_joined();
        Ok(())
    }

    /// Enters an epoch: takes in the PEs that have joined with it, and creates its team. There is no team after another loss.
    fn enter(&self, epoch: &Epoch) -> Result<()> {
        if self.membership.begin(epoch.clone(), self.my_pe()) {
            // The low 32 bits are part of the stamps of handles, which should differ between epochs.
            *rushmem_base::lock(&self.collectives) = u64::from(epoch.number) << 24;
            self.teams.begin_epoch(epoch.number);
        }
        self.teams.reclaim(&epoch.pes);
        let entered = self.greet(epoch).and_then(|()| match self.living_team() {
            Some(_) => Ok(()),
            None => {
                let team = self.team_from_pes(&epoch.pes, TeamConfig::new())?;
                self.membership.set_team(team);
                Ok(())
            }
        });
        match entered {
            // Members that have made the team learn of the loss by their next call.
            Err(Error::PeerLost(lost)) if lost.survivable => Ok(()),
            entered => entered,
        }
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
