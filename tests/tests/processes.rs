//! Tests of jobs whose processes the real launcher starts, some on two simulated hosts.

mod net;

use std::io::BufRead;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rushmem_tests::launch::{self, Waiting, all, clean, launcher, sorted, text};
use rushmem_tests::{repetitions, skip};

/// Time limit for a prompt reaction, which even a busy machine meets. It is shorter than any deadline that these tests
/// set.
const PROMPT_LIMIT: Duration = Duration::from_secs(40);

const PE: &str = env!("CARGO_BIN_EXE_suite_pe");
const OTHER_BUILD: &str = env!("CARGO_BIN_EXE_suite_pe_of_another_build");

/// Returns the command `rushmem run` with these arguments, or `None` if the launcher is not built.
fn run(test: &str, args: &[&str]) -> Option<Command> {
    let Some(launcher) = launcher(PE) else {
        skip(test, "the launcher is not built: cargo build -p rushmem-cli");
        return None;
    };
    let mut command = clean(&launcher);
    command.arg("run").args(args);
    Some(command)
}

fn ring_lines(n: u32) -> Vec<String> {
    launch::ring_lines(n, |pe| format!("[{pe}] "))
}

#[test]
fn ring_of_four_processes() {
    let Some(mut command) = run("ring_of_four_processes", &["-n", "4", PE, "ring"]) else { return };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", all(&output));
    assert_eq!(sorted(&output.stdout), ring_lines(4), "{}", all(&output));
}

#[test]
fn program_starts_and_finishes_its_own_pe() {
    let Some(mut command) = run("program_starts_and_finishes_its_own_pe", &["-n", "2", PE, "owned"]) else {
        return;
    };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", all(&output));
    assert_eq!(sorted(&output.stdout), ring_lines(2), "{}", all(&output));
}

#[test]
fn only_pe_of_a_process_is_a_job_of_its_own() {
    let mut command = clean(Path::new(PE));
    let output = command.arg("owned").output().unwrap();
    assert!(output.status.success(), "{}", all(&output));
    let output = command.env("RUSHMEM_PES", "2").output().unwrap();
    assert!(!output.status.success(), "{}", all(&output));
    let told = "error: start: this process is a job of 2 PEs; use `Job::run`, start each PE as a process with \
                `rushmem run`, or set RUSHMEM_PES=1\n";
    assert_eq!(text(&output.stderr), told);
}

#[test]
fn dropped_pe_aborts_the_job() {
    let Some(mut command) = run("dropped_pe_aborts_the_job", &["-n", "2", PE, "dropped", "1"]) else {
        return;
    };
    let begin = Instant::now();
    let output = command.output().unwrap();
    assert!(begin.elapsed() < PROMPT_LIMIT && !output.status.success(), "{}", all(&output));
    let told = text(&output.stderr);
    assert!(told.contains("[1] ERROR") && told.contains("the PE was dropped without `finish`"), "{told}");
    assert!(told.contains("rushmem: PE 1 failed"), "{told}");
}

