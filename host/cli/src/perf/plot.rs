//! SVG plots: one panel for each benchmark with several sizes. A point is the best grid at its size.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::bench::Bench;
use super::results::{Results, Row};
use super::table::{number, size};

const PANEL: (f64, f64) = (460.0, 300.0);
const MARGIN: f64 = 56.0;
const COLOURS: [&str; 4] = ["#0b6e4f", "#c8553d", "#33658a", "#7a4e9b"];

/// The best value for each size.
type Curve = BTreeMap<u64, f64>;

/// Plots the results, together with the results of other programs.
pub(super) fn svg(ours: &Results, others: &[Results]) -> String {
    let programs: Vec<&Results> = std::iter::once(ours).chain(others).collect();
    let panels: Vec<(Bench, Vec<Curve>)> = Bench::ALL
        .into_iter()
        .map(|bench| (bench, programs.iter().map(|program| curve(bench, &program.rows)).collect::<Vec<_>>()))
        .filter(|(_, curves)| curves.first().is_some_and(|curve| curve.len() > 1))
        .collect();
    let columns = panels.len().clamp(1, 2);
    let rows = panels.len().div_ceil(columns).max(1);
    let head = 18.0 * programs.len() as f64 + 12.0;
    let (width, height) = (PANEL.0 * columns as f64, PANEL.1 * rows as f64 + head);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (i, (program, colour)) in programs.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let name = escape(&format!("{}, {}", program.program, program.machine));
        let y = 18.0 * (i + 1) as f64;
        let _ = writeln!(text, "<text x=\"12\" y=\"{y}\" fill=\"{colour}\">{name}</text>");
    }
    for (i, (bench, curves)) in panels.iter().enumerate() {
        let at = (PANEL.0 * (i % columns) as f64, head + PANEL.1 * (i / columns) as f64);
        panel(&mut text, at, *bench, curves);
    }
    text + "</svg>\n"
}

fn curve(bench: Bench, rows: &[Row]) -> Curve {
    let mut curve = Curve::new();
    for row in rows.iter().filter(|row| row.bench == bench.name() && row.value > 0.0) {
        let best = curve.entry(row.bytes).or_insert(row.value);
        *best = bench.unit().better(*best, row.value);
    }
    curve
}

/// Draws a panel with logarithmic axes.
fn panel(text: &mut String, (left, top): (f64, f64), bench: Bench, curves: &[Curve]) {
    let points = || curves.iter().flatten();
    let bounds = |value: fn((&u64, &f64)) -> f64| {
        let values = points().map(value).map(f64::log2);
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
        (low, (high - low).max(1.0))
    };
    let (x_low, x_span) = bounds(|(bytes, _)| *bytes as f64);
    let (y_low, y_span) = bounds(|(_, value)| *value);
    let (plot_width, plot_height) = (PANEL.0 - 2.0 * MARGIN, PANEL.1 - 2.0 * MARGIN);
    let x_of = |bytes: u64| left + MARGIN + ((bytes as f64).log2() - x_low) / x_span * plot_width;
    let y_of = |value: f64| top + MARGIN + (1.0 - (value.log2() - y_low) / y_span) * plot_height;

    let _ = writeln!(
        text,
        "<text x=\"{}\" y=\"{}\" font-weight=\"bold\">{} ({})</text>",
        left + MARGIN,
        top + MARGIN - 14.0,
        escape(bench.description()),
        bench.unit().name()
    );
    let (bottom, right) = (top + PANEL.1 - MARGIN, left + PANEL.0 - MARGIN);
    let sizes: std::collections::BTreeSet<u64> = points().map(|(bytes, _)| *bytes).collect();
    let every = sizes.len().div_ceil(6);
    for bytes in sizes.iter().step_by(every) {
        let x = x_of(*bytes);
        let _ = writeln!(
            text,
            "<line x1=\"{x:.1}\" y1=\"{bottom}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            top + MARGIN,
            bottom + 16.0,
            size(*bytes)
        );
    }
    for step in 0..=4 {
        let value = (y_low + y_span * f64::from(step) / 4.0).exp2();
        let y = y_of(value);
        let _ = writeln!(
            text,
            "<line x1=\"{:.1}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left + MARGIN,
            left + MARGIN - 6.0,
            y + 4.0,
            number(value)
        );
    }
    for (curve, colour) in curves.iter().zip(COLOURS.iter().cycle()) {
        let line: Vec<_> =
            curve.iter().map(|(bytes, value)| format!("{:.1},{:.1}", x_of(*bytes), y_of(*value))).collect();
        let _ = writeln!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            line.join(" ")
        );
        for (bytes, value) in curve {
            let (x, y) = (x_of(*bytes), y_of(*value));
            let _ = writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{colour}\"/>");
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
