//! Tests of `rushmem run --hosts` with a stand-in for ssh, which runs the command on this machine.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use common::rushmem;
use tempfile::TempDir;

/// Runs the launcher with `agent`, a shell script, in place of ssh. It finds the host in `$1` and the command in `$2`.
fn run(agent: &str, args: &[&str]) -> Output {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("agent");
    fs::write(&path, format!("#!/bin/sh\n{agent}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    // The stand-in is not on the network, wherever this machine is.
    let mut command = rushmem();
    command.env("RUSHMEM_BOOTSTRAP_INTERFACE", "lo").env("RUSHMEM_BOOTSTRAP_TIMEOUT", "10s");
    command.arg("run").arg("--ssh").arg(path).args(args).output().unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn sorted(output: &Output) -> Vec<String> {
    let mut lines: Vec<_> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn output_of_other_hosts_is_labelled_like_that_of_this_one() {
    let agent = "echo Welcome to $1; exec sh -c \"$2\"";
    let script = "echo PE $RUSHMEM_LOCAL_PE of $RUSHMEM_LOCAL_PES on node $RUSHMEM_NODE of $RUSHMEM_NODES";
    let args = ["-n", "4", "--hosts", "other:1,localhost:2,third:5", "sh", "-c", script];
    let output = run(agent, &args);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let expected = [
        "[0] PE 0 of 1 on node 0 of 3",
        "[1] PE 0 of 2 on node 1 of 3",
        "[2] PE 1 of 2 on node 1 of 3",
        "[3] PE 0 of 1 on node 2 of 3",
    ];
    assert_eq!(sorted(&output), expected);
}

#[test]
fn raw_output_of_other_hosts_keeps_every_byte() {
    let bytes = "a\\r\\nb\\rc\\n\\0\\377";
    let args = ["-n", "1", "--hosts", "other", "--no-label", "printf", bytes];
    let output = run("exec sh -c \"$2\"", &args);
    assert_eq!(output.stdout, b"a\r\nb\rc\n\0\xff", "{}", err(&output));
}

#[test]
fn pes_of_all_hosts_join_one_job() {
    let output = run("exec sh -c \"$2\"", &["-n", "4", "--hosts", "other:2,localhost:2", "pe", "exit", "0"]);
    assert_eq!(output.status.code(), Some(3), "{}", err(&output));
    let told = "rushmem: PE 0 exited with code 3; last line on standard error: something went wrong; ending";
    assert!(err(&output).contains(told), "{}", err(&output));
    let joined = sorted(&output).iter().filter(|line| line.ends_with("of 4, with 0 1 2 3")).count();
    assert_eq!(joined, 4, "{:?}", sorted(&output));
}

#[test]
fn failures_of_a_host_are_reported_once() {
    let other_build = "echo rushmem agent 0.0.0 protocol 0; cat > /dev/null";
    let vanished = "exec 3<&0; sh -c \"exec $2\" <&3 & sleep 1; kill -9 $!; echo The cable was cut. >&2";
    for (agent, program, what) in [
        ("echo No route. >&2; exit 255", "pe", "did not start its PEs: No route"),
        ("exit 7", "pe", "did not start its PEs: "),
        ("exec sleep 60", "pe", "was lost: it did not start its PEs within 2s"),
        (other_build, "pe", "did not start its PEs: it has another build: `rushmem agent 0.0.0 protocol 0`"),
        (
            "cd /; exec sh -c \"$2 x\"",
            "./no-such-program",
            "did not start its PEs: cannot run `./no-such-program`",
        ),
        (vanished, "cat", "was lost: The cable was cut"),
    ] {
        let set = ["--set", "bootstrap_timeout=2s"];
        let args = [&["-n", "2", "--hosts", "other:2"], &set[..], &[program, "absent", "9"]].concat();
        let args: Vec<&str> = if program == "cat" { [&args[..6], &["sleep", "60"]].concat() } else { args };
        let output = run(agent, &args);
        assert_eq!(output.status.code(), Some(3), "{agent}: {}", err(&output));
        let lines = err(&output);
        let lines: Vec<&str> = lines.lines().filter(|line| line.contains("host other")).collect();
        assert!(lines.len() == 1 && lines[0].contains(what), "{agent}: {}", err(&output));
    }
}

/// An agent that is killed once both of its PEs are ready.
const VANISHES: &str = "exec 3<&0
    sh -c \"echo \\$\\$ > $0.pid; exec $2\" <&3 | tee $0.log &
    until [ $(grep -ao 'ready ' $0.log | wc -l) = 2 ]; do sleep 0.05; done
    kill -9 $(cat $0.pid)
    echo The cable was cut. >&2";

#[test]
fn job_in_epochs_goes_on_without_a_host() {
    let hosts = ["-n", "4", "--hosts", "localhost:2,other:2", "pe"];
    let output = run(VANISHES, &[&hosts[..], &["epochs", "wait", "9", "2"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let members = sorted(&output).iter().filter(|line| line.ends_with("members [0, 1]")).count();
    assert_eq!(members, 2, "{:?}", sorted(&output));
    let told = "rushmem: host other was lost: The cable was cut; the job goes on without its PEs\n";
    assert_eq!(err(&output), told);

    let output = run(VANISHES, &[&hosts[..], &["hang", "0"]].concat());
    assert_eq!(output.status.code(), Some(3), "{}", err(&output));
    let told = "rushmem: host other was lost: The cable was cut; ending the other 2 PEs\n";
    assert!(err(&output).starts_with(told), "{}", err(&output));
}
