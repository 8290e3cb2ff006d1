//! The invariant CRC of RoCEv2 (InfiniBand Architecture Specification, annex A17.3.3).
//!
//! It covers eight bytes of ones (in place of the local route header), the IPv4 and UDP headers, and the packet. Fields
//! that a router may change count as ones: type of service, time to live, both checksums, and the reserved byte of the
//! BTH. The polynomial is that of Ethernet. The result is stored least significant byte first.
//!
//! The headers are those that Linux generates for an unconnected socket that forbids fragmentation: no options,
//! identification 0, "don't fragment" set.

use std::net::SocketAddrV4;

const IPV4: usize = 20;
const UDP: usize = 8;
/// Number of bytes that the CRC covers in front of the packet.
const PSEUDO: usize = 8 + IPV4 + UDP;

/// Returns the CRC of `packet` (from the BTH to the padding, without the CRC itself), sent from `src` to `dst`.
fn icrc(src: SocketAddrV4, dst: SocketAddrV4, packet: &[u8]) -> u32 {
    icrc_with_id(src, dst, 0, packet)
}

/// Returns the CRC for a datagram with this IPv4 identification.
fn icrc_with_id(src: SocketAddrV4, dst: SocketAddrV4, id: u16, packet: &[u8]) -> u32 {
    let udp_len = (UDP + packet.len() + super::ICRC) as u16;
    let mut head = [0xff; PSEUDO + super::BTH];
    let ip = &mut head[8..8 + IPV4];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&(udp_len + IPV4 as u16).to_be_bytes());
    ip[4..6].copy_from_slice(&id.to_be_bytes());
    ip[6..8].copy_from_slice(&[0x40, 0]);
    ip[9] = 17;
    ip[12..16].copy_from_slice(&src.ip().octets());
    ip[16..20].copy_from_slice(&dst.ip().octets());
    let udp = &mut head[8 + IPV4..PSEUDO];
    udp[0..2].copy_from_slice(&src.port().to_be_bytes());
    udp[2..4].copy_from_slice(&dst.port().to_be_bytes());
    udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
    let (bth, rest) = packet.split_at(super::BTH.min(packet.len()));
    head[PSEUDO..PSEUDO + bth.len()].copy_from_slice(bth);
    // The byte with FECN and BECN.
    head[PSEUDO + 4] = 0xff;
    let mut crc = crc32fast::Hasher::new();
    crc.update(&head[..PSEUDO + bth.len()]);
    crc.update(rest);
    crc.finalize()
}

/// Returns the CRC of a packet with these IPv4 or IPv6 and UDP headers.
fn icrc_of_headers(ip: &[u8], udp: &[u8], packet: &[u8]) -> u32 {
    let mut head = [&[0xff; 8], ip, udp, &packet[..super::BTH.min(packet.len())]].concat();
    // Fields that a router may change: type of service, time to live and checksum, or traffic class, flow label and hop
    // limit.
    let changing: &[usize] = if ip.len() == IPV4 { &[1, 8, 10, 11] } else { &[1, 2, 3, 7] };
    changing.iter().for_each(|at| head[8 + at] = 0xff);
    if ip.len() != IPV4 {
        head[8] |= 0x0f;
    }
    let transport = 8 + ip.len();
    head[transport + 6..transport + 8].fill(0xff);
    head[transport + UDP + 4] = 0xff;
    let mut crc = crc32fast::Hasher::new();
    crc.update(&head);
    crc.update(packet.get(super::BTH..).unwrap_or_default());
    crc.finalize()
}

/// Writes the CRC into the last four bytes of a complete packet with these headers.
pub(crate) fn seal_headers(ip: &[u8], udp: &[u8], packet: &mut [u8]) {
    let (body, tail) = packet.split_at_mut(packet.len() - super::ICRC);
    tail.copy_from_slice(&icrc_of_headers(ip, udp, body).to_le_bytes());
}

