//! The methods of [`Pe`] that create, translate and destroy teams.

use rushmem_device::Team;
use rushmem_error::call_site;

use super::Pe;
use crate::bootstrap::PeerLost;
use crate::teams::{Members, TeamCall, TeamConfig, TeamExchange, in_axis, strided};
use crate::{Error, Result};

/// # Teams
///
/// Calls that create or destroy a team are collective only over the PEs that their docs name.
impl Pe {
    /// Creates a team of the members `start + k * stride` of `parent`, for `k` in `0..size`, in that order. Collective
    /// over `parent`. OpenSHMEM 1.6 section 9.4, `shmem_team_split_strided`.
    ///
    /// PEs outside the new team get [`Team::INVALID`]. The stride may be negative, or zero if `size` is 1.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), rushmem::Error> {
    /// # rushmem::Job::new()?.run(|pe| {
    /// use rushmem::TeamConfig;
    /// use rushmem_device::Team;
    ///
    /// // The even PEs of the job.
    /// let size = pe.n_pes().div_ceil(2);
    /// let even = pe.team_split_strided(Team::WORLD, 0, 2, size, TeamConfig::new())?;
    /// pe.team_destroy(even)
    /// # })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::Misuse`] on all members of `parent` if a member does not exist, or if a new member is in too many
    ///   teams (setting `teams`).
    /// - [`Error::Mismatch`] if a PE passes other arguments.
    /// - [`Error::Absent`] if a PE never makes the call.
    /// - [`Error::PeerLost`] if a PE is lost.
    #[track_caller]
    pub fn team_split_strided(
        &self,
        parent: Team,
        start: u32,
        stride: i32,
        size: u32,
        config: TeamConfig,
    ) -> Result<Team> {
        let _site = call_site::enter();
        let call = format!("team_split_strided({start}, {stride}, {size}, {} contexts)", config.contexts);
        self.split(parent, "team_split_strided", &call, config, |me, parent| {
            let pes = strided(parent, start, stride, size)?;
            Ok(pes.contains(&me).then_some(pes))
        })
    }

    /// Creates teams of the rows and columns of `parent`. Returns this PE's row and its column. Collective over
    /// `parent`. OpenSHMEM 1.6 section 9.4, `shmem_team_split_2d`.
    ///
    /// The members are arranged row by row in a grid of width `width`. The last row may be shorter.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for a width of 0, or if a member is in too many teams (setting `teams`).
    /// - [`Error::Mismatch`], [`Error::Absent`] and [`Error::PeerLost`] from the message exchange between the members.
    #[track_caller]
    pub fn team_split_2d(
        &self,
        parent: Team,
        width: u32,
        row: TeamConfig,
        column: TeamConfig,
    ) -> Result<(Team, Team)> {
        let _site = call_site::enter();
        let axis = |rows: bool, config: TeamConfig| {
            let which = if rows { "row" } else { "column" };
            let call = format!("team_split_2d({width}, {which}, {} contexts)", config.contexts);
            self.split(parent, "team_split_2d", &call, config, |me, parent| {
                let at = parent.iter().position(|&pe| pe == me);
                match (at, width) {
                    (_, 0) => Err("a row has at least one member".into()),
                    (None, _) => Ok(None),
                    (Some(at), width) => Ok(Some(in_axis(parent, at, width as usize, rows))),
                }
            })
        };
        let row = axis(true, row)?;
        match axis(false, column) {
            Ok(column) => Ok((row, column)),
            Err(error) => {
                if matches!(error, Error::Misuse { .. }) {
                    // This error is the same on all members, so all of them destroy the row.
                    self.team_destroy(row)?;
                }
                Err(error)
            }
        }
    }

    /// Creates a team of the PEs `pes`, in this order. Collective over `pes`. NVSHMEM's `nvshmem_team_init`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if the list is empty, contains a PE twice or one that does not exist, or does not contain
    ///   this PE. Also if a member is in too many teams (setting `teams`).
    /// - [`Error::Mismatch`], [`Error::Absent`] and [`Error::PeerLost`] from the message exchange between the members.
    #[track_caller]
    pub fn team_from_pes(&self, pes: &[u32], config: TeamConfig) -> Result<Team> {
        let _site = call_site::enter();
        const CALL: &str = "team_from_pes";
        let misuse = |what| Err(Error::misuse(CALL, what));
        let mut seen = vec![false; self.n_pes() as usize];
        for &pe in pes {
            self.check_pe(CALL, pe)?;
            if std::mem::replace(&mut seen[pe as usize], true) {
                return misuse(format!("PE {pe} is named twice"));
            }
        }
        if !seen[self.my_pe() as usize] {
            return misuse(format!("PE {} is not one of {pes:?}", self.my_pe()));
        }
        let key = self.teams.next_key(pes);
        let text = format!("team_from_pes({pes:?}, {} contexts)", config.contexts);
        let call = TeamCall { name: CALL, text: &text, key: &key, config };
        let made = self
            .teams
            .make(&self.exchange(pes, &|| self.membership.lost_among(pes)), &call, || Ok(Some(pes.to_vec())));
        made.inspect(|team| self.watch_team(*team))
    }

