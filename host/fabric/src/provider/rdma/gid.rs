//! Selects the GID of a port.

use std::net::Ipv6Addr;

use rdma_sys::{IBV_GID_TYPE_IB, IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2};

use super::network::Networks;
use crate::provider::LinkLayer;

/// An entry in a device's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gid {
    pub(super) gid: Ipv6Addr,
    pub(super) index: u32,
    pub(super) port: u32,
    pub(super) kind: u32,
    /// Index of the network interface, or 0.
    pub(super) interface: u32,
    /// Whether the network interface is in this network namespace, if there is one.
    pub(super) has_interface: bool,
}

/// Selects a GID for a port, and returns it with its index, or the reason why the port has none. `wanted` is the index
/// in the settings.
pub(super) fn usable_gid<'a>(
    link: LinkLayer,
    wanted: Option<u8>,
    entries: &'a [Gid],
    networks: &Networks,
) -> Result<(&'a Gid, u8), String> {
    let Some(gid) = best_gid(link, wanted, entries, networks) else {
        let remedy = match (wanted, link) {
            (Some(_), _) => "change RUSHMEM_GID_INDEX, or leave it out",
            (None, LinkLayer::Ethernet) => {
                "a RoCE v2 address is needed: give the port's network interface an IP address (ip addr add), and \
                 enable RoCE v2"
            }
            (None, LinkLayer::InfiniBand) => "start a subnet manager (opensm) on its network",
        };
        let at = wanted.map_or(String::new(), |index| format!(" at index {index}"));
        let found = if entries.is_empty() { "none at all".into() } else { list(entries, networks) };
        return Err(format!("no usable GID{at} (there is {found}): {remedy}"));
    };
    let index = u8::try_from(gid.index).map_err(|_| {
        format!(
            "GID {} at index {}, but a QP can use indices up to {} only; set RUSHMEM_GID_INDEX",
            gid.gid,
            gid.index,
            u8::MAX
        )
    })?;
    Ok((gid, index))
}

/// Ranks a GID by the reach of its address, lower being better. Returns `None` for an address that no port can have.
///
/// 0 is a routable IPv4 address, 1 a routable IPv6 address, 2 a loopback address, 3 a link-local address.
fn rank(gid: Ipv6Addr) -> Option<u8> {
    if let Some(ip) = gid.to_ipv4_mapped() {
        return match () {
            () if ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() => None,
            // Software devices have such addresses, and reach those of the same machine.
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

/// Returns the GID for the QPs of a port: the entry at index `wanted`, or else the one with the lowest [`rank`].
///
/// On Ethernet, only RoCE v2 entries are considered, and without `wanted` only those of this network namespace that the
/// settings admit. Ties are broken in favor of the network of the bootstrap, then of the lowest index.
fn best_gid<'a>(
    link: LinkLayer,
    wanted: Option<u8>,
    entries: &'a [Gid],
    networks: &Networks,
) -> Option<&'a Gid> {
    let kind = match link {
        LinkLayer::Ethernet => IBV_GID_TYPE_ROCE_V2,
        LinkLayer::InfiniBand => IBV_GID_TYPE_IB,
    };
    let mut usable = entries.iter().filter(|entry| entry.kind == kind && rank(entry.gid).is_some());
    if let Some(index) = wanted {
        return usable.find(|entry| entry.index == u32::from(index));
    }
    let usable = usable.filter(|entry| link == LinkLayer::InfiniBand || objection(entry, networks).is_none());
    usable.min_by_key(|entry| (rank(entry.gid), !networks.is_of_bootstrap(entry.gid), entry.index))
}

/// Returns why the GID of an Ethernet port is not considered, if so.
fn objection(entry: &Gid, networks: &Networks) -> Option<&'static str> {
    match () {
        () if !networks.is_own(entry.gid, entry.has_interface) => Some("not of this network namespace"),
        () if !networks.admits(entry.gid) => Some("outside RUSHMEM_GID_RANGE"),
        () => None,
    }
}

