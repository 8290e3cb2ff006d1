//! Finds the adapter to which an address belongs: this one, or one that is reached by packets.

use crate::address::{LAST_LID, PERMISSIVE_LID, ip_of_gid, ip_of_group, ip_of_lid, mac_of};
use crate::roce;
use std::net::SocketAddrV4;

/// Where packets to an address go: to this adapter itself, or to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Loopback,
    Peer(SocketAddrV4),
}

/// Why an address identifies no adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadAddress {
    /// The GID contains no IPv4 address, and there is no LID.
    Gid,
    /// The GID contains no IPv4 address, and the LID is not unicast.
    Lid,
}

/// The address of a peer, from an address path of a QP or an address vector of a WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) gid: [u8; 16],
    pub(crate) mac: [u8; 6],
    pub(crate) lid: u16,
}

impl Address {
    /// Whether the address certainly belongs to a software adapter, because of its MAC address or because it is on this
    /// machine.
    pub(crate) fn is_software(&self) -> bool {
        let is_loopback = match ip_of_gid(self.gid) {
            Some(ip) => ip.is_loopback(),
            None => self.lid != 0,
        };
        is_loopback || self.has_our_mac()
    }

    fn has_our_mac(&self) -> bool {
        self.mac[..4] == mac_of(0)[..4]
    }

    /// Returns the route to this address from the adapter at `own`.
    ///
    /// The peer's IPv4 address is in the GID, and its UDP port in the MAC address. Without an IPv4 address in the GID,
    /// the LID selects an adapter of this machine that uses the same port, or a multicast group.
    pub(crate) fn route(&self, own: SocketAddrV4) -> Result<Route, BadAddress> {
        let peer = match ip_of_gid(self.gid) {
            Some(ip) if ip == *own.ip() && self.mac == mac_of(own.port()) => own,
            Some(ip) => {
                let [.., high, low] = self.mac;
                // Any other MAC address belongs to an adapter on the standard port.
                let port = if self.has_our_mac() { u16::from_be_bytes([high, low]) } else { roce::PORT };
                SocketAddrV4::new(ip, port)
            }
            None if self.lid > LAST_LID && self.lid < PERMISSIVE_LID => {
                let group = ip_of_group(self.gid).ok_or(BadAddress::Lid)?;
                return Ok(Route::Peer(SocketAddrV4::new(group, roce::PORT)));
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
    use crate::address::gid_of;
    use std::net::Ipv4Addr;

    #[test]
    fn addresses_resolve_to_adapters() {
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
        // A GID of InfiniBand contains no IPv4 address, so the LID counts.
        let guid = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        for gid in [[0; 16], guid] {
            assert_eq!(to(gid, [0; 6], 0x203), peer(other, 4791));
            assert_eq!(to(gid, [0; 6], 9), Ok(Route::Loopback));
            assert_eq!(to(gid, [0; 6], 0xc000), Err(BadAddress::Lid));
            assert_eq!(to(gid, [0; 6], 0), Err(BadAddress::Gid));
        }
    }

    #[test]
    fn only_sure_addresses_count_as_software() {
        let is_software = |gid, mac, lid| Address { gid, mac, lid }.is_software();
        let (near, far) = (gid_of(Ipv4Addr::new(127, 1, 2, 3)), gid_of(Ipv4Addr::new(10, 0, 0, 7)));
        let foreign = [0x94, 0x6d, 0xae, 1, 2, 3];
        assert!(is_software(far, mac_of(5000), 0) && is_software(near, foreign, 0));
        assert!(is_software([0; 16], [0; 6], 7) && !is_software([0; 16], [0; 6], 0));
        assert!(!is_software(far, foreign, 0) && !is_software(far, [0; 6], 0));
    }
}
