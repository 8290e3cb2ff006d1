//! Settings of the devices, from environment variables. Child processes inherit them.

use crate::fault::Fault;
use rushmem_softnic::{Faults, FunctionType, Ip, Model};
use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// Names of the environment variables.
pub mod variable {
    /// Environment variable for [`Settings::devices`](super::Settings::devices).
    pub const DEVICES: &str = "RUSHMEM_UVERBS_DEVICES";
    /// Environment variable for [`Settings::link`](super::Settings::link).
    pub const LINK: &str = "RUSHMEM_UVERBS_LINK";
    /// Environment variable for [`Settings::model`](super::Settings::model).
    pub const MODEL: &str = "RUSHMEM_UVERBS_MODEL";
    /// Environment variable for [`Settings::addresses`](super::Settings::addresses).
    pub const IP: &str = "RUSHMEM_UVERBS_IP";
    /// Environment variable for [`Settings::shared_memory`](super::Settings::shared_memory).
    pub const SHARED_MEMORY: &str = "RUSHMEM_UVERBS_SHARED_MEMORY";
    /// Environment variable for the faults to inject: [`Settings::faults`](super::Settings::faults) and
    /// [`Settings::engine_faults`](super::Settings::engine_faults).
    pub const FAULT: &str = "RUSHMEM_UVERBS_FAULT";
    /// Environment variable for [`Settings::capture`](super::Settings::capture).
    pub const CAPTURE: &str = "RUSHMEM_UVERBS_CAPTURE";
    /// Environment variable for [`Settings::record`](super::Settings::record).
    pub const RECORD: &str = "RUSHMEM_UVERBS_RECORD";
    /// Environment variable for the directory that [`sysfs::install`](crate::sysfs::install) has returned, whose files
    /// replace those in `/sys` and `/dev`.
    pub const SYSFS: &str = "RUSHMEM_UVERBS_SYSFS";
    /// Environment variable for the filter of log messages, in the syntax of `tracing_subscriber::filter::Targets`.
    pub const LOG: &str = "RUSHMEM_UVERBS_LOG";
    /// Environment variable for the path of the library that `rushmem softnic` preloads.
    pub const LIBRARY: &str = "RUSHMEM_UVERBS_LIBRARY";
}

/// Maximum number of devices of a process.
pub const MAX_DEVICES: u32 = 16;

/// Link layer of the ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkLayer {
    /// RoCEv2: peers are addressed by GID.
    #[default]
    Ethernet,
    /// InfiniBand: peers are addressed by LID.
    InfiniBand,
}

/// Settings of a process's devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Number of devices: `mlx5_0`, `mlx5_1`, ...
    pub devices: u32,
    /// Link layer of the ports.
    pub link: LinkLayer,
    /// Model of ConnectX that the devices present themselves as.
    pub model: Model,
    /// IP address of each device. If empty, each device takes a free address of 127/8.
    pub addresses: Vec<Ipv4Addr>,
    /// Whether packets between adapters of one machine go through shared memory, and not by UDP.
    pub shared_memory: bool,
    /// Faults that this library injects into calls.
    pub faults: Vec<Fault>,
    /// Faults that the engine of the software ConnectX injects into packets and commands.
    pub engine_faults: Faults,
    /// File to which all packets are captured. `%p` in its name is replaced by the process ID, `%d` by the device
    /// index.
    pub capture: Option<PathBuf>,
    /// File to which executed commands and one executed send WQE of each shape are appended. `%p` and `%d` are replaced as
    /// in `capture`.
    pub record: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            devices: 1,
            link: LinkLayer::default(),
            model: Model::default(),
            addresses: Vec::new(),
            shared_memory: true,
            faults: Vec::new(),
            engine_faults: Faults::default(),
            capture: None,
            record: None,
        }
    }
}

/// Error for an environment variable with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {why}")]
pub struct SettingError {
    /// Name of the environment variable.
    pub name: &'static str,
    /// What is wrong with the value, and which values are valid.
    pub why: String,
}

