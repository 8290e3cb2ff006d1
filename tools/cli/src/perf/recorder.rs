//! Collects benchmark results and writes them to a file after each row, so a later failure loses none of them.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::bench::Bench;
use super::results::{self, Failure, Results, Row};
use crate::error::Error;

/// Collects the rows of PE 0 and writes them to a file.
pub(super) struct Recorder {
    file: Option<PathBuf>,
    state: Mutex<State>,
}

struct State {
    results: Results,
    /// The benchmark that the PEs of this process are measuring.
    bench: Option<Bench>,
}

impl Recorder {
    /// Creates an empty recorder, which writes results to `file`, if given.
    pub(super) fn new(file: Option<&Path>) -> Self {
        let program = format!("rushmem {}", env!("CARGO_PKG_VERSION"));
        let results = Results { program, machine: String::new(), rows: Vec::new(), failures: Vec::new() };
        // Never write to a pipe repeatedly: it would receive all results again after each row.
        let file = file.filter(|path| results::is_replaceable(path)).map(Into::into);
        Self { file, state: Mutex::new(State { results, bench: None }) }
    }

    /// Sets the benchmark that the PEs measure from now on. All PEs must have completed the previous one.
    pub(super) fn start(&self, bench: Bench) {
        self.state().bench = Some(bench);
    }

    /// Inserts a row in benchmark order, and writes the file. The first call sets the description of the machine.
    pub(super) fn add(&self, machine: &str, row: Row) -> Result<(), Error> {
        let results = &mut self.state().results;
        if results.machine.is_empty() {
            results.machine = machine.into();
        }
        results.rows.push(row);
        results.rows.sort_by_key(|row| Bench::ALL.iter().position(|bench| bench.name() == row.bench));
        match &self.file {
            Some(file) => results::write(file, &results.to_json()?),
            None => Ok(()),
        }
    }

    /// Returns the results and, if the measurement failed, the error with the name of the benchmark.
    pub(super) fn finish(self, end: Result<(), Error>) -> (Results, Option<Error>) {
        let State { mut results, bench } = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Err(error) = end else { return (results, None) };
        let Some(bench) = bench.map(Bench::name) else { return (results, Some(error)) };
        results.failures.push(Failure { bench: bench.into(), error: error.to_string() });
        (results, Some(Error::Benchmark { bench, error: Box::new(error) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::plan::Case;

    fn row(bench: Bench) -> Row {
        let case = Case { bench, bytes: 8, blocks: 1, threads: 1, rounds: 1, pes: 2 };
        Row::new(&case, vec![1.0, 2.0, 3.0])
    }

    #[test]
    fn failure_keeps_the_rows_and_names_the_benchmark() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("out.json");
        let recorder = Recorder::new(Some(&file));
        recorder.start(Bench::G);
        recorder.add("a laptop", row(Bench::G)).unwrap();
        let written = Results::read(&file).unwrap();
        assert_eq!((written.rows.len(), written.machine.as_str()), (1, "a laptop"));

        recorder.start(Bench::Signal);
        let (results, error) = recorder.finish(Err(Error::Environment("no room".into())));
        assert_eq!(results.rows.len(), 1);
        assert_eq!(
            (results.failures[0].bench.as_str(), results.failures[0].error.as_str()),
            ("signal", "no room")
        );
        let error = error.unwrap();
        assert_eq!((error.code(), error.to_string().as_str()), (3, "benchmark `signal` failed: no room"));
        let names: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|f| f.unwrap().file_name()).collect();
        assert_eq!(names, ["out.json"], "no temporary file is left");
    }

    #[test]
    fn rows_are_in_benchmark_order() {
        let recorder = Recorder::new(None);
        for bench in [Bench::Init, Bench::InitMemory, Bench::Init] {
            recorder.add("a laptop", row(bench)).unwrap();
        }
        let (results, _) = recorder.finish(Ok(()));
        let names: Vec<_> = results.rows.iter().map(|row| row.bench.as_str()).collect();
        assert_eq!(names, ["init", "init", "init_memory"]);
    }
}
