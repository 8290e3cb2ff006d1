//! The ports of this machine, and the adapters that listen on them. They are shared by all processes in a network
//! namespace.
//!
//! A process names sockets in the abstract namespace, which the system lists in `/proc/net/unix`. The names disappear
//! with the process, so no entry is ever stale.
//!
//! | name, after `rushmem-rdmacm/` | meaning |
//! |---|---|
//! | `port/0106/7174/127.0.0.1` | a process has bound this port of this port space |
//! | `listen/0106/7174/127.0.0.1/127.64.3.9` | the adapter at the last address listens on it |
//! | `adapter/127.64.3.9` | a process owns the adapter with this address |

use crate::errno::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};

/// Prefix of the names of all sockets in the registry.
const PREFIX: &str = "rushmem-rdmacm/";
/// The system's list of Unix sockets.
const LIST: &str = "/proc/net/unix";
/// Range of the ports that are assigned when a program does not choose one.
const EPHEMERAL: std::ops::Range<u16> = 32768..61000;
/// Maximum number of attempts to find a free port.
const MAX_ATTEMPTS: usize = 256;

/// Maximum number of times that the list of sockets is read to find a listener.
const READS: usize = 3;

/// Holds a name in the registry. Dropping it frees the name.
pub(crate) struct Name {
    _socket: UnixDatagram,
}

/// An rdma_cm port: port space, port number and IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) ps: u16,
    pub(crate) port: u16,
    pub(crate) ip: IpAddr,
}

/// A registered name, parsed from the list of sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Port(Endpoint),
    Listener(Endpoint, Ipv4Addr),
}

impl Entry {
    /// Parses a line of `/proc/net/unix`. Returns `None` if the socket does not belong to the registry.
    pub(crate) fn parse(line: &str) -> Option<Entry> {
        // In an abstract name, `@` stands for the leading zero byte.
        let name = line.split_whitespace().nth(7)?.strip_prefix('@')?.strip_prefix(PREFIX)?;
        let mut words = name.split('/');
        let kind = words.next()?;
        let ps = u16::from_str_radix(words.next()?, 16).ok()?;
        let endpoint = Endpoint { ps, port: words.next()?.parse().ok()?, ip: words.next()?.parse().ok()? };
        let entry = match kind {
            "port" => Entry::Port(endpoint),
            "listen" => Entry::Listener(endpoint, words.next()?.parse().ok()?),
            _ => return None,
        };
        words.next().is_none().then_some(entry)
    }
}

fn address(name: &str) -> Result<SocketAddr, Errno> {
    SocketAddr::from_abstract_name(format!("{PREFIX}{name}")).map_err(|_| Errno::EINVAL)
}

fn take(name: &str) -> Result<Name, Errno> {
    let socket = UnixDatagram::bind_addr(&address(name)?).map_err(Errno::from)?;
    Ok(Name { _socket: socket })
}

fn entries() -> Vec<Entry> {
    let list = std::fs::read(LIST).unwrap_or_default();
    String::from_utf8_lossy(&list).lines().filter_map(Entry::parse).collect()
}

fn port_name(endpoint: Endpoint) -> String {
    format!("port/{:04x}/{}/{}", endpoint.ps, endpoint.port, endpoint.ip)
}

/// Returns whether a process holds the name of a port.
fn is_bound(endpoint: Endpoint) -> bool {
    let connect = |address| UnixDatagram::unbound()?.connect_addr(&address);
    address(&port_name(endpoint)).is_ok_and(|address| connect(address).is_ok())
}