#[test]
fn failed_pe_aborts_the_job_and_its_own_waits() {
    let Some(mut command) =
        run("failed_pe_aborts_the_job_and_its_own_waits", &["-n", "2", PE, "failed", "1"])
    else {
        return;
    };
    let begin = Instant::now();
    let output = command.output().unwrap();
    assert!(begin.elapsed() < PROMPT_LIMIT && !output.status.success(), "{}", all(&output));
    let told = text(&output.stderr);
    assert!(told.contains("[1] error: no more bananas\n"), "{told}");
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
fn lost_packets_are_retransmitted() {
    let args = ["-n", "2", "--set", "softnic_fault=drop=0.05,duplicate=0.05,reorder=0.05,seed=5", PE, "ring"];
    let Some(mut command) = run("lost_packets_are_retransmitted", &args) else { return };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", all(&output));
    assert_eq!(sorted(&output.stdout), ring_lines(2), "{}", all(&output));
}

#[test]
fn killed_pe_aborts_waits_of_other_pes() {
    let args = ["-n", "4", "--set", "timeout=120s", PE, "wait"];
    let Some(command) = run("killed_pe_aborts_waits_of_other_pes", &args) else { return };
    let job = Waiting::start(command, 4);
    assert!(Command::new("kill").args(["-9", &job.pids[2]]).status().unwrap().success());
    let (output, took) = job.end();
    assert!(took < PROMPT_LIMIT, "{took:?}");
    assert_eq!(output.status.code(), Some(128 + 9), "{}", all(&output));
    let told = text(&output.stderr);
    assert!(told.contains("PE 2") && told.contains("killed"), "{told}");
    assert!(told.contains("rushmem: PEs 0-1, 3 reported that PE 2 was lost\n"), "{told}");
}

#[test]
fn quiet_pe_does_not_wait_for_a_stalled_pe() {
    let args = ["-n", "3", "--set", "peer_path=nic", PE, "stalled"];
    let Some(command) = run("quiet_pe_does_not_wait_for_a_stalled_pe", &args) else {
        return;
    };
    let mut job = Waiting::start(command, 3);
    let kill = |how: &str| {
        assert!(Command::new("kill").args([how, &job.pids[1]]).status().unwrap().success());
    };
    kill("-STOP");
    let mut line = String::new();
    job.out.read_line(&mut line).unwrap();
    // Long enough for a `quiet` that wrongly does not wait to return.
    std::thread::sleep(Duration::from_millis(300));
    kill("-CONT");
    assert_eq!(line, "[0] PE 2 is quiet: PE 1 is T\n");
    let (output, _) = job.end();
    assert!(output.status.success(), "{}", all(&output));
    let rest = text(&output.stdout);
    assert!(rest.starts_with("[0] all are quiet: PE 1 is ") && !rest.ends_with("is T\n"), "{rest}");
}

#[test]
fn processes_of_a_node_are_p2p_peers() {
    let args = ["-n", "3", "--set", "peer_path=p2p", "--set", "connect=eager", PE];
    for what in ["p2p", "ring"] {
        let Some(mut command) = run("processes_of_a_node_are_p2p_peers", &args) else { return };
        let output = command.arg(what).output().unwrap();
        assert!(output.status.success(), "{}", all(&output));
        let lines = sorted(&output.stdout);
        if what == "ring" {
            assert_eq!(lines, ring_lines(3), "{}", all(&output));
            continue;
        }
        for pe in 0..3 {
            let says = |text: String| lines.contains(&format!("[{pe}] PE {pe} {text}"));
            let state = "reaches 0 1 2, has marks of 0 1 2, sums are right, 0 QPs";
            assert!(says(state.into()), "{}", all(&output));
            let other = (pe + 1) % 3;
            let path = format!("-> {other}: p2p, a process of the same node that shares its memory");
            assert!(says(path), "{}", all(&output));
        }
    }
}

#[test]
fn error_names_a_window_that_processes_cannot_map() {
    let args = ["-n", "2", "--set", "peer_path=p2p", PE, "window"];
    let Some(mut command) = run("error_names_a_window_that_processes_cannot_map", &args) else { return };
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{}", all(&output));
    let error = "for loads and stores is not available: it is host memory of the application, which other processes \
                 cannot map; set RUSHMEM_PEER_PATH=auto";
    assert!(text(&output.stderr).contains(error), "{}", all(&output));
}

/// Runs `what` on `n` PEs of two nodes. Both nodes are this machine, and only PEs of the same node are P2P peers.
fn two_nodes(launcher: &Path, n: &str, what: &str) -> Vec<Output> {
    // No other process on this machine uses this loopback address, so the port is free.
    let rendezvous = format!("127.79.{}.{n}:7000", std::process::id() % 250);
    let start = |node: &str| {
        let mut command = clean(launcher);
        command.args(["run", "-n", n, "--nodes", "2", "--node", node, "--rendezvous", &rendezvous]);
        command.args(["--set", "peer_path=p2p", PE, what]).env("RUSHMEM_TOKEN", "5a".repeat(32));
        command.spawn().unwrap()
    };
    let launchers = ["1", "0"].map(start);
    launchers.into_iter().rev().map(|launcher| launcher.wait_with_output().unwrap()).collect()
}

#[test]
fn job_with_p2p_and_nic_peers_computes_correct_sums() {
    let Some(launcher) = launcher(PE) else {
        return skip("job_with_p2p_and_nic_peers_computes_correct_sums", "the launcher is not built");
    };
    // PEs 0 and 1 are on the first node, 2 to 4 on the second.
    let outputs = two_nodes(&launcher, "5", "p2p");
    for (output, pes) in outputs.iter().zip(["0 1", "2 3 4"]) {
        assert!(output.status.success(), "{}", all(output));
        let lines = sorted(&output.stdout);
        for pe in pes.split(' ') {
            let line = format!("[{pe}] PE {pe} reaches {pes}, has marks of {pes}, sums are right, 5 QPs");
            assert!(lines.contains(&line), "{line}\n{}", all(output));
            let far = if pes.contains('0') { 4 } else { 0 };
            let line = format!("[{pe}] PE {pe} -> {far}: software ConnectX, it is on another node, or in");
            assert!(lines.iter().any(|found| found.starts_with(&line)), "{line}\n{}", all(output));
        }
    }
    let outputs = two_nodes(&launcher, "4", "ring");
    let mut lines: Vec<String> = outputs.iter().flat_map(|output| sorted(&output.stdout)).collect();
    lines.sort();
    assert_eq!(lines, ring_lines(4), "{outputs:?}");
}

#[test]
fn memory_of_a_killed_pe_stays_mapped_during_shutdown() {
    let args = ["-n", "3", "--set", "timeout=120s", "--set", "peer_path=p2p", PE, "store"];
    let Some(command) = run("memory_of_a_killed_pe_stays_mapped_during_shutdown", &args) else { return };
    let job = Waiting::start(command, 3);
    assert!(Command::new("kill").args(["-9", &job.pids[1]]).status().unwrap().success());
    let (output, took) = job.end();
    assert!(took < PROMPT_LIMIT, "{took:?}");
    assert_eq!(output.status.code(), Some(128 + 9), "{}", all(&output));
    for pe in [0, 2] {
        assert!(text(&output.stdout).contains(&format!("[{pe}] PE {pe} has stored")), "{}", all(&output));
    }
    assert!(
        text(&output.stderr).contains("rushmem: PEs 0, 2 reported that PE 1 was lost\n"),
        "{}",
        all(&output)
    );
}

#[test]
fn pes_with_different_peer_paths_are_rejected() {
    let script = "if [ $RUSHMEM_PE = 1 ]; then export RUSHMEM_PEER_PATH=nic; fi; exec \"$0\" ring";
    let args = ["-n", "2", "--set", "peer_path=p2p", "sh", "-c", script, PE];
    let Some(mut command) = run("pes_with_different_peer_paths_are_rejected", &args) else { return };
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", all(&output));
    assert!(text(&output.stderr).contains("peer_path=Nic"), "{}", all(&output));
}

#[test]
fn error_names_a_pe_that_exits_early() {
    let args = ["-n", "3", "--set", "timeout=120s", PE, "exit", "1"];
    let Some(mut command) = run("error_names_a_pe_that_exits_early", &args) else { return };
    let begin = Instant::now();
    let output = command.output().unwrap();
    assert!(begin.elapsed() < PROMPT_LIMIT);
    assert_eq!(output.status.code(), Some(3), "{}", all(&output));
    let told = text(&output.stderr);
    assert!(told.contains("rushmem: PE 1 exited with code 3"), "{told}");
    assert!(told.contains("rushmem: PEs 0, 2 reported that PE 1 was lost\n"), "{told}");
}

#[test]
fn failure_of_64_processes_is_reported_once() {
    // One PE fails while the others wait, or all PEs fail in the same way.
    let one = (&["exit", "9"][..], "exited with code 3", "reported that PE 9 was lost");
    let all_of_them = (&["nothing"][..], "no such thing to do", "had the same error as PE ");
    for (action, cause, folded) in [one, all_of_them] {
        let args = [&["-n", "64", PE][..], action].concat();
        let Some(mut command) = run("failure_of_64_processes_is_reported_once", &args) else {
            return;
        };
        let output = command.output().unwrap();
        let told = text(&output.stderr);
        assert!(!output.status.success());
        assert_eq!(told.lines().filter(|line| line.contains(cause)).count(), 1, "{told}");
        assert!(told.contains(folded) && told.lines().count() <= 4, "{told}");
    }
}

#[test]
fn rejects_two_builds_in_one_job() {
    let script = "if [ $RUSHMEM_PE = 1 ]; then exec \"$1\" ring; else exec \"$0\" ring; fi";
    let args = ["-n", "2", "sh", "-c", script, PE, OTHER_BUILD];
    let Some(mut command) = run("rejects_two_builds_in_one_job", &args) else { return };
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", all(&output));
    assert!(text(&output.stderr).contains("two different builds in one job"), "{}", all(&output));
    assert!(!text(&output.stdout).contains("has all"), "{}", all(&output));
}

#[test]
fn dead_link_error_names_the_peer() {
    let args = ["-n", "2", "--set", "softnic_fault=drop=1", "--set", "timeout=2s", PE, "ring"];
    let Some(mut command) = run("dead_link_error_names_the_peer", &args) else { return };
    let begin = Instant::now();
    let output = command.output().unwrap();
    assert!(begin.elapsed() < PROMPT_LIMIT);
    assert_eq!(output.status.code(), Some(1), "{}", all(&output));
    let told = text(&output.stderr);
    let named = [("0", "1"), ("1", "0")].iter().any(|(pe, peer)| {
        let words = format!("[{pe}] error: PE {pe}: RDMA_WRITE towards PE {peer} failed on QP ");
        told.contains(&words) && told.contains("TRANSPORT_RETRY_EXC_ERR (syndrome 0x15")
    });
    assert!(named, "{told}");
}

#[test]
fn port_failure_aborts_waits_of_both_peers() {
    let script =
        "if [ $RUSHMEM_PE = 0 ]; then export RUSHMEM_SOFTNIC_FAULT=port_falls_us=100000; fi; exec \"$0\" $1";
    let args = ["-n", "2", "--set", "timeout=60s", "sh", "-c", script, PE, "ring_wait"];
    let Some(mut command) = run("port_failure_aborts_waits_of_both_peers", &args) else { return };
    let begin = Instant::now();
    let output = command.env("RUSHMEM_PEER_PATH", "nic").output().unwrap();
    assert!(begin.elapsed() < PROMPT_LIMIT, "the deadline of 60 s ended the waits: {}", all(&output));
    assert!(!output.status.success(), "{}", all(&output));
    let told = text(&output.stderr);
    let cause = "PE 0: software ConnectX failed: its port has been down for 1s";
    let reports: Vec<&str> = told.lines().filter(|line| line.contains("ERROR")).collect();
    assert!(reports.len() == 1 && reports[0].contains(cause), "{told}");
    assert!(told.contains(&format!("error: {cause}")), "{told}");
    // PE 1 learns of it from the failed connection, or from the job if PE 0 exits first.
    let lost = format!("PE 1 lost its connection to PE 0: PE 0 reports: {cause}");
    assert!(told.contains(&lost) || told.contains("PE 1 reported that PE 0 was lost"), "{told}");
}

#[test]
fn misspelt_setting_is_rejected() {
    let mut command = clean(Path::new(PE));
    let output = command.arg("ring").env("RUSHMEM_SQ_DEPHT", "8").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let wanted = "error: unknown environment variable RUSHMEM_SQ_DEPHT; did you mean `RUSHMEM_SQ_DEPTH`? \
                  (`rushmem info --all` lists all)\n";
    assert_eq!(text(&output.stderr), wanted);

    let output = clean(Path::new(PE)).arg("ring").env("RUSHMEM_SQ_DEPTH", "3").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("RUSHMEM_SQ_DEPTH"), "{}", all(&output));
}

