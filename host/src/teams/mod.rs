//! The teams of a PE: the team table, and the agreement of members on a slot in it.
//!
//! The members of a new team agree on a slot that is free in all their team tables, so the team's words are at the same
//! heap offset on every member. Every member clears these words before any member returns from the call: the first
//! kernel that uses the team finds only zeros.
#![allow(unsafe_code, reason = "makes the handle of a team from its slot")]

mod members;
mod messages;
mod predefined;
mod table;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use rushmem_base::lock;
use rushmem_device::Team;

use self::messages::CallPart;
use crate::{Error, Result};

pub(crate) use self::members::{in_axis, strided};
pub(crate) use self::messages::{Inbox, TeamExchange};
pub(crate) use self::predefined::{PeLocation, predefined};
pub(crate) use self::table::{Channels, TeamTable};

/// The configuration of a team. OpenSHMEM 1.6 section 9.4, `shmem_team_config_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TeamConfig {
    /// Number of contexts that the program intends to use with the team at the same time (`num_contexts`).
    ///
    /// The value is only stored, for [`Pe::team_config`](crate::Pe::team_config). Contexts belong to the PE, and work
    /// with every team.
    pub contexts: u32,
}

impl TeamConfig {
    /// Creates a configuration without contexts.
    #[must_use]
    pub const fn new() -> Self {
        Self { contexts: 0 }
    }

    /// Sets the number of contexts that the program intends to use with the team.
    #[must_use]
    pub const fn contexts(mut self, contexts: u32) -> Self {
        self.contexts = contexts;
        self
    }
}

/// A slot of the team table with a team that contains this PE.
#[derive(Clone)]
struct TeamEntry {
    generation: u32,
    pes: Vec<u32>,
    channels: Channels,
    config: TeamConfig,
    /// Number of host calls so far that destroy the team or create teams from it. Equal on all members.
    calls: u64,
}

pub(crate) struct Teams {
    table: TeamTable,
    /// For each PE, the lowest rank on its node: see [`PeerMap::nodes`](rushmem_memory::p2p::PeerMap::nodes).
    nodes: Vec<u32>,
    inbox: Inbox,
    known: Mutex<TeamSlots>,
}

/// The slots of the team table, and the counters that identify team calls.
struct TeamSlots {
    slots: Vec<Option<TeamEntry>>,
    generation: u32,
    /// For each list of PEs, the number of teams created from it.
    lists: HashMap<Vec<u32>, u64>,
    /// Number of the membership's epoch. Part of all keys: PEs count the calls of an epoch alike, but not those that a
    /// loss has interrupted.
    epoch: u32,
}

/// The members of the new team that this PE joins, in team order. `None` if it joins none.
pub(crate) type Members = Option<Vec<u32>>;

/// A collective call that creates teams.
pub(crate) struct TeamCall<'a> {
    /// Name of the method, for errors.
    pub(crate) name: &'static str,
    /// Name and arguments of the call, which must be equal on all PEs.
    pub(crate) text: &'a str,
    /// Key of the message exchange. No other call of these PEs has the same key.
    pub(crate) key: &'a str,
    pub(crate) config: TeamConfig,
}

impl Teams {
    /// Creates the predefined teams. `members` contains the members of each, by slot.
    ///
    /// # Errors
    /// - [`Error::Memory`] or [`Error::Cuda`] if the table cannot be written.
    pub(crate) fn new(
        table: TeamTable,
        inbox: Inbox,
        slots: u32,
        (me, nodes): (u32, &[u32]),
        members: [Vec<u32>; Team::PREDEFINED as usize],
    ) -> Result<Self> {
        let mut known = vec![None; slots as usize];
        for (slot, pes) in members.into_iter().enumerate() {
            let generation = Team::WORLD.generation();
            let channels = table.put(slot as u32, generation, me, &pes, nodes)?;
            known[slot] =
                Some(TeamEntry { generation, pes, channels, config: TeamConfig::default(), calls: 0 });
        }
        let state =
            TeamSlots { slots: known, generation: Team::WORLD.generation(), lists: HashMap::new(), epoch: 0 };
        Ok(Self { table, nodes: nodes.to_vec(), inbox, known: Mutex::new(state) })
    }

    pub(crate) fn predefined(&self) -> impl Iterator<Item = (Team, Vec<u32>)> {
        let all = [Team::WORLD, Team::SHARED, Team::NODE, Team::RAIL];
        all.into_iter().filter_map(|team| Some((team, self.pes(team)?)))
    }

