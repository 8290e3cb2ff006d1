//! Chooses the address that the job's server listens on, among the network interfaces of this machine.
#![allow(unsafe_code, reason = "calls getifaddrs")]

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};

use crate::error::Error;
use rushmem_config::{AddressFamily, AddressRange, Config};

/// Name of a network interface, and one of its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name of the interface, such as `eth0`.
    pub name: String,
    /// The address.
    pub ip: IpAddr,
    /// Addresses of the interface's network.
    pub network: AddressRange,
}

/// Returns the address on which PE 0 listens: on the interface in the settings, or else a loopback address.
///
/// # Errors
///
/// - [`Error::Interface`]: the interface does not exist, or has no address of the requested family.
/// - [`Error::Interfaces`]: the system does not list its interfaces.
pub(crate) fn listen_ip(config: &Config) -> Result<IpAddr, Error> {
    if config.bootstrap_interface.is_empty() {
        return Ok(match config.bootstrap_family {
            AddressFamily::Ipv6 => Ipv6Addr::LOCALHOST.into(),
            AddressFamily::Auto | AddressFamily::Ipv4 => Ipv4Addr::LOCALHOST.into(),
        });
    }
    let all = interfaces().map_err(Error::Interfaces)?;
    choose(&all, &config.bootstrap_interface, config.bootstrap_family)
}

/// Returns the address like [`listen_ip`] for a job on several nodes: without an interface in the settings, the address
/// from which this machine reaches others.
///
/// # Errors
///
/// The errors of [`listen_ip`].
pub(crate) fn network_ip(config: &Config) -> Result<IpAddr, Error> {
    if !config.bootstrap_interface.is_empty() {
        return listen_ip(config);
    }
    let all = interfaces().map_err(Error::Interfaces)?;
    let own = || all.iter().map(|interface| interface.ip).filter(|ip| !ip.is_loopback());
    let found = match config.bootstrap_family {
        AddressFamily::Ipv4 => routed_ipv4().or_else(|| own().find(IpAddr::is_ipv4)),
        AddressFamily::Ipv6 => routed_ipv6().or_else(|| own().find(IpAddr::is_ipv6)),
        AddressFamily::Auto => {
            routed_ipv4().or_else(routed_ipv6).or_else(|| own().min_by_key(IpAddr::is_ipv6))
        }
    };
    found.map_or_else(|| listen_ip(config), Ok)
}

/// Returns the addresses of this machine at which other nodes may reach it, IPv4 and the likeliest first: the address of
/// the interface in the settings, or else those from which this machine reaches the addresses `towards`, the address of its
/// default route, and all others that are not loopback addresses.
///
/// # Errors
///
/// - [`Error::Interface`]: the interface does not exist, or has no address of the requested family.
/// - [`Error::Interfaces`]: the system does not list its interfaces.
pub fn node_ips(config: &Config, towards: &[IpAddr]) -> Result<Vec<IpAddr>, Error> {
    let usual = network_ip(config)?;
    if !config.bootstrap_interface.is_empty() {
        return Ok(vec![usual]);
    }
    let fits = |ip: &IpAddr| match config.bootstrap_family {
        AddressFamily::Auto => true,
        AddressFamily::Ipv4 => ip.is_ipv4(),
        AddressFamily::Ipv6 => ip.is_ipv6(),
    };
    let any =
        |to: IpAddr| if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let routed = towards.iter().filter(|to| fits(to)).filter_map(|&to| source_towards(any(to), to).ok());
    let own = interfaces().map_err(Error::Interfaces)?.into_iter().map(|interface| interface.ip);
    let own = own.filter(|ip| fits(ip) && !ip.is_loopback());
    let mut ips = Vec::new();
    for ip in routed.chain([usual]).chain(own) {
        if !ips.contains(&ip) {
            ips.push(ip);
        }
    }
    ips.sort_by_key(IpAddr::is_ipv6);
    Ok(ips)
}

/// Returns this machine's address on its default route for IPv4, if it has one.
fn routed_ipv4() -> Option<IpAddr> {
    // An address for documentation, to which nothing is sent.
    source_towards(Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()).ok()
}

/// Returns the address like [`routed_ipv4`] for IPv6.
fn routed_ipv6() -> Option<IpAddr> {
    source_towards(Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()).ok()
}

/// Returns the address that the system uses as source of packets to `to`. Connecting a UDP socket sends none.
fn source_towards(any: IpAddr, to: IpAddr) -> io::Result<IpAddr> {
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((to, 9))?;
    Ok(socket.local_addr()?.ip())
}

/// Returns an address of the interface `wanted`, which is a name or an address. Prefers IPv4.
fn choose(all: &[Interface], wanted: &str, family: AddressFamily) -> Result<IpAddr, Error> {
    let fits = |ip: &IpAddr| match family {
        AddressFamily::Auto => true,
        AddressFamily::Ipv4 => ip.is_ipv4(),
        AddressFamily::Ipv6 => ip.is_ipv6(),
    };
    let address = wanted.parse::<IpAddr>().ok();
    let named = |interface: &&Interface| interface.name == wanted || Some(interface.ip) == address;
    let mut ips: Vec<IpAddr> = all.iter().filter(named).map(|interface| interface.ip).filter(fits).collect();
    ips.sort_by_key(|ip| ip.is_ipv6());
    ips.first().copied().ok_or_else(|| {
        let there = all.iter().map(|it| format!("{} ({})", it.name, it.ip)).collect::<Vec<_>>().join(", ");
        Error::Interface { wanted: wanted.into(), family: family_name(family), there }
    })
}

fn family_name(family: AddressFamily) -> &'static str {
    match family {
        AddressFamily::Auto => "",
        AddressFamily::Ipv4 => " with an IPv4 address",
        AddressFamily::Ipv6 => " with an IPv6 address",
    }
}

