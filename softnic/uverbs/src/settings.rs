//! How the devices are to be: from variables of the environment, which children inherit.

use crate::fault::Fault;
use rushmem_softnic::{Faults, Ip};
use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// Names of the variables.
pub mod variable {
    /// How many devices there are.
    pub const DEVICES: &str = "RUSHMEM_UVERBS_DEVICES";
    /// What their ports speak.
    pub const LINK: &str = "RUSHMEM_UVERBS_LINK";
    /// Their addresses.
    pub const IP: &str = "RUSHMEM_UVERBS_IP";
    /// Faults to inject.
    pub const FAULT: &str = "RUSHMEM_UVERBS_FAULT";
    /// The capture file.
    pub const CAPTURE: &str = "RUSHMEM_UVERBS_CAPTURE";
    /// What the library logs to standard error.
    pub const LOG: &str = "RUSHMEM_UVERBS_LOG";
    /// Where `rushmem softnic` finds the library.
    pub const LIBRARY: &str = "RUSHMEM_UVERBS_LIBRARY";
}

/// Most devices of a process.
pub const MAX_DEVICES: u32 = 16;

/// What the ports speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// RoCEv2: peers are named by GIDs.
    #[default]
    Ethernet,
    /// InfiniBand: peers are named by LIDs.
    InfiniBand,
}

/// How the devices are to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How many devices there are: `mlx5_0`, `mlx5_1`, ...
    pub devices: u32,
    /// What their ports speak.
    pub link: Link,
    /// An address for each device; where empty, each takes a free one of 127/8.
    pub addresses: Vec<Ipv4Addr>,
    /// Refusals to order.
    pub faults: Vec<Fault>,
    /// Faults of the fabric and of execution.
    pub engine_faults: Faults,
    /// A file that receives every packet. `%p` in its name stands for the process, `%d` for the device.
    pub capture: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            devices: 1,
            link: Link::default(),
            addresses: Vec::new(),
            faults: Vec::new(),
            engine_faults: Faults::default(),
            capture: None,
        }
    }
}

/// A setting that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {why}")]
pub struct SettingError {
    /// The variable.
    pub name: &'static str,
    /// What is wrong with it, and what would be right.
    pub why: String,
}

impl Settings {
    /// The settings in the environment.
    ///
    /// # Errors
    ///
    /// [`SettingError`] for a value that makes no sense.
    pub fn from_env() -> Result<Settings, SettingError> {
        Settings::from_variables(std::env::var_os)
    }

    /// The settings in variables that `get` looks up.
    ///
    /// # Errors
    ///
    /// [`SettingError`] for a value that makes no sense.
    pub fn from_variables(get: impl Fn(&'static str) -> Option<OsString>) -> Result<Settings, SettingError> {
        let mut settings = Settings::default();
        let text = |name: &'static str| match get(name) {
            None => Ok(None),
            Some(value) if value.is_empty() => Ok(None),
            Some(value) => {
                value.into_string().map(Some).map_err(|_| SettingError { name, why: "is no UTF-8".into() })
            }
        };
        if let Some(value) = text(variable::DEVICES)? {
            settings.devices = devices(&value)?;
        }
        if let Some(value) = text(variable::LINK)? {
            settings.link = link(&value)?;
        }
        if let Some(value) = text(variable::FAULT)? {
            (settings.faults, settings.engine_faults) = faults(&value)?;
        }
        if let Some(value) = text(variable::IP)? {
            settings.addresses = addresses(&value, settings.devices)?;
        }
        settings.capture = get(variable::CAPTURE).filter(|value| !value.is_empty()).map(PathBuf::from);
        Ok(settings)
    }

    /// Whether this refusal was ordered.
    #[must_use]
    pub fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    /// The address of a device, as the adapter takes it.
    pub(crate) fn ip(&self, device: u32) -> Ip {
        self.addresses.get(device as usize).map_or(Ip::AnyLoopback, |ip| Ip::Addr(*ip))
    }

    /// The capture file of a device of this process.
    pub(crate) fn capture_of(&self, device: u32) -> Option<PathBuf> {
        let path = self.capture.as_ref()?;
        let Some(text) = path.to_str() else { return Some(path.clone()) };
        Some(text.replace("%p", &std::process::id().to_string()).replace("%d", &device.to_string()).into())
    }
}

