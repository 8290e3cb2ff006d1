//! Tests of the checks with a healthy machine, and with the same machine after one change at a time.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use tempfile::TempDir;

use super::check::{Finding, Verdict};
use super::facts::Record;
use super::facts::{Driver, Gpu};
use super::host::Host;
use super::{CHECKS, examine, replay};
use rushmem::config::{Config, DeviceKind, HeapKind, Nic, RelaxedOrdering};
use rushmem::cuda::Attributes;

const GPU: &str = "0000:18:00.0";
const NIC: &str = "0000:19:00.0";
/// Path of a PCIe switch with two ports. The GPU is below the first port, and the NIC below the second.
const SWITCH: &str = "sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0";
const PORTS: [&str; 2] = ["0000:17:00.0", "0000:17:01.0"];

/// A test machine: a folder laid out like `/`, and canned answers of the CUDA driver.
struct TestMachine {
    root: TempDir,
    cuda: Result<Driver, String>,
    config: Config,
}

impl TestMachine {
    /// Creates a healthy machine with a GPU and a ConnectX-7 below one switch.
    fn server() -> TestMachine {
        let machine = TestMachine::laptop().with_driver();
        let (gpu, nic) = (format!("{SWITCH}/{}/{GPU}", PORTS[0]), format!("{SWITCH}/{}/{NIC}", PORTS[1]));
        machine.files(&gpu, &[("vendor", "0x10de"), ("device", "0x2335"), ("class", "0x030200")]);
        machine.files(&nic, &[("vendor", "0x15b3"), ("device", "0x1021"), ("class", "0x020000")]);
        for folder in [&gpu, &nic] {
            machine.files(folder, &[("numa_node", "0")]);
            machine.files(
                folder,
                &[("iommu_group/type", "identity"), ("resource", "0x0 0xffffff 0x0\n0x0 0x3fffffffff 0x0")],
            );
            machine.files(folder, &[("current_link_speed", "32.0 GT/s PCIe"), ("current_link_width", "16")]);
            machine.files(folder, &[("max_link_speed", "32.0 GT/s PCIe"), ("max_link_width", "16")]);
            let address = folder.rsplit('/').next().unwrap();
            machine.link(&format!("sys/bus/pci/devices/{address}"), folder);
        }
        let bridges = ["sys/devices/pci0000:15/0000:15:01.0".into(), SWITCH.into()];
        for bridge in bridges.into_iter().chain(PORTS.map(|port| format!("{SWITCH}/{port}"))) {
            machine.file(&format!("{bridge}/config"), acs(0));
            machine.link(&format!("sys/bus/pci/devices/{}", bridge.rsplit('/').next().unwrap()), &bridge);
        }
        machine.file("proc/self/mountinfo", "30 1 8:1 / / rw - ext4 /dev/sda1 rw\n");
        machine.files(
            "proc/driver/nvidia",
            &[("version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release")],
        );
        machine.files(
            "proc/driver/nvidia",
            &[("params", "EnableStreamMemOPs: 1\nRegistryDwords: \"PeerMappingOverride=1\"")],
        );
        machine.link("sys/class/infiniband/mlx5_0/device", &nic);
        machine.files("sys/class/infiniband_verbs/uverbs0", &[("ibdev", "mlx5_0")]);
        machine.file("dev/infiniband/uverbs0", "");
        machine.files(&nic, &[("net/eth2/mtu", "9000")]);
        let port = "sys/class/infiniband/mlx5_0/ports/1";
        machine.files(
            port,
            &[("state", "4: ACTIVE"), ("phys_state", "5: LinkUp"), ("rate", "400 Gb/sec (4X NDR)")],
        );
        machine.files(port, &[("link_layer", "Ethernet"), ("hw_counters/out_of_sequence", "0")]);
        machine.gid(0, "fe80:0000:0000:0000:0e42:a1ff:fe00:0001", "IB/RoCE v1");
        machine.gid(3, "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2");
        machine
    }

