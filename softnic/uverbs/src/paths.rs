//! Mapping of kernel paths that refer to RDMA devices to the tree of files that a launcher has written.

use crate::abi::MAJOR;
use crate::cuda;
use crate::settings::variable;
use std::ffi::CString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt};
use std::sync::OnceLock;

/// PCI domain of the devices. It exists on no machine, and has only decimal digits, which is all that some programs
/// parse.
pub(crate) const DOMAIN: &str = "7000";

/// Kernel module that gives NICs access to GPU memory, replaced by this library.
pub(crate) const PEER_MEMORY: &str = "/sys/module/nvidia_peermem";

/// Directories that are taken entirely from the launcher's tree, with everything below them.
const OURS: [&str; 6] = [
    "/dev/infiniband",
    "/sys/bus/pci/drivers/mlx5_core",
    "/sys/class/infiniband",
    "/sys/class/infiniband_mad",
    "/sys/class/infiniband_verbs",
    "/sys/class/misc/rdma_cm",
];

/// Directories of the machine that also list parts of the launcher's tree. The tree has a copy of each, with links to
/// the machine's entries, to let programs list everything that they can open.
const LISTING: [&str; 13] = [
    "/dev",
    "/dev/char",
    "/sys",
    "/sys/bus",
    "/sys/bus/pci",
    "/sys/bus/pci/devices",
    "/sys/bus/pci/drivers",
    "/sys/class",
    "/sys/class/misc",
    "/sys/class/pci_bus",
    "/sys/dev",
    "/sys/dev/char",
    "/sys/devices",
];

/// Returns the root of the launcher's tree, which mirrors absolute paths.
fn root() -> Option<&'static [u8]> {
    static ROOT: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    let read =
        || std::env::var_os(variable::SYSFS).map(OsStringExt::into_vec).filter(|root| !root.is_empty());
    ROOT.get_or_init(read).as_deref()
}

/// Returns the path in the launcher's tree that replaces an absolute path, or `None` if it is not about RDMA devices.
pub(crate) fn moved(path: &[u8]) -> Option<CString> {
    // Fast path: almost no path of a program is about RDMA devices.
    if !path.starts_with(b"/sys") && !path.starts_with(b"/dev") && !path.starts_with(b"//") {
        return None;
    }
    let root = root()?;
    let path = normalized(path);
    let place = || CString::new([root, &path].concat()).ok();
    if is_ours(&path) || is_listing(&path) {
        place()
    } else if path.starts_with(b"/sys/devices/pci") {
        // The PCI switch of a GPU lists the device beside the GPU.
        place().filter(|place| std::path::Path::new(std::ffi::OsStr::from_bytes(place.to_bytes())).is_dir())
    } else {
        None
    }
}

/// Removes empty components from an absolute path.
fn normalized(path: &[u8]) -> Vec<u8> {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
    parts.flat_map(|part| [b"/", part].concat()).collect()
}

/// Whether a path belongs to the devices of this library.
pub(crate) fn is_ours(path: &[u8]) -> bool {
    let within = |folder: &str| match path.strip_prefix(folder.as_bytes()) {
        Some(rest) => rest.is_empty() || rest[0] == b'/',
        None => false,
    };
    OURS.into_iter().any(within)
        || path.starts_with(b"/sys/devices/pci") && has_device(path)
        || path.starts_with(format!("/sys/bus/pci/devices/{DOMAIN}:").as_bytes())
        || path.starts_with(format!("/sys/class/pci_bus/{DOMAIN}:").as_bytes())
        || path.starts_with(format!("/sys/dev/char/{MAJOR}:").as_bytes())
        // The kernel module for GPU memory. A process without CUDA sees the machine's modules.
        || within(PEER_MEMORY) && cuda::is_loaded()
}

/// Whether a path is a directory of the machine that lists parts of the launcher's tree.
fn is_listing(path: &[u8]) -> bool {
    LISTING.iter().any(|listing| listing.as_bytes() == path) || path == b"/sys/module" && cuda::is_loaded()
}

/// Whether any component of a path is a PCI device of this library, or the PCI root of such devices. The devices may
/// also be below a PCI switch of the machine.
fn has_device(path: &[u8]) -> bool {
    let (device, root) = (format!("{DOMAIN}:"), format!("pci{DOMAIN}:"));
    path.split(|byte| *byte == b'/')
        .any(|part| part.starts_with(device.as_bytes()) || part.starts_with(root.as_bytes()))
}

/// Returns the kernel path of a file in the launcher's tree, or `None` if the path is not in the tree.
pub(crate) fn original(path: &[u8]) -> Option<Vec<u8>> {
    let rest = path.strip_prefix(root()?)?;
    (rest.is_empty() || rest[0] == b'/').then(|| rest.to_vec())
}

/// Returns the path of the directory that `fd` refers to. `AT_FDCWD` stands for the current directory.
pub(crate) fn folder(fd: libc::c_int) -> Option<Vec<u8>> {
    let link = if fd == libc::AT_FDCWD { "/proc/self/cwd".into() } else { format!("/proc/self/fd/{fd}") };
    Some(std::fs::read_link(link).ok()?.as_os_str().as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_rdma_devices_are_ours() {
        for path in [
            "/dev/infiniband",
            "/sys/class/infiniband",
            "/sys/class/infiniband/mlx5_0/ports/1/gids/0",
            "/sys/class/infiniband_verbs/abi_version",
            "/sys/class/misc/rdma_cm/abi_version",
            "/sys/dev/char/231:192",
            "/sys/devices/pci7000:00",
            "/sys/devices/pci7000:00/7000:00:01.0",
            "/sys/devices/pci0000:15/0000:15:01.0/7000:00:01.0/7000:01:00.0/class",
            "/sys/bus/pci/devices/7000:01:00.0",
            "/sys/bus/pci/drivers/mlx5_core/7000:01:00.0",
            "/sys/class/pci_bus/7000:01/../../7000:01:00.0",
        ] {
            assert!(is_ours(path.as_bytes()) && !is_listing(path.as_bytes()), "{path}");
        }
        for path in [
            "",
            "/sys/class/infiniband_cm",
            "/sys/class/net",
            "/sys/devices/pci0000:00",
            "/sys/devices/pci0000:15/0000:15:01.0",
            "/sys/devices/system/cpu/7000:1",
            "/sys/module/nvidia_peermem/version",
            "/sys/bus/pci/devices/0000:00:01.0",
            "/dev/null",
            "/dev/infiniband2",
        ] {
            assert!(!is_ours(path.as_bytes()) && !is_listing(path.as_bytes()), "{path}");
        }
        assert_eq!(normalized(b"//sys//class/infiniband/"), b"/sys/class/infiniband");
        assert_eq!(moved(b"/proc/version"), None);
    }

    #[test]
    fn the_parent_of_each_path_lists_it() {
        for path in LISTING.into_iter().chain(OURS) {
            let (parent, _) = path.rsplit_once('/').unwrap();
            assert!(parent.is_empty() || is_listing(parent.as_bytes()), "{path}");
        }
    }
}
