//! Tests of the timeline of multi-process jobs, and of the report of which PE waits for which.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rushmem_tests::launch::{Waiting, all, clean, launcher, text};
use rushmem_tests::skip;
use rushmem_trace::{Span, Trace, arrows};

const PE: &str = env!("CARGO_BIN_EXE_suite_pe");

/// Start of the report's description of the signal that the program waits for.
const ARRIVED: &str = "byte 0 of `arrived`, allocated at tests/src/app.rs:";

/// Returns the command `rushmem` with `args`, or `None` if the launcher is not built.
fn rushmem(test: &str, args: &[&str]) -> Option<Command> {
    let Some(launcher) = launcher(PE) else {
        skip(test, "the launcher is not built: cargo build -p rushmem-cli");
        return None;
    };
    let mut command = clean(&launcher);
    command.args(args);
    Some(command)
}

/// Checks that a timeline file has spans of both PEs, and an arrow from one to the other.
fn check_file(file: &Path) {
    let trace = Trace::read(File::open(file).unwrap()).unwrap();
    for pe in [0, 1] {
        assert!(trace.spans.iter().any(|span| span.pe == pe), "PE {pe}");
    }
    let crosses = arrows(&trace).iter().any(|arrow| {
        let pes: Vec<u32> = arrow.points.iter().map(|&(i, _)| trace.spans[i].pe).collect();
        pes.first() != pes.last()
    });
    assert!(crosses, "no arrow between the PEs");
    let is_named =
        |span: &Span| span.detail.object.as_ref().is_some_and(|object| object.starts_with(ARRIVED));
    assert!(trace.spans.iter().any(is_named), "no span names the signal");
}

#[test]
fn timeline_of_a_job_is_one_file_with_arrows_between_pes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.json");
    let name = file.to_str().unwrap();
    let Some(mut command) =
        rushmem("timeline_of_a_job_is_one_file_with_arrows_between_pes", &["run", "-n", "2", PE, "signal"])
    else {
        return;
    };
    let output = command.env("RUSHMEM_TRACE", name).output().unwrap();
    assert!(output.status.success(), "{}", all(&output));
    let told = text(&output.stderr);
    let line = format!("rushmem: {name} has the timeline of PEs 0-1, and ui.perfetto.dev opens it\n");
    assert!(told.contains(&line), "{told}");
    check_file(&file);
    let files = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files, 1, "the parts are removed");
}

#[test]
fn timeline_parts_of_other_launchers_are_joined() {
    let test = "timeline_parts_of_other_launchers_are_joined";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.json");
    let name = file.to_str().unwrap();
    let Some(id) = rushmem(test, &["id"]) else { return };
    let id = { id }.output().unwrap();
    let start = |pe: &str| {
        let mut command = clean(Path::new(PE));
        command.arg("signal").env("RUSHMEM_ID", text(&id.stdout).trim());
        command.env("RUSHMEM_PE", pe).env("RUSHMEM_N_PES", "2").env("RUSHMEM_TRACE", name).spawn().unwrap()
    };
    for pe in [start("0"), start("1")] {
        let output = pe.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", all(&output));
    }
    assert!(!file.exists());
    let joined = rushmem(test, &["trace", name, "--json"]).unwrap().output().unwrap();
    assert!(joined.status.success(), "{}", all(&joined));
    let summary: serde_json::Value = serde_json::from_slice(&joined.stdout).unwrap();
    assert!(summary["traffic"].as_array().unwrap().len() >= 2, "{summary}");
    check_file(&file);
    let tables = rushmem(test, &["trace", name]).unwrap().output().unwrap();
    assert!(text(&tables.stdout).contains("waits by line"), "{}", all(&tables));
}

#[test]
fn killed_pe_leaves_no_timeline_part() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.json");
    let args = ["run", "-n", "2", "--set", "timeout=60s", PE, "wait"];
    let Some(mut command) = rushmem("killed_pe_leaves_no_timeline_part", &args) else { return };
    command.env("RUSHMEM_TRACE", &file);
    let job = Waiting::start(command, 2);
    assert!(Command::new("kill").args(["-9", &job.pids[1]]).status().unwrap().success());
    let (output, _) = job.end();
    assert_eq!(output.status.code(), Some(128 + 9), "{}", all(&output));
    let told = text(&output.stderr);
    assert!(
        told.contains("has the timeline of PE 0, and ui.perfetto.dev opens it; PE 1 has left no timeline"),
        "{told}"
    );
    assert!(Trace::read(File::open(&file).unwrap()).is_ok());
}

