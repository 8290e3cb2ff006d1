//! Who is in the job, as this PE knows it: losses, the last epoch, and the bits by which kernels learn of losses.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::offset_of;
use std::sync::{Arc, Mutex, Weak};

use rushmem_base::lock;
use rushmem_device::Team;
use rushmem_device::abi::{ControlPage, LOST_TEAMS};
use rushmem_fabric::queues::set_abort_word;
use rushmem_softnic::Memory;

use crate::Error;
use crate::bootstrap::{Epoch, PeerLost};

/// The membership of a job. Clones share it.
#[derive(Clone)]
pub(crate) struct Membership(Arc<Mutex<State>>);

struct State {
    /// The control page of the PE's kernels. Weak, because the thread that reports losses may outlive the PE.
    page: Weak<dyn Memory>,
    /// The first loss that the job does not survive.
    fatal: Option<PeerLost>,
    /// Losses that the job survives, by PE. Without PEs that another process has replaced since.
    lost: BTreeMap<u32, PeerLost>,
    /// The last loss of each PE that has been lost, replaced or not.
    past: BTreeMap<u32, PeerLost>,
    epoch: Option<Epoch>,
    /// For each replaced PE, the epoch in which its current process joined. Includes this PE if its process is a replacement.
    since: BTreeMap<u32, u32>,
    /// PEs of the epoch that have joined and that the others have not taken in yet, because of another loss. Equal on all PEs,
    /// but one that has just joined may know only of those that joined with it.
    joining: BTreeSet<u32>,
    /// Whether this process is a replacement whose program has not asked for the team yet.
    has_joined: bool,
    /// The team of the PEs of the epoch, once it exists.
    team: Option<Team>,
    /// The PE's teams, by slot.
    teams: HashMap<u32, Members>,
    /// The words of [`ControlPage::lost`] that are not zero, by index.
    words: BTreeMap<u32, u32>,
}

/// The members of a team.
struct Members {
    pes: Vec<u32>,
    /// The first member that was lost. The team stays unusable if another process replaces it.
    lost: Option<u32>,
    /// Whether the team was that of all PEs of an epoch.
    is_of_epoch: bool,
}

impl Membership {
    pub(crate) fn new(page: &Arc<dyn Memory>) -> Self {
        Self(Arc::new(Mutex::new(State {
            page: Arc::downgrade(page),
            fatal: None,
            lost: BTreeMap::new(),
            past: BTreeMap::new(),
            epoch: None,
            since: BTreeMap::new(),
            joining: BTreeSet::new(),
            has_joined: false,
            team: None,
            teams: HashMap::new(),
            words: BTreeMap::new(),
        })))
    }

    /// Records a loss that the job does not survive, and aborts the waits of kernels.
    pub(crate) fn fail(&self, peer: PeerLost) {
        let page = {
            let mut state = lock(&self.0);
            // First the cause: whoever sees the abort word must find it.
            state.fatal.get_or_insert(peer);
            state.page.upgrade()
        };
        if let Some(page) = page {
            set_abort_word(&*page);
        }
    }

    /// Records the loss of PE `pe`, which the job survives, and interrupts the waits of kernels that need it.
    pub(crate) fn lose(&self, pe: u32, peer: PeerLost) {
        lock(&self.0).lose(pe, peer);
    }

    /// Records the members of a team that this PE has joined.
    pub(crate) fn add_team(&self, team: Team, pes: &[u32]) {
        let mut state = lock(&self.0);
        let lost = pes.iter().copied().find(|pe| state.lost.contains_key(pe));
        state.set(LOST_TEAMS + team.slot(), lost.is_some());
        state.teams.insert(team.slot(), Members { pes: pes.to_vec(), lost, is_of_epoch: false });
    }

    /// Starts an epoch that contains this PE, `me`. All earlier losses are known. Returns whether its members differ from the last
    /// one's.
    pub(crate) fn begin(&self, epoch: Epoch, me: u32) -> bool {
        let mut state = lock(&self.0);
        let before = state.epoch.take();
        if epoch.joined.contains(&me) {
            // The lost PE that this process replaces was a member of all predefined teams of this PE.
            state.end_teams_of(me);
        }
        let is_out = |pe: &u32| epoch.pes.binary_search(pe).is_err();
        let others = before.as_ref().map_or(state.all_pes(), |epoch| epoch.pes.clone());
        for pe in others.into_iter().filter(is_out) {
            if !state.lost.contains_key(&pe) {
                // It has finished, or was lost before this process joined.
                let reason = "it did not form the epoch".into();
                state.lose(pe, PeerLost { pe: Some(pe), reason, exit: None, survivable: true });
            }
        }
        for &pe in &epoch.joined {
            state.lost.remove(&pe);
            state.since.insert(pe, epoch.number);
        }
        state.joining.extend(&epoch.joined);
        state.joining.retain(|pe| !is_out(pe));
        let is_same = |before: &Epoch| before.pes == epoch.pes && epoch.joined.is_empty();
        let differs = !before.as_ref().is_some_and(is_same);
        if differs {
            state.team = (epoch.number == 1).then_some(Team::WORLD);
        }
        state.epoch = Some(epoch);
        differs
    }

    /// Returns the PEs that have joined and that the others have yet to take in.
    pub(crate) fn joining(&self) -> BTreeSet<u32> {
        lock(&self.0).joining.clone()
    }

    /// Allows kernels to reach the PEs that have joined, unless they were lost again.
    pub(crate) fn admit_joining(&self) {
        let mut state = lock(&self.0);
        for pe in std::mem::take(&mut state.joining) {
            if !state.lost.contains_key(&pe) {
                state.set(pe, false);
            }
        }
    }

