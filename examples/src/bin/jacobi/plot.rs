//! An SVG plot of weak scaling: device time per step, and parallel efficiency.

use std::fmt::Write;

use crate::point::{Device, Point};

/// Width and height of a panel in pixels, including its margins.
const PANEL: (f64, f64) = (440.0, 300.0);
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 52.0;
/// Height of the plot's title text above the panels, in pixels.
const HEAD: f64 = 52.0;

const MEASURED: &str = "#0072b2";
const IDEAL: &str = "#999999";

/// A curve of the plot, with one value for each number of PEs.
struct Curve<'a> {
    name: &'a str,
    colour: &'a str,
    values: Vec<f64>,
}

pub(crate) fn svg(title: &str, device: &Device, points: &[Point]) -> String {
    let (width, height) = (2.0 * PANEL.0, PANEL.1 + HEAD);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(&mut svg, (12.0, 20.0), "font-weight=\"bold\"", title);
    text(&mut svg, (12.0, 38.0), "fill=\"#666\"", &note(device));
    let Some(first) = points.first() else { return svg + "</svg>\n" };
    let pes: Vec<usize> = points.iter().map(|point| point.pes).collect();
    let curves = |value: &dyn Fn(&Point) -> f64| {
        [
            Curve { name: "measured", colour: MEASURED, values: points.iter().map(value).collect() },
            Curve { name: "ideal", colour: IDEAL, values: vec![value(first); points.len()] },
        ]
    };
    let times = curves(&|point| 1e6 * point.cost);
    panel(&mut svg, 0.0, &format!("{}, us a step", device.time()), &pes, &times);
    let efficiency = curves(&|point| 100.0 * point.efficiency(first));
    panel(&mut svg, PANEL.0, "parallel efficiency in %", &pes, &efficiency);
    svg + "</svg>\n"
}

/// Returns a note on how many PEs share a device, and how that affects the times.
fn note(device: &Device) -> String {
    match device {
        Device { is_gpu: false, sharers } => format!(
            "weak scaling; {sharers} PEs share the CPU cores of a host, so CPU time counts and not the time on the clock"
        ),
        Device { sharers: 1, .. } => "weak scaling; each PE has a GPU of its own".into(),
        Device { sharers, .. } => format!(
            "weak scaling; {sharers} PEs share a GPU: each has a part of its multiprocessors, and all use its memory"
        ),
    }
}

/// Draws the curves of one panel. The numbers of PEs are spaced evenly along x.
fn panel(svg: &mut String, left: f64, title: &str, pes: &[usize], curves: &[Curve]) {
    let (x0, x1) = (left + LEFT, left + PANEL.0 - RIGHT);
    let (y0, y1) = (HEAD + PANEL.1 - BOTTOM, HEAD + TOP);
    let highest = curves.iter().flat_map(|curve| &curve.values).fold(0.0f64, |a, &b| a.max(b));
    let step = round_step(highest);
    let top = (highest / step).ceil().max(1.0) * step;
    let x = |i: usize| x0 + (x1 - x0) * (i as f64 + 0.5) / pes.len() as f64;
    let y = |value: f64| y0 - (y0 - y1) * value / top;

    text(svg, (x0, y1 - 16.0), "font-weight=\"bold\"", title);
    for i in 0..=(top / step).round() as u32 {
        let value = f64::from(i) * step;
        line(svg, (x0, y(value)), (x1, y(value)), "stroke=\"#ddd\"");
        text(svg, (x0 - 6.0, y(value) + 4.0), "text-anchor=\"end\"", &format!("{value}"));
    }
    for (i, pes) in pes.iter().enumerate() {
        text(svg, (x(i), y0 + 16.0), "text-anchor=\"middle\"", &pes.to_string());
    }
    text(svg, ((x0 + x1) / 2.0, y0 + 36.0), "text-anchor=\"middle\"", "number of PEs");
    for (i, Curve { name, colour, values }) in curves.iter().enumerate() {
        let places: Vec<(f64, f64)> = values.iter().enumerate().map(|(i, &value)| (x(i), y(value))).collect();
        let list: Vec<_> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            list.join(" ")
        );
        for (x, y) in places {
            let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let x = x1 - 140.0 + 74.0 * i as f64;
        line(svg, (x, y1 - 20.0), (x + 14.0, y1 - 20.0), &format!("stroke=\"{colour}\" stroke-width=\"3\""));
        text(svg, (x + 18.0, y1 - 16.0), "", name);
    }
}

/// Returns a round tick spacing that yields at most six ticks up to `highest`.
fn round_step(highest: f64) -> f64 {
    let least = highest.max(f64::MIN_POSITIVE) / 6.0;
    let decade = 10f64.powf(least.log10().floor());
    let round = [1.0, 2.0, 5.0, 10.0].into_iter().find(|round| round * decade >= least);
    round.unwrap_or(10.0) * decade
}

fn line(svg: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64), style: &str) {
    let _ = writeln!(svg, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {style}/>");
}

fn text(svg: &mut String, (x, y): (f64, f64), style: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{text}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!([6.0, 7.0, 13.0, 100.0, 301.0].map(round_step), [1.0, 2.0, 5.0, 20.0, 100.0]);
    }

    #[test]
    fn plot_notes_that_pes_share_a_device() {
        let svg_on = |is_gpu, sharers| {
            let points = [Point { pes: 1, cost: 1e-4 }, Point { pes: 8, cost: 2e-4 }];
            svg("a & b", &Device { is_gpu, sharers }, &points)
        };
        let shared = svg_on(true, 8);
        assert!(shared.contains("8 PEs share a GPU") && shared.contains("a &amp; b"), "{shared}");
        assert_eq!(shared.matches("<polyline ").count(), 4, "{shared}");
        let alone = svg_on(true, 1);
        assert!(alone.contains("a GPU of its own"), "{alone}");
        let native = svg_on(false, 8);
        assert!(native.contains("8 PEs share the CPU cores"), "{native}");
    }
}
