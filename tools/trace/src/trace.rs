//! The contents of a trace file, and the names of the files of several PEs.

use std::path::{Path, PathBuf};

use crate::offset::ClockOffset;
use crate::span::Span;

/// Separates the name of a timeline from the PE's rank in the name of a partial file.
pub const PART: &str = ".pe";

/// Returns the path of the partial file to which PE `pe` writes its spans of the timeline `file`.
pub fn part_of(file: &Path, pe: u32) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!("{PART}{pe}"));
    name.into()
}

/// The recorded spans of one or more PEs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The spans, in any order.
    pub spans: Vec<Span>,
    /// Number of spans that were discarded because a recorder was full.
    pub dropped: u64,
    /// Upper bound on the error of times, in nanoseconds, due to different clocks of machines. 0 for a single machine.
    pub clock_error_ns: u64,
}

impl Trace {
    /// Adds the spans of another trace, such as the file of another PE.
    pub fn merge(&mut self, other: Trace) {
        self.spans.extend(other.spans);
        self.dropped += other.dropped;
        self.clock_error_ns = self.clock_error_ns.max(other.clock_error_ns);
    }

    /// Fills in [`Detail::object`](crate::Detail::object) for spans that access symmetric memory. `name` returns the
    /// name of the object at an offset.
    pub fn name_objects(&mut self, name: impl Fn(u64) -> Option<String>) {
        for Span { detail, .. } in &mut self.spans {
            let word = detail.awaits.or(detail.changes).map(|word| word.offset);
            if let Some(offset) = word.or(detail.remote) {
                detail.object = name(offset);
            }
        }
    }

    /// Converts all times to another clock, given its offset.
    pub(crate) fn correct(&mut self, ClockOffset { ns, error_ns }: ClockOffset) {
        for span in &mut self.spans {
            span.begin = span.begin.saturating_add_signed(ns);
            span.end = span.end.map(|end| end.saturating_add_signed(ns));
        }
        self.clock_error_ns = self.clock_error_ns.max(error_ns);
    }

    /// Returns the latest start or end time of any span, in nanoseconds since 1970, or 0 without spans.
    pub fn last_ns(&self) -> u64 {
        self.spans.iter().map(|span| span.end.unwrap_or(span.begin)).max().unwrap_or(0)
    }

    /// Returns the earliest start time of any span, in nanoseconds since 1970, or 0 without spans.
    pub fn first_ns(&self) -> u64 {
        self.spans.iter().map(|span| span.begin).min().unwrap_or(0)
    }
}
