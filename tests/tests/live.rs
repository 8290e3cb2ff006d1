//! Tests of jobs with live membership: processes are killed while a persistent kernel and collective calls run.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rushmem_tests::launch::{Waiting, all, clean, launcher, text};
use rushmem_tests::{repetitions, skip};

/// The launcher and the examples are built next to this program.
const PE: &str = env!("CARGO_BIN_EXE_suite_pe");

/// Returns the example `survive` under the launcher, with these arguments of `rushmem run` and of the example.
fn survive(test: &str, args: &[&str], own: &[&str]) -> Option<Command> {
    let Some(launcher) = launcher(PE) else {
        skip(test, "the launcher is not built: cargo build -p rushmem-cli -p rushmem-examples");
        return None;
    };
    let program: PathBuf = Path::new(PE).with_file_name("survive");
    let mut command = clean(&launcher);
    command.args(["run", "--set", "timeout=60s"]).args(args).arg(program).args(own);
    Some(command)
}

fn kill(pids: &[&String], how: &str) {
    assert!(Command::new("kill").arg(how).args(pids).status().unwrap().success());
}

/// Asserts that the job has succeeded, and that each PE but the `lost` ones has exchanged all `rounds` and has noticed the
/// same losses.
fn check(output: &Output, n: usize, lost: &[usize], rounds: u64) {
    assert!(output.status.success(), "{}", all(output));
    let told = text(&output.stdout);
    let names = lost.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
    for pe in (0..n).filter(|pe| !lost.contains(pe)) {
        let line = told.lines().find(|line| line.contains(&format!("PE {pe}: ")));
        let line = line.unwrap_or_else(|| panic!("no line of PE {pe}: {}", all(output)));
        assert!(line.contains(&format!("{rounds} rounds, 0 wrong words")), "{line}");
        assert!(line.contains(&format!("lost {names},")), "{line}");
    }
}

/// Runs jobs of `n` PEs and kills one or two of their processes at a random moment.
fn kill_at_random(test: &str, n: usize, path: &str, seeds: usize) {
    const ROUNDS: u64 = 600;
    for seed in 0..seeds as u64 {
        let (pes, path) = (n.to_string(), format!("peer_path={path}"));
        let args = ["-n", pes.as_str(), "--set", &path];
        let Some(command) = survive(test, &args, &["--rounds", &ROUNDS.to_string()]) else { return };
        let job = Waiting::start(command, n);
        let random = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        std::thread::sleep(Duration::from_micros(random >> 20 & 0x3_ffff));
        let first = random as usize % n;
        let second = (random >> 8) as usize % n;
        let mut lost = if seed % 3 == 2 { vec![first, second] } else { vec![first] };
        lost.sort_unstable();
        lost.dedup();
        kill(&lost.iter().map(|&pe| &job.pids[pe]).collect::<Vec<_>>(), "-9");
        let (output, _) = job.end();
        check(&output, n, &lost, ROUNDS);
    }
}

#[test]
fn living_pes_go_on_through_their_nics() {
    kill_at_random("living_pes_go_on_through_their_nics", 4, "nic", 3);
}

#[test]
fn living_pes_go_on_by_p2p() {
    kill_at_random("living_pes_go_on_by_p2p", 3, "p2p", 3);
}

