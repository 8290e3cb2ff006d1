//! Ports: which one is used, and which of its addresses, chosen by what they say and never by where they stand.

use std::mem::zeroed;
use std::net::Ipv6Addr;

use rdma_sys::{
    ___ibv_query_port, IBV_GID_TYPE_IB, IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2, ibv_device_attr,
    ibv_gid_entry, ibv_port_attr, ibv_port_state, ibv_query_device, ibv_query_pkey,
};
use rushmem_mlx5::prm::Response;
use rushmem_mlx5::prm::caps::{QueryRoceAddress, QueryRoceAddressOut};

use super::context::Context;
use super::error::{RdmaError, errno_text, last_errno};
use super::ffi;
use crate::config::{Config, Partition};
use crate::provider::{LinkLayer, NicKind, PortAddress};

/// `IBV_LINK_LAYER_INFINIBAND` and `IBV_LINK_LAYER_ETHERNET`.
const LINK_LAYERS: [u8; 2] = [1, 2];
/// `IBV_QPF_GRH_REQUIRED` of `ibv_port_attr.flags`.
const GRH_REQUIRED: u8 = 1;

/// A port that is up, and its address.
#[derive(Clone, Debug)]
pub(super) struct Port {
    pub(super) address: PortAddress,
    /// Where the GID stands in the port's table.
    pub(super) gid_index: u8,
    /// Where the partition's key stands in the port's table.
    pub(super) pkey_index: u16,
    /// InfiniBand packets carry a global route header even within the subnet.
    pub(super) grh_required: bool,
}

