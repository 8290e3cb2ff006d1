//! Which addresses of RDMA ports belong to this process: those of the interfaces in its network namespace.

use std::io;
use std::net::{IpAddr, Ipv6Addr};

use rushmem_bootstrap::{Interface, address_towards, interfaces};
use rushmem_config::{AddressRange, Config};

/// The networks of this process, and the settings about them.
pub(super) struct Networks {
    own: Vec<Interface>,
    /// This process's address towards the job's server, or the interface of the setting `bootstrap_interface`.
    bootstrap: Option<AddressRange>,
    /// The setting `gid_range`.
    range: Option<AddressRange>,
}

impl Networks {
    /// Reads the interfaces of this network namespace.
    ///
    /// # Errors
    ///
    /// The error of `getifaddrs`.
    pub(super) fn new(config: &Config) -> io::Result<Self> {
        Ok(Self::of(interfaces()?, config))
    }

    fn of(own: Vec<Interface>, config: &Config) -> Self {
        let server = config.server.as_deref().and_then(address_towards).map(IpAddr::from);
        let wanted = &config.bootstrap_interface;
        let is_bootstrap = |it: &&Interface| match server {
            Some(ip) => it.ip == ip,
            None => it.name == *wanted || it.ip.to_string() == *wanted,
        };
        let bootstrap = own.iter().filter(|it| !it.ip.is_loopback()).find(is_bootstrap);
        Self { bootstrap: bootstrap.map(|it| it.network), range: config.gid_range.0, own }
    }

    /// Returns whether an interface of this network namespace has the address of a GID. `has_device` says whether the
    /// GID's network device is in this namespace.
    pub(super) fn is_own(&self, gid: Ipv6Addr, has_device: bool) -> bool {
        let ip = ip_of(gid);
        match ip {
            // The software ConnectX takes any address of this network.
            ip if ip.is_loopback() => true,
            // The kernel derives these from MAC addresses, and interfaces may have others.
            IpAddr::V6(ip) if ip.is_unicast_link_local() => has_device,
            ip => self.own.iter().any(|it| it.ip == ip),
        }
    }

    /// Returns whether the setting `gid_range` admits the address of a GID.
    pub(super) fn admits(&self, gid: Ipv6Addr) -> bool {
        self.range.is_none_or(|range| range.has(ip_of(gid)))
    }

    /// Returns whether a GID is in the network over which this process reaches the job's server.
    pub(super) fn is_of_bootstrap(&self, gid: Ipv6Addr) -> bool {
        self.bootstrap.is_some_and(|network| network.has(ip_of(gid)))
    }

    /// Returns the network of a GID's address: that of the interface, or for other GIDs their first 64 bits.
    pub(super) fn of_gid(&self, gid: Ipv6Addr) -> Option<AddressRange> {
        match ip_of(gid) {
            ip @ IpAddr::V4(_) => self.own.iter().map(|it| it.network).find(|network| network.has(ip)),
            ip => AddressRange::new(ip, 64),
        }
    }
}

/// Returns the IP address of a GID.
fn ip_of(gid: Ipv6Addr) -> IpAddr {
    gid.to_ipv4_mapped().map_or(gid.into(), IpAddr::from)
}

#[cfg(test)]
pub(super) fn example(settings: &[(&str, &str)]) -> Networks {
    let own = |name: &str, ip: &str, bits| {
        let ip: IpAddr = ip.parse().unwrap();
        Interface { name: name.into(), ip, network: AddressRange::new(ip, bits).unwrap() }
    };
    let mut config = Config::default();
    settings.iter().for_each(|(key, value)| config.set(key, value).unwrap());
    let own = vec![
        own("lo", "127.0.0.1", 8),
        own("eth0", "10.0.0.1", 24),
        own("eth1", "10.0.1.1", 24),
        own("eth1", "2001:db8::1", 64),
    ];
    Networks::of(own, &config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_of_other_namespaces_are_not_own() {
        let networks = example(&[]);
        for (text, is_own) in [
            ("::ffff:10.0.0.1", true),
            ("::ffff:10.0.0.2", false),
            ("2001:db8::1", true),
            ("2001:db8::2", false),
            ("::ffff:127.9.9.9", true),
        ] {
            assert_eq!(networks.is_own(gid(text), true), is_own, "{text}");
        }
        assert!(networks.is_own(gid("fe80::1"), true) && !networks.is_own(gid("fe80::1"), false));
    }

    #[test]
    fn networks_follow_interfaces_and_settings() {
        let networks = example(&[("gid_range", "10.0.1.0/24"), ("bootstrap_interface", "eth1")]);
        assert!(networks.admits(gid("::ffff:10.0.1.1")) && !networks.admits(gid("::ffff:10.0.0.1")));
        assert!(networks.is_of_bootstrap(gid("::ffff:10.0.1.9")));
        assert!(!networks.is_of_bootstrap(gid("::ffff:10.0.0.9")));
        let of = |text| networks.of_gid(gid(text)).map(|network| network.to_string());
        assert_eq!(of("::ffff:10.0.1.9").as_deref(), Some("10.0.1.0/24"));
        assert_eq!(of("::ffff:192.0.2.1"), None);
        assert_eq!(networks.of_gid(gid("fec0::5")), AddressRange::new(gid("fec0::5").into(), 64));
    }
}