/// The slow tests of this file kill this many processes by each path, or as many as `SUITE_KILLS` says.
fn kills(usual: usize) -> usize {
    repetitions("SUITE_KILLS", usual)
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn many_killed_pes_do_not_end_their_jobs() {
    for path in ["nic", "p2p"] {
        kill_at_random("many_killed_pes_do_not_end_their_jobs", 5, path, kills(10));
    }
}

/// Runs a mode of `suite_pe` on four PEs, once for each of three of them, which is killed meanwhile. The others must all
/// go on.
fn kill_each(test: &str, mode: &str) {
    let Some(launcher) = launcher(PE) else { return skip(test, "the launcher is not built") };
    for lost in 0..3 {
        let folder = tempfile::tempdir().unwrap();
        let mut command = clean(&launcher);
        command.args(["run", "-n", "4", "--set", "membership=live", PE, mode]).arg(folder.path());
        let job = Waiting::start(command, 4);
        std::thread::sleep(Duration::from_millis(20 + 45 * lost as u64));
        kill(&[&job.pids[lost]], "-9");
        let (output, _) = job.end();
        assert!(output.status.success(), "{}", all(&output));
        let count = text(&output.stdout).matches("goes on").count();
        assert_eq!(count, 3, "{}", all(&output));
    }
}

#[test]
fn allocations_have_the_same_outcome_on_all_living_pes() {
    kill_each("allocations_have_the_same_outcome_on_all_living_pes", "allocate");
}

#[test]
fn checkpoints_have_the_same_outcome_on_all_living_pes() {
    kill_each("checkpoints_have_the_same_outcome_on_all_living_pes", "save");
}

#[test]
fn promises_hold_after_a_loss() {
    let test = "promises_hold_after_a_loss";
    let Some(launcher) = launcher(PE) else { return skip(test, "the launcher is not built") };
    for path in ["peer_path=nic", "peer_path=p2p"] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = clean(&launcher);
        command.args(["run", "-n", "4", "--set", "membership=live", "--set", "timeout=60s"]);
        command.args(["--set", path, PE, "survive"]).arg(folder.path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{path}: {}", all(&output));
        for pe in 0..3 {
            let line = format!("[{pe}] PE {pe} goes on");
            assert!(text(&output.stdout).contains(&line), "{path}: {}", all(&output));
        }
    }
}

/// Runs jobs of `n` PEs that do `what` while PEs kill themselves, until `cycles` of them were replaced.
fn replace(test: &str, what: &str, n: usize, cycles: usize) {
    let Some(launcher) = launcher(PE) else { return skip(test, "the launcher is not built") };
    for path in ["peer_path=nic", "peer_path=p2p"] {
        let mut command = clean(&launcher);
        command.args(["run", "-n", &n.to_string(), "--respawn", "100000"]);
        command.args(["--set", "membership=live", "--set", "timeout=60s", "--set", path]);
        let output = command.args([PE, what, &cycles.to_string()]).output().unwrap();
        let ends = text(&output.stdout).matches("ends after").count();
        assert!(output.status.success() && ends == n, "{path}: {}", all(&output));
    }
}

#[test]
fn other_processes_replace_lost_pes() {
    replace("other_processes_replace_lost_pes", "replace", 4, 10);
}

#[test]
fn experts_go_on_without_lost_pes() {
    replace("experts_go_on_without_lost_pes", "experts", 4, 10);
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn many_pes_are_replaced() {
    replace("many_pes_are_replaced", "replace", 8, kills(60));
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn experts_of_many_lost_pes_are_replaced() {
    replace("experts_of_many_lost_pes_are_replaced", "experts", 6, kills(30));
}

/// Starts `survive` on `n` PEs, with a process for each lost one, and with `vacant` more PEs.
fn respawned(test: &str, (n, vacant): (usize, usize), settings: &[&str], rounds: &str) -> Option<Waiting> {
    let (pes, vacant_pes) = ((n + vacant).to_string(), format!("vacant_pes={vacant}"));
    let mut args = vec!["-n", &pes, "--respawn", "1000", "--set", &vacant_pes];
    args.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    let mut command = survive(test, &args, &["--rounds", rounds])?;
    // Nobody reads standard error before the end.
    command.env("RUSHMEM_LOG", "error");
    Some(Waiting::start_with_vacant(command, n, vacant))
}

/// Asserts that the job succeeds, and that all its `n` PEs have received what the others sent.
fn check_all(job: Waiting, n: usize) {
    let (output, _) = job.end();
    assert!(output.status.success(), "{}", all(&output));
    assert_eq!(text(&output.stdout).matches("rounds, 0 wrong words").count(), n, "{}", all(&output));
}

/// Sends a signal to `together` processes of `n` PEs at a time, `kills` times. The PEs run persistent kernels for `rounds`
/// rounds, which go on with the successors.
fn replace_under_kernels(
    test: &str,
    n: usize,
    settings: &[&str],
    rounds: &str,
    (kills, together): (usize, usize),
    signal: &str,
) {
    let Some(mut job) = respawned(test, (n, 0), settings, rounds) else { return };
    for kill_number in 0..kills {
        let victims: Vec<usize> = (0..together).map(|i| (kill_number * 3 + 1 + i) % n).collect();
        kill(&victims.iter().map(|&pe| &job.pids[pe]).collect::<Vec<_>>(), signal);
        assert!(job.wait_for_restart(&victims), "the job ended");
        std::thread::sleep(Duration::from_millis(7 * kill_number as u64 % 300));
    }
    check_all(job, n);
}

#[test]
fn persistent_kernels_go_on_with_replacements() {
    let test = "persistent_kernels_go_on_with_replacements";
    replace_under_kernels(test, 4, &["peer_path=p2p"], "1000", (6, 1), "-KILL");
}

#[test]
fn persistent_kernels_reach_replacements_through_nics() {
    let test = "persistent_kernels_reach_replacements_through_nics";
    replace_under_kernels(test, 3, &["peer_path=nic", "failover=on"], "1000", (6, 1), "-KILL");
}

#[test]
fn two_pes_are_replaced_together() {
    for settings in [&["peer_path=p2p"][..], &["peer_path=nic", "failover=on"]] {
        replace_under_kernels("two_pes_are_replaced_together", 4, settings, "400", (3, 2), "-KILL");
    }
}

/// The launcher kills a stopped process, and starts another.
#[test]
fn stopped_pes_are_replaced() {
    let settings = ["peer_path=nic", "failover=on", "heartbeat=2s"];
    replace_under_kernels("stopped_pes_are_replaced", 3, &settings, "600", (1, 1), "-STOP");
}

/// Starts processes for two vacant PEs while the kernels of three others run, and kills one of each kind.
fn join_vacant_pes(test: &str, settings: &[&str]) {
    let Some(mut job) = respawned(test, (3, 2), settings, "600") else { return };
    for pe in [3, 4] {
        kill(&[&job.launcher.id().to_string()], "-USR2");
        assert!(job.wait_for_restart(&[pe]), "the job ended");
    }
    for pe in [1, 4] {
        kill(&[&job.pids[pe]], "-KILL");
        assert!(job.wait_for_restart(&[pe]), "the job ended");
    }
    check_all(job, 5);
}

#[test]
fn processes_join_as_vacant_pes_by_p2p() {
    join_vacant_pes("processes_join_as_vacant_pes_by_p2p", &["peer_path=p2p"]);
}

#[test]
fn processes_join_as_vacant_pes_through_nics() {
    join_vacant_pes("processes_join_as_vacant_pes_through_nics", &["peer_path=nic", "failover=on"]);
}

#[test]
fn loss_of_all_but_vacant_pes_fails_the_job() {
    let test = "loss_of_all_but_vacant_pes_fails_the_job";
    let args = ["-n", "3", "--set", "vacant_pes=1", "--set", "peer_path=p2p"];
    let Some(command) = survive(test, &args, &["--rounds", "100000"]) else { return };
    let job = Waiting::start_with_vacant(command, 2, 1);
    kill(&[&job.pids[0], &job.pids[1]], "-KILL");
    let (output, _) = job.end();
    assert_eq!(output.status.code(), Some(128 + 9), "{}", all(&output));
    assert!(text(&output.stderr).contains("no PE is left"), "{}", all(&output));
}

#[test]
fn vacant_pes_may_stay_vacant() {
    let test = "vacant_pes_may_stay_vacant";
    let Some(job) = respawned(test, (2, 1), &["peer_path=p2p"], "100") else { return };
    check_all(job, 2);
    for wrong in ["vacant_pes=3", "vacant_pes=4"] {
        let Some(mut command) = survive(test, &["-n", "3", "--set", wrong], &[]) else { return };
        let (output, why) = (command.output().unwrap(), "the job has 3 PEs, of which one must not be vacant");
        assert!(!output.status.success() && text(&output.stderr).contains(why), "{}", all(&output));
    }
}

/// Kills processes of two PEs at random moments, many of them before they have joined.
fn kill_while_joining(test: &str, settings: &[&str]) {
    let Some(job) = respawned(test, (4, 0), settings, "800") else { return };
    let launcher = job.launcher.id().to_string();
    let mut random = 1u64;
    for _ in 0..20 {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let found = Command::new("pgrep").args(["-P", &launcher, "survive"]).output().unwrap();
        let found = text(&found.stdout);
        let victims: Vec<&str> =
            found.lines().filter(|pid| !job.pids[..2].iter().any(|kept| kept == pid)).collect();
        if let Some(pid) = victims.get((random >> 63) as usize % victims.len().max(1)) {
            // It may have exited since.
            let _ = Command::new("kill").args(["-KILL", pid]).status();
        }
        std::thread::sleep(Duration::from_millis(random >> 33 & 31));
    }
    check_all(job, 4);
}

#[test]
fn pes_by_p2p_may_be_lost_while_they_join() {
    kill_while_joining("pes_by_p2p_may_be_lost_while_they_join", &["peer_path=p2p"]);
}

#[test]
fn pes_with_nics_may_be_lost_while_they_join() {
    kill_while_joining("pes_with_nics_may_be_lost_while_they_join", &["peer_path=nic", "failover=on"]);
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn persistent_kernels_reach_replacements_while_ports_flap() {
    let flaps = "softnic_fault=port_flaps_us=300000";
    let settings = ["peer_path=nic", "failover=on", "nics_per_pe=2", "ack_timeout=2ms", flaps];
    let test = "persistent_kernels_reach_replacements_while_ports_flap";
    replace_under_kernels(test, 3, &settings, "2500", (20, 1), "-KILL");
}

/// Kills a process of the stencil after each of its first checkpoints.
#[test]
fn stencil_goes_back_to_its_checkpoint() {
    const KILLS: usize = 3;
    let test = "stencil_goes_back_to_its_checkpoint";
    let Some(launcher) = launcher(PE) else { return skip(test, "the launcher is not built") };
    let (program, folder) = (Path::new(PE).with_file_name("stencil"), tempfile::tempdir().unwrap());
    let picture = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/data/chelsea.png");
    let path = folder.path().join("checkpoint");
    let mut command = clean(&launcher);
    command.args(["run", "-n", "4", "--respawn", "100", "--set", "membership=live", "--set", "timeout=60s"]);
    command.args(["--set", "heap_bytes=8MiB"]);
    command.arg(program).arg(picture).args(["--steps", "60", "--every", "10", "--checkpoint"]).arg(&path);
    command.arg("-o").arg(folder.path().join("heat.png"));
    let mut job = command.spawn().unwrap();
    let mut last = None;
    for kill_number in 0..KILLS {
        loop {
            if job.try_wait().unwrap().is_some() {
                panic!("after {kill_number} kills: {}", all(&job.wait_with_output().unwrap()));
            }
            let saved = path.join("rushmem.manifest").metadata().and_then(|file| file.modified()).ok();
            if saved > last {
                last = saved;
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let found =
            Command::new("pgrep").args(["-x", "-P", &job.id().to_string(), "stencil"]).output().unwrap();
        let pids: Vec<_> = text(&found.stdout).split_whitespace().map(str::to_owned).collect();
        kill(&[&pids[kill_number % pids.len()]], "-9");
    }
    let output = job.wait_with_output().unwrap();
    let told = text(&output.stdout);
    assert!(output.status.success(), "{}", all(&output));
    assert!(told.contains("PASS stencil") && told.contains("largest error 0e0"), "{}", all(&output));
    assert_eq!(text(&output.stderr).matches("starts again").count(), KILLS, "{}", all(&output));
}

#[test]
fn process_that_does_not_fit_is_not_taken_in() {
    let test = "process_that_does_not_fit_is_not_taken_in";
    let Some(launcher) = launcher(PE) else { return skip(test, "the launcher is not built") };
    for (mode, why) in [
        (&["refuse"][..], "no PE is left that could take its process in"),
        (&["refuse", "1"], "136 bytes, where the other PEs have allocated 128;"),
    ] {
        let mut command = clean(&launcher);
        command.args(["run", "-n", "3", "--respawn", "1", "--set", "membership=live"]);
        let output = command.arg(PE).args(mode).output().unwrap();
        assert!(output.status.success(), "{}", all(&output));
        assert!(all(&output).contains(why), "{}", all(&output));
        assert_eq!(text(&output.stdout).matches("goes on").count(), 2, "{}", all(&output));
    }
}

#[test]
fn nobody_lost_changes_nothing() {
    let test = "nobody_lost_changes_nothing";
    let Some(mut command) = survive(test, &["-n", "3"], &["--rounds", "100"]) else { return };
    check(&command.output().unwrap(), 3, &[], 100);
}

#[test]
fn loss_of_all_others_leaves_one() {
    let Some(command) = survive("loss_of_all_others_leaves_one", &["-n", "3"], &["--rounds", "2000"]) else {
        return;
    };
    let job = Waiting::start(command, 3);
    kill(&[&job.pids[0]], "-9");
    std::thread::sleep(Duration::from_millis(100));
    kill(&[&job.pids[2]], "-9");
    let (output, _) = job.end();
    check(&output, 3, &[0, 2], 2000);
}

#[test]
fn fixed_membership_is_the_default() {
    let Some(launcher) = launcher(PE) else {
        return skip("fixed_membership_is_the_default", "the launcher is not built");
    };
    let mut command = clean(&launcher);
    command.args(["run", "-n", "2", "--set", "timeout=120s", PE, "wait"]);
    let (job, begin) = (Waiting::start(command, 2), Instant::now());
    kill(&[&job.pids[1]], "-9");
    let (output, _) = job.end();
    assert_eq!(output.status.code(), Some(128 + 9), "{}", all(&output));
    assert!(begin.elapsed() < Duration::from_secs(40));
}

#[test]
fn unsupported_settings_are_refused() {
    let test = "unsupported_settings_are_refused";
    for (set, why) in [("dc_above=1", "a DC initiator"), ("teams=2000", "1024 teams")] {
        let Some(mut command) = survive(test, &["-n", "2", "--set", set], &[]) else { return };
        let output = command.output().unwrap();
        assert!(!output.status.success(), "{}", all(&output));
        let told = text(&output.stderr);
        assert!(told.contains("live membership is not available") && told.contains(why), "{told}");
    }
    let mut command = clean(&Path::new(PE).with_file_name("survive"));
    let output = command.args(["--pes", "2"]).output().unwrap();
    assert!(
        !output.status.success() && text(&output.stderr).contains("threads of one process"),
        "{}",
        all(&output)
    );
}
