//! Reads PCIe functions, their links and the bridges above them from sysfs.

use std::fmt;
use std::path::PathBuf;

use super::host::{Host, Refused};

/// Folder of sysfs with all PCI functions.
const DEVICES: &str = "/sys/bus/pci/devices";
/// PCI vendor ID of NVIDIA GPUs.
pub(super) const NVIDIA: u64 = 0x10de;
pub(super) const MELLANOX: u64 = 0x15b3;
/// PCI class codes of VGA and 3D controllers, without the programming interface.
const DISPLAYS: [u64; 2] = [0x0300, 0x0302];
const NETWORKS: [u64; 2] = [0x0200, 0x0207];

/// ID of the extended PCI capability Access Control Services. Its control word has bits that redirect requests and
/// completions between peers to the root complex.
const ACS: u16 = 0x000d;
const ACS_CONTROL: usize = 6;
const ACS_REDIRECTS: u16 = 0x4 | 0x8;
/// Offset of the extended capabilities in the PCI configuration space, of which only root can read this part.
const EXTENDED: usize = 0x100;

/// A PCIe function, such as `0000:3b:00.0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) address: String,
    pub(super) device: u64,
}

/// Returns the GPUs on PCIe, with or without a driver.
pub(super) fn gpus(host: &Host) -> Vec<Function> {
    functions(host, NVIDIA, &DISPLAYS)
}

/// Returns the ConnectX and BlueField ports on PCIe, with or without a driver.
pub(super) fn nics(host: &Host) -> Vec<Function> {
    functions(host, MELLANOX, &NETWORKS)
}

fn functions(host: &Host, vendor: u64, classes: &[u64]) -> Vec<Function> {
    let look = |address: String| {
        let number = |name: &str| host.number(&format!("{DEVICES}/{address}/{name}"));
        let fits = number("vendor")? == vendor && classes.contains(&(number("class")? >> 8));
        if !fits {
            return None;
        }
        Some(Function { device: number("device")?, address })
    };
    host.names(DEVICES).unwrap_or_default().into_iter().filter_map(look).collect()
}

/// Returns the sysfs folder of the function with this address.
pub(super) fn folder(address: &str) -> String {
    format!("{DEVICES}/{address}")
}

/// Returns the addresses of the function and of the bridges above it, up to the root.
pub(super) fn route(host: &Host, address: &str) -> Result<Vec<String>, Refused> {
    let place: PathBuf = host.follow(&folder(address))?;
    let parts = place.iter().filter_map(|part| part.to_str());
    let mut route: Vec<_> = parts.filter(|part| is_address(part)).map(str::to_owned).collect();
    route.reverse();
    Ok(route)
}

