//! Memory of an exchange, as kernels see it.

use rushmem_device::prelude::*;

/// Low bits of a signal word, which hold the number of rows. The higher bits hold the index of the call.
pub const WORD_COUNT_BITS: u32 = 24;

/// The bit of a signal word that rejects a call.
const REFUSED: u64 = 1 << (WORD_COUNT_BITS - 1);

/// Rank of a pair without an expert.
pub(crate) const NO_RANK: u32 = u32::MAX;

/// PE of a lane without a row.
pub(crate) const NO_PE: u32 = u32::MAX;

/// PE of a row for any NIC peer: such rows are in a buffer of this PE.
pub(crate) const NIC_PE: u32 = u32::MAX - 1;

/// Indices of the first words in [`Buffers::words`].
pub mod state {
    /// Calls that were started.
    pub const BEGUN: usize = 0;
    /// Calls that were received.
    pub const RECEIVED: usize = 1;
    /// Index of the call to which the fault belongs.
    pub const FAULT_CALL: usize = 2;
    /// The fault: see [`Fault`](super::Fault).
    pub const FAULT: usize = 3;
    /// Number of words.
    pub const WORDS: usize = 4;
}

/// Memory and sizes of an exchange. All rows consist of chunks of 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, KernelArg)]
pub struct Buffers {
    /// State of this PE, followed by the signals of dispatch, of combine, and of counts: see [`Buffers::arrived`].
    pub words: SymSlice<u64>,
    /// Tables (see [`Table`]) and ranks, followed by scratch for [`ep_place`](crate::ep_place), a word per warp.
    pub tables: SymSlice<u32>,
    /// Rows as sources store them.
    pub inbox: SymSlice<u128>,
    /// Rows as experts read them. In the throughput form, this is the inbox.
    pub rows: SymSlice<u128>,
    /// Rows on their way to NIC peers, in the order of `back`. Without NIC peers, a single chunk.
    pub outbox: SymSlice<u128>,
    /// Rows that the experts of NIC peers sent back. Without NIC peers, a single chunk.
    pub back: SymSlice<u128>,
    /// Most rows that an expert can get from one source.
    pub capacity: u32,
    /// Most rows that a PE can get.
    pub max_rows: u32,
    /// Number of experts.
    pub experts: u32,
    /// Number of experts per PE.
    pub local_experts: u32,
    /// Elements per token.
    pub hidden: u32,
    /// Choices per token.
    pub top_k: u32,
    /// Most pairs per PE.
    pub pairs: u32,
    /// Chunks per dispatched row.
    pub row_chunks: u32,
    /// 1 if dispatch quantizes to e4m3, otherwise 0.
    pub quantizes: u32,
    /// Number of PEs.
    pub n_pes: u32,
}

/// A table in [`Buffers::tables`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Table {
    /// This PE's row count for each expert, followed by a word that marks a rejected call.
    Counts,
    /// This PE's first row in the inbox of each expert's PE, `[expert]`.
    To,
    /// First row of each expert in `back`, `[expert]`.
    BackFrom,
    /// First row of each source in `rows`, `[local expert][source]`.
    From,
    /// First row of each local expert in the `back` of a source, `[local expert][source]`.
    BackTo,
    /// Number of rows of each local expert.
    Totals,
    /// First row of each local expert in `rows`.
    Offsets,
    /// The `Counts` of all PEs, `[source]`.
    Matrix,
}

impl Buffers {
    /// Returns the length of a table. Only `Matrix` is longer: it has one such table per PE.
    pub const fn table_len(experts: u32) -> u32 {
        (experts + 1).next_multiple_of(4)
    }

    /// Returns the index of an element of a table.
    #[inline(always)]
    pub const fn at(&self, table: Table, i: u32) -> usize {
        (table as u32 * Self::table_len(self.experts) + i) as usize
    }

    /// Returns the index of the rank of a pair in [`Buffers::tables`].
    #[inline(always)]
    pub const fn rank_at(&self, pair: u32) -> usize {
        self.at(Table::Matrix, self.n_pes * Self::table_len(self.experts) + pair)
    }

    /// Returns the index of a scratch word.
    #[inline(always)]
    pub const fn scratch_at(&self, i: u32) -> usize {
        self.rank_at(self.pairs + i)
    }

    /// Returns the index of the dispatch signal of a (local expert, source), where `word = local * n_pes + source`.
    #[inline(always)]
    pub const fn arrived(&self, word: u32) -> usize {
        state::WORDS + word as usize
    }

    /// Returns the index of the combine signal of an expert.
    #[inline(always)]
    pub const fn returned(&self, expert: u32) -> usize {
        self.arrived(self.experts + expert)
    }

    /// Returns the index of the signal that announces the counts of a source.
    #[inline(always)]
    pub const fn met(&self, source: u32) -> usize {
        self.returned(self.experts + source)
    }
}

/// Input of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArg)]
pub struct Batch {
    /// Tokens in bf16, `[token][hidden]`.
    pub tokens: SymSlice<u128>,
    /// Expert of each pair, `[token][choice]`; -1 for none.
    pub choices: SymSlice<i32>,
    /// Weight of each pair, `[token][choice]`.
    pub weights: SymSlice<f32>,
    /// Number of tokens.
    pub count: u64,
}

/// The reason why a call was rejected, as recorded by kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A pair chose an expert that does not exist.
    BadChoice {
        /// Index of the pair.
        pair: u32,
        /// The expert.
        expert: i32,
    },
    /// There is no room for a pair of this PE at its expert.
    FullExpert {
        /// The expert.
        expert: u32,
    },
    /// The rows for a PE exceed its buffer.
    FullPe {
        /// The PE.
        pe: u32,
        /// How many rows it would get.
        rows: u32,
    },
    /// Another PE rejected the call.
    Refused {
        /// That PE.
        pe: u32,
    },
}

