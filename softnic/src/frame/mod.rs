//! The headers of Ethernet frames: Ethernet, VLAN tags, IP, TCP and UDP.

pub(crate) mod datagram;
pub(crate) mod offload;

use crate::address::Mac;
use rushmem_mlx5::prm::flow::Headers;

/// Length of an Ethernet header without tags.
pub(crate) const ETHERNET: usize = 14;
/// Length of a VLAN tag.
pub(crate) const TAG: usize = 4;

pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const IPV6: u16 = 0x86dd;
pub(crate) const CUSTOMER_TAG: u16 = 0x8100;
pub(crate) const SERVICE_TAG: u16 = 0x88a8;

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
/// Protocols of IPsec.
const ESP: u8 = 50;
const AH: u8 = 51;

/// Maximum number of extension headers of IPv6 that are skipped.
const MAX_EXTENSIONS: usize = 8;

/// Where the headers of a frame are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layers {
    /// EtherType of the outermost VLAN tag, and its control information.
    pub(crate) tag: Option<(u16, u16)>,
    /// EtherType after all tags.
    pub(crate) ethertype: u16,
    /// Offset of what follows the Ethernet header and the tags.
    pub(crate) network: usize,
    pub(crate) ip: Option<Ip>,
}

/// The IP header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ip {
    pub(crate) is_v6: bool,
    pub(crate) protocol: u8,
    pub(crate) is_fragment: bool,
    /// Offset of the header above IP.
    pub(crate) transport: usize,
    /// Offset just past the IP packet, after which padding may follow. A packet that is longer than its frame is
    /// truncated.
    pub(crate) end: usize,
    /// Whether the frame contains the packet.
    pub(crate) is_whole: bool,
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|word| u16::from_be_bytes(*word))
}

/// Returns the destination and the source of a frame, or `None` if it has no Ethernet header.
pub(crate) fn addresses(frame: &[u8]) -> Option<(Mac, Mac)> {
    let (to, rest) = frame.get(..ETHERNET)?.split_first_chunk()?;
    Some((*to, *rest.first_chunk()?))
}

/// Finds the headers of a frame, or returns `None` if it has no Ethernet header.
pub(crate) fn parse(frame: &[u8]) -> Option<Layers> {
    let (mut ethertype, mut network, mut tag) = (word(frame, ETHERNET - 2)?, ETHERNET, None);
    for _ in 0..2 {
        if ethertype != CUSTOMER_TAG && ethertype != SERVICE_TAG {
            break;
        }
        let control = word(frame, network)?;
        tag = tag.or(Some((ethertype, control)));
        ethertype = word(frame, network + 2)?;
        network += TAG;
    }
    let ip = match ethertype {
        IPV4 => ipv4(frame, network),
        IPV6 => ipv6(frame, network),
        _ => None,
    };
    Some(Layers { tag, ethertype, network, ip })
}

/// Limits `end`, where a packet stops according to its header, to the frame. Also returns whether the whole packet is in
/// the frame.
fn end_of(frame: &[u8], end: usize) -> (usize, bool) {
    (end.min(frame.len()), end <= frame.len())
}

fn ipv4(frame: &[u8], at: usize) -> Option<Ip> {
    let header: &[u8; 20] = frame.get(at..)?.first_chunk()?;
    let len = usize::from(header[0] & 0xf) * 4;
    let (end, is_whole) = end_of(frame, at + usize::from(u16::from_be_bytes([header[2], header[3]])));
    let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
    let is_valid = header[0] >> 4 == 4 && len >= 20 && at + len <= end;
    is_valid.then_some(Ip {
        is_v6: false,
        protocol: header[9],
        is_fragment,
        transport: at + len,
        end,
        is_whole,
    })
}

fn ipv6(frame: &[u8], at: usize) -> Option<Ip> {
    const LEN: usize = 40;
    const FRAGMENT: u8 = 44;

    let header: &[u8; LEN] = frame.get(at..)?.first_chunk()?;
    let (end, is_whole) = end_of(frame, at + LEN + usize::from(u16::from_be_bytes([header[4], header[5]])));
    if header[0] >> 4 != 6 {
        return None;
    }
    let (mut protocol, mut transport, mut is_fragment) = (header[6], at + LEN, false);
    for _ in 0..MAX_EXTENSIONS {
        let len = match protocol {
            FRAGMENT => {
                is_fragment = true;
                8
            }
            0 | 43 | 60 => (usize::from(*frame.get(transport + 1)?) + 1) * 8,
            _ => break,
        };
        protocol = *frame.get(transport)?;
        transport += len;
    }
    (transport <= end).then_some(Ip { is_v6: true, protocol, is_fragment, transport, end, is_whole })
}

impl Ip {
    /// Returns the source and the destination address in a frame, from the IP header at `network`.
    pub(crate) fn addresses<'f>(&self, frame: &'f [u8], network: usize) -> (&'f [u8], &'f [u8]) {
        let (at, len) = if self.is_v6 { (network + 8, 16) } else { (network + 12, 4) };
        (&frame[at..at + len], &frame[at + len..at + 2 * len])
    }

    /// Returns the bytes above IP.
    pub(crate) fn payload<'f>(&self, frame: &'f [u8]) -> &'f [u8] {
        &frame[self.transport..self.end]
    }

    /// Returns the security parameter index of IPsec, or nothing if the frame has none.
    pub(crate) fn security_index<'f>(&self, frame: &'f [u8]) -> &'f [u8] {
        let at = match self.protocol {
            ESP => self.transport,
            AH => self.transport + 4,
            _ => return &[],
        };
        frame[..self.end].get(at..at + 4).unwrap_or_default()
    }

    /// Whether the frame has a header with ports: one of TCP or UDP, and not of a fragment.
    pub(crate) fn has_ports(&self) -> bool {
        let least = if self.protocol == TCP { 20 } else { 8 };
        !self.is_fragment && matches!(self.protocol, TCP | UDP) && self.end - self.transport >= least
    }
}

