//! Checks of NICs: models, device nodes, ports, links and addresses.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

use super::check::{Check, Finding, Verdict};
use super::host::Host;
use super::interfaces::Interfaces;
use super::{Needs, pci};

pub(super) static DEVICE: Check = Check {
    id: "N1",
    about: "ConnectX",
    why: "Kernels drive ConnectX NICs. Without one, the software ConnectX carries all traffic that is not P2P.",
};
pub(super) static BUILD: Check = Check {
    id: "N2",
    about: "support in this build",
    why: "The feature `rdma` drives ConnectX NICs through libibverbs and libmlx5, which are loaded when they are needed.",
};
pub(super) static NODE: Check =
    Check { id: "N3", about: "device node", why: "A process drives a NIC through /dev/infiniband/uverbs*." };
pub(super) static PORT: Check =
    Check { id: "N4", about: "port", why: "Only an active port carries traffic." };
pub(super) static ADDRESS: Check = Check {
    id: "N5",
    about: "RoCE v2 address",
    why: "The GID of a port addresses a peer. On Ethernet it comes from an IP address of the port's interface.",
};
pub(super) static MTU: Check = Check {
    id: "N6",
    about: "MTU",
    why: "RDMA packets of 4096 bytes need an Ethernet MTU of 4200. A smaller MTU needs more packets for the same data.",
};
pub(super) static FUNCTION: Check = Check {
    id: "N7",
    about: "function",
    why: "A virtual function may lack atomics, doorbell pages or GPUDirect. The probe tests them.",
};
pub(super) static COUNTERS: Check = Check {
    id: "N8",
    about: "errors so far",
    why: "Lost, reordered or retransmitted packets slow a job down, or end it.",
};

/// Folder of sysfs with all RDMA devices.
const DEVICES: &str = "/sys/class/infiniband";

/// PCI device IDs of ConnectX and BlueField NICs (vendor 15b3), with the names of the models.
const MODELS: [(u64, &str); 23] = [
    (0x1013, "ConnectX-4"),
    (0x1014, "ConnectX-4, virtual function"),
    (0x1015, "ConnectX-4 Lx"),
    (0x1016, "ConnectX-4 Lx, virtual function"),
    (0x1017, "ConnectX-5"),
    (0x1018, "ConnectX-5, virtual function"),
    (0x1019, "ConnectX-5 Ex"),
    (0x101a, "ConnectX-5 Ex, virtual function"),
    (0x101b, "ConnectX-6"),
    (0x101c, "ConnectX-6, virtual function"),
    (0x101d, "ConnectX-6 Dx"),
    (0x101e, "ConnectX, virtual function"),
    (0x101f, "ConnectX-6 Lx"),
    (0x1021, "ConnectX-7"),
    (0x1023, "ConnectX-8"),
    (0x1025, "ConnectX-9"),
    (0x1027, "ConnectX-10"),
    (0xa2d2, "BlueField"),
    (0xa2d3, "BlueField, virtual function"),
    (0xa2d6, "BlueField-2"),
    (0xa2dc, "BlueField-3"),
    (0xa2df, "BlueField-4"),
    (0x2101, "ConnectX-10 (NVLink-C2C)"),
];

/// Range of the device IDs of ConnectX-4 models, which lack atomic operations that kernels use.
const TOO_OLD: std::ops::RangeInclusive<u64> = 0x1013..=0x1016;

/// Error counters of a port, relative to `ports/N`.
const ERRORS: [&str; 7] = [
    "hw_counters/out_of_sequence",
    "hw_counters/packet_seq_err",
    "hw_counters/local_ack_timeout_err",
    "hw_counters/rnr_nak_retry_err",
    "hw_counters/roce_adp_retrans",
    "counters/symbol_error",
    "counters/link_downed",
];

#[derive(Debug)]
pub(super) struct Device {
    /// Name of the device in sysfs, such as `mlx5_0`.
    pub(super) name: String,
    /// PCI address of the device, if it is on PCIe.
    pub(super) address: Option<String>,
    vendor: Option<u64>,
    model: Option<u64>,
}

impl Device {
    pub(super) fn is_connectx(&self) -> bool {
        self.vendor == Some(pci::MELLANOX)
    }