    /// Creates a machine without a GPU or a NIC.
    fn laptop() -> TestMachine {
        let root = tempfile::tempdir().unwrap();
        let machine =
            TestMachine { root, cuda: Err("no CUDA driver: not found".into()), config: Config::default() };
        machine.files("proc/sys/kernel", &[("osrelease", "6.8.0-45-generic")]);
        machine.file("proc/meminfo", "MemTotal: 65536000 kB\nMemAvailable: 32768000 kB\n");
        let limits =
            "Max open files  1048576  1048576  files\nMax locked memory  unlimited  unlimited  bytes\n";
        machine.files(
            "proc/self",
            &[("limits", limits), ("status", "CapEff:\t0000000000000000"), ("cgroup", "0::/job\n")],
        );
        machine.file("sys/fs/cgroup/job/rdma.max", "mlx5_0 hca_handle=max hca_object=max\n");
        std::fs::create_dir_all(machine.root.path().join("sys/bus/pci/devices")).unwrap();
        machine
    }

    fn with_driver(mut self) -> TestMachine {
        let gpus = vec![Gpu { ordinal: 0, address: GPU.into(), attributes: Attributes::sample() }];
        self.cuda = Ok(Driver { version: (13, 0), gpus });
        self
    }

    fn attributes(mut self, change: impl Fn(&mut Attributes)) -> TestMachine {
        change(&mut self.cuda.as_mut().unwrap().gpus[0].attributes);
        self
    }

    fn file(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn files(&self, folder: &str, files: &[(&str, &str)]) {
        for (name, content) in files {
            self.file(&format!("{folder}/{name}"), format!("{content}\n"));
        }
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(self.root.path().join(target), path).unwrap();
    }

    fn gid(&self, index: u32, gid: &str, kind: &str) {
        let port = "sys/class/infiniband/mlx5_0/ports/1";
        self.files(port, &[(&format!("gids/{index}"), gid), (&format!("gid_attrs/types/{index}"), kind)]);
    }

    /// Replaces the contents of a file.
    fn with(self, path: &str, content: impl AsRef<[u8]>) -> TestMachine {
        self.file(path, content);
        self
    }

    fn without(self, path: &str) -> TestMachine {
        let path = self.root.path().join(path);
        if Path::new(&path).is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }
            .unwrap();
        self
    }

    fn checks(&self) -> Vec<Finding> {
        examine(&Host::below(self.root.path(), self.cuda.clone()), &self.config)
    }
}

/// Creates a configuration space with this Access Control Services control word.
fn acs(control: u8) -> Vec<u8> {
    let mut config = vec![0; 4096];
    config[0x100] = 0x0d;
    config[0x106] = control;
    config
}

/// Returns the findings worse than good, except that of the build (N2), which depends on features.
fn problems(checks: &[Finding]) -> Vec<(&'static str, Verdict)> {
    let rows = checks.iter().filter(|check| check.verdict > Verdict::Good && check.check.id != "N2");
    rows.map(|check| (check.check.id, check.verdict)).collect()
}

#[test]
fn healthy_machine_has_no_problems() {
    let checks = TestMachine::server().checks();
    assert_eq!(problems(&checks), [], "{checks:#?}");
    let all: BTreeSet<_> = checks.iter().map(|check| check.check.id).collect();
    for id in [
        "G1", "G2", "G3", "G4", "G5", "G6", "G7", "N1", "N3", "N4", "N5", "N6", "N8", "T1", "T2", "T3", "T4",
        "H1", "H5", "H6",
    ] {
        assert!(all.contains(id), "{id} is not checked");
    }
}

#[test]
fn each_mount_has_a_path_of_its_files() {
    let mounts = "30 1 8:1 / / rw - ext4 /dev/sda1 rw\n31 30 0:5 / /proc rw - proc proc rw\n\
                  32 30 0:9 / /tmp rw shared:3 - tmpfs none rw\n";
    let paths = |machine: &TestMachine| -> Vec<(String, String)> {
        let checks = machine.checks().into_iter().filter(|check| check.check.id == "H6");
        checks.map(|check| (check.of, check.found)).collect()
    };
    let machine = TestMachine::server().with("proc/self/mountinfo", mounts);
    let without = paths(&machine);
    assert_eq!(without.iter().map(|(mount, _)| &**mount).collect::<Vec<_>>(), ["/", "/tmp"]);
    assert!(without.iter().all(|(_, path)| path.starts_with("plain files: ")), "{without:?}");
    let mut machine = machine.with("sys/module/nvidia_fs/version", "2.26.6");
    let [(_, disk), (_, memory)] = &paths(&machine)[..] else { panic!("{without:?}") };
    assert!(disk.starts_with("cuFile ") && memory.starts_with("plain files "), "{disk}, {memory}");
    machine.config.set("storage", "plain").unwrap();
    assert!(paths(&machine).iter().all(|(_, path)| path.ends_with("by the setting storage")));
}

