//! From an address to an adapter.

use crate::nic::{ip_of_lid, mac_of};
use crate::roce;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};

/// Where packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// To a QP of this adapter.
    Loopback,
    /// Through the fabric.
    Peer(SocketAddrV4),
}

/// An address that leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadAddress {
    /// The GID has no IPv4 address in it, and there is no LID.
    Gid,
    /// The GID has no IPv4 address in it, and the LID is none of one machine.
    Lid,
}

/// The IPv4 address of the adapter with this GID: mapped into IPv6, or link-local as RFC 5214 forms it,
/// `fe80::5efe:a.b.c.d`.
#[must_use]
pub fn ip_of_gid(gid: [u8; 16]) -> Option<Ipv4Addr> {
    const LINK_LOCAL: [u8; 12] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0x5e, 0xfe];
    match gid {
        [prefix @ .., a, b, c, d] if prefix == LINK_LOCAL => Some(Ipv4Addr::new(a, b, c, d)),
        _ => Ipv6Addr::from(gid).to_ipv4_mapped(),
    }
}

/// An address, as address paths and address vectors have it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub(crate) gid: [u8; 16],
    pub(crate) mac: [u8; 6],
    pub(crate) lid: u16,
}

impl Address {
    /// Where the address leads from the adapter at `own`. GID and MAC address of a peer give its IPv4 address and UDP port;
    /// without a GID that is an IP address, its LID gives the address of an adapter of this machine with the same port.
    pub(crate) fn route(&self, own: SocketAddrV4) -> Result<Route, BadAddress> {
        let peer = match ip_of_gid(self.gid) {
            Some(ip) if ip == *own.ip() && self.mac == mac_of(own.port()) => own,
            Some(ip) => {
                let [a, b, c, d, high, low] = self.mac;
                let [oa, ob, oc, od, ..] = mac_of(0);
                // A MAC address that is none of ours belongs to an adapter on the standard port.
                let ours = [a, b, c, d] == [oa, ob, oc, od];
                SocketAddrV4::new(ip, if ours { u16::from_be_bytes([high, low]) } else { roce::PORT })
            }
            None if self.lid != 0 => {
                SocketAddrV4::new(ip_of_lid(self.lid).ok_or(BadAddress::Lid)?, own.port())
            }
            None => return Err(BadAddress::Gid),
        };
        Ok(if peer == own { Route::Loopback } else { Route::Peer(peer) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::gid_of;

    #[test]
    fn addresses_lead_to_adapters() {
        let ip = |a, b, c, d| Ipv4Addr::new(a, b, c, d);
        let own = SocketAddrV4::new(ip(127, 64, 0, 9), 4791);
        let to = |gid, mac, lid| Address { gid, mac, lid }.route(own);
        let peer = |ip, port| Ok(Route::Peer(SocketAddrV4::new(ip, port)));
        let other = ip(127, 64, 2, 3);
        assert_eq!(to(gid_of(*own.ip()), mac_of(4791), 0), Ok(Route::Loopback));
        assert_eq!(to(gid_of(*own.ip()), [0; 6], 0), Ok(Route::Loopback), "the standard port is its own");
        assert_eq!(to(gid_of(*own.ip()), mac_of(5000), 0), peer(*own.ip(), 5000));
        assert_eq!(to(gid_of(other), mac_of(5000), 0xc001), peer(other, 5000));
        assert_eq!(to(gid_of(other), [1; 6], 0), peer(other, 4791));
        let local = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0x5e, 0xfe, 127, 64, 2, 3];
        assert_eq!(to(local, [0; 6], 0), peer(other, 4791));
        // A GID of InfiniBand says nothing, the LID does.
        let guid = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        for gid in [[0; 16], guid] {
            assert_eq!(to(gid, [0; 6], 0x203), peer(other, 4791));
            assert_eq!(to(gid, [0; 6], 9), Ok(Route::Loopback));
            assert_eq!(to(gid, [0; 6], 0xc000), Err(BadAddress::Lid));
            assert_eq!(to(gid, [0; 6], 0), Err(BadAddress::Gid));
        }
    }
}
