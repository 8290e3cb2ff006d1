//! The memory of an exchange, as kernels see it.

use rushmem_device::prelude::*;

/// Bits of a signal word that hold the number of rows. The bits above hold the number of the call.
pub const WORD_COUNT_BITS: u32 = 24;

/// The bit of a signal word that refuses a call.
const REFUSED: u64 = 1 << (WORD_COUNT_BITS - 1);

/// The rank of a pair without an expert.
pub(crate) const NO_RANK: u32 = u32::MAX;

/// The indices of [`Buffers::state`].
pub mod state {
    /// Number of calls begun.
    pub const BEGUN: usize = 0;
    /// Number of calls received.
    pub const RECEIVED: usize = 1;
    /// Number of the call that a fault belongs to.
    pub const FAULT_CALL: usize = 2;
    /// The fault: see [`Fault`](super::Fault).
    pub const FAULT: usize = 3;
    /// Number of words.
    pub const WORDS: usize = 4;
}

/// The memory of an exchange, and its numbers. All rows are counted in chunks of 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, KernelArg)]
pub struct Buffers {
    /// Words of this PE: see [`state`].
    pub state: SymSlice<u64>,
    /// Rows as sources store them.
    pub inbox: SymSlice<u128>,
    /// Rows as experts read them. In the throughput form it is the inbox.
    pub rows: SymSlice<u128>,
    /// Rows on their way to NIC peers, in the order of `back`. Without NIC peers it is one chunk.
    pub outbox: SymSlice<u128>,
    /// Rows that experts gave back.
    pub back: SymSlice<u128>,
    /// Signals of dispatch, `[local expert][source]`.
    pub arrived: SymSlice<Signal>,
    /// Signals of combine, `[expert]`.
    pub returned: SymSlice<Signal>,
    /// Number of this PE's rows for each expert, and a mark of refusal behind them.
    pub counts: SymSlice<u32>,
    /// Rank of each pair.
    pub ranks: SymSlice<u32>,
    /// First row of this PE in the inbox of each expert's PE, `[expert]`.
    pub to: SymSlice<u32>,
    /// First row of each expert in `back`, `[expert]`.
    pub back_from: SymSlice<u32>,
    /// First row of each source in `rows`, `[local expert][source]`.
    pub from: SymSlice<u32>,
    /// First row of each local expert in the `back` of a source, `[local expert][source]`.
    pub back_to: SymSlice<u32>,
    /// Number of rows of each local expert.
    pub totals: SymSlice<u32>,
    /// First row of each local expert in `rows`.
    pub offsets: SymSlice<u32>,
    /// The `counts` of all PEs, `[source]`.
    pub matrix: SymSlice<u32>,
    /// Signals that announce rows of `matrix`, `[source]`.
    pub met: SymSlice<Signal>,
    /// Scratch of [`place`](crate::place): a word for each warp.
    pub partial: SymSlice<u32>,
    /// Largest number of rows of one expert from one source.
    pub capacity: u32,
    /// Largest number of rows of one PE.
    pub max_rows: u32,
    /// Number of experts.
    pub experts: u32,
    /// Number of experts of a PE.
    pub local_experts: u32,
    /// Elements of a token.
    pub hidden: u32,
    /// Choices of a token.
    pub top_k: u32,
    /// Chunks of a dispatched row.
    pub row_chunks: u32,
    /// 1 if dispatch quantizes to e4m3, otherwise 0.
    pub quantizes: u32,
}

/// The input of an exchange.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArg)]
pub struct Batch {
    /// The tokens in bf16, `[token][hidden]`.
    pub tokens: SymSlice<u128>,
    /// The expert of each pair, `[token][choice]`; -1 for none.
    pub choices: SymSlice<i32>,
    /// The weight of each pair, `[token][choice]`.
    pub weights: SymSlice<f32>,
    /// Number of tokens.
    pub count: u64,
}

/// The reason why a call was refused, as kernels record it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A pair chose an expert that does not exist.
    BadChoice {
        /// The number of the pair.
        pair: u32,
        /// The expert.
        expert: i32,
    },
    /// A pair of this PE has no room at its expert.
    FullExpert {
        /// The expert.
        expert: u32,
    },
    /// The rows for a PE exceed its buffer.
    FullPe {
        /// The PE.
        pe: u32,
        /// The number of its rows.
        rows: u32,
    },
    /// Another PE refused the call.
    Refused {
        /// That PE.
        pe: u32,
    },
}

