//! The settings of a job. A single [table](SETTINGS) defines them all, and [`Config`] holds their values.
//!
//! Settings come from four layers. Each overrides the ones before it:
//!
//! 1. The built-in default.
//! 2. The file `RUSHMEM_CONFIG=path.toml`, with the keys of the table.
//! 3. The environment: `RUSHMEM_` followed by the key in capitals.
//! 4. The program, or a command-line option.
//!
//! An unknown name in any layer is an error, which suggests the nearest known name.
#![deny(unsafe_code)]

mod error;
mod group;
mod id;
mod membership;
mod nearest;
mod nic;
mod range;
mod record;
mod start;
mod storage;
mod switch;
mod table;
mod value;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::value::Value;

pub use self::error::Error;
pub use self::group::Group;
pub use self::id::{EncodedId, IdFields, Listener};
pub use self::membership::Membership;
pub use self::nearest::nearest;
pub use self::nic::{Nic, NicNames, NicPort, NicShare};
pub use self::range::AddressRange;
pub use self::record::DoorbellRecord;
pub use self::start::{AddressFamily, BootstrapKind};
pub use self::storage::StorageKind;
pub use self::switch::Switch;
pub use self::table::{Config, OTHER_VARIABLES, SETTINGS};
pub use self::value::{
    Auto, Bytes, ConnectKind, CqKind, Dcis, DeviceKind, DoorbellKind, GpuArch, Gpus, HeapKind, Limit,
    OptionalBytes, Ordering, P2pAtomics, Partition, PeerPath, PowerOfTwo, Progress, QueueMemory,
    RelaxedOrdering, Retries, Secret, SqDepth,
};

/// Prefix of all environment variables of Rushmem.
pub const PREFIX: &str = "RUSHMEM_";

/// A setting that users and launchers can set: a row of the table [`SETTINGS`].
pub struct Setting {
    /// Key of the setting in the configuration file and on the command line.
    pub key: &'static str,
    /// Name of the environment variable of the setting.
    pub env: &'static str,
    /// Default value as text. Empty if there is none.
    pub default: &'static str,
    /// Unit of the setting's value. Empty if it has none.
    pub unit: &'static str,
    /// Description of the setting, for the documentation and `rushmem info`.
    pub doc: &'static str,
    /// Group under which the documentation and `rushmem info` list the setting.
    pub group: Group,
    /// Whether the setting is for experts. `rushmem info` lists it only if it is set, or with `--all`.
    pub expert: bool,
    /// Whether only the launcher may set the setting, separately for each PE.
    pub launch: bool,
    accepts: fn() -> String,
    set: fn(&mut Config, &str) -> Result<(), String>,
    show: fn(&Config) -> String,
}

impl Setting {
    /// Returns the setting with this key.
    pub fn find(key: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// Returns the setting with this key or environment variable, ignoring case.
    pub fn find_by_name(name: &str) -> Option<&'static Setting> {
        let is = |known: &str| known.eq_ignore_ascii_case(name);
        SETTINGS.iter().find(|setting| is(setting.key) || is(setting.env))
    }

    /// Describes the accepted values, for error messages.
    pub fn accepts(&self) -> String {
        (self.accepts)()
    }

    fn apply(&'static self, config: &mut Config, text: &str, origin: Origin) -> Result<(), Error> {
        let invalid = |why| {
            let place = match &origin {
                Origin::Variable => format!("environment variable {}", self.env),
                origin => format!("setting `{}` ({origin})", self.key),
            };
            let value = if matches!(self.key, "token" | "id") { "(hidden)" } else { text };
            Error::Invalid { place, value: value.into(), why, accepts: self.accepts() }
        };
        (self.set)(config, text).map_err(invalid)?;
        config.origins.insert(self.key, origin);
        Ok(())
    }
}

/// Where the value of a setting comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The built-in default, since no layer sets the value.
    Default,
    /// The configuration file at this path.
    File(PathBuf),
    /// The setting's environment variable.
    Variable,
    /// The program, or an option given to it.
    Program,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(path) => write!(f, "file {}", path.display()),
            Origin::Variable => f.write_str("environment"),
            Origin::Program => f.write_str("program"),
        }
    }
}

/// A setting with its current value.
#[derive(Clone, Debug)]
pub struct Row {
    /// Key of the setting.
    pub key: &'static str,
    /// Current value of the setting, as text.
    pub value: String,
    /// Layer that the value comes from.
    pub origin: Origin,
}

