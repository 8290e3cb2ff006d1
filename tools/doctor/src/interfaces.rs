//! The network interfaces of this network namespace, and their IP addresses.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::host::Host;

/// Names and IP addresses of the interfaces in this network namespace.
pub(super) struct Interfaces {
    names: BTreeSet<String>,
    addresses: BTreeSet<IpAddr>,
}

impl Interfaces {
    /// Reads the interfaces of a host. Returns `None` if Linux does not list them.
    pub(super) fn of(host: &Host) -> Option<Interfaces> {
        let v4 = local_v4(&host.text("/proc/net/fib_trie").ok()?);
        // Absent without IPv6.
        let v6 = local_v6(&host.text("/proc/net/if_inet6").unwrap_or_default());
        let names = names(&host.text("/proc/net/dev").ok()?);
        Some(Interfaces { names, addresses: v4.into_iter().chain(v6).collect() })
    }

    /// Returns whether a GID with this address belongs to this network namespace. `interface` is the GID's interface.
    /// Follows the rule by which a job chooses GIDs.
    pub(super) fn own(&self, gid: Ipv6Addr, interface: &str) -> bool {
        match gid.to_ipv4_mapped().map_or(IpAddr::from(gid), IpAddr::from) {
            ip if ip.is_loopback() => true,
            IpAddr::V6(ip) if ip.is_unicast_link_local() => self.names.contains(interface),
            ip => self.addresses.contains(&ip),
        }
    }
}

/// Parses `/proc/net/fib_trie`, in which a line with the kind of a route follows its address.
fn local_v4(text: &str) -> Vec<IpAddr> {
    let mut last = None;
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if line == "/32 host LOCAL" {
            found.extend(last.map(IpAddr::from));
        }
    }
    found
}

/// Parses `/proc/net/if_inet6`, whose lines start with an address of 32 hexadecimal digits.
fn local_v6(text: &str) -> Vec<IpAddr> {
    let address = |line: &str| u128::from_str_radix(line.split_whitespace().next()?, 16).ok();
    text.lines().filter_map(address).map(|bits| Ipv6Addr::from_bits(bits).into()).collect()
}

/// Parses `/proc/net/dev`, in which a colon follows the name of an interface.
fn names(text: &str) -> BTreeSet<String> {
    text.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gids_belong_to_interfaces_of_this_namespace() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.0\n        /24 link UNICAST\n     |-- 10.0.0.5\n        /32 host LOCAL\n";
        let v6 = "20010db8000000000000000000000005 02 40 00 80 eth0\n";
        let own = Interfaces {
            names: names("Inter-|   Receive\n face |bytes\n  eth0: 1 2\n"),
            addresses: local_v4(trie).into_iter().chain(local_v6(v6)).collect(),
        };
        for (gid, interface, wanted) in [
            ("::ffff:10.0.0.5", "eth0", true),
            ("::ffff:10.0.0.0", "eth0", false),
            ("::ffff:10.0.0.6", "eth0", false),
            ("::ffff:127.0.0.1", "", true),
            ("2001:db8::5", "eth0", true),
            ("2001:db8::6", "eth0", false),
            ("fe80::1", "eth0", true),
            ("fe80::1", "net1", false),
        ] {
            assert_eq!(own.own(gid.parse().unwrap(), interface), wanted, "{gid} of {interface}");
        }
    }
}
