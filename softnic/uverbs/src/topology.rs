//! The GPUs of this machine in the PCI device tree, beside which the devices of this library are placed.
//!
//! Machines for GPUs and RDMA have a NIC below the PCI switch of each GPU, and programs choose NICs and copies by such
//! distances. Where a GPU is not below a switch, the NIC has a separate root port as well.

use std::path::Path;

/// PCI vendor of the GPUs.
const VENDOR: &str = "0x10de";
/// Prefix of the PCI classes of display and 3D controllers.
const CLASS: &str = "0x03";

/// Place in the machine's PCI and NUMA topology at which a device appears, beside a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Neighborhood {
    /// Directory of the switch above the GPU, relative to `/sys`.
    pub(crate) switch: Option<String>,
    pub(crate) numa_node: String,
    pub(crate) cpus: Cpus,
}

/// A set of CPUs, in both formats of sysfs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Cpus {
    /// The set as a mask of 32-bit words, such as `ffffffff,0000000f`.
    pub(crate) mask: String,
    /// The set as a list of ranges, such as `0-3,8`.
    pub(crate) list: String,
}

/// NUMA node number in sysfs of a device that belongs to no node.
const NO_NODE: &str = "-1";

/// Returns the PCI location of a device on a machine without GPUs. `sys` is the root of sysfs.
pub(crate) fn anywhere(sys: &Path) -> Neighborhood {
    Neighborhood { switch: None, numa_node: NO_NODE.to_owned(), cpus: Cpus::of_node(sys, NO_NODE) }
}

impl Cpus {
    /// Returns the CPUs of a NUMA node, or all CPUs if `node` is [`NO_NODE`].
    fn of_node(sys: &Path, node: &str) -> Cpus {
        let file = match node {
            NO_NODE => "devices/system/cpu/online".to_owned(),
            node => format!("devices/system/node/node{node}/cpulist"),
        };
        let list = std::fs::read_to_string(sys.join(file)).unwrap_or_default().trim().to_owned();
        Cpus { mask: mask(&list).unwrap_or_default(), list }
    }
}

/// Converts a CPU list to a mask.
fn mask(list: &str) -> Option<String> {
    let mut words: Vec<u32> = vec![0];
    for range in list.split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        for cpu in first.parse::<usize>().ok()?..=last.parse::<usize>().ok()? {
            words.resize(words.len().max(cpu / 32 + 1), 0);
            words[cpu / 32] |= 1 << (cpu % 32);
        }
    }
    let words: Vec<String> = words.iter().rev().map(|word| format!("{word:08x}")).collect();
    Some(words.join(","))
}

/// Returns the place beside each GPU, ordered by the GPUs' PCI addresses. `sys` is the root of sysfs.
pub(crate) fn gpus(sys: &Path) -> Vec<Neighborhood> {
    let Ok(entries) = std::fs::read_dir(sys.join("bus/pci/devices")) else { return Vec::new() };
    let mut slots: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    slots.sort();
    slots.iter().filter_map(|slot| neighborhood(sys, slot)).collect()
}

/// Returns the neighborhood of a GPU, or `None` if the PCI device is not a GPU.
fn neighborhood(sys: &Path, slot: &Path) -> Option<Neighborhood> {
    let read = |name: &str| Some(std::fs::read_to_string(slot.join(name)).ok()?.trim().to_owned());
    if read("vendor")? != VENDOR || !read("class")?.starts_with(CLASS) {
        return None;
    }
    let numa_node = read("numa_node").unwrap_or_else(|| NO_NODE.to_owned());
    let path = slot.canonicalize().ok()?;
    let path = path.strip_prefix(sys.canonicalize().ok()?).ok()?.to_str()?;
    let cpus = Cpus::of_node(sys, &numa_node);
    Some(Neighborhood { switch: switch(path), numa_node, cpus })
}

/// Returns the directory of the switch above a device: its upstream port, the parent of the device's downstream port. A
/// device without a switch has at most a root port above it.
fn switch(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').collect();
    // "devices", the root, the root port, the upstream port, the downstream port, the device.
    (parts.len() >= 6).then(|| parts[..parts.len() - 2].join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Adds a PCI device to a tree.
    fn add(sys: &Path, path: &str, vendor: &str, class: &str, numa_node: &str) {
        let folder = sys.join(path);
        std::fs::create_dir_all(&folder).unwrap();
        for (name, value) in [("vendor", vendor), ("class", class), ("numa_node", numa_node)] {
            std::fs::write(folder.join(name), format!("{value}\n")).unwrap();
        }
        let slots = sys.join("bus/pci/devices");
        std::fs::create_dir_all(&slots).unwrap();
        symlink(&folder, slots.join(folder.file_name().unwrap())).unwrap();
    }

    #[test]
    fn finds_gpus_and_their_switches() {
        let base = tempfile::tempdir().unwrap();
        let sys = base.path();
        assert_eq!(gpus(sys), []);
        let switch = "devices/pci0000:15/0000:15:01.0/0000:16:00.0";
        add(sys, &format!("{switch}/0000:17:01.0/0000:19:00.0"), VENDOR, "0x030200", "1");
        add(sys, &format!("{switch}/0000:17:00.0/0000:18:00.0"), "0x15b3", "0x020700", "1");
        add(sys, "devices/pci0000:00/0000:00:02.0/0000:01:00.0", VENDOR, "0x030000", "0");
        add(sys, "devices/pci0000:00/0000:00:02.0/0000:01:00.1", VENDOR, "0x040300", "0");
        let beside = |switch: Option<&str>, numa_node: &str| Neighborhood {
            switch: switch.map(str::to_owned),
            numa_node: numa_node.to_owned(),
            cpus: Cpus::default(),
        };
        let found = gpus(sys).into_iter().map(|found| Neighborhood { cpus: Cpus::default(), ..found });
        assert!(found.eq([beside(None, "0"), beside(Some(switch), "1")]));
    }

    #[test]
    fn masks_have_the_cpus_of_a_list() {
        assert_eq!(mask("0-3,8").unwrap(), "0000010f");
        assert_eq!(mask("0,63-64").unwrap(), "00000001,80000000,00000001");
        assert_eq!(mask("all"), None);
        let base = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(base.path().join("devices/system/cpu")).unwrap();
        std::fs::write(base.path().join("devices/system/cpu/online"), "0-1\n").unwrap();
        let cpus = Cpus { mask: "00000003".into(), list: "0-1".into() };
        assert_eq!(anywhere(base.path()).cpus, cpus);
    }
}