    /// Returns a description, such as `mlx5_0 ConnectX-7, firmware 28.39.1002`.
    pub(super) fn describe(&self, host: &Host) -> String {
        let model =
            self.model.filter(|_| self.is_connectx()).map_or_else(|| "not a ConnectX".into(), name_of);
        let firmware =
            host.text(&self.path("fw_ver")).map_or(String::new(), |version| format!(", firmware {version}"));
        format!("{} {model}{firmware}", self.name)
    }

    fn path(&self, rest: &str) -> String {
        format!("{DEVICES}/{}/{rest}", self.name)
    }
}

/// Returns the RDMA devices that the kernel knows.
pub(super) fn devices(host: &Host) -> Vec<Device> {
    let look = |name: String| {
        let file = |rest: &str| format!("{DEVICES}/{name}/device/{rest}");
        let place = host.follow(&format!("{DEVICES}/{name}/device")).ok();
        let address = place.and_then(|place| Some(place.file_name()?.to_str()?.to_owned()));
        let (vendor, model) = (host.number(&file("vendor")), host.number(&file("device")));
        Device { address: address.filter(|_| vendor.is_some()), vendor, model, name }
    };
    host.names(DEVICES).unwrap_or_default().into_iter().map(look).collect()
}

pub(super) fn check(host: &Host, needs: &Needs) -> Vec<Finding> {
    let devices = devices(host);
    let mut checks = present(host, needs, &devices);
    let checked = connectx(host, devices);
    let has_usable = checked.iter().any(|nic| nic.usable_link().is_some());
    for nic in checked {
        let of_ports = nic.ports.into_iter().flat_map(|port| port.findings);
        let findings = nic.findings.into_iter().chain(of_ports);
        checks.extend(findings.map(|finding| if has_usable { unused(finding) } else { finding }));
    }
    checks
}

/// Returns the MTUs of the interfaces of NICs that a job can use.
pub(super) fn mtus(host: &Host) -> BTreeSet<String> {
    let of_nic = |nic: Device| {
        let folder = nic.path("device/net");
        let names = host.names(&folder).unwrap_or_default();
        names.into_iter().filter_map(move |name| host.text(&format!("{folder}/{name}/mtu")).ok())
    };
    candidates(host).into_iter().flat_map(of_nic).collect()
}

/// Returns the partition keys of NICs that a job can use.
pub(super) fn partitions(host: &Host) -> BTreeSet<String> {
    let keys = ports(host).flat_map(|port| {
        let folder = format!("{port}/pkeys");
        let names = host.names(&folder).unwrap_or_default();
        names.into_iter().filter_map(move |index| host.text(&format!("{folder}/{index}")).ok())
    });
    keys.filter(|key| key != "0x0000").collect()
}

/// Returns the subnet prefixes of InfiniBand NICs that a job can use: the first 64 bits of their GIDs.
pub(super) fn subnets(host: &Host) -> BTreeSet<String> {
    let is_infiniband =
        |port: &String| host.text(&format!("{port}/link_layer")).is_ok_and(|link| link == "InfiniBand");
    let prefix = |port: String| host.text(&format!("{port}/gids/0")).ok()?.get(..19).map(str::to_owned);
    ports(host).filter(is_infiniband).filter_map(prefix).collect()
}

/// Returns the sysfs folders of the ports of NICs that a job can use.
fn ports(host: &Host) -> impl Iterator<Item = String> {
    candidates(host).into_iter().flat_map(|nic| {
        let folder = nic.path("ports");
        let numbers = host.names(&folder).unwrap_or_default();
        numbers.into_iter().map(move |number| format!("{folder}/{number}"))
    })
}

/// Reads what no check uses and a report should have: tables of all ports, and versions of firmware and modules.
pub(super) fn read_further(host: &Host) {
    for device in devices(host) {
        for name in ["fw_ver", "board_id", "hca_type", "device/subsystem_device"] {
            let _ = host.text(&device.path(name));
        }
        for number in host.names(&device.path("ports")).unwrap_or_default() {
            let port =
                Port { host, own: None, of: String::new(), path: device.path(&format!("ports/{number}")) };
            for name in ["lid", "sm_lid", "sm_sl", "lid_mask_count", "cap_mask"] {
                port.text(name);
            }
            port.gids();
            port.errors();
        }
    }
    partitions(host);
    for module in ["mlx5_core", "mlx5_ib", "ib_core", "ib_uverbs", "nvidia", "nvidia_peermem"] {
        for name in ["version", "srcversion"] {
            let _ = host.text(&format!("/sys/module/{module}/{name}"));
        }
    }
}

