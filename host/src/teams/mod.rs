//! The host calls that make, translate and end teams.
//!
//! Those who make a team agree on a slot of their tables that is free on all its members, so that the team's words lie
//! at the same offset of each member's heap. They clear these words, and leave the call when all have done so: the
//! first kernel that uses the team finds them zero everywhere.

mod letters;
mod predefined;
mod table;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rushmem_device::Team;

use self::letters::{Circle, Part};
use crate::bootstrap::{Bootstrap, PeerLost};
use crate::pe::Pe;
use crate::{Error, Result};

pub(crate) use self::letters::Inbox;
pub(crate) use self::predefined::{Place, predefined};
pub(crate) use self::table::Table;

/// What a team was made with. OpenSHMEM 1.6 section 9.4, `shmem_team_config_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TeamConfig {
    /// Contexts that the program means to use for the team at once (`num_contexts`). Kept for the program to read:
    /// contexts are the PE's here, and every team works with each of them.
    pub contexts: u32,
}

impl TeamConfig {
    /// The configuration with nothing asked for.
    #[must_use]
    pub const fn new() -> Self {
        Self { contexts: 0 }
    }

    /// The configuration with this number of contexts.
    #[must_use]
    pub const fn contexts(mut self, contexts: u32) -> Self {
        self.contexts = contexts;
        self
    }
}

/// A team that this PE is in.
#[derive(Clone)]
struct Known {
    generation: u32,
    pes: Vec<u32>,
    config: TeamConfig,
    /// Calls that its members have made together.
    calls: u64,
}

/// The teams of a PE.
pub(crate) struct Teams {
    table: Table,
    inbox: Inbox,
    known: Mutex<State>,
}

struct State {
    slots: Vec<Option<Known>>,
    generation: u32,
    /// How often a team of just these PEs was made from a list.
    lists: HashMap<Vec<u32>, u64>,
}

/// The new team of a PE, out of those that a call makes: its members, or nothing for a PE outside of all.
type Members = Option<Vec<u32>>;

impl Teams {
    /// The teams at the start. `members` are those of the predefined ones.
    ///
    /// # Errors
    /// If the table cannot be written.
    pub(crate) fn new(
        table: Table,
        inbox: Inbox,
        slots: u32,
        me: u32,
        members: [Vec<u32>; Team::PREDEFINED as usize],
    ) -> Result<Self> {
        let mut known = vec![None; slots as usize];
        for (slot, pes) in members.into_iter().enumerate() {
            table.put(slot as u32, Team::WORLD.generation(), me, &pes)?;
            let config = TeamConfig::default();
            known[slot] = Some(Known { generation: Team::WORLD.generation(), pes, config, calls: 0 });
        }
        let state = State { slots: known, generation: Team::WORLD.generation(), lists: HashMap::new() };
        Ok(Self { table, inbox, known: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, team: Team) -> Option<Known> {
        self.lock().find(team).cloned()
    }
}

impl State {
    fn find(&mut self, team: Team) -> Option<&mut Known> {
        let known = self.slots.get_mut(team.slot() as usize)?.as_mut()?;
        (known.generation == team.generation()).then_some(known)
    }

    /// A bit for each slot that is free.
    fn free(&self) -> Vec<u64> {
        let bits = |slots: &[Option<Known>]| {
            (0..).zip(slots).fold(0, |bits, (i, slot)| bits | u64::from(slot.is_none()) << i)
        };
        self.slots.chunks(64).map(bits).collect()
    }
}

/// The lowest slot that is free in all.
fn common_slot<'a>(frees: impl Iterator<Item = &'a Vec<u64>>) -> Option<u32> {
    let common = frees.cloned().reduce(|a, b| a.iter().zip(b).map(|(a, b)| a & b).collect())?;
    let (at, bits) = (0..).zip(common).find(|(_, bits)| *bits != 0)?;
    Some(at * 64 + bits.trailing_zeros())
}

/// The members `start`, `start + stride`, ... of `parent`.
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

/// The PEs of `parent` that have this one's place in the given axis of a grid with rows of `width`.
fn in_axis(parent: &[u32], me: usize, width: usize, rows: bool) -> Vec<u32> {
    let same = |at: usize| if rows { at / width == me / width } else { at % width == me % width };
    parent.iter().enumerate().filter(|(at, _)| same(*at)).map(|(_, &pe)| pe).collect()
}

/// Teams. Every call that makes or ends one is collective over the PEs that it says, and over no others: with other
/// arguments than theirs, a PE is named in the error of all of them.
impl Pe {
    /// Makes a team of the members `start + k * stride` of `parent`, for `k` below `size`, in that order. Collective over
    /// `parent`; PEs outside of the new team get [`Team::INVALID`]. OpenSHMEM 1.6 section 9.4,
    /// `shmem_team_split_strided`.
    ///
    /// The stride may be negative, and zero if `size` is 1.
    ///
    /// # Errors
    /// [`Error::Misuse`] on all members of `parent` if that names a member that is not there, or if a member of the new
    /// team is in as many teams as the setting `teams` allows; [`Error::Mismatch`], [`Error::Absent`],
    /// [`Error::PeerLost`].
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