impl Settings {
    /// Reads the settings from the environment.
    ///
    /// # Errors
    ///
    /// [`SettingError`] for an invalid value.
    pub fn from_env() -> Result<Settings, SettingError> {
        Settings::from_variables(std::env::var_os)
    }

    /// Reads the settings from variables by `get`.
    ///
    /// # Errors
    ///
    /// [`SettingError`] for an invalid value.
    pub fn from_variables(get: impl Fn(&'static str) -> Option<OsString>) -> Result<Settings, SettingError> {
        let mut settings = Settings::default();
        let text = |name: &'static str| match get(name) {
            None => Ok(None),
            Some(value) if value.is_empty() => Ok(None),
            Some(value) => value
                .into_string()
                .map(Some)
                .map_err(|_| SettingError { name, why: "is not valid UTF-8".into() }),
        };
        if let Some(value) = text(variable::DEVICES)? {
            settings.devices = devices(&value)?;
        }
        if let Some(value) = text(variable::LINK)? {
            settings.link = link(&value)?;
        }
        if let Some(value) = text(variable::MODEL)? {
            settings.model = model(&value, settings.link)?;
        }
        if let Some(value) = text(variable::SHARED_MEMORY)? {
            settings.shared_memory = switch(&value)?;
        }
        if let Some(value) = text(variable::FAULT)? {
            (settings.faults, settings.engine_faults) = faults(&value)?;
        }
        if let Some(value) = text(variable::IP)? {
            settings.addresses = addresses(&value, settings.devices)?;
        }
        let path = |name| get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        settings.capture = path(variable::CAPTURE);
        settings.record = path(variable::RECORD);
        Ok(settings)
    }

    /// Whether a fault of this library is enabled.
    #[must_use]
    pub fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    /// Returns the kind of PCI function that the devices are.
    pub(crate) fn function(&self) -> FunctionType {
        if self.has(Fault::VirtualFunction) { FunctionType::Virtual } else { FunctionType::Physical }
    }

    /// Returns the address setting of a device.
    pub(crate) fn ip(&self, device: u32) -> Ip {
        self.addresses.get(device as usize).map_or(Ip::AnyLoopback, |ip| Ip::Addr(*ip))
    }

    /// Returns the capture file of a device of this process.
    pub fn capture_of(&self, device: u32) -> Option<PathBuf> {
        self.capture.as_deref().map(|path| file_of(path, device))
    }

    /// Returns the file of send entries of a device of this process.
    pub fn record_of(&self, device: u32) -> Option<PathBuf> {
        self.record.as_deref().map(|path| file_of(path, device))
    }
}

/// Replaces `%p` and `%d` in a path by this process and the device.
fn file_of(path: &Path, device: u32) -> PathBuf {
    let Some(text) = path.to_str() else { return path.to_owned() };
    text.replace("%p", &std::process::id().to_string()).replace("%d", &device.to_string()).into()
}

fn devices(text: &str) -> Result<u32, SettingError> {
    match text.parse() {
        Ok(count) if (1..=MAX_DEVICES).contains(&count) => Ok(count),
        _ => Err(SettingError {
            name: variable::DEVICES,
            why: format!("`{text}` is not a number of devices; use 1 to {MAX_DEVICES}"),
        }),
    }
}

fn link(text: &str) -> Result<LinkLayer, SettingError> {
    match text {
        "ethernet" => Ok(LinkLayer::Ethernet),
        "ib" => Ok(LinkLayer::InfiniBand),
        _ => Err(SettingError {
            name: variable::LINK,
            why: format!("`{text}` is not a link layer; use ethernet or ib"),
        }),
    }
}

