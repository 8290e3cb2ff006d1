//! The table for people.

use std::fmt::Write;

use super::results::{Results, Row};
use crate::error::Error;

/// Rows, with those of other programs that did the same.
pub(super) fn table(ours: &Results, others: &[Results]) -> Result<String, Error> {
    let mut text = format!("{} on {}\n", ours.program, ours.machine);
    for other in others {
        let _ = writeln!(text, "beside {} on {}", other.program, other.machine);
    }
    let _ = write!(
        text,
        "\n{:<44} {:>8} {:>10} {:>4} {:>10} {:<5} {:>21}",
        "what", "bytes", "grid", "PEs", "median", "", "lowest .. highest"
    );
    text += if others.is_empty() { "\n" } else { "     theirs   ratio\n" };
    for row in &ours.rows {
        let grid = if row.blocks == 0 { String::new() } else { format!("{} x {}", row.blocks, row.threads) };
        let bytes = if row.bytes == 0 { String::new() } else { size(row.bytes) };
        let _ = write!(
            text,
            "{:<44} {bytes:>8} {grid:>10} {:>4} {:>10} {:<5} {:>9} .. {:>8}",
            row.what(),
            row.pes,
            number(row.value),
            row.unit.name(),
            number(row.low),
            number(row.high)
        );
        match find(row, others)? {
            Some(other) => {
                let _ = write!(text, " {:>10} {:>7.2}", number(other.value), row.value / other.value);
            }
            None if others.is_empty() => {}
            None => text += "          -       -",
        }
        text.push('\n');
    }
    Ok(text)
}

/// The first row among the others' that did the same.
pub(super) fn find<'a>(row: &Row, others: &'a [Results]) -> Result<Option<&'a Row>, Error> {
    for other in others {
        if let Some(found) = other.beside(row)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Bytes, in the largest unit that divides them.
pub(super) fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.into_iter().find(|(shift, _)| bytes >> shift > 0 && bytes.trailing_zeros() >= *shift) {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None => format!("{bytes} B"),
    }
}

/// Three digits that count, at least.
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
    fn sizes_and_numbers_are_short() {
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