#[cfg(not(feature = "rdma"))]
#[test]
fn warns_of_a_connectx_that_this_build_cannot_drive() {
    let sysfs = tempfile::tempdir().unwrap();
    let device = sysfs.path().join("class/infiniband/mlx5_0/device");
    std::fs::create_dir_all(&device).unwrap();
    std::fs::write(device.join("modalias"), "pci:v000015B3d00001021sv0").unwrap();
    let pe = |nic: &str| {
        let mut command = clean(Path::new(PE));
        command.arg("ring").env("SYSFS_PATH", sysfs.path()).env("RUSHMEM_NIC", nic).output().unwrap()
    };
    let output = pe("auto");
    assert!(output.status.success(), "{}", all(&output));
    let told = text(&output.stderr);
    assert!(told.contains("there is mlx5_0, but this build") && told.contains("--features rdma"), "{told}");
    let output = pe("mlx5_0");
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("--features rdma"), "{}", all(&output));
}

/// Returns the round of the checkpoint that all PEs have loaded, by the lines that they have printed. `None` if there was
/// none.
fn loaded_round(lines: &[String], n: usize) -> Option<u64> {
    let is_loaded = |line: &&String| line.contains(" cells of round ");
    let rounds: Vec<(String, u64)> = (lines.iter().filter(is_loaded))
        .map(|line| {
            let (before, round) = line.rsplit_once(' ').unwrap();
            (before.to_owned(), round.parse().unwrap())
        })
        .collect();
    let round = rounds.first()?.1;
    for pe in 0..n {
        let line = (format!("[{pe}] PE {pe} has the right cells of round"), round);
        assert!(rounds.contains(&line), "PE {pe}: {rounds:?}");
    }
    assert_eq!(rounds.len(), n, "{rounds:?}");
    Some(round)
}