/// Returns the endpoint itself, and those with the same port at all addresses.
fn covering(endpoint: Endpoint) -> [Endpoint; 3] {
    let any = [endpoint.ip, Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    any.map(|ip| Endpoint { ip, ..endpoint })
}

/// Returns the error of binding a port at `wanted` while it is bound at `other`, if they conflict. Like in Linux, the
/// error depends on whether the addresses are equal or one of them covers the other.
fn conflict(wanted: IpAddr, other: IpAddr) -> Option<Errno> {
    if wanted.is_unspecified() || other.is_unspecified() {
        Some(Errno::EADDRNOTAVAIL)
    } else {
        (wanted == other).then_some(Errno::EADDRINUSE)
    }
}

/// Binds a port, or any free port if `endpoint.port` is 0. Returns the name that holds the port, and its number.
///
/// # Errors
///
/// - `EADDRINUSE`: the port is bound to the same address, by another process or another identifier.
/// - `EADDRNOTAVAIL`: the port is bound and one of the two addresses is a wildcard, or no free port was found.
pub(crate) fn reserve(endpoint: Endpoint) -> Result<(Name, u16), Errno> {
    let taken = entries();
    if endpoint.port != 0 {
        return Ok((bind(endpoint, &taken)?, endpoint.port));
    }
    for _ in 0..MAX_ATTEMPTS {
        let port = any_port()?;
        if let Ok(name) = bind(Endpoint { port, ..endpoint }, &taken) {
            return Ok((name, port));
        }
    }
    Err(Errno::EADDRNOTAVAIL)
}

/// Binds a port that nobody holds, with the errors of [`reserve`]. `taken` are the entries of the system's list.
fn bind(endpoint: Endpoint, taken: &[Entry]) -> Result<Name, Errno> {
    let listed = taken.iter().filter_map(|entry| match *entry {
        Entry::Port(other) if (other.ps, other.port) == (endpoint.ps, endpoint.port) => Some(other.ip),
        _ => None,
    });
    // The list may miss sockets while others are opened and closed, so probe the names as well.
    let found = covering(endpoint).into_iter().filter(|other| is_bound(*other)).map(|other| other.ip);
    match listed.chain(found).find_map(|other| conflict(endpoint.ip, other)) {
        Some(error) => Err(error),
        None => take(&port_name(endpoint)),
    }
}

/// Returns a random port, for a program that does not choose one.
pub(crate) fn any_port() -> Result<u16, Errno> {
    let random = getrandom::u32().map_err(|_| Errno::EAGAIN)?;
    Ok(EPHEMERAL.start + (random % u32::from(EPHEMERAL.end - EPHEMERAL.start)) as u16)
}

/// Registers `adapter` as a listener on a port.
pub(crate) fn announce(endpoint: Endpoint, adapter: Ipv4Addr) -> Result<Name, Errno> {
    take(&format!("listen/{:04x}/{}/{}/{adapter}", endpoint.ps, endpoint.port, endpoint.ip))
}

/// Returns the adapter that listens at an endpoint.
///
/// The system's list may miss sockets while others are opened and closed, so it is read again if a process holds the
/// port.
pub(crate) fn listener(wanted: Endpoint) -> Option<Ipv4Addr> {
    if !is_taken(wanted) {
        return None;
    }
    (0..READS).find_map(|_| choose(wanted, entries()))
}

/// Returns whether a process has bound a port at this address or at all addresses.
pub(crate) fn is_taken(endpoint: Endpoint) -> bool {
    covering(endpoint).into_iter().any(is_bound)
}

/// Chooses the best listener: preferably an adapter that has the address itself, then a socket bound to it.
fn choose(wanted: Endpoint, entries: Vec<Entry>) -> Option<Ipv4Addr> {
    let fit = |entry: Entry| match entry {
        Entry::Listener(endpoint, adapter) if (endpoint.ps, endpoint.port) == (wanted.ps, wanted.port) => {
            let own = IpAddr::V4(adapter) == wanted.ip;
            let bound = endpoint.ip == wanted.ip;
            // An address that adapters choose belongs to one adapter, so others must not answer for it.
            let any = endpoint.ip.is_unspecified() && !is_adapters_own(wanted.ip);
            (own || bound || any).then_some(((own, bound), adapter))
        }
        _ => None,
    };
    entries.into_iter().filter_map(fit).max_by_key(|(rank, _)| *rank).map(|(_, adapter)| adapter)
}

/// Returns whether an address is one that adapters choose for themselves.
pub(crate) fn is_adapters_own(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(ip) if rushmem_softnic::lid_of(ip).is_some())
}

/// Announces this process as the owner of an adapter.
pub(crate) fn name_adapter(ip: Ipv4Addr) -> Result<UnixListener, Errno> {
    let listener = UnixListener::bind_addr(&address(&format!("adapter/{ip}"))?).map_err(Errno::from)?;
    listener.set_nonblocking(true).map_err(Errno::from)?;
    Ok(listener)
}