/// Whether the last four bytes of a complete packet with these headers are its CRC.
pub(crate) fn intact_headers(ip: &[u8], udp: &[u8], packet: &[u8]) -> bool {
    match packet.split_last_chunk::<{ super::ICRC }>() {
        Some((body, tail)) if body.len() >= super::BTH => {
            icrc_of_headers(ip, udp, body).to_le_bytes() == *tail
        }
        _ => false,
    }
}

/// Writes the CRC into the last four bytes of a complete packet.
pub(crate) fn seal(src: SocketAddrV4, dst: SocketAddrV4, packet: &mut [u8]) {
    let (body, tail) = packet.split_at_mut(packet.len() - super::ICRC);
    tail.copy_from_slice(&icrc(src, dst, body).to_le_bytes());
}

/// Whether the last four bytes of a complete packet are its CRC.
pub(crate) fn intact(src: SocketAddrV4, dst: SocketAddrV4, packet: &[u8]) -> bool {
    match packet.split_last_chunk::<{ super::ICRC }>() {
        Some((body, tail)) if body.len() >= super::BTH => icrc(src, dst, body).to_le_bytes() == *tail,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(ip: [u8; 4], port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(ip.into(), port)
    }

    /// The CRC matches that of a congestion notification sent by a ConnectX-4 Lx, as published with scapy's RoCE tests.
    #[test]
    fn packet_captured_from_hardware() {
        let mut packet = [0; 28];
        packet[..8].copy_from_slice(&[0x81, 0x00, 0xff, 0xff, 0x40, 0x00, 0x01, 0x18]);
        let crc = icrc_with_id(addr([10, 0, 17, 1], 0), addr([10, 0, 18, 1], 4791), 0x718c, &packet);
        assert_eq!(crc.to_le_bytes(), [0x82, 0xfd, 0x00, 0x2a]);
    }

    /// The CRC matches that of a UC SEND ONLY with two bytes of padding, as published with scapy's RoCE tests.
    #[test]
    fn packet_with_payload() {
        let packet = [
            0x24, 0x60, 0xff, 0xff, 0x00, 0x00, 0x00, 0xd3, 0x00, 0xcf, 0x17, 0x10, 0x46, 0x30, 0x81, 0x8b,
            0xe2, 0x89, 0x35, 0xd9, 0x0e, 0x9a, 0x95, 0x50, 0x54, 0x01, 0xbe, 0x88, 0x5e, 0x50, 0x00, 0x00,
        ];
        let crc = icrc_with_id(addr([192, 168, 0, 7], 49_152), addr([192, 168, 0, 7], 4791), 1144, &packet);
        assert_eq!(crc.to_le_bytes(), [0x78, 0xf3, 0x53, 0xf3]);
    }

    #[test]
    fn given_headers_are_those_of_the_socket() {
        let (src, dst) = (addr([10, 0, 0, 1], 49_152), addr([10, 0, 0, 2], 4791));
        let mut packet = [0x5a; 40];
        seal(src, dst, &mut packet);
        let mut ip = [0; IPV4];
        (ip[0], ip[1], ip[3], ip[6], ip[8], ip[9]) = (0x45, 0x68, 68, 0x40, 3, 17);
        ip[12..].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        assert!(intact_headers(&ip, &[0xc0, 0, 0x12, 0xb7, 0, 48, 1, 2], &packet));
        assert!(!intact_headers(&ip, &[0xc0, 1, 0x12, 0xb7, 0, 48, 1, 2], &packet));
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let (src, dst) = (addr([127, 0, 0, 1], 4791), addr([127, 0, 0, 2], 4791));
        let mut packet = [0x5a; 40];
        seal(src, dst, &mut packet);
        assert!(intact(src, dst, &packet));
        assert!(!intact(dst, src, &packet) && !intact(src, dst, &packet[..36]));
        for bit in 0..8 * packet.len() {
            let mut broken = packet;
            broken[bit / 8] ^= 1 << (bit % 8);
            // The network may change the byte with FECN and BECN.
            assert_eq!(intact(src, dst, &broken), bit / 8 == 4, "bit {bit}");
        }
        for len in 0..20 {
            assert!(!intact(src, dst, &packet[..len]));
        }
    }
}
