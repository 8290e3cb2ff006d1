//! Runs the program `litmus` with PEs as processes, which communicate over P2P or UDP packets.

use std::process::Output;
use std::sync::{Mutex, PoisonError};

use rushmem_litmus::check;
use rushmem_litmus::path::ADVERSARY;
use rushmem_tests::launch::{all, clean, launcher, text};
use rushmem_tests::skip;

const LITMUS: &str = env!("CARGO_BIN_EXE_litmus");

/// Serializes jobs, because the machine may be small.
static ONE: Mutex<()> = Mutex::new(());

/// Runs the program `litmus` with `pes` processes and returns its output, or `None` if there is no launcher.
fn play(test: &str, pes: u32, rounds: u32, args: &[&str], settings: &[impl AsRef<str>]) -> Option<Output> {
    let Some(launcher) = launcher(LITMUS) else {
        skip(test, "the launcher is not built: cargo build -p rushmem-cli");
        return None;
    };
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = clean(&launcher);
    command.args(["run", "-n", &pes.to_string()]);
    for setting in settings {
        command.args(["--set", setting.as_ref()]);
    }
    command.arg(LITMUS).args(args).env("RUSHMEM_LITMUS_ROUNDS", rounds.to_string());
    Some(command.output().unwrap())
}

fn nothing_forbidden(test: &str, pes: u32, rounds: u32, settings: &[impl AsRef<str>]) {
    let Some(output) = play(test, pes, rounds, &[], settings) else { return };
    assert!(output.status.success(), "{}", all(&output));
    let last = format!("of {rounds} rounds and {} checks by {pes} PEs", check::all().len());
    let passes = |line: &str| line.contains("PASS") && line.contains(&last);
    assert!(text(&output.stdout).lines().any(passes), "{}", all(&output));
}

/// Returns settings for several queues, for lost, duplicated and reordered packets, and for the faults of
/// [`ADVERSARY`](rushmem_litmus::path::ADVERSARY).
fn adversary() -> [String; 4] {
    let fault = format!("softnic_fault=seed=3 drop=0.01 duplicate=0.01 reorder=0.02 {ADVERSARY}");
    ["peer_path=nic".into(), "qps_per_peer=3".into(), "sq_depth=8".into(), fault]
}

#[test]
fn two_processes_p2p() {
    nothing_forbidden("two_processes_p2p", 2, 48, &["peer_path=p2p"]);
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn four_processes_p2p() {
    nothing_forbidden("four_processes_p2p", 4, 48, &["peer_path=p2p"]);
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn two_processes_over_packets() {
    nothing_forbidden("two_processes_over_packets", 2, 48, &["peer_path=nic"]);
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn four_processes_in_two_p2p_pairs() {
    nothing_forbidden("four_processes_in_two_p2p_pairs", 4, 48, &["peer_path=p2p", "p2p_group=2"]);
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn four_processes_over_packets_adversary() {
    nothing_forbidden("four_processes_over_packets_adversary", 4, 16, &adversary());
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn incorrect_programs_show_forbidden_outcomes_between_processes() {
    let Some(output) = play(
        "incorrect_programs_show_forbidden_outcomes_between_processes",
        2,
        512,
        &["wrong"],
        &adversary(),
    ) else {
        return;
    };
    assert_eq!(output.status.code(), Some(1), "{}", all(&output));
    for wrong in [
        "no fence",
        "no quiet",
        "the last word as flag",
        "the source is written again before quiet",
        "no quiet after get_nbi",
    ] {
        let seen =
            |line: &str| line.contains(&format!("WRONG: {wrong}, ")) && line.contains("of 512 rounds, first");
        assert!(text(&output.stdout).lines().any(seen), "{wrong}: {}", all(&output));
    }
}