#[test]
fn nics_that_cannot_be_used_are_notes_beside_one_that_can() {
    let machine = TestMachine::server();
    let other = format!("{SWITCH}/{}/0000:1a:00.0", PORTS[1]);
    machine.files(&other, &[("vendor", "0x15b3"), ("device", "0x1021"), ("class", "0x020700")]);
    machine.link("sys/class/infiniband/mlx5_1/device", &other);
    let port = "sys/class/infiniband/mlx5_1/ports/1";
    machine.files(port, &[("state", "1: DOWN"), ("phys_state", "3: Disabled"), ("link_layer", "InfiniBand")]);
    // Neither its port nor its device node can be used.
    let checks = machine.checks();
    assert_eq!(problems(&checks), [("N3", Verdict::Note), ("N4", Verdict::Note)], "{checks:#?}");
    let alone = machine.with("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n").checks();
    let blocked = problems(&alone).iter().filter(|(_, verdict)| *verdict == Verdict::Blocks).count();
    assert_eq!(blocked, 3, "{alone:#?}");
}

#[test]
fn processes_may_share_a_gpu_under_mps() {
    let checks = crowded(true).checks();
    assert_eq!(problems(&checks), [], "{checks:#?}");
    assert!(checks.iter().any(|check| check.check.id == "G8"));
}

#[test]
fn native_kernels_do_not_share_a_gpu() {
    let mut machine = crowded(false);
    machine.config.device = DeviceKind::Native;
    assert!(!machine.checks().iter().any(|check| check.check.id == "G8"));
}

#[test]
fn machine_without_gpu_or_nic_has_no_problems() {
    let checks = TestMachine::laptop().checks();
    assert_eq!(problems(&checks), [("G1", Verdict::Note), ("N1", Verdict::Note)], "{checks:#?}");
}

/// Creates a machine with more processes than GPUs.
fn crowded(mps: bool) -> TestMachine {
    let mut machine = TestMachine::server().attributes(|a| a.mps = mps);
    machine.config.local_pes = std::num::NonZeroU32::new(9);
    machine
}

/// A test machine with one defect, and the problems that the checks must find.
struct Case {
    defect: &'static str,
    machine: TestMachine,
    problems: &'static [(&'static str, Verdict)],
    /// Text that the remedy must contain.
    remedy: &'static str,
}

impl Case {
    fn new(
        defect: &'static str,
        machine: TestMachine,
        problems: &'static [(&'static str, Verdict)],
        remedy: &'static str,
    ) -> Self {
        Self { defect, machine, problems, remedy }
    }
}

/// Creates a healthy server whose GPU has other attributes.
fn gpu_with(change: impl Fn(&mut Attributes)) -> TestMachine {
    TestMachine::server().attributes(change)
}