/// Returns the NICs that a job can use: those with an active port on the link layer that most of them have. Returns all
/// if a job can use none.
pub(super) fn candidates(host: &Host) -> Vec<Device> {
    let checked = connectx(host, devices(host));
    let links: Vec<_> = checked.iter().filter_map(CheckedNic::usable_link).collect();
    let ethernet = links.iter().filter(|&&link| link == Link::Ethernet).count();
    let most = match links.len() {
        0 => None,
        all if all - ethernet >= ethernet => Some(Link::InfiniBand),
        _ => Some(Link::Ethernet),
    };
    let is_candidate = |nic: &CheckedNic| most.is_none() || nic.usable_link() == most;
    checked.into_iter().filter(is_candidate).map(|nic| nic.device).collect()
}

fn connectx(host: &Host, devices: Vec<Device>) -> Vec<CheckedNic> {
    let own = Interfaces::of(host);
    let connectx = devices.into_iter().filter(Device::is_connectx);
    connectx.map(|device| CheckedNic::new(host, device, own.as_ref())).collect()
}

/// A NIC with the findings about it and about each of its ports.
struct CheckedNic {
    device: Device,
    findings: Vec<Finding>,
    ports: Vec<CheckedPort>,
}

struct CheckedPort {
    link: Link,
    findings: Vec<Finding>,
}

impl CheckedNic {
    fn new(host: &Host, device: Device, own: Option<&Interfaces>) -> CheckedNic {
        let mut findings = vec![model(&device), node(host, &device)];
        findings.extend(function(host, &device));
        let check = |number: String| {
            let port = Port {
                host,
                own,
                of: format!("{} port {number}", device.name),
                path: device.path(&format!("ports/{number}")),
            };
            CheckedPort { link: port.link(), findings: port.check(&device.path("device/net")) }
        };
        let ports = host.names(&device.path("ports")).unwrap_or_default().into_iter().map(check).collect();
        CheckedNic { device, findings, ports }
    }

