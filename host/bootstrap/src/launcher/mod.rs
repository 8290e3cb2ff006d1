//! Support for launchers other than `rushmem run`: each gives a process its PE number, and carries the job's unique ID
//! from PE 0 to the other PEs.
//!
//! With this ID, `connect` then joins the job.

pub(super) mod pmi;
pub(super) mod pmix;
pub(super) mod torchrun;

/// Position of a process in its job, according to its launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PePosition {
    pub(super) pe: u32,
    pub(super) n_pes: u32,
    /// Rank of the PE on its node, and number of PEs on that node, if the launcher provides them.
    pub(super) local: Option<(u32, u32)>,
}

/// Key under which PE 0 publishes the job's unique ID in the launcher's key-value space.
const ID_KEY: &str = "rushmem-id";
