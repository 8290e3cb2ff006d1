//! Determines number, depth and memory layout of a PE's QPs.

use rushmem_config::{Config, CqKind, DoorbellRecord, Ordering, RelaxedOrdering, Switch};
use rushmem_device::Team;
use rushmem_device::abi::{DeviceState, PeerDesc, QpEntry, reserved, team_words};
use rushmem_error::{Error, Result};

use crate::provider::QUEUE_ALIGN;

pub(super) const WQEBB_BYTES: u64 = 64;
pub(super) const CQE_BYTES: u64 = 64;
/// Number of entries of a collapsed CQ. The NIC writes only the first, and does not check for overruns (`oi`).
const COLLAPSED_CQES: u64 = 4;
/// Default depth of the send queues in a job with few QPs, in basic blocks.
const MAX_DEFAULT_DEPTH: u64 = 1 << 10;
/// Smallest default depth, in basic blocks. Such a send queue fills one page and its CQ another, so a smaller depth
/// would save no memory.
const MIN_DEFAULT_DEPTH: u64 = QUEUE_ALIGN / WQEBB_BYTES;
/// Upper bound for the queues of all QPs of a PE, in bytes, if the settings do not specify a depth.
const AUTO_BYTES: u64 = 16 << 20;
/// Depth of the send queues used for flushes, in basic blocks. They have one WQE outstanding.
const FLUSH_DEPTH: u64 = 4;
/// Size of a doorbell record in bytes. It has a cache line to itself.
const RECORD_BYTES: u64 = 64;

/// Number, depth and ordering of a PE's QPs. Equal on all PEs of a job.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub n_pes: u32,
    /// Number of NICs per PE.
    pub rails: u32,
    /// Number of QP sets that all threads share. A set has one QP per PE.
    pub shared_sets: u32,
    pub block_sets: u32,
    pub exclusive_sets: u32,
    pub context_sets: u32,
    /// Number of DC initiators per QP set, which replace the QPs to each PE. 0 without the DC transport.
    dcis: u32,
    pub depth: u64,
    pub collapsed: bool,
    pub(super) ordering: Ordering,
    pub(super) relaxed_ordering: RelaxedOrdering,
    pub(super) record: DoorbellRecord,
    /// Whether connections that fail are replaced.
    pub failover: bool,
    /// Number of slots in the team table.
    pub teams: u32,
    /// Size of a team's scratch memory for collectives, in bytes.
    team_scratch: u64,
    /// Total size of a team's additional channels, in bytes.
    team_channels: u64,
    /// Limit for the queue memory of each PE, in bytes (setting `queue_memory`).
    budget: u64,
}

/// Returns the intended total size of each team's additional channels, in bytes.
///
/// With few PEs, calls of up to 4 KiB per channel then need a single exchange. With many PEs no size achieves that.
pub(super) fn grid_scratch(config: &Config, n_pes: u32) -> u64 {
    const FEW_PES: u32 = 16;
    let auto = if n_pes <= FEW_PES { 2624 << 10 } else { 256 << 10 };
    config.grid_scratch.0.map_or(auto, |bytes| bytes.0)
}

/// Offsets of one QP's queues and doorbell records in the queue memory, in bytes.
pub(super) struct QueueLayout {
    pub(super) sq: u64,
    pub(super) cq: u64,
    pub(super) sq_record: u64,
    pub(super) cq_record: u64,
}

impl Shape {
    /// Returns the shape of the queues for a job of `n_pes` PEs.
    ///
    /// Unless the settings specify a depth, it depends on the number of QPs: jobs of many PEs get short queues.
    pub fn new(config: &Config, n_pes: u32) -> Self {
        let deepest = Self {
            n_pes,
            rails: config.nics_per_pe.get(),
            shared_sets: config.qps_per_peer.get(),
            block_sets: config.block_qps,
            exclusive_sets: config.exclusive_qps,
            context_sets: config.context_qps,
            dcis: if config.dc_above.0.is_some_and(|most| n_pes > most) { config.dcis.get() } else { 0 },
            depth: MAX_DEFAULT_DEPTH,
            collapsed: config.cq == CqKind::Collapsed,
            ordering: config.ordering,
            relaxed_ordering: config.relaxed_ordering,
            // QPs of replaced connections share doorbell registers, which takes records.
            record: if config.failover == Switch::On { DoorbellRecord::On } else { config.doorbell_record },
            failover: config.failover == Switch::On,
            teams: config.teams.get().max(Team::PREDEFINED),
            team_scratch: config.team_scratch.0.max(team_words::min_scratch(n_pes)).next_multiple_of(256),
            team_channels: team_words::channels_bytes(grid_scratch(config, n_pes), n_pes),
            budget: config.queue_memory.0,
        };
        let depth = match config.sq_depth.0 {
            Some(depth) => depth.get().into(),
            None => deepest.fitting_depth(),
        };
        Self { depth, ..deepest }
    }

