//! Tests jobs that `rushmem run --hosts` starts on another node by ssh, between two network namespaces.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rushmem_tests::launch::{self, Waiting, all, text};
use rushmem_tests::nodes::Nodes;
use rushmem_tests::sshd::Sshd;
use rushmem_tests::{repository, skip};

const PE: &str = env!("CARGO_BIN_EXE_suite_pe");

/// Time limit for a prompt reaction, which even a busy machine meets.
const PROMPT_LIMIT: Duration = Duration::from_secs(40);

/// Two nodes, of which the second one has an ssh server.
struct Pair {
    sshd: Sshd,
    nodes: Nodes,
}

impl Pair {
    fn new(test: &str) -> Option<Pair> {
        let nodes = Nodes::new(test, PE)?;
        match Sshd::new(&nodes) {
            Ok(sshd) => Some(Pair { sshd, nodes }),
            Err(reason) => {
                skip(test, &format!("sshd (Debian: openssh-server): {reason}"));
                None
            }
        }
    }

    /// Returns the command `rushmem run` on the first node, with these arguments and with `options` of ssh.
    fn launcher(&self, options: &str, args: &str) -> Command {
        let ssh = self.sshd.client();
        self.nodes.script(0, &format!("exec rushmem run --ssh '{ssh} {options}' {args}"))
    }

    fn run(&self, options: &str, args: &str) -> Output {
        self.launcher(options, args).output().unwrap()
    }

    /// Starts two PEs on each node, which wait in a kernel.
    fn wait(&self) -> Waiting {
        Waiting::start(self.launcher("", &format!("-n 4 --hosts node0:2,node1:2 {PE} wait")), 4)
    }
}

/// Returns whether a process exists and is not a zombie.
fn lives(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim().starts_with('Z'))
}

fn expect_end(pids: &[String]) {
    let begin = Instant::now();
    while let Some(pid) = pids.iter().find(|pid| lives(pid)) {
        assert!(begin.elapsed() < PROMPT_LIMIT, "the PE with PID {pid} outlives the job");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn kill(signal: &str, pid: &str) {
    assert!(Command::new("kill").args([signal, pid]).stderr(Stdio::null()).status().unwrap().success());
}

/// Returns the parent of a process.
fn parent(pid: &str) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().into()
}

#[test]
fn pes_of_both_nodes_share_a_job() {
    let Some(pair) = Pair::new("pes_of_both_nodes_share_a_job") else { return };
    for hosts in ["node0:2,node1:2", "node1:2,node0:2", "node1:4"] {
        let output = pair.run("", &format!("-n 4 --hosts {hosts} ring"));
        assert!(output.status.success(), "{hosts}: {}", all(&output));
        let expected = launch::ring_lines(4, |pe| format!("[{pe}] "));
        assert_eq!(launch::sorted(&output.stdout), expected, "{hosts}: {}", all(&output));
    }
}

#[test]
fn lost_pes_of_both_nodes_are_replaced() {
    let Some(pair) = Pair::new("lost_pes_of_both_nodes_are_replaced") else { return };
    let options = "--respawn 1000 --set membership=live --set timeout=60s";
    for hosts in ["node0:1,node1:3", "node1:4"] {
        let output = pair.run("", &format!("-n 4 --hosts {hosts} {options} {PE} replace 4"));
        let ends = text(&output.stdout).matches("ends after").count();
        assert!(output.status.success() && ends == 4, "{hosts}: {}", all(&output));
    }
}

#[test]
fn documented_command_starts_a_job_on_two_nodes() {
    let Some(pair) = Pair::new("documented_command_starts_a_job_on_two_nodes") else { return };
    let page = repository::read("docs/rdma.md");
    let below = page.split("**By ssh**").nth(1).and_then(|rest| rest.split("```sh\n").nth(1)).unwrap();
    let command = below.split("```").next().unwrap();
    let ssh = pair.sshd.client().replacen("ssh", "/usr/bin/ssh", 1);
    pair.nodes.install("ssh", &format!("exec {ssh} \"$@\""));
    let output = pair.nodes.script(0, command).output().unwrap();
    assert_eq!(
        launch::sorted(&output.stdout),
        launch::ring_lines(4, |pe| format!("[{pe}] ")),
        "{}",
        all(&output)
    );
}

#[test]
fn settings_and_the_working_directory_are_passed_on() {
    let Some(pair) = Pair::new("settings_and_the_working_directory_are_passed_on") else { return };
    let folder = pair.nodes.folder.path();
    fs::write(folder.join("list"), "node1 slots=1 # one\nnode0:1\n").unwrap();
    pair.nodes.install("show", "echo $(hostname) $(pwd) $RUSHMEM_TIMEOUT $RUSHMEM_TEAMS; exit $RUSHMEM_PE");
    let ssh = pair.sshd.client();
    let run = format!("rushmem run -n 2 --set teams=7 --hostfile {}/list --ssh '{ssh}'", folder.display());
    let script = format!("cd /usr/lib; export RUSHMEM_TIMEOUT=9s; {run} show");
    let output = pair.nodes.script(0, &script).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", all(&output));
    let expected = ["[0] node1 /usr/lib 9s 7", "[1] node0 /usr/lib 9s 7"];
    assert_eq!(launch::sorted(&output.stdout), expected, "{}", all(&output));
}

#[test]
fn no_command_line_shows_the_token() {
    let Some(pair) = Pair::new("no_command_line_shows_the_token") else { return };
    let job = pair.wait();
    let environment = fs::read(format!("/proc/{}/environ", job.pids[3])).unwrap();
    let token = text(&environment);
    let token = token.split('\0').find_map(|line| line.strip_prefix("RUSHMEM_TOKEN=")).unwrap();
    assert_eq!(token.len(), 64);
    let mut seen = 0;
    for process in fs::read_dir("/proc").unwrap().flatten() {
        // Processes may exit in the meantime.
        let Ok(line) = fs::read(process.path().join("cmdline")) else { continue };
        seen += usize::from(text(&line).contains("run-agent"));
        assert!(!text(&line).contains(token), "{}", text(&line));
    }
    assert!(seen >= 2, "ssh and the agent are running");
    kill("-KILL", &job.launcher.id().to_string());
    expect_end(&job.pids);
}

#[test]
fn signals_reach_the_pes_of_both_nodes() {
    let Some(pair) = Pair::new("signals_reach_the_pes_of_both_nodes") else { return };
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let job = pair.wait();
        let pids = job.pids.clone();
        kill(signal, &job.launcher.id().to_string());
        let (output, elapsed) = job.end();
        assert_eq!(output.status.code(), Some(code), "{}", all(&output));
        assert!(elapsed < PROMPT_LIMIT, "{elapsed:?}");
        expect_end(&pids);
    }
}