/// Parses a model, which must have ports of this link layer.
fn model(text: &str, link: LinkLayer) -> Result<Model, SettingError> {
    let error = |why| SettingError { name: variable::MODEL, why };
    let names = Model::ALL.map(Model::name).join(", ");
    let model = Model::ALL.into_iter().find(|model| model.name() == text);
    match model.ok_or_else(|| error(format!("`{text}` is not a model; use one of {names}")))? {
        model if link == LinkLayer::InfiniBand && !model.has_infiniband() => Err(error(format!(
            "{text} has no InfiniBand ports; use the link layer ethernet, or another model"
        ))),
        model => Ok(model),
    }
}

fn switch(text: &str) -> Result<bool, SettingError> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(SettingError {
            name: variable::SHARED_MEMORY,
            why: format!("`{text}` is no switch; use on or off"),
        }),
    }
}

fn addresses(text: &str, devices: u32) -> Result<Vec<Ipv4Addr>, SettingError> {
    let error = |why| SettingError { name: variable::IP, why };
    let parse = |word: &str| {
        word.trim()
            .parse()
            .map_err(|_| error(format!("`{word}` is not an IPv4 address; use addresses of this machine")))
    };
    let list = text.split(',').map(parse).collect::<Result<Vec<_>, _>>()?;
    if list.len() != devices as usize {
        return Err(error(format!("{} addresses for {devices} devices; give one for each", list.len())));
    }
    Ok(list)
}

/// Parses faults of this library by name, and faults of the adapter as `name=value`.
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
        let why = format!("`{}` is not a fault; use {}, or {}", error.word, names.join(", "), error.expected);
        SettingError { name: variable::FAULT, why }
    })?;
    if ours.contains(&Fault::PeerGone) {
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
    fn reads_every_variable() {
        assert_eq!(parse(&[]), Ok(Settings::default()));
        let settings = parse(&[
            (variable::DEVICES, "2"),
            (variable::LINK, "ib"),
            (variable::MODEL, "cx6"),
            (variable::IP, "127.0.0.2, 127.0.0.3"),
            (variable::SHARED_MEMORY, "off"),
            (variable::FAULT, "devx,memlock drop=0.5"),
            (variable::CAPTURE, "/tmp/%d.pcap"),
            (variable::RECORD, "/tmp/%d.txt"),
        ])
        .unwrap();
        assert_eq!((settings.devices, settings.link), (2, LinkLayer::InfiniBand));
        assert_eq!(settings.model, Model::Cx6);
        assert!(!settings.shared_memory && Settings::default().shared_memory);
        assert_eq!(settings.ip(1), Ip::Addr([127, 0, 0, 3].into()));
        assert_eq!(settings.faults, [Fault::Devx, Fault::Memlock]);
        assert_eq!(settings.engine_faults.drop, 0.5);
        assert_eq!(settings.capture_of(1), Some("/tmp/1.pcap".into()));
        assert_eq!(settings.record_of(0), Some("/tmp/0.txt".into()));
    }

    #[test]
    fn errors_name_the_valid_values() {
        let wrong = |name, value| {
            let error = parse(&[(name, value)]).unwrap_err();
            assert_eq!(error.name, name);
            error.why
        };
        assert!(wrong(variable::DEVICES, "0").contains("1 to 16"));
        assert!(wrong(variable::LINK, "token-ring").contains("ethernet or ib"));
        assert!(wrong(variable::MODEL, "cx4").contains("cx5, cx6"));
        let no_ports = parse(&[(variable::LINK, "ib"), (variable::MODEL, "cx6dx")]);
        assert!(no_ports.is_err() && parse(&[(variable::MODEL, "cx6dx")]).is_ok());
        assert!(wrong(variable::SHARED_MEMORY, "no").contains("on or off"));
        assert!(wrong(variable::IP, "localhost").contains("IPv4"));
        assert!(wrong(variable::IP, "127.0.0.2,127.0.0.3").contains("one for each"));
        let why = wrong(variable::FAULT, "devx,dorp=1");
        assert!(why.contains("`dorp=1`") && why.contains("uar-mmap") && why.contains("black_hole"), "{why}");
    }
}
