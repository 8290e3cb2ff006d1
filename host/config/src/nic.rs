//! The type of the setting `nic`: which NICs a job uses.

use std::fmt;

use crate::value::Value;

/// The NICs that a job uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nic {
    /// ConnectX NICs if the machine has any that this build can drive, otherwise the software ConnectX.
    Auto,
    /// The software ConnectX, even if the machine has NICs.
    Soft,
    /// The RDMA devices with these names. Each PE uses the nearest of them.
    Named(Vec<NicPort>),
}

/// An RDMA device, optionally with a port: `mlx5_0`, `mlx5_0:2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicPort {
    /// Name of the RDMA device in the system, such as `mlx5_0`.
    pub device: String,
    /// Port, counting from 1. `None` selects the first active port.
    pub port: Option<u8>,
}

impl fmt::Display for NicPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.device),
            None => f.write_str(&self.device),
        }
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

impl Value for Nic {
    fn accepts() -> String {
        "auto, soft, or names of RDMA devices separated by commas, such as mlx5_0 or mlx5_0:1,mlx5_1:1".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Nic::Auto),
            "soft" => Ok(Nic::Soft),
            list => list.split(',').map(parse_port).collect::<Result<_, _>>().map(Nic::Named),
        }
    }

    fn show(&self) -> String {
        match self {
            Nic::Auto => "auto".into(),
            Nic::Soft => "soft".into(),
            Nic::Named(list) => list.iter().map(NicPort::to_string).collect::<Vec<_>>().join(","),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lists_of_devices_and_ports() {
        let port = |device: &str, port| NicPort { device: device.into(), port };
        assert_eq!(Nic::parse("mlx5_0"), Ok(Nic::Named(vec![port("mlx5_0", None)])));
        let two = Nic::Named(vec![port("mlx5_bond_0", Some(2)), port("rocep59s0", None)]);
        assert_eq!(Nic::parse("mlx5_bond_0:2,rocep59s0"), Ok(two.clone()));
        assert_eq!(two.show(), "mlx5_bond_0:2,rocep59s0");
        for wrong in ["", "hard", "mlx5_0:0", "mlx5_0:x", "mlx5_0,,mlx5_1", "../mlx5_0", "mlx5 0"] {
            assert!(Nic::parse(wrong).is_err(), "{wrong}");
        }
    }
}
