//! Socket addresses of programs, and routes to them.

use super::abi::{Ip6, SockaddrIb, Storage};
use super::names::{self, Endpoint};
use crate::errno::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

/// Address family of InfiniBand.
const AF_IB: u16 = 27;

/// An address from a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    /// Address family 0.
    Nothing,
    Ip(SocketAddr),
    /// A GID, in place of an IP address.
    Gid([u8; 16]),
}

impl Given {
    /// Parses a `sockaddr`.
    pub(super) fn parse(bytes: &[u8]) -> Result<Given, Errno> {
        let part =
            |at: usize| -> [u8; 16] { std::array::from_fn(|i| bytes.get(at + i).copied().unwrap_or(0)) };
        let [f0, f1, p0, p1, a, b, c, d, ..] = part(0);
        let port = u16::from_be_bytes([p0, p1]);
        match u16::from_ne_bytes([f0, f1]) {
            0 => Ok(Given::Nothing),
            family if i32::from(family) == libc::AF_INET && bytes.len() >= 16 => {
                Ok(Given::Ip(SocketAddr::new(Ipv4Addr::new(a, b, c, d).into(), port)))
            }
            family if i32::from(family) == libc::AF_INET6 && bytes.len() >= 28 => {
                let [s0, s1, s2, s3, ..] = part(24);
                let scope = u32::from_ne_bytes([s0, s1, s2, s3]);
                Ok(Given::Ip(SocketAddrV6::new(Ipv6Addr::from(part(8)), port, 0, scope).into()))
            }
            AF_IB if bytes.len() >= size_of::<SockaddrIb>() => Ok(Given::Gid(part(8))),
            _ => Err(Errno::EAFNOSUPPORT),
        }
    }

    /// Returns the IP address. Fails with `EADDRNOTAVAIL` for a GID.
    pub(super) fn ip(self) -> Result<Option<SocketAddr>, Errno> {
        match self {
            Given::Nothing => Ok(None),
            Given::Ip(address) => Ok(Some(address)),
            Given::Gid(_) => Err(Errno::EADDRNOTAVAIL),
        }
    }
}

/// Converts an address to a `sockaddr`, and returns it with its length.
pub(super) fn storage(address: Option<SocketAddr>) -> (Storage, u16) {
    let mut storage = Storage::default();
    let bytes: &mut [u8] = bytemuck::bytes_of_mut(&mut storage);
    let Some(address) = address else { return (storage, 0) };
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    let (family, len) = match address {
        SocketAddr::V4(address) => {
            bytes[4..8].copy_from_slice(&address.ip().octets());
            (libc::AF_INET, 16)
        }
        SocketAddr::V6(address) => {
            bytes[8..24].copy_from_slice(&address.ip().octets());
            bytes[24..28].copy_from_slice(&address.scope_id().to_ne_bytes());
            (libc::AF_INET6, 28)
        }
    };
    bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    (storage, len)
}

/// Converts an address to a `sockaddr` of at most the size of a `sockaddr_in6`.
pub(super) fn short(address: Option<SocketAddr>) -> Ip6 {
    let (storage, _) = storage(address);
    let bytes: &[u8] = bytemuck::bytes_of(&storage);
    std::array::from_fn(|i| bytes[i])
}

/// Converts a GID to an address of family AF_IB.
pub(super) fn gid_storage(gid: [u8; 16], pkey: u16, service_id: u64) -> Storage {
    let address = SockaddrIb {
        family: AF_IB,
        pkey: pkey.to_be(),
        addr: gid,
        sid: service_id.to_be(),
        sid_mask: u64::MAX,
        ..SockaddrIb::default()
    };
    let mut storage = Storage::default();
    bytemuck::bytes_of_mut(&mut storage)[..size_of::<SockaddrIb>()]
        .copy_from_slice(bytemuck::bytes_of(&address));
    storage
}

