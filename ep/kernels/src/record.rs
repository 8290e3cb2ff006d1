//! Records: what the PE of an expert has to know about a token.
//!
//! A record has a word for each lane of a warp: for each choice the expert, the rank of the pair and the weight, then
//! the index of the call. A PE gets the records of those tokens that chose one of its experts. Records of other tokens
//! are from earlier calls.

use rushmem_device::arch;
use rushmem_device::prelude::*;

use crate::buffers::{Exchange, NO_RANK, Table, get};
use crate::warp::{Crew, LANES, lane, of_lane};

/// Maximum number of experts that a token can choose.
pub(crate) const CHOICES: u32 = 8;

/// Expert in the record of a token whose choice has no expert.
const NO_EXPERT: u32 = u32::MAX;

/// Index of the word that holds the index of the call.
const CALL: u32 = 3 * CHOICES;

/// Number of 32-bit words per record.
pub const RECORD_WORDS: u32 = LANES;

/// Returns this lane's word of the record of one of this PE's tokens, whose pairs have been ranked.
#[inline(always)]
pub(crate) fn word_of(x: Exchange, choices: View<i32>, weights: View<f32>, token: u32, call: u64) -> u32 {
    let (kind, choice) = (lane() / CHOICES, lane() % CHOICES);
    let pair = token * x.b.top_k + choice;
    let rank = if choice < x.b.top_k { x.rank(pair) } else { NO_RANK };
    let expert = if rank == NO_RANK { NO_EXPERT } else { get(choices, pair as usize) as u32 };
    match kind {
        0 if expert == NO_EXPERT || x.is_masked(x.owner(expert)) => NO_EXPERT,
        0 => expert,
        1 => rank,
        2 if expert == NO_EXPERT => 0,
        2 => get(weights, pair as usize).to_bits(),
        _ => call as u32,
    }
}

/// Returns the expert of the choice whose index is this lane, given this lane's word of a record.
#[inline(always)]
pub(crate) fn expert_of(word: u32) -> Option<u32> {
    if lane() < CHOICES && word != NO_EXPERT { Some(word) } else { None }
}

/// A token of which this PE's experts have rows.
#[derive(Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) source: u32,
    pub(crate) token: u32,
    /// Bit `i` is set if the expert of choice `i` is on this PE.
    pub(crate) hits: u32,
    /// In lane `i` of `hits`, the index of the row for choice `i`.
    pub(crate) row: u32,
    /// In lane `i` of `hits`, the weight of choice `i`.
    pub(crate) weight: f32,
}

/// Calls `f` for each token of which this PE's experts have rows. The crews of the grid divide the tokens.
#[inline(always)]
pub(crate) fn each_arrival(x: Exchange, mut f: impl FnMut(Crew, Arrival)) {
    let (records, call) = (x.ctx.local(x.b.records), x.call() as u32);
    let (mut all, mut source) = (0, 0);
    while source < x.b.n_pes {
        all += x.tokens_of(source);
        source += 1;
    }
    let crew = Crew::of(x, all);
    let mut token = crew.id;
    source = 0;
    while source < x.b.n_pes {
        let count = x.tokens_of(source);
        while token < count {
            let word = get(records, (x.token_at(source, token) * LANES + lane()) as usize);
            if of_lane(word, CALL) == call {
                let arrival = arrival(x, source, token, word);
                if arrival.hits != 0 {
                    f(crew, arrival);
                }
            }
            token += crew.count;
        }
        // Number the tokens of all sources consecutively, so that no crew waits for another one.
        token -= count;
        source += 1;
    }
}

#[inline(always)]
fn arrival(x: Exchange, source: u32, token: u32, word: u32) -> Arrival {
    let first = x.ctx.my_pe() * x.b.local_experts;
    let local = expert_of(word).and_then(|expert| expert.checked_sub(first));
    let local = local.filter(|&local| local < x.b.local_experts);
    let rank = of_lane(word, CHOICES + lane() % CHOICES);
    let weight = f32::from_bits(of_lane(word, 2 * CHOICES + lane() % CHOICES));
    let row = local.map_or(0, |local| x.table(Table::From, x.index_in_from(local, source)) + rank);
    Arrival { source, token, hits: arch::ballot(u32::MAX, local.is_some()), row, weight }
}
