use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;

/// The first port that [`free_port`] returns.
const FIRST_PORT: u16 = 10_000;

/// The range of Linux if the system does not tell its own.
const USUAL_EPHEMERAL: RangeInclusive<u16> = 32_768..=60_999;

/// Returns the address of the loopback interface: `127.0.0.1`, or `::1` on a machine without IPv4.
pub fn loopback() -> IpAddr {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, 0)) {
        Err(error) if error.kind() == ErrorKind::AddrNotAvailable => Ipv6Addr::LOCALHOST.into(),
        _ => Ipv4Addr::LOCALHOST.into(),
    }
}

/// Returns an address at `ip` with a random TCP port on which nobody listens now.
///
/// The system takes the ports of outgoing connections from its ephemeral range, so a port of that range may be in use a
/// moment later. The port of this function lies outside of it.
///
/// # Errors
///
/// Every port that the function tried is in use, or the system refuses to listen at `ip`.
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

/// Returns the range from which the system takes ports of outgoing connections.
fn ephemeral_ports() -> RangeInclusive<u16> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut ports = text.split_whitespace().map_while(|port| port.parse().ok());
    match (ports.next(), ports.next()) {
        (Some(first), Some(last)) => first..=last,
        _ => USUAL_EPHEMERAL,
    }
}

/// Returns the ports from [`FIRST_PORT`] on that `ephemeral` does not contain; all of them if it contains all.
fn outside(ephemeral: &RangeInclusive<u16>) -> Vec<u16> {
    let all = FIRST_PORT..=u16::MAX;
    let outside: Vec<u16> = all.clone().filter(|port| !ephemeral.contains(port)).collect();
    if outside.is_empty() { all.collect() } else { outside }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_ports_outside_of_the_ephemeral_range() {
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
        assert_eq!(outside(&USUAL_EPHEMERAL).first(), Some(&FIRST_PORT));
        assert!(!outside(&USUAL_EPHEMERAL).contains(&40_000));
    }
}
