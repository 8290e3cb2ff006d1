//! Launchers other than `rushmem run`. Each gives a process its PE number, and carries the unique id of PE 0 to the
//! others.
//!
//! `connect` then joins the job with this id.

pub(super) mod pmi;
pub(super) mod pmix;
pub(super) mod torchrun;

/// The position of a process in its job, as its launcher defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PePosition {
    pub(super) pe: u32,
    pub(super) n_pes: u32,
    /// The number of the PE on its node and the number of PEs on that node, if the launcher provides them.
    pub(super) local: Option<(u32, u32)>,
}

/// The key under which PE 0 publishes the id.
const KEY: &str = "rushmem-id";
