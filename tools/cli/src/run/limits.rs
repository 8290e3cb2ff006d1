//! Checks how many PEs a launcher can start within the limits of the machine.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::sys;
use crate::error::Error;

/// File descriptors that the launcher needs for itself.
const OWN_FILES: u64 = 32;

/// File descriptors per PE of this node: one pipe for output and one for errors.
const FILES: u64 = 2;

/// File descriptors per PE of the whole job, in the launcher that runs the server: its handles of the connection.
const SERVER_FILES: u64 = 3;

/// Processes and threads per PE of this node: the process, and the threads that wait for it and read its output.
const TASKS: u64 = 4;

/// Threads per PE of the whole job, in the launcher that runs the server.
const SERVER_TASKS: u64 = 2;

/// Minimum memory per PE process, including the launcher's threads that serve it, in bytes.
const MEMORY: u64 = 2 << 20;

/// A limit of the machine, and how much of it the job needs.
#[derive(Debug)]
pub(super) struct Limit {
    what: &'static str,
    place: String,
    value: u64,
    needed: u64,
}

/// Raises the soft limit of open files to the hard limit. Returns the previous limits.
pub(super) fn raise_open_files() -> Result<libc::rlimit, Error> {
    sys::raise_open_files()
        .map_err(|error| Error::Internal(format!("cannot raise the limit of open files: {error}")))
}

/// Rejects a number of PEs that this machine cannot start. `count` is the number of PEs on this node. If this launcher
/// runs the job's server, `served` is the number of PEs in the job, otherwise 0.
pub(super) fn check(count: u32, served: u32) -> Result<(), Error> {
    match limits(count.into(), served.into()).into_iter().find(|limit| limit.needed > limit.value) {
        None => Ok(()),
        Some(Limit { what, place, value, needed }) => Err(Error::Environment(format!(
            "cannot start {count} PEs on this node: they need at least {needed} {what}, and {place} allows {value}; \
             lower -n, raise the limit, use --nodes, or run PEs as threads with --threads"
        ))),
    }
}

fn limits(count: u64, served: u64) -> Vec<Limit> {
    let mut limits = Vec::new();
    let mut add = |what, needed, found: Option<(u64, &str)>| {
        limits.extend(found.map(|(value, place)| Limit { what, place: place.into(), value, needed }));
    };
    let text = |path: &str| fs::read_to_string(path).ok();
    let number = |path: &'static str| Some((text(path)?.trim().parse().ok()?, path));
    let own = text("/proc/self/limits").unwrap_or_default();

    let files = OWN_FILES + FILES * count + SERVER_FILES * served;
    add("open files", files, hard_limit(&own, "Max open files").map(|value| (value, "`ulimit -Hn`")));
    let tasks = TASKS * count + SERVER_TASKS * served;
    let what = "processes and threads";
    // The limit per user does not apply to root. It includes what the user is already running.
    if let Some(user) = fs::metadata("/proc/self").ok().map(|own| own.uid()).filter(|&user| user != 0) {
        let limit = soft_limit(&own, "Max processes").map(|value| (value, "`ulimit -u`"));
        add("processes and threads, with those of this user now", tasks + tasks_of(user), limit);
    }
    add(what, tasks, number("/proc/sys/kernel/pid_max"));
    add(what, tasks, number("/proc/sys/kernel/threads-max"));
    let groups = text("/proc/self/cgroup").unwrap_or_default();
    let group = groups.lines().filter_map(pids_file).find_map(|path| text(&path)?.trim().parse().ok());
    add(what, tasks, group.map(|value| (value, "this control group (pids.max)")));
    let available = text("/proc/meminfo").and_then(|text| rushmem::inspect::available_memory(&text));
    add("bytes of memory", MEMORY * count, available.map(|value| (value, "this machine's free memory")));
    limits
}

/// Returns the number of threads of a user's processes.
fn tasks_of(user: u32) -> u64 {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let own = processes.filter(|process| process.metadata().is_ok_and(|meta| meta.uid() == user));
    own.filter_map(|process| Some(fs::read_dir(process.path().join("task")).ok()?.count() as u64)).sum()
}

/// Returns the file with the process limit, given a line of `/proc/self/cgroup`.
fn pids_file(line: &str) -> Option<String> {
    let (_, rest) = line.split_once(':')?;
    match rest.split_once(':')? {
        ("", path) => Some(format!("/sys/fs/cgroup{path}/pids.max")),
        (controllers, path) if controllers.split(',').any(|one| one == "pids") => {
            Some(format!("/sys/fs/cgroup/pids{path}/pids.max"))
        }
        _ => None,
    }
}

fn soft_limit(limits: &str, name: &str) -> Option<u64> {
    fields(limits, name)?.next()?.parse().ok()
}

fn hard_limit(limits: &str, name: &str) -> Option<u64> {
    fields(limits, name)?.nth(1)?.parse().ok()
}

/// Splits the columns that follow the name of a limit in `/proc/self/limits`.
fn fields<'a>(limits: &'a str, name: &str) -> Option<std::str::SplitWhitespace<'a>> {
    limits.lines().find_map(|line| line.strip_prefix(name)).map(str::split_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_numbers_of_pes_with_the_reason() {
        check(2, 2).unwrap();
        let error = check(u32::MAX, u32::MAX).unwrap_err().to_string();
        assert!(
            error.starts_with("cannot start 4294967295 PEs on this node: they need at least "),
            "{error}"
        );
        assert!(error.contains("allows"), "{error}");
    }

    #[test]
    fn counts_the_threads_of_a_user() {
        let user = fs::metadata("/proc/self").unwrap().uid();
        assert!(tasks_of(user) >= 2, "this test has a thread of its own");
        assert_eq!(tasks_of(u32::MAX - 1), 0);
    }

    #[test]
    fn reads_the_limits_of_a_process_and_its_control_group() {
        let text =
            "Limit          Soft Limit  Hard Limit  Units\nMax processes  96365  unlimited  processes\n";
        assert_eq!(soft_limit(text, "Max processes"), Some(96365));
        assert_eq!(hard_limit(text, "Max processes"), None);
        assert_eq!(soft_limit(text, "Max open files"), None);
        assert_eq!(pids_file("0::/user.slice").unwrap(), "/sys/fs/cgroup/user.slice/pids.max");
        assert_eq!(pids_file("8:pids,cpu:/a").unwrap(), "/sys/fs/cgroup/pids/a/pids.max");
        assert_eq!(pids_file("4:memory:/a"), None);
    }
}
