//! Selects the port of an RDMA device, and the port's GID and partition key.
//!
//! The selection depends on the values of GIDs and keys, not on their order in the tables.
#![allow(unsafe_code, reason = "calls libibverbs, libmlx5 and if_indextoname")]

use std::mem::zeroed;
use std::net::Ipv6Addr;

use rdma_sys::{ibv_device_attr, ibv_gid_entry, ibv_port_attr, ibv_port_state};
use rushmem_config::{AddressRange, Config, Partition};
use rushmem_error::{RdmaError, errno_text};
use rushmem_mlx5::prm::Response;
use rushmem_mlx5::prm::caps::{QueryRoceAddress, QueryRoceAddressOut};

use super::context::Context;
use super::ffi;
use super::gid::{Gid, usable_gid};
use super::network::Networks;
use super::remedy::{SEE_DMESG, last_errno};
use crate::provider::{LinkLayer, NicKind, PortAddress};

/// The values of `IBV_LINK_LAYER_INFINIBAND` and `IBV_LINK_LAYER_ETHERNET`, in this order.
const LINK_LAYERS: [u8; 2] = [1, 2];
/// The flag `IBV_QPF_GRH_REQUIRED` of `ibv_port_attr.flags`: packets need a GRH even within the subnet.
const GRH_REQUIRED: u8 = 1;

/// An active port, with its selected GID and partition key.
#[derive(Clone, Debug)]
pub(super) struct Port {
    pub(super) address: PortAddress,
    /// Index of the selected GID in the port's GID table.
    pub(super) gid_index: u8,
    /// Network of the selected GID, if known. Ports of different networks may be unable to reach each other.
    pub(super) network: Option<AddressRange>,
    /// Index of the selected partition key in the port's table.
    pub(super) pkey_index: u16,
    /// Whether InfiniBand packets need a GRH even within the subnet.
    pub(super) grh_required: bool,
    /// Rate of the port in Gb/s, if known.
    pub(super) gbps: Option<u32>,
    /// Number of ports that the device has.
    pub(super) ports: u8,
}

/// Selects port `wanted`, or else the first active port, and the GID and partition key that match the settings.
///
/// Ports in `without` are out of the question.
pub(super) fn choose(
    context: &Context,
    wanted: Option<u8>,
    without: &[u8],
    config: &Config,
) -> Result<Port, RdmaError> {
    // SAFETY: all fields are numbers or arrays of numbers, so all zeros is a valid value.
    let mut device: ibv_device_attr = unsafe { zeroed() };
    // SAFETY: the context is open, and `device` is a live variable.
    let errno = unsafe { ffi::ibv_query_device(context.raw(), &mut device) };
    if errno != 0 {
        return Err(context.error("ibv_query_device", errno, SEE_DMESG));
    }
    let count = device.phys_port_cnt;
    let unusable = |why| Err(RdmaError::Unusable { nic: context.title().into(), why });
    let numbers = match wanted {
        Some(number) if number > count => {
            return unusable(format!(
                "it has no port {number}: its ports are 1 to {count}; change RUSHMEM_NIC"
            ));
        }
        Some(number) => number..=number,
        None => 1..=count,
    };
    let mut states = Vec::new();
    for number in numbers.filter(|number| !without.contains(number)) {
        let attr = query(context, number)?;
        match attr.state {
            ibv_port_state::IBV_PORT_ACTIVE | ibv_port_state::IBV_PORT_ACTIVE_DEFER => {
                return describe(context, number, &attr, count, config);
            }
            state => states.push(format!("port {number} is {}", state_name(state))),
        }
    }
    unusable(format!(
        "{}; connect its cable and bring its interface up (ip link set ... up; on InfiniBand, start a subnet manager), \
         or choose another one in RUSHMEM_NIC",
        states.join(", ")
    ))
}

/// Queries the attributes of a port (`ibv_query_port`).
fn query(context: &Context, number: u8) -> Result<ibv_port_attr, RdmaError> {
    // SAFETY: all fields are numbers, so all zeros is a valid value.
    let mut attr: ibv_port_attr = unsafe { zeroed() };
    // SAFETY: the context is open, and `attr` is a live variable.
    let errno = unsafe { ffi::ibv_query_port(context.raw(), number, &mut attr) };
    match errno {
        0 => Ok(attr),
        errno => Err(context.error(format!("ibv_query_port {number}"), errno, SEE_DMESG)),
    }
}

/// Returns the rate of a port in Gb/s, given its width and lane speed as encoded by verbs.
fn gbps(width: u8, speed: u8) -> Option<u32> {
    let lanes = match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => return None,
    };
    // SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR: tenths of Gb/s.
    let lane = match speed {
        1 => 25,
        2 => 50,
        4 | 8 => 100,
        16 => 140,
        32 => 250,
        64 => 500,
        128 => 1000,
        _ => return None,
    };
    Some(lanes * lane / 10)
}

