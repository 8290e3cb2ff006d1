//! Tests of the output and files of `rushmem perf`, with native kernels and little work. They do not check performance.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn rushmem(args: &[&str]) -> Output {
    let mut command = common::rushmem();
    command.env("RUSHMEM_DEVICE", "native").env("RUSHMEM_TIMEOUT", "60s").args(args).output().unwrap()
}

fn perf(args: &[&str]) -> Output {
    rushmem(&[&["perf", "--rounds", "2", "--threads", "8"], args].concat())
}

fn ok(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the error text of a usage error.
fn refused(output: Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

fn rows(path: &Path) -> Vec<Value> {
    let all: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    assert!(all["machine"].as_str().unwrap().contains("native"), "{all}");
    all["rows"].as_array().unwrap().clone()
}

#[test]
fn measures_and_writes_every_row_of_the_list() {
    let folder = tempfile::tempdir().unwrap();
    let (json, svg) = (folder.path().join("out.json"), folder.path().join("out.svg"));
    let args = ["--sizes", "8,4K", "--json", json.to_str().unwrap(), "--plot", svg.to_str().unwrap()];
    let list = ok(perf(&["--list", "--sizes", "8,4K"]));
    let table = ok(perf(&args));
    assert!(table.contains("native kernels") && table.contains("barrier_all by a block"), "{table}");

    let rows = rows(&json);
    let key = |row: &Value| {
        let number = |name: &str| row[name].as_u64().unwrap().to_string();
        let numbers = ["bytes", "blocks", "threads", "rounds", "pes"].map(number);
        format!("{}\t{}", row["bench"].as_str().unwrap(), numbers.join("\t"))
    };
    let mut measured: Vec<String> = rows.iter().map(|row| format!("{}\t7", key(row))).collect();
    let mut listed: Vec<String> = list.lines().skip(1).map(Into::into).collect();
    measured.sort();
    listed.sort();
    assert_eq!(measured, listed);
    assert!(listed.len() > 20, "{list}");
    for row in &rows {
        let [low, value, high] = ["low", "value", "high"].map(|name| row[name].as_f64().unwrap());
        assert!(0.0 <= low && low <= value && value <= high && high.is_finite(), "{row}");
    }

    // The plot has panels for sizes and for numbers of PEs, and closes all tags.
    let svg = fs::read_to_string(svg).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    for name in ["svg", "text"] {
        let open = svg.matches(&format!("<{name} ")).count();
        assert_eq!(open, svg.matches(&format!("</{name}>")).count(), "{name}");
    }
    assert!(svg.matches("<polyline ").count() >= 4, "{svg}");
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}

#[test]
fn pes_may_be_processes() {
    let program = env!("CARGO_BIN_EXE_rushmem");
    let args =
        ["run", "-n", "3", program, "perf", "--rounds", "2", "signal", "sync", "alltoall", "post_shared"];
    let text = ok(rushmem(&args));
    assert_eq!(text.matches("signal, to and fro").count(), 1, "{text}");
    assert!(
        text.contains("sync_all by a block")
            && text.contains("alltoall by a block")
            && text.contains("queue of the GPU"),
        "{text}"
    );
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn launcher_can_start_the_pes_of_every_benchmark() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("out.json");
    let perf =
        ["perf", "--rounds", "2", "--threads", "8", "--sizes", "8,4K", "--json", json.to_str().unwrap()];
    let list = ok(rushmem(&["perf", "--list", "--sizes", "8,4K"]));
    let text = ok(rushmem(&[&["run", "-n", "2", env!("CARGO_BIN_EXE_rushmem")], &perf[..]].concat()));
    assert!(text.contains("start of a job"), "{text}");

    let rows = rows(&json);
    assert!(rows.iter().all(|row| row["pes"] == 2), "{rows:?}");
    for line in list.lines().skip(1) {
        let bench = line.split('\t').next().unwrap();
        assert!(rows.iter().any(|row| row["bench"] == bench), "{bench}: {text}");
    }
}

#[test]
fn mpirun_can_start_the_pes() {
    let mut command = common::without_settings(Command::new("mpirun.openmpi"));
    // Open MPI requires this for root, and on machines with fewer cores than processes.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("RUSHMEM_DEVICE", "native").env("RUSHMEM_TIMEOUT", "60s");
    command.args(["--oversubscribe", "-n", "2", env!("CARGO_BIN_EXE_rushmem"), "perf", "--rounds", "2"]);
    match command.args(["signal", "init"]).output() {
        Ok(output) => {
            let text = ok(output);
            assert_eq!(text.matches("signal, to and fro").count(), 1, "{text}");
            assert!(text.contains("start of a job"), "{text}");
        }
        Err(_) => eprintln!("skipped: mpirun.openmpi is not installed (Debian: openmpi-bin)"),
    }
}

#[test]
fn error_keeps_the_results_and_names_the_benchmark() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("out.json");
    let mut command = common::rushmem();
    command.env("RUSHMEM_DEVICE", "native").env("RUSHMEM_TIMEOUT", "60s");
    // Posting needs queues for each block, and this is too little memory for them.
    command.env("RUSHMEM_QUEUE_MEMORY", "512KiB");
    command.args(["perf", "--rounds", "2", "--json", json.to_str().unwrap(), "signal", "post_per_block"]);
    let output = command.output().unwrap();
    let (text, errors) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(text.unwrap().contains("signal, to and fro"), "the table has the results so far");
    assert!(
        errors.contains("rushmem: benchmark `post_per_block` failed: ")
            && errors.contains("RUSHMEM_QUEUE_MEMORY"),
        "{errors}"
    );

    let all: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(
        (&all["rows"][0]["bench"], &all["failures"][0]["bench"]),
        (&"signal".into(), &"post_per_block".into())
    );
    assert!(all["failures"][0]["error"].as_str().unwrap().contains("RUSHMEM_QUEUE_MEMORY"), "{all}");
    let again = ok(perf(&["--from", json.to_str().unwrap()]));
    assert!(again.contains("benchmark `post_per_block` failed: "), "{again}");
}

/// Writes results of `program` to a file, and returns its path: two rows of `bandwidth` and one of `time`.
fn results(folder: &Path, program: &str, bandwidth: f64, time: f64, rounds: u32) -> String {
    let row = |bench: &str, bytes: u64, unit: &str, value: f64| {
        serde_json::json!({
            "bench": bench, "bytes": bytes, "blocks": 8, "threads": 256, "pes": 2, "rounds": rounds,
            "unit": unit, "value": value, "low": value, "high": value,
        })
    };
    let rows = [
        row("put_bw", 65536, "GB/s", bandwidth),
        row("put_bw", 1 << 20, "GB/s", bandwidth * 2.0),
        row("sync_all", 8, "us", time),
    ];
    let text = serde_json::json!({ "program": program, "machine": "native paper", "rows": rows }).to_string();
    write(folder, &format!("{program}-{rounds}.json"), &text)
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn judges_targets_beside_another_program() {
    let folder = tempfile::tempdir().unwrap();
    let ours = results(folder.path(), "ours", 120.0, 1.0, 10);
    let theirs = results(folder.path(), "theirs", 100.0, 2.0, 10);
    let targets = r#"[{"name": "put", "bench": "put_bw", "bytes": 65536, "ratio": 1.1},
                      {"name": "put more", "bench": "put_bw", "ratio": 1.3},
                      {"name": "sync", "bench": "sync_all", "pes": 2, "ratio": 0.6},
                      {"name": "sync of four", "bench": "sync_all", "pes": 4, "ratio": 0.6}]"#;
    let targets = write(folder.path(), "targets.json", targets);
    let svg = folder.path().join("both.svg");
    let args =
        ["--from", &ours, "--compare", &theirs, "--targets", &targets, "--plot", svg.to_str().unwrap()];
    let text = ok(perf(&args));
    assert!(text.contains("compared with theirs on native paper") && text.contains("1.20"), "{text}");
    let verdict = |target: &str| {
        let line = text.lines().find(|line| line.starts_with(&format!("{target}  "))).unwrap();
        line.rsplit("  ").next().unwrap().rsplit(' ').next().unwrap().to_owned()
    };
    assert_eq!(
        ["put", "put more", "sync", "sync of four"].map(verdict),
        ["met", "MISSED", "met", "measured"]
    );
    assert!(text.contains("targets: 2 met, 1 missed, 1 not measured"), "{text}");
    assert_eq!(fs::read_to_string(svg).unwrap().matches("<polyline ").count(), 2);
}

#[test]
fn compares_with_the_better_of_two_programs() {
    let folder = tempfile::tempdir().unwrap();
    let ours = results(folder.path(), "ours", 120.0, 1.0, 10);
    let theirs = results(folder.path(), "theirs", 100.0, 2.0, 10);
    let third = results(folder.path(), "third", 150.0, 3.0, 10);
    let text = ok(perf(&["--from", &ours, "--compare", &theirs, "--compare", &third]));
    let ends_of_rows: Vec<&str> = text
        .lines()
        .filter(|line| line.contains(" 8 x 256 "))
        .map(|line| line.split(" .. ").nth(1).unwrap().trim_start().split_once(' ').unwrap().1.trim())
        .collect();
    // A longer time and a lower bandwidth count as slower.
    assert_eq!(ends_of_rows, ["150    0.80 behind", "300    0.80 behind", "2.00    2.00"], "{text}");
    for summary in [
        "3 rows beside theirs: 1.42 times as fast in the geometric mean, 0 behind",
        "3 rows beside third: 1.24 times as fast in the geometric mean, 2 behind",
    ] {
        assert!(text.contains(summary), "{text}");
    }
}

#[test]
fn refuses_to_compare_different_work() {
    let folder = tempfile::tempdir().unwrap();
    let ours = results(folder.path(), "ours", 120.0, 1.0, 10);
    let theirs = results(folder.path(), "theirs", 100.0, 2.0, 11);
    let why = refused(perf(&["--from", &ours, "--compare", &theirs]));
    assert!(why.contains("must do the same work"), "{why}");
}

#[test]
fn rejects_invalid_command_lines() {
    for (args, why) in [
        (&["putt_bw"][..], "no benchmark name starts with `putt_bw`"),
        (&["--sizes", "7"], "a multiple of 8 bytes"),
        (&["--runs", "3"], "7.."),
        (&["--pes", "1"], "2.."),
        (&["--blocks", "0"], "1..=1024"),
        (&["--from", "absent.json"], "absent.json"),
        (&["--targets", "absent.json"], "--compare"),
        (&["put_bw", "--max-bytes", "8", "--blocks", "4"], "no row is left"),
        (&["--frobnicate"], "--frobnicate"),
    ] {
        let error = refused(perf(args));
        assert!(error.contains(why), "{args:?}: {error}");
    }
    let small = Command::new(env!("CARGO_BIN_EXE_rushmem"))
        .env("RUSHMEM_HEAP_BYTES", "9MiB")
        .args(["perf", "put_bw", "--sizes", "1M"])
        .output()
        .unwrap();
    assert!(refused(small).contains("RUSHMEM_HEAP_BYTES"));
}
