//! Measures and verifies the time steps of the Jacobi example with a given shape.

use std::time::Instant;

use rushmem::{Graph, Operations, Pe, Stream};
use rushmem_example_kernels::JacobiShape;
use rushmem_examples::{Result, largest, median};

use crate::args::Args;
use crate::cpu;
use crate::field::Field;
use crate::reference::Reference;

pub(crate) struct Timing {
    /// Median duration of a time step on the slowest PE, in seconds.
    pub(crate) seconds: f64,
    /// CPU time of a time step, in seconds over all processes.
    pub(crate) cpu: f64,
    pub(crate) steps: u64,
    /// The largest error and the tolerance, or `None` if the result matched the serial reference bit for bit.
    pub(crate) error: Option<(f64, f64)>,
    /// How kernels of this PE reach its neighbours: by P2P, by NIC, by both, or that there are none.
    pub(crate) routes: &'static str,
}

/// Runs all repetitions on the PEs of `shape` and verifies the result. Other PEs only take part in synchronisation.
/// Collective.
pub(crate) fn run(pe: &Pe, args: &Args, shape: JacobiShape) -> Result<Timing> {
    // One more repetition than requested, as a warm-up.
    let steps = args.steps * (u64::from(args.repetitions) + 1);
    let field = Field::new(pe, shape, Reference::new(shape, steps, args.analytic))?;
    let stream = pe.stream()?;
    let graph = match args.no_graph || !field.takes_part() {
        true => None,
        false => Some(stream.capture(|stream| {
            (0..args.graph_launches).try_for_each(|_| field.launch(stream, args.launch_steps))
        })?),
    };

    let mut seconds = Vec::new();
    let mut cpu_begin = 0.0;
    for repetition in 0..=args.repetitions {
        if repetition == 1 {
            cpu_begin = cpu::seconds(pe)?;
        }
        // Creating a graph waits for running kernels, which may themselves wait for this PE. So no PE launches before
        // all have created their graphs.
        pe.host_sync()?;
        let start = Instant::now();
        if field.takes_part() {
            queue(&field, &stream, args, graph.as_ref())?;
            stream.quiet()?;
            stream.wait()?;
        }
        seconds.push(largest(pe, start.elapsed().as_secs_f64())? / args.steps as f64);
    }
    let cpu = (cpu::seconds(pe)? - cpu_begin) / (args.steps * u64::from(args.repetitions)) as f64;
    let seconds = median(seconds.split_off(1));

    let error = field.verify(steps)?;
    let error = (!field.reference.is_exact()).then(|| (error, field.reference.tolerance()));
    drop(graph);
    field.end()?;
    Ok(Timing { seconds, cpu, steps, error, routes: routes(pe, shape) })
}

/// Queues the time steps of one repetition: whole graphs, then single kernels for the remainder.
fn queue(field: &Field, stream: &Stream, args: &Args, graph: Option<&Graph>) -> Result<()> {
    let mut left = args.steps;
    if let Some(graph) = graph {
        let steps = args.launch_steps * args.graph_launches;
        while left >= steps {
            graph.launch(stream)?;
            left -= steps;
        }
    }
    while left > 0 {
        let steps = left.min(args.launch_steps);
        field.launch(stream, steps)?;
        left -= steps;
    }
    Ok(())
}

/// Describes how kernels of this PE reach its neighbours.
fn routes(pe: &Pe, shape: JacobiShape) -> &'static str {
    let is_neighbour =
        |other: u32| (0..shape.sides()).any(|side| shape.neighbour(pe.my_pe(), side) == Some(other));
    let (mut p2p, mut nic) = (false, false);
    for route in pe.peer_routes().iter().filter(|route| is_neighbour(route.pe)) {
        match route.via == "p2p" {
            true => p2p = true,
            false => nic = true,
        }
    }
    match (p2p, nic) {
        (true, true) => "p2p and NIC",
        (true, false) => "p2p",
        (false, true) => "NIC",
        (false, false) => "nothing",
    }
}