/// Returns a description of how the LID, GID or partition key of an open port has changed, or `None` if it has not.
pub(super) fn changed_address(context: &Context, port: &Port) -> Result<Option<String>, RdmaError> {
    let number = port.address.number;
    let attr = query(context, number)?;
    if port.address.link == LinkLayer::InfiniBand && attr.lid != port.address.lid {
        return Ok(Some(format!("its LID was {:#x} and is {:#x}", port.address.lid, attr.lid)));
    }
    let index = u32::from(port.gid_index);
    let entries = gids(context, &attr, port.ports)?;
    let found = entries.iter().find(|gid| gid.port == u32::from(number) && gid.index == index);
    let was = Ipv6Addr::from(port.address.gid);
    if found.is_none_or(|gid| gid.gid != was) {
        let is = found.map_or("gone".into(), |gid| gid.gid.to_string());
        return Ok(Some(format!("its GID {index} was {was} and is {is}")));
    }
    let keys = partitions(context, number, &attr)?;
    let found = keys.iter().find(|(index, _)| *index == port.pkey_index);
    let was = port.address.partition;
    if found.is_none_or(|(_, key)| *key != was) {
        let is = found.map_or("gone".into(), |(_, key)| key.to_string());
        return Ok(Some(format!("its partition key {} was {was} and is {is}", port.pkey_index)));
    }
    Ok(None)
}

fn state_name(state: ibv_port_state::Type) -> &'static str {
    match state {
        ibv_port_state::IBV_PORT_DOWN => "down",
        ibv_port_state::IBV_PORT_INIT => "initializing",
        ibv_port_state::IBV_PORT_ARMED => "armed",
        _ => "in an unknown state",
    }
}

/// Selects GID and partition key of an active port. `ports` is the number of ports of the device.
fn describe(
    context: &Context,
    number: u8,
    attr: &ibv_port_attr,
    ports: u8,
    config: &Config,
) -> Result<Port, RdmaError> {
    let unusable = |why| RdmaError::Unusable { nic: context.title().into(), why };
    let link = link_of(attr).map_err(|why| unusable(format!("port {number} has {why}")))?;
    let entries: Vec<Gid> =
        gids(context, attr, ports)?.into_iter().filter(|gid| gid.port == u32::from(number)).collect();
    let wanted = config.gid_index.0;
    let networks = Networks::new(config)
        .map_err(|error| unusable(format!("the network interfaces cannot be listed: {error}")))?;
    let (gid, gid_index) = usable_gid(link, wanted, &entries, &networks)
        .map_err(|why| unusable(format!("port {number} has {why}")))?;
    let keys = partitions(context, number, attr)?;
    let Some((pkey_index, partition)) = best_key(config.partition.0, &keys) else {
        let keys: Vec<_> = keys.iter().map(|(_, key)| key.to_string()).collect();
        let wanted = config.partition.0.map_or("any partition".into(), |key| format!("partition {key}"));
        return Err(unusable(format!(
            "port {number} is not in {wanted} (its keys: {}): change RUSHMEM_PARTITION, or add the port to the partition \
             in the subnet manager",
            if keys.is_empty() { "none".into() } else { keys.join(", ") }
        )));
    };
    Ok(Port {
        address: PortAddress {
            kind: NicKind::Hardware,
            link,
            number,
            gid: gid.gid.octets(),
            mac: if link == LinkLayer::Ethernet { mac(context, number, gid) } else { [0; 6] },
            lid: attr.lid,
            mtu: 128 << attr.active_mtu.clamp(1, 5),
            partition,
        },
        gid_index,
        network: networks.of_gid(gid.gid),
        pkey_index,
        grh_required: attr.flags & GRH_REQUIRED != 0,
        gbps: gbps(attr.active_width, attr.active_speed),
        ports,
    })
}

/// Returns the link layer of a port, or why it cannot be used.
fn link_of(attr: &ibv_port_attr) -> Result<LinkLayer, String> {
    match attr.link_layer {
        layer if layer == LINK_LAYERS[1] => Ok(LinkLayer::Ethernet),
        // Old InfiniBand devices do not report a link layer.
        layer if layer == LINK_LAYERS[0] || layer == 0 => match attr.lid {
            0 => Err("no LID: start a subnet manager (opensm) on its network".into()),
            _ => Ok(LinkLayer::InfiniBand),
        },
        layer => Err(format!("the unknown link layer {layer}")),
    }
}

