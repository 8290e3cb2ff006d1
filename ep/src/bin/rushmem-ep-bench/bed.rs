//! The benchmark's dispatcher and input on a PE, and the verification of the combined sums.

use rushmem::{Pe, Stream};
use rushmem_device::{Bf16, SymSlice};
use rushmem_ep::kernels::ep_experts;
use rushmem_ep::reference::{self, Term};
use rushmem_ep::{Dispatcher, Dtype, Input};

use crate::args::{AnyError, Args, RoutingArg};

/// A PE's dispatcher with the input and output buffers of the benchmark.
pub(crate) struct Bed<'a> {
    pub(crate) pe: &'a Pe,
    pub(crate) dispatcher: Dispatcher<'a>,
    pub(crate) input: Input,
    pub(crate) results: SymSlice<Bf16>,
    pub(crate) sums: SymSlice<Bf16>,
    tokens: Vec<Bf16>,
    choices: Vec<i32>,
    weights: Vec<f32>,
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ x >> 31) as u32
    }

    /// Returns a pseudo-random number between -1 and 1.
    fn number(&mut self) -> f32 {
        (self.next() >> 8) as f32 / (1 << 23) as f32 - 1.0
    }
}

impl<'a> Bed<'a> {
    /// Allocates the benchmark's buffers on the PE and writes the tokens, choices and weights.
    pub(crate) fn new(pe: &'a Pe, args: &Args) -> Result<Self, AnyError> {
        let Args { tokens: count, hidden, top_k, .. } = *args;
        let dispatcher = Dispatcher::new(pe, args.shape())?;
        let mut random = Random(u64::from(pe.my_pe()) << 32);
        let tokens: Vec<Bf16> = (0..count * hidden).map(|_| Bf16::from_f32(random.number())).collect();
        let weights: Vec<f32> = (0..count * top_k).map(|_| random.number().abs()).collect();
        let choices: Vec<i32> = (0..count).flat_map(|_| choose(args, &mut random)).collect();
        let input = Input {
            tokens: pe.alloc(tokens.len())?,
            choices: pe.alloc(choices.len())?,
            weights: pe.alloc(weights.len())?,
            count,
        };
        pe.write(input.tokens, &tokens)?;
        pe.write(input.choices, &choices)?;
        pe.write(input.weights, &weights)?;
        let results = pe.alloc(dispatcher.row_count() * hidden)?;
        let sums = pe.alloc(tokens.len())?;
        Ok(Self { pe, dispatcher, input, results, sums, tokens, choices, weights })
    }

    /// Performs a dispatch and combine with experts, and compares each sum with the serial reference.
    pub(crate) fn verify(&self, stream: &Stream<'_>) -> Result<(), AnyError> {
        let dispatcher = &self.dispatcher;
        let received = dispatcher.dispatch(stream, self.input)?;
        stream.launch(dispatcher.grid(), ep_experts(dispatcher.buffers(), self.results.cast()))?;
        dispatcher.combine(stream, received, self.results, self.sums)?;
        dispatcher.wait(stream)?;
        let (shape, sums) = (dispatcher.shape(), self.pe.read(self.sums)?);
        let (hidden, top_k) = (shape.hidden, shape.top_k);
        for (token, elements) in self.tokens.chunks(hidden).enumerate() {
            let row = match shape.dtype {
                Dtype::Bf16 => elements.to_vec(),
                dtype => reference::decode(&reference::row(elements, dtype), hidden, dtype),
            };
            let term = |pair: usize| {
                let expert = self.choices[pair] as usize;
                let row = reference::multiply(&row, expert);
                Term { pe: self.owner(expert), weight: self.weights[pair], row }
            };
            let terms: Vec<_> = (token * top_k..(token + 1) * top_k).map(term).collect();
            let found = &sums[token * hidden..(token + 1) * hidden];
            let wanted = reference::sum(&terms, hidden, shape.partials);
            if let Some(i) = (0..hidden).find(|&i| found[i] != wanted[i]) {
                let (found, wanted) = (found[i].to_f32(), wanted[i].to_f32());
                return Err(format!("element {i} of token {token} is {found}, not {wanted}").into());
            }
        }
        Ok(())
    }

    /// Returns how many rows must cross the link: one for each token and other PE that has an expert of it.
    pub(crate) fn crossing_rows(&self) -> usize {
        let crossings = |choices: &[i32]| {
            let mut pes: Vec<usize> = choices.iter().map(|&expert| self.owner(expert as usize)).collect();
            pes.sort_unstable();
            pes.dedup();
            pes.iter().filter(|&&pe| pe != self.pe.my_pe() as usize).count()
        };
        self.choices.chunks(self.dispatcher.shape().top_k).map(crossings).sum()
    }

    fn owner(&self, expert: usize) -> usize {
        expert / (self.dispatcher.shape().experts / self.pe.n_pes() as usize)
    }
}

/// Chooses `top_k` different experts for a token.
fn choose(args: &Args, random: &mut Random) -> Vec<i32> {
    if args.routing == RoutingArg::Skewed {
        return (0..args.top_k as i32).collect();
    }
    let mut chosen: Vec<i32> = Vec::new();
    while chosen.len() < args.top_k {
        let expert = (random.next() as usize % args.experts) as i32;
        if !chosen.contains(&expert) {
            chosen.push(expert);
        }
    }
    chosen
}