impl Fault {
    /// Encodes the fault in a word.
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

    /// Decodes the fault in a word, if there is one.
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

/// The buffers, together with the context of a kernel.
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

    /// Stores a word of the state.
    #[inline(always)]
    pub(crate) fn set_state(self, word: usize, value: u64) {
        put(self.words, word, value);
    }

    #[inline(always)]
    pub(crate) fn table(self, table: Table, i: u32) -> u32 {
        get(self.tables, self.b.at(table, i))
    }

    /// Stores an element of a table.
    #[inline(always)]
    pub(crate) fn set_table(self, table: Table, i: u32, value: u32) {
        put(self.tables, self.b.at(table, i), value);
    }

    #[inline(always)]
    pub(crate) fn rank(self, pair: u32) -> u32 {
        get(self.tables, self.b.rank_at(pair))
    }

    /// Stores the rank of a pair.
    #[inline(always)]
    pub(crate) fn set_rank(self, pair: u32, rank: u32) {
        put(self.tables, self.b.rank_at(pair), rank);
    }

    /// Returns the number of dispatch signals: one per (local expert, source).
    #[inline(always)]
    pub(crate) fn n_words(self) -> u32 {
        self.b.experts
    }

    /// Returns the word of a dispatch signal.
    #[inline(always)]
    pub(crate) fn arrived(self, word: u32) -> u64 {
        get(self.words, self.b.arrived(word))
    }

    /// Returns the word of a combine signal.
    #[inline(always)]
    pub(crate) fn returned(self, expert: u32) -> u64 {
        get(self.words, self.b.returned(expert))
    }

    /// Returns how many rows a dispatch signal announces.
    #[inline(always)]
    pub(crate) fn rows(self, word: u32) -> u32 {
        count_of(self.arrived(word))
    }

    /// Returns `count` signals of this PE, starting at index `at`.
    #[inline(always)]
    pub(crate) fn signals(self, at: usize, count: u32) -> SymSlice<Signal> {
        self.b.words.slice(at..at + count as usize)
    }

    /// Starts a call, in its first kernel. Returns the index of the call.
    #[inline(always)]
    pub(crate) fn begin(self) -> u64 {
        let call = self.state(state::RECEIVED) + 1;
        if Thread::index() == 0 {
            self.set_state(state::BEGUN, call);
        }
        call
    }

    /// Returns the index of the call, in later kernels.
    #[inline(always)]
    pub(crate) fn call(self) -> u64 {
        self.state(state::BEGUN)
    }

    /// Records a fault of this call for the host and for later kernels.
    #[inline(always)]
    pub(crate) fn record(self, call: u64, fault: Fault) {
        self.set_state(state::FAULT, fault.word());
        self.set_state(state::FAULT_CALL, call);
    }

    /// Returns the PE of an expert, and the index of the expert there.
    #[inline(always)]
    pub(crate) fn owner(self, expert: u32) -> (u32, u32) {
        divided(expert, self.b.local_experts)
    }

    /// Returns local expert and source of a dispatch signal.
    #[inline(always)]
    pub(crate) fn expert_and_source(self, word: u32) -> (u32, u32) {
        divided(word, self.b.n_pes)
    }

    /// Returns the dispatch signal of a local expert and a source.
    #[inline(always)]
    pub(crate) fn word(self, local: u32, source: u32) -> u32 {
        local * self.b.n_pes + source
    }

    #[inline(always)]
    pub(crate) fn bf16_chunks(self) -> usize {
        self.b.hidden as usize / 8
    }
}

/// Returns quotient and remainder.
#[inline(always)]
pub(crate) fn divided(a: u32, b: u32) -> (u32, u32) {
    let quotient = a.checked_div(b).unwrap_or(0);
    (quotient, a - quotient * b)
}

/// Returns `count` rows of `chunks` chunks each, starting at row `first`.
#[inline(always)]
pub(crate) fn rows_of(all: SymSlice<u128>, chunks: usize, first: u32, count: u32) -> SymSlice<u128> {
    let first = first as usize * chunks;
    all.slice(first..first + count as usize * chunks)
}

/// Returns an element, or zero if there is none.
///
/// This check lets the compiler remove the one in [`View::load`], with the call that reports the index. Kernels with
/// many such calls spill registers.
#[inline(always)]
pub(crate) fn get<T: Pod>(view: View<T>, i: usize) -> T {
    if i < view.len() { view.load(i) } else { T::zeroed() }
}

/// Stores an element if there is one: see [`get`].
#[inline(always)]
pub(crate) fn put<T: Pod>(view: View<T>, i: usize, value: T) {
    if i < view.len() {
        view.store(i, value);
    }
}

/// Stores an element on another PE if there is one: see [`get`].
#[inline(always)]
pub(crate) fn put_remote<T: Pod>(view: RemoteView<T>, i: usize, value: T) {
    if i < view.len() {
        view.store(i, value);
    }
}

/// Returns the smallest value that a signal word has in a call.
#[inline(always)]
pub(crate) fn word_of(call: u64) -> u64 {
    call << WORD_COUNT_BITS
}

/// Returns the signal word that rejects a call.
#[inline(always)]
pub(crate) fn refusal(call: u64) -> u64 {
    word_of(call) | REFUSED
}

/// Returns whether a signal word rejects its call.
#[inline(always)]
pub(crate) fn is_refusal(word: u64) -> bool {
    word & REFUSED != 0
}

/// Returns the payload of a signal word: the number of rows in dispatch, the index of the first row in combine.
#[inline(always)]
pub(crate) fn count_of(word: u64) -> u32 {
    word as u32 & ((1 << WORD_COUNT_BITS) - 1)
}
