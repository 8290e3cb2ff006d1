//! Kills processes of a failed job that are stopped by a signal. They react to no signal but SIGKILL, so their launcher
//! would wait for them forever.
#![allow(unsafe_code, reason = "sends a signal")]

use std::path::PathBuf;

use crate::user::uid;

/// Kills the process `pid` if it is stopped by a signal, runs the same program as this process, and belongs to the same
/// user. Returns whether it was killed.
pub(crate) fn kill_if_stopped(pid: u32) -> bool {
    let Ok(target) = libc::pid_t::try_from(pid) else { return false };
    // Capital T: a process that is stopped by a debugger has state `t`, and is left alone.
    let is_ours = state(pid) == Some('T') && user(pid) == Some(uid());
    let program = |pid: &str| -> Option<PathBuf> { std::fs::read_link(format!("/proc/{pid}/exe")).ok() };
    if !is_ours || target <= 1 || program(&pid.to_string()) != program("self") {
        return false;
    }
    // SAFETY: the call takes two numbers. A race with reuse of the PID could only hit another process of this user.
    unsafe { libc::kill(target, libc::SIGKILL) == 0 }
}

/// Returns the state of a process as a letter, as in `/proc`.
fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

fn user(pid: u32) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    Some(std::fs::metadata(format!("/proc/{pid}")).ok()?.uid())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    /// Environment variable with which the parent test makes the test `sleeps` sleep in a child process.
    const SLEEPS: &str = "STOPPED_TEST_SLEEPS";

    fn stop(pid: u32) {
        assert!(Command::new("kill").args(["-STOP", &pid.to_string()]).status().unwrap().success());
        let begin = Instant::now();
        while state(pid) != Some('T') {
            assert!(begin.elapsed() < Duration::from_secs(20));
            std::thread::yield_now();
        }
    }

    #[test]
    fn only_stopped_processes_of_the_same_program_are_killed() {
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        stop(other.id());
        assert!(!kill_if_stopped(other.id()), "another program");
        other.kill().unwrap();
        other.wait().unwrap();

        let mut same = Command::new(std::env::current_exe().unwrap());
        same.args(["--ignored", "--exact", "stopped::tests::sleeps"]).env(SLEEPS, "1").stdout(Stdio::null());
        let mut same = same.spawn().unwrap();
        assert!(!kill_if_stopped(same.id()), "it runs");
        stop(same.id());
        assert!(kill_if_stopped(same.id()));
        assert_eq!(same.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    #[test]
    #[ignore = "a process for the test above"]
    fn sleeps() {
        if std::env::var_os(SLEEPS).is_some() {
            std::thread::sleep(Duration::from_secs(60));
        }
    }
}