    /// Returns the link layer of the first port by which a job can use the NIC, or `None` if it cannot.
    fn usable_link(&self) -> Option<Link> {
        let is_open =
            |findings: &[Finding]| !findings.iter().any(|finding| finding.verdict == Verdict::Blocks);
        let port = self.ports.iter().find(|port| is_open(&port.findings))?;
        is_open(&self.findings).then_some(port.link)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Link {
    Ethernet,
    InfiniBand,
}

/// Turns the finding that a NIC or port cannot be used into a note, for a machine with others that can: servers have
/// ports without a cable, and containers see the NICs of other containers.
fn unused(finding: Finding) -> Finding {
    match finding.verdict {
        Verdict::Blocks => finding.check.note(finding.of, format!("not used: {}", finding.found)),
        _ => finding,
    }
}

/// Checks whether there is a ConnectX, and whether this build can drive it.
fn present(host: &Host, needs: &Needs, devices: &[Device]) -> Vec<Finding> {
    let mut checks = Vec::new();
    let on_bus = pci::nics(host);
    for device in devices.iter().filter(|device| !device.is_connectx()) {
        let found = "not a ConnectX; Rushmem uses the software ConnectX instead";
        checks.push(DEVICE.note(&device.name, found));
    }
    if !devices.iter().any(Device::is_connectx) {
        if on_bus.is_empty() {
            checks.push(DEVICE.note("", "none on PCIe; jobs use the software ConnectX"));
        }
        for function in on_bus {
            let found =
                format!("{} is on PCIe, but the kernel has no RDMA device for it", name_of(function.device));
            let remedy =
                "modprobe mlx5_ib; in a container, pass in /dev/infiniband and the RDMA network namespace";
            checks.push(DEVICE.bad(function.address, Verdict::Blocks, found, remedy));
        }
    } else if needs.rdma && !host.drives_rdma {
        let found = "this build cannot drive ConnectX NICs";
        checks.push(BUILD.bad(
            "",
            Verdict::Blocks,
            found,
            "build with cargo build --release --features rdma; see docs/rdma.md",
        ));
    }
    checks
}

fn name_of(model: u64) -> String {
    let known = MODELS.iter().find(|(number, _)| *number == model);
    known.map_or_else(|| format!("unknown device 15b3:{model:04x}"), |(_, name)| (*name).to_owned())
}

fn model(device: &Device) -> Finding {
    let Some(number) = device.model else {
        return DEVICE.unknown(&device.name, "sysfs does not report its model");
    };
    let at = device.address.as_deref().unwrap_or("not on PCIe");
    let found = format!("{} ({at})", name_of(number));
    if TOO_OLD.contains(&number) {
        let remedy = "use a ConnectX-5 or newer, or RUSHMEM_NIC=soft";
        return DEVICE.bad(&device.name, Verdict::Blocks, format!("{found}: too old"), remedy);
    }
    DEVICE.good(&device.name, found)
}

fn node(host: &Host, device: &Device) -> Finding {
    let class = "/sys/class/infiniband_verbs";
    let names = host.names(class).unwrap_or_default();
    let is_its =
        |name: &&String| host.text(&format!("{class}/{name}/ibdev")).is_ok_and(|ibdev| ibdev == device.name);
    let Some(uverbs) = names.iter().find(is_its) else {
        let found = format!("none: {class} lists no entry for it");
        return NODE.bad(
            &device.name,
            Verdict::Blocks,
            found,
            "modprobe ib_uverbs; in a container, mount /sys",
        );
    };
    let path = format!("/dev/infiniband/{uverbs}");
    match host.opens(&path) {
        Ok(()) => NODE.good(&device.name, path),
        Err(why) => {
            let remedy = match why.0 {
                libc::EACCES => "let this user read and write it, by its group or a udev rule",
                libc::EPERM => {
                    "the container's device rules forbid it; pass the device in (--device /dev/infiniband)"
                }
                _ => "pass it into the container (--device /dev/infiniband), or load ib_uverbs",
            };
            NODE.bad(&device.name, Verdict::Blocks, format!("{path}: {why}"), remedy)
        }
    }
}

fn function(host: &Host, device: &Device) -> Option<Finding> {
    // Only the host sees the physical function. A virtual machine knows the model.
    let is_virtual = device.model.is_some_and(|model| name_of(model).ends_with("virtual function"));
    if is_virtual || host.follow(&device.path("device/physfn")).is_ok() {
        let found = "a virtual function; if P5 fails, use the physical function, or RUSHMEM_NIC=soft";
        return Some(FUNCTION.note(&device.name, found));
    }
    device.name.starts_with("mlx5_bond").then(|| {
        FUNCTION.note(&device.name, "two ports bonded into one device; each queue pair uses one of them")
    })
}

struct Port<'a> {
    host: &'a Host,
    /// The interfaces of this network namespace, if they are known.
    own: Option<&'a Interfaces>,
    /// Name of the port in findings, such as `mlx5_0 port 1`.
    of: String,
    path: String,
}

impl Port<'_> {
    fn text(&self, name: &str) -> Option<String> {
        self.host.text(&format!("{}/{name}", self.path)).ok()
    }

    /// Returns the name in a state file: `ACTIVE` for `4: ACTIVE`.
    fn word(&self, name: &str) -> Option<String> {
        let text = self.text(name)?;
        Some(text.split_once(": ").map_or(text.as_str(), |(_, word)| word).to_owned())
    }

    fn link(&self) -> Link {
        match self.text("link_layer").as_deref() {
            Some("Ethernet") => Link::Ethernet,
            _ => Link::InfiniBand,
        }
    }

    fn check(&self, interfaces: &str) -> Vec<Finding> {
        let ethernet = self.link() == Link::Ethernet;
        let mut checks = vec![self.state(ethernet)];
        if checks[0].verdict != Verdict::Blocks {
            if ethernet {
                checks.push(self.address());
                checks.extend(self.mtu(interfaces));
            }
            checks.push(self.errors());
        }
        checks
    }

    fn state(&self, ethernet: bool) -> Finding {
        let Some(state) = self.word("state") else {
            return PORT.unknown(&self.of, "sysfs does not report its state");
        };
        let link = if ethernet { "Ethernet" } else { "InfiniBand" };
        let rate = self.text("rate").unwrap_or_else(|| "of unknown rate".into());
        let found = format!("{state}, {link}, {rate}");
        let no_manager = !ethernet && self.text("sm_lid").is_some_and(|lid| matches!(&*lid, "0x0" | "0"));
        match (&*state, no_manager) {
            ("ACTIVE", false) => PORT.good(&self.of, found),
            ("INIT" | "ACTIVE", _) => {
                PORT.bad(&self.of, Verdict::Blocks, found, "start a subnet manager (opensm) on its network")
            }
            _ => {
                let physical = self.word("phys_state").unwrap_or_default();
                let remedy = "connect its cable and bring its interface up (ip link set ... up); mlxlink shows details";
                PORT.bad(&self.of, Verdict::Blocks, format!("{found}, {physical}"), remedy)
            }
        }
    }

