//! What lies between GPUs and NICs: PCIe, the IOMMU.

use super::check::{Check, Kind, Verdict};
use super::host::Host;
use super::{Needs, nic, pci};
use crate::provider::nearest::{Distance, Place, deal, distance};

pub(super) static NEAREST: Kind = Kind {
    id: "T1",
    about: "NIC of a PE on this GPU",
    why: "Traffic between GPU and NIC is fastest below one PCIe switch, and slow across processors.",
};
pub(super) static LINK: Kind = Kind {
    id: "T2",
    about: "PCIe link",
    why: "A link that came up narrower or slower than both ends could be bounds all that passes it.",
};
pub(super) static IOMMU: Kind = Kind {
    id: "T3",
    about: "IOMMU",
    why: "An IOMMU that translates sends all that goes between GPU and NIC through the processor, or stops it.",
};
pub(super) static ACS: Kind = Kind {
    id: "T4",
    about: "redirection by bridges (ACS)",
    why: "A PCIe switch that redirects requests sends what goes between the devices below it up to the processor.",
};

/// A GPU or a NIC, and where it is.
struct End {
    name: String,
    place: Place,
    /// Its PCI address, and those of the bridges above it, up to the root.
    way: Vec<String>,
    /// Its link may be slow while nothing passes.
    rests: bool,
}

impl End {
    fn new(host: &Host, name: String, address: &str, rests: bool) -> End {
        let folder = pci::folder(address);
        let node = host.text(&format!("{folder}/numa_node")).ok().and_then(|text| text.parse().ok());
        let place = Place { sysfs: host.place(&folder).unwrap_or_default(), node };
        let way = pci::way(host, address).ok().filter(|way| !way.is_empty());
        End { name, place, way: way.unwrap_or_else(|| vec![address.into()]), rests }
    }

    fn address(&self) -> &str {
        &self.way[0]
    }
}

pub(super) fn check(host: &Host, needs: &Needs) -> Vec<Check> {
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
    let nics: Vec<_> = nic::devices(host)
        .into_iter()
        .filter(nic::Device::is_connectx)
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

/// The NICs that a PE on each GPU would take, by the rule by which jobs deal them.
fn nearest(needs: &Needs, gpus: &[End], nics: &[End]) -> Vec<Check> {
    let from = |gpu: &End| nics.iter().map(|nic| distance(&gpu.place, &nic.place)).collect();
    let distances: Vec<Vec<Distance>> = gpus.iter().map(from).collect();
    let dealt = deal(&distances, needs.nics_per_pe);
    let judge = |i: usize| {
        // Others stand by.
        let mine =
            || dealt[i].iter().take(needs.nics_per_pe).map(|&nic| (&nics[nic].name, distances[i][nic]));
        let furthest = mine().map(|(_, far)| far).max()?;
        let told: Vec<_> = mine().map(|(name, far)| format!("{name}, {}", far.describe())).collect();
        let (gpu, found) = (&gpus[i].name, told.join("; "));
        if furthest < Distance::Node {
            return Some(NEAREST.good(gpu, found));
        }
        let advice = "move NIC and GPU below one PCIe switch or root, or take another pair with RUSHMEM_GPUS and RUSHMEM_NIC";
        Some(NEAREST.bad(gpu, Verdict::Slow, found, advice))
    };
    (0..gpus.len()).filter_map(judge).collect()
}

/// The links on the way from a device to the root, but for those that were seen before.
fn links(host: &Host, end: &End, seen: &mut Vec<String>) -> Option<Check> {
    // The function and the port above it are the two ends of a link, and so are the two bridges above, and so on.
    let new: Vec<_> = end.way.chunks(2).filter(|ends| !seen.contains(&ends[0])).collect();
    seen.extend(new.iter().map(|ends| ends[0].clone()));
    let links: Vec<_> = new.iter().filter_map(|ends| pci::link(host, ends)).collect();
    let less: Vec<_> = links.iter().filter(|link| link.is_less(end.rests)).map(ToString::to_string).collect();
    match (links.is_empty(), less.is_empty()) {
        (true, _) => None,
        (false, true) => Some(LINK.good(&end.name, "as wide and fast as both ends can")),
        (false, false) => {
            let advice =
                "seat the card anew, update firmware, or see whether the slot is made so (lspci -vv)";
            Some(LINK.bad(&end.name, Verdict::Slow, less.join("; "), advice))
        }
    }
}

fn iommu(host: &Host, end: &End) -> Check {
    let kind = host.text(&format!("{}/iommu_group/type", pci::folder(end.address())));
    match kind.as_deref() {
        Ok("identity") => IOMMU.good(&end.name, "passes addresses through"),
        Ok(kind) => {
            let advice = "iommu=pt on the kernel's command line, on x86; in a virtual machine it must stay, and the NIC needs ATS";
            IOMMU.bad(&end.name, Verdict::Slow, format!("translates ({kind})"), advice)
        }
        Err(why) if why.is_absent() => IOMMU.good(&end.name, "none"),
        Err(why) => IOMMU.unknown(&end.name, why.to_string()),
    }
}

/// What the bridges do with requests between a GPU and a NIC that are below one switch: those of them that only one of the two
/// is below. Further up, such requests need not come.
fn redirections(host: &Host, gpus: &[End], nics: &[End]) -> Option<Check> {
    let mut between: Vec<&String> = Vec::new();
    for (gpu, nic) in gpus.iter().flat_map(|gpu| nics.iter().map(move |nic| (gpu, nic))) {
        let (a, b) = (&gpu.way[1..], &nic.way[1..]);
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
            let advice = format!(
                "pci=disable_acs_redir={} on the kernel's command line; until the next start, as root, setpci -s BRIDGE ECAP_ACS+0x6.w=0000                  for each of them. In a virtual machine it must stay on",
                on.join(";")
            );
            ACS.bad("", Verdict::Slow, format!("on in {}", on.join(", ")), advice)
        }
        (true, 0) => ACS.good("", format!("off in all {} bridges between GPUs and NICs", between.len())),
        (true, hidden) => ACS.unknown("", format!("only root may see it ({hidden} bridges)")),
    })
}