fn defects_of_gpus() -> Vec<Case> {
    use Verdict::{Blocks, Lesser, Note, Risk, Slow, Unknown};
    let mut no_driver = TestMachine::server();
    no_driver.cuda = Err("no CUDA driver: not found".into());
    let mut asks_for_gpu = TestMachine::laptop();
    asks_for_gpu.config.device = DeviceKind::Gpu;
    let mut large = TestMachine::server();
    large.config.heap_bytes.0 = 300 << 30;
    vec![
        Case::new("no driver", no_driver, &[("G1", Blocks)], "--gpus all"),
        Case::new("a GPU is asked for", asks_for_gpu, &[("G1", Blocks), ("N1", Note)], "install the driver"),
        Case::new("Volta", gpu_with(|a| a.compute_capability = (7, 0)), &[("G2", Blocks)], "Turing"),
        Case::new(
            "no descriptors",
            gpu_with(|a| a.virtual_memory_fds = false),
            &[("G3", Lesser)],
            "RUSHMEM_PES",
        ),
        Case::new(
            "no GPUDirect",
            gpu_with(|a| a.gpu_direct_rdma = false),
            &[("G4", Lesser)],
            "RUSHMEM_HEAP=host",
        ),
        Case::new(
            "a MIG instance",
            gpu_with(|a| a.name = "NVIDIA H100 80GB HBM3 MIG 1g.10gb".into()),
            &[("G9", Lesser)],
            "nvidia-smi -mig 0",
        ),
        Case::new(
            "a vGPU",
            gpu_with(|a| {
                a.name = "NVIDIA A40-48C".into();
                a.gpu_direct_rdma = false;
            }),
            &[("G9", Lesser), ("G4", Lesser)],
            "whole GPU",
        ),
        Case::new(
            "no dma-buf, proprietary modules",
            TestMachine::server()
                .attributes(|a| a.dma_buf = false)
                .with("proc/driver/nvidia/version", "NVIDIA x86_64 Kernel Module 550.1"),
            &[("G4", Blocks)],
            "open kernel modules",
        ),
        Case::new(
            "no dma-buf, open modules",
            gpu_with(|a| a.dma_buf = false),
            &[("G4", Blocks)],
            "update Linux",
        ),
        Case::new(
            "no order",
            gpu_with(|a| a.gpu_direct_rdma_writes_ordering = 0),
            &[("G5", Lesser)],
            "newer GPU",
        ),
        Case::new("a heap beyond the BAR", large, &[("G6", Risk)], "Above 4G"),
        Case::new(
            "no override",
            TestMachine::server().with("proc/driver/nvidia/params", "RegistryDwords: \"\""),
            &[("G7", Lesser)],
            "modprobe.d",
        ),
        Case::new("processes that take turns", crowded(false), &[("G8", Slow)], "nvidia-cuda-mps-control -d"),
        Case::new(
            "hidden parameters",
            TestMachine::server().without("proc/driver/nvidia/params"),
            &[("G7", Unknown)],
            "",
        ),
    ]
}

fn defects_of_nics() -> Vec<Case> {
    use Verdict::{Blocks, Note};
    let nic = &*format!("{SWITCH}/{}/{NIC}", PORTS[1]);
    vec![
        Case::new(
            "no RDMA modules",
            TestMachine::server().without("sys/class/infiniband").without("sys/class/infiniband_verbs"),
            &[("N1", Blocks)],
            "modprobe mlx5_ib",
        ),
        Case::new(
            "an old NIC",
            TestMachine::server().with(&format!("{nic}/device"), "0x1013\n"),
            &[("N1", Blocks)],
            "ConnectX-5",
        ),
        Case::new(
            "another vendor's NIC",
            TestMachine::laptop().with("sys/class/infiniband/efa_0/device/vendor", "0x1d0f\n"),
            &[("G1", Note), ("N1", Note), ("N1", Note)],
            "",
        ),
        Case::new(
            "no device node",
            TestMachine::server().without("dev/infiniband/uverbs0"),
            &[("N3", Blocks)],
            "--device /dev/infiniband",
        ),
        Case::new(
            "no uverbs",
            TestMachine::server().without("sys/class/infiniband_verbs"),
            &[("N3", Blocks)],
            "modprobe ib_uverbs",
        ),
    ]
}

fn defects_of_ports() -> Vec<Case> {
    use Verdict::{Blocks, Note, Slow};
    let nic = &*format!("{SWITCH}/{}/{NIC}", PORTS[1]);
    let at = |name: &str| format!("sys/class/infiniband/mlx5_0/ports/1/{name}");
    vec![
        Case::new(
            "no cable",
            TestMachine::server().with(&at("state"), "1: DOWN\n"),
            &[("N4", Blocks)],
            "cable",
        ),
        Case::new(
            "no subnet manager",
            TestMachine::server().with(&at("state"), "2: INIT\n").with(&at("link_layer"), "InfiniBand\n"),
            &[("N4", Blocks)],
            "opensm",
        ),
        Case::new(
            "no address",
            TestMachine::server().without(&at("gids/3")),
            &[("N5", Blocks)],
            "ip addr add",
        ),
        Case::new(
            "an address for RoCE v1 only",
            TestMachine::server().with(&at("gid_attrs/types/3"), "IB/RoCE v1\n"),
            &[("N5", Blocks)],
            "RoCE v2 is on",
        ),
        Case::new(
            "small packets",
            TestMachine::server().with(&format!("{nic}/net/eth2/mtu"), "1500\n"),
            &[("N6", Slow)],
            "mtu 9000",
        ),
        Case::new(
            "a virtual function",
            TestMachine::server().with(&format!("{nic}/physfn/vendor"), ""),
            &[("N7", Note)],
            "",
        ),
        Case::new(
            "lost packets",
            TestMachine::server().with(&at("hw_counters/out_of_sequence"), "12\n"),
            &[("N8", Note)],
            "",
        ),
    ]
}