/// Connects to the process that owns an adapter. The stream hangs up when that process exits. Returns `None` if no
/// process on this machine owns it.
pub(crate) fn watch_adapter(ip: Ipv4Addr) -> Option<UnixStream> {
    UnixStream::connect_addr(&address(&format!("adapter/{ip}")).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(ps: u16, port: u16, ip: &str) -> Endpoint {
        Endpoint { ps, port, ip: ip.parse().unwrap() }
    }

    #[test]
    fn names_are_read_from_the_list() {
        let line =
            |name: &str| Entry::parse(&format!("0000: 00000002 00000000 00010000 0001 01 31243 {name}"));
        assert_eq!(
            line("@rushmem-rdmacm/port/0106/7174/::1"),
            Some(Entry::Port(endpoint(0x106, 7174, "::1")))
        );
        let listener = Entry::Listener(endpoint(0x111, 7, "0.0.0.0"), [127, 64, 3, 9].into());
        assert_eq!(line("@rushmem-rdmacm/listen/0111/7/0.0.0.0/127.64.3.9"), Some(listener));
        for name in [
            "rushmem-rdmacm/port/0106/7174/::1",
            "@rushmem-rdmacm/port/0106/71740/::1",
            "@rushmem-rdmacm/port/0106/7174/::1/more",
            "@rushmem-rdmacm/listen/0106/7174/::1",
            "@rushmem-rdmacm/adapter/127.64.3.9",
            "@other",
            "",
        ] {
            assert_eq!(line(name), None, "{name}");
        }
    }

    #[test]
    fn the_closest_listener_is_chosen() {
        let listener = |ip, adapter: [u8; 4]| Entry::Listener(endpoint(1, 2, ip), adapter.into());
        let (a, b, own) = ([127, 64, 1, 1], [127, 64, 1, 2], [10, 0, 0, 7]);
        let all = vec![listener("0.0.0.0", a), listener("127.0.0.1", b), listener("::", own)];
        let chosen = |ip| choose(endpoint(1, 2, ip), all.clone()).map(|ip| ip.octets());
        assert_eq!(chosen("127.0.0.1"), Some(b));
        assert_eq!(chosen("10.0.0.7"), Some(own));
        assert_eq!(chosen("127.64.1.1"), Some(a));
        assert_eq!(chosen("127.64.9.9"), None);
        assert_eq!(choose(endpoint(1, 3, "127.0.0.1"), all.clone()), None);
        assert_eq!(choose(endpoint(2, 2, "127.0.0.1"), all), None);
    }

    #[test]
    fn a_port_is_bound_once() {
        let here = |port| endpoint(0x106, port, "127.0.0.1");
        let (held, port) = reserve(here(0)).unwrap();
        assert_eq!(reserve(here(port)).err(), Some(Errno::EADDRINUSE));
        assert_eq!(reserve(endpoint(0x106, port, "0.0.0.0")).err(), Some(Errno::EADDRNOTAVAIL));
        assert_eq!(reserve(endpoint(0x106, port, "::")).err(), Some(Errno::EADDRNOTAVAIL));
        assert!(reserve(endpoint(0x106, port, "127.0.0.2")).is_ok());
        let (all, covered) = reserve(endpoint(0x106, 0, "0.0.0.0")).unwrap();
        assert_eq!(reserve(here(covered)).err(), Some(Errno::EADDRNOTAVAIL));
        assert_eq!(reserve(endpoint(0x106, covered, "0.0.0.0")).err(), Some(Errno::EADDRNOTAVAIL));
        drop(all);
        let other_space = reserve(endpoint(0x111, port, "127.0.0.1"));
        assert!(other_space.is_ok());
        assert_eq!(listener(here(port)), None, "it is bound only");
        let adapter = Ipv4Addr::new(127, 64, 0, 9);
        let announced = announce(here(port), adapter).unwrap();
        assert_eq!(listener(here(port)), Some(adapter));
        drop(announced);
        assert_eq!(listener(here(port)), None);
        drop(held);
        assert!(reserve(here(port)).is_ok());
    }
}
