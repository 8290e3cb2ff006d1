//! Measures dispatch and combine on a PE. PE 0 prints the results.

use std::time::Instant;

use rushmem::{Graph, LaunchConfig, Operations, Pe, Stream};
use rushmem_device::SymSlice;
use rushmem_ep::kernels::{ep_copy, ep_stamp};
use rushmem_ep::{Error, Result, capture};

use crate::args::{AnyError, Args};
use crate::bed::Bed;

/// Number of time stamps in a CUDA graph: one at its start, and one after each step.
const STAMPS: usize = 5;

/// Names of the measured steps of dispatch and combine.
const STEPS: [&str; STAMPS - 1] = ["dispatch send", "dispatch receive", "combine send", "combine receive"];

/// Verifies dispatch and combine, measures them, and prints the result on PE 0.
pub(crate) fn run(pe: &Pe, args: &Args) -> Result<(), AnyError> {
    let bed = Bed::new(pe, args)?;
    let stream = pe.stream()?;
    bed.verify(&stream)?;
    pe.host_sync()?;
    if pe.my_pe() == 0 && !args.json {
        print_head(pe, args, bed.dispatcher.grid());
    }
    let times = pe.alloc::<u64>(STAMPS)?;
    let blocks = wqe_blocks(&bed, &stream)?;
    let steps = measure_steps(&bed, &stream, times, args.repetitions)?;
    let cycle = measure_cycle(&bed, &stream, args.repetitions)?;
    let shape = bed.dispatcher.shape();
    let rows = slowest(pe, &[bed.crossing_rows() as f64])?[0] as usize;
    let sizes = [rows * shape.row_bytes(), rows * shape.hidden * 2];
    let mut copies = [0.0; 2];
    for (time, bytes) in copies.iter_mut().zip(sizes) {
        *time = measure_copy(&bed, &stream, times, bytes, args.repetitions)?;
    }
    let blocks = slowest(pe, &[blocks])?[0] / args.tokens as f64;
    if pe.my_pe() == 0 {
        let figures = Figures { steps: steps.try_into().unwrap_or_default(), sizes, copies, cycle, blocks };
        figures.print(args);
    }
    Ok(())
}

/// What the benchmark has measured: times are in microseconds.
struct Figures {
    steps: [f64; STEPS.len()],
    /// Bytes of the rows that must cross the link from the PE with the most, in dispatch and in combine.
    sizes: [usize; 2],
    /// Times of peer copies of as many bytes.
    copies: [f64; 2],
    cycle: f64,
    /// WQE building blocks per token.
    blocks: f64,
}

impl Figures {
    fn print(&self, args: &Args) {
        let halves = [self.steps[0] + self.steps[1], self.steps[2] + self.steps[3]];
        let ratios =
            [0, 1].map(|half| if self.sizes[half] == 0 { 0.0 } else { halves[half] / self.copies[half] });
        if args.json {
            let [send, receive, send_back, receive_back] = self.steps;
            println!(
                "{{\"shape\":\"{:?}\",\"steps_us\":[{send:.1},{receive:.1},{send_back:.1},{receive_back:.1}],\
                 \"crossing_bytes\":{:?},\"copies_us\":{:.1?},\"ratios\":{ratios:.2?},\"cycle_us\":{:.1}}}",
                args.shape(),
                self.sizes,
                self.copies,
                self.cycle
            );
            return;
        }
        for (step, us) in STEPS.iter().zip(&self.steps) {
            println!("  {step:<20} {us:10.1} us");
        }
        for (half, name) in ["dispatch", "combine"].iter().enumerate() {
            let (bytes, copy) = (self.sizes[half], self.copies[half]);
            println!("  {name:<20} {:10.1} us, {:.2} times the copy", halves[half], ratios[half]);
            println!(
                "  rows that must cross {copy:10.1} us to copy {} KB to a peer, {:.1} GB/s",
                bytes / 1000,
                bytes as f64 / copy / 1e3
            );
        }
        println!("  both, from a graph   {:10.1} us by the clock of the host", self.cycle);
        println!("  WQEs                 {:10.2} blocks of 64 bytes a token", self.blocks);
    }
}

fn print_head(pe: &Pe, args: &Args, grid: LaunchConfig) {
    let shape = args.shape();
    let path = pe.peer_routes().into_iter().find(|route| route.pe == 1).map(|route| route.via);
    println!(
        "PASS rushmem-ep-bench: {:?}, {:?}, {:?} partial sums, {} tokens x {}, {} experts, top {}, {:?} routing: every sum verified",
        shape.layout,
        shape.dtype,
        shape.partials,
        args.tokens,
        args.hidden,
        args.experts,
        args.top_k,
        args.routing
    );
    println!(
        "  {} PEs ({}), peers by {}, {} blocks of {} threads",
        pe.n_pes(),
        pe.machine(),
        path.as_deref().unwrap_or("nothing"),
        grid.blocks(),
        grid.threads()
    );
}

