//! Addresses of adapters: IPv4 addresses, and the GIDs, LIDs and MAC addresses derived from them.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// IPv4 address to which an adapter binds its UDP socket, by which it exchanges packets with other adapters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip {
    /// No socket is bound: only QPs of the same adapter are reachable.
    LoopbackOnly,
    /// A free address 127.64.hi.lo, where hi.lo is the adapter's LID. Suits several processes on one machine.
    AnyLoopback,
    /// This address, which one of the machine's interfaces must have.
    Addr(Ipv4Addr),
}

impl fmt::Display for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AnyLoopback => f.write_str("a free address of 127.0.0.0/8"),
            Self::LoopbackOnly => f.write_str("no address"),
            Self::Addr(ip) => ip.fmt(f),
        }
    }
}

impl From<Ipv4Addr> for Ip {
    fn from(ip: Ipv4Addr) -> Ip {
        Ip::Addr(ip)
    }
}

/// Returns the IPv4 address of a GID.
///
/// Accepts both IPv4-mapped GIDs and link-local ones as in RFC 5214, `fe80::5efe:a.b.c.d`.
///
/// ```
/// use rushmem_softnic::ip_of_gid;
///
/// let gid = std::net::Ipv4Addr::new(10, 0, 0, 7).to_ipv6_mapped().octets();
/// assert_eq!(ip_of_gid(gid), Some([10, 0, 0, 7].into()));
/// ```
#[must_use]
pub fn ip_of_gid(gid: [u8; 16]) -> Option<Ipv4Addr> {
    const LINK_LOCAL: [u8; 12] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0x5e, 0xfe];
    match gid {
        [prefix @ .., a, b, c, d] if prefix == LINK_LOCAL => Some(Ipv4Addr::new(a, b, c, d)),
        _ => Ipv6Addr::from(gid).to_ipv4_mapped(),
    }
}

/// A GID.
pub(crate) type Gid = [u8; 16];

/// Returns the IPv4 address to which packets for a multicast group go, or `None` if the GID is not that of a group.
///
/// Groups of InfiniBand are spread over 2^17 addresses of the range for local administration.
pub(crate) fn ip_of_group(group: Gid) -> Option<Ipv4Addr> {
    const FIRST: Ipv4Addr = Ipv4Addr::new(239, 194, 0, 0);
    if group[0] == 0xff {
        return Some(Ipv4Addr::from_bits(FIRST.to_bits() | (hash_of_group(group) % (1 << 17))));
    }
    ip_of_gid(group).filter(Ipv4Addr::is_multicast)
}

/// Returns the multicast LID of a group. Several groups may share one.
pub(crate) fn lid_of_group(group: Gid) -> u16 {
    const NUMBER: u32 = (PERMISSIVE_LID - LAST_LID - 1) as u32;
    LAST_LID + 1 + (hash_of_group(group) % NUMBER) as u16
}

/// Hashes a GID by FNV-1a.
fn hash_of_group(group: Gid) -> u32 {
    group.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// The permissive LID, to which datagrams with a directed route are addressed.
pub(crate) const PERMISSIVE_LID: u16 = 0xffff;

/// Highest unicast LID. Those above it are multicast LIDs.
pub(crate) const LAST_LID: u16 = 0xbfff;

pub(crate) fn gid_of(ip: Ipv4Addr) -> Gid {
    ip.to_ipv6_mapped().octets()
}

/// Returns the IPv4 address of the adapter with this LID, or `None` if the LID is not unicast.
pub(crate) fn ip_of_lid(lid: u16) -> Option<Ipv4Addr> {
    let [high, low] = lid.to_be_bytes();
    (1..=LAST_LID).contains(&lid).then(|| Ipv4Addr::new(127, 64, high, low))
}

/// Returns the LID of the adapter at an IPv4 address, if the address contains one.
#[must_use]
pub fn lid_of(ip: Ipv4Addr) -> Option<u16> {
    let [.., high, low] = ip.octets();
    let lid = u16::from_be_bytes([high, low]);
    ip_of_lid(lid).filter(|of_lid| *of_lid == ip).map(|_| lid)
}

/// Returns the GUID of the port of the adapter at an IPv4 address. It is locally administered.
pub(crate) fn port_guid(ip: Ipv4Addr) -> u64 {
    // The middle bytes mark an EUI-64 made from a MAC address.
    let [_, b, c, d] = ip.octets();
    u64::from_be_bytes([0x52, 0x4d, 0x00, 0xff, 0xfe, b, c, d])
}

/// Returns the IPv4 address of the adapter of this machine whose port has a GUID, if it is one with a LID.
pub(crate) fn ip_of_guid(guid: u64) -> Option<Ipv4Addr> {
    let [.., b, c, d] = guid.to_be_bytes();
    let ip = Ipv4Addr::new(127, b, c, d);
    (port_guid(ip) == guid && lid_of(ip).is_some()).then_some(ip)
}

/// A MAC address.
pub(crate) type Mac = [u8; 6];

/// Whether frames to this address are for several stations.
pub(crate) fn is_group(mac: Mac) -> bool {
    mac[0] & 1 != 0
}

/// Returns the MAC address of the Ethernet function of the adapter at an IPv4 address. It is locally administered.
pub(crate) fn mac_of_function(ip: Ipv4Addr) -> Mac {
    let [a, b, c, d] = ip.octets();
    [0x06, 0x52, a, b, c, d]
}

/// Returns the MAC address of the adapter on UDP port `port`, which the address encodes.
pub(crate) fn mac_of(port: u16) -> [u8; 6] {
    let [high, low] = port.to_be_bytes();
    [0x02, 0x52, 0x4d, 0, high, low]
}
