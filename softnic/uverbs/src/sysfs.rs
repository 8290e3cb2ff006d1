//! The sysfs entries of RDMA devices, laid out like the kernel's, as a tree of plain files and links.

use crate::abi;
use crate::device::{PKEYS, guid};
use crate::fault::Fault;
use crate::live::{self, GID_SLOTS};
use crate::node::{device_number_text, umad_number_text};
use crate::paths::{self, DOMAIN, PEER_MEMORY};
use crate::pci::Function;
#[cfg(doc)]
use crate::settings::variable;
use crate::settings::{LinkLayer, Settings};
use crate::topology::{self, Neighborhood};
use rushmem_softnic::LinkSpeed;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Returns the node description of a device.
pub(crate) fn description(device: &str) -> String {
    format!("rushmem {device}")
}

/// Formats a GUID like sysfs: four groups of four digits.
fn guid_text(index: u32) -> String {
    let groups: Vec<_> = guid(index).chunks(2).map(|two| format!("{:02x}{:02x}", two[0], two[1])).collect();
    groups.join(":")
}

/// A file or link of the tree to be installed.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Entry {
    /// A file with a single line.
    File(String),
    /// A file with these contents.
    Bytes(Vec<u8>),
    /// A symbolic link to this path.
    Link(PathBuf),
}

/// Creates the tree of sysfs files in a new directory below `base`. Returns that directory, which is the value for
/// [`variable::SYSFS`].
///
/// Each device is placed beside a GPU of this machine, if there are any.
///
/// The directory's name depends on the contents. An existing directory is left unchanged, because other processes may
/// read it.
///
/// # Errors
///
/// Fails if a directory, file or link cannot be created.
pub fn install(base: &Path, settings: &Settings) -> io::Result<PathBuf> {
    let machine = Path::new("/");
    let (sys, anywhere) = (machine.join("sys"), topology::anywhere(&machine.join("sys")));
    let mut tree = tree(settings, &topology::gpus(&sys), &anywhere);
    list_machine(&mut tree, machine);
    let mut hasher = DefaultHasher::new();
    tree.hash(&mut hasher);
    let root = base.join(format!("sysfs-{:016x}", hasher.finish()));
    if root.is_dir() {
        return Ok(root);
    }
    // Renaming makes the complete tree appear atomically.
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
            Entry::Bytes(bytes) => std::fs::write(path, bytes)?,
            Entry::Link(target) => symlink(target, path)?,
        }
    }
    Ok(())
}

/// Adds links to the machine's own files, in directories that have entries of both. `machine` is the root directory of
/// the machine.
fn list_machine(tree: &mut BTreeMap<String, Entry>, machine: &Path) {
    let parents = |path: &String| -> Vec<String> {
        path.match_indices('/').map(|(end, _)| path[..end].to_owned()).collect()
    };
    let folders: BTreeSet<String> = tree.keys().flat_map(parents).collect();
    for folder in folders.iter().filter(|folder| !paths::is_ours(format!("/{folder}").as_bytes())) {
        let Ok(entries) = std::fs::read_dir(machine.join(folder)) else { continue };
        for entry in entries.flatten() {
            // The launcher's paths are UTF-8.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = format!("{folder}/{name}");
            if !folders.contains(&path) && !paths::is_ours(format!("/{path}").as_bytes()) {
                let relative = std::fs::read_link(entry.path()).ok().filter(|target| target.is_relative());
                tree.insert(path, Entry::Link(relative.unwrap_or_else(|| entry.path())));
            }
        }
    }
}

#[derive(Default)]
struct Tree(BTreeMap<String, Entry>);

impl Tree {
    /// Adds files with a single line each to a directory.
    fn files(&mut self, folder: &str, files: &[(&str, &str)]) {
        for (name, line) in files {
            self.0.insert(format!("{folder}/{name}"), Entry::File((*line).to_owned()));
        }
    }

