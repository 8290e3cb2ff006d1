//! `rushmem doctor --report`: everything that helps to diagnose a problem with a NIC, in a single file.
//!
//! The file contains versions, settings, and the findings and the record of the doctor, as well as the output of the
//! litmus tests and of some benchmarks through the NIC. Secrets are omitted, and the host name is replaced.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rushmem::config::{Config, Origin};
use rushmem_doctor::Host;
use serde_json::{Value, json};

use crate::error::Error;

/// Settings that would allow others to join a job, or reveal where it runs.
const PRIVATE: [&str; 4] = ["token", "id", "server", "log_file"];
/// Text that replaces the host name in a report.
const HOST: &str = "HOST";
/// Benchmarks of the NIC's latency, message rate and bandwidth.
const BENCHMARKS: [&str; 4] = ["put_quiet", "fetch_add", "put_signal", "put_bw"];

/// Runs the litmus tests and benchmarks, and writes the report to `file`. `findings` is the doctor's JSON.
///
/// # Errors
/// - [`Error::Environment`]: the file cannot be written.
/// - [`Error::Internal`]: the report cannot be expressed in JSON.
pub(crate) fn write(file: &Path, host: &Host, config: &Config, findings: &str) -> Result<(), Error> {
    let internal = |error: serde_json::Error| Error::Internal(error.to_string());
    let findings: Value = serde_json::from_str(findings).map_err(internal)?;
    let report = json!({
        "report": 1,
        "version": env!("CARGO_PKG_VERSION"),
        "features": { "rdma": cfg!(feature = "rdma") },
        "settings": settings(config),
        "doctor": findings,
        "record": serde_json::to_value(host.save()).map_err(internal)?,
        "litmus": run(&beside("litmus"), &[]),
        "perf": run(&beside("rushmem"), &[&["perf", "--runs", "7", "--max-bytes", "1M"][..], &BENCHMARKS].concat()),
    });
    let text = serde_json::to_string_pretty(&report).map_err(internal)?;
    std::fs::write(file, without_host(&text, &rushmem_base::host_name()))
        .map_err(|error| Error::Environment(format!("cannot write {}: {error}", file.display())))
}

/// Returns the settings that differ from their defaults, without those in [`PRIVATE`].
fn settings(config: &Config) -> Value {
    let rows = config.describe().into_iter();
    let shown = rows.filter(|row| row.origin != Origin::Default && !PRIVATE.contains(&row.key));
    shown.map(|row| (row.key.to_owned(), Value::from(row.value))).collect::<serde_json::Map<_, _>>().into()
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

/// Replaces the host name, with and without its domain.
fn without_host(text: &str, host: &str) -> String {
    let short = host.split('.').next().unwrap_or(host);
    // A very short name would match parts of words.
    if short.len() < 3 { text.to_owned() } else { text.replace(host, HOST).replace(short, HOST) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_secrets_are_left_out() {
        assert_eq!(without_host("[node17.lab] node17: up", "node17.lab"), "[HOST] HOST: up");
        assert_eq!(without_host("a job", "a"), "a job");
        let set = [("RUSHMEM_TOKEN", "5a".repeat(32)), ("RUSHMEM_SQ_DEPTH", "64".into())];
        let config = Config::load_from(set.map(|(key, value)| (key.into(), value.into()))).unwrap();
        assert_eq!(settings(&config), json!({ "sq_depth": "64" }));
    }

    #[test]
    fn missing_program_is_reported() {
        let missing = run(Path::new("/absent/litmus"), &["--rounds", "1"]);
        assert!(missing["status"].as_str().unwrap().starts_with("not started: "), "{missing}");
        let echo = run(Path::new("echo"), &["hello"]);
        assert_eq!((&echo["output"], &echo["status"]), (&json!("hello\n"), &json!("exit status: 0")));
    }
}
