//! Resolves paths from a NIC's port to the ports of peers, as passed to `INIT2RTR_QP`.
#![allow(unsafe_code, reason = "calls libibverbs, libmlx5 and getifaddrs")]

use std::collections::HashMap;
use std::mem::{MaybeUninit, zeroed};
use std::net::Ipv6Addr;
use std::ptr::{NonNull, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};

use rdma_sys::ibv_ah_attr;
use rushmem_base::lock;
use rushmem_error::{NicError, errno_text};
use rushmem_mlx5::prm::caps::RoceCap;
use rushmem_mlx5::prm::qp::{AddressPath, Mtu};

use super::ffi;
use super::memory::RdmaPd;
use super::port::Port;
use super::remedy::last_errno;
use crate::provider::{LinkLayer, NicKind, PortAddress};

const HOP_LIMIT: u8 = 64;
/// First UDP source port for RoCE v2, if the device does not report a range.
const FIRST_UDP_PORT: u16 = 0xc000;

/// The attributes shared by all paths from one port.
pub(super) struct Paths {
    pub(super) port: Port,
    pub(super) traffic_class: u8,
    pub(super) service_level: u8,
    /// First and last UDP source port that the device accepts for RoCE v2.
    udp_ports: (u16, u16),
    next_udp_port: AtomicU16,
    /// Cache of next hops' MAC addresses resolved by Linux. The key is the GID of the peer's port.
    macs: Mutex<HashMap<[u8; 16], [u8; 6]>>,
}

impl Paths {
    pub(super) fn new(port: Port, traffic_class: u8, service_level: u8, roce: &RoceCap) -> Self {
        let (least, most) = (roce.r_roce_min_src_udp_port, roce.r_roce_max_src_udp_port);
        let udp_ports = if least == 0 || most < least { (FIRST_UDP_PORT, u16::MAX) } else { (least, most) };
        Self {
            port,
            traffic_class,
            service_level,
            udp_ports,
            next_udp_port: AtomicU16::new(0),
            macs: Mutex::default(),
        }
    }

    /// Returns the path to the port `peer`, and its MTU.
    ///
    /// Fails if the two ports differ in link layer or partition, or if the peer's MAC address cannot be resolved.
    pub(super) fn to(&self, pd: &RdmaPd, peer: &PortAddress) -> Result<(AddressPath, Mtu), NicError> {
        let own = &self.port.address;
        let no_path = |why| NicError::NoPath { nic: pd.title().into(), peer: peer.to_string(), why };
        if peer.kind != NicKind::Hardware {
            let why =
                "it belongs to a software ConnectX; set RUSHMEM_NIC to the same kind of NIC for all PEs";
            return Err(no_path(why.into()));
        }
        if peer.link != own.link {
            let why = format!("the port of this PE is {own}; choose ports of one network in RUSHMEM_NIC");
            return Err(no_path(why));
        }
        if !own.partition.admits(peer.partition) {
            let why = format!(
                "its partition key is {}, and this port's is {}: both must name the same partition, and one must have full \
                 membership (0x8000); change RUSHMEM_PARTITION",
                peer.partition, own.partition
            );
            return Err(no_path(why));
        }
        if own.link == LinkLayer::InfiniBand && own.gid[..8] != peer.gid[..8] {
            let why = format!(
                "its subnet prefix is {}, and this port's is {}: a path between subnets needs the LID of a router, which \
                 Rushmem does not ask for; choose ports of one subnet in RUSHMEM_NIC",
                prefix(peer.gid),
                prefix(own.gid)
            );
            return Err(no_path(why));
        }
        let path = match own.link {
            LinkLayer::InfiniBand => self.infiniband(peer),
            LinkLayer::Ethernet => self.ethernet(peer, self.mac(pd, peer).map_err(no_path)?),
        };
        Ok((path, Mtu::within(own.mtu.min(peer.mtu))))
    }

    fn infiniband(&self, peer: &PortAddress) -> AddressPath {
        let own = &self.port.address;
        let local = AddressPath {
            rlid: peer.lid,
            sl: self.service_level,
            vhca_port_num: own.number,
            pkey_index: self.port.pkey_index,
            ..Default::default()
        };
        if !self.port.grh_required {
            return local;
        }
        AddressPath {
            grh: true,
            rgid_rip: peer.gid,
            src_addr_index: self.port.gid_index,
            hop_limit: HOP_LIMIT,
            tclass: self.traffic_class,
            ..local
        }
    }