    /// Destroys a team. Collective over its members. OpenSHMEM 1.6 section 9.4, `shmem_team_destroy`.
    ///
    /// Kernels must not use the team any more. The call is local if a member is lost, also during the call, and for teams that
    /// [`Pe::shrink`] and [`Pe::grow`] have returned. Does nothing for [`Team::INVALID`] and the predefined teams.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if the team has already been destroyed.
    /// - [`Error::Mismatch`], [`Error::Absent`] and [`Error::PeerLost`] from the message exchange between the members.
    #[track_caller]
    pub fn team_destroy(&self, team: Team) -> Result<()> {
        let _site = call_site::enter();
        self.wait_for_dropped();
        const CALL: &str = "team_destroy";
        if !team.is_valid() || team.slot() < Team::PREDEFINED {
            return Ok(());
        }
        let (pes, key) = self.teams.next_call(CALL, team)?;
        let has_lost_member = || self.membership.lost_member(team.slot()).is_some();
        // Some members may have got the team of an epoch that others have not.
        let destroyed = if has_lost_member() || self.membership.is_of_epoch(team.slot()) {
            self.teams.discard(team)
        } else {
            let lost = || self.membership.lost_among(&pes);
            match self.teams.destroy(&self.exchange(&pes, &lost), &key, team) {
                Err(Error::PeerLost(_)) if has_lost_member() => self.teams.discard(team),
                destroyed => destroyed,
            }
        };
        destroyed.inspect(|()| self.watch.remove_team(team))
    }

    /// Returns this PE's number in `team`, or `None` if this PE has no such team. OpenSHMEM 1.6 section 9.4,
    /// `shmem_team_my_pe`.
    pub fn team_my_pe(&self, team: Team) -> Option<u32> {
        self.teams.number(team, self.my_pe())
    }

    /// Returns the number of members of `team`, or `None` if the team does not exist. OpenSHMEM 1.6 section 9.4,
    /// `shmem_team_n_pes`.
    pub fn team_n_pes(&self, team: Team) -> Option<u32> {
        self.teams.n_pes(team)
    }

    /// Returns the members of `team` as PE numbers, in team order, or `None` if the team does not exist.
    pub fn team_pes(&self, team: Team) -> Option<Vec<u32>> {
        self.teams.pes(team)
    }

    /// Translates member `index` of team `from` to its number in team `to`.
    ///
    /// Returns `None` if that PE is not in `to`, or if the member or one of the teams does not exist. OpenSHMEM 1.6
    /// section 9.4, `shmem_team_translate_pe`.
    pub fn team_translate_pe(&self, from: Team, index: u32, to: Team) -> Option<u32> {
        let pe = *self.teams.pes(from)?.get(index as usize)?;
        self.teams.number(to, pe)
    }

    /// Returns the configuration with which `team` was created, or `None` if the team does not exist. OpenSHMEM 1.6
    /// section 9.4, `shmem_team_get_config`.
    pub fn team_config(&self, team: Team) -> Option<TeamConfig> {
        self.teams.config(team)
    }

    /// Creates the teams into which `members_of` divides `parent`, and returns this PE's new team. Collective over
    /// `parent`.
    fn split(
        &self,
        parent: Team,
        name: &'static str,
        text: &str,
        config: TeamConfig,
        members_of: impl Fn(u32, &[u32]) -> Result<Members, String>,
    ) -> Result<Team> {
        let (pes, key) = self.teams.next_call(name, parent)?;
        let call = TeamCall { name, text, key: &key, config };
        let members = || members_of(self.my_pe(), &pes);
        let made =
            self.teams.make(&self.exchange(&pes, &|| self.membership.lost_among(&pes)), &call, members);
        made.inspect(|team| self.watch_team(*team))
    }

    /// Registers a new team with the sanitizer and with the report of what kernels are waiting for.
    fn watch_team(&self, team: Team) {
        if let Some(members) = self.teams.pes(team) {
            self.watch.add_team(team, &members);
            self.waits.known.add_team(team, &members);
            self.membership.add_team(team, &members);
        }
    }

    fn exchange<'a>(&'a self, pes: &'a [u32], lost: &'a dyn Fn() -> Option<PeerLost>) -> TeamExchange<'a> {
        let within = self.config().bootstrap_timeout;
        TeamExchange { bootstrap: self.bootstrap(), inbox: self.teams.inbox(), lost, within, pes }
    }
}