/// Formats GID table entries for messages.
fn list(entries: &[Gid], networks: &Networks) -> String {
    let kind = |entry: &Gid| match entry.kind {
        IBV_GID_TYPE_IB => "InfiniBand",
        IBV_GID_TYPE_ROCE_V1 => "RoCE v1",
        IBV_GID_TYPE_ROCE_V2 => "RoCE v2",
        _ => "of unknown type",
    };
    let line = |entry: &Gid| {
        let objection = objection(entry, networks).filter(|_| entry.kind == IBV_GID_TYPE_ROCE_V2);
        let objection = objection.map_or(String::new(), |why| format!(" ({why})"));
        format!("{}: {} {}{objection}", entry.index, entry.gid, kind(entry))
    };
    entries.iter().map(line).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::rdma::network::example;

    fn gid(index: u32, text: &str, kind: u32) -> Gid {
        Gid { gid: text.parse().unwrap(), index, port: 1, kind, interface: 2, has_interface: true }
    }

    #[test]
    fn chooses_the_gid_with_the_best_address() {
        let table = [
            gid(0, "fe80::1", IBV_GID_TYPE_ROCE_V1),
            gid(1, "fe80::1", IBV_GID_TYPE_ROCE_V2),
            gid(2, "::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V1),
            gid(3, "::ffff:127.0.0.1", IBV_GID_TYPE_ROCE_V2),
            gid(4, "2001:db8::1", IBV_GID_TYPE_ROCE_V2),
            gid(5, "::ffff:169.254.0.9", IBV_GID_TYPE_ROCE_V2),
            gid(6, "::", IBV_GID_TYPE_ROCE_V2),
            gid(7, "::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V2),
            gid(8, "::ffff:10.0.1.1", IBV_GID_TYPE_ROCE_V2),
        ];
        let networks = example(&[]);
        let index =
            |entries: &[Gid]| best_gid(LinkLayer::Ethernet, None, entries, &networks).map(|gid| gid.index);
        assert_eq!(index(&table), Some(7));
        assert_eq!(index(&table[..7]), Some(4));
        assert_eq!(index(&table[..4]), Some(3));
        assert_eq!(index(&table[..3]), Some(1));
        assert_eq!(index(&table[..1]), None, "RoCE v1 is not routable");
        let mut backwards = table;
        backwards.reverse();
        assert_eq!(index(&backwards), Some(7), "the order of the entries does not count");
        assert_eq!(best_gid(LinkLayer::InfiniBand, None, &table, &networks), None);
        let at = |wanted| best_gid(LinkLayer::Ethernet, Some(wanted), &table, &networks).map(|gid| gid.index);
        assert_eq!([at(4), at(8), at(2), at(6), at(9)], [Some(4), Some(8), None, None, None]);
        let subnet = [gid(0, "fe80::5", IBV_GID_TYPE_IB), gid(1, "fec0::5", IBV_GID_TYPE_IB)];
        assert_eq!(best_gid(LinkLayer::InfiniBand, None, &subnet, &networks).map(|gid| gid.index), Some(1));
    }

    #[test]
    fn leaves_gids_to_their_network_namespace() {
        let foreign = |index, text| Gid { has_interface: false, ..gid(index, text, IBV_GID_TYPE_ROCE_V2) };
        let table = [
            foreign(0, "fe80::7"),
            gid(1, "fe80::1", IBV_GID_TYPE_ROCE_V2),
            foreign(2, "::ffff:10.244.0.7"),
            gid(3, "::ffff:10.0.0.1", IBV_GID_TYPE_ROCE_V2),
            gid(4, "::ffff:10.0.1.1", IBV_GID_TYPE_ROCE_V2),
        ];
        let index = |settings: &[(&str, &str)], entries: &[Gid]| {
            best_gid(LinkLayer::Ethernet, None, entries, &example(settings)).map(|gid| gid.index)
        };
        assert_eq!(index(&[], &table), Some(3));
        assert_eq!(index(&[], &table[..3]), Some(1));
        assert_eq!(index(&[], &table[..1]), None);
        assert_eq!(index(&[("bootstrap_interface", "eth1")], &table), Some(4));
        assert_eq!(index(&[("gid_range", "10.0.1.0/24")], &table), Some(4));
        assert_eq!(index(&[("gid_range", "10.244.0.0/16")], &table), None);
        let chosen = best_gid(LinkLayer::Ethernet, Some(2), &table, &example(&[]));
        assert_eq!(chosen.map(|gid| gid.index), Some(2), "the index overrides the choice");
        let why = usable_gid(LinkLayer::Ethernet, None, &table[2..3], &example(&[])).unwrap_err();
        assert!(why.contains("2: ::ffff:10.244.0.7 RoCE v2 (not of this network namespace)"), "{why}");
    }

    #[test]
    fn lists_gids_with_their_types() {
        let table = [gid(0, "fe80::1", IBV_GID_TYPE_ROCE_V1), gid(1, "::ffff:10.0.0.1", 9)];
        assert_eq!(list(&table, &example(&[])), "0: fe80::1 RoCE v1, 1: ::ffff:10.0.0.1 of unknown type");
    }
}