impl Config {
    /// Reads the configuration file and the environment of this process. Other settings keep their defaults.
    ///
    /// # Errors
    /// - [`Error::UnknownVariable`], [`Error::UnknownKey`]: a name is not that of a setting.
    /// - [`Error::Invalid`], [`Error::NotUnicode`], [`Error::LaunchOnly`]: a setting has an invalid value, or may not
    ///   be set in this place.
    /// - [`Error::Read`], [`Error::File`]: the configuration file cannot be read or parsed.
    /// - The errors of [`Config::check`].
    pub fn load() -> Result<Config, Error> {
        Config::load_from(std::env::vars_os())
    }

    /// Returns the number of PEs on this node. Launchers pass it; without a launcher, all PEs are threads of this
    /// process.
    pub fn pes_on_node(&self) -> u32 {
        self.local_pes.unwrap_or(self.pes).get()
    }

    /// Like [`Config::load`], with the given environment variables instead of those of this process.
    ///
    /// # Errors
    /// - The errors of [`Config::load`].
    pub fn load_from(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Config, Error> {
        let ours = ours(variables)?;
        let mut config = match ours.get("RUSHMEM_CONFIG") {
            Some(path) => from_file(Path::new(path))?,
            None => Config::default(),
        };
        for (name, value) in &ours {
            if let Some(setting) = SETTINGS.iter().find(|setting| setting.env == name) {
                setting.apply(&mut config, value, Origin::Variable)?;
            }
        }
        config.check()?;
        Ok(config)
    }

    /// Sets a setting from text, like a command-line option. Call [`Config::check`] after the last one.
    ///
    /// # Errors
    /// - [`Error::UnknownKey`]: the key is not that of a setting.
    /// - [`Error::LaunchOnly`]: only the launcher may set it.
    /// - [`Error::Invalid`]: the setting does not accept the value.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), Error> {
        find_for_user(key, "program")?.apply(self, value, Origin::Program)
    }

    /// Checks that the settings are consistent, and that this build supports them.
    ///
    /// # Errors
    /// - [`Error::Conflict`]: two settings contradict each other.
    /// - [`Error::NotInThisBuild`]: a setting needs a feature that this build lacks.
    pub fn check(&self) -> Result<(), Error> {
        if cfg!(not(feature = "rdma"))
            && let Nic::Named(_) | Nic::PerPe(_) = self.nic
        {
            let needs = "an RDMA device needs the feature `rdma`; build with `cargo build --release --features rdma`, \
                         or use nic = soft (the software ConnectX) or auto";
            return Err(Error::NotInThisBuild { setting: self.named("nic"), needs: needs.into() });
        }
        if self.device == DeviceKind::Native {
            let conflict = |key, why: &str| Error::Conflict {
                first: self.named("device"),
                second: self.named(key),
                why: why.into(),
            };
            if self.heap == HeapKind::Device {
                return Err(conflict(
                    "heap",
                    "native kernels cannot reach GPU memory; use heap = host or auto",
                ));
            }
            if self.queues == QueueMemory::Device {
                return Err(conflict(
                    "queues",
                    "native kernels cannot reach GPU memory; use queues = host or auto",
                ));
            }
            if self.gpus != Gpus::Auto {
                return Err(conflict(
                    "gpus",
                    "native kernels use no GPU; use device = gpu, or leave out gpus",
                ));
            }
        }
        if matches!(self.nic, Nic::PerPe(_)) && self.nics_per_pe.get() > 1 {
            return Err(Error::Conflict {
                first: self.named("nic"),
                second: self.named("nics_per_pe"),
                why: "DEVICE:PORT:PES gives each PE one port; use nics_per_pe = 1, or a list of devices"
                    .into(),
            });
        }
        let is_p2p = matches!(self.peer_path, PeerPath::Auto | PeerPath::P2p);
        if self.sanitize == Switch::On && !is_p2p {
            return Err(Error::Conflict {
                first: self.named("sanitize"),
                second: self.named("peer_path"),
                why: "the sanitizer watches mapped memory; use peer_path = p2p, or leave it out".into(),
            });
        }
        if self.sanitize == Switch::On && self.device == DeviceKind::Gpu {
            return Err(Error::Conflict {
                first: self.named("sanitize"),
                second: self.named("device"),
                why: "the sanitizer watches native kernels; use device = native".into(),
            });
        }
        if let (Some(pe), Some(n_pes)) = (self.pe, self.n_pes)
            && pe >= n_pes.get()
        {
            return Err(Error::Conflict {
                first: self.named("pe"),
                second: self.named("n_pes"),
                why: "PEs are numbered from 0; `rushmem run` sets both".into(),
            });
        }
        Ok(())
    }

