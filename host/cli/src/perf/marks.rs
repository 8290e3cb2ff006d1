//! Marks: what the ratio to another program must be.

use std::fmt::Write;
use std::path::Path;

use serde::Deserialize;

use super::bench::Bench;
use super::results::{Results, Row};
use super::table::number;
use crate::error::Error;

/// One mark. Of the rows that have what it names, the best of each program counts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mark {
    /// For people.
    what: String,
    bench: String,
    bytes: Option<u64>,
    blocks: Option<u32>,
    threads: Option<u32>,
    pes: Option<u32>,
    /// Ours divided by theirs must be at least this where more is better, at most this where less is.
    ratio: f64,
}

/// The marks of a file.
#[derive(Debug)]
pub(super) struct Marks(Vec<(Mark, Bench)>);

impl Marks {
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let wrong = |why: &dyn std::fmt::Display| Error::Usage(format!("{}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
        let marks: Vec<Mark> = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
        let known = |mark: Mark| match Bench::named(&mark.bench) {
            Some(bench) => Ok((mark, bench)),
            None => Err(wrong(&format!("`{}`: there is no benchmark `{}`", mark.what, mark.bench))),
        };
        Ok(Self(marks.into_iter().map(known).collect::<Result<_, _>>()?))
    }

    /// A line for each, and how many are met, missed and not measured.
    pub(super) fn judge(&self, ours: &Results, others: &[Results]) -> String {
        let mut text = format!(
            "\n{:<52} {:>10} {:>10} {:<5} {:>7} {:>8}\n",
            "mark", "ours", "theirs", "", "ratio", "wanted"
        );
        let (mut met, mut missed, mut unknown) = (0, 0, 0);
        for (mark, bench) in &self.0 {
            let unit = bench.unit();
            let best = |rows: &mut dyn Iterator<Item = &Row>| {
                rows.filter(|row| mark.fits(row)).map(|row| row.value).reduce(|a, b| unit.better(a, b))
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
                Some(ratio) if unit.better(ratio, mark.ratio) == ratio => {
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
                mark.what,
                show(ours),
                show(theirs),
                unit.name(),
                ratio.map_or("-".into(), |ratio| format!("{ratio:.2}")),
                format!("{sign} {}", mark.ratio)
            );
        }
        let _ = writeln!(text, "marks: {met} met, {missed} missed, {unknown} not measured");
        text
    }
}

impl Mark {
    fn fits(&self, row: &Row) -> bool {
        let same = |wanted: Option<u64>, found: u64| wanted.is_none_or(|wanted| wanted == found);
        row.bench == self.bench
            && same(self.bytes, row.bytes)
            && same(self.blocks.map(Into::into), row.blocks.into())
            && same(self.threads.map(Into::into), row.threads.into())
            && same(self.pes.map(Into::into), row.pes.into())
    }
}
