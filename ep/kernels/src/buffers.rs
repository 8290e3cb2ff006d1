//! Buffers, tables and signals of a mixture-of-experts exchange, as its kernels access them.

use rushmem_device::prelude::*;

/// Number of low bits of a signal word that hold a row count or row index. The higher bits hold the index of the call.
pub const WORD_COUNT_BITS: u32 = 24;

/// The bit of a signal word that says that its sender has rejected the call.
const REFUSED: u64 = 1 << (WORD_COUNT_BITS - 1);

/// Rank stored for a (token, choice) pair that chose no expert.
pub(crate) const NO_RANK: u32 = u32::MAX;

/// PE stored for a warp lane that has no row to send.
pub(crate) const NO_PE: u32 = u32::MAX;

/// PE stored for a row that goes to a NIC peer: the row is in a local buffer, the outbox or `back`.
pub(crate) const NIC_PE: u32 = u32::MAX - 1;

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
    /// Number of words of PE state.
    pub const WORDS: usize = 4;
}

/// Memory and sizes of a mixture-of-experts exchange, as a kernel argument. All rows consist of chunks of 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, KernelArg)]
pub struct Buffers {
    /// State of this PE, followed by the signals of dispatch, of combine, and of counts: see [`Buffers::arrived`].
    pub words: SymSlice<u64>,
    /// Tables (see [`Table`]) and ranks, followed by one scratch word per warp for [`ep_place`](crate::ep_place).
    pub tables: SymSlice<u32>,
    /// Dispatched rows, where their source PEs store them.
    pub inbox: SymSlice<u128>,
    /// Dispatched rows, where experts read them. In the throughput form, this is the inbox.
    pub rows: SymSlice<u128>,
    /// Dispatched rows to be sent to NIC peers, in the same order as `back`. Without NIC peers, a single chunk.
    pub outbox: SymSlice<u128>,
    /// Combined rows that the experts of NIC peers sent back. Without NIC peers, a single chunk.
    pub back: SymSlice<u128>,
    /// Maximum number of rows that an expert can get from one source PE.
    pub capacity: u32,
    /// Maximum number of rows that a PE can get.
    pub max_rows: u32,
    /// Number of experts, over all PEs.
    pub experts: u32,
    /// Number of experts per PE.
    pub local_experts: u32,
    /// Number of elements per token.
    pub hidden: u32,
    /// Number of experts that each token chooses.
    pub top_k: u32,
    /// Maximum number of (token, choice) pairs per PE.
    pub pairs: u32,
    /// Number of 16-byte chunks per dispatched row.
    pub row_chunks: u32,
    /// 1 if dispatch quantizes to e4m3, otherwise 0.
    pub quantizes: u32,
    /// Number of PEs in the job.
    pub n_pes: u32,
}

/// A table of row counts or row positions in [`Buffers::tables`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Table {
    /// This PE's row count for each expert, followed by a word that marks a rejected call.
    Counts,
    /// Index of this PE's first row for each expert in the inbox of the expert's PE, `[expert]`.
    To,
    /// Index of the first row from each expert in this PE's [`Buffers::back`], `[expert]`.
    BackFrom,
    /// Index of the first row from each source PE in [`Buffers::rows`], `[local expert][source]`.
    From,
    /// Index of the first row from each local expert in the source PE's [`Buffers::back`], `[local expert][source]`.
    BackTo,
    /// Number of rows received by each local expert.
    Totals,
    /// Index of the first row of each local expert in [`Buffers::rows`].
    Offsets,
    /// The [`Counts`](Self::Counts) table of every PE, `[source]`.
    Matrix,
}

impl Buffers {
    /// Returns the length of a [`Table`] in words, given the number of experts. Only `Matrix` is longer: it has one
    /// such table per PE.
    pub const fn table_len(experts: u32) -> u32 {
        (experts + 1).next_multiple_of(4)
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
        self.rank_at(self.pairs + i)
    }

    /// Returns the index in [`Buffers::words`] of the dispatch signal for a local expert and a source PE, where `word =
    /// local * n_pes + source`.
    #[inline(always)]
    pub const fn arrived(&self, word: u32) -> usize {
        state::WORDS + word as usize
    }

    /// Returns the index in [`Buffers::words`] of the combine signal of an expert.
    #[inline(always)]
    pub const fn returned(&self, expert: u32) -> usize {
        self.arrived(self.experts + expert)
    }

