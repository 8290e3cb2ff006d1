//! Reports of the Jacobi example: a line for a single run, or a table for runs with several numbers of PEs.

use rushmem::Pe;
use rushmem_example_kernels::JacobiShape;
use rushmem_examples::Result;

use crate::args::{Args, axes};
use crate::cpu;
use crate::measure::{self, Timing};
use crate::plot;
use crate::point::{Device, Point};

/// The final report, which only PE 0 has.
pub(crate) struct Report {
    /// Summary of the measurement, as one line of text.
    pub(crate) line: String,
    /// Scaling table as an SVG plot, or empty for a single run.
    pub(crate) svg: String,
}

/// Measures one shape on all PEs. Returns the report on PE 0.
pub(crate) fn one(pe: &Pe, args: &Args, shape: JacobiShape) -> Result<Option<Report>> {
    let timing = measure::run(pe, args, shape)?;
    Ok((pe.my_pe() == 0).then(|| Report { line: line(pe, args, shape, &timing), svg: String::new() }))
}

/// Measures several shapes in sequence. PE 0 prints a table and returns the report.
pub(crate) fn several(pe: &Pe, args: &Args, shapes: &[JacobiShape]) -> Result<Option<Report>> {
    let device = Device { is_gpu: pe.is_gpu(), sharers: sharers(&devices(pe)?) };
    let mut points: Vec<Point> = Vec::new();
    for shape in shapes {
        let pes = shape.pes.count();
        let Timing { seconds, cpu, .. } = measure::run(pe, args, *shape)?;
        let cost = if device.is_gpu { seconds } else { cpu / pes as f64 };
        let point = Point { pes, cost };
        if pe.my_pe() == 0 {
            println!(
                "  {pes:>5} PEs {:>12}: {:10.1} us a step, {:10.1} us of {}, efficiency {:4.0} %",
                numbers(&axes(shape.pes, shape.is_flat)),
                seconds * 1e6,
                cost * 1e6,
                device.time(),
                100.0 * point.efficiency(points.first().unwrap_or(&point))
            );
        }
        points.push(point);
    }
    let title = format!(
        "{} cells on each PE, {}, {}",
        numbers(&axes(shapes[0].cells, shapes[0].is_flat)),
        launches(args),
        pe.machine()
    );
    let line = format!("{title}: weak scaling over {} numbers of PEs, each run verified", points.len());
    Ok((pe.my_pe() == 0).then(|| Report { line, svg: plot::svg(&title, &device, &points) }))
}

/// Returns an identifier of each PE's device: its GPU, or its host. Collective.
fn devices(pe: &Pe) -> Result<Vec<Vec<u8>>> {
    Ok(pe.allgather(format!("{} {}", cpu::host(), pe.machine()).as_bytes())?)
}

/// Returns the maximum number of PEs that share a device, given an identifier of each PE's device.
fn sharers(devices: &[Vec<u8>]) -> usize {
    let count = |device: &Vec<u8>| devices.iter().filter(|other| *other == device).count();
    devices.iter().map(count).max().unwrap_or(1)
}

/// Formats the result of a run as one line of text.
fn line(pe: &Pe, args: &Args, shape: JacobiShape, timing: &Timing) -> String {
    let updates = (shape.cells.count() * shape.pes.count()) as f64 / timing.seconds / 1e6;
    let verified = match timing.error {
        None => "equal to the serial reference bit by bit".into(),
        Some((error, most)) => format!("within {error:.1e} of the analytic solution ({most:.1e} allowed)"),
    };
    format!(
        "{} cells on each of {} PEs ({}; neighbours by {}; {}), {}: {:.1} us a step, {updates:.0} M cell updates/s; \
         {} steps {verified}",
        numbers(&axes(shape.cells, shape.is_flat)),
        numbers(&axes(shape.pes, shape.is_flat)),
        pe.machine(),
        timing.routes,
        if shape.is_flat { "5-point" } else { "7-point" },
        launches(args),
        timing.seconds * 1e6,
        timing.steps,
    )
}

/// Describes how many steps each launch computes and whether launches are in graphs.
fn launches(args: &Args) -> String {
    let steps = |n: u64| if n == 1 { "1 step".into() } else { format!("{n} steps") };
    match args.no_graph {
        true => format!("launches of {}", steps(args.launch_steps)),
        false => format!("graphs of {} launches of {}", args.graph_launches, steps(args.launch_steps)),
    }
}

fn numbers(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(" x ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sharers_counts_the_busiest_device() {
        let devices = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>();
        assert_eq!(sharers(&devices(&["a", "b", "a"])), 2);
        assert_eq!(sharers(&devices(&["a"])), 1);
    }
}
