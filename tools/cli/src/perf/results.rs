//! Benchmark results, and the JSON files that contain them.

use std::path::Path;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::bench::{Bench, Unit};
use super::plan::Case;
use crate::error::Error;

/// Results of a program. Other programs can write the same format.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Results {
    /// Name and version of the program.
    pub(super) program: String,
    pub(super) machine: String,
    pub(super) rows: Vec<Row>,
    /// Benchmarks that failed, at most one per run: a run measures nothing after a failure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) failures: Vec<Failure>,
}

/// A benchmark that failed. The run measured nothing after it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Failure {
    pub(super) bench: String,
    pub(super) error: String,
}

/// The result of one benchmark case. The fields before `unit` identify the case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) bench: String,
    pub(super) bytes: u64,
    pub(super) blocks: u32,
    pub(super) threads: u32,
    pub(super) pes: u32,
    pub(super) rounds: u32,
    /// Unit of `value`, `low`, `high` and `quartiles`.
    pub(super) unit: Unit,
    /// Median of the results of all runs.
    pub(super) value: f64,
    /// Smallest result of a run.
    pub(super) low: f64,
    /// Largest result of a run.
    pub(super) high: f64,
    /// Lower and upper quartile of the results. Other programs may omit them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) quartiles: Option<[f64; 2]>,
}

impl Row {
    /// Creates the row of `case` from the results of its runs.
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
            quartiles: Some([0.25, 0.75].map(|part| {
                let index = part * values.len().saturating_sub(1) as f64;
                let below = at(index as usize);
                below + index.fract() * (at(index.ceil() as usize) - below)
            })),
        }
    }

    /// Returns whether both rows measure the same case, ignoring rounds.
    pub(super) fn is_same_case(&self, other: &Self) -> bool {
        let key = |row: &Self| (row.bytes, row.blocks, row.threads, row.pes);
        self.bench == other.bench && key(self) == key(other)
    }

    pub(super) fn description(&self) -> &str {
        match Bench::named(&self.bench) {
            Some(bench) => bench.description(),
            None => &self.bench,
        }
    }
}

impl Results {
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let invalid = |why: &dyn std::fmt::Display| Error::Usage(format!("{}: {why}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| invalid(&error))?;
        Self::parse(path, &text)
    }

    /// Parses the text of the results file at `path`.
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

    /// Appends the rows and failures of another file by the same program.
    pub(super) fn add(&mut self, other: Self) {
        self.rows.extend(other.rows);
        self.failures.extend(other.failures);
    }

    /// Formats the results for a file.
    pub(super) fn to_json(&self) -> Result<String, Error> {
        let text = serde_json::to_string_pretty(self).map_err(|error| Error::Internal(error.to_string()))?;
        Ok(text + "\n")
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

/// Writes a file atomically: readers see either the old or the new text.
pub(super) fn write(path: &Path, text: &str) -> Result<(), Error> {
    let written = if is_replaceable(path) { replace(path, text) } else { fs::write(path, text) };
    written.map_err(|error| Error::Environment(format!("cannot write {}: {error}", path.display())))
}

/// Returns whether the path does not exist or is a regular file, as opposed to a pipe or a device.
pub(super) fn is_replaceable(path: &Path) -> bool {
    fs::metadata(path).map_or(true, |found| found.is_file())
}

/// Writes a temporary file next to `path`, and renames it to `path`.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    // Replace the target of a link, not the link itself.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::{plot, targets::Targets};

    fn row(bench: Bench, bytes: u64, value: f64) -> Row {
        let (bench, unit) = (bench.name().into(), bench.unit());
        let (blocks, threads, pes, rounds) = (1, 32, 2, 10);
        Row {
            bench,
            bytes,
            blocks,
            threads,
            pes,
            rounds,
            unit,
            value,
            low: value,
            high: value,
            quartiles: None,
        }
    }

    #[test]
    fn quartiles_lie_between_the_runs() {
        let case = Case { bench: Bench::G, bytes: 8, blocks: 1, threads: 1, rounds: 1, pes: 2 };
        let row = Row::new(&case, vec![7.0, 1.0, 5.0, 2.0, 6.0, 3.0, 4.0]);
        assert_eq!((row.low, row.value, row.high, row.quartiles), (1.0, 4.0, 7.0, Some([2.5, 5.5])));
    }

    #[test]
    fn fuzz_corpus() {
        let rows = vec![
            row(Bench::PutBandwidth, 8, 0.5),
            row(Bench::PutBandwidth, 4096, 9.5),
            row(Bench::Barrier, 0, 3.25),
        ];
        let results = Results {
            program: "rushmem 0.1.0".into(),
            machine: "a laptop".into(),
            rows,
            failures: Vec::new(),
        };
        let text = serde_json::to_string(&results).unwrap();
        rushmem_corpus::target!("../../host", "results").message("rows", text).run(5000, |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            if let Ok(read) = Results::parse(Path::new("results.json"), text) {
                plot::svg(&results, std::slice::from_ref(&read));
                plot::svg(&read, std::slice::from_ref(&results));
            }
        });
        let bench = Bench::PutBandwidth.name();
        let text = format!(r#"[{{"name": "small puts", "bench": "{bench}", "bytes": 8, "ratio": 0.9}}]"#);
        rushmem_corpus::target!("../../host", "targets").message("one", text).run(5000, |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            if let Ok(targets) = Targets::parse(Path::new("targets.json"), text) {
                targets.judge(&results, std::slice::from_ref(&results));
            }
        });
    }
}
