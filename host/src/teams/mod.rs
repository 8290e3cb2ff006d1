//! Host calls that make, translate and destroy teams.
//!
//! The members of a new team agree on a slot that is free in all their team tables. So the team's words lie at the same
//! offset of each member's heap. Every member clears these words before any member leaves the call: the first kernel that
//! uses the team finds zeros everywhere.
#![allow(unsafe_code, reason = "makes the handle of a team from its slot")]

mod messages;
mod predefined;
mod table;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rushmem_base::lock;
use rushmem_device::Team;

use self::messages::{CallPart, TeamExchange};
use crate::bootstrap::{Bootstrap, PeerLost};
use crate::pe::Pe;
use crate::{Error, Result};

pub(crate) use self::messages::Inbox;
pub(crate) use self::predefined::{PeLocation, predefined};
pub(crate) use self::table::TeamTable;

/// The configuration of a team. OpenSHMEM 1.6 section 9.4, `shmem_team_config_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TeamConfig {
    /// The number of contexts that the program will use for the team at once (`num_contexts`).
    ///
    /// It is only stored, for [`Pe::team_config`]. Contexts belong to the PE, and every team works with each of them.
    pub contexts: u32,
}

impl TeamConfig {
    /// Returns a configuration without contexts.
    #[must_use]
    pub const fn new() -> Self {
        Self { contexts: 0 }
    }

    /// Returns the configuration with this number of contexts.
    #[must_use]
    pub const fn contexts(mut self, contexts: u32) -> Self {
        self.contexts = contexts;
        self
    }
}

/// A team that contains this PE.
#[derive(Clone)]
struct TeamEntry {
    generation: u32,
    pes: Vec<u32>,
    config: TeamConfig,
    /// The number of calls that its members have made together.
    calls: u64,
}

/// The teams of a PE.
pub(crate) struct Teams {
    table: TeamTable,
    inbox: Inbox,
    known: Mutex<TeamSlots>,
}

/// The slots of the team table, and the counters that name calls.
struct TeamSlots {
    slots: Vec<Option<TeamEntry>>,
    generation: u32,
    /// The number of teams made from each list of PEs.
    lists: HashMap<Vec<u32>, u64>,
}

/// The members of the new team that this PE joins, or `None` if it joins none.
type Members = Option<Vec<u32>>;

