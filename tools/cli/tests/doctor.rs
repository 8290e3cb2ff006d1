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
    for id in ["G1", "N1", "H1", "H2", "H4", "P1", "P5", "P3", "P4"] {
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

/// Writes a report, and repeats its checks. Returns both outputs and the report.
fn replayed(settings: &[(&str, &str)], args: &[&str]) -> (Output, Output, Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let file = file.to_str().unwrap();
    let here = with(settings, &[args, &["--report", file]].concat());
    let there = rushmem(&["doctor", "--replay", file]);
    let report = std::fs::read(file).unwrap_or_else(|error| panic!("{error}: {}", err(&here)));
    (here, there, serde_json::from_slice(&report).unwrap())
}

#[test]
fn a_report_repeats_its_findings() {
    for args in [&["doctor", "--no-probe"][..], &["doctor", "--brief"]] {
        let settings = [("RUSHMEM_HEAP_BYTES", "900000GiB"), ("RUSHMEM_LOG_FILE", "/tmp/log.%p")];
        let (here, there, report) = replayed(&settings, args);
        assert_eq!(here.status.code(), Some(3), "{}", err(&here));
        assert_eq!((out(&here), here.status.code()), (out(&there), there.status.code()));
        assert_eq!(report["record"]["settings"]["heap_bytes"], "900000GiB");
        assert!(report["record"]["settings"].get("log_file").is_none(), "{}", report["record"]["settings"]);
        assert!(report.get("litmus").is_none() && report.get("perf").is_none());
    }
}

#[test]
fn a_report_has_the_commands_of_each_pair() {
    let settings = [("RUSHMEM_PES", "2"), ("RUSHMEM_NICS_PER_PE", "2"), ("RUSHMEM_SQ_DEPTH", "64")];
    let (here, there, report) = replayed(&settings, &["doctor", "--brief"]);
    assert_eq!(out(&here), out(&there));
    let pairs = report["record"]["probes"]["pairs"]["Ok"].as_array().unwrap();
    let names: Vec<_> = pairs.iter().map(|pair| (pair["pe"].as_u64(), pair["nic"].as_str())).collect();
    let nics = ["software ConnectX 0", "software ConnectX 1"];
    let all = [0, 1].into_iter().flat_map(|pe| nics.map(|nic| (Some(pe), Some(nic))));
    assert_eq!(names, all.collect::<Vec<_>>());
    for (i, pair) in pairs.iter().enumerate() {
        let names: Vec<_> =
            pair["commands"].as_array().unwrap().iter().map(|it| it["command"].as_str().unwrap()).collect();
        for name in ["CREATE_CQ", "CREATE_QP", "RST2INIT_QP", "INIT2RTR_QP", "RTR2RTS_QP", "QUERY_QP"] {
            assert!(names.contains(&name), "{name} is not among {names:?}");
        }
        let pages = names.iter().filter(|&&name| name == "QUERY_HCA_CAP").count();
        assert_eq!(pages > 20, i < 2, "all pages are queried once per NIC: {pages}");
        let cqes = pair["completions"].as_array().unwrap();
        assert_eq!(cqes.iter().filter(|cqe| cqe["opcode"] == "REQ").count(), 3, "{cqes:?}");
    }
}

#[test]
fn other_files_are_not_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    std::fs::write(&file, "{}").unwrap();
    let output = rushmem(&["doctor", "--replay", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3));
    assert!(err(&output).contains("not written by `rushmem doctor --report`"), "{}", err(&output));
    let output = rushmem(&["doctor", "--replay", "/nowhere"]);
    assert!(err(&output).starts_with("rushmem: /nowhere: "), "{}", err(&output));
}

#[test]
fn a_report_of_a_job_has_no_secrets_and_repeats_its_findings() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let token = "5a".repeat(32);
    let args = ["run", "-n", "2", RUSHMEM, "doctor", "--job", "--report", file.to_str().unwrap()];
    let settings = [("RUSHMEM_TOKEN", &*token), ("RUSHMEM_PEER_PATH", "nic")];
    let here = with(&settings, &args);
    assert!(here.status.success(), "{}{}", out(&here), err(&here));
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains(&token));
    let report: Value = serde_json::from_str(&text).unwrap();
    let job = &report["record"]["job"];
    assert_eq!(job["nodes"].as_array().unwrap().len(), 2);
    assert!(job["nodes"].as_array().unwrap().iter().all(|node| node["node"] == "HOST0"), "{job}");
    let qps: Vec<_> =
        job["qps"].as_array().unwrap().iter().map(|qps| qps.as_array().unwrap().len()).collect();
    assert_eq!(qps, [1, 1], "each PE has a QP to the other: {job}");
    let there = rushmem(&["doctor", "--replay", file.to_str().unwrap()]);
    let lines =
        |text: &str| text.lines().filter(|line| line.contains(" J2 ") || line.contains(" J3 ")).count();
    assert_eq!(lines(out(&there)), lines(out(&here)), "{}", out(&there));
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
