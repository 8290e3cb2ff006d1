//! The part of sysfs that libibverbs and its users look at, as a tree of plain files.

use crate::device::PKEYS;
use crate::process::device_number_text;
use crate::settings::LinkLayer;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// PCI identity of the device: a ConnectX-7.
const MODALIAS: &str = "pci:v000015B3d00001021sv000015B3sd00000041bc02sc00i00";

/// Returns the GUID of a device, bytes in network order.
pub(crate) fn guid(index: u32) -> [u8; 8] {
    let [.., high, low] = index.to_be_bytes();
    // Locally administered. The middle bytes mark a GUID made from an Ethernet address.
    [0x52, 0x4d, 0x00, 0xff, 0xfe, 0x00, high, low]
}

/// Formats a GUID as sysfs does: four groups of four digits.
fn guid_text(index: u32) -> String {
    let groups: Vec<_> = guid(index).chunks(2).map(|two| format!("{:02x}{:02x}", two[0], two[1])).collect();
    groups.join(":")
}

/// An entry of the tree.
#[derive(Hash)]
enum Entry {
    /// A file with one line.
    File(String),
    /// A symbolic link.
    LinkLayer(String),
}

/// Creates the tree in its own folder below `base`, and returns that folder: the value of `SYSFS_PATH`.
///
/// The name depends on the content. An existing folder is not changed, because other processes may read it.
///
/// # Errors
///
/// Returns the error of creating a folder, file or link.
pub fn install(base: &Path, devices: u32, link: LinkLayer) -> io::Result<PathBuf> {
    let tree = tree(devices, link);
    let mut hasher = DefaultHasher::new();
    tree.hash(&mut hasher);
    let root = base.join(format!("sysfs-{:016x}", hasher.finish()));
    if root.is_dir() {
        return Ok(root);
    }
    // It appears at once and complete.
    let unfinished =
        base.join(format!("unfinished-{}-{:?}", std::process::id(), std::thread::current().id()));
    let done = write(&unfinished, &tree).and_then(|()| std::fs::rename(&unfinished, &root));
    if done.is_err() {
        let _ = std::fs::remove_dir_all(&unfinished);
    }
    match done {
        // Another process was faster.
        Err(_) if root.is_dir() => Ok(root),
        done => done.map(|()| root),
    }
}

fn write(root: &Path, tree: &BTreeMap<String, Entry>) -> io::Result<()> {
    for (path, entry) in tree {
        let path = root.join(path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        match entry {
            Entry::File(line) => std::fs::write(path, format!("{line}\n"))?,
            Entry::LinkLayer(target) => symlink(target, path)?,
        }
    }
    Ok(())
}

fn tree(devices: u32, link: LinkLayer) -> BTreeMap<String, Entry> {
    let mut tree = BTreeMap::new();
    let mut file = |path: String, line: &str| {
        tree.insert(path, Entry::File(line.to_owned()));
    };
    // The version of the ABI between libibverbs and the kernel.
    file("class/infiniband_verbs/abi_version".into(), "6");
    for index in 0..devices {
        let pci = pci_folder(index);
        for (name, line) in [
            ("modalias", MODALIAS),
            ("vendor", "0x15b3"),
            ("device", "0x1021"),
            ("class", "0x020000"),
            ("numa_node", "-1"),
        ] {
            file(format!("{pci}/{name}"), line);
        }
        let device = format!("class/infiniband/mlx5_{index}");
        let guid = guid_text(index);
        for (name, line) in [
            ("node_type", "1: CA"),
            ("node_guid", &guid),
            ("sys_image_guid", &guid),
            ("board_id", "MT_0000000838"),
            ("hca_type", "MT4129"),
            ("ports/1/rate", "400 Gb/sec (4X NDR)"),
            ("ports/1/link_layer", if link == LinkLayer::Ethernet { "Ethernet" } else { "InfiniBand" }),
        ] {
            file(format!("{device}/{name}"), line);
        }
        for (i, key) in PKEYS.iter().enumerate() {
            file(format!("{device}/ports/1/pkeys/{i}"), &format!("{key:#06x}"));
        }
        let node = format!("class/infiniband_verbs/uverbs{index}");
        file(format!("{node}/ibdev"), &format!("mlx5_{index}"));
        file(format!("{node}/dev"), &device_number_text(index));
        // The version of the ABI between libmlx5 and its driver in the kernel.
        file(format!("{node}/abi_version"), "1");
    }
    for index in 0..devices {
        let target = format!("../../../{}", pci_folder(index));
        tree.insert(format!("class/infiniband/mlx5_{index}/device"), Entry::LinkLayer(target.clone()));
        tree.insert(format!("class/infiniband_verbs/uverbs{index}/device"), Entry::LinkLayer(target));
    }
    tree
}

/// Returns the PCI folder of a device. Each device has its own bus.
fn pci_folder(index: u32) -> String {
    format!("devices/pci0000:c0/0000:{:02x}:00.0", 0xc1 + index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_has_the_files_of_libibverbs() {
        let base = tempfile::tempdir().unwrap();
        let root = install(base.path(), 2, LinkLayer::Ethernet).unwrap();
        let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
        assert_eq!(read("class/infiniband_verbs/abi_version"), "6\n");
        assert_eq!(read("class/infiniband_verbs/uverbs1/ibdev"), "mlx5_1\n");
        assert_eq!(read("class/infiniband_verbs/uverbs1/dev"), "231:193\n");
        assert_eq!(read("class/infiniband/mlx5_1/node_guid"), "524d:00ff:fe00:0001\n");
        assert_eq!(read("class/infiniband/mlx5_1/ports/1/pkeys/1"), "0x8001\n");
        assert!(read("class/infiniband/mlx5_0/device/modalias").starts_with("pci:v000015B3d"));
        let device = root.join("class/infiniband/mlx5_1/device").canonicalize().unwrap();
        assert_eq!(device.file_name().unwrap(), "0000:c2:00.0");
    }

    #[test]
    fn concurrent_installs_succeed() {
        let base = tempfile::tempdir().unwrap();
        let roots: Vec<_> = std::thread::scope(|scope| {
            let install = || install(base.path(), 1, LinkLayer::InfiniBand).unwrap();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(install)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(roots.iter().all(|root| *root == roots[0]));
        assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 1);
        assert_ne!(install(base.path(), 1, LinkLayer::Ethernet).unwrap(), roots[0]);
    }
}
