//! Tests of failover: ports of software NICs go down and up while kernels use every kind of operation.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rushmem_tests::launch::{all, clean, launcher, text};
use rushmem_tests::{repetitions, skip};

const PE: &str = env!("CARGO_BIN_EXE_suite_pe");

/// Returns a job with failover, with these options of `rushmem run`, settings and faults of the NICs, that runs the given part of
/// `suite_pe`.
fn job(test: &str, options: &[&str], settings: &[&str], faults: &str, part: &[&str]) -> Option<Command> {
    let Some(launcher) = launcher(PE) else {
        skip(test, "the launcher is not built: cargo build -p rushmem-cli");
        return None;
    };
    let mut command = clean(&launcher);
    command.arg("run").args(options).args(["--set", "peer_path=nic", "--set", "failover=on"]);
    // Lost packets are sent again soon, and kernels are patient.
    let own = ["ack_timeout=2ms", "timeout=60s", "block_qps=16", "exclusive_qps=16", "heap_bytes=4MiB"];
    for setting in own.iter().chain(settings) {
        command.args(["--set", setting]);
    }
    command.args(["--set", &format!("softnic_fault={faults}")]).arg(PE).args(part);
    Some(command)
}

/// Returns how often a port was reported as down.
fn cuts(output: &Output) -> usize {
    text(&output.stderr).matches("its port has been down").count()
}

/// Runs jobs with ports that flap until `wanted` cuts have happened. `suite_pe` checks the results.
fn cross(test: &str, settings: &[&str], faults: &str, seconds: u32, wanted: usize) {
    let (mut seed, mut seen) = (0, 0);
    while seen < wanted {
        seed += 1;
        let faults = format!("{faults} seed={seed}");
        let part = ["cuts", &seconds.to_string()];
        let Some(mut command) = job(test, &["-n", "3"], settings, &faults, &part) else { return };
        let output = command.output().unwrap();
        assert!(output.status.success(), "{faults}: {}", all(&output));
        let told = text(&output.stdout);
        assert_eq!(told.matches("results lost").count(), 3, "{faults}: {}", all(&output));
        seen += cuts(&output);
    }
}

#[test]
fn operations_are_executed_once_while_ports_flap() {
    let test = "operations_are_executed_once_while_ports_flap";
    cross(test, &["nics_per_pe=2"], "port_flaps_us=150000", 2, 8);
}

#[test]
fn connections_wait_for_the_only_nic() {
    cross("connections_wait_for_the_only_nic", &["cq=collapsed"], "port_flaps_us=100000", 1, 3);
}

/// The NICs also split, delay and lose packets.
#[test]
fn other_faults_may_coincide_with_cuts() {
    let faults = "port_flaps_us=150000 drop=0.01 split=0.2 late=0.2 stall=0.1 posted=0.2";
    cross("other_faults_may_coincide_with_cuts", &["nics_per_pe=2"], faults, 1, 4);
}

/// Cuts connections 300 times, or as often as `SUITE_CUTS` says. 10,000 take ten minutes.
#[test]
#[ignore = "slow: runs with --ignored"]
fn many_cuts_lose_nothing() {
    cross(
        "many_cuts_lose_nothing",
        &["nics_per_pe=2"],
        "port_flaps_us=100000",
        20,
        repetitions("SUITE_CUTS", 300),
    );
}

/// Processes are killed and replaced, too. Kernels that dispatch tokens mostly wait for messages.
#[test]
fn lost_pes_are_replaced_while_ports_flap() {
    let test = "lost_pes_are_replaced_while_ports_flap";
    let (options, settings) = (["-n", "4", "--respawn", "100000"], ["nics_per_pe=2", "membership=live"]);
    for part in [["replace", "20"], ["experts", "10"]] {
        let Some(mut command) = job(test, &options, &settings, "port_flaps_us=300000", &part) else { return };
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", all(&output));
        assert_eq!(text(&output.stdout).matches("ends after").count(), 4, "{}", all(&output));
    }
}

/// A job whose paths have all failed reports the peer and the cause within the time limit.
#[test]
fn jobs_without_a_path_end() {
    let settings = ["nics_per_pe=2", "connect_timeout=2s"];
    let faults = "port_falls_us=100000";
    let (test, part) = ("jobs_without_a_path_end", ["cuts", "60"]);
    let Some(mut command) = job(test, &["-n", "2"], &settings, faults, &part) else { return };
    let begin = Instant::now();
    let output = command.output().unwrap();
    let told = text(&output.stderr);
    assert!(!output.status.success() && begin.elapsed() < Duration::from_secs(30), "{}", all(&output));
    assert!(told.contains("cannot be connected to PE") && told.contains("QP 0x"), "{told}");
}

#[test]
fn windows_are_refused() {
    let Some(mut command) = job("windows_are_refused", &["-n", "2"], &[], "", &["window"]) else { return };
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{}", all(&output));
    assert!(text(&output.stderr).contains("RUSHMEM_FAILOVER=on"), "{}", all(&output));
}