    fn address(&self) -> Finding {
        let gids = self.gids();
        let routable: Vec<_> =
            gids.iter().filter(|gid| gid.is_v2 && !gid.address.is_unicast_link_local()).collect();
        if gids.is_empty() {
            return ADDRESS.unknown(&self.of, "sysfs lists none");
        }
        let list = |gids: &[&Gid]| gids.iter().map(|gid| gid.to_string()).collect::<Vec<_>>().join(", ");
        let is_own = |gid: &&&Gid| self.own.is_none_or(|own| own.own(gid.address, &gid.interface));
        let fit: Vec<_> = routable.iter().copied().filter(|gid| is_own(&gid)).collect();
        if !fit.is_empty() {
            return ADDRESS.good(&self.of, list(&fit));
        }
        if !routable.is_empty() {
            let found = format!("none of this network namespace: {}", list(&routable));
            let remedy = "give this container an interface of the port with an IP address (SR-IOV, macvlan), or the host's network";
            return ADDRESS.bad(&self.of, Verdict::Blocks, found, remedy);
        }
        let found =
            format!("none that is routable beyond its own link: {}", list(&gids.iter().collect::<Vec<_>>()));
        let remedy = "give the port's interface an IP address (ip addr add), and check that RoCE v2 is on";
        ADDRESS.bad(&self.of, Verdict::Blocks, found, remedy)
    }

    fn gids(&self) -> Vec<Gid> {
        let look = |index: String| {
            let address: Ipv6Addr = self.text(&format!("gids/{index}"))?.parse().ok()?;
            // Reading the type of an empty table entry fails.
            let kind = self.text(&format!("gid_attrs/types/{index}"))?;
            let interface = self.text(&format!("gid_attrs/ndevs/{index}")).unwrap_or_default();
            let gid = Gid { index, address, is_v2: kind.contains("v2"), interface };
            (!address.is_unspecified()).then_some(gid)
        };
        let indices = self.host.names(&format!("{}/gids", self.path)).unwrap_or_default();
        let mut gids: Vec<_> = indices.into_iter().filter_map(look).collect();
        gids.sort_by_key(|gid| gid.index.parse::<u32>().unwrap_or(u32::MAX));
        gids
    }

    fn mtu(&self, interfaces: &str) -> Vec<Finding> {
        let names = self.host.names(interfaces).unwrap_or_default();
        let judge = |name: String| {
            let mtu = self.host.number(&format!("{interfaces}/{name}/mtu"))?;
            let found = format!("{mtu} on {name}");
            if mtu >= 4200 {
                return Some(MTU.good(&self.of, found));
            }
            let remedy =
                format!("run ip link set {name} mtu 9000 on all nodes, and set the same MTU on the switches");
            Some(MTU.bad(&self.of, Verdict::Slow, found, remedy))
        };
        names.into_iter().filter_map(judge).collect()
    }

    fn errors(&self) -> Finding {
        let count = |name: &&'static str| Some((*name, self.host.number(&format!("{}/{name}", self.path))?));
        let counters: Vec<_> = ERRORS.iter().filter_map(count).collect();
        if counters.is_empty() {
            return COUNTERS.unknown(&self.of, "sysfs has no error counters for it");
        }
        let counts: Vec<_> = counters
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{} {count}", name.rsplit('/').next().unwrap_or(name)))
            .collect();
        match counts.is_empty() {
            true => COUNTERS.good(&self.of, "none counted"),
            // The counters have been running since boot, so errors may be old: this is just information.
            false => COUNTERS.note(
                &self.of,
                format!("{}; if they grow during a job, the fabric loses packets", counts.join(", ")),
            ),
        }
    }
}

/// An entry in the GID table of a port.
struct Gid {
    index: String,
    address: Ipv6Addr,
    is_v2: bool,
    interface: String,
}

impl std::fmt::Display for Gid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let version = if self.is_v2 { "v2" } else { "v1" };
        match self.address.to_ipv4_mapped() {
            Some(address) => write!(f, "{}: {address} {version}", self.index)?,
            None => write!(f, "{}: {} {version}", self.index, self.address)?,
        }
        if self.interface.is_empty() { Ok(()) } else { write!(f, " on {}", self.interface) }
    }
}
