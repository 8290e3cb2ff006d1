//! Formatting of durations with a suitable unit.

use std::fmt;

/// A duration in nanoseconds, displayed in ns, us, ms or s.
#[derive(Clone, Copy, Debug)]
pub struct Time(pub u64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns @ 0..1_000 => f.pad(&format!("{ns} ns")),
            ns @ 1_000..1_000_000 => f.pad(&format!("{:.1} us", ns as f64 / 1e3)),
            ns @ 1_000_000..1_000_000_000 => f.pad(&format!("{:.1} ms", ns as f64 / 1e6)),
            ns => f.pad(&format!("{:.2} s", ns as f64 / 1e9)),
        }
    }
}
