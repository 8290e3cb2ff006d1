//! Compares dispatch and combine on several PEs with the serial reference, bit by bit.

use std::cell::RefCell;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use rushmem::config::Config;
use rushmem::{Job, Operations, Pe, Stream};
use rushmem_device::{Bf16, SymSlice};
use rushmem_ep::kernels::ep_experts;
use rushmem_ep::{Dispatcher, Dtype, Error, Input, KERNELS, Layout, Partials, Shape, capture, reference};

const HIDDEN: usize = 256;

/// How PEs reach each other: a name, and the settings that select this path.
type Path = (&'static str, &'static [(&'static str, &'static str)]);

const P2P: Path = ("p2p", &[("peer_path", "p2p")]);
const NIC: Path = ("nic", &[("peer_path", "nic")]);
const MIXED: Path = ("mixed", &[("peer_path", "p2p"), ("p2p_group", "2")]);
const SHORT: Path =
    ("short queues", &[("peer_path", "nic"), ("sq_depth", "2"), ("ordering", "out_of_order")]);
const SLOW: Path = (
    "slow NICs",
    &[("peer_path", "nic"), ("softnic_fault", "stall=0.3 split=0.3 skip_qp=0.3 completion_delay=0.3")],
);

fn job(pes: u32, path: Path) -> Job {
    let mut config = Config::load().expect("the settings of this test's environment");
    let pes = pes.to_string();
    for &(key, value) in [("pes", &*pes), ("heap_bytes", "16MiB"), ("timeout", "60s")].iter().chain(path.1) {
        config.set(key, value).expect("a setting of a test");
    }
    Job::with_config(config).kernels(KERNELS)
}

/// The choices of each PE in one dispatch, and a seed for tokens and weights.
#[derive(Clone, Debug)]
struct Routing {
    choices: Vec<Vec<i32>>,
    seed: u64,
}

impl Routing {
    /// Returns a pseudo-random number for the indices `kind`, `pe` and `i`, derived from the seed.
    fn number(&self, kind: u64, pe: usize, i: usize) -> u64 {
        let x = self.seed ^ kind << 56 ^ (pe as u64) << 40 ^ i as u64;
        let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    /// Returns the tokens of a PE: finite numbers of many magnitudes, and zeros in every fifth group of 128.
    fn tokens(&self, pe: usize, count: usize) -> Vec<Bf16> {
        let element = |i| {
            if i / 128 % 5 == 4 {
                return Bf16(0);
            }
            let number = self.number(1, pe, i);
            let exponent = 100 + (number >> 16) as u16 % 50;
            Bf16(number as u16 & 0x807f | exponent << 7)
        };
        (0..count * HIDDEN).map(element).collect()
    }

    fn weights(&self, pe: usize) -> Vec<f32> {
        let weight = |i| (self.number(2, pe, i) % 1000) as f32 / 1000.0;
        (0..self.choices[pe].len()).map(weight).collect()
    }
}

struct Bed<'a> {
    pe: &'a Pe,
    dispatcher: Dispatcher<'a>,
    input: Input,
    results: SymSlice<Bf16>,
    sums: SymSlice<Bf16>,
}

fn allocate_input(pe: &Pe, shape: Shape) -> Result<Input, Error> {
    let pairs = shape.tokens * shape.top_k;
    let tokens = pe.alloc(shape.tokens * HIDDEN)?;
    Ok(Input { tokens, choices: pe.alloc(pairs)?, weights: pe.alloc(pairs)?, count: 0 })
}

fn write_input(pe: &Pe, input: Input, routing: &Routing, top_k: usize) -> Result<Input, Error> {
    let me = pe.my_pe() as usize;
    let pairs = routing.choices[me].len();
    let count = pairs / top_k;
    pe.write(input.tokens.slice(0..count * HIDDEN), &routing.tokens(me, count))?;
    pe.write(input.choices.slice(0..pairs), &routing.choices[me])?;
    pe.write(input.weights.slice(0..pairs), &routing.weights(me))?;
    Ok(Input { count, ..input })
}

impl<'a> Bed<'a> {
    fn new(pe: &'a Pe, shape: Shape) -> Result<Self, Error> {
        let (dispatcher, input) = (Dispatcher::new(pe, shape)?, allocate_input(pe, shape)?);
        let results = pe.alloc(dispatcher.row_count() * HIDDEN)?;
        Ok(Self { pe, dispatcher, input, results, sums: pe.alloc(shape.tokens * HIDDEN)? })
    }

