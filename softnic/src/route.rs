//! From an address to an adapter.

use crate::nic::{gid_of, ip_of_lid, mac_of};
use crate::roce;
use std::net::{Ipv6Addr, SocketAddrV4};

/// Where packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// To a QP of this adapter.
    Own,
    /// Through the fabric.
    Peer(SocketAddrV4),
}

/// An address that leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nowhere {
    /// The GID is no IPv4-mapped address.
    Gid,
    /// There is no GID, and the LID is none of one machine.
    Lid,
}

/// An address, as address paths and address vectors have it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub(crate) gid: [u8; 16],
    pub(crate) mac: [u8; 6],
    pub(crate) lid: u16,
}

impl Address {
    /// Where the address leads from the adapter at `own`: GID and MAC address of a peer give its IPv4 address and UDP
    /// port; without a GID, its LID gives the address of an adapter of this machine with the same port.
    pub(crate) fn route(&self, own: SocketAddrV4) -> Result<Route, Nowhere> {
        let peer = if self.gid == [0; 16] && self.lid != 0 {
            SocketAddrV4::new(ip_of_lid(self.lid).ok_or(Nowhere::Lid)?, own.port())
        } else if self.gid == gid_of(*own.ip()) && self.mac == mac_of(own.port()) {
            own
        } else {
            let ip = Ipv6Addr::from(self.gid).to_ipv4_mapped().ok_or(Nowhere::Gid)?;
            let [a, b, c, d, high, low] = self.mac;
            let [oa, ob, oc, od, ..] = mac_of(0);
            // A MAC address that is none of ours belongs to an adapter on the standard port.
            let ours = [a, b, c, d] == [oa, ob, oc, od];
            SocketAddrV4::new(ip, if ours { u16::from_be_bytes([high, low]) } else { roce::PORT })
        };
        Ok(if peer == own { Route::Own } else { Route::Peer(peer) })
    }
}
