//! Tests of the command `rushmem run`, with small real processes.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{rushmem, without_settings};

/// Timeout, generous for a busy machine. Only failing tests wait this long.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the command with default signal actions: a shell cannot trap a signal that was ignored when it started.
fn with_default_signals() -> Command {
    let mut command = without_settings(Command::new("env"));
    command.args(["--default-signal", env!("CARGO_BIN_EXE_rushmem")]);
    command
}

/// Returns the path of the example `pe`, which `cargo test` builds.
fn pe() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_rushmem")).with_file_name("examples").join("pe");
    assert!(path.exists(), "{} is missing: cargo build -p rushmem-cli --examples", path.display());
    path
}

fn run(args: &[&str]) -> Output {
    rushmem().arg("run").args(args).output().unwrap()
}

fn sh(n: &str, script: &str) -> Output {
    run(&["-n", n, "sh", "-c", script])
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

/// Returns whether a process exists and is not a zombie.
fn lives(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim().starts_with('Z'))
}

fn wait_until(what: &str, mut test: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !test() {
        assert!(begin.elapsed() < TEST_TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(launcher: &Child, signal: &str) {
    kill(&launcher.id().to_string(), signal);
}

fn kill(pid: &str, signal: &str) {
    assert!(Command::new("sh").args(["-c", &format!("kill -{signal} {pid}")]).status().unwrap().success());
}

/// A launcher all of whose PEs have written a line with `ready`, and its output so far.
struct Ready {
    launcher: Child,
    out: BufReader<std::process::ChildStdout>,
    lines: Vec<String>,
}

fn start(n: usize, command: &mut Command) -> Ready {
    let mut launcher = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(launcher.stdout.take().unwrap());
    let mut lines = Vec::new();
    while lines.iter().filter(|line: &&String| line.contains("ready")).count() < n {
        let mut line = String::new();
        assert_ne!(out.read_line(&mut line).unwrap(), 0, "{lines:?}");
        lines.push(line.trim().into());
    }
    Ready { launcher, out, lines }
}

impl Ready {
    /// Returns the PIDs that the PEs wrote after `ready`.
    fn pids(&self) -> Vec<String> {
        self.lines.iter().filter_map(|line| line.split("ready ").nth(1)).map(String::from).collect()
    }

    /// Returns the PID that PE `pe` wrote after `ready`.
    fn pid(&self, pe: u32) -> String {
        let label = format!("[{pe}] ready ");
        self.lines.iter().find_map(|line| line.strip_prefix(&label)).unwrap().into()
    }

    fn end(mut self) -> Output {
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut self.out, &mut rest).unwrap();
        let mut output = self.launcher.wait_with_output().unwrap();
        output.stdout = rest;
        output
    }
}

#[test]
fn pes_join_and_lines_are_labelled() {
    let output = run(&["-n", "4", "pe"]);
    assert_eq!(code(&output), Some(0), "{}", err(&output));
    let mut expected: Vec<_> = (0..4).map(|pe| format!("[{pe}] PE {pe} of 4, with 0 1 2 3")).collect();
    expected.extend((0..4).map(|pe| format!("[{pe}] done")));
    expected.sort();
    let text = out(&output);
    assert_eq!(
        sorted(&text).into_iter().filter(|line| !line.contains("ready")).collect::<Vec<_>>(),
        expected
    );
    assert_eq!(err(&output), "");
}

#[test]
fn streams_stay_separate_and_labels_are_optional() {
    let script = "echo out $RUSHMEM_PE; echo err $RUSHMEM_PE >&2; printf 'no end'";
    let output = sh("2", script);
    assert_eq!(sorted(&out(&output)), ["[0] no end", "[0] out 0", "[1] no end", "[1] out 1"]);
    assert_eq!(sorted(&err(&output)), ["[0] err 0", "[1] err 1"]);
    let output = run(&["-n", "2", "--no-label", "sh", "-c", "echo out $RUSHMEM_PE; echo end"]);
    assert_eq!(sorted(&out(&output)), ["end", "end", "out 0", "out 1"]);
}

#[test]
fn lines_never_mix() {
    // Each line is written in two pieces.
    let script = "i=0; while [ $i -lt 300 ]; do printf %s $RUSHMEM_PE,$RUSHMEM_PE,; echo $RUSHMEM_PE; i=$((i+1)); done";
    let output = sh("4", script);
    let text = out(&output);
    for pe in 0..4 {
        let line = format!("[{pe}] {pe},{pe},{pe}");
        assert_eq!(text.lines().filter(|found| **found == line).count(), 300);
    }
    assert_eq!(text.lines().count(), 1200);
}

#[test]
fn every_pe_gets_its_variables() {
    let script = "echo $RUSHMEM_N_PES $RUSHMEM_LOCAL_PE $RUSHMEM_LOCAL_PES $RUSHMEM_NODE $RUSHMEM_NODES \
                  $RUSHMEM_HEAP_BYTES $RUSHMEM_GPUS";
    let output = run(&["-n", "2", "--gpus", "1,0", "--set", "heap_bytes=1g", "sh", "-c", script]);
    assert_eq!(sorted(&out(&output)), ["[0] 2 0 2 0 1 1g 1,0", "[1] 2 1 2 0 1 1g 1,0"]);
}

#[test]
fn variables_of_an_outer_launcher_are_removed() {
    let mut command = rushmem();
    command.env("RUSHMEM_ID", "5a".repeat(64)).env("RUSHMEM_PE", "7");
    let refused = command.args(["run", "-n", "1", "true"]).output().unwrap();
    assert_eq!(code(&refused), Some(2), "the id is invalid: {}", err(&refused));
    let id = out(&rushmem().args(["id", "--at", "127.0.0.1:4711"]).output().unwrap());
    let mut command = rushmem();
    command.env("RUSHMEM_ID", id.trim()).env("RUSHMEM_PE", "1").env("RUSHMEM_N_PES", "2");
    command.env("PMIX_RANK", "1").env("PMIX_NAMESPACE", "outer");
    let output = command.args(["run", "-n", "2", "pe"]).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", err(&output));
    let output = rushmem().args(["id", "--at", "nobody"]).output().unwrap();
    assert!(code(&output) == Some(2) && err(&output).contains("HOST:PORT"), "{}", err(&output));
}

#[test]
fn only_pe_0_reads_standard_input() {
    let mut launcher = rushmem()
        .args(["run", "-n", "2", "sh", "-c", "read line; echo \"<$line>\""])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    launcher.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    assert_eq!(sorted(&out(&launcher.wait_with_output().unwrap())), ["[0] <hello>", "[1] <>"]);
}

#[test]
fn reports_the_first_failure_and_returns_its_code() {
    let output = run(&["-n", "3", "pe", "exit"]);
    assert_eq!(code(&output), Some(3));
    let text = err(&output);
    assert!(
        text.contains("rushmem: PE 1 exited with code 3; last line on standard error: something went wrong"),
        "{text}"
    );
    assert!(text.contains("rushmem: PEs 0, 2 reported that PE 1 was lost\n"), "{text}");
    assert!(out(&output).contains("[0] notified: PE 1 was lost"), "{}", out(&output));
}

#[test]
fn reports_a_killed_pe_within_a_second() {
    let begin = Instant::now();
    let output = sh("3", "[ $RUSHMEM_PE = 2 ] && kill -9 $$; exec sleep 60");
    assert_eq!(code(&output), Some(128 + 9));
    assert!(
        err(&output).contains("rushmem: PE 2 was killed by SIGKILL; ending the other 2 PEs"),
        "{}",
        err(&output)
    );
    assert!(begin.elapsed() < Duration::from_secs(4));

    let mut ready = start(3, rushmem().args(["run", "-n", "3", "pe", "hang"]));
    let victim = ready.lines.iter().find(|line| line.starts_with("[1] ready")).unwrap();
    let begin = Instant::now();
    kill(victim.rsplit(' ').next().unwrap(), "KILL");
    let mut lines = BufReader::new(ready.launcher.stderr.take().unwrap()).lines();
    let line = lines.find(|line| line.as_ref().unwrap().starts_with("rushmem:")).unwrap().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    assert!(line.contains("PE 1 was killed by SIGKILL"), "{line}");
    assert_eq!(code(&ready.end()), Some(128 + 9));
}

#[test]
fn pes_that_ignore_sigterm_are_killed_with_their_children() {
    let script = "trap '' TERM; sleep 60 & echo ready $!; echo ready $$; \
                  if [ $RUSHMEM_PE = 0 ]; then exit 4; fi; while :; do sleep 60; done";
    let ready = start(4, rushmem().args(["run", "-n", "2", "sh", "-c", script]));
    let pids = ready.pids();
    let begin = Instant::now();
    let output = ready.end();
    assert_eq!(code(&output), Some(4));
    assert!(err(&output).contains("PE 1 did not exit after SIGTERM; killed"), "{}", err(&output));
    assert!(begin.elapsed() < Duration::from_secs(6), "{:?}", begin.elapsed());
    for pid in pids {
        assert!(!lives(&pid), "process {pid} was left behind");
    }
}

#[test]
fn signals_are_forwarded_and_the_second_kills() {
    for (name, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
        let script =
            format!("trap 'echo got {name}; exit 0' {name}; echo ready; while :; do sleep 0.01; done");
        let ready = start(2, with_default_signals().args(["run", "-n", "2", "sh", "-c", &script]));
        signal(&ready.launcher, name);
        let output = ready.end();
        assert_eq!(sorted(&out(&output)), [format!("[0] got {name}"), format!("[1] got {name}")]);
        assert_eq!(code(&output), Some(0), "{}", err(&output));

        let sleepers = ["run", "-n", "2", "sh", "-c", "echo ready; exec sleep 60"];
        let ready = start(2, with_default_signals().args(sleepers));
        signal(&ready.launcher, name);
        assert_eq!(code(&ready.end()), Some(128 + number));
    }
    let script = "trap '' INT; echo ready $$; while :; do sleep 0.01; done";
    let ready = start(2, rushmem().args(["run", "-n", "2", "sh", "-c", script]));
    let pids = ready.pids();
    signal(&ready.launcher, "INT");
    std::thread::sleep(Duration::from_millis(200));
    assert!(pids.iter().all(|pid| lives(pid)));
    signal(&ready.launcher, "INT");
    let output = ready.end();
    assert_eq!(code(&output), Some(128 + 9), "{}", err(&output));
    assert!(pids.iter().all(|pid| !lives(pid)));
}

#[test]
fn pes_die_with_their_launcher() {
    let ready = start(3, rushmem().args(["run", "-n", "3", "pe", "hang"]));
    let pids = ready.pids();
    assert!(pids.len() == 3 && pids.iter().all(|pid| lives(pid)));
    signal(&ready.launcher, "KILL");
    ready.end();
    wait_until("PEs outlive their launcher", || pids.iter().all(|pid| !lives(pid)));
}

#[test]
fn abort_ends_the_job_with_the_exit_code_of_the_pe() {
    let output = run(&["-n", "3", "pe", "abort"]);
    assert_eq!(code(&output), Some(6));
    assert!(err(&output).contains("rushmem: PE 1 was lost: aborted: out of cheese"), "{}", err(&output));
}

#[test]
fn cause_printed_by_the_pe_is_not_repeated() {
    let output = run(&["-n", "3", "pe", "report"]);
    assert_eq!(code(&output), Some(6));
    let text = err(&output);
    assert!(text.contains("error: out of cheese") && text.contains("rushmem: PE 1 failed"), "{text}");
    assert!(!text.lines().any(|line| line.starts_with("rushmem:") && line.contains("cheese")), "{text}");
}

#[test]
fn leaving_without_finish_is_a_failure() {
    let output = run(&["-n", "2", "pe", "leave"]);
    assert_eq!(code(&output), Some(1));
    let words = "rushmem: PE 1 was lost: exited with code 0, before it had finished the job";
    assert!(err(&output).contains(words), "{}", err(&output));
}

#[test]
fn pe_that_exits_before_joining_terminates_the_others() {
    let begin = Instant::now();
    let output = run(&["-n", "2", "pe", "early"]);
    assert_eq!(code(&output), Some(7));
    let text = err(&output);
    assert!(text.contains("rushmem: PE 1 exited with code 7"), "{text}");
    assert!(text.contains("rushmem: PE 0 reported that PE 1 was lost before it joined the job\n"), "{text}");
    assert!(begin.elapsed() < TEST_TIMEOUT);
}

#[test]
fn reports_a_pe_that_never_joins() {
    let output = run(&["-n", "3", "--set", "bootstrap_timeout=2s", "pe", "absent"]);
    assert_eq!(code(&output), Some(5));
    let words = "PE 1 of 3 did not arrive at joining the job within";
    assert!(err(&output).contains(words), "{}", err(&output));
}

#[test]
fn rejects_two_builds_and_wrong_tokens() {
    let output = run(&["-n", "2", "pe", "build"]);
    assert_eq!(code(&output), Some(5));
    assert!(err(&output).contains("two different builds in one job"), "{}", err(&output));

    let script = "[ $RUSHMEM_PE = 1 ] && export RUSHMEM_TOKEN=$(printf %064d 0); exec \"$0\" join";
    let output = run(&["-n", "2", "sh", "-c", script, pe().to_str().unwrap()]);
    assert_eq!(code(&output), Some(5));
    assert!(err(&output).contains("[1] error: the job's launcher at 127.0.0.1:"), "{}", err(&output));
    assert!(err(&output).contains("its token is not this job's"), "{}", err(&output));
}

#[test]
fn threads_are_one_process() {
    let output = run(&["-n", "3", "--threads", "pe"]);
    assert_eq!(code(&output), Some(0), "{}", err(&output));
    assert!(out(&output).contains("PE 2 of 3, with 0 1 2\n"), "{}", out(&output));
    assert!(!out(&output).contains("[0]"));
    assert_eq!(code(&run(&["-n", "2", "--threads", "sh", "-c", "exit 9"])), Some(9));
}

#[test]
fn timeout_ends_the_job() {
    let begin = Instant::now();
    let output = run(&["-n", "2", "--timeout", "200ms", "sleep", "60"]);
    assert_eq!(code(&output), Some(124));
    assert!(err(&output).contains("its --timeout of 200ms; ending PEs 0-1"), "{}", err(&output));
    assert!(begin.elapsed() < TEST_TIMEOUT);
}

#[test]
fn closed_output_ends_the_job() {
    let mut launcher = rushmem()
        .args(["run", "-n", "2", "yes"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(launcher.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.ends_with("] y\n"));
    assert_eq!(launcher.wait().unwrap().code(), Some(128 + 13));
}

/// Opens a pseudoterminal. Returns the controlling side, and the side for a program.
fn terminal() -> (OwnedFd, OwnedFd) {
    let (mut ours, mut theirs) = (0, 0);
    let null = std::ptr::null_mut();
    // SAFETY: the two out pointers are to live local variables; name, settings and size may be null.
    let done = unsafe { libc::openpty(&mut ours, &mut theirs, null, null.cast(), null.cast()) };
    assert_eq!(done, 0, "openpty: {}", std::io::Error::last_os_error());
    // SAFETY: openpty has just opened both, and nobody else owns them.
    unsafe { (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

#[test]
fn pe_0_draws_its_progress_bar_on_a_terminal() {
    let script = "printf '\\r10%%' >&2; printf '\\r90%%' >&2; echo $RUSHMEM_PE $RUSHMEM_PROGRESS";
    let (ours, theirs) = terminal();
    let mut command = rushmem();
    command.args(["run", "-n", "2", "sh", "-c", script]).stderr(theirs).stdout(Stdio::piped());
    let launcher = command.spawn().unwrap();
    // The program's side is open in this process, too, until `command` is dropped. Only then does reading fail at the
    // end.
    drop(command);
    let output = launcher.wait_with_output().unwrap();
    assert_eq!(sorted(&out(&output)), ["[0] 0 always", "[1] 1"]);
    let mut shown = Vec::new();
    let _end = std::io::Read::read_to_end(&mut fs::File::from(ours), &mut shown);
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.contains("\r\x1b[K[0] 90%"), "{shown:?}");
    assert!(shown.contains("[1] 90%") && !shown.contains("[1] 10%\r"), "{shown:?}");
}

#[test]
fn unusable_programs_are_usage_errors() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tool");
    fs::write(&file, "#!/bin/sh\n").unwrap();
    let file = file.to_str().unwrap();
    for (args, words) in [
        (&["-n", "2", "no-such-program"][..], "cannot find the program `no-such-program`; looked in "),
        (&["-n", "2", file], "not executable"),
        (&["-n", "0", "sh"], "0 is not in 1.."),
        (&["-n", "2", "--colour", "sh"], "--colour"),
        (&["-n", "2", "--set", "heapbytes=1g", "sh"], "`heap_bytes`"),
    ] {
        let output = run(args);
        assert_eq!(code(&output), Some(2), "{args:?}: {}", err(&output));
        assert!(err(&output).contains(words), "{args:?}: {}", err(&output));
    }
    // Executable, but with a missing interpreter.
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(file, "#!/no/such/interpreter\n").unwrap();
    let output = run(&["-n", "2", file]);
    assert_eq!(code(&output), Some(3));
    assert!(err(&output).contains("rushmem: cannot start"), "{}", err(&output));
}

#[test]
fn unknown_variables_are_errors_before_anything_starts() {
    let output = rushmem().args(["run", "-n", "2", "sh"]).env("RUSHMEM_HEAPBYTES", "1g").output().unwrap();
    assert_eq!(code(&output), Some(2));
    let words = "unknown environment variable RUSHMEM_HEAPBYTES; did you mean `RUSHMEM_HEAP_BYTES`?";
    assert!(err(&output).contains(words), "{}", err(&output));
    let output = rushmem().args(["run", "-n", "2", "sh"]).env("RUSHMEM_PES", "2").output().unwrap();
    assert_eq!(code(&output), Some(2));
    assert!(err(&output).contains("--threads"), "{}", err(&output));
}

#[test]
fn output_without_labels_into_a_pipe_keeps_every_byte() {
    let output = run(&["-n", "1", "--no-label", "printf", "a\\r\\nb\\rc\\n\\377\\000 no end"]);
    assert_eq!(output.stdout, b"a\r\nb\rc\n\xff\0 no end", "{}", err(&output));
}

#[test]
fn unwritable_timeline_is_rejected_before_the_program_starts() {
    let output = rushmem()
        .args(["run", "-n", "1", "echo", "started"])
        .env("RUSHMEM_TRACE", "/no/such/t.json")
        .output()
        .unwrap();
    assert_eq!((code(&output), out(&output)), (Some(3), String::new()));
    assert!(err(&output).contains("cannot write the timeline /no/such/t.json: "), "{}", err(&output));
}

#[test]
fn program_next_to_the_command_precedes_one_on_path() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("pe");
    fs::write(&program, "#!/bin/sh\nexit 9\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let output = rushmem().args(["run", "-n", "1", "pe"]).env("PATH", path).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", err(&output));
    let told = format!("rushmem: runs {}; {} has the same name", pe().display(), program.display());
    assert!(err(&output).contains(&told), "{}", err(&output));
}

/// Returns the launcher of one of several nodes, all on this machine. Each test needs another `n`.
fn node(n: &str, nodes: u32, node: u32, rest: &[&str]) -> Command {
    // No other program listens at such an address, so the port is free.
    let rendezvous = format!("127.77.{}.{n}:7000", std::process::id() % 250);
    let mut command = rushmem();
    command.args(["run", "-n", n, "--nodes", &nodes.to_string(), "--node", &node.to_string()]);
    command.args(["--rendezvous", &rendezvous]).args(rest);
    command.env("RUSHMEM_TOKEN", "5a".repeat(32));
    command
}

/// Runs the launchers of a job of several nodes.
fn nodes(n: &str, nodes: u32, rest: &[&str]) -> Vec<Output> {
    let start = |index| {
        let mut command = node(n, nodes, index, rest);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let launchers: Vec<_> = (0..nodes).rev().map(start).collect();
    launchers.into_iter().rev().map(|launcher| launcher.wait_with_output().unwrap()).collect()
}

#[test]
fn nodes_form_one_job() {
    let outputs = nodes("5", 2, &["pe"]);
    for (output, pes) in outputs.iter().zip([0..2, 2..5]) {
        assert_eq!(code(output), Some(0), "{}", err(output));
        let mut expected: Vec<_> =
            pes.clone().map(|pe| format!("[{pe}] PE {pe} of 5, with 0 1 2 3 4")).collect();
        expected.extend(pes.map(|pe| format!("[{pe}] done")));
        expected.sort();
        let text = out(output);
        assert_eq!(
            sorted(&text).into_iter().filter(|line| !line.contains("ready")).collect::<Vec<_>>(),
            expected
        );
    }
}

#[test]
fn death_on_one_node_terminates_the_others() {
    let begin = Instant::now();
    // PE 3, on node 1, fails without notifying the bootstrap. Without a report, node 0 would keep sleeping.
    let script = "if [ $RUSHMEM_PE = 3 ]; then exec \"$0\" exit 3; elif [ $RUSHMEM_PE = 0 ]; then exec \"$0\"; fi; \
                  exec \"$0\" hang $RUSHMEM_PE";
    let outputs = nodes("4", 2, &["sh", "-c", script, pe().to_str().unwrap()]);
    assert!(begin.elapsed() < TEST_TIMEOUT, "{outputs:?}");
    assert_eq!(code(&outputs[1]), Some(3));
    assert!(err(&outputs[1]).contains("rushmem: PE 3 exited with code 3"), "{}", err(&outputs[1]));
    assert_eq!(code(&outputs[0]), Some(1));
    let words = "rushmem: PE 3 was lost: exited with code 3, before it had finished the job";
    assert!(err(&outputs[0]).contains(words), "{}", err(&outputs[0]));
}

#[test]
fn rejects_nodes_without_token_or_free_address() {
    let output = run(&["-n", "4", "--nodes", "2", "--node", "0", "--rendezvous", "127.0.0.1:1", "sh"]);
    assert_eq!(code(&output), Some(2));
    assert!(err(&output).contains("RUSHMEM_TOKEN or a --token-file"), "{}", err(&output));

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = rushmem()
        .args(["run", "-n", "4", "--nodes", "2", "--node", "0", "--rendezvous", &address, "sh"])
        .env("RUSHMEM_TOKEN", "5a".repeat(32))
        .output()
        .unwrap();
    assert_eq!(code(&output), Some(3));
    assert!(err(&output).contains(&format!("cannot listen on {address}")), "{}", err(&output));
}

#[test]
fn pes_meet_by_ipv6_on_a_machine_without_ipv4() {
    let test = "pes_meet_by_ipv6_on_a_machine_without_ipv4";
    let namespace = |program: &[&str]| {
        let script = "ip link set lo up && ip address del 127.0.0.1/8 dev lo && exec \"$@\"";
        let mut unshare = without_settings(Command::new("unshare"));
        unshare.args(["--map-root-user", "--net", "sh", "-c", script, "sh"]).args(program).output()
    };
    if !namespace(&["ip", "-6", "address", "show", "dev", "lo"]).is_ok_and(|o| out(&o).contains("::1/128")) {
        assert!(
            std::env::var_os("CI_REQUIRE_ALL").is_none(),
            "network namespaces with IPv6 are required here"
        );
        println!("SKIPPED {test}: no network namespace with IPv6 can be made (unshare, ip)");
        return;
    }
    let (rushmem, pe) = (env!("CARGO_BIN_EXE_rushmem"), pe());
    let output = namespace(&[rushmem, "run", "-n", "2", "sh", "-c", "echo $RUSHMEM_SERVER"]).unwrap();
    assert!(out(&output).lines().all(|line| line.contains("[::1]:")), "{output:?}");
    let output = namespace(&[rushmem, "run", "-n", "2", pe.to_str().unwrap()]).unwrap();
    assert_eq!(code(&output), Some(0), "{output:?}");
}

#[test]
fn rejects_more_pes_than_the_machine_can_start() {
    let rushmem = env!("CARGO_BIN_EXE_rushmem");
    let script = format!("ulimit -n 256; exec {rushmem} run -n 100 true");
    let output = without_settings(Command::new("sh")).args(["-c", &script]).output().unwrap();
    assert_eq!(code(&output), Some(3), "{}", err(&output));
    let message = err(&output);
    assert!(
        message.contains("cannot start 100 PEs on this node: they need at least 532 open files"),
        "{message}"
    );
    assert!(message.contains("`ulimit -Hn` allows 256"), "{message}");
}

#[test]
fn failing_pe_stops_the_start_of_the_others() {
    let output = sh("300", "exit 7");
    assert_eq!(code(&output), Some(7), "{}", err(&output));
    assert!(err(&output).contains(" of 300 PEs were not started"), "{}", err(&output));
}

#[test]
fn signal_stops_the_start_of_pes() {
    let mut command = with_default_signals();
    command.args(["run", "-n", "300", "sh", "-c", "echo ready $$; exec sleep 60"]);
    let launcher = start(1, &mut command);
    signal(&launcher.launcher, "TERM");
    let output = launcher.end();
    assert_eq!(code(&output), Some(128 + libc::SIGTERM), "{}", err(&output));
    assert!(err(&output).contains(" of 300 PEs were not started"), "{}", err(&output));
}

/// Starts a job that survives losses, kills PEs once all have formed the first epoch, and returns the rest of its
/// output.
fn kill_in_epochs(victims: &[u32], args: &[&str]) -> Output {
    let ready = start(4, rushmem().args(["run", "-n", "4", "pe", "epochs"]).args(args));
    let pids: Vec<String> = victims.iter().map(|pe| ready.pid(*pe)).collect();
    kill(&pids.join(" "), "KILL");
    ready.end()
}

#[test]
fn stopped_pe_of_a_job_in_epochs_is_killed() {
    let set = ["--set", "heartbeat=1s"];
    let ready =
        start(4, rushmem().args(["run", "-n", "4"]).args(set).args(["pe", "epochs", "wait", "9", "3"]));
    let stopped = ready.pid(1);
    kill(&stopped, "STOP");
    let output = ready.end();
    assert_eq!(code(&output), Some(0), "{}", err(&output));
    assert!(!lives(&stopped), "process {stopped} was left behind");
    let text = out(&output);
    assert_eq!(text.matches("members [0, 2, 3]\n").count(), 3, "{text}");
    let told = "rushmem: PE 1 was lost: no sign of life for 1s; the job goes on without it\n";
    assert_eq!(err(&output), told);
}

#[test]
fn process_that_goes_on_after_it_has_left_a_job_in_epochs_is_killed() {
    let begin = Instant::now();
    let ready = start(4, rushmem().args(["run", "-n", "4", "pe", "epochs", "linger", "1", "3"]));
    let lingers = ready.pid(1);
    let output = ready.end();
    assert!(begin.elapsed() < TEST_TIMEOUT);
    assert_eq!(code(&output), Some(0), "{}", err(&output));
    assert!(!lives(&lingers), "process {lingers} was left behind");
    assert_eq!(out(&output).matches("members [0, 2, 3]\n").count(), 3, "{}", out(&output));
}

#[test]
fn job_in_epochs_goes_on_without_killed_pes() {
    for (victims, left) in [(&[3][..], "[0, 1, 2]"), (&[0], "[1, 2, 3]"), (&[1, 2], "[0, 3]")] {
        let n_left = (4 - victims.len()).to_string();
        let output = kill_in_epochs(victims, &["wait", "9", &n_left]);
        assert_eq!(code(&output), Some(0), "{}", err(&output));
        let text = out(&output);
        for pe in (0..4).filter(|pe| !victims.contains(pe)) {
            assert!(text.contains(&format!("[{pe}] members {left}\n")), "{text}");
            assert!(text.contains(&format!("[{pe}] done\n")), "{text}");
        }
        let told = |pe| format!("rushmem: PE {pe} was lost: killed by SIGKILL; the job goes on without it");
        let told: Vec<String> = victims.iter().map(told).collect();
        assert_eq!(sorted(&err(&output)), told);
    }
}

#[test]
fn pe_may_be_killed_while_others_form_an_epoch() {
    let output = kill_in_epochs(&[1], &["form", "1", "3"]);
    assert_eq!(code(&output), Some(0), "{}", err(&output));
    let text = out(&output);
    assert_eq!(text.lines().filter(|line| line.ends_with("members [0, 2, 3]")).count(), 3, "{text}");
}

#[test]
fn failed_pe_of_a_job_in_epochs_does_not_fail_the_job() {
    let told = "rushmem: PE 1 was lost: exited with code 3; last line on standard error: something went wrong; the job goes \
                on without it\n";
    for (action, told) in [
        ("exit", told),
        ("abort", "rushmem: PE 1 was lost: aborted: out of cheese; the job goes on without it\n"),
        ("report", "rushmem: PE 1 failed; the job goes on without it\n"),
        (
            "leave",
            "rushmem: PE 1 was lost: exited with code 0, before it had finished the job; the job goes on without it\n",
        ),
    ] {
        let output = run(&["-n", "4", "pe", "epochs", action, "1", "3"]);
        assert_eq!(code(&output), Some(0), "{action}: {}", err(&output));
        assert!(err(&output).contains(told), "{action}: {}", err(&output));
        assert_eq!(out(&output).matches("done").count(), 3, "{action}: {}", out(&output));
    }
}

#[test]
fn job_fails_once_all_its_pes_are_lost() {
    let output = kill_in_epochs(&[0, 1, 2, 3], &["wait", "9", "0"]);
    assert_eq!(code(&output), Some(128 + 9), "{}", err(&output));
    let text = err(&output);
    assert_eq!(text.matches("; no PE is left\n").count(), 1, "{text}");
    assert_eq!(text.matches("; the job goes on without it\n").count(), 3, "{text}");
}

#[test]
fn loss_before_the_first_epoch_fails_the_job() {
    let output = run(&["-n", "4", "pe", "epochs", "early", "1", "3"]);
    assert_eq!(code(&output), Some(7), "{}", err(&output));
}

#[test]
fn job_in_epochs_goes_on_on_other_nodes() {
    let outputs = nodes("6", 2, &["pe", "epochs", "exit", "5", "5"]);
    let told = [
        "PE 5 was lost: exited with code 3, before it had finished the job; the job goes on",
        "PE 5 was lost: exited with code 3; last",
    ];
    for (output, told) in outputs.iter().zip(told) {
        assert_eq!(code(output), Some(0), "{}", err(output));
        assert!(err(output).contains(told), "{}", err(output));
    }
}

#[test]
fn job_in_epochs_goes_on_without_the_launcher_of_a_node() {
    let rest = ["pe", "epochs", "wait", "9", "4"];
    let mut other = node("8", 2, 1, &rest).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let ready = start(4, &mut node("8", 2, 0, &rest));
    signal(&other, "KILL");
    other.wait().unwrap();
    let output = ready.end();
    assert_eq!(code(&output), Some(0), "{}", err(&output));
    assert_eq!(out(&output).matches("members [0, 1, 2, 3]\n").count(), 4, "{}", out(&output));
    assert_eq!(err(&output).matches("; the job goes on without it\n").count(), 4, "{}", err(&output));
}
