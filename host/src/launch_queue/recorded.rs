//! The recording of a graph, as launch queues replay it.

use rushmem_machine::ExecGraph;

use super::{LaunchResources, PooledIndex};

/// A recorded graph with the entry of the launch table that its kernels report to.
pub(crate) struct RecordedGraph {
    recording: ExecGraph,
    entry: PooledIndex,
    /// Whether one of its kernels may use the per-block queues.
    per_block: bool,
    /// Resources of each of its kernels, which segments opened later do not join.
    resources: Vec<LaunchResources>,
}

impl RecordedGraph {
    pub(crate) fn new(
        recording: ExecGraph,
        entry: PooledIndex,
        per_block: bool,
        resources: Vec<LaunchResources>,
    ) -> Self {
        Self { recording, entry, per_block, resources }
    }

    /// Returns whether one of its kernels may use the per-block queues.
    pub(crate) fn uses_per_block(&self) -> bool {
        self.per_block
    }

    /// Returns the number of its kernels.
    pub(crate) fn len(&self) -> u32 {
        self.resources.len() as u32
    }

    pub(crate) fn recording(&self) -> &ExecGraph {
        &self.recording
    }

    /// Returns the index of its entry in the launch table.
    pub(crate) fn entry(&self) -> u32 {
        self.entry.index
    }
}