    /// Returns the index in [`Buffers::words`] of the signal that announces the row counts of the PE `source`.
    #[inline(always)]
    pub const fn met(&self, source: u32) -> usize {
        self.returned(self.experts + source)
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
    /// This PE has more rows for an expert than there is room for.
    FullExpert {
        /// Index of the expert that has no more room.
        expert: u32,
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
            Self::FullExpert { expert } => (2, 0, expert),
            Self::FullPe { pe, rows } => (3, pe, rows),
            Self::Refused { pe } => (4, pe, 0),
        };
        kind << 56 | (number as u64 & 0xff_ffff) << 32 | value as u64
    }

    /// Decodes a fault that [`Fault::word`] encoded. Returns `None` if the word holds no fault.
    pub fn from_word(word: u64) -> Option<Self> {
        let (number, value) = ((word >> 32) as u32 & 0xff_ffff, word as u32);
        let pe = number;
        match word >> 56 {
            1 => Some(Self::BadChoice { pair: number, expert: value as i32 }),
            2 => Some(Self::FullExpert { expert: value }),
            3 => Some(Self::FullPe { pe, rows: value }),
            4 => Some(Self::Refused { pe }),
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

    /// Returns the number of dispatch signals: one per (local expert, source).
    #[inline(always)]
    pub(crate) fn n_words(self) -> u32 {
        self.b.experts
    }

    /// Loads the signal with which a source PE announces its rows for a local expert.
    #[inline(always)]
    pub(crate) fn arrived(self, word: u32) -> u64 {
        get(self.words, self.b.arrived(word))
    }

    /// Loads the signal with which an expert announces that its rows can be combined.
    #[inline(always)]
    pub(crate) fn returned(self, expert: u32) -> u64 {
        get(self.words, self.b.returned(expert))
    }

    /// Returns how many rows the dispatch signal of index `word` announces.
    #[inline(always)]
    pub(crate) fn rows(self, word: u32) -> u32 {
        count_of(self.arrived(word))
    }

    /// Returns `count` of this PE's signals, starting with word `at` of [`Buffers::words`].
    #[inline(always)]
    pub(crate) fn signals(self, at: usize, count: u32) -> SymSlice<Signal> {
        self.b.words.slice(at..at + count as usize)
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

    /// Records that this PE rejects the dispatch, for the host and for later kernels.
    #[inline(always)]
    pub(crate) fn record(self, call: u64, fault: Fault) {
        self.set_state(state::FAULT, fault.word());
        self.set_state(state::FAULT_CALL, call);
    }

    /// Returns the PE that an expert runs on, and the index of the expert on that PE.
    #[inline(always)]
    pub(crate) fn owner(self, expert: u32) -> (u32, u32) {
        divided(expert, self.b.local_experts)
    }

    /// Returns the local expert and the source PE to which a dispatch signal belongs.
    #[inline(always)]
    pub(crate) fn expert_and_source(self, word: u32) -> (u32, u32) {
        divided(word, self.b.n_pes)
    }

    /// Returns the index of the dispatch signal for a local expert and a source PE.
    #[inline(always)]
    pub(crate) fn word(self, local: u32, source: u32) -> u32 {
        local * self.b.n_pes + source
    }

    #[inline(always)]
    pub(crate) fn bf16_chunks(self) -> usize {
        self.b.hidden as usize / 8
    }
}

/// Returns quotient and remainder, without a panic path. If `b` is 0, the quotient is 0.
#[inline(always)]
pub(crate) fn divided(a: u32, b: u32) -> (u32, u32) {
    let quotient = a.checked_div(b).unwrap_or(0);
    (quotient, a - quotient * b)
}

/// Returns `count` rows of `chunks` 16-byte chunks each, starting at row `first` of a buffer.
#[inline(always)]
pub(crate) fn rows_of(all: SymSlice<u128>, chunks: usize, first: u32, count: u32) -> SymSlice<u128> {
    let first = first as usize * chunks;
    all.slice(first..first + count as usize * chunks)
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

/// Returns the smallest value that a signal word can have in call `call`.
#[inline(always)]
pub(crate) fn word_of(call: u64) -> u64 {
    call << WORD_COUNT_BITS
}

/// Returns the signal word that tells a peer that this PE has rejected call `call`.
#[inline(always)]
pub(crate) fn refusal(call: u64) -> u64 {
    word_of(call) | REFUSED
}

/// Returns whether the sender of a signal word has rejected the call.
#[inline(always)]
pub(crate) fn is_refusal(word: u64) -> bool {
    word & REFUSED != 0
}

/// Returns the payload of a signal word: the number of rows in dispatch, the index of the first row in combine.
#[inline(always)]
pub(crate) fn count_of(word: u64) -> u32 {
    word as u32 & ((1 << WORD_COUNT_BITS) - 1)
}
