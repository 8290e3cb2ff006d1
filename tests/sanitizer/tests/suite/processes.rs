//! Runs programs with PEs as processes. The sanitizer must reach the same verdicts as for threads.
//!
//! `SANITIZER_SUITE_PROCESSES=1` runs all programs this way. By default only some topics run.

use std::error::Error;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rushmem::bootstrap::{Server, ServerOptions, Token};
use rushmem::sanitizer::Finding;
use rushmem_sanitizer_suite::{Program, Topic, all};

/// Topics whose programs always run as processes.
const TOPICS: &[&str] = &["flags", "gets", "atomics", "collectives", "hosts"];

/// Programs of other topics that always run as processes. Only a few, because a deadlock takes seconds.
const PROGRAMS: &[&str] = &[
    "barrier_that_one_pe_skips",
    "cycle_of_three_pes",
    "hosts_wait_before_they_send",
    "relaxed_loop_that_nobody_ends",
];

/// Programs with windows in host memory, which other processes cannot map.
const WINDOWS: &[&str] = &[
    "window_source_stored_before_quiet",
    "window_source_stored_after_quiet",
    "window_unregistered_during_put",
    "window_unregistered_after_quiet",
];

/// Exit code of `sanitizer-suite` if the sanitizer has findings.
const FOUND: i32 = 5;

/// Checks the sanitizer's verdict on a program run as processes, unless this run excludes it. Returns the problem, if
/// any.
pub(super) fn misjudged(topic: &Topic, program: &Program) -> Option<String> {
    let runs_all = std::env::var_os("SANITIZER_SUITE_PROCESSES").is_some();
    let is_chosen = runs_all || TOPICS.contains(&topic.name) || PROGRAMS.contains(&program.name);
    if !is_chosen || WINDOWS.contains(&program.name) {
        return None;
    }
    match findings(program.pes, &[program]) {
        Ok(findings) => super::misjudgement(topic, program, &findings),
        Err(problem) => Some(problem.to_string()),
    }
}

#[test]
fn processes_run_consecutive_jobs() {
    let all = all();
    let named = |name: &str| {
        let mut programs = all.iter().flat_map(|topic| topic.programs);
        programs.find(|program| program.name == name).expect("a program")
    };
    let programs = ["flag_behind_fence", "flag_without_fence", "data_loaded_before_signal"].map(named);
    assert_eq!(findings(2, &programs).unwrap().len(), 2);
}

/// Runs programs with PEs as processes, and returns the findings reported by PE 0. Checks that all other PEs received
/// them.
fn findings(pes: u32, programs: &[&Program]) -> Result<Vec<Finding>, Box<dyn Error>> {
    let token = Token::generate()?;
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = ServerOptions {
        n_pes: pes,
        host: None,
        token: token.clone(),
        listen,
        exit_wait: Duration::ZERO,
        heartbeat: None,
    };
    let server = Server::start(options)?;
    let report = tempfile::NamedTempFile::new()?;
    let start = |pe: u32| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sanitizer-suite"));
        for number in ["RUSHMEM_PE", "RUSHMEM_LOCAL_PE"] {
            command.env(number, pe.to_string());
        }
        for count in ["RUSHMEM_N_PES", "RUSHMEM_LOCAL_PES"] {
            command.env(count, pes.to_string());
        }
        command.env("RUSHMEM_NODE", "0").env("RUSHMEM_NODES", "1");
        command.env("RUSHMEM_SERVER", server.addr().to_string()).env("RUSHMEM_TOKEN", token.to_hex());
        command.env("RUSHMEM_SANITIZE_REPORT", report.path());
        command.env("RUSHMEM_TIMEOUT", "60s");
        command
            .args(programs.iter().map(|program| program.name))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
    };
    let pes = (0..pes).map(start).collect::<Result<Vec<Child>, _>>()?;
    let outputs = pes.into_iter().map(Child::wait_with_output).collect::<Result<Vec<_>, _>>()?;
    let texts: String = outputs.iter().map(|output| String::from_utf8_lossy(&output.stderr)).collect();
    let findings: Vec<Finding> = serde_json::from_slice(&std::fs::read(report.path())?)
        .map_err(|error| format!("no report: {error}: {texts}"))?;
    let code = if findings.is_empty() { 0 } else { FOUND };
    if let Some(output) = outputs.iter().find(|output| output.status.code() != Some(code)) {
        return Err(format!("a PE ended with {}: {texts}", output.status).into());
    }
    let printed = ["rushmem: race on", "rushmem: deadlock"].map(|text| texts.matches(text).count());
    if printed.iter().sum::<usize>() != findings.len() {
        return Err(format!("the findings are not printed once: {texts}").into());
    }
    Ok(findings)
}
