//! Buffers, tables and signals of a mixture-of-experts exchange, as its kernels access them.

use rushmem_device::prelude::*;

/// Rank stored for a (token, choice) pair that chose no expert.
pub(crate) const NO_RANK: u32 = u32::MAX;

/// PE stored for a warp lane that has no row to send.
pub(crate) const NO_PE: u32 = u32::MAX;

/// Indices of the words of PE state at the start of [`Buffers::words`].
pub mod state {
    /// Index of the word that holds the index of the last call that was started.
    pub const BEGUN: usize = 0;
    /// Index of the word that holds the index of the last call whose rows were all received.
    pub const RECEIVED: usize = 1;
    /// Index of the word that holds the index of the call in which the last fault occurred.
    pub const FAULT_CALL: usize = 2;
    /// Index of the word that holds the last fault, encoded by [`Fault::word`](super::Fault::word).
    pub const FAULT: usize = 3;
    /// Index of the word that counts the blocks of the running kernel that have finished their part.
    pub const FINISHED: usize = 4;
    /// Index of the word that holds the [bits](rushmem_device::Team::to_bits) of the team whose members take part.
    pub const TEAM: usize = 5;
    /// Index of the word that holds the index of the last call whose rows could not all be received.
    pub const FAILED: usize = 6;
    /// Index of the word that is 1 if a PE of the job has NIC peers, and 0 otherwise.
    pub const HAS_NIC_PEERS: usize = 7;
    /// Index of the word that holds the number of scratch words, which is that of the warps of the largest grid.
    pub const SCRATCH: usize = 8;
    /// Number of words of PE state.
    pub const WORDS: usize = 9;
}

/// Memory and sizes of a mixture-of-experts exchange, as a kernel argument. All rows consist of chunks of 16 bytes.
///
/// `inbox`, `records` and `back` have a row or record for each `[PE][token]`. This PE stores its tokens at the
/// same index here as on peers, so puts to NIC peers read them from here.
#[repr(C)]
#[derive(Clone, Copy, KernelArg)]
pub struct Buffers {
    /// State of this PE, followed by the signals of dispatch and of combine: see [`Buffers::arrived`].
    pub words: SymSlice<u64>,
    /// Tables (see [`Table`]) and ranks, followed by one scratch word per warp for [`ep_place`](crate::ep_place).
    pub tables: SymSlice<u32>,
    /// Dispatched rows, where their source PEs store them, `[source][token]`.
    pub inbox: SymSlice<u128>,
    /// The record of each token, `[source][token]`: its choices, their ranks and weights.
    pub records: SymSlice<u32>,
    /// Dispatched rows, where experts read them. If `gathers`, this is the inbox.
    pub rows: SymSlice<u128>,
    /// Position in the inbox of each row that an expert receives, sorted by expert.
    pub index: SymSlice<u32>,
    /// Partial sums that the PEs of the experts computed, `[PE][token]`.
    pub back: SymSlice<u128>,
    /// Partial sums to be sent to NIC peers, `[source][token]`. Without NIC peers, a single chunk.
    pub outbox: SymSlice<u128>,
    /// Maximum number of rows that the experts of a PE can get.
    pub max_rows: u32,
    /// Number of experts, over all PEs.
    pub experts: u32,
    /// Number of experts per PE.
    pub local_experts: u32,
    /// Number of elements per token.
    pub hidden: u32,
    /// Number of experts that each token chooses.
    pub top_k: u32,
    /// Maximum number of tokens per PE.
    pub tokens: u32,
    /// Number of 16-byte chunks per dispatched row.
    pub row_chunks: u32,
    /// 1 if dispatch quantizes to e4m3, otherwise 0.
    pub quantizes: u32,
    /// 1 if experts gather rows from the inbox by `index`, 0 if they read them from `rows` one after the other.
    pub gathers: u32,
    /// 1 if partial sums are in binary32, 0 if they are in bf16.
    pub wide_partials: u32,
    /// 1 if a PE of the job has NIC peers, otherwise 0.
    pub has_nic_peers: u32,
    /// Number of PEs in the job.
    pub n_pes: u32,
}

/// A table of row counts or row positions in [`Buffers::tables`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Table {
    /// This PE's row count for each expert, a word that marks a rejected call, and this PE's number of tokens.
    Counts,
    /// Index of the first row from each source PE for each local expert, `[local expert][source]`.
    From,
    /// Number of rows received by each local expert.
    Totals,
    /// Index of the first row of each local expert.
    Offsets,
    /// 1 for each PE that is masked, otherwise 0.
    Masked,
    /// The [`Counts`](Self::Counts) table of every PE, `[source]`.
    Matrix,
}

impl Buffers {
    /// Returns the length of a [`Table`] in words, given the number of experts. Only `Matrix` is longer: it has one
    /// such table per PE.
    pub const fn table_len(experts: u32) -> u32 {
        (experts + 2).next_multiple_of(4)
    }