fn defects_of_links() -> Vec<Case> {
    use Verdict::{Slow, Unknown};
    let nic = &*format!("{SWITCH}/{}/{NIC}", PORTS[1]);
    vec![
        Case::new(
            "a narrow link",
            TestMachine::server().with(&format!("{nic}/current_link_width"), "4\n"),
            &[("T2", Slow)],
            "reseat the card",
        ),
        Case::new(
            "an IOMMU that translates",
            TestMachine::server().with(&format!("{nic}/iommu_group/type"), "DMA-FQ\n"),
            &[("T3", Slow)],
            "iommu=pt",
        ),
        Case::new(
            "a switch that redirects",
            TestMachine::server().with(&format!("{SWITCH}/{}/config", PORTS[1]), acs(0x1d)),
            &[("T4", Slow)],
            "pci=disable_acs_redir=0000:17:01.0",
        ),
        Case::new(
            "a configuration space that only root may read",
            TestMachine::server().with(&format!("{SWITCH}/{}/config", PORTS[0]), vec![0; 64]),
            &[("T4", Unknown)],
            "",
        ),
    ]
}

fn defects_of_hosts() -> Vec<Case> {
    use Verdict::{Blocks, Note, Risk};
    let mut huge = TestMachine::laptop();
    huge.config.heap_bytes.0 = 64 << 30;
    let limits =
        |line: &str| format!("Max open files 1048576 1048576 files\nMax locked memory {line} bytes\n");
    vec![
        Case::new(
            "old Linux",
            TestMachine::server().with("proc/sys/kernel/osrelease", "5.4.0-1\n"),
            &[("H1", Risk)],
            "nvidia-peermem",
        ),
        Case::new("a huge heap", huge, &[("G1", Note), ("N1", Note), ("H2", Blocks)], "RUSHMEM_HEAP_BYTES"),
        Case::new(
            "a limit on locked memory",
            TestMachine::server().with("proc/self/limits", limits("65536 unlimited")),
            &[("H3", Blocks)],
            "ulimit -l unlimited",
        ),
        Case::new(
            "a hard limit on locked memory",
            TestMachine::server().with("proc/self/limits", limits("65536 65536")),
            &[("H3", Blocks)],
            "limits.conf",
        ),
        Case::new(
            "few files",
            TestMachine::laptop().with("proc/self/limits", "Max open files 256 4096 files\n"),
            &[("G1", Note), ("N1", Note), ("H4", Risk)],
            "ulimit -n",
        ),
        Case::new(
            "a container that may have few RDMA objects",
            TestMachine::server().with("sys/fs/cgroup/job/rdma.max", "mlx5_0 hca_handle=2 hca_object=max\n"),
            &[("H5", Risk)],
            "hca_handle",
        ),
    ]
}

fn cases() -> impl Iterator<Item = Case> {
    [defects_of_gpus(), defects_of_nics(), defects_of_ports(), defects_of_links(), defects_of_hosts()]
        .into_iter()
        .flatten()
}

#[test]
fn reports_exactly_the_defect() {
    for Case { defect, machine, problems: expected, remedy } in cases() {
        let checks = machine.checks();
        assert_eq!(problems(&checks), expected, "{defect}: {checks:#?}");
        let is_advised = checks.iter().any(|check| {
            check.verdict > Verdict::Good && check.remedy.as_deref().unwrap_or("").contains(remedy)
        });
        assert!(is_advised, "{defect}: no finding advises {remedy:?}");
    }
}

