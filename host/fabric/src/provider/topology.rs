//! Assigns the NICs of a node to its PEs. Each PE gets the NICs nearest to its GPU on PCIe, and PEs are evenly
//! distributed over equally near NICs.

use std::path::PathBuf;

/// PCIe distance between two devices, such as a GPU and a NIC. Smaller is nearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// Below a common bridge, so traffic need not pass the CPU. The value is the number of other bridges on the path.
    Switch(u8),
    /// Below a common root complex.
    RootComplex,
    /// On the same NUMA node.
    Node,
    /// On different NUMA nodes, or at an unknown location.
    Other,
}

impl Distance {
    /// Returns the distance as a phrase for messages.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Switch(_) => "behind the same PCIe switch",
            Self::RootComplex => "below the same PCIe root",
            Self::Node => "on the same NUMA node",
            Self::Other => "elsewhere in the machine",
        }
    }

    /// Returns the abbreviation of `nvidia-smi topo`: PIX, PXB, PHB, NODE or SYS.
    pub fn abbreviation(self) -> &'static str {
        match self {
            // The ports of one switch are two bridges.
            Self::Switch(0..=2) => "PIX",
            Self::Switch(_) => "PXB",
            Self::RootComplex => "PHB",
            Self::Node => "NODE",
            Self::Other => "SYS",
        }
    }
}

/// The location of a PCI device in the machine.
#[derive(Clone, Debug, Default)]
pub struct PciPath {
    /// The device's directory in sysfs, with symbolic links resolved.
    pub sysfs: PathBuf,
    /// NUMA node, if known to the system.
    pub node: Option<u32>,
}

impl PciPath {
    /// Returns the location of the device whose directory in sysfs is `sysfs`.
    #[cfg(any(test, feature = "rdma"))]
    pub fn of(sysfs: PathBuf) -> Self {
        let text = std::fs::read_to_string(sysfs.join("numa_node")).unwrap_or_default();
        Self { node: text.trim().parse().ok(), sysfs }
    }

    /// Returns the location of the PCI device at `address`, in the sysfs at `sysfs_root`.
    #[cfg(any(test, feature = "rdma"))]
    pub fn of_pci(sysfs_root: &std::path::Path, address: &str) -> Self {
        let link = sysfs_root.join("bus/pci/devices").join(address);
        Self::of(link.canonicalize().unwrap_or(link))
    }
}

/// Returns the root complex above a device, and the bridges between the two, from the top down.
fn root_and_bridges(device: &PciPath) -> Option<(&str, Vec<&str>)> {
    let mut parts = device.sysfs.iter().filter_map(|part| part.to_str());
    let root = parts.find(|part| part.starts_with("pci") && part.contains(':'))?;
    let mut bridges: Vec<_> = parts.collect();
    bridges.pop();
    Some((root, bridges))
}

pub fn distance(a: &PciPath, b: &PciPath) -> Distance {
    if let (Some((root_a, bridges_a)), Some((root_b, bridges_b))) = (root_and_bridges(a), root_and_bridges(b))
        && root_a == root_b
    {
        let common = bridges_a.iter().zip(&bridges_b).take_while(|(a, b)| a == b).count();
        let between = bridges_a.len() + bridges_b.len() - 2 * common;
        return if common > 0 { Distance::Switch(between as u8) } else { Distance::RootComplex };
    }
    if a.node.is_some() && a.node == b.node { Distance::Node } else { Distance::Other }
}