    fn lock(&self) -> MutexGuard<'_, TeamSlots> {
        lock(&self.known)
    }

    /// Returns what `part` reads from the team's entry, or `None` if the team does not exist.
    fn read<T>(&self, team: Team, part: impl FnOnce(&TeamEntry) -> T) -> Option<T> {
        self.lock().find(team).map(|entry| part(entry))
    }

    pub(crate) fn pes(&self, team: Team) -> Option<Vec<u32>> {
        self.read(team, |entry| entry.pes.clone())
    }

    /// Returns the number of `pe` in the team, or `None` if it is not a member.
    pub(crate) fn number(&self, team: Team, pe: u32) -> Option<u32> {
        let at = self.read(team, |entry| entry.pes.iter().position(|&member| member == pe))?;
        at.map(|at| at as u32)
    }

    pub(crate) fn n_pes(&self, team: Team) -> Option<u32> {
        self.read(team, |entry| entry.pes.len() as u32)
    }

    pub(crate) fn channels(&self, team: Team) -> Option<Channels> {
        self.read(team, |entry| entry.channels)
    }

    pub(crate) fn config(&self, team: Team) -> Option<TeamConfig> {
        self.read(team, |entry| entry.config)
    }

    pub(crate) fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// Returns the PEs in `team`, and a key for the next call that concerns the team.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if the team does not exist.
    pub(crate) fn next_call(&self, call: &'static str, team: Team) -> Result<(Vec<u32>, String)> {
        let mut state = self.lock();
        match state.find(team) {
            None => Err(Error::misuse(call, format!("{team:?} is not a team, or has been destroyed"))),
            Some(known) => {
                // Members make the calls of a team in the same order, so they count alike. The generation keeps teams
                // in the same slot apart.
                known.calls += 1;
                let (pes, call) = (known.pes.clone(), format!("{}.{}", known.generation, known.calls));
                Ok((pes, format!("{}{call}", epoch_prefix(state.epoch))))
            }
        }
    }

    /// Returns a key for the creation of the next team from exactly the PEs `pes`.
    pub(crate) fn next_key(&self, pes: &[u32]) -> String {
        let mut state = self.lock();
        let nth = state.lists.entry(pes.to_vec()).or_default();
        *nth += 1;
        let call = format!("{pes:?}.{nth}");
        format!("{}{call}", epoch_prefix(state.epoch))
    }

    /// Starts to count the calls of a new epoch, and drops the messages of earlier ones.
    pub(crate) fn begin_epoch(&self, number: u32) {
        {
            let mut state = self.lock();
            state.epoch = number;
            state.lists.clear();
            state.slots.iter_mut().flatten().for_each(|team| team.calls = 0);
        }
        self.inbox.retain(&epoch_prefix(number));
    }

    /// Creates teams of the PEs in `exchange`, all of which make the call `call`. `members` returns the members of this
    /// PE's new team.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if `members` fails, or a member is in too many teams.
    /// - [`Error::Mismatch`], [`Error::Absent`] and [`Error::PeerLost`] from the exchange.
    pub(crate) fn make(
        &self,
        exchange: &TeamExchange<'_>,
        call: &TeamCall<'_>,
        members: impl FnOnce() -> Result<Members, String>,
    ) -> Result<Team> {
        let parts = exchange.share(call.key, self.part(call.text))?;
        // All PEs have passed the same arguments, so all get the same error.
        let misuse = |what| Error::misuse(call.name, what);
        let members = members().map_err(misuse)?;
        // Newer than anything that a member knows, so a handle to an earlier team in the slot never matches.
        let generation = parts.iter().map(|part| part.generation).max().unwrap_or(0) + 1;
        let made = members.map(|pes| {
            let part_of = |pe: &u32| Some(&parts[exchange.pes.iter().position(|caller| caller == pe)?].free);
            (common_slot(pes.iter().filter_map(part_of)), pes)
        });
        let slot = match &made {
            Some((Some(slot), pes)) => {
                let channels =
                    self.table.put(*slot, generation, exchange.bootstrap.pe(), pes, &self.nodes)?;
                Some((*slot, channels))
            }
            _ => None,
        };
        // Members of other new teams cannot tell whether this team found a slot. The second exchange tells them; it
        // also keeps kernels from using the team before every member has cleared its words.
        let fails = matches!(made, Some((None, _)));
        let outcome = CallPart { free: vec![u64::from(fails)], ..self.part(call.text) };
        let outcomes = match exchange.share(&format!("{}.made", call.key), outcome) {
            Ok(outcomes) => outcomes,
            Err(error) => {
                // Other members may have the team, and may write to its words.
                if let (Some((slot, channels)), Some((_, pes))) = (slot, made) {
                    let config = call.config;
                    self.lock().slots[slot as usize] =
                        Some(TeamEntry { generation: DISCARDED, pes, channels, config, calls: 0 });
                }
                return Err(error);
            }
        };
        let mut state = self.lock();
        state.generation = generation;
        if outcomes.iter().any(|part| part.free != [0]) {
            let most = state.slots.len();
            drop(state);
            if let Some((slot, _)) = slot {
                self.table.clear(slot)?;
            }
            return Err(misuse(format!(
                "a member is in {most} teams already, including {} predefined ones: destroy a team, or raise \
                 RUSHMEM_TEAMS",
                Team::PREDEFINED
            )));
        }
        let (Some((slot, channels)), Some((_, pes))) = (slot, made) else { return Ok(Team::INVALID) };
        state.slots[slot as usize] =
            Some(TeamEntry { generation, pes, channels, config: call.config, calls: 0 });
        // SAFETY: the team has just been added to this PE's table.
        Ok(unsafe { Team::from_raw(slot, generation) })
    }

    /// Destroys a team, after all its members have made the call identified by `key`.
    ///
    /// # Errors
    /// - [`Error::Mismatch`], [`Error::Absent`] and [`Error::PeerLost`] from the exchange.
    pub(crate) fn destroy(&self, exchange: &TeamExchange<'_>, key: &str, team: Team) -> Result<()> {
        exchange.share(key, self.part("team_destroy()"))?;
        self.table.clear(team.slot())?;
        self.lock().slots[team.slot() as usize] = None;
        Ok(())
    }

    /// Discards a team without the other members. Its slot stays in use until it is [reclaimed](Self::reclaim): lost PEs, and members
    /// that have not discarded it yet, may still write to the team's words.
    ///
    /// # Errors
    /// - [`Error::Memory`] or [`Error::Cuda`] if the table cannot be written.
    pub(crate) fn discard(&self, team: Team) -> Result<()> {
        self.table.clear(team.slot())?;
        if let Some(known) = self.lock().find(team) {
            known.generation = DISCARDED;
        }
        Ok(())
    }

    /// Frees the slots of discarded teams whose members are all among `pes`, which have just formed an epoch: none of them uses the
    /// teams any more, and other processes have replaced the lost ones.
    pub(crate) fn reclaim(&self, pes: &[u32]) {
        for slot in self.lock().slots.iter_mut() {
            slot.take_if(|team| team.generation == DISCARDED && team.pes.iter().all(|pe| pes.contains(pe)));
        }
    }

    fn part(&self, call: &str) -> CallPart {
        let state = self.lock();
        CallPart { call: call.into(), free: state.free(), generation: state.generation }
    }
}

