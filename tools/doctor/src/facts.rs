//! Facts about machines and jobs: all that the checks judge. A [`Record`] of them repeats the findings elsewhere.

pub(super) mod commands;
pub(super) mod job;
pub(super) mod probes;

use std::collections::BTreeMap;

use rushmem::config::{self, Config, Origin, Setting};
use rushmem::cuda::Attributes;
use serde::{Deserialize, Serialize};

use self::job::JobFacts;
use self::probes::Probes;

/// Settings of the launcher that the checks use. No user can set them.
const LAUNCHED: &str = "local_pes";
/// Settings that would allow others to join a job, or reveal where it runs.
const PRIVATE: [&str; 2] = ["log_file", "softnic_ip"];

/// A record of everything that checks have read, probed and exchanged.
#[derive(Clone, Serialize, Deserialize)]
pub struct Record {
    /// Version of Rushmem that wrote the record.
    pub version: String,
    /// Settings that differ from their defaults, without those of launchers, which include the secrets of a job.
    pub settings: BTreeMap<String, String>,
    pub(super) drives_rdma: bool,
    pub(super) cuda: Result<Driver, String>,
    pub(super) answers: Answers,
    /// Absent if no job was tried.
    pub(super) probes: Option<Probes>,
    /// Absent unless the record is of a job.
    pub(super) job: Option<JobFacts>,
}

/// What was read from a host, by path and kind of access: lines of text, or an `errno`.
pub(super) type Answers = BTreeMap<String, Result<Vec<String>, i32>>;

/// What the CUDA driver reports about itself and its GPUs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Driver {
    /// Newest CUDA version that the driver supports, as (major, minor).
    pub(super) version: (u32, u32),
    pub(super) gpus: Vec<Gpu>,
}

/// A GPU that the CUDA driver reports.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Gpu {
    pub(super) ordinal: u32,
    /// PCI address of the GPU, in the format of sysfs.
    pub(super) address: String,
    pub(super) attributes: Attributes,
}

impl Record {
    /// Returns the names of the nodes of a job, in the order of its PEs.
    pub fn nodes(&self) -> Vec<&str> {
        self.job.as_ref().map(JobFacts::nodes).unwrap_or_default()
    }

    /// Returns the settings for which the checks ran.
    ///
    /// # Errors
    /// - [`config::Error::UnknownKey`], [`config::Error::LaunchOnly`], [`config::Error::Invalid`]: this version does not
    ///   accept a setting.
    pub fn config(&self) -> Result<Config, config::Error> {
        let mut config = Config::default();
        for (key, value) in &self.settings {
            match key.as_str() {
                LAUNCHED => config.local_pes = value.parse().ok(),
                key => config.set(key, value)?,
            }
        }
        Ok(config)
    }
}

/// Returns the settings that differ from their defaults and that may be shown.
pub(super) fn settings(config: &Config) -> BTreeMap<String, String> {
    let is_shown = |key: &str| match Setting::find(key) {
        Some(setting) => key == LAUNCHED || !(setting.launch || PRIVATE.contains(&key)),
        None => false,
    };
    let rows = config.describe().into_iter();
    let shown = rows.filter(|row| row.origin != Origin::Default && is_shown(row.key));
    shown.map(|row| (row.key.to_owned(), row.value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_left_out() {
        let set = [
            ("RUSHMEM_TOKEN", "5a".repeat(32)),
            ("RUSHMEM_SERVER", "10.0.0.1:7000".into()),
            ("RUSHMEM_LOCAL_PES", "3".into()),
            ("RUSHMEM_LOG_FILE", "/home/me/log".into()),
            ("RUSHMEM_SQ_DEPTH", "64".into()),
        ];
        let config = Config::load_from(set.map(|(key, value)| (key.into(), value.into()))).unwrap();
        let shown = settings(&config);
        assert_eq!(shown.keys().collect::<Vec<_>>(), ["local_pes", "sq_depth"]);
    }

    #[test]
    fn settings_are_restored() {
        let settings = [("local_pes", "3"), ("sq_depth", "64"), ("nic", "mlx5_0:1")];
        let mut record = Record {
            version: String::new(),
            settings: settings.map(|(key, value)| (key.into(), value.into())).into(),
            drives_rdma: true,
            cuda: Err("none".into()),
            answers: Answers::new(),
            probes: None,
            job: None,
        };
        let config = record.config().unwrap();
        assert_eq!((config.pes_on_node(), config.nic.to_string()), (3, "mlx5_0:1".into()));
        record.settings.insert("token".into(), "5a".into());
        assert!(matches!(record.config(), Err(config::Error::LaunchOnly { .. })));
    }
}