    fn prepare(&self, routing: &Routing) -> Result<Input, Error> {
        write_input(self.pe, self.input, routing, self.dispatcher.shape().top_k)
    }

    /// Queues a dispatch, the experts and a combine.
    fn queue(&self, stream: &Stream<'_>, input: Input, sums: SymSlice<Bf16>) -> Result<(), Error> {
        let received = self.dispatcher.dispatch(stream, input)?;
        stream.launch(self.dispatcher.grid(), ep_experts(self.dispatcher.buffers(), self.results.cast()))?;
        self.dispatcher.combine(stream, received, self.results, sums)
    }

    /// Performs a dispatch and combine, and compares all rows and sums with the serial reference.
    fn check(&self, routing: &Routing) -> Result<(), Error> {
        let (stream, input) = (self.pe.stream()?, self.prepare(routing)?);
        let dispatcher = &self.dispatcher;
        let received = dispatcher.dispatch(&stream, input)?;
        dispatcher.wait(&stream)?;
        self.check_rows(routing)?;
        stream.launch(dispatcher.grid(), ep_experts(dispatcher.buffers(), self.results.cast()))?;
        dispatcher.combine(&stream, received, self.results, self.sums)?;
        dispatcher.wait(&stream)?;
        // After this, the call has completed on all PEs, so nothing may read its results or input any more. Overwrite
        // them.
        self.pe.host_sync()?;
        self.pe.write(self.results, &vec![Bf16(0x7fff); self.results.len()])?;
        self.pe.write(self.input.tokens, &vec![Bf16(0x7fff); self.input.tokens.len()])?;
        self.check_sums(routing, self.sums)
    }

    /// Compares the rows that this PE's experts received with the serial reference.
    fn check_rows(&self, routing: &Routing) -> Result<(), Error> {
        let (pe, shape) = (self.pe, self.dispatcher.shape());
        let (bytes, me) = (self.dispatcher.row_bytes(), pe.my_pe() as usize);
        let totals = pe.read(self.dispatcher.totals())?;
        let offsets = pe.read(self.dispatcher.offsets())?;
        let (index, rows) =
            (pe.read(self.dispatcher.index())?, pe.read(self.dispatcher.rows().cast::<u8>())?);
        for (local, (&total, &offset)) in totals.iter().zip(&offsets).enumerate() {
            let expert = me * totals.len() + local;
            let wanted = reference::deliveries(&routing.choices, expert);
            assert_eq!(total as usize, wanted.len(), "rows of expert {expert}: {routing:?}");
            for (i, delivery) in wanted.into_iter().enumerate() {
                let (i, token) = (offset as usize + i, delivery.pair / shape.top_k);
                assert_eq!(
                    index[i] as usize,
                    delivery.source * shape.tokens + token,
                    "{delivery:?}: {routing:?}"
                );
                let row = if shape.layout == Layout::Rows { i } else { index[i] as usize };
                let found = &rows[row * bytes..(row + 1) * bytes];
                let tokens = routing.tokens(delivery.source, token + 1);
                let row = reference::row(&tokens[token * HIDDEN..], shape.dtype);
                assert_eq!(found[..row.len()], row, "{delivery:?} of expert {expert}: {routing:?}");
            }
        }
        Ok(())
    }

    /// Compares the sums of this PE's tokens with the serial reference.
    fn check_sums(&self, routing: &Routing, sums: SymSlice<Bf16>) -> Result<(), Error> {
        let (shape, me) = (self.dispatcher.shape(), self.pe.my_pe() as usize);
        let (choices, weights) = (&routing.choices[me], routing.weights(me));
        let count = choices.len() / shape.top_k;
        let tokens = routing.tokens(me, count);
        let sums = self.pe.read(sums)?;
        for token in 0..count {
            let range = token * HIDDEN..(token + 1) * HIDDEN;
            let row = reference::row(&tokens[range.clone()], shape.dtype);
            let row = reference::decode(&row, HIDDEN, shape.dtype);
            let pairs = token * shape.top_k..(token + 1) * shape.top_k;
            let terms = pairs
                .filter(|&pair| choices[pair] >= 0)
                .map(|pair| term(shape, self.pe.n_pes(), &row, choices[pair] as usize, weights[pair]));
            let wanted = reference::sum(&terms.collect::<Vec<_>>(), HIDDEN, shape.partials);
            assert_eq!(sums[range], wanted, "token {token} of PE {me}: {routing:?}");
        }
        Ok(())
    }
}