    /// Adds a link between two paths of the tree.
    fn link(&mut self, from: &str, to: &str) {
        let common = from.split('/').zip(to.split('/')).take_while(|(a, b)| a == b).count();
        let up = "../".repeat(from.split('/').count() - common - 1);
        let down: Vec<&str> = to.split('/').skip(common).collect();
        self.0.insert(from.to_owned(), Entry::Link(format!("{up}{}", down.join("/")).into()));
    }
}

/// Returns the tree of the devices. Each device is beside a GPU, or at `anywhere` if there is none.
fn tree(settings: &Settings, gpus: &[Neighborhood], anywhere: &Neighborhood) -> BTreeMap<String, Entry> {
    let mut tree = Tree::default();
    // ABI versions of the kernel.
    tree.files("sys/class/infiniband_verbs", &[("abi_version", "6")]);
    tree.files("sys/class/infiniband_mad", &[("abi_version", "5")]);
    let (major, minor) = abi::RDMA_CM_DEVICE;
    let number = format!("{major}:{minor}");
    tree.files("sys/class/misc/rdma_cm", &[("abi_version", abi::RDMA_CM_VERSION), ("dev", &number)]);
    tree.files("dev/infiniband", &[("rdma_cm", "")]);
    tree.files(&PEER_MEMORY[1..], &[("version", env!("CARGO_PKG_VERSION")), ("initstate", "live")]);
    for index in 0..settings.devices {
        let beside = gpus.iter().cycle().nth(index as usize).cloned().unwrap_or_else(|| anywhere.clone());
        let (_, pci) = pci_folders(index, &beside);
        pci_device(&mut tree, index, &beside, settings);
        rdma_device(&mut tree, &pci, index, settings);
        network_device(&mut tree, &pci, index, settings);
        let node = format!("{pci}/infiniband_verbs/uverbs{index}");
        let device = format!("mlx5_{index}");
        // ABI version between libmlx5 and its kernel driver.
        let files = [("ibdev", &device[..]), ("dev", &device_number_text(index)), ("abi_version", "1")];
        tree.files(&node, &files);
        tree.link(&format!("{node}/device"), &pci);
        tree.link(&format!("{node}/subsystem"), "sys/class/infiniband_verbs");
        tree.link(&format!("sys/class/infiniband_verbs/uverbs{index}"), &node);
        tree.files("dev/infiniband", &[(&format!("uverbs{index}"), "")]);
        let number = device_number_text(index);
        tree.link(&format!("dev/char/{number}"), &format!("dev/infiniband/uverbs{index}"));
        tree.link(&format!("sys/dev/char/{number}"), &node);
        let node = format!("{pci}/infiniband_mad/umad{index}");
        tree.files(&node, &[("ibdev", &device), ("port", "1"), ("dev", &umad_number_text(index))]);
        tree.link(&format!("{node}/device"), &pci);
        tree.link(&format!("{node}/subsystem"), "sys/class/infiniband_mad");
        tree.link(&format!("sys/class/infiniband_mad/umad{index}"), &node);
        tree.link(&format!("sys/dev/char/{}", umad_number_text(index)), &node);
        tree.files("dev/infiniband", &[(&format!("umad{index}"), "")]);
    }
    tree.0
}

