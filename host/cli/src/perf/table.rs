//! The table of results.

use std::fmt::Write;

use super::results::{Results, Row};
use crate::error::Error;

/// Formats the rows, together with rows of other programs for the same cases.
pub(super) fn table(ours: &Results, others: &[Results]) -> Result<String, Error> {
    let mut text = format!("{} on {}\n", ours.program, ours.machine);
    for other in others {
        let _ = writeln!(text, "compared with {} on {}", other.program, other.machine);
    }
    let _ = write!(
        text,
        "\n{:<44} {:>8} {:>10} {:>4} {:>10} {:<5} {:>21}",
        "benchmark", "bytes", "grid", "PEs", "median", "", "lowest .. highest"
    );
    text += if others.is_empty() { "\n" } else { "     theirs   ratio\n" };
    for row in &ours.rows {
        let grid = if row.blocks == 0 { String::new() } else { format!("{} x {}", row.blocks, row.threads) };
        let bytes = if row.bytes == 0 { String::new() } else { size(row.bytes) };
        let _ = write!(
            text,
            "{:<44} {bytes:>8} {grid:>10} {:>4} {:>10} {:<5} {:>9} .. {:>8}",
            row.description(),
            row.pes,
            number(row.value),
            row.unit.name(),
            number(row.low),
            number(row.high)
        );
        match counterpart(row, others)? {
            Some(other) => {
                let _ = write!(text, " {:>10} {:>7.2}", number(other.value), row.value / other.value);
            }
            None if others.is_empty() => {}
            None => text += "          -       -",
        }
        text.push('\n');
    }
    for failure in &ours.failures {
        let _ = writeln!(text, "benchmark `{}` failed: {}", failure.bench, failure.error);
    }
    Ok(text)
}

/// Returns the first row of another program for the same case.
pub(super) fn counterpart<'a>(row: &Row, others: &'a [Results]) -> Result<Option<&'a Row>, Error> {
    for other in others {
        if let Some(found) = other.same_work(row)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Formats bytes in the largest unit that divides them.
pub(super) fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.into_iter().find(|(shift, _)| bytes >> shift > 0 && bytes.trailing_zeros() >= *shift) {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None => format!("{bytes} B"),
    }
}

/// Formats a value with at least three significant digits.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_sizes_and_numbers() {
        assert_eq!(
            [size(8), size(1 << 10), size(1536), size(256 << 20)],
            ["8 B", "1 KiB", "1536 B", "256 MiB"]
        );
        assert_eq!(
            [number(366.4), number(14.04), number(1.305), number(0.01234)],
            ["366", "14.0", "1.30", "0.0123"]
        );
    }
}