impl Teams {
    /// Returns the predefined teams with these members.
    ///
    /// # Errors
    /// - [`Error::Memory`] or [`Error::Cuda`] if the table cannot be written.
    pub(crate) fn new(
        table: TeamTable,
        inbox: Inbox,
        slots: u32,
        me: u32,
        members: [Vec<u32>; Team::PREDEFINED as usize],
    ) -> Result<Self> {
        let mut known = vec![None; slots as usize];
        for (slot, pes) in members.into_iter().enumerate() {
            table.put(slot as u32, Team::WORLD.generation(), me, &pes)?;
            let config = TeamConfig::default();
            known[slot] = Some(TeamEntry { generation: Team::WORLD.generation(), pes, config, calls: 0 });
        }
        let state = TeamSlots { slots: known, generation: Team::WORLD.generation(), lists: HashMap::new() };
        Ok(Self { table, inbox, known: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, TeamSlots> {
        lock(&self.known)
    }

    fn find(&self, team: Team) -> Option<TeamEntry> {
        self.lock().find(team).cloned()
    }
}

impl TeamSlots {
    fn find(&mut self, team: Team) -> Option<&mut TeamEntry> {
        let known = self.slots.get_mut(team.slot() as usize)?.as_mut()?;
        (known.generation == team.generation()).then_some(known)
    }

    /// Returns a bit for each slot that is free.
    fn free(&self) -> Vec<u64> {
        let bits = |slots: &[Option<TeamEntry>]| {
            (0..).zip(slots).fold(0, |bits, (i, slot)| bits | u64::from(slot.is_none()) << i)
        };
        self.slots.chunks(64).map(bits).collect()
    }
}

/// Returns the lowest slot that is free on all PEs.
fn common_slot<'a>(frees: impl Iterator<Item = &'a Vec<u64>>) -> Option<u32> {
    let common = frees.cloned().reduce(|a, b| a.iter().zip(b).map(|(a, b)| a & b).collect())?;
    let (at, bits) = (0..).zip(common).find(|(_, bits)| *bits != 0)?;
    Some(at * 64 + bits.trailing_zeros())
}

/// Returns the members `start`, `start + stride`, ... of `parent`.
fn strided(parent: &[u32], start: u32, stride: i32, size: u32) -> Result<Vec<u32>, String> {
    if size == 0 {
        return Err("a team has at least one member".into());
    }
    if stride == 0 && size > 1 {
        return Err(format!("a stride of 0 names one member, not {size}"));
    }
    let number = |k: u32| i64::from(start) + i64::from(k) * i64::from(stride);
    let member = |k| usize::try_from(number(k)).ok().and_then(|at| parent.get(at).copied());
    let inside = member(0).is_some() && member(size - 1).is_some();
    if !inside {
        let (last, n) = (number(size - 1), parent.len());
        return Err(format!("members {start} to {last} of a team of {n}"));
    }
    Ok((0..size).filter_map(member).collect())
}

/// Returns the PEs of `parent` in this PE's row or column of a grid with rows of `width`.
fn in_axis(parent: &[u32], me: usize, width: usize, rows: bool) -> Vec<u32> {
    let same = |at: usize| if rows { at / width == me / width } else { at % width == me % width };
    parent.iter().enumerate().filter(|(at, _)| same(*at)).map(|(_, &pe)| pe).collect()
}

/// Teams. Calls that make or destroy a team are collective over the PEs named in their docs, and over no others.
impl Pe {
    /// Makes a team of the members `start + k * stride` of `parent`, for `k` below `size`, in that order. Collective over
    /// `parent`. OpenSHMEM 1.6 section 9.4, `shmem_team_split_strided`.
    ///
    /// PEs outside the new team get [`Team::INVALID`]. The stride may be negative. It may be zero if `size` is 1.
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
    /// - [`Error::Misuse`] on all members of `parent` if a member does not exist, or a new member is in too many teams
    ///   (setting `teams`).
    /// - [`Error::Mismatch`] if a PE passes other arguments.
    /// - [`Error::Absent`] if a PE does not call.
    /// - [`Error::PeerLost`] if a PE died.
    pub fn team_split_strided(
        &self,
        parent: Team,
        start: u32,
        stride: i32,
        size: u32,
        config: TeamConfig,
    ) -> Result<Team> {
        let call = format!("team_split_strided({start}, {stride}, {size}, {} contexts)", config.contexts);
        self.split(parent, "team_split_strided", &call, config, |me, parent| {
            let pes = strided(parent, start, stride, size)?;
            Ok(pes.contains(&me).then_some(pes))
        })
    }

    /// Makes teams of the rows and columns of `parent`, and returns this PE's row and column. Collective over `parent`.
    /// OpenSHMEM 1.6 section 9.4, `shmem_team_split_2d`.
    ///
    /// The members fill a grid with rows of `width`, one row after another. The last row may be short.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for a width of 0, or if a member is in too many teams (setting `teams`).
    /// - [`Error::Mismatch`], [`Error::Absent`] and [`Error::PeerLost`] from the exchange with the other members.
    pub fn team_split_2d(
        &self,
        parent: Team,
        width: u32,
        row: TeamConfig,
        column: TeamConfig,
    ) -> Result<(Team, Team)> {
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
                    // All members fail alike.
                    self.team_destroy(row)?;
                }
                Err(error)
            }
        }
    }

    /// Makes a team of `pes`, in this order. Collective over `pes`. NVSHMEM's `nvshmem_team_init`.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if the list is empty, names a PE twice or a PE that does not exist, or leaves this PE out. Also if
    ///   a member is in too many teams (setting `teams`).
    /// - [`Error::Mismatch`], [`Error::Absent`] and [`Error::PeerLost`] from the exchange with the other members.
    pub fn team_from_pes(&self, pes: &[u32], config: TeamConfig) -> Result<Team> {
        const CALL: &str = "team_from_pes";
        let misuse = |what| Err(Error::Misuse { call: CALL, what });
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
        let nth = {
            let mut state = self.teams.lock();
            let nth = state.lists.entry(pes.to_vec()).or_default();
            *nth += 1;
            *nth
        };
        let call = format!("team_from_pes({pes:?}, {} contexts)", config.contexts);
        self.make(pes, &format!("{pes:?}.{nth}"), CALL, &call, config, || Ok(Some(pes.to_vec())))
    }

    /// Destroys a team. Collective over its members. OpenSHMEM 1.6 section 9.4, `shmem_team_destroy`.
    ///
    /// Kernels must not use the team any more. The call does nothing for [`Team::INVALID`] and the predefined teams.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if the team has been destroyed.
    /// - [`Error::Mismatch`], [`Error::Absent`] and [`Error::PeerLost`] from the exchange with the other members.
    pub fn team_destroy(&self, team: Team) -> Result<()> {
        const CALL: &str = "team_destroy";
        if !team.is_valid() || team.slot() < Team::PREDEFINED {
            return Ok(());
        }
        let (pes, key) = self.next_call(CALL, team)?;
        self.exchange(&pes, &|| self.lost()).share(&key, self.part("team_destroy()".into()))?;
        self.teams.table.clear(team.slot())?;
        self.teams.lock().slots[team.slot() as usize] = None;
        Ok(())
    }

    /// Returns this PE's number in the team, or `None` if the team does not exist. OpenSHMEM 1.6 section 9.4, `shmem_team_my_pe`.
    pub fn team_my_pe(&self, team: Team) -> Option<u32> {
        self.number_in(team, self.my_pe())
    }

    /// Returns the number of members, or `None` if the team does not exist. OpenSHMEM 1.6 section 9.4, `shmem_team_n_pes`.
    pub fn team_n_pes(&self, team: Team) -> Option<u32> {
        Some(self.teams.find(team)?.pes.len() as u32)
    }

    /// Returns the PEs of the team in their order, or `None` if the team does not exist.
    pub fn team_pes(&self, team: Team) -> Option<Vec<u32>> {
        Some(self.teams.find(team)?.pes)
    }

    /// Returns the number in team `to` of member `index` of `from`.
    ///
    /// Returns `None` if that PE is not in `to`, or if the member or one of the teams does not exist. OpenSHMEM 1.6 section 9.4, `shmem_team_translate_pe`.
    pub fn team_translate_pe(&self, from: Team, index: u32, to: Team) -> Option<u32> {
        let pe = *self.teams.find(from)?.pes.get(index as usize)?;
        self.number_in(to, pe)
    }

    /// Returns the configuration of the team, or `None` if the team does not exist. OpenSHMEM 1.6 section 9.4, `shmem_team_get_config`.
    pub fn team_config(&self, team: Team) -> Option<TeamConfig> {
        Some(self.teams.find(team)?.config)
    }

    fn number_in(&self, team: Team, pe: u32) -> Option<u32> {
        let at = self.teams.find(team)?.pes.iter().position(|&member| member == pe)?;
        Some(at as u32)
    }

    /// Returns the PEs of `team`, and a key for their next call.
    fn next_call(&self, call: &'static str, team: Team) -> Result<(Vec<u32>, String)> {
        let mut state = self.teams.lock();
        match state.find(team) {
            None => {
                Err(Error::Misuse { call, what: format!("{team:?} is not a team, or has been destroyed") })
            }
            Some(known) => {
                known.calls += 1;
                Ok((known.pes.clone(), format!("{}.{}", known.generation, known.calls)))
            }
        }
    }

    /// Makes the teams into which `members_of` divides `parent`. Collective over `parent`.
    fn split(
        &self,
        parent: Team,
        name: &'static str,
        call: &str,
        config: TeamConfig,
        members_of: impl Fn(u32, &[u32]) -> Result<Members, String>,
    ) -> Result<Team> {
        let (pes, key) = self.next_call(name, parent)?;
        self.make(&pes, &key, name, call, config, || members_of(self.my_pe(), &pes))
    }

    /// Makes teams of PEs in `callers`, which all call. `members` returns the members of this PE's new team.
    fn make(
        &self,
        callers: &[u32],
        key: &str,
        name: &'static str,
        call: &str,
        config: TeamConfig,
        members: impl FnOnce() -> Result<Members, String>,
    ) -> Result<Team> {
        let (me, lost) = (self.my_pe(), || self.lost());
        let exchange = self.exchange(callers, &lost);
        let parts = exchange.share(key, self.part(call.into()))?;
        // All PEs have passed the same arguments, so all find the same error.
        let misuse = |what| Error::Misuse { call: name, what };
        let members = members().map_err(misuse)?;
        let generation = parts.iter().map(|part| part.generation).max().unwrap_or(0) + 1;
        let made = members.map(|pes| {
            let part_of = |pe: &u32| Some(&parts[callers.iter().position(|caller| caller == pe)?].free);
            (common_slot(pes.iter().filter_map(part_of)), pes)
        });
        let slot = match &made {
            Some((Some(slot), pes)) => {
                self.teams.table.put(*slot, generation, me, pes)?;
                Some(*slot)
            }
            _ => None,
        };
        // Only the members know whether all of them have a free slot.
        let fails = matches!(made, Some((None, _)));
        let outcome = CallPart { free: vec![u64::from(fails)], ..self.part(call.into()) };
        let outcomes = exchange.share(&format!("{key}.made"), outcome)?;
        let mut state = self.teams.lock();
        state.generation = generation;
        if outcomes.iter().any(|part| part.free != [0]) {
            drop(state);
            if let Some(slot) = slot {
                self.teams.table.clear(slot)?;
            }
            let most = self.config().teams;
            return Err(misuse(format!(
                "a member is in {most} teams already, including {} predefined ones: destroy a team, or raise RUSHMEM_TEAMS",
                Team::PREDEFINED
            )));
        }
        let (Some(slot), Some((_, pes))) = (slot, made) else { return Ok(Team::INVALID) };
        state.slots[slot as usize] = Some(TeamEntry { generation, pes, config, calls: 0 });
        // SAFETY: the team has just been added to this PE's table.
        Ok(unsafe { Team::from_raw(slot, generation) })
    }

    fn part(&self, call: String) -> CallPart {
        let state = self.teams.lock();
        CallPart { call, free: state.free(), generation: state.generation }
    }

    fn exchange<'a>(&'a self, pes: &'a [u32], lost: &'a dyn Fn() -> Option<PeerLost>) -> TeamExchange<'a> {
        let (bootstrap, within): (&dyn Bootstrap, Duration) =
            (self.bootstrap(), self.config().bootstrap_timeout);
        TeamExchange { bootstrap, inbox: &self.teams.inbox, lost, within, pes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_may_be_positive_negative_or_zero() {
        let parent = [10, 11, 12, 13, 14];
        assert_eq!(strided(&parent, 0, 2, 3), Ok(vec![10, 12, 14]));
        assert_eq!(strided(&parent, 4, -2, 3), Ok(vec![14, 12, 10]));
        assert_eq!(strided(&parent, 3, 0, 1), Ok(vec![13]));
        assert_eq!(strided(&parent, 3, i32::MIN, 1), Ok(vec![13]));
        for (start, stride, size) in
            [(0, 2, 4), (1, -1, 3), (5, 1, 1), (0, 0, 2), (0, 1, 0), (0, i32::MAX, 3)]
        {
            assert!(strided(&parent, start, stride, size).is_err(), "{start} {stride} {size}");
        }
    }

    #[test]
    fn finds_the_lowest_common_slot() {
        let slots = |frees: &[Vec<u64>]| common_slot(frees.iter());
        assert_eq!(slots(&[vec![0b1010, 0], vec![0b1100, 0]]), Some(3));
        assert_eq!(slots(&[vec![0b1010, 4], vec![0b0100, 6]]), Some(66));
        assert_eq!(slots(&[vec![1], vec![2]]), None);
    }
}