    fn ethernet(&self, peer: &PortAddress, rmac: [u8; 6]) -> AddressPath {
        AddressPath {
            rgid_rip: peer.gid,
            rmac,
            src_addr_index: self.port.gid_index,
            hop_limit: HOP_LIMIT,
            udp_sport: self.udp_port(),
            dscp: self.traffic_class >> 2,
            ecn: self.traffic_class & 3,
            eth_prio: self.service_level & 7,
            vhca_port_num: self.port.address.number,
            pkey_index: self.port.pkey_index,
            ..Default::default()
        }
    }

    /// Returns the UDP source port for the next QP. Networks distribute flows by source port, so each QP gets a
    /// different one.
    fn udp_port(&self) -> u16 {
        let (least, most) = self.udp_ports;
        let n = self.next_udp_port.fetch_add(1, Ordering::Relaxed);
        least + (u32::from(n) % (u32::from(most - least) + 1)) as u16
    }

    /// Returns the MAC address of the next hop towards the port `peer`.
    ///
    /// Linux resolves it from its routes and neighbours, once per port of a peer. If that fails and the peer is on a
    /// network of this machine, the MAC address sent by the peer is used.
    fn mac(&self, pd: &RdmaPd, peer: &PortAddress) -> Result<[u8; 6], String> {
        if let Some(&known) = lock(&self.macs).get(&peer.gid) {
            return Ok(known);
        }
        // Not under the lock: Linux may have to wait for the peer's ARP or NDP reply.
        let errno = match self.resolve(pd, peer) {
            Ok(mac) => {
                lock(&self.macs).insert(peer.gid, mac);
                return Ok(mac);
            }
            Err(errno) => errno,
        };
        let (ours, theirs) = (Ipv6Addr::from(self.port.address.gid), Ipv6Addr::from(peer.gid));
        if peer.mac != [0; 6] && on_link(ours, theirs) {
            tracing::debug!("{}: using the MAC address that {theirs} sent", pd.title());
            return Ok(peer.mac);
        }
        Err(format!(
            "its MAC address cannot be found (ibv_create_ah: {}); {theirs} must answer a ping from {ours}",
            errno_text(errno)
        ))
    }

    /// Resolves the MAC address of the next hop towards the port `peer` through Linux: creates an address handle
    /// (`ibv_create_ah`), and reads the MAC address from it.
    fn resolve(&self, pd: &RdmaPd, peer: &PortAddress) -> Result<[u8; 6], i32> {
        // SAFETY: all fields are numbers, so all zeros is a valid value.
        let mut attr: ibv_ah_attr = unsafe { zeroed() };
        attr.grh.dgid.raw = peer.gid;
        attr.grh.sgid_index = self.port.gid_index;
        attr.grh.hop_limit = HOP_LIMIT;
        attr.grh.traffic_class = self.traffic_class;
        attr.is_global = 1;
        attr.sl = self.service_level;
        attr.port_num = self.port.address.number;
        // SAFETY: the protection domain is live, and `attr` is a live variable.
        let Some(handle) = NonNull::new(unsafe { ffi::ibv_create_ah(pd.raw(), &mut attr) }) else {
            return Err(last_errno());
        };
        let mut answer = ffi::DvAh { av: null_mut(), comp_mask: 0 };
        let mut query = ffi::DvObj::ah(handle.as_ptr(), &mut answer);
        // SAFETY: the query names a live handle and a live answer, and the answer points into the handle.
        unsafe {
            let errno = ffi::mlx5dv_init_obj(&mut query, ffi::OBJ_AH);
            let mac = if errno == 0 && !answer.av.is_null() { Ok((*answer.av).rmac) } else { Err(errno) };
            ffi::ibv_destroy_ah(handle.as_ptr());
            mac
        }
    }
}

/// Formats the subnet prefix of a GID for messages.
fn prefix(gid: [u8; 16]) -> String {
    let mut prefix = gid;
    prefix[8..].fill(0);
    format!("{}/64", Ipv6Addr::from(prefix))
}

/// Returns whether `own` and `peer` are on the network of the same local interface.
fn on_link(own: Ipv6Addr, peer: Ipv6Addr) -> bool {
    let both = |&(address, mask)| same_network(own, address, mask) && same_network(own, peer, mask);
    interfaces().iter().any(both)
}

fn same_network(a: Ipv6Addr, b: Ipv6Addr, mask: Ipv6Addr) -> bool {
    (u128::from(a) ^ u128::from(b)) & u128::from(mask) == 0
}