    /// Makes teams of the rows and columns of `parent`, whose members fill a grid with rows of `width` one row after
    /// another; the last row may be short. Collective over `parent`; every member gets its row, and its column.
    /// OpenSHMEM 1.6 section 9.4, `shmem_team_split_2d`.
    ///
    /// # Errors
    /// [`Error::Misuse`] for a width of 0, and for too many teams; others as [`Pe::team_split_strided`].
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
                    // As on all members.
                    self.team_destroy(row)?;
                }
                Err(error)
            }
        }
    }

    /// Makes a team of `pes`, in this order. Only they call it. NVSHMEM's `nvshmem_team_init`.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the list is empty, names a PE twice or one that is not there, or leaves this PE out; and for
    /// too many teams. Others as [`Pe::team_split_strided`].
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

    /// Ends a team. Collective over its members, whose kernels no longer use it. [`Team::INVALID`] and the predefined
    /// teams stay as they are. OpenSHMEM 1.6 section 9.4, `shmem_team_destroy`.
    ///
    /// # Errors
    /// [`Error::Misuse`] if it was destroyed before; [`Error::Mismatch`], [`Error::Absent`], [`Error::PeerLost`].
    pub fn team_destroy(&self, team: Team) -> Result<()> {
        const CALL: &str = "team_destroy";
        if !team.is_valid() || team.slot() < Team::PREDEFINED {
            return Ok(());
        }
        let (pes, key) = self.next_call(CALL, team)?;
        self.circle(&pes, &|| self.lost()).share(&key, self.part("team_destroy()".into()))?;
        self.teams.table.clear(team.slot())?;
        self.teams.lock().slots[team.slot() as usize] = None;
        Ok(())
    }

    /// This PE's number in the team; none if that is no team. OpenSHMEM 1.6 section 9.4, `shmem_team_my_pe`.
    pub fn team_my_pe(&self, team: Team) -> Option<u32> {
        self.number_in(team, self.my_pe())
    }

    /// Members of the team; none if that is no team. OpenSHMEM 1.6 section 9.4, `shmem_team_n_pes`.
    pub fn team_n_pes(&self, team: Team) -> Option<u32> {
        Some(self.teams.find(team)?.pes.len() as u32)
    }

    /// The PEs of the team in their order; none if that is no team.
    pub fn team_pes(&self, team: Team) -> Option<Vec<u32>> {
        Some(self.teams.find(team)?.pes)
    }

    /// The number in team `to` of what is member `index` of `from`; none if it is not in `to`, if there is no such
    /// member, or if one is no team. OpenSHMEM 1.6 section 9.4, `shmem_team_translate_pe`.
    pub fn team_translate_pe(&self, from: Team, index: u32, to: Team) -> Option<u32> {
        let pe = *self.teams.find(from)?.pes.get(index as usize)?;
        self.number_in(to, pe)
    }

    /// What the team was made with; none if that is no team. OpenSHMEM 1.6 section 9.4, `shmem_team_get_config`.
    pub fn team_config(&self, team: Team) -> Option<TeamConfig> {
        Some(self.teams.find(team)?.config)
    }

    fn number_in(&self, team: Team, pe: u32) -> Option<u32> {
        let at = self.teams.find(team)?.pes.iter().position(|&member| member == pe)?;
        Some(at as u32)
    }

    /// The PEs of `team`, and a key for their next call.
    fn next_call(&self, call: &'static str, team: Team) -> Result<(Vec<u32>, String)> {
        let mut state = self.teams.lock();
        match state.find(team) {
            None => Err(Error::Misuse { call, what: format!("{team:?} is no team, or has been destroyed") }),
            Some(known) => {
                known.calls += 1;
                Ok((known.pes.clone(), format!("{}.{}", known.generation, known.calls)))
            }
        }
    }

    /// Makes the teams into which `members_of` divides `parent`.
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

    /// Makes teams of some of `callers`, who all call. `members` are those of this PE's team.
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
        let circle = self.circle(callers, &lost);
        let parts = circle.share(key, self.part(call.into()))?;
        // The arguments are those of all, by now: all find the same wrong with them.
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
        // Whether all members have a slot is known to them alone.
        let fails = matches!(made, Some((None, _)));
        let verdict = Part { free: vec![u64::from(fails)], ..self.part(call.into()) };
        let verdicts = circle.share(&format!("{key}.made"), verdict)?;
        let mut state = self.teams.lock();
        state.generation = generation;
        if verdicts.iter().any(|part| part.free != [0]) {
            drop(state);
            if let Some(slot) = slot {
                self.teams.table.clear(slot)?;
            }
            let most = self.config().teams;
            return Err(misuse(format!(
                "a member is in {most} teams already, with the {} that are always there; destroy one, or raise \
                 RUSHMEM_TEAMS",
                Team::PREDEFINED
            )));
        }
        let (Some(slot), Some((_, pes))) = (slot, made) else { return Ok(Team::INVALID) };
        state.slots[slot as usize] = Some(Known { generation, pes, config, calls: 0 });
        // SAFETY: it is in the table of this PE, since just now.
        Ok(unsafe { Team::from_raw(slot, generation) })
    }

    fn part(&self, call: String) -> Part {
        let state = self.teams.lock();
        Part { call, free: state.free(), generation: state.generation }
    }

    fn circle<'a>(&'a self, pes: &'a [u32], lost: &'a dyn Fn() -> Option<PeerLost>) -> Circle<'a> {
        let (bootstrap, within): (&dyn Bootstrap, Duration) =
            (self.bootstrap(), self.config().bootstrap_timeout);
        Circle { bootstrap, inbox: &self.teams.inbox, lost, within, pes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_of_both_signs_and_none() {
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
    fn the_lowest_slot_that_all_have() {
        let slots = |frees: &[Vec<u64>]| common_slot(frees.iter());
        assert_eq!(slots(&[vec![0b1010, 0], vec![0b1100, 0]]), Some(3));
        assert_eq!(slots(&[vec![0b1010, 4], vec![0b0100, 6]]), Some(66));
        assert_eq!(slots(&[vec![1], vec![2]]), None);
    }
}