/// Kills a PE, or all, of jobs that save checkpoints, at random moments. Each next job loads what the one before has
/// left.
fn kill_while_saving(test: &str, times: usize) {
    const PES: usize = 3;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    let args = ["-n", "3", PE, "checkpoint", path.to_str().unwrap()];
    let mut newest = 0;
    for seed in 0..times as u64 {
        let Some(command) = run(test, &args) else { return };
        let job = Waiting::start(command, PES);
        let loaded = loaded_round(&job.told, PES).unwrap_or(0);
        assert!(loaded >= newest, "round {loaded} after {newest}, seed {seed}");
        newest = loaded;
        // A different moment, and a different PE, with each seed.
        let random = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        std::thread::sleep(Duration::from_micros(random >> 20 & 0xf_ffff));
        let killed = match random as usize % (PES + 1) {
            PES => &job.pids[..],
            pe => &job.pids[pe..=pe],
        };
        assert!(Command::new("kill").arg("-9").args(killed).status().unwrap().success());
        let (output, took) = job.end();
        assert!(took < PROMPT_LIMIT && !output.status.success(), "{}", all(&output));
    }
    let Some(mut command) = run(test, &[&args[..], &["end"]].concat()) else { return };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", all(&output));
    let lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
    let last = loaded_round(&lines, PES);
    assert!(last >= Some(newest.max(1)), "{last:?} after {newest}: {lines:?}");
}

#[test]
fn killed_save_leaves_the_old_or_the_new_checkpoint() {
    kill_while_saving("killed_save_leaves_the_old_or_the_new_checkpoint", 4);
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn many_killed_saves_leave_the_old_or_the_new_checkpoint() {
    let test = "many_killed_saves_leave_the_old_or_the_new_checkpoint";
    kill_while_saving(test, repetitions("SUITE_KILLS", 25));
}
