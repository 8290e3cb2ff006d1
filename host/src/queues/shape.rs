//! How many QPs there are, how deep, and what memory they take.

use rushmem_device::Team;
use rushmem_device::abi::{reserved, team_words};

use super::state::StateMap;
use crate::config::{Config, CqKind};
use crate::provider::QUEUE_ALIGN;

pub(super) const WQEBB_BYTES: u64 = 64;
pub(super) const CQE_BYTES: u64 = 64;
/// A doorbell record, alone in its line.
const RECORD_BYTES: u64 = 64;

/// How many QPs there are, and how deep. Equal on all PEs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) n_pes: u32,
    /// NICs of each PE.
    pub(crate) rails: u32,
    /// Sets of QPs, one QP to each PE in a set, that all threads share.
    pub(crate) shared_sets: u32,
    pub(crate) block_sets: u32,
    pub(crate) exclusive_sets: u32,
    pub(crate) context_sets: u32,
    pub(crate) depth: u64,
    pub(crate) collapsed: bool,
    /// Slots of the table of teams.
    pub(crate) teams: u32,
    /// Bytes of scratch that each team has.
    team_scratch: u64,
    /// Bytes that queues may take on each PE.
    budget: u64,
}

/// Where the queues of a slot lie in the queue memory.
pub(super) struct QueueLayout {
    pub(super) sq: u64,
    pub(super) cq: u64,
    pub(super) sq_record: u64,
    pub(super) cq_record: u64,
}

impl Shape {
    pub(crate) fn new(config: &Config, n_pes: u32) -> Self {
        Self {
            n_pes,
            rails: config.nics_per_pe.get(),
            shared_sets: config.qps_per_peer.get(),
            block_sets: config.block_qps,
            exclusive_sets: config.exclusive_qps,
            context_sets: config.context_qps,
            depth: config.sq_depth.get().into(),
            collapsed: config.cq == CqKind::Collapsed,
            teams: config.teams.get().max(Team::PREDEFINED),
            team_scratch: config.team_scratch.0.max(team_words::least_scratch(n_pes)).next_multiple_of(256),
            budget: config.queue_memory.0,
        }
    }

    /// QPs that kernels may use. They are made when they are used first.
    pub(crate) fn qps(&self) -> u64 {
        (self.other_sets() + u64::from(self.context_sets)) * u64::from(self.rails) * u64::from(self.n_pes)
    }

    /// Sets that are not of contexts, which come after them.
    fn other_sets(&self) -> u64 {
        u64::from(self.shared_sets) + u64::from(self.block_sets) + u64::from(self.exclusive_sets)
    }

    /// First of the sets of QPs of context `index`, of which it has one for each rail.
    pub(crate) fn context_set(&self, index: u32) -> u32 {
        (self.other_sets() as u32 + index) * self.rails
    }

    /// The QPs of context `index`.
    pub(crate) fn context_qps(&self, index: u32) -> std::ops::Range<usize> {
        let first = self.context_set(index) as usize * self.n_pes as usize;
        first..first + self.rails as usize * self.n_pes as usize
    }

    /// QPs that each rail has memory for, within the budget.
    pub(super) fn rail_slots(&self) -> u64 {
        let rails = u64::from(self.rails);
        (self.budget / self.slot_bytes() / rails).clamp(1, self.qps() / rails)
    }

    /// QPs that there is memory for.
    pub(crate) fn slots(&self) -> u64 {
        self.rail_slots() * u64::from(self.rails)
    }

    /// Bytes of the heap that the runtime keeps for itself.
    pub(crate) fn reserved(&self) -> u64 {
        reserved::bytes(self.slots(), self.depth, u64::from(self.teams).saturating_mul(self.team_bytes()))
    }

    /// Heap offset of the words of team slot 0.
    pub(crate) fn team_words(&self) -> u64 {
        reserved::teams(self.slots(), self.depth)
    }

    /// Bytes of heap that each team slot has: words, then scratch.
    pub(crate) fn team_bytes(&self) -> u64 {
        team_words::scratch(self.n_pes).saturating_add(self.team_scratch)
    }

    pub(super) fn log_depth(&self) -> u8 {
        self.depth.trailing_zeros() as u8
    }

    /// Bytes that queues take on a PE, with the words that kernels update.
    pub(crate) fn memory(&self) -> u64 {
        let queues = self.slots().saturating_mul(self.queue_bytes());
        queues.saturating_add(StateMap::bytes(self)).saturating_add(self.reserved())
    }

    /// Bytes that one QP takes: queues, end words, busy words, fetch slots.
    fn slot_bytes(&self) -> u64 {
        self.queue_bytes() + 3 * 8 * self.depth
    }

    /// Bytes of queue memory that one QP needs: SQ, CQ, and a line for each doorbell record.
    pub(super) fn queue_bytes(&self) -> u64 {
        self.sq_bytes() + (self.depth * CQE_BYTES + 2 * RECORD_BYTES).next_multiple_of(QUEUE_ALIGN)
    }

    fn sq_bytes(&self) -> u64 {
        (self.depth * WQEBB_BYTES).next_multiple_of(QUEUE_ALIGN)
    }

    /// Where the queues of slot `slot` lie in the queue memory.
    pub(super) fn place(&self, slot: u64) -> QueueLayout {
        let sq = slot * self.queue_bytes();
        let cq = sq + self.sq_bytes();
        let sq_record = cq + self.depth * CQE_BYTES;
        QueueLayout { sq, cq, sq_record, cq_record: sq_record + RECORD_BYTES }
    }

    /// Number of the rail that set `set` uses.
    pub(super) fn rail(&self, set: u64) -> usize {
        (set % u64::from(self.rails)) as usize
    }
}

impl std::fmt::Display for Shape {
    /// The memory budget, as a line for users.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        write!(
            f,
            "{:.1} MiB for {} of {} possible QPs of {} WQEs ({:.2} MiB each), made when used",
            mib(self.memory()),
            self.slots(),
            self.qps(),
            self.depth,
            mib(self.slot_bytes()),
        )
    }
}