/// Whether an address belongs to this machine.
pub(super) fn is_local(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

/// Returns the local address from which packets to `to` are sent.
pub(super) fn source(to: SocketAddr) -> Result<IpAddr, Errno> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // Connecting a UDP socket sends nothing. Any port will do.
    let port = if to.port() == 0 { 1 } else { to.port() };
    let mut to = to;
    to.set_port(port);
    let socket = UdpSocket::bind((any, 0)).and_then(|socket| socket.connect(to).map(|()| socket));
    Ok(socket.and_then(|socket| socket.local_addr()).map_err(Errno::from)?.ip())
}

/// Returns the address to which a connection to `to` goes. As for sockets, the unspecified address means loopback.
pub(super) fn destination(mut to: SocketAddr) -> SocketAddr {
    if to.ip().is_unspecified() {
        let loopback: IpAddr =
            if to.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        to.set_ip(loopback);
    }
    to
}

/// Returns the IP address of the adapter that serves connections to `to`. `own` is the adapter that connects.
///
/// For an address of this machine, the result is the adapter that listens there, or else `own`, which refuses the
/// connection. Any other address is itself an adapter's.
pub(super) fn adapter_of(own: Ipv4Addr, ps: u16, to: SocketAddr) -> Result<Ipv4Addr, Errno> {
    let ip = to.ip().to_canonical();
    match ip {
        IpAddr::V4(group) if group.is_multicast() => Ok(group),
        _ if is_local(to.ip()) => {
            let listener = names::listener(Endpoint { ps, port: to.port(), ip });
            Ok(match (listener, ip) {
                (Some(adapter), _) => adapter,
                (None, IpAddr::V4(ip)) if names::is_adapters_own(ip.into()) => ip,
                _ => own,
            })
        }
        IpAddr::V4(ip) if !own.is_loopback() => Ok(ip),
        _ => {
            tracing::error!(
                %ip, adapter = %own,
                "no adapter of this process reaches another machine: start the program with --ip ADDRESS"
            );
            Err(Errno::ENETUNREACH)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip() {
        for text in ["127.0.0.1:7174", "[fe80::1%3]:80", "[::1]:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let (bytes, len) = storage(Some(address));
            let parsed = Given::parse(&bytemuck::bytes_of(&bytes)[..len.into()]);
            assert_eq!(parsed, Ok(Given::Ip(address)));
            assert_eq!(Given::parse(&short(Some(address))), Ok(Given::Ip(address)));
        }
        assert_eq!(storage(None).1, 0);
        assert_eq!(Given::parse(&[]), Ok(Given::Nothing));
        let [low, high] = AF_IB.to_ne_bytes();
        assert_eq!(Given::parse(&[low, high]), Err(Errno::EAFNOSUPPORT));
        let gid = gid_storage([7; 16], 0xffff, 1);
        assert_eq!(Given::parse(bytemuck::bytes_of(&gid)), Ok(Given::Gid([7; 16])));
        assert_eq!(Given::Gid([7; 16]).ip(), Err(Errno::EADDRNOTAVAIL));
    }

    #[test]
    fn addresses_lead_to_adapters() {
        let to = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert_eq!(source(to("127.0.0.9:5")), Ok(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(destination(to("0.0.0.0:5")), to("127.0.0.1:5"));
        assert_eq!(destination(to("[::]:5")), to("[::1]:5"));
        let (own, far) = (Ipv4Addr::new(127, 64, 1, 1), Ipv4Addr::new(198, 51, 100, 7));
        let adapter = |own, text| adapter_of(own, 0x106, to(text));
        assert_eq!(adapter(own, "127.0.0.1:1"), Ok(own), "nobody listens");
        assert_eq!(adapter(own, "127.64.2.2:1"), Ok([127, 64, 2, 2].into()));
        assert_eq!(adapter(own, "198.51.100.7:1"), Err(Errno::ENETUNREACH));
        assert_eq!(adapter([10, 0, 0, 7].into(), "198.51.100.7:1"), Ok(far));
    }
}