    /// Returns the index in [`Buffers::tables`] of element `i` of a table.
    #[inline(always)]
    pub const fn at(&self, table: Table, i: u32) -> usize {
        (table as u32 * Self::table_len(self.experts) + i) as usize
    }

    /// Returns the index in [`Buffers::tables`] of the rank of a (token, choice) pair.
    #[inline(always)]
    pub const fn rank_at(&self, pair: u32) -> usize {
        self.at(Table::Matrix, self.n_pes * Self::table_len(self.experts) + pair)
    }

    /// Returns the index in [`Buffers::tables`] of scratch word `i`.
    #[inline(always)]
    pub const fn scratch_at(&self, i: u32) -> usize {
        self.rank_at(self.tokens * self.top_k + i)
    }

    /// Returns the index in [`Buffers::words`] of the signal that announces the rows of the PE `source`.
    #[inline(always)]
    pub const fn arrived(&self, source: u32) -> usize {
        state::WORDS + source as usize
    }

    /// Returns the index in [`Buffers::words`] of the signal that announces the partial sums of `pe`.
    #[inline(always)]
    pub const fn returned(&self, pe: u32) -> usize {
        self.arrived(self.n_pes + pe)
    }

    /// Returns the number of 16-byte chunks per partial sum.
    #[inline(always)]
    pub const fn partial_chunks(&self) -> u32 {
        if self.wide_partials != 0 { self.hidden / 4 } else { self.hidden / 8 }
    }
}

/// Input of a dispatch and its combine, as a kernel argument.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArg)]
pub struct Batch {
    /// Elements of the tokens in bf16, `[token][hidden]`.
    pub tokens: SymSlice<u128>,
    /// Expert chosen by each (token, choice) pair, `[token][choice]`; -1 for none.
    pub choices: SymSlice<i32>,
    /// Weight of each (token, choice) pair in the combined sum, `[token][choice]`.
    pub weights: SymSlice<f32>,
    /// Number of tokens in the batch.
    pub count: u64,
}

/// The reason why kernels rejected a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A (token, choice) pair chose an expert that does not exist.
    BadChoice {
        /// Index of the pair: `token * top_k + choice`.
        pair: u32,
        /// Index of the expert that the pair chose.
        expert: i32,
    },
    /// The rows for a PE exceed the capacity of its buffer.
    FullPe {
        /// Rank of the PE whose buffer is too small.
        pe: u32,
        /// Number of rows that the PE would receive.
        rows: u32,
    },
    /// Another PE rejected the dispatch.
    Refused {
        /// Rank of the PE that rejected the dispatch.
        pe: u32,
    },
}

impl Fault {
    /// Encodes the fault in a word for [`state::FAULT`].
    pub fn word(self) -> u64 {
        // Pair and PE have 23 bits each. Only a bad choice needs all bits of the value.
        let (kind, number, value) = match self {
            Self::BadChoice { pair, expert } => (1, pair, expert as u32),
            Self::FullPe { pe, rows } => (2, pe, rows),
            Self::Refused { pe } => (3, pe, 0),
        };
        kind << 56 | (number as u64 & 0xff_ffff) << 32 | value as u64
    }

    /// Decodes a fault that [`Fault::word`] encoded. Returns `None` if the word holds no fault.
    pub fn from_word(word: u64) -> Option<Self> {
        let (number, value) = ((word >> 32) as u32 & 0xff_ffff, word as u32);
        let pe = number;
        match word >> 56 {
            1 => Some(Self::BadChoice { pair: number, expert: value as i32 }),
            2 => Some(Self::FullPe { pe, rows: value }),
            3 => Some(Self::Refused { pe }),
            _ => None,
        }
    }
}

/// A PE's buffers, together with the context of the running kernel.
#[derive(Clone, Copy)]
pub(crate) struct Exchange<'a, 'k> {
    pub(crate) ctx: &'a Ctx<'k>,
    pub(crate) b: &'a Buffers,
    words: View<'k, u64>,
    pub(crate) tables: View<'k, u32>,
}

impl<'a, 'k> Exchange<'a, 'k> {
    #[inline(always)]
    pub(crate) fn new(ctx: &'a Ctx<'k>, b: &'a Buffers) -> Self {
        Self { ctx, b, words: ctx.local(b.words), tables: ctx.local(b.tables) }
    }

    #[inline(always)]
    pub(crate) fn state(self, word: usize) -> u64 {
        get(self.words, word)
    }

    #[inline(always)]
    pub(crate) fn set_state(self, word: usize, value: u64) {
        put(self.words, word, value);
    }

    #[inline(always)]
    pub(crate) fn table(self, table: Table, i: u32) -> u32 {
        get(self.tables, self.b.at(table, i))
    }

    #[inline(always)]
    pub(crate) fn set_table(self, table: Table, i: u32, value: u32) {
        put(self.tables, self.b.at(table, i), value);
    }

    #[inline(always)]
    pub(crate) fn rank(self, pair: u32) -> u32 {
        get(self.tables, self.b.rank_at(pair))
    }

    #[inline(always)]
    pub(crate) fn set_rank(self, pair: u32, rank: u32) {
        put(self.tables, self.b.rank_at(pair), rank);
    }