fn term(shape: &Shape, pes: u32, row: &[Bf16], expert: usize, weight: f32) -> reference::Term {
    let pe = expert / (shape.experts / pes as usize);
    reference::Term { pe, weight, row: reference::multiply(row, expert) }
}

fn shape(dtype: Dtype, experts: usize, top_k: usize) -> Shape {
    Shape { dtype, ..Shape::new(6, HIDDEN, experts, top_k) }
}

/// Returns `shape` with a grid whose warps are so many that sending ranks the choices.
fn ranked_by_sender(shape: Shape) -> Shape {
    Shape { blocks: Some(8), threads: Some(96), ..shape }
}

/// Returns `shape` with the options that send the fewest bytes.
fn lean(shape: Shape) -> Shape {
    Shape { layout: Layout::Tokens, partials: Partials::Bf16, ..shape }
}

/// Generates all kinds of routings: uniform, all to one expert, none, or arbitrary; with any number of tokens.
fn routing(pes: usize, experts: usize, top_k: usize, tokens: usize) -> impl Strategy<Value = Routing> {
    let last = experts as i32;
    let choice = prop_oneof![Just(0..last), Just(-1..last), Just(0..1), Just(last - 1..last), Just(-1..0)];
    let of_pe = (choice, 0..=tokens).prop_flat_map(move |(range, count)| vec(range, count * top_k));
    (vec(of_pe, pes), any::<u64>()).prop_map(|(choices, seed)| Routing { choices, seed })
}

fn routings(pes: u32, shape: Shape, count: u32) -> Vec<Routing> {
    let found = RefCell::new(Vec::new());
    let mut runner = TestRunner::new(Cases::with_cases(count));
    let keep = |routing| {
        found.borrow_mut().push(routing);
        Ok(())
    };
    runner.run(&routing(pes as usize, shape.experts, shape.top_k, shape.tokens), keep).unwrap();
    found.into_inner()
}

/// Returns `shape` with room for every routing.
fn roomy(pes: u32, shape: Shape) -> Shape {
    Shape { max_rows: Some(pes as usize * shape.tokens * shape.top_k), ..shape }
}

/// Checks `calls` random dispatches and combines of one dispatcher.
fn run(pes: u32, path: Path, shape: Shape, calls: u32) {
    let routings = routings(pes, shape, calls);
    let outcome = job(pes, path).run(|pe| {
        let bed = Bed::new(pe, roomy(pes, shape))?;
        routings.iter().try_for_each(|routing| bed.check(routing))?;
        bed.dispatcher.free()
    });
    outcome.unwrap_or_else(|error| panic!("{shape:?} on {pes} PEs, {}: {error}", path.0));
}

/// Queues `calls` dispatches and combines before it waits for any. A PE may thus run ahead of its peers by as much as
/// the calls themselves allow.
fn run_queued(pes: u32, path: Path, shape: Shape, calls: u32) {
    let routings = routings(pes, shape, calls);
    let outcome = job(pes, path).run(|pe| {
        let (bed, stream) = (Bed::new(pe, roomy(pes, shape))?, pe.stream()?);
        let mut queued = Vec::new();
        for routing in &routings {
            let input = write_input(pe, allocate_input(pe, shape)?, routing, shape.top_k)?;
            queued.push((routing, input, pe.alloc(shape.tokens * HIDDEN)?));
        }
        queued.iter().try_for_each(|&(_, input, sums)| bed.queue(&stream, input, sums))?;
        bed.dispatcher.wait(&stream)?;
        queued.iter().try_for_each(|&(routing, _, sums)| bed.check_sums(routing, sums))
    });
    outcome.unwrap_or_else(|error| panic!("{shape:?} on {pes} PEs, {}: {error}", path.0));
}

#[test]
fn calls_that_follow_each_other_need_no_barrier() {
    for shape in [ranked_by_sender(shape(Dtype::Bf16, 6, 3)), lean(shape(Dtype::Bf16, 6, 3))] {
        run_queued(3, P2P, shape, 8);
        run_queued(3, SLOW, shape, 8);
        run_queued(2, SHORT, Shape { dtype: Dtype::E4m3, ..shape }, 6);
    }
}