/// Returns the GID table entries of all ports of the device (`ibv_query_gid_table`).
fn gids(context: &Context, attr: &ibv_port_attr, ports: u8) -> Result<Vec<Gid>, RdmaError> {
    let most = usize::try_from(attr.gid_tbl_len).unwrap_or(0).clamp(1, 1024) * usize::from(ports.max(1));
    // SAFETY: all fields are numbers, so all zeros is a valid value.
    let mut table: Vec<ibv_gid_entry> = (0..most).map(|_| unsafe { zeroed() }).collect();
    // SAFETY: the context is open, and the table has this length and this size of entries.
    let count = unsafe {
        let size = size_of::<ibv_gid_entry>();
        ffi::_ibv_query_gid_table(context.raw(), table.as_mut_ptr(), table.len(), 0, size)
    };
    if count < 0 {
        return Err(context.error("ibv_query_gid_table", -count as i32, SEE_DMESG));
    }
    table.truncate(count as usize);
    let read = |entry: &ibv_gid_entry| Gid {
        has_interface: entry.ndev_ifindex == 0 || interface_name(entry.ndev_ifindex).is_some(),
        // SAFETY: both fields of the union are plain bytes.
        gid: Ipv6Addr::from(unsafe { entry.gid.raw }),
        index: entry.gid_index,
        port: entry.port_num,
        kind: entry.gid_type,
        interface: entry.ndev_ifindex,
    };
    Ok(table.iter().map(read).collect())
}

/// Returns the valid keys in the port's partition table, with their indices (`ibv_query_pkey`).
fn partitions(
    context: &Context,
    number: u8,
    attr: &ibv_port_attr,
) -> Result<Vec<(u16, Partition)>, RdmaError> {
    let mut keys = Vec::new();
    for index in 0..attr.pkey_tbl_len {
        let mut key = 0;
        // SAFETY: the context is open, and `key` is a live variable.
        let errno = unsafe { ffi::ibv_query_pkey(context.raw(), number, index.into(), &mut key) };
        if errno != 0 {
            let call = format!("ibv_query_pkey {number} {index}");
            return Err(context.error(call, last_errno(), SEE_DMESG));
        }
        let key = Partition(u16::from_be(key));
        if key.number() != 0 {
            keys.push((index, key));
        }
    }
    Ok(keys)
}

/// Returns the port's key for partition `wanted`, or else for any partition, with its index.
///
/// Prefers keys with full membership. Ties go to the lowest index.
fn best_key(wanted: Option<Partition>, keys: &[(u16, Partition)]) -> Option<(u16, Partition)> {
    let keys = keys.iter().filter(|(_, key)| wanted.is_none_or(|wanted| key.number() == wanted.number()));
    keys.min_by_key(|(index, key)| (!key.is_full(), *index)).copied()
}

/// Returns the MAC address that belongs to a GID: as reported by the device (`QUERY_ROCE_ADDRESS`), or else by its
/// network interface.
///
/// Returns zeros if neither has one. Peers must then resolve the address through Linux.
fn mac(context: &Context, port: u8, gid: &Gid) -> [u8; 6] {
    let query =
        QueryRoceAddress { roce_address_index: gid.index as u16, vhca_port_num: port, ..Default::default() };
    let mut answer = <QueryRoceAddressOut as Response>::EMPTY;
    let result = context.general(query.encode().as_ref(), answer.as_mut());
    if let (Ok(()), Ok(out)) = (result, QueryRoceAddressOut::decode(&answer))
        && out.address.source_mac != [0; 6]
    {
        return out.address.source_mac;
    }
    let found = interface_mac(gid.interface);
    if found.is_none() {
        tracing::debug!("{}: the MAC address of port {port} is not known", context.title());
    }
    found.unwrap_or_default()
}

/// Returns the name of a network interface of this network namespace.
fn interface_name(index: u32) -> Option<String> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the required length, and the call writes a C string to it.
    unsafe {
        if libc::if_indextoname(index, name.as_mut_ptr()).is_null() {
            tracing::debug!("interface {index}: {}", errno_text(last_errno()));
            return None;
        }
        std::ffi::CStr::from_ptr(name.as_ptr()).to_str().ok().map(str::to_owned)
    }
}

/// Returns the MAC address of the network interface with this index.
fn interface_mac(index: u32) -> Option<[u8; 6]> {
    let name = interface_name(index)?;
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/address")).ok()?;
    let mut mac = [0; 6];
    let mut parts = text.trim().split(':');
    for byte in &mut mac {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    Some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chooses_the_key_of_a_full_member() {
        let keys = [(0, 0xffff), (2, 0x0001), (5, 0x8001), (6, 0x0007)].map(|(i, key)| (i, Partition(key)));
        let found = |wanted| best_key(Some(Partition(wanted)), &keys);
        assert_eq!(found(0xffff), Some(keys[0]));
        assert_eq!([found(0x8001), found(0x1)], [Some(keys[2]); 2], "the key with full membership");
        assert_eq!(found(0x8007), Some(keys[3]));
        assert_eq!(found(0x8002), None);
        assert_eq!(best_key(None, &keys), Some(keys[0]));
        assert_eq!(best_key(None, &keys[1..]), Some(keys[2]), "full membership before limited membership");
        assert_eq!(best_key(None, &keys[3..]), Some(keys[3]));
        assert_eq!(best_key(None, &[]), None);
    }
}
