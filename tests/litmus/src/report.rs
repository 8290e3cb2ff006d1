//! Counts the outcomes of litmus tests, and formats the counts as a table.

use std::fmt::Write;

use crate::program::{Outcome, Test};

/// How often a test on a path showed forbidden and rare outcomes.
#[derive(Clone, Debug)]
pub struct Row {
    /// ID of the litmus test.
    pub id: &'static str,
    /// Name of the litmus test.
    pub name: String,
    /// Title of the path, and the assignment of roles to PEs.
    pub path: String,
    /// Number of rounds that were run.
    pub rounds: u64,
    /// Number of rounds in which a forbidden outcome occurred.
    pub forbidden: u64,
    /// Description of the first forbidden outcome.
    pub first: Option<String>,
    /// Each allowed but rare outcome, and in how many rounds it occurred.
    pub weak: Vec<(&'static str, u64)>,
}

impl Row {
    pub(crate) fn new(test: &Test, path: String, rounds: u64) -> Self {
        Self {
            id: test.id,
            name: test.name.clone(),
            path,
            rounds,
            forbidden: 0,
            first: None,
            weak: test.weak.iter().map(|(what, _)| (*what, 0)).collect(),
        }
    }

    pub(crate) fn count(&mut self, test: &Test, outcome: &Outcome<'_>) {
        if (test.forbidden)(outcome) {
            self.forbidden += 1;
            self.first.get_or_insert_with(|| format!("{outcome:?}"));
        }
        for ((_, weak), (_, seen)) in test.weak.iter().zip(&mut self.weak) {
            *seen += u64::from(weak(outcome));
        }
    }
}

/// Formats the counts of outcomes as a table.
pub fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut write =
        |line: std::fmt::Arguments<'_>| writeln!(text, "{line}").expect("writing to a string never fails");
    write(format_args!(
        "{:<4} {:<64} {:<48} {:>7} {:>9}  weak",
        "test", "what", "path", "rounds", "forbidden"
    ));
    for row in rows {
        let weak: Vec<String> = row.weak.iter().map(|(what, seen)| format!("{what}: {seen}")).collect();
        let (id, name, path) = (row.id, &row.name, &row.path);
        let weak = weak.join(", ");
        write(format_args!("{id:<4} {name:<64} {path:<48} {:>7} {:>9}  {weak}", row.rounds, row.forbidden));
    }
    text
}

/// Formats the rows with forbidden outcomes, including the first outcome of each. The text is empty if there are none.
pub fn failures(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows.iter().filter(|row| row.forbidden != 0) {
        let (id, name, path) = (row.id, &row.name, &row.path);
        let first = row.first.as_deref().unwrap_or_default();
        text += &format!("{id} {name}, {path}: {} of {} rounds, first {first}\n", row.forbidden, row.rounds);
    }
    text
}
