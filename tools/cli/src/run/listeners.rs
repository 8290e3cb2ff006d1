//! Finds the processes of PEs that handle SIGUSR1.
//!
//! A PE may be a script that has started the program. SIGUSR1 would kill the script, so only processes with a handler
//! get it.

use std::path::Path;

use rushmem_base::{has_signal, stat_field};

/// Index of the process group among the fields of `/proc/PID/stat` that follow the name of the program.
const GROUP: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group(pub(super) u32);

/// Returns the processes of these groups that have a handler for SIGUSR1.
pub(super) fn listeners(groups: &[Group]) -> Vec<u32> {
    listeners_in(Path::new("/proc"), groups)
}

fn listeners_in(proc: &Path, groups: &[Group]) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(proc) else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let read = |pid: u32, name: &str| std::fs::read_to_string(proc.join(pid.to_string()).join(name)).ok();
    let is_listener = |&pid: &u32| {
        let group = read(pid, "stat").and_then(|stat| stat_field(&stat, GROUP)?.parse().ok().map(Group));
        let catches = |status: String| has_signal(&status, "SigCgt", libc::SIGUSR1);
        group.is_some_and(|group| groups.contains(&group))
            && read(pid, "status").and_then(catches).unwrap_or(false)
    };
    pids.filter(is_listener).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_processes_with_a_handler_get_the_signal() {
        let proc = tempfile::tempdir().unwrap();
        for (pid, group, caught) in
            [(7, 7, "0"), (8, 7, "200"), (9, 9, "200"), (10, 7, "fdff"), (11, 12, "a00")]
        {
            let folder = proc.path().join(pid.to_string());
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("stat"), format!("{pid} (a) b) S 1 {group} 1 0")).unwrap();
            std::fs::write(folder.join("status"), format!("Name:\ta\nSigCgt:\t{caught:0>16}\n")).unwrap();
        }
        std::fs::create_dir(proc.path().join("self")).unwrap();
        let mut found = listeners_in(proc.path(), &[Group(7), Group(12)]);
        found.sort_unstable();
        assert_eq!(found, [8, 11]);
    }
}
