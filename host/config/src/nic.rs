//! The type of the setting `nic`: which NICs a job uses.

use std::fmt;
use std::num::NonZeroU32;

use crate::value::Value;

/// The NICs that a job uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nic {
    /// ConnectX NICs if the machine has any that this build can drive, otherwise the software ConnectX.
    Auto,
    /// The software ConnectX, even if the machine has NICs.
    Soft,
    /// The RDMA devices with these names. Each PE uses the nearest of them.
    Named(NicNames),
    /// Like `Auto`, without the RDMA devices with these names.
    Except(NicNames),
    /// The ports of the PEs of a node, in order.
    PerPe(Vec<NicShare>),
}

/// Names of RDMA devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicNames {
    /// Whether entries match whole names only. Otherwise, an entry that is not the name of a device is a prefix of
    /// names.
    pub exact: bool,
    /// The entries.
    pub list: Vec<NicPort>,
}

/// An RDMA device, optionally with a port: `mlx5_0`, `mlx5_0:2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicPort {
    /// Name of the RDMA device in the system, such as `mlx5_0`, or a prefix of names.
    pub device: String,
    /// Port, counting from 1. `None` selects the first active port.
    pub port: Option<u8>,
}

/// A port, and the number of consecutive PEs of a node that use it: `mlx5_0:1:3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicShare {
    /// The port, with a whole name.
    pub port: NicPort,
    /// Number of PEs.
    pub pes: NonZeroU32,
}

impl NicNames {
    /// Returns the names among `all` that an entry selects: the one that equals it, or else those that start with it.
    pub fn select<'a>(&self, entry: &NicPort, all: &[&'a str]) -> Vec<&'a str> {
        let of = |fits: &dyn Fn(&str) -> bool| all.iter().copied().filter(|name| fits(name)).collect();
        let equal: Vec<&str> = of(&|name| name == entry.device);
        if equal.is_empty() && !self.exact { of(&|name| name.starts_with(&entry.device)) } else { equal }
    }
}

impl fmt::Display for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.show())
    }
}

impl fmt::Display for NicNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list: Vec<_> = self.list.iter().map(NicPort::to_string).collect();
        write!(f, "{}{}", if self.exact { "=" } else { "" }, list.join(","))
    }
}

impl fmt::Display for NicPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.device),
            None => f.write_str(&self.device),
        }
    }
}

impl fmt::Display for NicShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.port, self.pes)
    }
}

fn parse_port(text: &str) -> Result<NicPort, String> {
    let (device, port) = match text.trim().split_once(':') {
        None => (text.trim(), None),
        Some((device, port)) => match port.parse() {
            Ok(port @ 1..) => (device, Some(port)),
            _ => return Err(format!("`{port}` is not a port number; ports are numbered from 1")),
        },
    };
    // Accept any name, not just `mlx5_*`: udev rules rename devices, for example to mlx5_bond_0 or rocep59s0.
    let named = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let has_digit = device.contains(|c: char| c.is_ascii_digit());
    match !device.is_empty() && has_digit && device.chars().all(named) {
        true => Ok(NicPort { device: device.into(), port }),
        false => Err(format!("`{device}` is not auto, soft or the name of an RDMA device")),
    }
}

fn parse_names(list: &str) -> Result<NicNames, String> {
    let (exact, list) = list.strip_prefix('=').map_or((false, list), |list| (true, list));
    Ok(NicNames { exact, list: list.split(',').map(parse_port).collect::<Result<_, _>>()? })
}

fn parse_share(text: &str) -> Result<NicShare, String> {
    let wrong = || format!("`{text}` is not DEVICE:PORT:PES, as the other entries are");
    let (port, pes) = text.trim().rsplit_once(':').ok_or_else(wrong)?;
    let port = parse_port(port)?;
    let pes = pes.parse().ok().filter(|_| port.port.is_some()).ok_or_else(wrong)?;
    Ok(NicShare { port, pes })
}

