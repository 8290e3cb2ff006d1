//! The invariant CRC of RoCEv2 (InfiniBand Architecture Specification, annex A17.3.3).
//!
//! It covers eight bytes of ones in place of the local route header, the IPv4 and UDP headers and the packet, with
//! everything that a router may change set to ones: type of service, time to live, both checksums and the
//! reserved byte of the BTH. The polynomial is Ethernet's; the result is stored least significant byte first.
//!
//! The headers are those that Linux gives a datagram of an unconnected socket that forbids fragmentation: no
//! options, identification 0, "do not fragment" set.

use std::net::SocketAddrV4;

const IPV4: usize = 20;
const UDP: usize = 8;
/// Bytes in front of the packet that the CRC covers.
const PSEUDO: usize = 8 + IPV4 + UDP;

/// The CRC of `packet` (BTH up to the padding, without the CRC itself) sent from `src` to `dst`.
pub(crate) fn icrc(src: SocketAddrV4, dst: SocketAddrV4, packet: &[u8]) -> u32 {
    let udp_len = (UDP + packet.len() + super::ICRC) as u16;
    let mut head = [0xff; PSEUDO + super::BTH];
    let ip = &mut head[8..8 + IPV4];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&(udp_len + IPV4 as u16).to_be_bytes());
    ip[4..6].fill(0);
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
    // The byte that carries FECN and BECN.
    head[PSEUDO + 4] = 0xff;
    let mut crc = crc32fast::Hasher::new();
    crc.update(&head[..PSEUDO + bth.len()]);
    crc.update(rest);
    crc.finalize()
}

/// Writes the CRC into the last four bytes of a whole packet.
pub(crate) fn seal(src: SocketAddrV4, dst: SocketAddrV4, packet: &mut [u8]) {
    let (body, tail) = packet.split_at_mut(packet.len() - super::ICRC);
    tail.copy_from_slice(&icrc(src, dst, body).to_le_bytes());
}

/// Whether the last four bytes of a whole packet are its CRC.
pub(crate) fn intact(src: SocketAddrV4, dst: SocketAddrV4, packet: &[u8]) -> bool {
    match packet.split_last_chunk::<{ super::ICRC }>() {
        Some((body, tail)) if body.len() >= super::BTH => icrc(src, dst, body).to_le_bytes() == *tail,
        _ => false,
    }
}
