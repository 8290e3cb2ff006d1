//! Paths of the kernel's files about RDMA devices, and their places in the tree that a launcher has written.

use crate::cuda;
use crate::settings::variable;
use crate::sysfs::{DOMAIN, PEER_MEMORY};
use std::ffi::CString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt};
use std::sync::OnceLock;

/// The kernel's tree of devices.
const SYS: &[u8] = b"/sys";

/// Folders below [`SYS`] that lead to the launcher's tree as a whole.
const OURS: [&str; 5] = [
    "class/infiniband",
    "class/infiniband_verbs",
    "class/infiniband_mad",
    "class/misc/rdma_cm",
    "bus/pci/drivers/mlx5_core",
];

/// Returns the root of the launcher's tree, which takes the place of `/sys`.
fn root() -> Option<&'static [u8]> {
    static ROOT: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    let read =
        || std::env::var_os(variable::SYSFS).map(OsStringExt::into_vec).filter(|root| !root.is_empty());
    ROOT.get_or_init(read).as_deref()
}

/// Returns the place of an absolute path in the launcher's tree, or `None` if the path is not about RDMA devices.
pub(crate) fn moved(path: &[u8]) -> Option<CString> {
    // Almost every path of a program ends here.
    let rest = if path == b"/dev/infiniband" || path == b"/dev/infiniband/" {
        &path[1..]
    } else {
        path.strip_prefix(SYS)?
    };
    let root = root()?;
    let rest = without_double_slashes(rest);
    is_ours(&rest).then(|| CString::new([root, b"/", &rest].concat()).ok()).flatten()
}

/// Returns a path without slashes at its start and without empty parts.
fn without_double_slashes(path: &[u8]) -> Vec<u8> {
    let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
    parts.join(&b'/')
}

/// Returns whether a path below `/sys` belongs to the devices of this library.
fn is_ours(path: &[u8]) -> bool {
    let within = |folder: &str| match path.strip_prefix(folder.as_bytes()) {
        Some(rest) => rest.is_empty() || rest[0] == b'/',
        None => false,
    };
    path == b"dev/infiniband"
        || OURS.into_iter().any(within)
        || path.starts_with(b"devices/pci") && has_device(path)
        || path.starts_with(format!("bus/pci/devices/{DOMAIN}:").as_bytes())
        || path.starts_with(format!("class/pci_bus/{DOMAIN}:").as_bytes())
        // The kernel's module for GPU memory. A process without CUDA sees the machine's own modules.
        || within(PEER_MEMORY) && cuda::is_loaded()
}

/// Returns whether a part of a path is a PCI device of this library, or their root. They may be below a switch of the machine.
fn has_device(path: &[u8]) -> bool {
    let (device, root) = (format!("{DOMAIN}:"), format!("pci{DOMAIN}:"));
    path.split(|byte| *byte == b'/')
        .any(|part| part.starts_with(device.as_bytes()) || part.starts_with(root.as_bytes()))
}

/// Returns the kernel's path of a file in the launcher's tree, or `None` if the path is not in the tree.
pub(crate) fn original(path: &[u8]) -> Option<Vec<u8>> {
    let rest = path.strip_prefix(root()?)?;
    (rest.is_empty() || rest[0] == b'/').then(|| [SYS, rest].concat())
}

/// Returns the path behind a descriptor of this process, or of its current folder.
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
            "class/infiniband",
            "class/infiniband/mlx5_0/ports/1/gids/0",
            "class/infiniband_verbs/abi_version",
            "class/misc/rdma_cm/abi_version",
            "devices/pci7000:00",
            "devices/pci7000:00/7000:00:01.0",
            "devices/pci0000:15/0000:15:01.0/7000:00:01.0/7000:01:00.0/class",
            "bus/pci/devices/7000:01:00.0",
            "bus/pci/drivers/mlx5_core/7000:01:00.0",
            "class/pci_bus/7000:01/../../7000:01:00.0",
        ] {
            assert!(is_ours(path.as_bytes()), "{path}");
        }
        for path in [
            "",
            "class",
            "class/misc",
            "class/infiniband_cm",
            "class/net",
            "devices/pci0000:00",
            "devices/pci0000:15/0000:15:01.0",
            "devices/system/cpu/7000:1",
            "module/nvidia_peermem/version",
            "bus/pci/devices",
        ] {
            assert!(!is_ours(path.as_bytes()), "{path}");
        }
        assert_eq!(without_double_slashes(b"//class//infiniband/"), b"class/infiniband");
        assert_eq!(moved(b"/proc/version"), None);
    }
}