/// Looks at the device's ports and takes the wanted one, or the first that is active; of its addresses and partitions those
/// of the settings.
pub(super) fn choose(context: &Context, wanted: Option<u8>, config: &Config) -> Result<Port, RdmaError> {
    // SAFETY: plain numbers and arrays of them, for which all zeros is a value.
    let mut device: ibv_device_attr = unsafe { zeroed() };
    // SAFETY: an open context and a live variable.
    let errno = unsafe { ibv_query_device(context.raw(), &mut device) };
    if errno != 0 {
        return Err(context.error("ibv_query_device", errno, "See dmesg"));
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
    for number in numbers {
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

fn query(context: &Context, number: u8) -> Result<ibv_port_attr, RdmaError> {
    // SAFETY: plain numbers, for which all zeros is a value.
    let mut attr: ibv_port_attr = unsafe { zeroed() };
    // SAFETY: an open context and a live variable.
    let errno = unsafe { ___ibv_query_port(context.raw(), number, &mut attr) };
    match errno {
        0 => Ok(attr),
        errno => Err(context.error(format!("ibv_query_port {number}"), errno, "See dmesg")),
    }
}

fn state_name(state: ibv_port_state::Type) -> &'static str {
    match state {
        ibv_port_state::IBV_PORT_DOWN => "down",
        ibv_port_state::IBV_PORT_INIT => "initializing",
        ibv_port_state::IBV_PORT_ARMED => "armed",
        _ => "in an unknown state",
    }
}

fn describe(
    context: &Context,
    number: u8,
    attr: &ibv_port_attr,
    ports: u8,
    config: &Config,
) -> Result<Port, RdmaError> {
    let unusable = |why| RdmaError::Unusable { nic: context.title().into(), why };
    let link = match attr.link_layer {
        layer if layer == LINK_LAYERS[1] => LinkLayer::Ethernet,
        // Devices older than the field are InfiniBand.
        layer if layer == LINK_LAYERS[0] || layer == 0 => LinkLayer::InfiniBand,
        layer => return Err(unusable(format!("port {number} has a link of unknown kind {layer}"))),
    };
    if link == LinkLayer::InfiniBand && attr.lid == 0 {
        let why = format!("port {number} has no LID: start a subnet manager (opensm) on its network");
        return Err(unusable(why));
    }
    let entries: Vec<Gid> =
        gids(context, attr, ports)?.into_iter().filter(|gid| gid.port == u32::from(number)).collect();
    let wanted = config.gid_index.0;
    let Some(gid) = best(link, wanted, &entries) else {
        let remedy = match (wanted, link) {
            (Some(_), _) => "change RUSHMEM_GID_INDEX, or leave it out",
            (None, LinkLayer::Ethernet) => {
                "a RoCE v2 address is needed: give the port's network interface an IP address (ip addr add), and see \
                 that RoCE v2 is on"
            }
            (None, LinkLayer::InfiniBand) => "see that a subnet manager runs on its network",
        };
        let at = wanted.map_or(String::new(), |index| format!(" at index {index}"));
        let found = if entries.is_empty() { "none at all".into() } else { list(&entries) };
        return Err(unusable(format!("port {number} has no usable GID{at} (there is {found}): {remedy}")));
    };
    let Ok(gid_index) = u8::try_from(gid.index) else {
        return Err(unusable(format!(
            "GID {} stands at index {}, behind the last of a QP",
            gid.gid, gid.index
        )));
    };
    let keys = partitions(context, number, attr)?;
    let Some((pkey_index, partition)) = membership(config.partition.0, &keys) else {
        let keys: Vec<_> = keys.iter().map(|(_, key)| key.to_string()).collect();
        let wanted = config.partition.0.map_or("any partition".into(), |key| format!("partition {key}"));
        return Err(unusable(format!(
            "port {number} is not in {wanted} (its keys: {}): change RUSHMEM_PARTITION, or have the subnet manager let it in",
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
        pkey_index,
        grh_required: attr.flags & GRH_REQUIRED != 0,
    })
}

/// An entry of the table of GIDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gid {
    gid: Ipv6Addr,
    index: u32,
    port: u32,
    kind: u32,
    interface: u32,
}

fn gids(context: &Context, attr: &ibv_port_attr, ports: u8) -> Result<Vec<Gid>, RdmaError> {
    let most = usize::try_from(attr.gid_tbl_len).unwrap_or(0).clamp(1, 1024) * usize::from(ports.max(1));
    // SAFETY: plain numbers, for which all zeros is a value.
    let mut table: Vec<ibv_gid_entry> = (0..most).map(|_| unsafe { zeroed() }).collect();
    // SAFETY: an open context, and a table with its length and the size of its entries.
    let count = unsafe {
        let size = size_of::<ibv_gid_entry>();
        ffi::_ibv_query_gid_table(context.raw(), table.as_mut_ptr(), table.len(), 0, size)
    };
    if count < 0 {
        return Err(context.error("ibv_query_gid_table", -count as i32, "See dmesg"));
    }
    table.truncate(count as usize);
    let read = |entry: &ibv_gid_entry| Gid {
        // SAFETY: both members of the union are plain bytes.
        gid: Ipv6Addr::from(unsafe { entry.gid.raw }),
        index: entry.gid_index,
        port: entry.port_num,
        kind: entry.gid_type,
        interface: entry.ndev_ifindex,
    };
    Ok(table.iter().map(read).collect())
}

/// How far an address reaches: less is further. None for one that names nobody.
fn reach(gid: Ipv6Addr) -> Option<u8> {
    if let Some(ip) = gid.to_ipv4_mapped() {
        return match () {
            () if ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() => None,
            // Of a software device: others of this machine.
            () if ip.is_loopback() => Some(2),
            () if ip.is_link_local() => Some(3),
            () => Some(0),
        };
    }
    match () {
        () if gid.is_unspecified() || gid.is_multicast() => None,
        () if gid.is_loopback() => Some(2),
        () if gid.is_unicast_link_local() => Some(3),
        () => Some(1),
    }
}

/// The entry to use, at the wanted place if there is one: on Ethernet RoCE v2 only, IPv4 before routable IPv6 before
/// link-local addresses; on InfiniBand the one that reaches furthest. The first of equals.
fn best(link: LinkLayer, wanted: Option<u8>, entries: &[Gid]) -> Option<&Gid> {
    let kind = match link {
        LinkLayer::Ethernet => IBV_GID_TYPE_ROCE_V2,
        LinkLayer::InfiniBand => IBV_GID_TYPE_IB,
    };
    let fit = entries.iter().filter(|entry| entry.kind == kind && reach(entry.gid).is_some());
    let fit = fit.filter(|entry| wanted.is_none_or(|index| entry.index == u32::from(index)));
    fit.min_by_key(|entry| (reach(entry.gid), entry.index))
}

fn list(entries: &[Gid]) -> String {
    let kind = |entry: &Gid| match entry.kind {
        IBV_GID_TYPE_IB => "InfiniBand",
        IBV_GID_TYPE_ROCE_V1 => "RoCE v1",
        IBV_GID_TYPE_ROCE_V2 => "RoCE v2",
        _ => "of unknown type",
    };
    let line = |entry: &Gid| format!("{}: {} {}", entry.index, entry.gid, kind(entry));
    entries.iter().map(line).collect::<Vec<_>>().join(", ")
}

/// The keys in the port's table of partitions, and where they stand.
fn partitions(
    context: &Context,
    number: u8,
    attr: &ibv_port_attr,
) -> Result<Vec<(u16, Partition)>, RdmaError> {
    let mut keys = Vec::new();
    for index in 0..attr.pkey_tbl_len {
        let mut key = 0;
        // SAFETY: an open context and a live variable.
        let errno = unsafe { ibv_query_pkey(context.raw(), number, index.into(), &mut key) };
        if errno != 0 {
            let call = format!("ibv_query_pkey {number} {index}");
            return Err(context.error(call, last_errno(), "See dmesg"));
        }
        let key = Partition(u16::from_be(key));
        if key.number() != 0 {
            keys.push((index, key));
        }
    }
    Ok(keys)
}

/// The key with which the port is in the wanted partition, or in any: that of a full member before others, and the first of
/// equals.
fn membership(wanted: Option<Partition>, keys: &[(u16, Partition)]) -> Option<(u16, Partition)> {
    let of_it = keys.iter().filter(|(_, key)| wanted.is_none_or(|wanted| key.number() == wanted.number()));
    of_it.min_by_key(|(index, key)| (!key.is_full(), *index)).copied()
}

/// The Ethernet address that belongs to a GID: the device's own word, or that of its network interface. Zero where
/// neither speaks; then paths are resolved by the system alone.
fn mac(context: &Context, port: u8, gid: &Gid) -> [u8; 6] {
    let ask =
        QueryRoceAddress { roce_address_index: gid.index as u16, vhca_port_num: port, ..Default::default() };
    let mut answer = <QueryRoceAddressOut as Response>::EMPTY;
    let said = context.general(ask.encode().as_ref(), answer.as_mut());
    if let (Ok(()), Ok(out)) = (said, QueryRoceAddressOut::decode(&answer))
        && out.address.source_mac != [0; 6]
    {
        return out.address.source_mac;
    }
    let found = interface_mac(gid.interface);
    if found.is_none() {
        tracing::debug!("{}: the Ethernet address of port {port} is not known", context.title());
    }
    found.unwrap_or_default()
}

fn interface_mac(index: u32) -> Option<[u8; 6]> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the length that the call demands.
    let name = unsafe {
        if libc::if_indextoname(index, name.as_mut_ptr()).is_null() {
            tracing::debug!("interface {index}: {}", errno_text(super::error::last_errno()));
            return None;
        }
        std::ffi::CStr::from_ptr(name.as_ptr()).to_str().ok()?.to_owned()
    };
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

    fn gid(index: u32, text: &str, kind: u32) -> Gid {
        Gid { gid: text.parse().unwrap(), index, port: 1, kind, interface: 2 }
    }

    #[test]
    fn a_gid_is_chosen_by_what_it_says() {
        let table = [
            gid(0, "fe80::1", IBV_GID_TYPE_ROCE_V1),
            gid(1, "fe80::1", IBV_GID_TYPE_ROCE_V2),
            gid(2, "::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V1),
            gid(3, "::ffff:127.0.0.1", IBV_GID_TYPE_ROCE_V2),
            gid(4, "2001:db8::1", IBV_GID_TYPE_ROCE_V2),
            gid(5, "::ffff:169.254.0.9", IBV_GID_TYPE_ROCE_V2),
            gid(6, "::", IBV_GID_TYPE_ROCE_V2),
            gid(7, "::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V2),
            gid(8, "::ffff:10.0.0.2", IBV_GID_TYPE_ROCE_V2),
        ];
        let index = |entries: &[Gid]| best(LinkLayer::Ethernet, None, entries).map(|gid| gid.index);
        assert_eq!(index(&table), Some(7));
        assert_eq!(index(&table[..7]), Some(4));
        assert_eq!(index(&table[..4]), Some(3));
        assert_eq!(index(&table[..3]), Some(1));
        assert_eq!(index(&table[..1]), None, "RoCE v1 is not routable");
        let mut backwards = table;
        backwards.reverse();
        assert_eq!(index(&backwards), Some(7), "the order of the answer does not count");
        assert_eq!(best(LinkLayer::InfiniBand, None, &table), None);
        let at = |wanted| best(LinkLayer::Ethernet, Some(wanted), &table).map(|gid| gid.index);
        assert_eq!([at(4), at(8), at(2), at(6), at(9)], [Some(4), Some(8), None, None, None]);
        let subnet = [gid(0, "fe80::5", IBV_GID_TYPE_IB), gid(1, "fec0::5", IBV_GID_TYPE_IB)];
        assert_eq!(best(LinkLayer::InfiniBand, None, &subnet).map(|gid| gid.index), Some(1));
    }

    #[test]
    fn what_there_is_is_listed() {
        let table = [gid(0, "fe80::1", IBV_GID_TYPE_ROCE_V1), gid(1, "::ffff:10.0.0.1", 9)];
        assert_eq!(list(&table), "0: fe80::1 RoCE v1, 1: ::ffff:10.0.0.1 of unknown type");
    }

    #[test]
    fn a_port_is_in_the_partitions_of_its_table() {
        let keys = [(0, 0xffff), (2, 0x0001), (5, 0x8001), (6, 0x0007)].map(|(i, key)| (i, Partition(key)));
        let found = |wanted| membership(Some(Partition(wanted)), &keys);
        assert_eq!(found(0xffff), Some(keys[0]));
        assert_eq!([found(0x8001), found(0x1)], [Some(keys[2]); 2], "a full member, as far as it is one");
        assert_eq!(found(0x8007), Some(keys[3]));
        assert_eq!(found(0x8002), None);
        assert_eq!(membership(None, &keys), Some(keys[0]));
        assert_eq!(membership(None, &keys[1..]), Some(keys[2]), "a full member before a limited one");
        assert_eq!(membership(None, &keys[3..]), Some(keys[3]));
        assert_eq!(membership(None, &[]), None);
    }
}
