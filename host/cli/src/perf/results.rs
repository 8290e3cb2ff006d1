//! Results and their files.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::bench::{Bench, Unit};
use super::plan::Case;
use crate::error::Error;

/// The measurements of a program. Other programs write the same format.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Results {
    /// Name and version of the program.
    pub(super) program: String,
    /// Description of the machine.
    pub(super) machine: String,
    pub(super) rows: Vec<Row>,
}

/// One measurement. The first fields are the case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) bench: String,
    pub(super) bytes: u64,
    pub(super) blocks: u32,
    pub(super) threads: u32,
    pub(super) pes: u32,
    pub(super) rounds: u32,
    /// Unit of the values that follow.
    pub(super) unit: Unit,
    /// Median of the runs.
    pub(super) value: f64,
    /// Smallest value.
    pub(super) low: f64,
    /// Largest value.
    pub(super) high: f64,
}

impl Row {
    /// Creates a row from at least one measurement.
    pub(super) fn new(case: &Case, mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |i: usize| values.get(i).copied().unwrap_or(f64::NAN);
        Self {
            bench: case.bench.name().into(),
            bytes: case.bytes,
            blocks: case.blocks,
            threads: case.threads,
            pes: case.pes,
            rounds: case.rounds,
            unit: case.bench.unit(),
            value: at(values.len() / 2),
            low: at(0),
            high: at(values.len().saturating_sub(1)),
        }
    }

    /// Returns whether both rows measure the same case, apart from rounds.
    pub(super) fn is_same_case(&self, other: &Self) -> bool {
        let key = |row: &Self| (row.bytes, row.blocks, row.threads, row.pes);
        self.bench == other.bench && key(self) == key(other)
    }

    /// Returns the description of the benchmark.
    pub(super) fn description(&self) -> &str {
        match Bench::named(&self.bench) {
            Some(bench) => bench.description(),
            None => &self.bench,
        }
    }
}

impl Results {
    /// Reads a file of results.
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let invalid = |why: &dyn std::fmt::Display| Error::Usage(format!("{}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| invalid(&error))?;
        Self::parse(path, &text)
    }

    /// Reads the text of a file of results.
    fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let invalid = |why: &dyn std::fmt::Display| Error::Usage(format!("{}: {why}", path.display()));
        let read: Self = serde_json::from_str(text).map_err(|error| invalid(&error))?;
        match read
            .rows
            .iter()
            .find(|row| Bench::named(&row.bench).is_none_or(|bench| bench.unit() != row.unit))
        {
            None => Ok(read),
            Some(row) => {
                Err(invalid(&format!("this version has no benchmark `{}` in {}", row.bench, row.unit.name())))
            }
        }
    }

    /// Appends the rows of another file of the same program.
    pub(super) fn add(&mut self, other: Self) {
        self.rows.extend(other.rows);
    }

    /// Returns the row that measures the same case as `row`.
    ///
    /// # Errors
    /// [`Error::Usage`] if the number of rounds differs, because that is not the same work.
    pub(super) fn same_work(&self, row: &Row) -> Result<Option<&Row>, Error> {
        match self.rows.iter().find(|other| other.is_same_case(row)) {
            Some(other) if other.rounds != row.rounds => Err(Error::Usage(format!(
                "{} ran {} for {} rounds, this program for {}; compared rows must do the same work",
                self.program, row.bench, other.rounds, row.rounds
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::{plot, targets::Targets};

    fn row(bench: Bench, bytes: u64, value: f64) -> Row {
        let (bench, unit) = (bench.name().into(), bench.unit());
        let (blocks, threads, pes, rounds) = (1, 32, 2, 10);
        Row { bench, bytes, blocks, threads, pes, rounds, unit, value, low: value, high: value }
    }

    #[test]
    fn fuzz_corpus() {
        let rows = vec![
            row(Bench::PutBandwidth, 8, 0.5),
            row(Bench::PutBandwidth, 4096, 9.5),
            row(Bench::Barrier, 0, 3.25),
        ];
        let results = Results { program: "rushmem 0.1.0".into(), machine: "a laptop".into(), rows };
        let text = serde_json::to_string(&results).unwrap();
        rushmem_corpus::target!("..", "results").message("rows", text).run(5000, |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            if let Ok(read) = Results::parse(Path::new("results.json"), text) {
                plot::svg(&results, std::slice::from_ref(&read));
                plot::svg(&read, std::slice::from_ref(&results));
            }
        });
        let bench = Bench::PutBandwidth.name();
        let text = format!(r#"[{{"name": "small puts", "bench": "{bench}", "bytes": 8, "ratio": 0.9}}]"#);
        rushmem_corpus::target!("..", "targets").message("one", text).run(5000, |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            if let Ok(targets) = Targets::parse(Path::new("targets.json"), text) {
                targets.judge(&results, std::slice::from_ref(&results));
            }
        });
    }
}
