//! Formats benchmark results as a table, next to the results of other programs.

use std::fmt::Write;

use super::results::{Results, Row};
use crate::error::Error;

/// Formats the rows, each next to the best result of the other programs for the same case.
///
/// Each row shows the factor by which it is faster, and a mark if it is slower. A line per other program shows the
/// geometric mean of these factors, and how many rows are slower.
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
    text += if others.is_empty() { "\n" } else { "     theirs  faster\n" };
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
        match best_counterpart(row, others)? {
            Some(theirs) => {
                let gain = row.unit.gain(row.value, theirs);
                let mark = if gain < 1.0 { " behind" } else { "" };
                let _ = write!(text, " {:>10} {gain:>7.2}{mark}", number(theirs));
            }
            None if others.is_empty() => {}
            None => text += "          -       -",
        }
        text.push('\n');
    }
    for failure in &ours.failures {
        let _ = writeln!(text, "benchmark `{}` failed: {}", failure.bench, failure.error);
    }
    for other in others {
        text += &summary(ours, other)?;
    }
    Ok(text)
}

/// Returns the best result of the other programs for the same case.
fn best_counterpart(row: &Row, others: &[Results]) -> Result<Option<f64>, Error> {
    let mut best = None;
    for other in others {
        if let Some(found) = other.same_work(row)? {
            best = Some(best.map_or(found.value, |best| row.unit.better(best, found.value)));
        }
    }
    Ok(best)
}

/// Formats the geometric mean of the gains over another program. Empty if they have no case in common.
fn summary(ours: &Results, other: &Results) -> Result<String, Error> {
    let mut gains = Vec::new();
    for row in &ours.rows {
        if let Some(theirs) = other.same_work(row)? {
            gains.push(row.unit.gain(row.value, theirs.value));
        }
    }
    if gains.is_empty() {
        return Ok(String::new());
    }
    let mean = (gains.iter().map(|gain| gain.ln()).sum::<f64>() / gains.len() as f64).exp();
    let behind = gains.iter().filter(|gain| **gain < 1.0).count();
    let rows = gains.len();
    Ok(format!(
        "{rows} rows beside {}: {mean:.2} times as fast in the geometric mean, {behind} behind\n",
        other.program
    ))
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
