use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;

/// Lowest port that [`free_port`] returns.
const FIRST_PORT: u16 = 10_000;

/// Default ephemeral range of Linux, in case the system does not report its own.
const DEFAULT_EPHEMERAL_PORTS: RangeInclusive<u16> = 32_768..=60_999;

/// Returns the address of the loopback interface: `127.0.0.1`, or `::1` on a machine without IPv4.
pub fn loopback() -> IpAddr {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, 0)) {
        Err(error) if error.kind() == ErrorKind::AddrNotAvailable => Ipv6Addr::LOCALHOST.into(),
        _ => Ipv4Addr::LOCALHOST.into(),
    }
}

/// Returns an address at `ip` with a random TCP port on which nobody is listening.
///
/// The port lies outside the ephemeral range, from which the operating system assigns ports to outgoing connections, so
/// it is unlikely to be taken before the caller uses it.
///
/// # Errors
///
/// Fails if every port that was tried is in use, or if the operating system refuses to listen at `ip`.
pub fn free_port(ip: IpAddr) -> Result<SocketAddr> {
    let ports = outside(&ephemeral_ports());
    let mut last = Error::from(ErrorKind::AddrInUse);
    for _ in 0..100 {
        let index = RandomState::new().hash_one(0u8) % ports.len().max(1) as u64;
        let Some(&port) = ports.get(index as usize) else { break };
        match TcpListener::bind((ip, port)) {
            Ok(listener) => return listener.local_addr(),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns the port range from which the operating system assigns ports to outgoing connections.
fn ephemeral_ports() -> RangeInclusive<u16> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut ports = text.split_whitespace().map_while(|port| port.parse().ok());
    match (ports.next(), ports.next()) {
        (Some(first), Some(last)) => first..=last,
        _ => DEFAULT_EPHEMERAL_PORTS,
    }
}

/// Returns the ports from [`FIRST_PORT`] upward that are not in the `ephemeral` range, or all of them if none is left.
fn outside(ephemeral: &RangeInclusive<u16>) -> Vec<u16> {
    let all = FIRST_PORT..=u16::MAX;
    let outside: Vec<u16> = all.clone().filter(|port| !ephemeral.contains(port)).collect();
    if outside.is_empty() { all.collect() } else { outside }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_ports_outside_the_ephemeral_range() {
        let ephemeral = ephemeral_ports();
        for _ in 0..20 {
            let found = free_port(Ipv4Addr::LOCALHOST.into()).unwrap();
            assert!(!ephemeral.contains(&found.port()), "{found} is in {ephemeral:?}");
            TcpListener::bind(found).unwrap();
        }
    }

    #[test]
    fn takes_any_port_if_all_are_ephemeral() {
        assert_eq!(outside(&(1..=u16::MAX)).len(), 55_536);
        assert_eq!(outside(&DEFAULT_EPHEMERAL_PORTS).first(), Some(&FIRST_PORT));
        assert!(!outside(&DEFAULT_EPHEMERAL_PORTS).contains(&40_000));
    }
}
