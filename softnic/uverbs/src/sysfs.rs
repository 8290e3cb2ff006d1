//! The part of sysfs that libibverbs and its users look at, as a tree of plain files.

use crate::process::device_number_text;
use crate::settings::Link;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

/// What PCI says of the device: a ConnectX-7.
const MODALIAS: &str = "pci:v000015B3d00001021sv000015B3sd00000041bc02sc00i00";

/// The GUID of a device, bytes in network order.
pub(crate) fn guid(index: u32) -> [u8; 8] {
    let [.., high, low] = index.to_be_bytes();
    // Locally administered; the middle is that of a GUID made from an Ethernet address.
    [0x52, 0x4d, 0x00, 0xff, 0xfe, 0x00, high, low]
}

/// As sysfs writes a GUID: four groups of four digits.
fn guid_text(index: u32) -> String {
    let groups: Vec<_> = guid(index).chunks(2).map(|two| format!("{:02x}{:02x}", two[0], two[1])).collect();
    groups.join(":")
}

/// The PCI address of a device: each has a bus of its own.
fn pci_address(index: u32) -> String {
    format!("0000:{:02x}:00.0", 0xc1 + index)
}

/// Writes the tree below `root`, which is the value of `SYSFS_PATH`. What is there already is written over.
///
/// # Errors
///
/// Where the system cannot make a folder, file or link.
pub fn write(root: &Path, devices: u32, link: Link) -> io::Result<()> {
    let verbs = root.join("class/infiniband_verbs");
    let class = root.join("class/infiniband");
    for folder in [&verbs, &class] {
        std::fs::create_dir_all(folder)?;
    }
    // The version of the ABI between libibverbs and the kernel.
    put(&verbs, "abi_version", "6")?;
    for index in 0..devices {
        let pci = format!("devices/pci0000:c0/{}", pci_address(index));
        write_pci(&root.join(&pci))?;

        let name = format!("mlx5_{index}");
        let device = class.join(&name);
        std::fs::create_dir_all(&device)?;
        replace_link(&format!("../../../{pci}"), &device.join("device"))?;
        put(&device, "node_type", "1: CA")?;
        put(&device, "node_guid", &guid_text(index))?;
        put(&device, "sys_image_guid", &guid_text(index))?;
        put(&device, "board_id", "MT_0000000838")?;
        put(&device, "hca_type", "MT4129")?;
        write_port(&device.join("ports/1"), link)?;

        let node = verbs.join(format!("uverbs{index}"));
        std::fs::create_dir_all(&node)?;
        put(&node, "ibdev", &name)?;
        put(&node, "dev", &device_number_text(index))?;
        // The version of the ABI between libmlx5 and its driver in the kernel.
        put(&node, "abi_version", "1")?;
        replace_link(&format!("../../../{pci}"), &node.join("device"))?;
    }
    Ok(())
}

fn write_pci(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    put(folder, "modalias", MODALIAS)?;
    put(folder, "vendor", "0x15b3")?;
    put(folder, "device", "0x1021")?;
    put(folder, "class", "0x020000")?;
    put(folder, "numa_node", "-1")
}

fn write_port(folder: &Path, link: Link) -> io::Result<()> {
    std::fs::create_dir_all(folder.join("pkeys"))?;
    put(folder, "pkeys/0", "0xffff")?;
    put(folder, "rate", "400 Gb/sec (4X NDR)")?;
    let layer = match link {
        Link::Ethernet => "Ethernet",
        Link::InfiniBand => "InfiniBand",
    };
    put(folder, "link_layer", layer)
}

fn put(folder: &Path, name: &str, content: &str) -> io::Result<()> {
    std::fs::write(folder.join(name), format!("{content}\n"))
}

fn replace_link(target: &str, at: &Path) -> io::Result<()> {
    match symlink(target, at) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            std::fs::remove_file(at)?;
            symlink(target, at)
        }
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_what_libibverbs_reads() {
        let root = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            write(root.path(), 2, Link::Ethernet).unwrap();
        }
        let read = |path: &str| std::fs::read_to_string(root.path().join(path)).unwrap();
        assert_eq!(read("class/infiniband_verbs/abi_version"), "6\n");
        assert_eq!(read("class/infiniband_verbs/uverbs1/ibdev"), "mlx5_1\n");
        assert_eq!(read("class/infiniband_verbs/uverbs1/dev"), "231:193\n");
        assert_eq!(read("class/infiniband/mlx5_1/node_guid"), "524d:00ff:fe00:0001\n");
        assert!(read("class/infiniband/mlx5_0/device/modalias").starts_with("pci:v000015B3d"));
        let device = root.path().join("class/infiniband/mlx5_1/device").canonicalize().unwrap();
        assert_eq!(device.file_name().unwrap(), "0000:c2:00.0");
    }
}
