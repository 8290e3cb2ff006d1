//! SVG plots: one panel for each benchmark with several sizes or numbers of PEs.
//!
//! A curve shows one grid of one program. Its colour identifies the grid, its line style the program. Bars show the
//! spread.

mod axis;
mod curves;
mod svg;

use std::collections::BTreeMap;

use self::axis::Axis;
use self::curves::{Curve, Panel, Setup, panels};
use self::svg::Svg;
use super::results::Results;
use super::table::size;

/// Size of a panel in pixels, with its margins.
const PANEL: (f64, f64) = (560.0, 310.0);
const LEFT: f64 = 60.0;
/// Width of the right margin, which holds the legend.
const RIGHT: f64 = 110.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 52.0;
/// Height of a line of text.
const LINE: f64 = 16.0;

/// Colours of grids: the palette of Okabe and Ito, which is safe for colour-blind readers.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d1f"];
/// Line styles of programs, as lengths of dashes and gaps.
const DASHES: [&str; 4] = ["none", "6 4", "2 3", "9 3 2 3"];

/// Returns an SVG plot of the results `ours`, together with the results of other programs.
pub(super) fn svg(ours: &Results, others: &[Results]) -> String {
    let programs: Vec<&Results> = std::iter::once(ours).chain(others).collect();
    let panels = panels(&programs);
    let columns = panels.len().clamp(1, 2);
    let rows = panels.len().div_ceil(columns);
    let head = LINE * (programs.len() + 1) as f64 + 12.0;
    let mut svg = Svg::new(PANEL.0 * columns as f64, PANEL.1 * rows as f64 + head);
    for (i, (program, dashes)) in programs.iter().zip(DASHES.iter().cycle()).enumerate() {
        let y = LINE * (i + 1) as f64;
        svg.line((12.0, y - 4.0), (48.0, y - 4.0), &format!("stroke=\"#333\" {}", stroke(dashes)));
        svg.text((54.0, y), "", &format!("{}, {}", program.program, program.machine));
    }
    let note =
        "points: medians; bars: between the quartiles, or from lowest to highest if a file has no quartiles";
    svg.text((12.0, LINE * (programs.len() + 1) as f64), "fill=\"#666\"", note);
    for (i, panel) in panels.iter().enumerate() {
        let origin = (PANEL.0 * (i % columns) as f64, head + PANEL.1 * (i / columns) as f64);
        Frame::new(panel, origin).draw(&mut svg, panel);
    }
    svg.finish()
}

fn stroke(dashes: &str) -> String {
    format!("stroke-width=\"2\" stroke-dasharray=\"{dashes}\"")
}