/// Adds a device's PCI functions beside a GPU, and the bridge above them.
fn pci_device(tree: &mut Tree, index: u32, beside: &Neighborhood, settings: &Settings) {
    let (bridge, device) = pci_folders(index, beside);
    let data_direct = format!("{bridge}/{}", data_direct_slot(index));
    let bus = bus(index);
    tree.files(&format!("{bridge}/pci_bus/{bus}"), &[("cpulistaffinity", &beside.cpus.list)]);
    tree.link(&format!("sys/class/pci_bus/{bus}"), &format!("{bridge}/pci_bus/{bus}"));
    let mut functions = vec![
        (&bridge, Function::bridge((index + 1) as u8)),
        (&device, Function::adapter(settings.model, settings.function())),
    ];
    if settings.has(Fault::DataDirect) {
        functions.push((&data_direct, Function::data_direct()));
    }
    for (folder, function) in functions {
        let (_, slot) = folder.rsplit_once('/').unwrap_or_default();
        for (name, line) in function.attributes(slot) {
            tree.files(folder, &[(name, &line)]);
        }
        tree.files(folder, &[("numa_node", &beside.numa_node)]);
        tree.files(folder, &[("local_cpus", &beside.cpus.mask), ("local_cpulist", &beside.cpus.list)]);
        tree.0.insert(format!("{folder}/config"), Entry::Bytes(function.config()));
        tree.link(&format!("sys/bus/pci/devices/{slot}"), folder);
        tree.link(&format!("{folder}/subsystem"), "sys/bus/pci");
    }
    let (_, slot) = device.rsplit_once('/').unwrap_or_default();
    // Open MPI prefers UCX if a device has this driver.
    tree.link(&format!("{device}/driver"), "sys/bus/pci/drivers/mlx5_core");
    tree.link(&format!("sys/bus/pci/drivers/mlx5_core/{slot}"), &device);
}

/// Adds the RDMA device and its port.
fn rdma_device(tree: &mut Tree, pci: &str, index: u32, settings: &Settings) {
    let device = format!("{pci}/infiniband/mlx5_{index}");
    let guid = guid_text(index);
    let Settings { link, model, .. } = *settings;
    let [major, minor, sub] = model.firmware();
    let files = [
        ("node_type", "1: CA"),
        ("node_guid", &guid),
        ("node_desc", &description(&format!("mlx5_{index}"))),
        ("sys_image_guid", &guid),
        ("board_id", "MT_0000000838"),
        ("hca_type", &format!("MT{}", model.device_id(settings.function()))),
        ("hw_rev", "0"),
        ("fw_ver", &format!("{major}.{minor}.{sub:04}")),
    ];
    tree.files(&device, &files);
    tree.link(&format!("{device}/device"), pci);
    tree.link(&format!("{device}/subsystem"), "sys/class/infiniband");
    tree.link(&format!("sys/class/infiniband/mlx5_{index}"), &device);

    let port = format!("{device}/ports/1");
    let ethernet = link == LinkLayer::Ethernet;
    let LinkSpeed { name, gbps, .. } = model.speed();
    let rate = format!("{gbps} Gb/sec (4X {name})");
    let files = [
        ("rate", &rate[..]),
        ("link_layer", if ethernet { "Ethernet" } else { "InfiniBand" }),
        ("cap_mask", if ethernet { "0x04010000" } else { "0x00010000" }),
        ("lid_mask_count", "0"),
        ("sm_lid", if ethernet { "0x0" } else { "0x1" }),
        ("sm_sl", "0"),
        // `live` supplies the current contents of the following files.
        ("lid", "0x0"),
        ("state", "4: ACTIVE"),
        ("phys_state", "5: LinkUp"),
    ];
    tree.files(&port, &files);
    for (i, key) in PKEYS.iter().enumerate() {
        tree.files(&port, &[(&format!("pkeys/{i}"), &format!("{key:#06x}"))]);
    }
    for i in 0..GID_SLOTS {
        let (gid, kind) = (format!("gids/{i}"), format!("gid_attrs/types/{i}"));
        tree.files(&port, &[(&gid, "0000:0000:0000:0000:0000:0000:0000:0000"), (&kind, "")]);
        tree.files(&port, &[(&format!("gid_attrs/ndevs/{i}"), "")]);
    }
}

/// Adds the network device with the address of an Ethernet port, if any.
fn network_device(tree: &mut Tree, pci: &str, index: u32, settings: &Settings) {
    let ip = settings.addresses.get(index as usize).copied().unwrap_or(Ipv4Addr::LOCALHOST);
    if settings.link == LinkLayer::Ethernet
        && let Ok(name) = live::network_device(ip)
    {
        tree.files(&format!("{pci}/net/{name}"), &[("dev_port", "0")]);
    }
}