/// Returns the local IPv4 address from which packets to `server` are sent, or `None` if it has no IPv4 address.
pub fn address_towards(server: &str) -> Option<Ipv4Addr> {
    let to = server.to_socket_addrs().ok()?.find(SocketAddr::is_ipv4)?;
    match source_towards(Ipv4Addr::UNSPECIFIED.into(), to.ip()).ok()? {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    }
}

/// Returns the addresses of all interfaces that are up, except link-local IPv6 addresses, which would need a scope.
///
/// # Errors
///
/// The error of `getifaddrs`.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut first = std::ptr::null_mut();
    // SAFETY: `first` is a live variable, to which the call writes the list.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = first.cast_const();
    // SAFETY: the list is valid until it is freed below; the `next` of the last entry is null.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        if entry.ifa_flags & libc::IFF_UP as u32 == 0 {
            continue;
        }
        // SAFETY: the entry is in the list, which has not been freed yet.
        let Some(ip) = (unsafe { address_of(entry.ifa_addr) }) else { continue };
        // SAFETY: as above.
        let mask = unsafe { address_of(entry.ifa_netmask) };
        let Some(network) = AddressRange::new(ip, bits_of(mask, ip)) else { continue };
        if matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local()) {
            continue;
        }
        // SAFETY: the name is a C string in the list.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        found.push(Interface { name, ip, network });
    }
    // SAFETY: the list came from `getifaddrs`, and no reference to it remains.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// Returns the number of leading ones of a network mask, or all bits of `ip` if there is no mask.
fn bits_of(mask: Option<IpAddr>, ip: IpAddr) -> u8 {
    let bits = match mask {
        Some(IpAddr::V4(mask)) => mask.to_bits().leading_ones(),
        Some(IpAddr::V6(mask)) => mask.to_bits().leading_ones(),
        None if ip.is_ipv4() => 32,
        None => 128,
    };
    bits as u8
}

/// Returns the IPv4 or IPv6 address that an entry of `getifaddrs` points to, if any.
///
/// # Safety
///
/// The entry must be in a list that has not been freed.
unsafe fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the address is null or valid, since the caller keeps the list.
    let family = unsafe { address.as_ref() }?.sa_family;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: an address of this family has this type. The read needs no alignment.
            let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the read is valid as for IPv4.
            let address = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examples() -> Vec<Interface> {
        let of = |name: &str, ip: &str| {
            let ip: IpAddr = ip.parse().unwrap();
            Interface { name: name.into(), ip, network: AddressRange::new(ip, 8).unwrap() }
        };
        vec![of("lo", "127.0.0.1"), of("eth0", "fd00::7"), of("eth0", "10.0.0.7"), of("ib0", "fd00::8")]
    }

    #[test]
    fn address_towards_other_machines_is_one_of_this_machine() {
        let mut config = Config::default();
        let ip = network_ip(&config).unwrap();
        assert!(interfaces().unwrap().iter().any(|interface| interface.ip == ip), "{ip}");
        config.set("bootstrap_interface", "127.0.0.1").unwrap();
        assert_eq!(network_ip(&config).unwrap(), Ipv4Addr::LOCALHOST);
    }

    #[test]
    fn addresses_for_other_nodes_begin_with_the_route_to_them() {
        let mut config = Config::default();
        let ips = node_ips(&config, &[Ipv4Addr::LOCALHOST.into()]).unwrap();
        assert_eq!(ips[0], Ipv4Addr::LOCALHOST);
        assert_eq!(ips.iter().filter(|&&ip| ip == network_ip(&config).unwrap()).count(), 1, "{ips:?}");
        config.set("bootstrap_interface", "lo").unwrap();
        assert_eq!(node_ips(&config, &["192.0.2.1".parse().unwrap()]).unwrap(), [Ipv4Addr::LOCALHOST]);
    }

    #[test]
    fn chooses_an_interface_by_name_or_by_address() {
        let choose = |wanted, family| choose(&examples(), wanted, family).map(|ip| ip.to_string());
        assert_eq!(choose("eth0", AddressFamily::Auto).unwrap(), "10.0.0.7");
        assert_eq!(choose("eth0", AddressFamily::Ipv6).unwrap(), "fd00::7");
        assert_eq!(choose("ib0", AddressFamily::Auto).unwrap(), "fd00::8");
        assert_eq!(choose("fd00::8", AddressFamily::Auto).unwrap(), "fd00::8");
        let error = choose("eth1", AddressFamily::Auto).unwrap_err().to_string();
        assert!(error.contains("`eth1`") && error.contains("eth0 (10.0.0.7), ib0 (fd00::8)"), "{error}");
        let error = choose("ib0", AddressFamily::Ipv4).unwrap_err().to_string();
        assert!(error.contains("`ib0` with an IPv4 address"), "{error}");
        assert!(choose("10.0.0.8", AddressFamily::Auto).is_err());
    }

    #[test]
    fn listens_on_loopback_by_default() {
        let all = interfaces().unwrap();
        let lo = all.iter().find(|it| it.ip == Ipv4Addr::LOCALHOST).unwrap();
        assert_eq!((lo.name.as_str(), lo.network.to_string().as_str()), ("lo", "127.0.0.0/8"));
        let mut config = Config::default();
        assert_eq!(listen_ip(&config).unwrap(), lo.ip);
        config.bootstrap_interface = "lo".into();
        assert_eq!(listen_ip(&config).unwrap(), lo.ip);
        config.bootstrap_interface = "no such thing".into();
        assert!(matches!(listen_ip(&config), Err(Error::Interface { .. })));
    }
}