/// Returns whether the text has the format `0000:3b:00.0`.
fn is_address(text: &str) -> bool {
    let mut parts = text.split([':', '.']);
    let lengths = [4, 2, 2, 1].map(|len| {
        parts
            .next()
            .is_some_and(|part| part.len() >= len && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
    });
    lengths == [true; 4] && parts.next().is_none()
}

/// A link between a function and the port above it.
#[derive(Debug)]
pub(super) struct Link {
    address: String,
    is: Lanes,
    /// Highest transfer rate and width that both sides of the link support.
    could: Lanes,
}

/// Transfer rate per lane in GT/s, and number of lanes.
#[derive(Clone, Copy, Debug)]
struct Lanes {
    speed: f64,
    width: u32,
}

impl Lanes {
    /// Reads the `current` or `max` speed and width of a function's link. Returns `None` for a function without a link.
    fn of(host: &Host, address: &str, which: &str) -> Option<Lanes> {
        let read = |name: &str| host.text(&format!("{}/{which}_link_{name}", folder(address))).ok();
        let speed = read("speed")?.split_whitespace().next()?.parse().ok()?;
        let width = read("width")?.parse().ok()?;
        (width > 0).then_some(Lanes { speed, width })
    }
}

/// Returns the link of the PCIe function at `ends[0]`. Its other side is the port above it, `ends[1]`, if given.
pub(super) fn link(host: &Host, ends: &[String]) -> Option<Link> {
    let (lower, upper) = (ends.first()?, ends.get(1));
    let mut could = Lanes::of(host, lower, "max")?;
    if let Some(max) = upper.and_then(|upper| Lanes::of(host, upper, "max")) {
        could = Lanes { speed: could.speed.min(max.speed), width: could.width.min(max.width) };
    }
    Some(Link { address: lower.clone(), is: Lanes::of(host, lower, "current")?, could })
}

impl Link {
    /// Returns whether the link is narrower or slower than both sides support. A link that `idles` may be slower.
    pub(super) fn is_degraded(&self, idles: bool) -> bool {
        self.is.width < self.could.width || (self.is.speed < self.could.speed && !idles)
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Link { address, is, could } = self;
        write!(
            f,
            "{address} runs at {} GT/s x{}, and could run at {} GT/s x{}",
            is.speed, is.width, could.speed, could.width
        )
    }
}

/// Returns the size of a function's largest memory region (BAR), in bytes.
pub(super) fn largest_region(host: &Host, address: &str) -> Option<u64> {
    let text = host.text(&format!("{}/resource", folder(address))).ok()?;
    let size = |line: &str| {
        let mut words = line.split_whitespace();
        let mut number = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
        let (first, last) = (number()?, number()?);
        // A line of zeros is a region that the function lacks.
        if last == 0 { None } else { last.checked_sub(first)?.checked_add(1) }
    };
    text.lines().filter_map(size).max()
}

/// Returns whether a bridge redirects requests between devices below it to the root complex. `None` if only root can
/// tell.
pub(super) fn redirects(host: &Host, address: &str) -> Option<bool> {
    let config = host.bytes(&format!("{}/config", folder(address))).ok()?;
    (config.len() > EXTENDED)
        .then(|| acs_control(&config).is_some_and(|control| control & ACS_REDIRECTS != 0))
}

/// Returns the control word of Access Control Services in a configuration space, if it has that capability.
fn acs_control(config: &[u8]) -> Option<u16> {
    let word = |at: usize| Some(u16::from_le_bytes(config.get(at..at + 2)?.try_into().ok()?));
    let mut at = EXTENDED;
    // Each capability takes at least 8 bytes, so a longer chain must contain a loop.
    for _ in 0..config.len() / 8 {
        let (id, next) = (word(at)?, usize::from(word(at + 2)? >> 4));
        if id == ACS {
            return word(at + ACS_CONTROL);
        }
        if next < EXTENDED {
            return None;
        }
        at = next;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_addresses() {
        for address in ["0000:3b:00.0", "10000:e1:1f.7"] {
            assert!(is_address(address));
        }
        for other in ["pci0000:3a", "0000:3b:00", "0000:3b:00.0.1", "zzzz:3b:00.0", "virtio0", ""] {
            assert!(!is_address(other), "{other}");
        }
    }

    /// Creates a configuration space with these extended capabilities: (offset, ID, next).
    fn config(capabilities: &[(usize, u16, usize)]) -> Vec<u8> {
        let mut config = vec![0; 4096];
        for &(at, id, next) in capabilities {
            config[at..at + 2].copy_from_slice(&id.to_le_bytes());
            config[at + 2..at + 4].copy_from_slice(&((next as u16) << 4 | 1).to_le_bytes());
        }
        config
    }

    #[test]
    fn finds_access_control_after_other_capabilities() {
        let mut space = config(&[(0x100, 1, 0x148), (0x148, 3, 0x220), (0x220, ACS, 0)]);
        assert_eq!(acs_control(&space), Some(0));
        space[0x226] = 0x1d;
        assert_eq!(acs_control(&space), Some(0x1d));
        assert_eq!(acs_control(&config(&[(0x100, 1, 0)])), None);
        assert_eq!(acs_control(&config(&[(0x100, 1, 0x148), (0x148, 2, 0x100)])), None, "a loop ends");
        assert_eq!(acs_control(&space[..0x224]), None);
        assert_eq!(acs_control(&[]), None);
    }

    proptest::proptest! {
        #[test]
        fn parses_arbitrary_bytes(config in proptest::collection::vec(proptest::num::u8::ANY, 0..600)) {
            acs_control(&config);
        }
    }
}