#[test]
fn exit_of_a_remote_pe_is_the_exit_of_the_job() {
    let Some(pair) = Pair::new("exit_of_a_remote_pe_is_the_exit_of_the_job") else { return };
    let output = pair.run("", &format!("-n 4 --hosts node0:2,node1:2 {PE} exit 3"));
    assert_eq!(output.status.code(), Some(3), "{}", all(&output));
    assert!(text(&output.stderr).contains("PE 3 exited with code 3"), "{}", all(&output));
}

#[test]
fn lost_node_ends_the_job_with_its_name() {
    let Some(pair) = Pair::new("lost_node_ends_the_job_with_its_name") else { return };
    let job = pair.wait();
    let pids = job.pids.clone();
    // The parent of a PE is the agent.
    kill("-KILL", &parent(&pids[2]));
    let (output, elapsed) = job.end();
    assert_eq!(output.status.code(), Some(3), "{}", all(&output));
    assert!(text(&output.stderr).contains("rushmem: host node1 was lost: "), "{}", all(&output));
    assert!(elapsed < PROMPT_LIMIT, "{elapsed:?}");
    expect_end(&pids);
}

#[test]
fn pes_end_with_the_connection_of_their_launcher() {
    let Some(pair) = Pair::new("pes_end_with_the_connection_of_their_launcher") else { return };
    // The launcher dies, or ssh does.
    for of_launcher in [true, false] {
        let job = pair.wait();
        let (launcher, pids) = (job.launcher.id().to_string(), job.pids.clone());
        let ssh = Command::new("pgrep").args(["-P", &launcher, "-x", "ssh"]).output().unwrap();
        let victim = if of_launcher { launcher } else { text(&ssh.stdout).trim().to_owned() };
        kill("-KILL", &victim);
        let (output, _) = job.end();
        assert_eq!(output.status.code(), if of_launcher { None } else { Some(3) }, "{}", all(&output));
        expect_end(&pids);
    }
}

#[test]
fn unreachable_hosts_are_named_with_the_cause() {
    let Some(pair) = Pair::new("unreachable_hosts_are_named_with_the_cause") else { return };
    let strange = format!("-i {} -F none -p 7022", pair.sshd.strange_key().display());
    let known = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o IdentitiesOnly=yes";
    for (options, host, cause) in [
        (format!("{strange} {known}"), "node1", "Permission denied (publickey"),
        ("-p 7023".into(), "node1", "Connection refused"),
        (String::new(), "node9", "Could not resolve hostname node9"),
        ("-o ConnectTimeout=1".into(), "10.83.0.9", "10.83.0.9"),
        ("-o HostKeyAlias=stranger".into(), "node1", "Host key verification failed"),
    ] {
        let output = pair.run(&options, &format!("-n 2 --hosts node0:1,{host}:1 {PE} wait"));
        let told = text(&output.stderr);
        let line = told.lines().find(|line| line.contains(&format!("host {host} did not start its PEs: ")));
        assert_eq!(output.status.code(), Some(3), "{options}: {}", all(&output));
        assert!(line.is_some_and(|line| line.contains(cause)), "{options}: {}", all(&output));
    }
}
