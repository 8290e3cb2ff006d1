//! Tests of the commands `rushmem doctor` and `rushmem explain`.

mod common;

use std::collections::BTreeSet;
use std::process::Output;

use serde_json::Value;

const RUSHMEM: &str = env!("CARGO_BIN_EXE_rushmem");

/// Runs the command with native kernels.
fn rushmem(args: &[&str]) -> Output {
    with(&[], args)
}

/// Runs the command with native kernels and these settings.
fn with(settings: &[(&str, &str)], args: &[&str]) -> Output {
    let settings = settings.iter().copied();
    common::rushmem().env("RUSHMEM_DEVICE", "native").envs(settings).args(args).output().unwrap()
}

fn out(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn err(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

fn checks(output: &Output) -> Vec<Value> {
    let all: Value =
        serde_json::from_str(out(output)).unwrap_or_else(|error| panic!("{error}: {}", err(output)));
    all["checks"].as_array().unwrap().clone()
}

#[test]
fn this_machine_runs_jobs() {
    let output = rushmem(&["doctor", "--json"]);
    let rows = checks(&output);
    for id in ["G1", "N1", "H1", "H2", "H4", "P1", "P3", "P4"] {
        assert!(rows.iter().any(|row| row["id"] == id), "{id} is missing: {}", out(&output));
    }
    let jobs: Vec<_> = rows.iter().filter(|row| ["P3", "P4"].map(Value::from).contains(&row["id"])).collect();
    assert!(jobs.iter().all(|row| row["verdict"] == "good"), "{jobs:#?}");
    assert!(jobs[1]["found"].as_str().unwrap().contains("by p2p: put and signal "), "{jobs:#?}");
}

#[test]
fn one_pe_of_a_node_reports() {
    let output = rushmem(&["run", "-n", "3", RUSHMEM, "doctor", "--no-probe"]);
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(out(&output).matches("doctor\n").count(), 1, "{}", out(&output));
    for (local, times) in [("0", 1), ("1", 0)] {
        let output = with(&[("SLURM_LOCALID", local)], &["doctor", "--no-probe"]);
        assert!(output.status.success(), "{}", err(&output));
        assert_eq!(out(&output).matches("doctor\n").count(), times, "{}", out(&output));
    }
}

#[test]
fn failed_check_sets_the_exit_code() {
    let output = with(&[("RUSHMEM_HEAP_BYTES", "900000GiB")], &["doctor", "--no-probe"]);
    assert_eq!(output.status.code(), Some(3), "{}", out(&output));
    let text = out(&output);
    assert!(text.contains("FAIL   H2  host memory: "), "{text}");
    assert!(text.contains("-> set a smaller RUSHMEM_HEAP_BYTES"), "{text}");
    assert!(text.trim_end().ends_with("1 FAIL; start with H2"), "{text}");
}

#[test]
fn checks_a_saved_machine() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("machine.json");
    let file = file.to_str().unwrap();
    let here = rushmem(&["doctor", "--no-probe", "--save", file]);
    let there = rushmem(&["doctor", "--saved", file]);
    assert_eq!(out(&here), out(&there));
    assert_eq!(here.status.code(), there.status.code());
    std::fs::write(file, "{}").unwrap();
    let output = rushmem(&["doctor", "--saved", file]);
    assert_eq!(output.status.code(), Some(3));
    assert!(err(&output).contains("not written by `rushmem doctor --save`"), "{}", err(&output));
    let output = rushmem(&["doctor", "--saved", "/nowhere"]);
    assert!(err(&output).starts_with("rushmem: /nowhere: "), "{}", err(&output));
}

#[test]
fn checks_all_pes_of_a_job() {
    let output = rushmem(&["run", "-n", "3", RUSHMEM, "doctor", "--job"]);
    assert!(output.status.success(), "{}{}", out(&output), err(&output));
    let lines: BTreeSet<_> = out(&output).lines().collect();
    assert!(lines.iter().all(|line| line.starts_with("[0]")), "only PE 0 reports: {}", out(&output));
    let text = out(&output);
    assert!(text.contains("note   J1  PEs: 3 on "), "{text}");
    assert!(text.contains("ok     J2  Linux: on all PEs: "), "{text}");
    assert!(
        text.contains("J3  every PE to every other: 6 pairs; a put of 4096 bytes with signal takes "),
        "{text}"
    );
}

#[test]
fn reports_a_job_that_cannot_start() {
    // PEs with different queue depths are rejected when they join.
    let script = format!("RUSHMEM_SQ_DEPTH=$((64 << RUSHMEM_PE)) exec {RUSHMEM} doctor --job");
    let output = rushmem(&["run", "-n", "2", "sh", "-c", &script]);
    assert!(!output.status.success());
    let text = out(&output);
    assert!(
        text.contains("FAIL   J3  every PE to every other: ") && text.contains("sq_depth"),
        "{text}{}",
        err(&output)
    );
}

#[test]
fn explains_numbers_of_errors_and_settings() {
    let output = rushmem(&["explain", "0x13"]);
    assert!(output.status.success());
    assert!(
        out(&output).starts_with("syndrome 0x13 (REMOTE_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR = 10): "),
        "{}",
        out(&output)
    );
    let output = rushmem(&["explain", "RUSHMEM_HEAP_BYTES"]);
    let text = out(&output);
    assert!(text.starts_with("setting heap_bytes (RUSHMEM_HEAP_BYTES; group Memory): "), "{text}");
    assert!(text.contains("Value (bytes): ") && text.ends_with("Default: 64MiB.\n"), "{text}");
    let output = rushmem(&["explain", "nonsense"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("nonsense"), "{}", err(&output));
}