#[test]
fn link_is_compared_with_both_sides() {
    let (gpu, nic) = (format!("{SWITCH}/{}/{GPU}", PORTS[0]), format!("{SWITCH}/{}/{NIC}", PORTS[1]));
    // A card with 8 lanes in a slot with 16, a slot with 8 lanes, and a GPU whose idle link is slow.
    let port = format!("{SWITCH}/{}", PORTS[1]);
    let machine = TestMachine::server();
    machine.files(&nic, &[("current_link_speed", "16.0 GT/s PCIe"), ("current_link_width", "8")]);
    machine.files(&port, &[("max_link_speed", "16.0 GT/s PCIe"), ("max_link_width", "8")]);
    machine.files(&port, &[("current_link_speed", "16.0 GT/s PCIe"), ("current_link_width", "8")]);
    machine.files(&gpu, &[("current_link_speed", "2.5 GT/s PCIe"), ("current_link_width", "16")]);
    assert_eq!(problems(&machine.checks()), []);
    let machine = machine.with(&format!("{gpu}/current_link_width"), "8\n");
    let checks = machine.checks();
    assert_eq!(problems(&checks), [("T2", Verdict::Slow)]);
    let found = checks.iter().find(|check| check.verdict == Verdict::Slow).map(|check| &*check.found);
    assert_eq!(found, Some("0000:18:00.0 runs at 2.5 GT/s x8, and could run at 32 GT/s x16"));
}

#[test]
fn bridges_above_a_common_switch_are_ignored() {
    let machine = TestMachine::server().with(&format!("{SWITCH}/config"), acs(0x1d));
    assert_eq!(problems(&machine.checks()), []);
}

#[test]
fn distant_nic_is_slow() {
    let machine = TestMachine::server();
    let far = "sys/devices/pci0000:90/0000:90:00.0";
    machine.files(
        &format!("{far}/{NIC}"),
        &[("vendor", "0x15b3"), ("device", "0x1021"), ("class", "0x020000"), ("numa_node", "1")],
    );
    let machine = machine.without(&format!("sys/bus/pci/devices/{NIC}"));
    machine.link(&format!("sys/bus/pci/devices/{NIC}"), &format!("{far}/{NIC}"));
    let checks = machine.checks();
    let nearest = checks.iter().find(|check| check.check.id == "T1").unwrap();
    assert_eq!((nearest.verdict, &*nearest.found), (Verdict::Slow, "mlx5_0, elsewhere in the machine"));
}

#[test]
fn cap_ipc_lock_makes_the_limit_irrelevant() {
    let machine = TestMachine::server().with(
        "proc/self/limits",
        "Max open files 1048576 1048576 files\nMax locked memory 65536 65536 bytes\n",
    );
    let machine = machine.with("proc/self/status", "Name:\tx\nCapEff:\t0000000000004000\n");
    assert_eq!(problems(&machine.checks()), []);
}

#[test]
fn each_key_counts_the_heap_again() {
    let mut machine = TestMachine::server().with(
        "proc/self/limits",
        "Max open files 1048576 1048576 files\nMax locked memory 65536 65536 bytes\n",
    );
    machine.config.heap = HeapKind::Host;
    let heaps = u64::from(machine.config.pes_on_node()) * (machine.config.heap_bytes.0 >> 20);
    let mut needed = |relaxed, nics| {
        machine.config.relaxed_ordering = relaxed;
        machine.config.nics_per_pe = NonZeroU32::new(nics).unwrap();
        let checks = machine.checks();
        let found = &checks.iter().find(|check| check.check.id == "H3").unwrap().found;
        let mib = found.split_once("the job needs ").unwrap().1.split_once(" MiB").unwrap().0;
        mib.parse::<u64>().unwrap()
    };
    let one = needed(RelaxedOrdering::Off, 1);
    for (relaxed, nics, more) in [
        (RelaxedOrdering::Auto, 1, 0),
        (RelaxedOrdering::On, 1, 1),
        (RelaxedOrdering::Off, 2, 1),
        (RelaxedOrdering::Auto, 2, 3),
        (RelaxedOrdering::On, 2, 3),
    ] {
        assert_eq!(needed(relaxed, nics), one + more * heaps, "{relaxed:?}, {nics} NICs");
    }
}

#[test]
fn skips_checks_of_an_unused_connectx() {
    let mut machine = TestMachine::server()
        .with("proc/sys/kernel/osrelease", "5.4.0-1\n")
        .without("proc/driver/nvidia/params");
    machine.config.nic = Nic::Soft;
    assert_eq!(problems(&machine.checks()), []);
}

