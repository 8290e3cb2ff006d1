//! Resolution of GIDs to adapters, like the kernel's on Ethernet.

use crate::errno::Errno;
use crate::fault::Fault;
use crate::open_device::OpenDevice;
use rushmem_softnic::ip_of_gid;
use std::net::Ipv4Addr;

/// Addresses of an adapter on Ethernet that a GID has been resolved to.
pub(super) struct Peer {
    pub(super) ip: Ipv4Addr,
    pub(super) mac: [u8; 6],
}

/// Returns the peer with a GID, addressed from an entry of the local GID table. Entries of RoCEv1 work too, with RoCEv2
/// packets.
pub(super) fn resolve(opened: &OpenDevice, sgid_index: u8, dgid: [u8; 16]) -> Result<Peer, Errno> {
    let nic = &opened.session()?.adapter.nic;
    let table = opened.device.gids(nic);
    if !table.iter().any(|entry| entry.gid_index == sgid_index.into()) {
        return Err(Errno::EINVAL);
    }
    if opened.device.has(Fault::GidV1Only) {
        tracing::debug!(gid_index = sgid_index, "no entry of RoCEv2");
        return Err(Errno::EOPNOTSUPP);
    }
    let ip = ip_of_gid(dgid).ok_or_else(|| {
        tracing::debug!(gid = ?dgid, "the peer's GID is none of a software ConnectX");
        Errno::EINVAL
    })?;
    // All adapters use the same port, so the peer's MAC address is not needed.
    let [_, b, c, d] = ip.octets();
    let mac = match ip {
        _ if ip == *nic.address().ip() => nic.mac(),
        _ if ip.is_multicast() => [0x01, 0x00, 0x5e, b & 0x7f, c, d],
        _ => [0; 6],
    };
    Ok(Peer { ip, mac })
}
