//! Who is in the job, as this PE knows it: losses, the last epoch, and the bits by which kernels learn of losses.

use std::collections::{BTreeMap, HashMap};
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
    /// Losses that the job survives, by PE.
    lost: BTreeMap<u32, PeerLost>,
    epoch: Option<Epoch>,
    /// The team of the PEs of the epoch, once it exists.
    team: Option<Team>,
    /// Members of the PE's teams, by slot.
    teams: HashMap<u32, Vec<u32>>,
    /// The words of [`ControlPage::lost`] that are not zero, by index.
    words: BTreeMap<u32, u32>,
}

impl Membership {
    pub(crate) fn new(page: &Arc<dyn Memory>) -> Self {
        Self(Arc::new(Mutex::new(State {
            page: Arc::downgrade(page),
            fatal: None,
            lost: BTreeMap::new(),
            epoch: None,
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
        let is_lost = pes.iter().any(|pe| state.lost.contains_key(pe));
        state.teams.insert(team.slot(), pes.to_vec());
        state.set(LOST_TEAMS + team.slot(), is_lost);
    }

    pub(crate) fn begin(&self, epoch: Epoch) {
        let mut state = lock(&self.0);
        let before = state.epoch.take().map_or(Vec::new(), |epoch| epoch.pes);
        for pe in before.into_iter().filter(|pe| !epoch.pes.contains(pe)) {
            if !state.lost.contains_key(&pe) {
                // The thread that reports losses is late, and will replace the reason.
                let reason = "it did not form the epoch".into();
                state.lose(pe, PeerLost { pe: Some(pe), reason, exit: None, survivable: true });
            }
        }
        state.team = (epoch.number == 1).then_some(Team::WORLD);
        state.epoch = Some(epoch);
    }

    pub(crate) fn set_team(&self, team: Team) {
        lock(&self.0).team = Some(team);
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

    /// Returns the survivable loss of the PE with the lowest number.
    pub(crate) fn any_loss(&self) -> Option<PeerLost> {
        lock(&self.0).lost.values().next().cloned()
    }

    /// Returns the loss because of which a call between the PEs `pes` fails: that of one of them, or one that the job does
    /// not survive.
    pub(crate) fn lost_among(&self, pes: &[u32]) -> Option<PeerLost> {
        let state = lock(&self.0);
        let lost = || pes.iter().find_map(|pe| state.lost.get(pe));
        state.fatal.as_ref().or_else(lost).cloned()
    }

    /// Returns the first lost PE among the members of the team in slot `slot`.
    pub(crate) fn lost_member(&self, slot: u32) -> Option<u32> {
        let state = lock(&self.0);
        state.teams.get(&slot)?.iter().copied().find(|pe| state.lost.contains_key(pe))
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
        self.lost.insert(pe, peer);
        let slots = self.teams.iter().filter(|(_, pes)| pes.contains(&pe)).map(|(slot, _)| LOST_TEAMS + slot);
        let bits: Vec<u32> = std::iter::once(pe).chain(slots).collect();
        bits.into_iter().for_each(|bit| self.set(bit, true));
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
