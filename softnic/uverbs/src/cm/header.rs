//! The service ID of a connection, and the IP addresses at the start of the private data of a request (InfiniBand
//! Architecture Specification, annex A11).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Length of the IP addresses and their header in the private data, in bytes.
pub(crate) const LEN: usize = 36;

/// IP addresses that the active side of a connection sends at the start of its private data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Address and port of the active side.
    pub(crate) from: SocketAddr,
    /// Address that the active side wants to reach.
    pub(crate) to: IpAddr,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[1] = if self.from.is_ipv4() { 0x40 } else { 0x60 };
        bytes[2..4].copy_from_slice(&self.from.port().to_be_bytes());
        bytes[4..20].copy_from_slice(&padded(self.from.ip()));
        bytes[20..36].copy_from_slice(&padded(self.to));
        bytes
    }

    /// Parses a header. Returns `None` for an unknown version.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Header> {
        let bytes: &[u8; LEN] = bytes.get(..LEN)?.try_into().ok()?;
        let part = |at: usize| -> [u8; 16] { std::array::from_fn(|i| bytes[at + i]) };
        let address = |at| match bytes[1] >> 4 {
            4 => {
                let [.., a, b, c, d] = part(at);
                Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
            }
            6 => Some(IpAddr::V6(Ipv6Addr::from(part(at)))),
            _ => None,
        };
        if bytes[0] != 0 {
            return None;
        }
        let port = u16::from_be_bytes([bytes[2], bytes[3]]);
        Some(Header { from: SocketAddr::new(address(4)?, port), to: address(20)? })
    }
}

/// Returns an address in 16 bytes, of which an IPv4 address takes the last four.
fn padded(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d]
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// Returns the service ID of a port in a port space.
pub(crate) fn service_id(ps: u16, port: u16) -> u64 {
    u64::from(ps) << 16 | u64::from(port)
}

/// Returns the port space and the port of a service ID, if it belongs to the RDMA connection manager.
pub(crate) fn port_of(service_id: u64) -> Option<(u16, u16)> {
    (service_id >> 32 == 0).then_some(((service_id >> 16) as u16, service_id as u16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_by_hand() {
        let header = Header { from: "10.0.0.7:49152".parse().unwrap(), to: "127.0.0.1".parse().unwrap() };
        let mut bytes = [0; LEN];
        bytes[..4].copy_from_slice(&[0, 0x40, 0xc0, 0]);
        bytes[16..20].copy_from_slice(&[10, 0, 0, 7]);
        bytes[32..].copy_from_slice(&[127, 0, 0, 1]);
        assert_eq!(header.encode(), bytes);
        assert_eq!(Header::parse(&bytes), Some(header));
        let six = Header { from: "[::1]:7".parse().unwrap(), to: "fe80::1".parse().unwrap() };
        assert_eq!(Header::parse(&six.encode()), Some(six));
        for (at, value) in [(0, 1), (1, 0x50)] {
            let mut wrong = bytes;
            wrong[at] = value;
            assert_eq!(Header::parse(&wrong), None);
        }
        assert_eq!(Header::parse(&bytes[..35]), None);
    }

    #[test]
    fn a_service_number_is_a_port() {
        assert_eq!(service_id(0x106, 7174), 0x0000_0000_0106_1c06);
        assert_eq!(port_of(0x0106_1c06), Some((0x106, 7174)));
        assert_eq!(port_of(1 << 40), None);
    }
}
