//! A device: its reported properties, and its adapter.

use crate::abi::{self, gid_type, link_layer, port_state};
use crate::command::execute_on;
use crate::errno::Errno;
use crate::fault::Fault;
use crate::live::{self, GID_SLOTS};
use crate::registry::Registry;
use crate::scheduling;
use crate::settings::{LinkLayer, Settings};
use crate::sys;
use crate::xrc_domain::Domains;
use rushmem_mlx5::prm::counter::{AllocQCounter, QueryQCounter, QueryQCounterOut};
use rushmem_mlx5::prm::pd::AllocPd;
use rushmem_softnic::subnet::SM_LID;
use rushmem_softnic::{Config, Context, Health, Ip, Nic, lid_of};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Partition keys of the port: the default one and another.
pub(crate) const PKEYS: [u16; 2] = [0xffff, 0x8001];

/// Maximum number of WQEs of a shared receive queue. One slot stays unused.
pub(crate) const MAX_SRQ_WR: u32 = (1 << 15) - 1;
/// Maximum number of data segments of an SRQ WQE: 512 bytes less the next segment.
pub(crate) const MAX_SRQ_SGE: u32 = 31;

/// Maximum number of multicast groups, as a ConnectX reports it.
const MAX_GROUPS: u32 = 1 << 21;
const MAX_MEMBERS: u32 = 240;

/// Number of completion vectors.
pub(crate) const VECTORS: u32 = 2;

/// Returns the GUID of a device, in network byte order.
pub(crate) fn guid(index: u32) -> [u8; 8] {
    let [.., high, low] = index.to_be_bytes();
    // Locally administered. The middle bytes mark an EUI-64 made from a MAC address.
    [0x52, 0x4d, 0x00, 0xff, 0xfe, 0x00, high, low]
}

/// A device of this process.
pub(crate) struct Device {
    pub(crate) index: u32,
    pub(crate) settings: Arc<Settings>,
    adapter: Mutex<Slot>,
}

/// The adapter, which runs while the device is open. Its address stays the same between runs.
#[derive(Default)]
struct Slot {
    running: Option<Arc<Adapter>>,
    users: usize,
    address: Option<Ipv4Addr>,
}

/// A running adapter and the receivers of its events.
pub(crate) struct Adapter {
    /// Context of the simulated kernel driver, which owns the port's counter set and the XRC domains.
    pub(crate) driver: Arc<Context>,
    /// Protection domain number of the simulated kernel driver, which XRC target QPs use.
    pub(crate) pd: u32,
    pub(crate) domains: Domains,
    /// Counter set of QPs made through verbs, as in Linux.
    pub(crate) counter_set: u8,
    pub(crate) nic: Nic,
    pub(crate) registry: Arc<Registry>,
}

/// Address and health of a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortAddress {
    pub(crate) ip: Ipv4Addr,
    health: Health,
}

impl From<&Nic> for PortAddress {
    fn from(nic: &Nic) -> PortAddress {
        PortAddress { ip: *nic.address().ip(), health: nic.health() }
    }
}

/// Keeps an adapter running. It is stopped when the last lease is dropped.
pub(crate) struct Lease {
    device: Arc<Device>,
    adapter: Option<Arc<Adapter>>,
}

impl std::ops::Deref for Lease {
    type Target = Adapter;

    fn deref(&self) -> &Adapter {
        self.adapter.as_ref().expect("it is there until the lease ends")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Keep the lock: the next user must not start an adapter before the address is free again.
        let mut slot = self.device.slot();
        self.adapter = None;
        slot.users -= 1;
        if slot.users == 0
            && let Some(adapter) = slot.running.take()
        {
            let counts = adapter.counts();
            tracing::info!(device = self.device.name(), ?counts, "counters of port 1");
        }
    }
}

impl Adapter {
    /// Returns the counters of the port, shown by Linux in `hw_counters`.
    fn counts(&self) -> QueryQCounterOut {
        let command = QueryQCounter { counter_set_id: self.counter_set, ..QueryQCounter::default() };
        execute_on(&self.driver, &command).unwrap_or_default()
    }
}

