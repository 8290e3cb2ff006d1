//! A serial reference of dispatch and combine, for tests and benchmarks.

use rushmem_device::Bf16;

use crate::kernels::{dequantized, e4m3_from_f32, inverse_scale, scale_of};
use crate::{Dtype, Partials};

/// A row that an expert receives, identified by its source PE and its (token, choice) pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Rank of the PE that owns the token.
    pub source: usize,
    /// Index of the pair on its PE: `token * top_k + choice`.
    pub pair: usize,
}

/// Returns the rows that an expert receives, in order. `choices` contains the choices of each PE.
pub fn deliveries(choices: &[Vec<i32>], expert: usize) -> Vec<Delivery> {
    let of_pe = |(source, choices): (usize, &Vec<i32>)| {
        let pairs = (0..choices.len()).filter(|&pair| choices[pair] == expert as i32);
        pairs.map(move |pair| Delivery { source, pair }).collect::<Vec<_>>()
    };
    choices.iter().enumerate().flat_map(of_pe).collect()
}

/// Returns the bytes of the row that dispatch sends for a token, without trailing padding.
pub fn row(token: &[Bf16], dtype: Dtype) -> Vec<u8> {
    if dtype == Dtype::Bf16 {
        return token.iter().flat_map(|element| element.0.to_le_bytes()).collect();
    }
    let (mut numbers, mut scales) = (Vec::new(), Vec::new());
    for block in token.chunks(128) {
        let amax = block.iter().map(|element| element.0 & 0x7fff).max().unwrap_or(0);
        let amax = Bf16(amax).to_f32();
        let factor = inverse_scale(amax);
        numbers.extend(block.iter().map(|element| e4m3_from_f32(element.to_f32() * factor)));
        scales.extend(scale_of(amax).to_le_bytes());
    }
    [numbers, scales].concat()
}

/// Decodes the elements of a dispatched row, as an expert does.
pub fn decode(row: &[u8], hidden: usize, dtype: Dtype) -> Vec<Bf16> {
    if dtype == Dtype::Bf16 {
        return row.chunks_exact(2).take(hidden).map(|b| Bf16(u16::from_le_bytes([b[0], b[1]]))).collect();
    }
    let (numbers, scales) = row.split_at(hidden);
    let scale = |i: usize| f32::from_le_bytes(scales[4 * i..4 * i + 4].try_into().expect("four bytes"));
    numbers.iter().enumerate().map(|(i, &number)| dequantized(number, scale(i / 128))).collect()
}

/// Computes the row that the kernel [`ep_experts`](crate::kernels::ep_experts) computes for expert `expert`.
pub fn multiply(row: &[Bf16], expert: usize) -> Vec<Bf16> {
    let factor = (1 + expert % 8) as f32;
    row.iter().map(|element| Bf16::from_f32(element.to_f32() * factor)).collect()
}

/// A term of the sum of a token: the result of an expert.
#[derive(Clone, Debug)]
pub struct Term {
    /// Rank of the PE that the expert is on.
    pub pe: usize,
    /// Weight of the choice.
    pub weight: f32,
    /// The expert's result.
    pub row: Vec<Bf16>,
}

/// Computes the sum of a token from its terms in order of choice, as combine does: a partial sum for each PE, and their
/// sum in order of PE.
pub fn sum(terms: &[Term], hidden: usize, partials: Partials) -> Vec<Bf16> {
    let mut pes: Vec<usize> = terms.iter().map(|term| term.pe).collect();
    pes.sort_unstable();
    pes.dedup();
    let mut sums = vec![0.0; hidden];
    for pe in pes {
        let mut partial = vec![0.0; hidden];
        for term in terms.iter().filter(|term| term.pe == pe) {
            for (sum, element) in partial.iter_mut().zip(&term.row) {
                *sum += term.weight * element.to_f32();
            }
        }
        for (sum, partial) in sums.iter_mut().zip(partial) {
            *sum += if partials == Partials::F32 { partial } else { Bf16::from_f32(partial).to_f32() };
        }
    }
    sums.into_iter().map(Bf16::from_f32).collect()
}