#[test]
fn rows_and_sums_match_the_reference() {
    run(2, P2P, shape(Dtype::Bf16, 8, 4), 6);
    run(2, NIC, shape(Dtype::E4m3, 4, 2), 6);
    run(4, MIXED, shape(Dtype::Bf16, 8, 8), 4);
    run(1, NIC, shape(Dtype::E4m3, 3, 1), 3);
}

#[test]
fn gathered_rows_and_rounded_partial_sums_match_the_reference() {
    run(2, P2P, lean(shape(Dtype::E4m3, 8, 4)), 6);
    run(2, NIC, lean(shape(Dtype::Bf16, 4, 2)), 6);
    run(4, MIXED, lean(shape(Dtype::E4m3, 8, 8)), 4);
    run(1, NIC, lean(shape(Dtype::Bf16, 3, 1)), 3);
}

#[test]
fn ranks_of_the_sender_match_the_reference() {
    run(2, P2P, ranked_by_sender(shape(Dtype::E4m3, 8, 4)), 6);
    run(2, NIC, ranked_by_sender(shape(Dtype::Bf16, 4, 2)), 6);
    run(4, MIXED, ranked_by_sender(shape(Dtype::Bf16, 8, 8)), 4);
}

#[test]
fn buffers_may_be_overwritten_after_a_call() {
    run(3, SLOW, shape(Dtype::Bf16, 6, 3), 8);
    run(3, SLOW, ranked_by_sender(shape(Dtype::E4m3, 6, 3)), 8);
}

#[test]
fn short_queues_and_weak_ordering_do_not_change_results() {
    run(3, SHORT, shape(Dtype::Bf16, 6, 3), 4);
    run(3, SHORT, ranked_by_sender(shape(Dtype::E4m3, 6, 3)), 4);
}

#[test]
fn more_warps_and_blocks_do_not_change_results() {
    let shape = shape(Dtype::Bf16, 4, 4);
    run(2, P2P, Shape { blocks: Some(5), threads: Some(96), ..shape }, 2);
    run(2, P2P, Shape { blocks: Some(1), threads: Some(32), ..shape }, 2);
}

/// Performs a dispatch that must be rejected, and returns the error of each PE. Then performs one that succeeds.
fn refused(shape: Shape, bad: Vec<i32>) -> Vec<String> {
    let good = Routing { choices: vec![vec![0, 1], vec![3, -1]], seed: 5 };
    let bad = Routing { choices: vec![bad, vec![2, 0]], seed: 6 };
    let app = |pe: &Pe| {
        let bed = Bed::new(pe, shape)?;
        bed.check(&good)?;
        let stream = pe.stream()?;
        let received = bed.dispatcher.dispatch(&stream, bed.prepare(&bad)?)?;
        let error = bed.dispatcher.wait(&stream).unwrap_err().to_string();
        drop(received);
        // Nothing is lost: the rows of the last call are still there.
        bed.check_rows(&good)?;
        bed.dispatcher.reset()?;
        bed.check(&good)?;
        Ok::<_, Error>(error)
    };
    job(2, NIC).run(app).unwrap()
}

#[test]
fn full_pe_is_an_error_on_all_pes_and_loses_nothing() {
    let shape = Shape { max_rows: Some(4), ..shape(Dtype::Bf16, 4, 2) };
    let errors = refused(shape, vec![3, 3, 3, 2]);
    let wanted = "PE 1 gets 5 rows and has room for 4: raise `max_rows`, or send fewer tokens";
    assert_eq!(errors, [wanted, wanted]);
}

#[test]
fn unknown_expert_is_an_error_on_all_pes() {
    let shape = shape(Dtype::Bf16, 4, 2);
    for shape in [shape, ranked_by_sender(shape)] {
        for expert in [4, -2, i32::MAX] {
            let errors = refused(shape, vec![0, expert]);
            let wanted = format!("token 0 has expert {expert} as its choice 1, but there are 4 experts");
            assert!(errors[0].starts_with(&wanted), "{errors:?}");
            assert_eq!(errors[1], "PE 0 refused this call: see its error");
        }
    }
}