impl Value for Nic {
    fn accepts() -> String {
        "auto, soft, names of RDMA devices or their beginnings, such as mlx5_0, mlx5_0:1,mlx5_1:1 or mlx5 (`=` before \
         the list: whole names only; `^`: all but these), or DEVICE:PORT:PES for the PEs of each node in order, such as \
         mlx5_0:1:4,mlx5_1:1:4"
            .into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let is_share = |entry: &str| entry.matches(':').count() == 2;
        match text {
            "auto" => Ok(Nic::Auto),
            "soft" => Ok(Nic::Soft),
            list if list.split(',').any(is_share) => {
                list.split(',').map(parse_share).collect::<Result<_, _>>().map(Nic::PerPe)
            }
            list => match list.strip_prefix('^') {
                Some(list) => parse_names(list).map(Nic::Except),
                None => parse_names(list).map(Nic::Named),
            },
        }
    }

    fn show(&self) -> String {
        match self {
            Nic::Auto => "auto".into(),
            Nic::Soft => "soft".into(),
            Nic::Named(names) => names.to_string(),
            Nic::Except(names) => format!("^{names}"),
            Nic::PerPe(list) => list.iter().map(NicShare::to_string).collect::<Vec<_>>().join(","),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(device: &str, port: Option<u8>) -> NicPort {
        NicPort { device: device.into(), port }
    }

    #[test]
    fn reads_lists_of_devices_and_ports() {
        let names = |exact, list: &[NicPort]| NicNames { exact, list: list.to_vec() };
        let two = [port("mlx5_bond_0", Some(2)), port("rocep59s0", None)];
        for (text, nic) in [
            ("mlx5_0", Nic::Named(names(false, &[port("mlx5_0", None)]))),
            ("mlx5_bond_0:2,rocep59s0", Nic::Named(names(false, &two))),
            ("=mlx5_bond_0:2,rocep59s0", Nic::Named(names(true, &two))),
            ("^mlx5_bond_0:2,rocep59s0", Nic::Except(names(false, &two))),
            ("^=mlx5_bond_0:2,rocep59s0", Nic::Except(names(true, &two))),
        ] {
            assert_eq!(nic.show(), text);
            assert_eq!(Nic::parse(text), Ok(nic));
        }
        for wrong in
            ["", "hard", "mlx5_0:0", "mlx5_0:x", "mlx5_0,,mlx5_1", "../mlx5_0", "mlx5 0", "^", "=^mlx5_0"]
        {
            assert!(Nic::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn reads_the_ports_of_pes() {
        let share =
            |device, pes| NicShare { port: port(device, Some(1)), pes: NonZeroU32::new(pes).unwrap() };
        let nic = Nic::PerPe(vec![share("mlx5_0", 3), share("mlx5_1", 5)]);
        assert_eq!(Nic::parse("mlx5_0:1:3,mlx5_1:1:5"), Ok(nic.clone()));
        assert_eq!(nic.show(), "mlx5_0:1:3,mlx5_1:1:5");
        for wrong in
            ["mlx5_0:1:0", "mlx5_0:1:x", "mlx5_0:1:3,mlx5_1:1", "mlx5_0:0:3", "^mlx5_0:1:3", "mlx5_0:1:3:4"]
        {
            assert!(Nic::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn whole_names_come_before_beginnings() {
        let all = ["mlx5_1", "mlx5_10", "mlx5_2", "rxe0"];
        let selects =
            |exact, name: &str| NicNames { exact, list: Vec::new() }.select(&port(name, None), &all);
        assert_eq!(selects(false, "mlx5_1"), ["mlx5_1"]);
        assert_eq!(selects(false, "mlx5"), ["mlx5_1", "mlx5_10", "mlx5_2"]);
        assert!(selects(true, "mlx5").is_empty() && selects(false, "mlx5_3").is_empty());
    }
}
