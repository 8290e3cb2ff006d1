//! Checks of the paths between GPUs and NICs: PCIe and the IOMMU.

use super::check::{Check, Finding, Verdict};
use super::host::Host;
use super::{Needs, nic, pci};
use rushmem::inspect::{AssignedNic, DeviceLocation, assign_nics};

pub(super) static NEAREST: Check = Check {
    id: "T1",
    about: "NIC of a PE on this GPU",
    why: "Traffic between a GPU and a NIC is fastest below one PCIe switch, and slow across processors.",
};
pub(super) static LINK: Check = Check {
    id: "T2",
    about: "PCIe link",
    why: "A link that is narrower or slower than both ends allow limits all traffic on it.",
};
pub(super) static IOMMU: Check = Check {
    id: "T3",
    about: "IOMMU",
    why: "A translating IOMMU sends all traffic between GPU and NIC through the processor, or blocks it.",
};
pub(super) static ACS: Check = Check {
    id: "T4",
    about: "redirection by bridges (ACS)",
    why: "A PCIe switch that redirects requests sends the traffic between its devices through the processor.",
};

/// A GPU or a NIC, and where it is connected.
struct End {
    name: String,
    location: DeviceLocation,
    /// PCI addresses of the device and of the bridges above it, up to the root.
    route: Vec<String>,
    /// Whether the PCIe link of the device slows down when idle.
    idles: bool,
}

impl End {
    fn new(host: &Host, name: String, address: &str, idles: bool) -> End {
        let folder = pci::folder(address);
        let numa_node = host.text(&format!("{folder}/numa_node")).ok().and_then(|text| text.parse().ok());
        let location = DeviceLocation { sysfs: host.follow(&folder).unwrap_or_default(), numa_node };
        let route = pci::route(host, address).ok().filter(|route| !route.is_empty());
        End { name, location, route: route.unwrap_or_else(|| vec![address.into()]), idles }
    }

    fn address(&self) -> &str {
        &self.route[0]
    }
}

pub(super) fn check(host: &Host, needs: &Needs) -> Vec<Finding> {
    if !needs.rdma {
        return Vec::new();
    }
    let gpus: Vec<_> = match &host.cuda {
        Ok(driver) => driver
            .gpus
            .iter()
            .map(|gpu| End::new(host, format!("GPU {}", gpu.ordinal), &gpu.address, true))
            .collect(),
        Err(_) => Vec::new(),
    };
    let nics: Vec<_> = nic::candidates(host)
        .into_iter()
        .filter_map(|device| Some(End::new(host, device.name, &device.address?, false)))
        .collect();
    let mut checks = nearest(needs, &gpus, &nics);
    let mut seen = Vec::new();
    for end in gpus.iter().chain(&nics) {
        checks.extend(links(host, end, &mut seen));
        checks.push(iommu(host, end));
    }
    checks.extend(redirections(host, &gpus, &nics));
    checks
}

/// Checks the NICs that a job would assign to a PE on each GPU.
fn nearest(needs: &Needs, gpus: &[End], nics: &[End]) -> Vec<Finding> {
    let locations = |ends: &[End]| ends.iter().map(|end| end.location.clone()).collect::<Vec<_>>();
    let assigned = assign_nics(&locations(gpus), &locations(nics), needs.nics_per_pe);
    let judge = |(gpu, mine): (&End, &Vec<AssignedNic>)| {
        let list: Vec<_> =
            mine.iter().map(|nic| format!("{}, {}", nics[nic.index].name, nic.distance)).collect();
        let found = list.join("; ");
        if mine.iter().all(|nic| nic.is_local) {
            return NEAREST.good(&gpu.name, found);
        }
        let remedy = "move NIC and GPU below one PCIe switch or root, or select another pair with RUSHMEM_GPUS and RUSHMEM_NIC";
        NEAREST.bad(&gpu.name, Verdict::Slow, found, remedy)
    };
    gpus.iter().zip(&assigned).filter(|(_, mine)| !mine.is_empty()).map(judge).collect()
}

/// Checks the links from a device to the root, skipping those that were checked before.
fn links(host: &Host, end: &End, seen: &mut Vec<String>) -> Option<Finding> {
    // A function and the port above it share a link, and so do the next two bridges.
    let new: Vec<_> = end.route.chunks(2).filter(|ends| !seen.contains(&ends[0])).collect();
    seen.extend(new.iter().map(|ends| ends[0].clone()));
    let links: Vec<_> = new.iter().filter_map(|ends| pci::link(host, ends)).collect();
    let degraded: Vec<_> =
        links.iter().filter(|link| link.is_degraded(end.idles)).map(ToString::to_string).collect();
    match (links.is_empty(), degraded.is_empty()) {
        (true, _) => None,
        (false, true) => Some(LINK.good(&end.name, "as wide and fast as both ends allow")),
        (false, false) => {
            let remedy = "reseat the card, update its firmware, or check the limits of the slot (lspci -vv)";
            Some(LINK.bad(&end.name, Verdict::Slow, degraded.join("; "), remedy))
        }
    }
}

fn iommu(host: &Host, end: &End) -> Finding {
    let kind = host.text(&format!("{}/iommu_group/type", pci::folder(end.address())));
    match kind.as_deref() {
        Ok("identity") => IOMMU.good(&end.name, "passes addresses through"),
        Ok(kind) => {
            let remedy = "on x86, set iommu=pt on the kernel's command line; a virtual machine needs the IOMMU, and ATS on the NIC";
            IOMMU.bad(&end.name, Verdict::Slow, format!("translates ({kind})"), remedy)
        }
        Err(why) if why.is_absent() => IOMMU.good(&end.name, "none"),
        Err(why) => IOMMU.unknown(&end.name, why.to_string()),
    }
}

/// Checks whether bridges redirect requests between a GPU and a NIC below the same switch.
///
/// Only bridges above just one of the two devices matter, since requests do not reach those above both.
fn redirections(host: &Host, gpus: &[End], nics: &[End]) -> Option<Finding> {
    let mut between: Vec<&String> = Vec::new();
    for (gpu, nic) in gpus.iter().flat_map(|gpu| nics.iter().map(move |nic| (gpu, nic))) {
        let (a, b) = (&gpu.route[1..], &nic.route[1..]);
        if a.iter().any(|bridge| b.contains(bridge)) {
            between.extend(a.iter().filter(|bridge| !b.contains(bridge)));
            between.extend(b.iter().filter(|bridge| !a.contains(bridge)));
        }
    }
    between.sort();
    between.dedup();
    if between.is_empty() {
        return None;
    }
    let states: Vec<_> =
        between.iter().map(|bridge| (bridge.as_str(), pci::redirects(host, bridge))).collect();
    let on: Vec<_> = states.iter().filter(|(_, on)| *on == Some(true)).map(|(bridge, _)| *bridge).collect();
    let hidden = states.iter().filter(|(_, on)| on.is_none()).count();
    Some(match (on.is_empty(), hidden) {
        (false, _) => {
            let remedy = format!(
                "set pci=disable_acs_redir={} on the kernel's command line; until the next boot, run as root setpci -s BRIDGE \
                 ECAP_ACS+0x6.w=0000 for each bridge. A virtual machine needs the redirection",
                on.join(";")
            );
            ACS.bad("", Verdict::Slow, format!("on in {}", on.join(", ")), remedy)
        }
        (true, 0) => ACS.good("", format!("off in all {} bridges between GPUs and NICs", between.len())),
        (true, hidden) => ACS.unknown("", format!("only root can read it ({hidden} bridges)")),
    })
}
