//! Dispatch and combine of a mixture of experts while processes are killed and replaced: a part of `suite_pe` that a test runs with
//! live membership.

use rushmem::{Error, Pe, Stream};
use rushmem_device::{Bf16, SymSlice, Team};
use rushmem_ep::kernels::ep_experts;
use rushmem_ep::{Dispatcher, Dtype, Input, Partials, Shape, reference};

use crate::replacements::while_replaced;

const TOKENS: usize = 12;

const HIDDEN: usize = 128;

const TOP_K: usize = 3;

/// Number of experts per PE.
const LOCAL_EXPERTS: usize = 2;

/// Dispatches tokens to experts and checks their sums, as [`while_replaced`] does.
pub(crate) fn dispatch(pe: &Pe, cycles: u64) -> Result<(), Error> {
    let shape = Shape::new(TOKENS, HIDDEN, LOCAL_EXPERTS * pe.n_pes() as usize, TOP_K);
    let dispatcher = Dispatcher::new(pe, shape).map_err(runtime_error)?;
    let (tokens, sums) = (pe.alloc(TOKENS * HIDDEN)?, pe.alloc(TOKENS * HIDDEN)?);
    let (choices, weights) = (pe.alloc(TOKENS * TOP_K)?, pe.alloc(TOKENS * TOP_K)?);
    let input = Input { tokens, choices, weights, count: TOKENS };
    let results = pe.alloc(dispatcher.row_count() * HIDDEN)?;
    let call = Call { pe, stream: pe.stream()?, dispatcher, input, results, sums };
    let mut current = Team::WORLD;
    while_replaced(pe, cycles, |team, round| {
        if team != current {
            call.dispatcher.continue_with(team).map_err(runtime_error)?;
            current = team;
        }
        call.check(team, round)
    })
}

fn runtime_error(error: rushmem_ep::Error) -> Error {
    match error {
        rushmem_ep::Error::Runtime(error) => error,
        other => panic!("{other}"),
    }
}

struct Call<'a> {
    pe: &'a Pe,
    stream: Stream<'a>,
    dispatcher: Dispatcher<'a>,
    input: Input,
    results: SymSlice<Bf16>,
    sums: SymSlice<Bf16>,
}

impl Call<'_> {
    /// Performs a dispatch and combine, and compares the sums with the serial reference. Choices of experts of PEs that are not in
    /// `team` do not count.
    fn check(&self, team: Team, round: u64) -> Result<(), Error> {
        let (pe, n_experts) = (self.pe, self.dispatcher.shape().experts);
        let number = |i: usize| {
            let seed = round << 32 | u64::from(pe.my_pe()) << 24 | i as u64;
            (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
        };
        let tokens: Vec<_> = (0..TOKENS * HIDDEN).map(|i| Bf16::from_f32((number(i) % 64) as f32)).collect();
        let choices: Vec<_> =
            (0..TOKENS * TOP_K).map(|pair| (number(pair) % (n_experts + 1)) as i32 - 1).collect();
        let weights: Vec<_> = (0..TOKENS * TOP_K).map(|pair| (number(pair) % 100) as f32 / 64.0).collect();
        pe.write(self.input.tokens, &tokens)?;
        pe.write(self.input.choices, &choices)?;
        pe.write(self.input.weights, &weights)?;
        let outcome = self.run().map_err(runtime_error);
        // Nobody overwrites its input while others need it, or repeats a call that has failed on others only.
        pe.host_sync().and(outcome)?;

        let members = pe.team_pes(team).unwrap_or_default();
        let owner = |pair: usize| usize::try_from(choices[pair]).ok().map(|expert| expert / LOCAL_EXPERTS);
        let is_member = |owner: usize| members.contains(&(owner as u32));
        let pairs = || 0..TOKENS * TOP_K;
        let skipped: Vec<_> = pairs().filter(|&pair| owner(pair).is_some_and(|pe| !is_member(pe))).collect();
        assert_eq!(self.dispatcher.skipped(self.input).map_err(runtime_error)?, skipped);
        let sums = pe.read(self.sums)?;
        for token in 0..TOKENS {
            let elements = token * HIDDEN..(token + 1) * HIDDEN;
            let row = reference::row(&tokens[elements.clone()], Dtype::Bf16);
            let row = reference::decode(&row, HIDDEN, Dtype::Bf16);
            let terms = (token * TOP_K..(token + 1) * TOP_K).filter_map(|pair| {
                let pe = owner(pair).filter(|&pe| is_member(pe))?;
                let row = reference::multiply(&row, choices[pair] as usize);
                Some(reference::Term { pe, weight: weights[pair], row })
            });
            let wanted = reference::sum(&terms.collect::<Vec<_>>(), HIDDEN, Partials::F32);
            assert_eq!(sums[elements], wanted, "round {round}, token {token} of PE {}", pe.my_pe());
        }
        Ok(())
    }

    fn run(&self) -> rushmem_ep::Result<()> {
        // No kernel may be left when the dispatcher continues with another team.
        let (queued, outcome) = (self.queue(), self.dispatcher.wait(&self.stream));
        outcome.and(queued)
    }

    fn queue(&self) -> rushmem_ep::Result<()> {
        let (stream, dispatcher) = (&self.stream, &self.dispatcher);
        let received = dispatcher.dispatch(stream, self.input)?;
        stream.launch(dispatcher.grid(), ep_experts(dispatcher.buffers(), self.results.cast()))?;
        dispatcher.combine(stream, received, self.results, self.sums)
    }
}
