//! The spans of a file.

use std::path::{Path, PathBuf};

use crate::offset::ClockOffset;
use crate::span::Span;

/// Infix between the name of a timeline and a PE number.
pub const PART: &str = ".pe";

/// Returns the file to which PE `pe` writes its part of the timeline `file`.
pub fn part_of(file: &Path, pe: u32) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!("{PART}{pe}"));
    name.into()
}

/// The spans of some PEs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Spans, in any order.
    pub spans: Vec<Span>,
    /// How many spans were discarded.
    pub dropped: u64,
    /// Upper bound on the error of times, in nanoseconds, because machines have different clocks. 0 for a single
    /// machine.
    pub clock_error_ns: u64,
}

impl Trace {
    /// Adds the spans of another file.
    pub fn merge(&mut self, other: Trace) {
        self.spans.extend(other.spans);
        self.dropped += other.dropped;
        self.clock_error_ns = self.clock_error_ns.max(other.clock_error_ns);
    }

    /// Sets the names of objects in symmetric memory that the spans use. `name` returns the name of the object at an
    /// offset.
    pub fn name_objects(&mut self, name: impl Fn(u64) -> Option<String>) {
        for Span { detail, .. } in &mut self.spans {
            let word = detail.awaits.or(detail.changes).map(|word| word.offset);
            if let Some(offset) = word.or(detail.remote) {
                detail.object = name(offset);
            }
        }
    }

    /// Converts all times to another clock.
    pub(crate) fn correct(&mut self, ClockOffset { ns, error_ns }: ClockOffset) {
        for span in &mut self.spans {
            span.begin = span.begin.saturating_add_signed(ns);
            span.end = span.end.map(|end| end.saturating_add_signed(ns));
        }
        self.clock_error_ns = self.clock_error_ns.max(error_ns);
    }

    /// Returns the latest start or end of any span.
    pub fn last_ns(&self) -> u64 {
        self.spans.iter().map(|span| span.end.unwrap_or(span.begin)).max().unwrap_or(0)
    }

    /// Returns the earliest start of any span.
    pub fn first_ns(&self) -> u64 {
        self.spans.iter().map(|span| span.begin).min().unwrap_or(0)
    }
}
