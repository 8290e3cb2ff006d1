//! A range of IP addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::value::Value;

/// A range of IP addresses with a common prefix, in CIDR notation: `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    ip: IpAddr,
    bits: u8,
}

impl AddressRange {
    /// Returns the range of the addresses that share their first `bits` bits with `ip`, or `None` if it has fewer.
    pub fn new(ip: IpAddr, bits: u8) -> Option<Self> {
        let rest = width(ip).checked_sub(bits)?;
        let ip = match ip {
            IpAddr::V4(ip) => {
                Ipv4Addr::from_bits(ip.to_bits() & u32::MAX.checked_shl(rest.into()).unwrap_or(0)).into()
            }
            IpAddr::V6(ip) => {
                Ipv6Addr::from_bits(ip.to_bits() & u128::MAX.checked_shl(rest.into()).unwrap_or(0)).into()
            }
        };
        Some(Self { ip, bits })
    }

    /// Returns whether the range has this address. IPv4 and IPv6 addresses differ.
    pub fn has(&self, ip: IpAddr) -> bool {
        Self::new(ip, self.bits) == Some(*self)
    }
}

fn width(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.bits)
    }
}

impl Value for AddressRange {
    fn accepts() -> String {
        "a range of IP addresses, such as 10.0.0.0/8 or fd00::/16".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let (ip, bits) = text.split_once('/').ok_or("it has no `/` and number of bits")?;
        let ip = ip.parse().map_err(|_| format!("`{ip}` is not an IP address"))?;
        let range = bits.parse().ok().and_then(|bits| Self::new(ip, bits));
        range.ok_or_else(|| format!("`{bits}` is not a number of bits from 0 to {}", width(ip)))
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_the_addresses_with_their_first_bits() {
        for (range, ip, has) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.1.2.3/32", "10.1.2.3", true),
            ("10.1.2.3/32", "10.1.2.2", false),
            ("10.1.2.0/23", "10.1.3.9", true),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("0.0.0.0/0", "fd00::1", false),
            ("::/0", "fd00::1", true),
            ("fd00::/64", "fd00::1:2:3:4", true),
            ("fd00::/64", "fd00:0:0:1::1", false),
        ] {
            let parsed = AddressRange::parse(range).unwrap();
            assert_eq!(parsed.has(ip.parse().unwrap()), has, "{range} {ip}");
            assert_eq!(parsed.show(), range);
        }
        assert_eq!(AddressRange::parse("10.1.2.3/8"), AddressRange::parse("10.0.0.0/8"));
        for wrong in ["10.0.0.0", "10.0.0.0/33", "fd00::/129", "x/8", "10.0.0.0/", "10.0.0.0/-1"] {
            assert!(AddressRange::parse(wrong).is_err(), "{wrong}");
        }
    }
}