fn devices(text: &str) -> Result<u32, SettingError> {
    match text.parse() {
        Ok(count) if (1..=MAX_DEVICES).contains(&count) => Ok(count),
        _ => Err(SettingError {
            name: variable::DEVICES,
            why: format!("`{text}` is no number of devices: 1 to {MAX_DEVICES}"),
        }),
    }
}

fn link(text: &str) -> Result<Link, SettingError> {
    match text {
        "ethernet" => Ok(Link::Ethernet),
        "ib" => Ok(Link::InfiniBand),
        _ => Err(SettingError { name: variable::LINK, why: format!("`{text}` is no link: ethernet or ib") }),
    }
}

fn addresses(text: &str, devices: u32) -> Result<Vec<Ipv4Addr>, SettingError> {
    let error = |why| SettingError { name: variable::IP, why };
    let parse = |word: &str| {
        word.trim().parse().map_err(|_| error(format!("`{word}` is no IPv4 address of this machine")))
    };
    let list = text.split(',').map(parse).collect::<Result<Vec<_>, _>>()?;
    if list.len() != devices as usize {
        return Err(error(format!("{} addresses for {devices} devices: give one for each", list.len())));
    }
    Ok(list)
}

/// Refusals by name, and faults of the adapter as `name=value`.
fn faults(text: &str) -> Result<(Vec<Fault>, Faults), SettingError> {
    let (mut ours, mut engine) = (Vec::new(), Vec::new());
    for word in text.split([' ', ',']).filter(|word| !word.is_empty()) {
        match Fault::ALL.iter().find(|fault| fault.name() == word) {
            Some(fault) => ours.push(*fault),
            None => engine.push(word),
        }
    }
    let mut faults: Faults = engine.join(" ").parse().map_err(|error: rushmem_softnic::FaultError| {
        let names: Vec<_> = Fault::ALL.iter().map(|fault| fault.name()).collect();
        let why = format!("`{}` is no fault: give {}, or {}", error.word, names.join(", "), error.expected);
        SettingError { name: variable::FAULT, why }
    })?;
    if ours.contains(&Fault::PeerGone) || ours.contains(&Fault::PortDown) {
        faults.drop = 1.0;
    }
    Ok((ours, faults))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&'static str, &str)]) -> Result<Settings, SettingError> {
        Settings::from_variables(|name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into())
        })
    }

    #[test]
    fn every_variable_is_heard() {
        assert_eq!(parse(&[]), Ok(Settings::default()));
        let settings = parse(&[
            (variable::DEVICES, "2"),
            (variable::LINK, "ib"),
            (variable::IP, "127.0.0.2, 127.0.0.3"),
            (variable::FAULT, "devx,memlock drop=0.5"),
            (variable::CAPTURE, "/tmp/%d.pcap"),
        ])
        .unwrap();
        assert_eq!((settings.devices, settings.link), (2, Link::InfiniBand));
        assert_eq!(settings.ip(1), Ip::Addr([127, 0, 0, 3].into()));
        assert_eq!(settings.faults, [Fault::Devx, Fault::Memlock]);
        assert_eq!(settings.engine_faults.drop, 0.5);
        assert_eq!(settings.capture_of(1), Some("/tmp/1.pcap".into()));
    }

    #[test]
    fn what_is_wrong_is_named_with_what_is_right() {
        let wrong = |name, value| {
            let error = parse(&[(name, value)]).unwrap_err();
            assert_eq!(error.name, name);
            error.why
        };
        assert!(wrong(variable::DEVICES, "0").contains("1 to 16"));
        assert!(wrong(variable::LINK, "token-ring").contains("ethernet or ib"));
        assert!(wrong(variable::IP, "localhost").contains("IPv4"));
        assert!(wrong(variable::IP, "127.0.0.2,127.0.0.3").contains("one for each"));
        let why = wrong(variable::FAULT, "devx,dorp=1");
        assert!(why.contains("`dorp=1`") && why.contains("uar-mmap") && why.contains("black_hole"), "{why}");
    }
}
