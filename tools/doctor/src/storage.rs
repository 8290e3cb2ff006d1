//! Checks of the paths between files and GPU memory.

use rushmem::config::StorageKind;

use super::check::{Check, Finding};
use super::host::Host;

pub(super) static STORAGE: Check = Check {
    id: "H6",
    about: "files and GPU memory",
    why: "With nvidia_fs and libcufile, `Pe::read_file` and `Pe::write_file` copy between a disk and GPU memory without \
          the host.",
};

/// File systems that data is kept on, each with whether cuFile can access GPU memory directly.
const FILE_SYSTEMS: &[(&str, bool)] = &[
    ("beegfs", true),
    ("btrfs", false),
    ("ext4", true),
    ("fuse.sshfs", false),
    ("gpfs", true),
    ("lustre", true),
    ("nfs", true),
    ("nfs4", true),
    ("overlay", false),
    ("tmpfs", false),
    ("wekafs", true),
    ("xfs", true),
    ("zfs", false),
];

/// Reports for each mounted file system that the user may write to which path its files get, and why.
pub(super) fn check(host: &Host, storage: StorageKind) -> Vec<Finding> {
    if host.gpus() == 0 {
        return Vec::new();
    }
    let Ok(mounts) = host.text("/proc/self/mountinfo") else { return Vec::new() };
    let has_module = host.names("/sys/module/nvidia_fs").is_ok();
    let found = |(mount, kind): (&str, &str)| {
        let &(_, is_direct) = FILE_SYSTEMS.iter().find(|(name, _)| *name == kind)?;
        Some(STORAGE.good(mount, path_of(kind, is_direct, has_module, storage)))
    };
    mounts.lines().filter_map(writable).filter_map(found).collect()
}

/// Returns the mount point and the kind of file system of a line of `/proc/self/mountinfo`. `None` if nothing can be
/// written there, or if it belongs to the system.
fn writable(line: &str) -> Option<(&str, &str)> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ').skip(4);
    let (mount, options) = (fields.next()?, fields.next()?);
    let is_of_system = ["/dev", "/proc", "/run", "/sys", "/etc"].iter().any(|folder| {
        mount.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    let is_writable = options.split(',').any(|option| option == "rw");
    (is_writable && !is_of_system).then_some((mount, after.split(' ').next()?))
}

fn path_of(kind: &str, is_direct: bool, has_module: bool, storage: StorageKind) -> String {
    match (storage, has_module, is_direct) {
        (StorageKind::Plain, ..) => "plain files, by the setting storage".into(),
        (StorageKind::Auto, false, _) => "plain files: the module nvidia_fs is not loaded".into(),
        (_, true, true) => format!("cuFile if libcufile can be loaded, direct to {kind}"),
        (StorageKind::Auto, true, false) => format!("plain files if cuFile refuses {kind}, otherwise cuFile"),
        (StorageKind::CuFile, ..) => {
            format!("cuFile in compatibility mode, or an error if it refuses {kind}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writable_file_systems_are_found() {
        let line = |mount: &str, options: &str, kind: &str| {
            format!(
                "36 35 98:0 /mnt1 {mount} {options},noatime master:1 - {kind} /dev/root rw,errors=continue"
            )
        };
        assert_eq!(writable(&line("/data", "rw", "xfs")), Some(("/data", "xfs")));
        assert_eq!(writable(&line("/devices", "rw", "ext4")), Some(("/devices", "ext4")));
        assert_eq!(writable(&line("/data", "ro", "xfs")), None);
        assert_eq!(writable(&line("/dev/shm", "rw", "tmpfs")), None);
        assert_eq!(writable("36 35 98:0 /"), None);
    }
}