impl Device {
    pub(crate) fn new(index: u32, settings: Arc<Settings>) -> Device {
        Device { index, settings, adapter: Mutex::default() }
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.settings.has(fault)
    }

    /// Whether a fault keeps the port down.
    fn is_unconnected(&self) -> bool {
        self.has(Fault::PortDown) || self.has(Fault::IdlePorts) && self.index != 0
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.adapter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the adapter, starting it if needed.
    pub(crate) fn adapter(self: &Arc<Device>) -> Result<Lease, Errno> {
        let mut slot = self.slot();
        let adapter = match &slot.running {
            Some(adapter) => Arc::clone(adapter),
            // A forked child may still hold the socket of the address.
            None => Arc::new(self.start(slot.address).or_else(|_| self.start(None))?),
        };
        slot.address = Some(*adapter.nic.address().ip());
        slot.running = Some(Arc::clone(&adapter));
        slot.users += 1;
        Ok(Lease { device: Arc::clone(self), adapter: Some(adapter) })
    }

    /// Returns the statistics of the adapter, zero while it is stopped.
    pub(crate) fn stats(&self) -> rushmem_softnic::Stats {
        self.slot().running.as_ref().map(|adapter| adapter.nic.stats()).unwrap_or_default()
    }

    /// Returns the counters of the port, zero while the adapter is stopped.
    pub(crate) fn counts(&self) -> QueryQCounterOut {
        self.slot().running.as_ref().map(|adapter| adapter.counts()).unwrap_or_default()
    }

    /// Returns the address and the health of the port. A stopped adapter reports the address that it will have.
    pub(crate) fn place(self: &Arc<Device>) -> Result<PortAddress, Errno> {
        let slot = self.slot();
        let fixed = match self.settings.ip(self.index) {
            Ip::Addr(ip) => Some(ip),
            _ => slot.address,
        };
        match (&slot.running, fixed) {
            (Some(adapter), _) => Ok(PortAddress::from(&adapter.nic)),
            (None, Some(ip)) => Ok(PortAddress { ip, health: Health::default() }),
            (None, None) => {
                drop(slot);
                Ok(PortAddress::from(&self.adapter()?.nic))
            }
        }
    }

    /// Starts the adapter, at its previous address if there is one.
    fn start(&self, before: Option<Ipv4Addr>) -> Result<Adapter, Errno> {
        let ip = before.map_or(self.settings.ip(self.index), Ip::Addr);
        let config = self.config(ip);
        let port = config.port;
        let nic = scheduling::with_priority(|| Nic::start(config)).map_err(|error| {
            match before {
                // The caller tries another address.
                Some(ip) => tracing::debug!(device = self.name(), %ip, %error, "the old address is not free"),
                None => tracing::error!(device = self.name(), %error, "the software ConnectX does not start"),
            }
            Errno::from(error)
        })?;
        let address = nic.address();
        if address.port() != port {
            // Peers know the adapter only by its address.
            tracing::error!(%address, "another adapter has this address already: give each process its own");
            return Err(Errno::EADDRINUSE);
        }
        if self.settings.link == LinkLayer::InfiniBand && nic.lid().is_none() {
            tracing::error!(%address, "an InfiniBand port's address must be 127.64.x.y, of which x.y is its LID");
            return Err(Errno::EADDRNOTAVAIL);
        }
        let registry = Arc::new(Registry::new(self.settings.link));
        let listener = Arc::clone(&registry);
        nic.on_event(move |event| listener.event(event));
        let driver = Arc::new(nic.open());
        let counter_set = execute_on(&driver, &AllocQCounter::default())?.counter_set_id;
        let pd = execute_on(&driver, &AllocPd::default())?.pd;
        Ok(Adapter { driver, pd, domains: Domains::default(), counter_set, nic, registry })
    }

    fn config(&self, ip: Ip) -> Config {
        let mut faults = self.settings.engine_faults.clone();
        if self.is_unconnected() {
            faults.drop = 1.0;
        }
        Config {
            name: self.name(),
            ip,
            model: self.settings.model,
            shared_memory: self.settings.shared_memory,
            faults,
            capture: self.settings.capture_of(self.index),
            record: self.settings.record_of(self.index),
            idle: scheduling::idle(),
            infiniband: self.settings.link == LinkLayer::InfiniBand,
            bond: if self.has(Fault::Bond) { 2 } else { 1 },
            pkeys: PKEYS.to_vec(),
            log_max_reads: self.log_max_reads(),
            real_time: self.has(Fault::RealTime),
            ..Config::default()
        }
    }

    /// Returns log2 of the maximum number of outstanding READs and atomics of a QP, as a ConnectX-7 has unless a fault lowers it.
    fn log_max_reads(&self) -> u8 {
        if self.has(Fault::FewReads) { 2 } else { 4 }
    }

    /// Returns the name, such as `mlx5_0`.
    pub(crate) fn name(&self) -> String {
        format!("mlx5_{}", self.index)
    }

    /// Returns the GUID, in network byte order.
    pub(crate) fn guid(&self) -> [u8; 8] {
        guid(self.index)
    }

    /// Returns the response to QUERY_DEVICE.
    pub(crate) fn attributes(&self) -> abi::QueryDevice {
        let model = self.settings.model;
        let [major, minor, sub] = model.firmware().map(u64::from);
        let guid = u64::from_ne_bytes(self.guid());
        let reads = 1 << self.log_max_reads();
        abi::QueryDevice {
            fw_ver: major << 32 | minor << 16 | sub,
            node_guid: guid,
            sys_image_guid: guid,
            max_mr_size: u64::MAX,
            page_size_cap: 0xffff_ffff_ffff_f000,
            vendor_id: 0x02c9,
            vendor_part_id: model.device_id(self.settings.function()).into(),
            max_qp: 1 << 17,
            max_qp_wr: 1 << 15,
            max_sge: 30,
            max_sge_rd: 30,
            max_cq: 1 << 17,
            max_cqe: (1 << 22) - 1,
            max_mr: 1 << 19,
            max_pd: 1 << 15,
            max_qp_rd_atom: reads,
            max_res_rd_atom: reads << 17,
            max_qp_init_rd_atom: reads,
            // 1: atomic among the QPs of this device.
            atomic_cap: u32::from(!self.has(Fault::NoAtomics)),
            max_ah: i32::MAX as u32,
            max_mcast_grp: MAX_GROUPS,
            max_mcast_qp_attach: MAX_MEMBERS,
            max_total_mcast_qp_attach: MAX_GROUPS * MAX_MEMBERS,
            device_cap_flags: abi::device_cap::XRC,
            max_srq: 1 << 16,
            max_srq_wr: MAX_SRQ_WR,
            max_srq_sge: MAX_SRQ_SGE,
            max_pkeys: PKEYS.len() as u16,
            local_ca_ack_delay: 16,
            phys_port_cnt: 1,
            ..abi::QueryDevice::default()
        }
    }

    /// Returns the response to QUERY_PORT.
    pub(crate) fn port(&self, place: impl Into<PortAddress>) -> abi::QueryPort {
        let PortAddress { ip, health } = place.into();
        let down = self.is_unconnected() || health.port_is_down;
        let (state, phys_state) = match down {
            true => (port_state::DOWN, port_state::PHYS_DISABLED),
            false => (port_state::ACTIVE, port_state::PHYS_LINK_UP),
        };
        let common = abi::QueryPort {
            max_msg_sz: 1 << 30,
            gid_tbl_len: GID_SLOTS,
            pkey_tbl_len: PKEYS.len() as u16,
            state,
            max_mtu: 5,
            active_mtu: 5,
            max_vl_num: 1,
            // Four lanes.
            active_width: 2,
            // Verbs of this version have 8 bits for it.
            active_speed: self.settings.model.speed().code as u8,
            phys_state,
            ..abi::QueryPort::default()
        };
        match self.settings.link {
            // Bit 16: connection management; bit 26: GIDs are IP addresses.
            LinkLayer::Ethernet => abi::QueryPort {
                port_cap_flags: 1 << 16 | 1 << 26,
                link_layer: link_layer::ETHERNET,
                // There are no LIDs, so every path needs a GRH.
                flags: 1,
                ..common
            },
            LinkLayer::InfiniBand => abi::QueryPort {
                port_cap_flags: 1 << 16,
                link_layer: link_layer::INFINIBAND,
                lid: if down || health.address_is_lost { 0 } else { lid_of(ip).unwrap_or(0) },
                sm_lid: SM_LID,
                ..common
            },
        }
    }

    /// Returns the GID of an InfiniBand port.
    fn port_gid(&self) -> [u8; 16] {
        let second_byte = if self.has(Fault::OtherSubnet) { 0xc0 } else { 0x80 };
        let mut gid = port_gid(self.guid());
        gid[1] = second_byte;
        gid
    }

    /// Returns the GID table: index, GID and type of each entry.
    pub(crate) fn gids(&self, place: impl Into<PortAddress>) -> Vec<abi::GidEntry> {
        let PortAddress { ip, health } = place.into();
        let netdev_ifindex = match self.settings.link {
            LinkLayer::Ethernet => live::network_device(ip).map_or(0, |name| sys::interface_index(&name)),
            LinkLayer::InfiniBand => 0,
        };
        let entry = |(gid_index, (gid, gid_type))| abi::GidEntry {
            gid,
            gid_index,
            port_num: 1,
            gid_type,
            netdev_ifindex,
        };
        let (local, mapped) = (link_local(ip), ip.to_ipv6_mapped().octets());
        let foreign = FOREIGN.to_ipv6_mapped().octets();
        let table = match self.settings.link {
            _ if self.has(Fault::NoGid) => vec![],
            LinkLayer::InfiniBand => vec![(self.port_gid(), gid_type::IB)],
            LinkLayer::Ethernet if self.has(Fault::GidV1Only) => {
                vec![(local, gid_type::ROCE_V1), (mapped, gid_type::ROCE_V1)]
            }
            LinkLayer::Ethernet if health.address_is_lost => {
                vec![(local, gid_type::ROCE_V1), (local, gid_type::ROCE_V2)]
            }
            LinkLayer::Ethernet if self.has(Fault::ForeignGids) => vec![
                (foreign, gid_type::ROCE_V1),
                (foreign, gid_type::ROCE_V2),
                (mapped, gid_type::ROCE_V1),
                (mapped, gid_type::ROCE_V2),
            ],
            LinkLayer::Ethernet => vec![
                (local, gid_type::ROCE_V1),
                (local, gid_type::ROCE_V2),
                (mapped, gid_type::ROCE_V1),
                (mapped, gid_type::ROCE_V2),
            ],
        };
        (0..).zip(table).map(entry).collect()
    }
}

/// The address of another network namespace. No interface has it (RFC 5737).
const FOREIGN: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);

/// Returns an InfiniBand port's GID: the default subnet prefix and the GUID.
fn port_gid(guid: [u8; 8]) -> [u8; 16] {
    let mut gid = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    gid[8..].copy_from_slice(&guid);
    gid
}

/// Returns the link-local address of an adapter: `fe80::5efe:` followed by its IPv4 address (RFC 5214).
fn link_local(ip: Ipv4Addr) -> [u8; 16] {
    let [a, b, c, d] = ip.octets();
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0x5e, 0xfe, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushmem_softnic::ip_of_gid;

    #[test]
    fn each_gid_leads_to_its_address() {
        let ip = Ipv4Addr::new(127, 64, 3, 9);
        assert_eq!(ip_of_gid(link_local(ip)), Some(ip));
        assert_eq!(ip_of_gid(ip.to_ipv6_mapped().octets()), Some(ip));
        assert_eq!(ip_of_gid(port_gid([1, 2, 3, 4, 5, 6, 7, 8])), None);
    }
}
