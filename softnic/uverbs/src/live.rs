//! Sysfs files whose contents change: the state of a port and its addresses.
//!
//! The launcher's tree has these files too, for programs that list or `stat` them. When a program opens one, this
//! library generates the current contents from the adapter of the program's process.

use crate::abi::{self, gid_type, link_layer, port_state};
use crate::errno::Errno;
use crate::sys;
use std::net::Ipv4Addr;

/// Number of slots of the GID table. It is small, because some programs query each slot.
pub(crate) const GID_SLOTS: u32 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attribute {
    Lid,
    State,
    PhysState,
    Gid(u32),
    GidType(u32),
    GidDevice(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiveFile {
    pub(crate) device: u32,
    attribute: Attribute,
}

impl LiveFile {
    /// Returns the file at this path, if its contents change.
    pub(crate) fn find(path: &[u8]) -> Option<LiveFile> {
        let path = std::str::from_utf8(path).ok()?;
        let (_, path) = path.split_once("/infiniband/mlx5_")?;
        let (device, file) = path.split_once("/ports/1/")?;
        let number = |text: &str| text.parse().ok().filter(|index| *index < GID_SLOTS);
        let attribute = match file.rsplit_once('/') {
            None if file == "lid" => Attribute::Lid,
            None if file == "state" => Attribute::State,
            None if file == "phys_state" => Attribute::PhysState,
            Some(("gids", index)) => Attribute::Gid(number(index)?),
            Some(("gid_attrs/types", index)) => Attribute::GidType(number(index)?),
            Some(("gid_attrs/ndevs", index)) => Attribute::GidDevice(number(index)?),
            _ => return None,
        };
        Some(LiveFile { device: device.parse().ok()?, attribute })
    }

    /// Whether a relative path may refer to a file whose contents change. False positives are possible.
    pub(crate) fn may_be(path: &[u8]) -> bool {
        let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        matches!(last, b"lid" | b"state" | b"phys_state")
            || !last.is_empty() && last.len() <= 2 && last.iter().all(u8::is_ascii_digit)
    }

    /// Returns the contents for a port with this GID table and this address. Fails with `EINVAL` for the attributes of
    /// an empty slot.
    pub(crate) fn contents(
        self,
        port: &abi::QueryPort,
        table: &[abi::GidEntry],
        ip: Ipv4Addr,
    ) -> Result<String, Errno> {
        let entry = |index| table.iter().find(|entry| entry.gid_index == index);
        Ok(match self.attribute {
            Attribute::Lid => format!("{:#x}\n", port.lid),
            Attribute::State => format!("{}\n", state(port.state)),
            Attribute::PhysState => format!("{}\n", phys_state(port.phys_state)),
            Attribute::Gid(index) => gid(entry(index).map_or([0; 16], |entry| entry.gid)),
            Attribute::GidType(index) => match entry(index).ok_or(Errno::EINVAL)?.gid_type {
                gid_type::ROCE_V2 => "RoCE v2\n".into(),
                _ => "IB/RoCE v1\n".into(),
            },
            Attribute::GidDevice(index) => {
                entry(index).filter(|_| port.link_layer == link_layer::ETHERNET).ok_or(Errno::EINVAL)?;
                format!("{}\n", network_device(ip)?)
            }
        })
    }
}

/// Formats a port state like sysfs.
fn state(state: u8) -> &'static str {
    if state == port_state::ACTIVE { "4: ACTIVE" } else { "1: DOWN" }
}

/// Formats a physical port state like sysfs.
fn phys_state(state: u8) -> &'static str {
    if state == port_state::PHYS_LINK_UP { "5: LinkUp" } else { "3: Disabled" }
}

/// Formats a GID like sysfs: eight groups of four digits.
fn gid(gid: [u8; 16]) -> String {
    let groups: Vec<_> = gid.chunks(2).map(|two| format!("{:02x}{:02x}", two[0], two[1])).collect();
    format!("{}\n", groups.join(":"))
}

/// Returns the name of the network device with this address.
pub(crate) fn network_device(ip: Ipv4Addr) -> Result<String, Errno> {
    // All of 127.0.0.0/8 belongs to the loopback device.
    if ip.is_loopback() { Ok("lo".into()) } else { sys::network_device(ip) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_files_that_change() {
        let find = |path: &str| LiveFile::find(path.as_bytes());
        let file = |attribute| Some(LiveFile { device: 3, attribute });
        let port = "/x/class/infiniband/mlx5_3/ports/1";
        assert_eq!(find(&format!("{port}/gids/12")), file(Attribute::Gid(12)));
        assert_eq!(find(&format!("{port}/gid_attrs/types/0")), file(Attribute::GidType(0)));
        assert_eq!(find(&format!("{port}/gid_attrs/ndevs/0")), file(Attribute::GidDevice(0)));
        assert_eq!(find("/x/7000:01:00.0/infiniband/mlx5_3/ports/1/lid"), file(Attribute::Lid));
        assert_eq!(find(&format!("{port}/gids/16")), None);
        assert_eq!(find(&format!("{port}/rate")), None);
        assert_eq!(find("/x/class/infiniband/mlx5_3/node_guid"), None);
        assert!(LiveFile::may_be(b"gids/3") && LiveFile::may_be(b"state") && !LiveFile::may_be(b"rate"));
    }

    #[test]
    fn formats_as_the_kernel_does() {
        let ip = Ipv4Addr::new(127, 64, 3, 9);
        let text = "0000:0000:0000:0000:0000:ffff:7f40:0309\n";
        assert_eq!(gid(ip.to_ipv6_mapped().octets()), text);
        assert_eq!(network_device(ip), Ok("lo".into()));
    }
}
