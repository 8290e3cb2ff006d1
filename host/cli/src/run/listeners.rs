//! The processes of PEs that listen for SIGUSR1.
//!
//! A PE may be a script that has started the program. SIGUSR1 would end the script, so only processes with a handler get it.

use std::path::Path;

/// A process group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group(pub(super) u32);

/// Returns the processes of these groups that have a handler of SIGUSR1.
pub(super) fn listeners(groups: &[Group]) -> Vec<u32> {
    listeners_in(Path::new("/proc"), groups)
}

fn listeners_in(proc: &Path, groups: &[Group]) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(proc) else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let read = |pid: u32, name: &str| std::fs::read_to_string(proc.join(pid.to_string()).join(name)).ok();
    let is_listener = |&pid: &u32| {
        let group = read(pid, "stat").and_then(|stat| group_of(&stat));
        group.is_some_and(|group| groups.contains(&group))
            && read(pid, "status").is_some_and(|status| has_handler(&status))
    };
    pids.filter(is_listener).collect()
}

/// Returns the group of a process from its `stat`. The name of the process may have spaces and parentheses.
fn group_of(stat: &str) -> Option<Group> {
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(2)?.parse().ok().map(Group)
}

/// Returns whether the `status` of a process says that it has a handler of SIGUSR1.
fn has_handler(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (libc::SIGUSR1 - 1) & 1 != 0)
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
