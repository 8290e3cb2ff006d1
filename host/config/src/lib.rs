//! All settings of a job, in one struct made from one [table](SETTINGS).
//!
//! Each layer overrides the one before: built-in default, file (`RUSHMEM_CONFIG=path.toml`, keys as in the table),
//! environment (`RUSHMEM_` and the key in capitals), program or command-line option. A name that no setting has, in
//! any layer, is an error that names the nearest one: a misspelt setting is never ignored.
#![deny(unsafe_code)]

mod error;
mod id;
mod nearest;
mod nic;
mod start;
mod table;
mod value;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::value::Value;

pub use self::error::Error;
pub use self::id::{EncodedId, IdFields, Listener};
pub use self::nic::{Nic, NicPort};
pub use self::start::{AddressFamily, BootstrapKind};
pub use self::table::{Config, OTHER_VARIABLES, SETTINGS};
pub use self::value::{
    Auto, Bytes, ConnectKind, CqKind, DeviceKind, DoorbellKind, Gpus, HeapKind, HeapMax, Partition, PeerPath,
    Progress, QueueMemory, Retries, Secret, SqDepth,
};

/// All environment variables with this prefix are ours.
pub const PREFIX: &str = "RUSHMEM_";

/// One row of the table of settings.
pub struct Setting {
    /// Key in a file and on the command line.
    pub key: &'static str,
    /// Environment variable.
    pub env: &'static str,
    /// Built-in value, as text; empty for none.
    pub default: &'static str,
    /// Unit of the value; empty if it has none.
    pub unit: &'static str,
    /// Its meaning, in one sentence.
    pub doc: &'static str,
    /// Whether it is made by the launcher for each PE, and not by users.
    pub launch: bool,
    accepts: fn() -> String,
    set: fn(&mut Config, &str) -> Result<(), String>,
    show: fn(&Config) -> String,
}

impl Setting {
    /// The setting with this key.
    pub fn find(key: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// What values are accepted, for messages.
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

/// Where a setting's value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Built in.
    Default,
    /// The configuration file with this path.
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

/// One setting as it stands, for people.
#[derive(Clone, Debug)]
pub struct Row {
    /// The setting.
    pub key: &'static str,
    /// Its value as text.
    pub value: String,
    /// Where that comes from.
    pub origin: Origin,
}

impl Config {
    /// Reads all layers, from the environment of this process.
    ///
    /// # Errors
    ///
    /// An unknown name, a value that is not accepted, an unreadable file, or settings that contradict each other.
    pub fn load() -> Result<Config, Error> {
        Config::load_from(std::env::vars_os())
    }

    /// As [`Config::load`], from the given environment.
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

    /// Sets one setting from text, as a command-line option does. [`Config::check`] is the caller's to call after the last.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), Error> {
        find_for_user(key, "program")?.apply(self, value, Origin::Program)
    }

    /// Looks for settings that contradict each other, or ask for what this build cannot do.
    pub fn check(&self) -> Result<(), Error> {
        if cfg!(not(feature = "rdma"))
            && let Nic::Named(_) = self.nic
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

    /// Every setting with its value and where that comes from, in the table's order.
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

    fn origin(&self, setting: &Setting) -> Origin {
        match self.origins.get(setting.key) {
            Some(origin) => origin.clone(),
            None if (setting.show)(self) == setting.default => Origin::Default,
            // A field that the program changed by itself.
            None => Origin::Program,
        }
    }

    /// `key = value (origin)`.
    fn named(&self, key: &str) -> String {
        Setting::find(key).map_or_else(String::new, |setting| match self.origin(setting) {
            Origin::Variable => format!("{}={}", setting.env, (setting.show)(self)),
            origin => format!("{key} = {} ({origin})", (setting.show)(self)),
        })
    }
}

/// Checks `key = value` as [`Config::set`] would, and returns the variable that carries it to another process.
///
/// `place` names where the key was found, for messages.
pub fn variable_for(key: &str, value: &str, place: &str) -> Result<&'static str, Error> {
    let setting = find_for_user(key, place)?;
    setting.apply(&mut Config::default(), value, Origin::Program)?;
    Ok(setting.env)
}

/// Reads a duration as settings do: `250ms`, `5s`, `2m`. The error says what is wrong and what is accepted.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    Duration::parse(text).map_err(|why| format!("{why}; accepted: {}", Duration::accepts()))
}

fn find_for_user(key: &str, place: &str) -> Result<&'static Setting, Error> {
    match Setting::find(key) {
        Some(setting) if setting.launch => Err(Error::LaunchOnly { place: place.into(), key: key.into() }),
        Some(setting) => Ok(setting),
        None => {
            let known = SETTINGS.iter().filter(|setting| !setting.launch).map(|setting| setting.key);
            let nearest = nearest::nearest(key, known);
            Err(Error::UnknownKey { place: place.into(), key: key.into(), nearest })
        }
    }
}

/// The variables with our prefix, each of which must be known.
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
            let nearest = nearest::nearest(&name, known());
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
    let text = std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.into(), source })?;
    parse_file(path, &text)
}

/// Reads the text of a configuration file.
fn parse_file(path: &Path, text: &str) -> Result<Config, Error> {
    let in_file = |error: toml::de::Error| Error::File { path: path.into(), message: error.to_string() };
    // First the names, for a message with the nearest one; then the values, for one with line and column.
    let table: toml::Table = text.parse().map_err(in_file)?;
    let place = format!("configuration file {}", path.display());
    let found = table.keys().map(|key| find_for_user(key, &place)).collect::<Result<Vec<_>, _>>()?;
    let mut config: Config = toml::from_str(text).map_err(in_file)?;
    config.origins = found.iter().map(|setting| (setting.key, Origin::File(path.into()))).collect();
    Ok(config)
}

#[cfg(test)]
mod tests;
