//! Results, and the files that they are kept in.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::bench::{Bench, Unit};
use super::plan::Shape;
use crate::error::Error;

/// What a program has measured. Programs of others write the same.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Results {
    /// Its name and version.
    pub(super) program: String,
    /// What it ran on.
    pub(super) machine: String,
    pub(super) rows: Vec<Row>,
}

/// One measurement. The first fields say what was done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) bench: String,
    pub(super) bytes: u64,
    pub(super) blocks: u32,
    pub(super) threads: u32,
    pub(super) pes: u32,
    pub(super) rounds: u32,
    /// Of what the following are.
    pub(super) unit: Unit,
    /// The median of the runs.
    pub(super) value: f64,
    /// The worst and the best.
    pub(super) low: f64,
    /// As `low`.
    pub(super) high: f64,
}

impl Row {
    /// A row of these measurements, of which there is at least one.
    pub(super) fn new(shape: &Shape, mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |i: usize| values.get(i).copied().unwrap_or(f64::NAN);
        Self {
            bench: shape.bench.name().into(),
            bytes: shape.bytes,
            blocks: shape.blocks,
            threads: shape.threads,
            pes: shape.pes,
            rounds: shape.rounds,
            unit: shape.bench.unit(),
            value: at(values.len() / 2),
            low: at(0),
            high: at(values.len().saturating_sub(1)),
        }
    }

    /// True if both did the same, apart from rounds.
    pub(super) fn like(&self, other: &Self) -> bool {
        let key = |row: &Self| (row.bytes, row.blocks, row.threads, row.pes);
        self.bench == other.bench && key(self) == key(other)
    }

    /// What was measured, for people.
    pub(super) fn what(&self) -> &str {
        match Bench::named(&self.bench) {
            Some(bench) => bench.what(),
            None => &self.bench,
        }
    }
}

impl Results {
    /// Reads a file of results.
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let wrong = |why: &dyn std::fmt::Display| Error::Usage(format!("{}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
        let read: Self = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
        match read
            .rows
            .iter()
            .find(|row| Bench::named(&row.bench).is_none_or(|bench| bench.unit() != row.unit))
        {
            None => Ok(read),
            Some(row) => {
                Err(wrong(&format!("`{}` in {} is no benchmark of this version", row.bench, row.unit.name())))
            }
        }
    }

    /// Takes over the rows of another file of the same program.
    pub(super) fn add(&mut self, other: Self) {
        self.rows.extend(other.rows);
    }

    /// The row that did what `row` did.
    ///
    /// # Errors
    /// If it did so more or less often: that is not the same work.
    pub(super) fn beside(&self, row: &Row) -> Result<Option<&Row>, Error> {
        match self.rows.iter().find(|other| other.like(row)) {
            Some(other) if other.rounds != row.rounds => Err(Error::Usage(format!(
                "{} did {} {} times, {} {} times: rows beside each other must do the same",
                self.program, row.bench, other.rounds, "this program", row.rounds
            ))),
            found => Ok(found),
        }
    }
}

/// Writes a file.
pub(super) fn write(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text)
        .map_err(|error| Error::Environment(format!("cannot write {}: {error}", path.display())))
}