/// Returns the PCI domain and bus of a device, such as `7000:01`.
fn bus(index: u32) -> String {
    format!("{DOMAIN}:{:02x}", index + 1)
}

/// Returns the PCI address of the data-direct function of a device.
fn data_direct_slot(index: u32) -> String {
    format!("{}:00.1", bus(index))
}

/// Returns the path of a device's data-direct function in the launcher's tree, relative to `/sys`, or `None` if the
/// tree lacks it.
pub(crate) fn data_direct(index: u32) -> Option<String> {
    let link = format!("/sys/bus/pci/devices/{}", data_direct_slot(index));
    let link = paths::moved(link.as_bytes())?;
    let target = std::fs::read_link(OsStr::from_bytes(link.to_bytes())).ok()?;
    Some(format!("/{}", target.to_str()?.trim_start_matches("../")))
}

/// Returns the directories of the bridge above a device and of the device. The bridge is a port of a GPU's switch, or a
/// root port.
fn pci_folders(index: u32, beside: &Neighborhood) -> (String, String) {
    let root = format!("sys/devices/pci{DOMAIN}:00");
    let above = beside.switch.as_ref().map_or(root, |switch| format!("sys/{switch}"));
    let bridge = format!("{above}/{DOMAIN}:00:{:02x}.0", index + 1);
    let device = format!("{bridge}/{}:00.0", bus(index));
    (bridge, device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Cpus;

    fn settings(devices: u32, link: LinkLayer) -> Settings {
        Settings { devices, link, ..Settings::default() }
    }

    #[test]
    fn the_tree_has_the_files_of_libibverbs() {
        let base = tempfile::tempdir().unwrap();
        let root = install(base.path(), &settings(2, LinkLayer::Ethernet)).unwrap();
        let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
        assert_eq!(read("sys/class/infiniband_verbs/abi_version"), "6\n");
        assert_eq!(read("sys/class/infiniband_verbs/uverbs1/ibdev"), "mlx5_1\n");
        assert_eq!(read("sys/class/infiniband_verbs/uverbs1/dev"), "231:193\n");
        assert_eq!(read("sys/class/infiniband/mlx5_1/node_guid"), "524d:00ff:fe00:0001\n");
        assert_eq!(read("sys/class/infiniband/mlx5_1/ports/1/pkeys/1"), "0x8001\n");
        assert!(read("sys/class/infiniband/mlx5_0/device/modalias").starts_with("pci:v000015B3d"));
        let device = root.join("sys/class/infiniband/mlx5_1/device").canonicalize().unwrap();
        assert_eq!(device.file_name().unwrap(), "7000:02:00.0");
        // Classes link into the device tree, and the devices link back.
        let device = root.canonicalize().unwrap().join("sys/devices/pci7000:00/7000:00:02.0/7000:02:00.0");
        let found = |path: &str| root.join(path).canonicalize().unwrap();
        assert_eq!(found("sys/class/infiniband/mlx5_1"), device.join("infiniband/mlx5_1"));
        assert_eq!(found("sys/class/infiniband_verbs/uverbs1"), device.join("infiniband_verbs/uverbs1"));
        assert_eq!(found("sys/class/pci_bus/7000:02/../../7000:02:00.0"), device);
        assert_eq!(found("sys/bus/pci/devices/7000:02:00.0"), device);
        assert_eq!(found("sys/bus/pci/drivers/mlx5_core/7000:02:00.0"), device);
        let driver = std::fs::read_link(device.join("driver")).unwrap();
        assert_eq!(driver, Path::new("../../../../bus/pci/drivers/mlx5_core"));
        assert_eq!(found("sys/class/infiniband/mlx5_1/subsystem"), found("sys/class/infiniband"));
        assert_eq!(read("sys/class/infiniband/mlx5_1/fw_ver"), "28.43.1014\n");
    }

    #[test]
    fn data_direct_devices_are_functions_beside_their_devices() {
        let base = tempfile::tempdir().unwrap();
        let with = |faults| Settings { faults, ..settings(2, LinkLayer::Ethernet) };
        let slot = "sys/bus/pci/devices/7000:02:00.1";
        assert!(!install(base.path(), &with(Vec::new())).unwrap().join(slot).exists());
        let root = install(base.path(), &with(vec![Fault::DataDirect])).unwrap();
        assert_eq!(std::fs::read_to_string(root.join(slot).join("device")).unwrap(), "0x2100\n");
        let folder = root.join(slot).canonicalize().unwrap();
        assert!(folder.with_file_name("7000:02:00.0").is_dir());
    }

    #[test]
    fn devices_are_beside_gpus() {
        let switch = "sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0";
        let beside = |switch: Option<&str>, numa_node: &str| Neighborhood {
            switch: switch.map(str::to_owned),
            numa_node: numa_node.to_owned(),
            cpus: Cpus::default(),
        };
        let gpus = [beside(switch.strip_prefix("sys/"), "1"), beside(None, "0")];
        let tree = tree(&settings(3, LinkLayer::Ethernet), &gpus, &beside(None, "-1"));
        let numa_node = |device: &str| match &tree[&format!("{device}/numa_node")] {
            Entry::File(line) => line.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(numa_node(&format!("{switch}/7000:00:01.0/7000:01:00.0")), "1");
        assert_eq!(numa_node("sys/devices/pci7000:00/7000:00:02.0/7000:02:00.0"), "0");
        assert_eq!(numa_node(&format!("{switch}/7000:00:03.0/7000:03:00.0")), "1");
    }

    #[test]
    fn folders_of_the_machine_list_their_own_entries_too() {
        let base = tempfile::tempdir().unwrap();
        let machine = base.path();
        for folder in ["sys/class/net", "sys/class/infiniband/mlx4_0", "sys/devices/pci0000:00/0000:00:03.0"]
        {
            std::fs::create_dir_all(machine.join(folder)).unwrap();
        }
        std::fs::create_dir_all(machine.join("sys/bus/pci/devices")).unwrap();
        let target = "../../../devices/pci0000:00/0000:00:03.0";
        symlink(target, machine.join("sys/bus/pci/devices/0000:00:03.0")).unwrap();
        let mut tree = tree(&settings(1, LinkLayer::Ethernet), &[], &topology::anywhere(machine));
        list_machine(&mut tree, machine);
        let link = |path: &str| match &tree[path] {
            Entry::Link(target) => target.clone(),
            other => panic!("{other:?}"),
        };
        // Links of the machine are unchanged, and still resolve to the machine's files.
        assert_eq!(link("sys/bus/pci/devices/0000:00:03.0"), Path::new(target));
        assert_eq!(link("sys/devices/pci0000:00"), machine.join("sys/devices/pci0000:00"));
        assert_eq!(link("sys/class/net"), machine.join("sys/class/net"));
        assert!(tree.contains_key("sys/bus/pci/devices/7000:01:00.0"));
        assert!(!tree.keys().any(|path| path.contains("mlx4_0")), "RDMA devices of the machine are hidden");
    }

    #[test]
    fn concurrent_installs_succeed() {
        let base = tempfile::tempdir().unwrap();
        let roots: Vec<_> = std::thread::scope(|scope| {
            let install = || install(base.path(), &settings(1, LinkLayer::InfiniBand)).unwrap();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(install)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(roots.iter().all(|root| *root == roots[0]));
        assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 1);
        assert_ne!(install(base.path(), &settings(1, LinkLayer::Ethernet)).unwrap(), roots[0]);
    }
}