/// Queues a dispatch and its combine, without experts. If given, `times` receives a time stamp before and after each
/// step.
fn queue_call(bed: &Bed, stream: &Stream<'_>, times: Option<SymSlice<u64>>) -> Result<()> {
    let stamp_at = |index| times.map_or(Ok(()), |times| stream.launch(one_warp(), ep_stamp(times, index)));
    if times.is_some() {
        stream.barrier_all()?;
    }
    stamp_at(0)?;
    let sent = bed.dispatcher.dispatch_send(stream, bed.input)?;
    stamp_at(1)?;
    let received = bed.dispatcher.dispatch_receive(stream, sent)?;
    stamp_at(2)?;
    let returning = bed.dispatcher.combine_send(stream, received, bed.results)?;
    stamp_at(3)?;
    bed.dispatcher.combine_receive(stream, returning, bed.sums)?;
    Ok(stamp_at(4)?)
}

fn one_warp() -> LaunchConfig {
    LaunchConfig::new(1, 32)
}

/// Returns how many 64-byte WQE building blocks this PE's queues execute per dispatch and combine.
fn wqe_blocks(bed: &Bed, stream: &Stream<'_>) -> Result<f64> {
    let executed = || -> Result<Vec<u16>> { Ok(bed.pe.qps()?.iter().map(|qp| qp.executed).collect()) };
    let before = executed()?;
    queue_call(bed, stream, None)?;
    bed.dispatcher.wait(stream)?;
    let after = executed()?;
    // The verification has already created all queues of the call.
    let differences = before.iter().zip(&after).map(|(before, after)| f64::from(after.wrapping_sub(*before)));
    Ok(differences.sum())
}

/// Returns the median time of each step on the slowest PE, in microseconds.
fn measure_steps(bed: &Bed, stream: &Stream<'_>, times: SymSlice<u64>, runs: u32) -> Result<Vec<f64>> {
    let graph = capture(stream, |stream| queue_call(bed, stream, Some(times)))?;
    let runs = repeat(bed, stream, &graph, times, runs)?;
    let step = |step: usize| median(runs.iter().map(|times| span(times, step)).collect());
    slowest(bed.pe, &(0..STEPS.len()).map(step).collect::<Vec<_>>())
}

/// Returns the median time to copy `bytes` bytes on all PEs concurrently, on the slowest PE, in microseconds.
fn measure_copy(
    bed: &Bed,
    stream: &Stream<'_>,
    times: SymSlice<u64>,
    bytes: usize,
    runs: u32,
) -> Result<f64> {
    let (dst, src) = (bed.dispatcher.buffers().back, bed.results.cast::<u128>());
    let chunks = (bytes / 16).min(dst.len()).min(src.len());
    if chunks == 0 {
        return Ok(0.0);
    }
    let graph = capture(stream, |stream| {
        stream.barrier_all()?;
        stream.launch(one_warp(), ep_stamp(times, 0))?;
        stream.launch(bed.dispatcher.grid(), ep_copy(dst.slice(0..chunks), src.slice(0..chunks)))?;
        Ok(stream.launch(one_warp(), ep_stamp(times, 1))?)
    })?;
    let runs = repeat(bed, stream, &graph, times, runs)?;
    // If the buffer is smaller, extrapolate.
    let scale = bytes as f64 / (chunks * 16) as f64;
    let us = median(runs.iter().map(|times| span(times, 0) * scale).collect());
    Ok(slowest(bed.pe, &[us])?[0])
}

/// Launches a graph `runs` times, after a warm-up launch. Returns the time stamps of each launch.
fn repeat(
    bed: &Bed,
    stream: &Stream<'_>,
    graph: &Graph<'_>,
    times: SymSlice<u64>,
    runs: u32,
) -> Result<Vec<Vec<u64>>> {
    let mut all = Vec::new();
    // Building a graph waits for the kernels of other PEs in this process, so let all build theirs first.
    bed.pe.host_sync()?;
    for _ in 0..=runs {
        graph.launch(stream)?;
        bed.dispatcher.wait(stream)?;
        all.push(bed.pe.read(times)?);
    }
    Ok(all.split_off(1))
}

/// Returns the time per dispatch and combine in a sequence of back-to-back calls, by the host's clock, in microseconds.
fn measure_cycle(bed: &Bed, stream: &Stream<'_>, runs: u32) -> Result<f64> {
    let graph = capture(stream, |stream| queue_call(bed, stream, None))?;
    bed.pe.host_sync()?;
    graph.launch(stream)?;
    bed.dispatcher.wait(stream)?;
    bed.pe.host_sync()?;
    let start = Instant::now();
    for _ in 0..runs {
        graph.launch(stream)?;
    }
    bed.dispatcher.wait(stream)?;
    let us = start.elapsed().as_secs_f64() * 1e6 / f64::from(runs);
    Ok(slowest(bed.pe, &[us])?[0])
}

/// Returns the time between stamps `step` and `step + 1`, in microseconds.
fn span(times: &[u64], step: usize) -> f64 {
    // With a coarse clock, the difference may be 0.
    times[step + 1].saturating_sub(times[step]).max(1) as f64 / 1e3
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the elementwise maximum of `mine` over all PEs.
fn slowest(pe: &Pe, mine: &[f64]) -> Result<Vec<f64>> {
    let bytes: Vec<u8> = mine.iter().flat_map(|value| value.to_le_bytes()).collect();
    let all = pe.allgather(&bytes).map_err(Error::from)?;
    let value = |bytes: &[u8], i: usize| bytes[8 * i..8 * i + 8].try_into().map_or(0.0, f64::from_le_bytes);
    Ok((0..mine.len()).map(|i| all.iter().map(|bytes| value(bytes, i)).fold(0.0, f64::max)).collect())
}
