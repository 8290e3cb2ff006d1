//! Replays reports: the checks of the files in `reports` repeat the findings that they had on their machines.

use std::path::Path;

use rushmem_doctor::{Finding, Record, replay};
use serde::Deserialize;
use serde_json::{Value, json};

/// A file of `rushmem doctor --report`.
#[derive(Deserialize)]
struct Report {
    doctor: Value,
    record: Record,
}

fn row(finding: &Finding) -> Value {
    let Finding { check, of, verdict, .. } = finding;
    json!([check.id, of, verdict])
}

#[test]
fn reports_repeat_their_findings() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports");
    let mut replayed = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        let report: Report = serde_json::from_slice(&std::fs::read(&file).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let there = report.doctor["checks"].as_array().unwrap().iter();
        let there: Vec<_> = there.map(|row| json!([row["id"], row["of"], row["verdict"]])).collect();
        let here: Vec<_> = replay(report.record).unwrap().iter().map(row).collect();
        assert_eq!(here, there, "{}", file.display());
        replayed += 1;
    }
    assert!(replayed > 1, "only {replayed} reports are there");
}