    /// Returns the largest depth at which the queues of all QPs fit into [`AUTO_BYTES`], but at least
    /// [`MIN_DEFAULT_DEPTH`].
    fn fitting_depth(self) -> u64 {
        let fits = |depth: &u64| Self { depth: *depth, ..self }.qp_memory() <= self.budget.min(AUTO_BYTES);
        let depths = std::iter::successors(Some(self.depth), |depth| Some(depth / 2));
        depths.take_while(|&depth| depth > MIN_DEFAULT_DEPTH).find(fits).unwrap_or(MIN_DEFAULT_DEPTH)
    }

    /// Checks that the queues of all QPs fit into the setting `queue_memory`, so that no QP lacks memory when it is
    /// created.
    ///
    /// # Errors
    /// [`Error::QueueMemory`] if they do not.
    pub fn check(&self) -> Result<()> {
        let (qps, depth, needed, limit) = (self.qps(), self.depth, self.qp_memory(), self.budget);
        if needed <= limit { Ok(()) } else { Err(Error::QueueMemory { qps, depth, needed, limit }) }
    }

    /// Returns the size of the queues of all QPs, in bytes.
    fn qp_memory(&self) -> u64 {
        self.qps().saturating_mul(self.slot_bytes())
    }

    /// Returns the shape for a single QP of the same depth, connected to the PE itself.
    pub(super) fn of_one_qp(self) -> Self {
        Self {
            n_pes: 1,
            rails: 1,
            shared_sets: 1,
            block_sets: 0,
            exclusive_sets: 0,
            context_sets: 0,
            dcis: 0,
            ..self
        }
    }

    /// Returns this shape for send queues with doorbell records.
    pub(super) fn with_records(self) -> Self {
        Self { record: DoorbellRecord::On, ..self }
    }

    /// Returns the shape of the queues used for flushes, through which a NIC reads its own PE's memory.
    pub(super) fn of_flush(self) -> Self {
        Self { depth: FLUSH_DEPTH, ..self.of_one_qp() }
    }

    /// Returns the size of the memory used for flushes on each rail, in bytes. It includes a page for the words that
    /// READs return.
    pub(super) fn flush_bytes(&self) -> u64 {
        self.of_flush().rail_bytes() + QUEUE_ALIGN
    }

    /// Returns the number of QPs that kernels may use. Each is created on first use.
    pub fn qps(&self) -> u64 {
        self.sets() * u64::from(self.set_qps())
    }

    /// Returns the number of entries in the QP table: one for each PE in each QP set.
    pub(super) fn entries(&self) -> u64 {
        self.sets() * u64::from(self.n_pes)
    }

    fn sets(&self) -> u64 {
        (self.other_sets() + u64::from(self.context_sets)) * u64::from(self.rails)
    }

    /// Returns the number of QPs in a QP set. They have the first entries of the set in the QP table.
    pub(super) fn set_qps(&self) -> u32 {
        if self.is_dc() { self.dcis.min(self.n_pes) } else { self.n_pes }
    }

    /// Returns whether the job uses the DC transport.
    pub fn is_dc(&self) -> bool {
        self.dcis != 0
    }

    /// Returns which QP of a QP set serves `pe`, as an index within the set.
    pub(super) fn qp_of(&self, pe: u32) -> u32 {
        pe % self.set_qps()
    }

    /// Returns the size of a WQE in basic blocks, except for the 64-bit masked compare-and-swap.
    pub(super) fn wqe_blocks(&self) -> u16 {
        // With its address vector, a DC WQE does not fit into one block.
        if self.is_dc() { 2 } else { 1 }
    }

    /// Returns the number of QP sets per rail that do not belong to contexts. The sets of contexts come after them.
    fn other_sets(&self) -> u64 {
        u64::from(self.shared_sets) + u64::from(self.block_sets) + u64::from(self.exclusive_sets)
    }

    /// Returns the index of the first QP set of context `index`. A context has one set per rail.
    pub fn context_set(&self, index: u32) -> u32 {
        (self.other_sets() as u32 + index) * self.rails
    }

    /// Returns the range of QP table entries that belong to context `index`.
    pub fn context_qps(&self, index: u32) -> std::ops::Range<usize> {
        let first = self.context_set(index) as usize * self.n_pes as usize;
        first..first + self.rails as usize * self.n_pes as usize
    }

    /// Returns the number of QPs per rail.
    pub(super) fn rail_slots(&self) -> u64 {
        self.qps() / u64::from(self.rails)
    }

    /// Returns the number of slots in a rail's queue memory: one per QP, but at least the two that the probe needs.
    pub(super) fn rail_queues(&self) -> u64 {
        self.rail_slots().max(2)
    }

    /// Returns the shape of the queues for replaced connections: two for each QP, used alternately.
    pub(super) fn of_spares(self) -> Self {
        Self { shared_sets: 2 * self.entries() as u32, ..self.of_one_qp() }
    }

