//! Other people's launchers: each tells a process its place, and carries PE 0's unique id to the others. From then on
//! the job is one with an id.

pub(super) mod pmi;
pub(super) mod pmix;
pub(super) mod torchrun;

/// A process's place, as its launcher tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PePosition {
    pub(super) pe: u32,
    pub(super) n_pes: u32,
    /// Number among the PEs of the node, and how many those are; none if the launcher does not say.
    pub(super) local: Option<(u32, u32)>,
}

/// The key under which PE 0 publishes the id.
const KEY: &str = "rushmem-id";
