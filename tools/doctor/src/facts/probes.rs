//! What the probes of a machine found.

use serde::{Deserialize, Serialize};

use super::commands::{Command, Cqe};

/// What the probes of a machine found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Probes {
    pub(crate) choice: Result<Choice, String>,
    pub(crate) pairs: Result<Vec<PairFacts>, String>,
    pub(crate) jobs: Vec<JobOutcome>,
}

/// The NICs of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Choice {
    pub(crate) reason: String,
    pub(crate) is_device_unused: bool,
    pub(crate) devices: Vec<String>,
    /// Devices that a job does not use, each with the reason.
    pub(crate) refused: Vec<String>,
}

/// How a pair of a PE and a NIC works.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PairFacts {
    pub(crate) pe: u32,
    pub(crate) gpu: Option<u32>,
    pub(crate) nic: String,
    /// As `nvidia-smi topo` abbreviates it.
    pub(crate) distance: Option<String>,
    pub(crate) is_used: bool,
    pub(crate) doorbells: Option<Result<String, String>>,
    /// The level and the features that are missing, each with the reason.
    pub(crate) level: Result<(String, Vec<String>), String>,
    pub(crate) commands: Vec<Command>,
    pub(crate) completions: Vec<Cqe>,
}

/// The outcome of a job of two PEs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JobOutcome {
    pub(crate) path: JobPath,
    /// The times of the operations, or the error.
    pub(crate) outcome: Result<String, String>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JobPath {
    Nic,
    P2p,
}