    /// Returns whether this PE neither sends to `pe` nor waits for it.
    #[inline(always)]
    pub(crate) fn is_masked(self, pe: u32) -> bool {
        self.table(Table::Masked, pe) != 0
    }

    /// Waits for the signals of all PEs that are not masked, from word `at` of [`Buffers::words`].
    #[inline(always)]
    pub(crate) fn await_signals(self, at: usize, call: u64) -> Result {
        let (first, n_pes) = (self.b.at(Table::Masked, 0), self.b.n_pes as usize);
        let masked = self.b.tables.slice(first..first + n_pes).cast::<i32>();
        let signals: SymSlice<Signal> = self.b.words.slice(at..at + n_pes);
        let signals = WaitWords::new(signals, Cmp::Ge, call).except(self.ctx.local(masked));
        let team = self.ctx.team_from_bits(self.state(state::TEAM)).ok_or(Error::BadTeam)?;
        self.ctx.wait_until_all_from(Block::current(), &signals, team)
    }

    /// Returns the number of rows that the PE `source` sends to an expert: none if it is masked.
    #[inline(always)]
    pub(crate) fn count(self, source: u32, expert: u32) -> u32 {
        let at = source * Buffers::table_len(self.b.experts) + expert;
        if self.is_masked(source) { 0 } else { self.table(Table::Matrix, at) }
    }

    /// Returns whether `pe` rejects the dispatch.
    #[inline(always)]
    pub(crate) fn is_marked(self, pe: u32, call: u64) -> bool {
        self.count(pe, self.b.experts) == call as u32
    }

    /// Returns the number of tokens in the batch of the PE `source`.
    #[inline(always)]
    pub(crate) fn tokens_of(self, source: u32) -> u32 {
        self.count(source, self.b.experts + 1).min(self.b.tokens)
    }

    /// Starts a dispatch; for its first kernel only. Returns the index of the new call.
    #[inline(always)]
    pub(crate) fn begin(self) -> u64 {
        let call = self.state(state::RECEIVED) + 1;
        if Thread::index() == 0 {
            self.set_state(state::BEGUN, call);
        }
        call
    }

    /// Returns the index of the current call; for all kernels after its first one.
    #[inline(always)]
    pub(crate) fn call(self) -> u64 {
        self.state(state::BEGUN)
    }

    /// Records that this PE rejects the dispatch, for the host.
    #[inline(always)]
    pub(crate) fn record(self, call: u64, fault: Fault) {
        self.set_state(state::FAULT, fault.word());
        self.set_state(state::FAULT_CALL, call);
    }

    /// Records that this PE rejects the dispatch because of a wrong choice, for the host and for all PEs.
    #[inline(always)]
    pub(crate) fn reject(self, call: u64, pair: u32, expert: i32) {
        self.record(call, Fault::BadChoice { pair, expert });
        self.set_table(Table::Counts, self.b.experts, call as u32);
    }

    /// Returns the PE that an expert is on.
    #[inline(always)]
    pub(crate) fn owner(self, expert: u32) -> u32 {
        expert.checked_div(self.b.local_experts).unwrap_or(NO_PE)
    }

    /// Returns the index in [`Table::From`] of a local expert and a source PE.
    #[inline(always)]
    pub(crate) fn index_in_from(self, local: u32, source: u32) -> u32 {
        local * self.b.n_pes + source
    }

    /// Returns the index of a token among those of all PEs, which orders `inbox`, `records`, `back` and `outbox`.
    #[inline(always)]
    pub(crate) fn token_at(self, pe: u32, token: u32) -> u32 {
        pe * self.b.tokens + token
    }

    /// Signals `value` to `pe` by word `word` of [`Buffers::words`] there.
    #[inline(always)]
    pub(crate) fn signal(self, word: usize, value: u64) -> SignalUpdate {
        let word: Sym<Signal> = self.b.words.at(word);
        word.set(value)
    }

    #[inline(always)]
    pub(crate) fn bf16_chunks(self) -> usize {
        self.b.hidden as usize / 8
    }
}

/// Returns element `i` of a view, or zero if `i` is out of bounds.
///
/// The explicit check lets the compiler remove the one in [`View::load`], with the call that reports the index. Kernels
/// with many such calls spill registers.
#[inline(always)]
pub(crate) fn get<T: Pod>(view: View<T>, i: usize) -> T {
    if i < view.len() { view.load(i) } else { T::zeroed() }
}

/// Stores element `i` of a view, or does nothing if `i` is out of bounds. See [`get`] for the reason.
#[inline(always)]
pub(crate) fn put<T: Pod>(view: View<T>, i: usize, value: T) {
    if i < view.len() {
        view.store(i, value);
    }
}

/// Stores element `i` of another PE's view, or does nothing if `i` is out of bounds. See [`get`] for the reason.
#[inline(always)]
pub(crate) fn put_remote<T: Pod>(view: RemoteView<T>, i: usize, value: T) {
    if i < view.len() {
        view.store(i, value);
    }
}