/// Axes of a panel, and its position in the plot.
struct Frame {
    x: Axis,
    y: Axis,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Frame {
    fn new(panel: &Panel, (left, top): (f64, f64)) -> Self {
        let points = || panel.curves.iter().flat_map(|curve| &curve.points);
        let label = if panel.is_by_pes { |pes: u64| pes.to_string() } else { size };
        Self {
            x: Axis::powers_of_two(points().map(|(x, _)| *x), label),
            y: Axis::decades(points().flat_map(|(_, point)| [point.value, point.spread.0, point.spread.1])),
            left: left + LEFT,
            right: left + PANEL.0 - RIGHT,
            top: top + TOP,
            bottom: top + PANEL.1 - BOTTOM,
        }
    }

    fn x_of(&self, part: f64) -> f64 {
        self.left + part * (self.right - self.left)
    }

    fn y_of(&self, part: f64) -> f64 {
        self.bottom - part * (self.bottom - self.top)
    }

    fn point(&self, x: u64, value: f64) -> (f64, f64) {
        (self.x_of(self.x.part(x as f64)), self.y_of(self.y.part(value)))
    }

    fn draw(&self, svg: &mut Svg, panel: &Panel) {
        svg.text((self.left, self.top - 16.0), "font-weight=\"bold\"", panel.bench.description());
        let x_title = if panel.is_by_pes { "number of PEs" } else { "message size" };
        let middle = (self.left + self.right) / 2.0;
        svg.text((middle, self.bottom + 34.0), "text-anchor=\"middle\"", x_title);
        svg.text((self.left - 6.0, self.top - 16.0), "text-anchor=\"end\"", panel.bench.unit().name());
        for tick in &self.x.ticks {
            let x = self.x_of(tick.part);
            svg.line((x, self.top), (x, self.bottom), "stroke=\"#ddd\"");
            svg.text((x, self.bottom + LINE), "text-anchor=\"middle\"", &tick.label);
        }
        for tick in &self.y.ticks {
            let y = self.y_of(tick.part);
            svg.line((self.left, y), (self.right, y), "stroke=\"#ddd\"");
            svg.text((self.left - 6.0, y + 4.0), "text-anchor=\"end\"", &tick.label);
        }
        svg.line((self.left, self.top), (self.left, self.bottom), "stroke=\"#888\"");
        svg.line((self.left, self.bottom), (self.right, self.bottom), "stroke=\"#888\"");
        let colours = colours(&panel.curves);
        for curve in &panel.curves {
            self.curve(svg, curve, colours[&curve.setup]);
        }
        self.legend(svg, &colours);
    }

    fn curve(&self, svg: &mut Svg, curve: &Curve, colour: &str) {
        for (x, point) in &curve.points {
            let (low, high) = (self.point(*x, point.spread.0), self.point(*x, point.spread.1));
            svg.line(low, high, &format!("stroke=\"{colour}\" stroke-width=\"6\" stroke-opacity=\"0.35\""));
        }
        let points: Vec<_> = curve.points.iter().map(|(x, point)| self.point(*x, point.value)).collect();
        if points.len() > 1 {
            let dashes = DASHES[curve.program % DASHES.len()];
            svg.polyline(&points, &format!("stroke=\"{colour}\" {}", stroke(dashes)));
        }
        let fill = if curve.program == 0 { colour } else { "white" };
        for point in points {
            svg.circle(point, &format!("fill=\"{fill}\" stroke=\"{colour}\""));
        }
    }

    /// Labels the grids, if there are several, and the numbers of PEs, if they differ.
    fn legend(&self, svg: &mut Svg, colours: &BTreeMap<Setup, &str>) {
        if colours.len() < 2 {
            return;
        }
        let x = self.right + 12.0;
        svg.text((x, self.top - 16.0), "fill=\"#666\"", "blocks x threads");
        let names_pes = colours.keys().any(|setup| Some(setup.pes) != colours.keys().next().map(|s| s.pes));
        for (i, (setup, colour)) in colours.iter().enumerate() {
            let y = self.top + LINE * (i as f64 + 0.5);
            svg.line((x, y - 4.0), (x + 14.0, y - 4.0), &format!("stroke=\"{colour}\" stroke-width=\"3\""));
            svg.text((x + 18.0, y), "", &setup.label(names_pes));
        }
    }
}

fn colours(curves: &[Curve]) -> BTreeMap<Setup, &'static str> {
    let mut setups: Vec<Setup> = curves.iter().map(|curve| curve.setup).collect();
    setups.sort();
    setups.dedup();
    setups.into_iter().zip(COLOURS.into_iter().cycle()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::bench::{Bench, Unit};
    use crate::perf::results::Row;

    fn results(bench: Bench, rows: &[(u64, u32, f64)]) -> Results {
        let unit: Unit = bench.unit();
        let row = |&(bytes, blocks, value): &(u64, u32, f64)| Row {
            bench: bench.name().into(),
            bytes,
            blocks,
            threads: 256,
            pes: 2,
            rounds: 10,
            unit,
            value,
            low: value * 0.8,
            high: value * 1.2,
            quartiles: Some([value * 0.9, value * 1.1]),
        };
        let rows = rows.iter().map(row).collect();
        Results { program: "rushmem".into(), machine: "a laptop".into(), rows, failures: Vec::new() }
    }

    #[test]
    fn draws_a_curve_for_each_grid_and_program() {
        let rows = [(8, 1, 0.76), (4096, 1, 12.0), (1 << 20, 1, 90.0), (4096, 8, 30.0), (1 << 20, 8, 300.0)];
        let ours = results(Bench::PutBandwidth, &rows);
        let theirs = results(Bench::PutBandwidth, &rows[..3]);
        let svg = svg(&ours, &[theirs]);
        assert_eq!(svg.matches("<polyline ").count(), 3, "{svg}");
        assert_eq!(svg.matches("stroke-opacity").count(), 8, "one bar for each point: {svg}");
        for text in
            ["1 x 256", "8 x 256", "GB/s", "message size", ">0.5<", ">1<", ">500<", ">8 B<", ">256 KiB<"]
        {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(!svg.contains("0.76"), "{svg}");
    }

    #[test]
    fn plots_the_start_of_jobs_by_their_pes() {
        let mut ours = results(Bench::Init, &[(0, 0, 3.0), (0, 0, 7.0), (0, 0, 13.0)]);
        for (row, pes) in ours.rows.iter_mut().zip([1, 2, 4]) {
            row.pes = pes;
        }
        let svg = svg(&ours, &[]);
        assert!(svg.contains("number of PEs") && svg.contains(">4<") && svg.contains("<polyline "), "{svg}");
    }

    #[test]
    fn benchmarks_of_one_size_have_no_panel() {
        let svg = svg(&results(Bench::PRate, &[(8, 1, 3.0), (8, 2, 4.0)]), &[]);
        assert!(!svg.contains("<circle "), "{svg}");
    }
}