#[test]
fn graph_repeats_a_call_with_work_between_its_halves() {
    let first = Routing { choices: vec![vec![0, 1, 3, 2], vec![3, -1]], seed: 1 };
    let second = Routing { choices: vec![vec![3, 3, 0, -1], vec![1, 0]], seed: 2 };
    let shape = shape(Dtype::Bf16, 4, 2);
    for shape in [lean(shape), ranked_by_sender(shape)] {
        let app = |pe: &Pe| {
            let bed = Bed::new(pe, shape)?;
            let (stream, dispatcher) = (pe.stream()?, &bed.dispatcher);
            let input = bed.prepare(&first)?;
            let graph = capture(&stream, |stream| {
                let sent = dispatcher.dispatch_send(stream, input)?;
                stream.quiet()?;
                let received = dispatcher.dispatch_receive(stream, sent)?;
                stream.launch(dispatcher.grid(), ep_experts(dispatcher.buffers(), bed.results.cast()))?;
                let returning = dispatcher.combine_send(stream, received, bed.results)?;
                stream.quiet()?;
                dispatcher.combine_receive(stream, returning, bed.sums)
            })?;
            for routing in [&first, &second, &first] {
                bed.prepare(routing)?;
                graph.launch(&stream)?;
                graph.launch(&stream)?;
                dispatcher.wait(&stream)?;
                bed.check_rows(routing)?;
                bed.check_sums(routing, bed.sums)?;
            }
            Ok::<_, Error>(())
        };
        job(2, P2P).run(app).unwrap();
    }
}

#[test]
fn masked_pes_are_neither_sent_to_nor_awaited() {
    let choices = vec![vec![0, 4, 5, 2, 4, -1], vec![3, 1, 5, 5], vec![]];
    let without = |choices: &Vec<i32>| choices.iter().map(|&e| if e >= 4 { -1 } else { e }).collect();
    let seen = Routing { choices: choices.iter().map(without).collect(), seed: 3 };
    let given = Routing { choices, seed: 3 };
    for (path, shape) in [(P2P, shape(Dtype::Bf16, 6, 2)), (NIC, ranked_by_sender(shape(Dtype::E4m3, 6, 2)))]
    {
        let app = |pe: &Pe| {
            let bed = Bed::new(pe, shape)?;
            assert!(matches!(bed.dispatcher.mask(&[true; 3]), Err(Error::Misuse { .. })));
            if pe.my_pe() < 2 {
                bed.dispatcher.mask(&[false, false, true])?;
                for _ in 0..2 {
                    let (stream, input) = (pe.stream()?, bed.prepare(&given)?);
                    bed.queue(&stream, input, bed.sums)?;
                    bed.dispatcher.wait(&stream)?;
                    bed.check_rows(&seen)?;
                    bed.check_sums(&seen, bed.sums)?;
                    let skipped = [vec![1, 2, 4], vec![2, 3]];
                    assert_eq!(bed.dispatcher.skipped(input)?, skipped[pe.my_pe() as usize]);
                }
                bed.dispatcher.mask(&[false; 3])?;
            }
            bed.dispatcher.reset()?;
            bed.check(&given)
        };
        job(3, path).run(app).unwrap();
    }
}

#[test]
fn rejects_wrong_arguments() {
    let app = |pe: &Pe| {
        let shape = shape(Dtype::Bf16, 4, 2);
        assert!(matches!(Dispatcher::new(pe, Shape { top_k: 9, ..shape }), Err(Error::Shape(_))));
        let bed = Bed::new(pe, shape)?;
        let (stream, dispatcher) = (pe.stream()?, &bed.dispatcher);
        let text = |error: Error| error.to_string();
        let many = dispatcher.dispatch_send(&stream, Input { count: 7, ..bed.input });
        assert!(text(many.unwrap_err()).contains("7 tokens, but the shape has at most 6"));
        let short = Input { choices: bed.input.choices.slice(0..3), count: 2, ..bed.input };
        assert!(
            text(dispatcher.dispatch_send(&stream, short).unwrap_err()).contains("`choices` has 3 elements")
        );
        let received = dispatcher.dispatch(&stream, bed.input)?;
        let again = dispatcher.dispatch_send(&stream, bed.input);
        assert!(text(again.unwrap_err()).contains("the last call has no combine"));
        assert!(text(dispatcher.mask(&[false; 2]).unwrap_err()).contains("a dispatch has no combine yet"));
        let results = bed.results.slice(0..HIDDEN);
        let short = dispatcher.combine_send(&stream, received, results);
        assert!(text(short.unwrap_err()).contains("`results` has 256 elements"));
        dispatcher.wait(&stream)?;
        dispatcher.reset()
    };
    job(2, P2P).run(app).unwrap();
}
