//! RoCE datagrams in frames, whose receivers see the addresses in the headers.

use super::{CUSTOMER_TAG, IPV4, IPV6, Layers, UDP, offload};
use crate::address::Gid;
use crate::roce::{self, Bth, Ext, icrc};
use rushmem_mlx5::av::AvSeg;
use rushmem_mlx5::prm::caps::RoceAddr;
use std::net::{Ipv4Addr, Ipv6Addr};

const UDP_HEADER: usize = 8;
pub(crate) const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;

/// Lowest UDP source port, for address vectors without one.
const LEAST_PORT: u16 = 0xc000;

/// Returns the IPv4 header of a UDP packet with `len` bytes of payload, which routers must not fragment.
pub(crate) fn ipv4_header(
    from: Ipv4Addr,
    to: Ipv4Addr,
    (tos, ttl): (u8, u8),
    len: usize,
) -> [u8; IPV4_HEADER] {
    let mut ip = [0; IPV4_HEADER];
    (ip[0], ip[1], ip[6], ip[8], ip[9]) = (0x45, tos, 0x40, ttl, UDP);
    ip[2..4].copy_from_slice(&((IPV4_HEADER + UDP_HEADER + len) as u16).to_be_bytes());
    ip[12..16].copy_from_slice(&from.octets());
    ip[16..].copy_from_slice(&to.octets());
    let checksum = !offload::sum(0, &ip);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    ip
}

/// Returns the IPv6 header between two GIDs, which is also the global route header of InfiniBand, with `len` bytes of
/// payload. `label` has the traffic class and the flow label.
pub(crate) fn ipv6_header(
    [from, to]: [Gid; 2],
    label: u32,
    (next, hops): (u8, u8),
    len: usize,
) -> [u8; IPV6_HEADER] {
    let mut ip = [0; IPV6_HEADER];
    ip[..4].copy_from_slice(&(6 << 28 | label).to_be_bytes());
    ip[4..6].copy_from_slice(&(len as u16).to_be_bytes());
    (ip[6], ip[7]) = (next, hops);
    ip[8..24].copy_from_slice(&from);
    ip[24..].copy_from_slice(&to);
    ip
}

/// Builds the frame of a datagram, or returns `None` if the addresses are of different kinds.
pub(crate) fn build(
    source: &RoceAddr,
    av: &AvSeg,
    (bth, ext): (&Bth, &Ext),
    payload: &[u8],
) -> Option<Vec<u8>> {
    let len = roce::packet_len(bth.len() + ext.len(), payload.len());
    let mut packet = vec![0; len];
    roce::emit(bth, ext, payload.len(), &mut packet).copy_from_slice(payload);
    let mut udp = [0; UDP_HEADER];
    let port = av.rlid.get();
    udp[..2].copy_from_slice(&(if port == 0 { LEAST_PORT } else { port }).to_be_bytes());
    udp[2..4].copy_from_slice(&roce::PORT.to_be_bytes());
    udp[4..6].copy_from_slice(&((UDP_HEADER + len) as u16).to_be_bytes());
    let [from, to] = [source.source_l3_address, av.rgid].map(Ipv6Addr::from);
    let hops = if av.hop_limit == 0 { 64 } else { av.hop_limit };
    let (ethertype, ip) = match (from.to_ipv4_mapped(), to.to_ipv4_mapped()) {
        (Some(from), Some(to)) => (IPV4, ipv4_header(from, to, (av.tclass, hops), len).to_vec()),
        (None, None) => {
            let label = u32::from(av.tclass) << 20 | av.grh_gid_fl.get() & 0xf_ffff;
            let gids = [from.octets(), to.octets()];
            (IPV6, ipv6_header(gids, label, (UDP, hops), UDP_HEADER + len).to_vec())
        }
        _ => return None,
    };
    icrc::seal_headers(&ip, &udp, &mut packet);
    let mut frame = [&av.rmac[..], &source.source_mac, &ethertype.to_be_bytes(), &ip, &udp, &packet].concat();
    if source.vlan_valid {
        offload::insert_tag(&mut frame, (CUSTOMER_TAG, source.vlan_id));
    }
    Some(frame)
}

/// A frame with a RoCE packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opened<'f> {
    pub(crate) is_v6: bool,
    /// The IP header.
    pub(crate) header: &'f [u8],
    /// The packet, or `None` if its CRC is wrong.
    pub(crate) packet: Option<&'f [u8]>,
}

/// Returns the RoCE packet of a frame, or `None` if the frame is something else.
pub(crate) fn open<'f>(frame: &'f [u8], layers: &Layers) -> Option<Opened<'f>> {
    let ip = layers.ip.filter(|ip| ip.protocol == UDP && ip.has_ports() && ip.is_whole)?;
    let (header, rest) = frame[layers.network..ip.end].split_at(ip.transport - layers.network);
    let (udp, packet) = rest.split_at(UDP_HEADER);
    if udp[2..4] != roce::PORT.to_be_bytes() {
        return None;
    }
    let packet = icrc::intact_headers(header, udp, packet).then_some(packet);
    Some(Opened { is_v6: ip.is_v6, header, packet })
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use crate::roce::{DEFAULT_PKEY, Deth, Op, Psn, Service};

    #[test]
    fn a_datagram_is_a_frame_with_the_addresses_of_both_ends() {
        let bth = Bth {
            service: Service::Ud,
            op: Op::SendOnly,
            solicited: false,
            pkey: DEFAULT_PKEY,
            ack_req: false,
            dest_qpn: 1,
            psn: Psn::new(5),
            srqn: None,
        };
        let ext = Ext::Deth(Deth { qkey: 9, source_qpn: 1 });
        let gid = |host| std::net::Ipv4Addr::new(10, 0, 0, host).to_ipv6_mapped().octets();
        let link = |host| Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, host).octets();
        for (from, to, ethertype) in [(gid(1), gid(2), IPV4), (link(1), link(2), IPV6)] {
            let mac = [2, 0, 0, 0, 0, 1];
            let source = RoceAddr { source_l3_address: from, source_mac: mac, ..RoceAddr::default() };
            let av = AvSeg { rgid: to, rmac: [2, 0, 0, 0, 0, 2], ..AvSeg::default() };
            let frame = build(&source, &av, (&bth, &ext), b"hello").unwrap();
            let layers = parse(&frame).unwrap();
            assert_eq!((layers.ethertype, layers.ip.unwrap().end), (ethertype, frame.len()));
            let opened = open(&frame, &layers).unwrap();
            assert_eq!(opened.header[0] >> 4, if ethertype == IPV4 { 4 } else { 6 });
            let bytes = opened.packet.expect("the CRC is right");
            let packet = roce::parse(bytes).unwrap();
            assert_eq!((packet.bth, packet.ext, packet.payload), (bth, ext, &b"hello"[..]));
            let mixed = AvSeg { rgid: [0xfe; 16], ..av };
            assert!(ethertype == IPV6 || build(&source, &mixed, (&bth, &ext), b"hello").is_none());
        }
    }
}