/// Returns the addresses of this machine's network interfaces with their netmasks. IPv4 addresses are mapped to IPv6,
/// as in GIDs.
fn interfaces() -> Vec<(Ipv6Addr, Ipv6Addr)> {
    let mut list = MaybeUninit::uninit();
    // SAFETY: if the call succeeds, it writes the list to a live variable.
    if unsafe { libc::getifaddrs(list.as_mut_ptr()) } != 0 {
        return Vec::new();
    }
    // SAFETY: `getifaddrs` succeeded, so it has written the list.
    let first = unsafe { list.assume_init() };
    let (mut found, mut next) = (Vec::new(), first);
    while let Some(entry) = NonNull::new(next) {
        // SAFETY: `entry` is a live entry of the list.
        let entry = unsafe { entry.as_ref() };
        if let (Some(address), Some(mask)) = (address_of(entry.ifa_addr), address_of(entry.ifa_netmask)) {
            // A mapped IPv4 mask has only its last four bytes. The prefix of the mapping must match as well.
            let mask =
                if address.to_ipv4_mapped().is_some() { u128::from(mask) | !0 << 32 } else { mask.into() };
            found.push((address, mask.into()));
        }
        next = entry.ifa_next;
    }
    // SAFETY: `getifaddrs` made the list, and it is freed once.
    unsafe { libc::freeifaddrs(first) };
    found
}

fn address_of(address: *const libc::sockaddr) -> Option<Ipv6Addr> {
    // SAFETY: the pointer is null, or points to an address of the family in `sa_family`.
    unsafe {
        match i32::from(address.as_ref()?.sa_family) {
            libc::AF_INET => {
                let ip = (*address.cast::<libc::sockaddr_in>()).sin_addr.s_addr;
                Some(std::net::Ipv4Addr::from(u32::from_be(ip)).to_ipv6_mapped())
            }
            libc::AF_INET6 => Some((*address.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr.into()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushmem_config::Partition;

    fn port(link: LinkLayer, gid: &str) -> PortAddress {
        let gid: Ipv6Addr = gid.parse().unwrap();
        let kind = NicKind::Hardware;
        let (mac, partition) = ([2, 0, 0, 0, 0, 7], Partition(0x8001));
        PortAddress { kind, link, number: 1, gid: gid.octets(), mac, lid: 9, mtu: 1024, partition }
    }

    fn paths(link: LinkLayer, gid: &str) -> Paths {
        let port = Port {
            address: port(link, gid),
            gid_index: 3,
            network: None,
            pkey_index: 4,
            grh_required: false,
            gbps: None,
            ports: 1,
        };
        let roce =
            RoceCap { r_roce_min_src_udp_port: 50000, r_roce_max_src_udp_port: 50001, ..Default::default() };
        Paths::new(port, 106, 5, &roce)
    }

    #[test]
    fn uses_lids_within_an_infiniband_subnet() {
        let mut paths = paths(LinkLayer::InfiniBand, "fe80::1");
        let local = paths.infiniband(&port(LinkLayer::InfiniBand, "fe80::2"));
        assert_eq!((local.rlid, local.sl, local.grh, local.vhca_port_num), (9, 5, false, 1));
        assert_eq!(local.pkey_index, 4);
        paths.port.grh_required = true;
        let global = paths.infiniband(&port(LinkLayer::InfiniBand, "fe80::2"));
        assert_eq!((global.rlid, global.grh, global.src_addr_index, global.rgid_rip[0]), (9, true, 3, 0xfe));
        assert!(global.hop_limit > 1);
    }

    #[test]
    fn uses_mac_and_gid_on_ethernet() {
        let paths = paths(LinkLayer::Ethernet, "::ffff:10.0.0.1");
        let peer = port(LinkLayer::Ethernet, "::ffff:10.0.0.2");
        let path = paths.ethernet(&peer, peer.mac);
        assert_eq!((path.rgid_rip, path.rmac, path.src_addr_index), (peer.gid, peer.mac, 3));
        assert_eq!((path.dscp, path.ecn, path.eth_prio, path.grh, path.rlid), (26, 2, 5, false, 0));
        assert_eq!((path.udp_sport, path.pkey_index), (50000, 4));
        let sports: Vec<_> = (0..3).map(|_| paths.ethernet(&peer, peer.mac).udp_sport).collect();
        assert_eq!(sports, [50001, 50000, 50001]);
    }

    #[test]
    fn recognizes_peers_in_the_same_network() {
        let mask = Ipv6Addr::from(!0u128 << 8);
        let ip = |text: &str| text.parse::<Ipv6Addr>().unwrap();
        assert!(same_network(ip("::ffff:10.0.0.1"), ip("::ffff:10.0.0.200"), mask));
        assert!(!same_network(ip("::ffff:10.0.0.1"), ip("::ffff:10.0.1.1"), mask));
        assert!(on_link(ip("::ffff:127.0.0.3"), ip("::ffff:127.0.0.9")), "{:?}", interfaces());
        assert!(!on_link(ip("::ffff:127.0.0.1"), ip("::ffff:128.0.0.1")));
        assert!(!on_link(ip("::ffff:240.1.2.3"), ip("::ffff:240.1.2.4")), "no network of this machine");
    }
}