    /// Returns the number of bytes at the start of the heap that the runtime reserves for itself.
    pub fn reserved(&self) -> u64 {
        let of_team = self.team_bytes().saturating_add(self.team_channels);
        reserved::bytes(self.qps(), self.depth, u64::from(self.teams).saturating_mul(of_team))
    }

    /// Returns the heap offset of the words of the first team slot.
    pub fn team_words(&self) -> u64 {
        reserved::teams(self.qps(), self.depth)
    }

    /// Returns the size of a team slot in the heap, in bytes: its words and its scratch memory.
    pub fn team_bytes(&self) -> u64 {
        team_words::scratch(self.n_pes).saturating_add(self.team_scratch)
    }

    /// Returns the heap offset of the additional channels of team slot `slot`, and their total size in bytes. They come
    /// after the words of all teams.
    pub fn team_channels(&self, slot: u32) -> (u64, u64) {
        let of_others = u64::from(slot) * self.team_channels;
        (self.team_words() + u64::from(self.teams) * self.team_bytes() + of_others, self.team_channels)
    }

    pub(super) fn log_depth(&self) -> u8 {
        self.depth.trailing_zeros() as u8
    }

    /// Returns the size of all memory that the runtime reserves for a PE, in bytes: queues, the words that kernels
    /// update, and team memory.
    pub fn memory(&self) -> u64 {
        let spares = if self.failover { self.of_spares().rail_bytes() } else { 0 };
        let of_rail = self.rail_bytes().saturating_add(self.flush_bytes()).saturating_add(spares);
        let queues = u64::from(self.rails).saturating_mul(of_rail);
        queues.saturating_add(self.state_bytes()).saturating_add(self.reserved())
    }

    /// Offset of the QP table in the memory that kernels update, where it follows the state of the PE.
    pub(super) const QPS_AT: u64 = size_of::<DeviceState>() as u64;

    /// Returns the offset of entry `i` of the QP table in the memory that kernels update. The table is followed by the
    /// ready entries and busy words of all slots.
    pub(super) const fn entry_at(i: u64) -> u64 {
        Self::QPS_AT + i * size_of::<QpEntry>() as u64
    }

    /// Returns the offset of the peer descriptors, the last part of the memory that kernels update.
    pub(super) fn peers_at(&self) -> u64 {
        (Self::entry_at(self.entries()) + 2 * self.qps() * self.depth * 8).next_multiple_of(128)
    }

    /// Returns the size of the memory that kernels update, in bytes.
    pub(super) fn state_bytes(&self) -> u64 {
        self.peers_at() + u64::from(self.n_pes) * size_of::<PeerDesc>() as u64
    }

    /// Returns the memory used by one QP, in bytes: queues, doorbell records, ready entries, busy words and fetch
    /// slots.
    pub fn slot_bytes(&self) -> u64 {
        self.queue_bytes() + 2 * RECORD_BYTES + 3 * 8 * self.depth
    }

    /// Returns the size of a rail's queue memory in bytes: the queues of all slots, then their doorbell records.
    pub(super) fn rail_bytes(&self) -> u64 {
        (self.rail_queues() * (self.queue_bytes() + 2 * RECORD_BYTES)).next_multiple_of(QUEUE_ALIGN)
    }

    fn queue_bytes(&self) -> u64 {
        self.sq_bytes() + (self.cqes() * CQE_BYTES).next_multiple_of(QUEUE_ALIGN)
    }

    /// Returns the number of entries of each CQ. A collapsed CQ uses only the first of them.
    pub(super) fn cqes(&self) -> u64 {
        if self.collapsed { COLLAPSED_CQES } else { self.depth }
    }

    fn sq_bytes(&self) -> u64 {
        (self.depth * WQEBB_BYTES).next_multiple_of(QUEUE_ALIGN)
    }

    /// Returns the offsets of the queues in slot `slot`, relative to the start of the queue memory.
    ///
    /// Each queue starts on a page boundary, and the doorbell records of the slots share pages. Pages of a queue that
    /// is never used are never touched, and cost no memory.
    pub(super) fn place(&self, slot: u64) -> QueueLayout {
        let sq = slot * self.queue_bytes();
        let cq = sq + self.sq_bytes();
        let sq_record = self.rail_queues() * self.queue_bytes() + slot * 2 * RECORD_BYTES;
        QueueLayout { sq, cq, sq_record, cq_record: sq_record + RECORD_BYTES }
    }

    /// Returns the index of the rail that QP set `set` uses.
    pub(super) fn rail(&self, set: u64) -> usize {
        (set % u64::from(self.rails)) as usize
    }
}

impl std::fmt::Display for Shape {
    /// Formats the memory budget as one line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        write!(
            f,
            "{:.1} MiB for {} QPs of {} WQEs ({:.1} KiB each), made when used",
            mib(self.memory()),
            self.qps(),
            self.depth,
            self.slot_bytes() as f64 / 1024.0,
        )
    }
}
