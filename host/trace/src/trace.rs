//! The spans of a file.

use crate::span::Span;

/// The spans of some PEs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The spans, in any order.
    pub spans: Vec<Span>,
    /// The number of spans that were not kept.
    pub dropped: u64,
}

impl Trace {
    /// Adds the spans of another file.
    pub fn merge(&mut self, other: Trace) {
        self.spans.extend(other.spans);
        self.dropped += other.dropped;
    }

    /// Returns the time of the last begin or end.
    pub fn last_ns(&self) -> u64 {
        self.spans.iter().map(|span| span.end.unwrap_or(span.begin)).max().unwrap_or(0)
    }

    /// Returns the time of the first begin.
    pub fn first_ns(&self) -> u64 {
        self.spans.iter().map(|span| span.begin).min().unwrap_or(0)
    }
}