    /// Returns all settings with their values and origins, in the order of the table.
    pub fn describe(&self) -> Vec<Row> {
        SETTINGS
            .iter()
            .map(|setting| Row {
                key: setting.key,
                value: (setting.show)(self),
                origin: self.origin(setting),
            })
            .collect()
    }

    /// Returns whether the setting with this key has its built-in default, because no layer has set it.
    pub fn is_default(&self, key: &str) -> bool {
        Setting::find(key).is_some_and(|setting| self.origin(setting) == Origin::Default)
    }

    fn origin(&self, setting: &Setting) -> Origin {
        match self.origins.get(setting.key) {
            Some(origin) => origin.clone(),
            None if (setting.show)(self) == setting.default => Origin::Default,
            // No layer set it, so the program must have assigned the field directly.
            None => Origin::Program,
        }
    }

    /// Formats a setting as `key = value (origin)`, or as its environment variable.
    fn named(&self, key: &str) -> String {
        Setting::find(key).map_or_else(String::new, |setting| match self.origin(setting) {
            Origin::Variable => format!("{}={}", setting.env, (setting.show)(self)),
            origin => format!("{key} = {} ({origin})", (setting.show)(self)),
        })
    }
}

/// Validates `key = value` like [`Config::set`], and returns the variable that passes it to another process.
///
/// `place` says where the key comes from, for messages.
///
/// # Errors
/// - The errors of [`Config::set`].
pub fn variable_for(key: &str, value: &str, place: &str) -> Result<&'static str, Error> {
    let setting = find_for_user(key, place)?;
    setting.apply(&mut Config::default(), value, Origin::Program)?;
    Ok(setting.env)
}

/// Parses a duration as settings do: `250ms`, `5s`, `2m`.
///
/// # Errors
/// - A text with the cause and the accepted values.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    Duration::parse(text).map_err(|why| format!("{why}; accepted: {}", Duration::accepts()))
}

fn find_for_user(key: &str, place: &str) -> Result<&'static Setting, Error> {
    match Setting::find(key) {
        Some(setting) if setting.launch => Err(Error::LaunchOnly { place: place.into(), key: key.into() }),
        Some(setting) => Ok(setting),
        None => {
            let known = SETTINGS.iter().filter(|setting| !setting.launch).map(|setting| setting.key);
            let nearest = nearest(key, known);
            Err(Error::UnknownKey { place: place.into(), key: key.into(), nearest })
        }
    }
}

/// Returns the variables with the prefix `RUSHMEM_` and their values. Fails if one of them is unknown or not UTF-8.
fn ours(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<BTreeMap<String, String>, Error> {
    let known =
        || SETTINGS.iter().map(|setting| setting.env).chain(OTHER_VARIABLES.iter().map(|(name, _)| *name));
    let mut ours = BTreeMap::new();
    for (name, value) in variables {
        let name = name.to_string_lossy().into_owned();
        if !name.starts_with(PREFIX) {
            continue;
        }
        if !known().any(|known| known == name) {
            let nearest = nearest(&name, known());
            return Err(Error::UnknownVariable { name, nearest });
        }
        match value.into_string() {
            Ok(value) => ours.insert(name, value),
            Err(value) => return Err(Error::NotUnicode { name, value: format!("{value:?}") }),
        };
    }
    Ok(ours)
}

fn from_file(path: &Path) -> Result<Config, Error> {
    let text = read_file(path).map_err(|source| Error::Read { path: path.into(), source })?;
    parse_file(path, &text)
}

/// Size of the largest accepted configuration file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Reads a regular file of moderate size. Reads of other files may block or never finish.
fn read_file(path: &Path) -> io::Result<String> {
    // Check before opening, since opening a FIFO waits for a writer.
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    Ok(text)
}

fn parse_file(path: &Path, text: &str) -> Result<Config, Error> {
    let in_file = |error: toml::de::Error| Error::File { path: path.into(), message: error.to_string() };
    // Check names first, since that error suggests the nearest name. Errors in values come with line and column.
    let table: toml::Table = text.parse().map_err(in_file)?;
    let place = format!("configuration file {}", path.display());
    let found = table.keys().map(|key| find_for_user(key, &place)).collect::<Result<Vec<_>, _>>()?;
    let mut config: Config = toml::from_str(text).map_err(in_file)?;
    config.origins = found.iter().map(|setting| (setting.key, Origin::File(path.into()))).collect();
    Ok(config)
}

#[cfg(test)]
mod tests;
