//! Writes the elements of plots as SVG.

use std::fmt::Write;

/// A point in pixels, relative to the upper left corner.
type Point = (f64, f64);

/// An SVG image under construction, as text.
pub(super) struct Svg(String);

impl Svg {
    /// Creates a white image of this size in pixels.
    pub(super) fn new(width: f64, height: f64) -> Self {
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        ))
    }

    pub(super) fn line(&mut self, from: Point, to: Point, style: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ =
            writeln!(self.0, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {style}/>");
    }

    pub(super) fn text(&mut self, (x, y): Point, style: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = writeln!(self.0, "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{text}</text>");
    }

    pub(super) fn polyline(&mut self, points: &[Point], style: &str) {
        let points: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(self.0, "<polyline points=\"{}\" fill=\"none\" {style}/>", points.join(" "));
    }

    pub(super) fn circle(&mut self, (x, y): Point, style: &str) {
        let _ = writeln!(self.0, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" {style}/>");
    }

    pub(super) fn finish(self) -> String {
        self.0 + "</svg>\n"
    }
}