impl Fault {
    /// Returns the fault as a word.
    pub fn word(self) -> u64 {
        // A pair has 23 bits, and so has a PE. Only a bad choice needs all bits of the value.
        let (kind, number, value) = match self {
            Self::BadChoice { pair, expert } => (1, pair, expert as u32),
            Self::FullExpert { expert } => (2, 0, expert),
            Self::FullPe { pe, rows } => (3, pe, rows),
            Self::Refused { pe } => (4, pe, 0),
        };
        kind << 56 | (number as u64 & 0xff_ffff) << 32 | value as u64
    }

    /// Returns the fault of a word, if there is one.
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

/// The buffers with the context of a kernel.
#[derive(Clone, Copy)]
pub(crate) struct Exchange<'a, 'k> {
    pub(crate) ctx: &'a Ctx<'k>,
    pub(crate) b: &'a Buffers,
}

impl<'k> Exchange<'_, 'k> {
    /// Returns a word of the state.
    #[inline(always)]
    pub(crate) fn state(self, word: usize) -> u64 {
        self.ctx.local(self.b.state).load(word)
    }

    /// Begins a call in the first kernel of a call, and returns its number.
    #[inline(always)]
    pub(crate) fn begin(self) -> u64 {
        let call = self.state(state::RECEIVED) + 1;
        if Thread::index() == 0 {
            self.ctx.local(self.b.state).store(state::BEGUN, call);
        }
        call
    }

    /// Returns the number of the call, in later kernels.
    #[inline(always)]
    pub(crate) fn call(self) -> u64 {
        self.state(state::BEGUN)
    }

    /// Records a fault of this call for the host and for later kernels.
    #[inline(always)]
    pub(crate) fn record(self, call: u64, fault: Fault) {
        let state = self.ctx.local(self.b.state);
        state.store(state::FAULT, fault.word());
        state.store(state::FAULT_CALL, call);
    }

    /// Returns the PE of an expert, and the number of the expert there.
    #[inline(always)]
    pub(crate) fn owner(self, expert: u32) -> (u32, u32) {
        let each = self.b.local_experts;
        let pe = expert.checked_div(each).unwrap_or(0);
        (pe, expert - pe * each)
    }

    /// Returns the local expert and the source of a word of `arrived`.
    #[inline(always)]
    pub(crate) fn expert_and_source(self, word: usize) -> (u32, u32) {
        let (word, n_pes) = (word as u32, self.ctx.n_pes());
        let local = word.checked_div(n_pes).unwrap_or(0);
        (local, word - local * n_pes)
    }

    /// Returns the word of `arrived` for a local expert and a source.
    #[inline(always)]
    pub(crate) fn arrived_word(self, local: u32, source: u32) -> usize {
        (local * self.ctx.n_pes() + source) as usize
    }

    /// Returns chunks of an outgoing or incoming row of dispatch.
    #[inline(always)]
    pub(crate) fn rows_of(self, all: SymSlice<u128>, first: u32, count: u32) -> SymSlice<u128> {
        rows(all, self.b.row_chunks, first, count)
    }

    /// Returns chunks of rows in bf16.
    #[inline(always)]
    pub(crate) fn bf16_rows_of(self, all: SymSlice<u128>, first: u32, count: u32) -> SymSlice<u128> {
        rows(all, self.b.hidden / 8, first, count)
    }
}

#[inline(always)]
fn rows(all: SymSlice<u128>, chunks: u32, first: u32, count: u32) -> SymSlice<u128> {
    let chunks = chunks as usize;
    let first = first as usize * chunks;
    all.slice(first..first + count as usize * chunks)
}

/// Returns the least value of a signal word in a call.
#[inline(always)]
pub(crate) fn word_of(call: u64) -> u64 {
    call << WORD_COUNT_BITS
}

/// Returns the word of a call that is refused.
#[inline(always)]
pub(crate) fn refusal(call: u64) -> u64 {
    word_of(call) | REFUSED
}

/// Returns whether a word refuses its call.
#[inline(always)]
pub(crate) fn is_refusal(word: u64) -> bool {
    word & REFUSED != 0
}

/// Returns the number of rows that a word announces.
#[inline(always)]
pub(crate) fn count_of(word: u64) -> u32 {
    word as u32 & ((1 << WORD_COUNT_BITS) - 1)
}
