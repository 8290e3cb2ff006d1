//! Jobs of several processes, started by the real launcher; and of several hosts, as far as one machine can be two.

mod net;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use rushmem_tests::launch::{all, clean, launcher, text};
use rushmem_tests::skip;

/// Long enough on a busy machine, and shorter than any deadline that a test sets on purpose.
const SOON: Duration = Duration::from_secs(40);

const PE: &str = env!("CARGO_BIN_EXE_suite_pe");
const OTHER_BUILD: &str = env!("CARGO_BIN_EXE_suite_pe_of_another_build");

/// `rushmem run` with these arguments, or nothing where there is no launcher.
fn run(test: &str, args: &[&str]) -> Option<Command> {
    let Some(launcher) = launcher(PE) else {
        skip(test, "the launcher is not built: cargo build -p rushmem-cli");
        return None;
    };
    let mut command = clean(&launcher);
    command.arg("run").args(args);
    Some(command)
}

/// What `ring` prints with `n` PEs.
fn ring_lines(n: u32) -> Vec<String> {
    let mut lines: Vec<String> = (0..n)
        .flat_map(|pe| {
            let before = (pe + n - 1) % n;
            [
                format!("[{pe}] PE {pe} of {n} has all that PE {before} sent"),
                format!("[{pe}] PE {pe} has all that all sent"),
            ]
        })
        .collect();
    lines.sort();
    lines
}

fn sorted(output: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> = text(output).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn four_processes_make_a_ring() {
    let Some(mut command) = run("four_processes_make_a_ring", &["-n", "4", PE, "ring"]) else { return };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", all(&output));
    assert_eq!(sorted(&output.stdout), ring_lines(4), "{}", all(&output));
}

#[test]
fn small_queues_between_processes() {
    let args =
        ["-n", "2", "--set", "sq_depth=2", "--set", "cq=collapsed", "--set", "peer_path=nic", PE, "ring"];
    let Some(mut command) = run("small_queues_between_processes", &args) else { return };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", all(&output));
    assert_eq!(sorted(&output.stdout), ring_lines(2), "{}", all(&output));
}

#[test]
fn packets_that_get_lost_are_sent_again() {
    let args = ["-n", "2", "--set", "softnic_fault=drop=0.05,duplicate=0.05,reorder=0.05,seed=5", PE, "ring"];
    let Some(mut command) = run("packets_that_get_lost_are_sent_again", &args) else { return };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", all(&output));
    assert_eq!(sorted(&output.stdout), ring_lines(2), "{}", all(&output));
}

/// A job in which all PEs wait in a kernel: its launcher, the process of each PE, and what is still to be read.
struct Waiting {
    launcher: Child,
    pids: Vec<String>,
    out: BufReader<std::process::ChildStdout>,
}

impl Waiting {
    fn start(mut command: Command, n: usize) -> Waiting {
        let mut launcher = command.spawn().unwrap();
        let mut out = BufReader::new(launcher.stdout.take().unwrap());
        let mut pids = vec![String::new(); n];
        let mut line = String::new();
        while pids.iter().any(String::is_empty) {
            line.clear();
            assert_ne!(out.read_line(&mut line).unwrap(), 0, "the job ended before all PEs were ready");
            if let [_, "ready", pe, pid] = line.split_whitespace().collect::<Vec<_>>()[..] {
                pids[pe.parse::<usize>().unwrap()] = pid.into();
            }
        }
        Waiting { launcher, pids, out }
    }

    /// Waits for its end; its output, and the time it took.
    fn end(mut self) -> (Output, Duration) {
        let begin = Instant::now();
        let mut rest = Vec::new();
        self.out.read_to_end(&mut rest).unwrap();
        let mut output = self.launcher.wait_with_output().unwrap();
        output.stdout = rest;
        (output, begin.elapsed())
    }
}

#[test]
fn a_killed_pe_ends_the_waits_of_the_others() {
    let args = ["-n", "4", "--set", "timeout=120s", PE, "wait"];
    let Some(command) = run("a_killed_pe_ends_the_waits_of_the_others", &args) else { return };
    let job = Waiting::start(command, 4);
    assert!(Command::new("kill").args(["-9", &job.pids[2]]).status().unwrap().success());
    let (output, took) = job.end();
    assert!(took < SOON, "{took:?}");
    assert_eq!(output.status.code(), Some(128 + 9), "{}", all(&output));
    let told = text(&output.stderr);
    assert!(told.contains("PE 2") && told.contains("killed"), "{told}");
    for pe in [0, 1, 3] {
        assert!(told.contains(&format!("[{pe}] error: PE 2 was lost: ")), "PE {pe} does not say so:\n{told}");
    }
}

#[test]
fn a_pe_that_exits_early_is_named() {
    let args = ["-n", "3", "--set", "timeout=120s", PE, "exit", "1"];
    let Some(mut command) = run("a_pe_that_exits_early_is_named", &args) else { return };
    let begin = Instant::now();
    let output = command.output().unwrap();
    assert!(begin.elapsed() < SOON);
    assert_eq!(output.status.code(), Some(3), "{}", all(&output));
    let told = text(&output.stderr);
    assert!(told.contains("rushmem: PE 1 exited with code 3"), "{told}");
    assert!(told.contains("[0] error: PE 1 was lost: exited with code 3"), "{told}");
}

#[test]
fn two_builds_in_one_job_are_refused() {
    let script = "if [ $RUSHMEM_PE = 1 ]; then exec \"$1\" ring; else exec \"$0\" ring; fi";
    let args = ["-n", "2", "sh", "-c", script, PE, OTHER_BUILD];
    let Some(mut command) = run("two_builds_in_one_job_are_refused", &args) else { return };
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", all(&output));
    assert!(text(&output.stderr).contains("two different builds in one job"), "{}", all(&output));
    assert!(!text(&output.stdout).contains("has all"), "{}", all(&output));
}

#[test]
fn a_dead_link_is_an_error_that_names_the_peer() {
    let args = ["-n", "2", "--set", "softnic_fault=drop=1", "--set", "timeout=2s", PE, "ring"];
    let Some(mut command) = run("a_dead_link_is_an_error_that_names_the_peer", &args) else { return };
    let begin = Instant::now();
    let output = command.output().unwrap();
    assert!(begin.elapsed() < SOON);
    assert_eq!(output.status.code(), Some(1), "{}", all(&output));
    let told = text(&output.stderr);
    let named = [("0", "1"), ("1", "0")].iter().any(|(pe, peer)| {
        let words = format!("[{pe}] error: PE {pe}: RDMA_WRITE towards PE {peer} failed on QP ");
        told.contains(&words) && told.contains("TRANSPORT_RETRY_EXC_ERR (syndrome 0x15")
    });
    assert!(named, "{told}");
}

#[test]
fn a_misspelt_setting_is_not_ignored() {
    let mut command = clean(Path::new(PE));
    let output = command.arg("ring").env("RUSHMEM_SQ_DEPHT", "8").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let wanted = "error: unknown environment variable RUSHMEM_SQ_DEPHT; the nearest known name is RUSHMEM_SQ_DEPTH \
                  (`rushmem info` lists all)\n";
    assert_eq!(text(&output.stderr), wanted);

    let output = clean(Path::new(PE)).arg("ring").env("RUSHMEM_SQ_DEPTH", "3").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("RUSHMEM_SQ_DEPTH"), "{}", all(&output));
}
