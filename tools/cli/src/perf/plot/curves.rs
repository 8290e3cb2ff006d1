//! Groups the rows of benchmark results into the curves of a plot.

use std::collections::BTreeMap;

use crate::perf::bench::Bench;
use crate::perf::results::{Results, Row};

/// The curves of one benchmark.
pub(super) struct Panel {
    pub(super) bench: Bench,
    /// Whether the x axis is the number of PEs, instead of the message size.
    pub(super) is_by_pes: bool,
    pub(super) curves: Vec<Curve>,
}

/// Results of one program with one grid.
pub(super) struct Curve {
    pub(super) program: usize,
    pub(super) setup: Setup,
    /// Points by message size or number of PEs.
    pub(super) points: BTreeMap<u64, Point>,
}

/// The parameters that all points of a curve share. The number of PEs is 0 if that is the x axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Setup {
    pub(super) pes: u32,
    pub(super) blocks: u32,
    pub(super) threads: u32,
}

/// A median with its spread: the quartiles if known, otherwise minimum and maximum.
pub(super) struct Point {
    pub(super) value: f64,
    pub(super) spread: (f64, f64),
}

impl Setup {
    pub(super) fn label(self, names_pes: bool) -> String {
        let Self { pes, blocks, threads } = self;
        if names_pes { format!("{blocks} x {threads}, {pes} PEs") } else { format!("{blocks} x {threads}") }
    }
}

/// Returns a panel for each benchmark for which the first program has a curve of several points.
pub(super) fn panels(programs: &[&Results]) -> Vec<Panel> {
    let panel = |bench: Bench| {
        let is_by_pes = matches!(bench, Bench::Init | Bench::InitMemory);
        let curves =
            programs.iter().enumerate().flat_map(|(i, program)| curves(i, program, bench, is_by_pes));
        Panel { bench, is_by_pes, curves: curves.collect() }
    };
    let is_plotted =
        |panel: &Panel| panel.curves.iter().any(|curve| curve.program == 0 && curve.points.len() > 1);
    Bench::ALL.into_iter().map(panel).filter(is_plotted).collect()
}

fn curves(program: usize, results: &Results, bench: Bench, is_by_pes: bool) -> Vec<Curve> {
    let mut curves: BTreeMap<Setup, BTreeMap<u64, Point>> = BTreeMap::new();
    for row in results.rows.iter().filter(|row| row.bench == bench.name() && row.value > 0.0) {
        let &Row { blocks, threads, pes, bytes, .. } = row;
        let (x, pes) = if is_by_pes { (pes.into(), 0) } else { (bytes, pes) };
        // A logarithmic axis cannot show 0.
        if x > 0 {
            curves.entry(Setup { pes, blocks, threads }).or_default().insert(x, point(row));
        }
    }
    curves.into_iter().map(|(setup, points)| Curve { program, setup, points }).collect()
}

fn point(row: &Row) -> Point {
    let [low, high] = row.quartiles.unwrap_or([row.low, row.high]);
    let on_axis = |bound: f64| if bound > 0.0 { bound } else { row.value };
    Point { value: row.value, spread: (on_axis(low), on_axis(high)) }
}