#[test]
fn distinguishes_forbidden_from_missing_device_nodes() {
    let machine = TestMachine::server();
    let host = Host::below(machine.root.path(), machine.cuda.clone());
    examine(&host, &machine.config);
    for (errno, remedy) in
        [(libc::EACCES, "udev"), (libc::EPERM, "device rules"), (libc::ENOENT, "pass it into")]
    {
        let mut record = host.record(&machine.config);
        *record.answers.get_mut("open /dev/infiniband/uverbs0").unwrap() = Err(errno);
        let checks = examine(&Host::of(record), &machine.config);
        assert_eq!(problems(&checks), [("N3", Verdict::Blocks)]);
        assert!(
            checks.iter().any(|check| check.remedy.as_ref().is_some_and(|text| text.contains(remedy))),
            "{remedy}"
        );
    }
}

#[test]
fn recorded_machine_has_the_same_findings() {
    for Case { defect, machine, .. } in cases() {
        let host = Host::below(machine.root.path(), machine.cuda.clone());
        let there = examine(&host, &machine.config);
        let text = serde_json::to_string(&host.record(&machine.config)).unwrap();
        let here = examine(&Host::of(serde_json::from_str(&text).unwrap()), &machine.config);
        assert_eq!(format!("{there:?}"), format!("{here:?}"), "{defect}");
    }
}

#[test]
fn every_check_is_listed_and_tested() {
    let mut left: BTreeSet<_> = CHECKS.iter().map(|check| check.id).collect();
    assert_eq!(left.len(), CHECKS.len(), "an id is given twice");
    for Case { machine, .. } in cases() {
        for check in machine.checks() {
            assert!(CHECKS.contains(&check.check), "{} is not listed", check.check.id);
            left.remove(check.check.id);
        }
    }
    // The checks of jobs need a running job, and that of the build a build without the feature.
    assert!(
        left.iter().all(|id| ["P1", "P2", "P3", "P4", "P5", "J1", "J2", "J3", "N2"].contains(id)),
        "no test machine reports {left:?}"
    );
}

static SERVER: LazyLock<Record> = LazyLock::new(|| {
    let machine = TestMachine::server();
    let host = Host::below(machine.root.path(), machine.cuda.clone());
    examine(&host, &machine.config);
    host.record(&machine.config)
});

/// Generates an answer that a machine might give, or that a saved file might contain.
fn answer() -> impl Strategy<Value = Result<Vec<String>, i32>> {
    let line = prop_oneof![
        "[ -~]{0,40}",
        "(0x)?[0-9a-f]{0,17}( 0x[0-9a-f]{0,17})?",
        "/sys/devices/(pci0000:15|0000:[0-9]{2}:00\\.0|/){0,4}",
        "([0-9]{1,4}\\.?[0-9]? GT/s|[0-9]: [A-Z]{1,6}|:: ?[a-f:]{0,9})",
        "\\PC{0,20}",
    ];
    let error = prop_oneof![Just(libc::ENOENT), Just(libc::EACCES), any::<i32>()];
    prop_oneof![3 => vec(line, 0..3).prop_map(Ok), 1 => error.prop_map(Err)]
}

proptest! {
    #[test]
    fn arbitrary_machines_can_be_checked(answers in vec((any::<Index>(), answer()), 1..12), heap: u64) {
        let mut record = SERVER.clone();
        let questions: Vec<_> = record.answers.keys().cloned().collect();
        record.answers.extend(answers.into_iter().map(|(at, answer)| (at.get(&questions).clone(), answer)));
        let mut config = Config::default();
        config.heap_bytes.0 = heap;
        for check in examine(&Host::of(record), &config) {
            prop_assert!(CHECKS.contains(&check.check));
        }
    }
}

#[test]
fn fuzz_corpus() {
    let record = |machine: &TestMachine| {
        let host = Host::below(machine.root.path(), machine.cuda.clone());
        examine(&host, &machine.config);
        let record = Record { drives_rdma: false, ..host.record(&machine.config) };
        let text = serde_json::to_string(&record).unwrap();
        text.replace(machine.root.path().to_str().unwrap(), "")
    };
    let machines = [record(&TestMachine::laptop()), record(&TestMachine::server())];
    rushmem_corpus::target!("../../host", "record").messages(machines).run(1000, |bytes| {
        if let Ok(record) = serde_json::from_slice(bytes) {
            let _ = replay(record);
        }
    });
}