/// Returns the fields of a frame that flow tables match.
pub(crate) fn headers(frame: &[u8], layers: &Layers) -> [u8; Headers::LEN] {
    let (dmac, smac) = addresses(frame).unwrap_or_default();
    let mut fields = Headers { dmac, smac, ethertype: layers.ethertype, ..Headers::default() };
    if let Some((tag, control)) = layers.tag {
        fields.first_prio = (control >> 13) as u8;
        fields.first_cfi = control & 0x1000 != 0;
        fields.first_vid = control & 0xfff;
        (fields.cvlan_tag, fields.svlan_tag) = (tag == CUSTOMER_TAG, tag == SERVICE_TAG);
    }
    if let Some(ip) = layers.ip {
        let at = layers.network;
        let class = match ip.is_v6 {
            true => (frame[at] << 4) | (frame[at + 1] >> 4),
            false => frame[at + 1],
        };
        (fields.ip_dscp, fields.ip_ecn) = (class >> 2, class & 3);
        fields.ip_version = if ip.is_v6 { 6 } else { 4 };
        fields.ttl_hoplimit = frame[at + if ip.is_v6 { 7 } else { 8 }];
        (fields.ip_protocol, fields.frag) = (ip.protocol, ip.is_fragment);
        let (source, destination) = ip.addresses(frame, at);
        fields.source_ip[16 - source.len()..].copy_from_slice(source);
        fields.destination_ip[16 - destination.len()..].copy_from_slice(destination);
        if ip.has_ports() {
            let port = |at| word(frame, ip.transport + at).unwrap_or(0);
            match ip.protocol {
                TCP => {
                    (fields.tcp_sport, fields.tcp_dport) = (port(0), port(2));
                    fields.tcp_flags = port(12) & 0x1ff;
                }
                _ => (fields.udp_sport, fields.udp_dport) = (port(0), port(2)),
            }
        }
    }
    let mut bytes = [0; Headers::LEN];
    fields.write(&mut bytes);
    bytes
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Builds a frame from 10.0.0.1 to 10.0.0.2 with `data` above a header of TCP or UDP, which has no checksums.
    pub(crate) fn frame(protocol: u8, data: &[u8]) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        let transport = if protocol == TCP { 20 } else { 8 };
        let len = (20 + transport + data.len()) as u16;
        frame.extend([0x45, 0, (len >> 8) as u8, len as u8, 0, 7, 0x40, 0, 64, protocol, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0x12, 0x34, 0x56, 0x78]);
        match protocol {
            TCP => frame.extend([0, 0, 0, 9, 0, 0, 0, 0, 0x50, 0x19, 1, 0, 0, 0, 0, 0]),
            _ => frame.extend([((8 + data.len()) >> 8) as u8, (8 + data.len()) as u8, 0, 0]),
        }
        frame.extend(data);
        frame
    }

    #[test]
    fn headers_are_found_behind_tags() {
        let mut tagged = frame(TCP, b"data");
        tagged.splice(12..12, [0x81, 0x00, 0x60, 0x05]);
        let layers = parse(&tagged).unwrap();
        let (is_v6, protocol, is_fragment) = (false, TCP, false);
        let ip = Ip { is_v6, protocol, is_fragment, transport: 38, end: 62, is_whole: true };
        let tag = Some((CUSTOMER_TAG, 0x6005));
        assert_eq!(layers, Layers { tag, ethertype: IPV4, network: 18, ip: Some(ip) });
        let fields = Headers::read(&headers(&tagged, &layers));
        assert_eq!((fields.first_prio, fields.first_vid, fields.ip_version), (3, 5, 4));
        assert_eq!((fields.tcp_sport, fields.tcp_dport, fields.tcp_flags), (0x1234, 0x5678, 0x19));
        assert_eq!(fields.destination_ip[12..], [10, 0, 0, 2]);
    }

    #[test]
    fn extension_headers_are_skipped() {
        let mut frame = vec![0; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 0, 64]);
        frame.extend([1; 32]);
        // Hop-by-hop options, a fragment, and UDP.
        frame.extend([44, 0, 0, 0, 0, 0, 0, 0, UDP, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 2, 0, 8, 0, 0]);
        let ip = parse(&frame).unwrap().ip.unwrap();
        assert_eq!((ip.protocol, ip.is_fragment, ip.transport, ip.end), (UDP, true, 70, 78));
        assert!(!ip.has_ports());
    }

    #[test]
    fn truncated_frames_have_the_headers_that_are_left() {
        let whole = frame(TCP, b"data");
        for len in 0..whole.len() {
            let cut = &whole[..len];
            let layers = parse(cut);
            let ip = layers.and_then(|layers| layers.ip);
            assert_eq!(ip.is_some(), len >= ETHERNET + 20, "{len}");
            assert_eq!(ip.is_some_and(|ip| ip.has_ports()), len >= ETHERNET + 40, "{len}");
            assert!(layers.is_none_or(|layers| offload::correct(cut, &layers) == (false, false)), "{len}");
        }
    }
}
