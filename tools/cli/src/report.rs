//! `rushmem doctor --report`: everything that helps to diagnose a problem with a NIC, in a single file. `rushmem doctor
//! --replay` repeats its checks.
//!
//! The file contains versions, the findings and the record of the doctor with the commands to NICs, the kernel log of
//! mlx5, and the output of the litmus tests and of some benchmarks through the NIC. Secrets are omitted, and the names of
//! hosts are replaced.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rushmem::config::Config;
use rushmem_doctor::{Finding, Host, Record, read_further};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::Error;

/// Version of the format.
const FORMAT: u32 = 2;
/// Text that replaces the host name in a report. A number follows for each node of a job.
const HOST: &str = "HOST";
/// Benchmarks of the NIC's latency, message rate and bandwidth.
const BENCHMARKS: [&str; 4] = ["put_quiet", "fetch_add", "put_signal", "put_bw"];
/// Largest number of lines of the kernel log.
const LOG_LINES: usize = 200;

/// The part of a report that repeats its checks.
#[derive(Deserialize)]
struct Report {
    record: Record,
}

/// Repeats the checks of a report, and returns their findings.
///
/// # Errors
/// - [`Error::Environment`]: the file cannot be read, is not a report, or has a setting that this version lacks.
pub(crate) fn replay(file: &Path) -> Result<Vec<Finding>, Error> {
    let invalid = |why: String| Error::Environment(format!("{}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| invalid(error.to_string()))?;
    let report: Report = serde_json::from_str(&text)
        .map_err(|error| invalid(format!("not written by `rushmem doctor --report`: {error}")))?;
    rushmem_doctor::replay(report.record).map_err(|error| invalid(error.to_string()))
}

/// Writes the report to `file`. `findings` is the doctor's JSON. With `runs_programs`, runs the litmus tests and
/// benchmarks before.
///
/// # Errors
/// - [`Error::Environment`]: the file cannot be written.
/// - [`Error::Internal`]: the report cannot be expressed in JSON.
pub(crate) fn write(
    file: &Path,
    host: &Host,
    config: &Config,
    findings: &str,
    runs_programs: bool,
) -> Result<(), Error> {
    let internal = |error: serde_json::Error| Error::Internal(error.to_string());
    let findings: Value = serde_json::from_str(findings).map_err(internal)?;
    read_further(host);
    let record = host.record(config);
    let mut report = json!({
        "report": FORMAT,
        "version": env!("CARGO_PKG_VERSION"),
        "features": { "rdma": cfg!(feature = "rdma") },
        "doctor": findings,
        "kernel_log": kernel_log(),
        "record": serde_json::to_value(&record).map_err(internal)?,
    });
    if runs_programs {
        let perf = [&["perf", "--runs", "7", "--max-bytes", "1M"][..], &BENCHMARKS].concat();
        report["litmus"] = run(&beside("litmus"), &[]);
        report["perf"] = run(&beside("rushmem"), &perf);
    }
    let names = record.nodes().into_iter().map(str::to_owned).collect();
    hide(&mut report, &pseudonyms(names, rushmem_base::host_name()));
    let text = serde_json::to_string_pretty(&report).map_err(internal)?;
    std::fs::write(file, text)
        .map_err(|error| Error::Environment(format!("cannot write {}: {error}", file.display())))
}

/// Returns the last lines of the kernel log about mlx5, or why they cannot be read.
fn kernel_log() -> Value {
    match Command::new("dmesg").stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            let lines: Vec<_> = text.lines().filter(|line| line.contains("mlx5")).collect();
            json!(&lines[lines.len().saturating_sub(LOG_LINES)..])
        }
        Ok(output) => json!(format!("dmesg: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => json!(format!("dmesg does not start: {error}")),
    }
}

/// Returns the program of this name in the directory of this one, or else the one in `PATH`.
fn beside(name: &str) -> PathBuf {
    let own = std::env::current_exe().ok().map(|own| own.with_file_name(name));
    own.filter(|path| path.is_file()).unwrap_or_else(|| name.into())
}

/// Runs a program with all traffic through the NIC. Returns its status and output, or why it did not start.
fn run(program: &Path, arguments: &[&str]) -> Value {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let command = format!("RUSHMEM_PEER_PATH=nic {name} {}", arguments.join(" "));
    let mut child = Command::new(program);
    child.args(arguments).env("RUSHMEM_PEER_PATH", "nic").env("RUSHMEM_LOG", "info").stdin(Stdio::null());
    match child.output() {
        Ok(output) => json!({
            "command": command,
            "status": output.status.to_string(),
            "output": String::from_utf8_lossy(&output.stdout),
            "log": String::from_utf8_lossy(&output.stderr),
        }),
        Err(error) => json!({
            "command": command,
            "status": format!("not started: {error}; build it with `cargo build --release -p rushmem-{name}`"),
        }),
    }
}

/// Returns the words to replace and their replacements: the names of the nodes of a job, or else of this host, with and
/// without their domains.
fn pseudonyms(nodes: Vec<String>, here: String) -> Vec<(String, String)> {
    let is_job = !nodes.is_empty();
    let names = if is_job { nodes } else { vec![here] };
    let of = |(i, name): (usize, String)| {
        let by = if is_job { format!("{HOST}{i}") } else { HOST.into() };
        let short = name.split('.').next().unwrap_or_default().to_owned();
        [(name, by.clone()), (short, by)]
    };
    // A single letter would match other words.
    names.into_iter().enumerate().flat_map(of).filter(|(name, _)| name.len() > 1).collect()
}

/// Replaces words in all texts of a value.
fn hide(value: &mut Value, words: &[(String, String)]) {
    match value {
        Value::String(text) => {
            for (word, by) in words {
                *text = replace_word(text, word, by);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| hide(value, words)),
        Value::Object(fields) => fields.values_mut().for_each(|value| hide(value, words)),
        _ => {}
    }
}

/// Replaces a word where no letter, digit or hyphen is beside it.
fn replace_word(text: &str, word: &str, by: &str) -> String {
    let continues = |next: Option<char>| next.is_some_and(|c| c.is_alphanumeric() || c == '-');
    let (mut done, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(word) {
        let (before, after) = (&rest[..at], &rest[at + word.len()..]);
        let last = before.chars().next_back().or_else(|| done.chars().next_back());
        let is_part = continues(last) || continues(after.chars().next());
        done += before;
        done += if is_part { word } else { by };
        rest = after;
    }
    done + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_hosts_are_replaced() {
        let hidden = |text: &str, nodes: &[&str], here: &str| {
            let mut value = json!({ "node17": [text, 1] });
            let nodes = nodes.iter().map(|&name| name.to_owned()).collect();
            hide(&mut value, &pseudonyms(nodes, here.into()));
            value["node17"][0].as_str().unwrap().to_owned()
        };
        assert_eq!(hidden("[node17.lab] node17: up", &[], "node17.lab"), "[HOST] HOST: up");
        assert_eq!(hidden("a job", &[], "a"), "a job");
        assert_eq!(hidden("2 on n1-a, 2 on n1-b.x", &["n1-a", "n1-b.x"], "n1-a"), "2 on HOST0, 2 on HOST1");
        assert_eq!(hidden("node170, xnode17", &[], "node17"), "node170, xnode17");
    }

    #[test]
    fn missing_program_is_reported() {
        let missing = run(Path::new("/absent/litmus"), &["--rounds", "1"]);
        assert!(missing["status"].as_str().unwrap().starts_with("not started: "), "{missing}");
        let echo = run(Path::new("echo"), &["hello"]);
        assert_eq!((&echo["output"], &echo["status"]), (&json!("hello\n"), &json!("exit status: 0")));
    }
}