impl TeamSlots {
    fn find(&mut self, team: Team) -> Option<&mut TeamEntry> {
        let known = self.slots.get_mut(team.slot() as usize)?.as_mut()?;
        (known.generation == team.generation()).then_some(known)
    }

    /// Returns a bit set of the slots that are free in the team table.
    fn free(&self) -> Vec<u64> {
        let bits = |slots: &[Option<TeamEntry>]| {
            (0..).zip(slots).fold(0, |bits, (i, slot)| bits | u64::from(slot.is_none()) << i)
        };
        self.slots.chunks(64).map(bits).collect()
    }
}

/// Generation of the entry of a slot that is no longer used. No handle has it.
const DISCARDED: u32 = 0;

fn epoch_prefix(epoch: u32) -> String {
    format!("{epoch}/")
}

/// Returns the lowest slot that is free on all PEs, given the bit set of each PE's free slots.
fn common_slot<'a>(frees: impl Iterator<Item = &'a Vec<u64>>) -> Option<u32> {
    let common = frees.cloned().reduce(|a, b| a.iter().zip(b).map(|(a, b)| a & b).collect())?;
    let (at, bits) = (0..).zip(common).find(|(_, bits)| *bits != 0)?;
    Some(at * 64 + bits.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_lowest_common_slot() {
        let slots = |frees: &[Vec<u64>]| common_slot(frees.iter());
        assert_eq!(slots(&[vec![0b1010, 0], vec![0b1100, 0]]), Some(3));
        assert_eq!(slots(&[vec![0b1010, 4], vec![0b0100, 6]]), Some(66));
        assert_eq!(slots(&[vec![1], vec![2]]), None);
    }
}