#[test]
fn top_shows_running_jobs() {
    let test = "top_shows_running_jobs";
    let folder = tempfile::tempdir().unwrap();
    let top = || {
        let mut command = rushmem(test, &["top", "--once"])?;
        let output = command.env("XDG_RUNTIME_DIR", folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", all(&output));
        Some(text(&output.stdout))
    };
    let args = ["run", "-n", "2", "--set", "timeout=60s", "--set", "stats=on", PE, "wait"];
    let Some(mut command) = rushmem(test, &args) else { return };
    command.env("XDG_RUNTIME_DIR", folder.path());
    let job = Waiting::start(command, 2);
    let begin = Instant::now();
    let told = loop {
        std::thread::sleep(Duration::from_millis(200));
        let told = top().unwrap();
        if told.matches("waits in `signal_wait_until`").count() == 2 {
            break told;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "{told}");
    };
    for (pe, pid) in job.pids.iter().enumerate() {
        assert!(told.contains(&format!("  PE {pe}, process {pid}: waited ")), "{told}");
    }
    assert!(told.contains("2 of 2 PEs are here") && told.contains("errors.rs:173 since "), "{told}");
    assert_eq!(told.matches(ARRIVED).count(), 2, "{told}");
    // A killed PE leaves its file behind. The next `rushmem top` removes it.
    assert!(Command::new("kill").args(["-9", &job.pids[0], &job.pids[1]]).status().unwrap().success());
    job.end();
    assert!(top().unwrap().starts_with("no job of this user"));
    assert_eq!(std::fs::read_dir(folder.path().join("rushmem")).unwrap().count(), 0);
}

/// Starts a job of two waiting PEs, sends SIGUSR1 to the process `target`, and returns what the job prints.
fn waits_of(test: &str, stats: &str, target: impl Fn(&Waiting) -> String) -> Option<String> {
    let mut command = rushmem(test, &["run", "-n", "2", "--set", "timeout=60s", PE, "wait"])?;
    command.env("RUSHMEM_STATS", stats);
    let mut job = Waiting::start(command, 2);
    // Give the kernels time to reach their waits.
    std::thread::sleep(Duration::from_millis(500));
    let kill = |how: &str, pid: &str| Command::new("kill").args([how, pid]).status().unwrap();
    assert!(kill("-USR1", &target(&job)).success());
    let (told, begin) = (read_report(&mut job), Instant::now());
    assert!(begin.elapsed() < Duration::from_secs(30));
    assert!(kill("-TERM", &job.launcher.id().to_string()).success());
    job.end();
    Some(told)
}

/// Reads the standard error of a job up to the last line of a report.
fn read_report(job: &mut Waiting) -> String {
    use std::io::{BufRead, BufReader};
    let mut lines = BufReader::new(job.launcher.stderr.take().unwrap()).lines();
    let mut told = String::new();
    while !told.contains("every PE waits") && !told.contains("RUSHMEM_STATS=1 shows") {
        told += &(lines.next().expect("the job ended").unwrap() + "\n");
    }
    told
}

#[test]
fn sigusr1_prints_the_waits_of_the_job() {
    let test = "sigusr1_prints_the_waits_of_the_job";
    let Some(told) = waits_of(test, "1", |job| job.launcher.id().to_string()) else { return };
    assert_eq!(told.matches("waits of the job").count(), 1, "{told}");
    for pe in [0, 1] {
        let line = told.lines().find(|line| line.contains(&format!("  PE {pe}: block ")));
        let line = line.unwrap_or_else(|| panic!("{told}"));
        for part in
            ["waits in `signal_wait_until` at ", "kernels/src/errors.rs:173 ", ARRIVED, "(== 1)", ", since "]
        {
            assert!(line.contains(part), "{part}: {told}");
        }
    }
}

#[test]
fn waits_report_shows_kernels_without_a_timeline() {
    let test = "waits_report_shows_kernels_without_a_timeline";
    let Some(told) = waits_of(test, "0", |job| job.pids[1].clone()) else { return };
    for pe in [0, 1] {
        let line = format!("PE {pe}: runs kernel wait_for_ever, launched at tests/src/app.rs:");
        assert!(told.contains(&line) || told.contains("PEs 0-1: runs kernel wait_for_ever"), "{told}");
    }
    assert!(told.contains("RUSHMEM_STATS=1 shows each call that waits"), "{told}");
}

#[test]
fn waits_report_marks_cycles() {
    let args = ["run", "-n", "2", "--set", "timeout=2s", "--set", "stats=on", PE, "apart"];
    let Some(mut command) = rushmem("waits_report_marks_cycles", &args) else { return };
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{}", all(&output));
    let told = text(&output.stderr);
    for part in [
        "PE 0: host waits in `host_sync` at tests/src/app.rs:",
        " for the hosts of all PEs: PE 1 has not come, since ",
        "PE 1: block 0 thread 0 waited to the deadline in `barrier` at tests/src/app.rs:",
        " for PE 0",
        "  cycle: PE 0 waits for PE 1 waits for PE 0\n",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn timeout_prints_the_waits_of_the_job() {
    let args = ["run", "-n", "2", "--set", "timeout=1s", PE, "wait"];
    let Some(mut command) = rushmem("timeout_prints_the_waits_of_the_job", &args) else { return };
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{}", all(&output));
    let told = text(&output.stderr);
    assert_eq!(told.matches("waits of the job").count(), 1, "{told}");
    for pe in [0, 1] {
        let line = told.lines().find(|line| line.contains(&format!("  PE {pe}: block ")));
        let line = line.unwrap_or_else(|| panic!("{told}"));
        assert!(
            line.contains("waited to the deadline in `a wait` at ")
                && line.contains("errors.rs:173 for the word at")
                && line.contains(ARRIVED),
            "{told}"
        );
    }
}
