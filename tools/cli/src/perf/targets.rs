//! Performance targets: required ratios to the results of another program.

use std::fmt::Write;
use std::path::Path;

use serde::Deserialize;

use super::bench::Bench;
use super::results::{Results, Row};
use super::table::number;
use crate::error::Error;

/// A performance target. It selects rows of results, and compares the best selected row of each program.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    /// Name shown in the report.
    name: String,
    bench: String,
    bytes: Option<u64>,
    blocks: Option<u32>,
    threads: Option<u32>,
    pes: Option<u32>,
    /// Required ratio of our value to the other: a minimum if larger is better, otherwise a maximum.
    ratio: f64,
}

#[derive(Debug)]
pub(super) struct Targets(Vec<(Target, Bench)>);

impl Targets {
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let invalid = |why: &dyn std::fmt::Display| Error::Usage(format!("{}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| invalid(&error))?;
        Self::parse(path, &text)
    }

    /// Parses the text of the targets file at `path`.
    pub(super) fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let invalid = |why: &dyn std::fmt::Display| Error::Usage(format!("{}: {why}", path.display()));
        let targets: Vec<Target> = serde_json::from_str(text).map_err(|error| invalid(&error))?;
        let known = |target: Target| match Bench::named(&target.bench) {
            Some(bench) => Ok((target, bench)),
            None => Err(invalid(&format!("`{}`: unknown benchmark `{}`", target.name, target.bench))),
        };
        Ok(Self(targets.into_iter().map(known).collect::<Result<_, _>>()?))
    }

    /// Formats one line per target, and how many targets are met, missed and unmeasured.
    pub(super) fn judge(&self, ours: &Results, others: &[Results]) -> String {
        let mut text = format!(
            "\n{:<52} {:>10} {:>10} {:<5} {:>7} {:>8}\n",
            "target", "ours", "theirs", "", "ratio", "wanted"
        );
        let (mut met, mut missed, mut unknown) = (0, 0, 0);
        for (target, bench) in &self.0 {
            let unit = bench.unit();
            let best = |rows: &mut dyn Iterator<Item = &Row>| {
                rows.filter(|row| target.fits(row)).map(|row| row.value).reduce(|a, b| unit.better(a, b))
            };
            let sign = if unit.more_is_better() { ">=" } else { "<=" };
            let ours = best(&mut ours.rows.iter());
            let theirs = best(&mut others.iter().flat_map(|other| &other.rows));
            let show = |value: Option<f64>| value.map_or("-".into(), number);
            let ratio = ours.zip(theirs).map(|(ours, theirs)| ours / theirs);
            let verdict = match ratio {
                None => {
                    unknown += 1;
                    "not measured"
                }
                Some(ratio) if unit.better(ratio, target.ratio) == ratio => {
                    met += 1;
                    "met"
                }
                Some(_) => {
                    missed += 1;
                    "MISSED"
                }
            };
            let _ = writeln!(
                text,
                "{:<52} {:>10} {:>10} {:<5} {:>7} {:>8} {verdict}",
                target.name,
                show(ours),
                show(theirs),
                unit.name(),
                ratio.map_or("-".into(), |ratio| format!("{ratio:.2}")),
                format!("{sign} {}", target.ratio)
            );
        }
        let _ = writeln!(text, "targets: {met} met, {missed} missed, {unknown} not measured");
        text
    }
}

impl Target {
    fn fits(&self, row: &Row) -> bool {
        let same = |wanted: Option<u64>, found: u64| wanted.is_none_or(|wanted| wanted == found);
        row.bench == self.bench
            && same(self.bytes, row.bytes)
            && same(self.blocks.map(Into::into), row.blocks.into())
            && same(self.threads.map(Into::into), row.threads.into())
            && same(self.pes.map(Into::into), row.pes.into())
    }
}