    pub(crate) fn set_joined(&self) {
        lock(&self.0).has_joined = true;
    }

    /// Returns whether this process is a replacement whose program has not asked for the team yet.
    pub(crate) fn has_joined(&self) -> bool {
        lock(&self.0).has_joined
    }

    /// Returns [`has_joined`](Self::has_joined), and records that the program has asked for the team.
    pub(crate) fn take_joined(&self) -> bool {
        std::mem::take(&mut lock(&self.0).has_joined)
    }

    pub(crate) fn set_team(&self, team: Team) {
        let mut state = lock(&self.0);
        state.team = Some(team);
        if let Some(members) = state.teams.get_mut(&team.slot()) {
            members.is_of_epoch = true;
        }
    }

    /// Returns whether the team in slot `slot` was that of all PEs of an epoch.
    pub(crate) fn is_of_epoch(&self, slot: u32) -> bool {
        lock(&self.0).teams.get(&slot).is_some_and(|members| members.is_of_epoch)
    }

    /// Returns the team of the PEs of the epoch, unless one of them is known to be lost.
    pub(crate) fn living_team(&self) -> Option<Team> {
        let state = lock(&self.0);
        let pes = &state.epoch.as_ref()?.pes;
        state.team.filter(|_| !pes.iter().any(|pe| state.lost.contains_key(pe)))
    }

    /// Returns the first loss that the job does not survive.
    pub(crate) fn fatal(&self) -> Option<PeerLost> {
        lock(&self.0).fatal.clone()
    }

    pub(crate) fn loss_of(&self, pe: u32) -> Option<PeerLost> {
        lock(&self.0).lost.get(&pe).cloned()
    }

    /// Returns the last loss of `pe`, which may have been replaced since.
    pub(crate) fn past_loss_of(&self, pe: u32) -> Option<PeerLost> {
        lock(&self.0).past.get(&pe).cloned()
    }

    /// Returns the survivable loss of the PE with the lowest number. PEs that were replaced since come later, and vacant ones last.
    pub(crate) fn any_loss(&self) -> Option<PeerLost> {
        let state = lock(&self.0);
        state.lost.values().chain(state.past.values()).min_by_key(|lost| lost.is_vacant()).cloned()
    }

    /// Returns the loss because of which a call of the host between the PEs `pes` fails: that of one of them or of another PE of
    /// the epoch, or one that the job does not survive.
    ///
    /// PEs of the epoch that are not in the call count, because another PE in it may already wait for the next epoch.
    pub(crate) fn lost_among(&self, pes: &[u32]) -> Option<PeerLost> {
        let state = lock(&self.0);
        let epoch = state.epoch.iter().flat_map(|epoch| &epoch.pes);
        let lost = || pes.iter().chain(epoch).find_map(|pe| state.lost.get(pe));
        state.fatal.as_ref().or_else(lost).cloned()
    }

    /// Returns the member of the team in slot `slot` that was lost first.
    pub(crate) fn lost_member(&self, slot: u32) -> Option<u32> {
        lock(&self.0).teams.get(&slot)?.lost
    }

    /// Returns the epoch in which the current processes of `pe` and of this PE, `me`, met.
    pub(crate) fn together_since(&self, pe: u32, me: u32) -> Option<u32> {
        let state = lock(&self.0);
        state.epoch.as_ref()?;
        [pe, me].map(|pe| state.since.get(&pe).copied().unwrap_or(1)).into_iter().max()
    }

    /// Returns the number of the last epoch.
    pub(crate) fn epoch(&self) -> Option<u32> {
        lock(&self.0).epoch.as_ref().map(|epoch| epoch.number)
    }

    /// Returns whether `pe` is in the last epoch. Before the first, all PEs are members.
    pub(crate) fn is_member(&self, pe: u32) -> bool {
        // In ascending order, see `Epoch`.
        lock(&self.0).epoch.as_ref().is_none_or(|epoch| epoch.pes.binary_search(&pe).is_ok())
    }
}

/// Returns the error for a job that cannot have live membership.
pub(crate) fn unsupported(why: &str) -> Error {
    Error::Unavailable { what: "live membership".into(), why: why.into() }
}

impl State {
    fn lose(&mut self, pe: u32, peer: PeerLost) {
        self.past.insert(pe, peer.clone());
        self.lost.insert(pe, peer);
        self.set(pe, true);
        self.end_teams_of(pe);
    }

    /// Marks the teams of `pe`, which was lost, as unusable.
    fn end_teams_of(&mut self, pe: u32) {
        let mut slots = Vec::new();
        for (slot, members) in self.teams.iter_mut().filter(|(_, members)| members.pes.contains(&pe)) {
            members.lost.get_or_insert(pe);
            slots.push(*slot);
        }
        slots.into_iter().for_each(|slot| self.set(LOST_TEAMS + slot, true));
    }

    fn all_pes(&self) -> Vec<u32> {
        self.teams.get(&Team::WORLD.slot()).map_or(Vec::new(), |world| world.pes.clone())
    }

    /// Sets or clears a bit of [`ControlPage::lost`].
    fn set(&mut self, bit: u32, value: bool) {
        let word = self.words.entry(bit / 32).or_default();
        let before = *word;
        *word = before & !(1 << (bit % 32)) | u32::from(value) << (bit % 32);
        if *word == before {
            return;
        }
        let Some(page) = self.page.upgrade() else { return };
        let at = offset_of!(ControlPage, lost) as u64 + u64::from(bit / 32) * 4;
        if let Err(error) = page.write(at, bytemuck::bytes_of(word)).and_then(|()| page.flush()) {
            tracing::error!("the kernels cannot be told of a loss: {error}");
        }
    }
}