/// Assigns the NICs of a node to its PEs. `distances[pe][nic]` is the distance between a PE's GPU and a NIC.
///
/// Returns the indices of each PE's NICs, in order of preference. Each PE gets the `wanted` nearest NICs, or all if
/// there are fewer. Among equally near NICs it gets the one with the fewest PEs so far. A NIC that no PE got becomes a
/// spare, after the NICs that the PE uses, of the nearest PE whose first NIC `can_replace` allows it to replace.
pub fn assign(
    distances: &[Vec<Distance>],
    wanted: usize,
    can_replace: impl Fn(usize, usize) -> bool,
) -> Vec<Vec<usize>> {
    let nics = distances.iter().map(Vec::len).max().unwrap_or(0);
    let mut load = vec![0; nics];
    let mut assigned: Vec<Vec<usize>> = vec![Vec::new(); distances.len()];
    // Round by round, so no PE gets its second NIC before every PE has its first.
    for _ in 0..wanted {
        for (mine, row) in assigned.iter_mut().zip(distances) {
            let others = (0..row.len()).filter(|nic| !mine.contains(nic));
            if let Some(nic) = others.min_by_key(|&nic| (row[nic], load[nic])) {
                mine.push(nic);
                load[nic] += 1;
            }
        }
    }
    for nic in (0..nics).filter(|&nic| load[nic] == 0) {
        let replaces = |&pe: &usize| assigned[pe].first().is_some_and(|&first| can_replace(nic, first));
        let pes = (0..distances.len()).filter(replaces);
        if let Some(pe) = pes.min_by_key(|&pe| (distances[pe][nic], assigned[pe].len())) {
            assigned[pe].push(nic);
        }
    }
    assigned
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a sysfs tree for tests: two sockets with two root complexes each. One complex has a switch for a GPU and
    /// a NIC.
    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let devices = [
            ("pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:00.0/0000:3d:00.0", 0),
            ("pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:01.0/0000:3e:00.0", 0),
            // A second switch, below the first.
            ("pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:02.0/0000:41:00.0/0000:42:00.0/0000:43:00.0", 0),
            ("pci0000:3a/0000:3a:01.0/0000:40:00.0", 0),
            ("pci0000:5a/0000:5a:00.0/0000:5b:00.0", 0),
            ("pci0000:9a/0000:9a:00.0/0000:9b:00.0", 1),
            ("pci0000:9b/0000:9b:00.0/0000:ff:00.0", -1),
        ];
        std::fs::create_dir_all(root.path().join("bus/pci/devices")).unwrap();
        for (path, node) in devices {
            let folder = root.path().join("devices").join(path);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("numa_node"), format!("{node}\n")).unwrap();
            let link = root.path().join("bus/pci/devices").join(folder.file_name().unwrap());
            std::os::unix::fs::symlink(&folder, link).unwrap();
        }
        root
    }

    #[test]
    fn distances_follow_the_tree() {
        let root = tree();
        let gpu = PciPath::of_pci(root.path(), "0000:3d:00.0");
        assert_eq!(gpu.node, Some(0));
        for (address, wanted, abbreviation) in [
            ("0000:3e:00.0", Distance::Switch(2), "PIX"),
            ("0000:43:00.0", Distance::Switch(4), "PXB"),
            ("0000:40:00.0", Distance::RootComplex, "PHB"),
            ("0000:5b:00.0", Distance::Node, "NODE"),
            ("0000:9b:00.0", Distance::Other, "SYS"),
            ("0000:ff:00.0", Distance::Other, "SYS"),
            ("0000:aa:00.0", Distance::Other, "SYS"),
        ] {
            let nic = PciPath::of_pci(root.path(), address);
            assert_eq!(distance(&gpu, &nic), wanted, "{address}");
            assert_eq!(wanted.abbreviation(), abbreviation, "{address}");
            assert_eq!(distance(&nic, &gpu), wanted, "{address}");
        }
        assert!(
            Distance::Switch(2) < Distance::Switch(4)
                && Distance::Switch(9) < Distance::RootComplex
                && Distance::Node < Distance::Other
        );
        assert_eq!(distance(&PciPath::default(), &PciPath::default()), Distance::Other);
    }

    #[test]
    fn spares_replace_nics_of_their_network_only() {
        use Distance::{Node, Other};
        // NIC 2 is nearest to PE 0, but can replace only NIC 1 of PE 1.
        let distances = [vec![Node, Other, Node], vec![Other, Node, Other]];
        assert_eq!(assign(&distances, 1, |_, used| used == 1), [vec![0], vec![1, 2]]);
        assert_eq!(assign(&distances, 1, |_, _| false), [[0], [1]]);
        assert_eq!(assign(&distances, 1, |_, _| true), [vec![0, 2], vec![1]]);
    }

    #[test]
    fn assigns_near_nics_evenly() {
        use Distance::Other;
        let assign = |distances: &[Vec<Distance>], wanted| assign(distances, wanted, |_, _| true);
        const SWITCH: Distance = Distance::Switch(2);
        let nearest = |n: usize, nics: usize| -> Vec<_> {
            (0..nics).map(|i| if i == n { SWITCH } else { Other }).collect()
        };
        // One NIC next to each GPU.
        let own: Vec<_> = (0..4).map(|pe| nearest(pe, 4)).collect();
        assert_eq!(assign(&own, 1), [[0], [1], [2], [3]]);
        assert_eq!(assign(&own, 2), [[0, 1], [1, 0], [2, 3], [3, 2]]);
        // Two GPUs and two NICs below a switch, and two NICs elsewhere, which become spares.
        let pairs = vec![vec![Other, SWITCH, Other, SWITCH]; 2];
        assert_eq!(assign(&pairs, 1), [[1, 0], [3, 2]]);
        assert_eq!(assign(&pairs, 2), [[1, 3, 0], [3, 1, 2]]);
        // Below the same switch, the NIC with fewer bridges in between comes first.
        assert_eq!(assign(&[vec![Distance::Switch(4), SWITCH]], 1), [[1, 0]]);
        // All equally near: with more NICs than PEs, and with fewer.
        assert_eq!(assign(&vec![vec![Other; 5]; 2], 1), [vec![0, 2, 4], vec![1, 3]]);
        assert_eq!(assign(&vec![vec![Other; 2]; 5], 1), [[0], [1], [0], [1], [0]]);
        assert_eq!(assign(&vec![vec![Other; 3]; 2], 2), [[0, 2], [1, 0]]);
        assert_eq!(assign(&[vec![Other; 2]], 5), [[0, 1]]);
        assert_eq!(assign(&[vec![], vec![]], 1), [vec![], Vec::<usize>::new()]);
    }
}
