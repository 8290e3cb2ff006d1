//! An adapter used by the connection manager.

use super::mad::Mad;
use super::worker::Inbox;
use crate::abi::gid_type;
use crate::device::{Device, Lease, PKEYS};
use crate::errno::Errno;
use crate::settings::LinkLayer;
use rushmem_mlx5::prm::qp::Mtu;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// An adapter, which runs for as long as the connection manager uses it.
pub(super) struct Port {
    pub(super) device: Arc<Device>,
    pub(super) ip: Ipv4Addr,
    lease: Lease,
}

impl Port {
    /// Starts the adapter of a device. Its management datagrams are added to `inbox`.
    ///
    /// # Errors
    ///
    /// - `ENODEV`: the device has no IP address, because its link layer is InfiniBand.
    /// - The error of starting the adapter.
    pub(super) fn open(device: &Arc<Device>, inbox: &Arc<Inbox>) -> Result<Port, Errno> {
        if device.settings.link == LinkLayer::InfiniBand {
            tracing::error!(device = device.name(), "rdma_cm needs a device with --link ethernet");
            return Err(Errno::ENODEV);
        }
        let lease = device.adapter()?;
        let ip = *lease.nic.address().ip();
        let (index, to) = (device.index, Arc::clone(inbox));
        lease.nic.on_mad(move |mad| to.put(index, mad));
        Ok(Port { device: Arc::clone(device), ip, lease })
    }

    pub(super) fn send(&self, to: Ipv4Addr, mad: &Mad) {
        tracing::debug!(from = %self.ip, %to, ?mad, "sends");
        self.lease.nic.send_mad(to, &mad.encode());
    }

    /// Returns the index and the value of the GID that connections use.
    ///
    /// # Errors
    ///
    /// `ENODEV`: the table has no RoCEv2 entry with the adapter's IP address.
    pub(super) fn gid(&self) -> Result<(u8, [u8; 16]), Errno> {
        let gid = gid_of(self.ip);
        let table = self.device.gids(&self.lease.nic);
        let entry = table.iter().find(|entry| entry.gid == gid && entry.gid_type == gid_type::ROCE_V2);
        Ok((entry.ok_or(Errno::ENODEV)?.gid_index as u8, gid))
    }

    /// Returns the MTU code of the path to an adapter.
    pub(super) fn mtu(&self, to: Ipv4Addr) -> u8 {
        Mtu::within(self.lease.nic.path_mtu(to).unwrap_or(0)).0
    }

    /// Returns the P_Key of connections.
    pub(super) fn pkey() -> u16 {
        PKEYS[0]
    }
}

pub(super) fn gid_of(ip: Ipv4Addr) -> [u8; 16] {
    ip.to_ipv6_mapped().octets()
}
