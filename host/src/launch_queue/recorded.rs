//! Graphs recorded from streams, which launch queues replay.

use rushmem_machine::ExecGraph;

use super::{LaunchResources, PooledIndex};

/// A recorded graph, and the entry of the launch table to which its kernels report failures.
pub(crate) struct RecordedGraph {
    recording: ExecGraph,
    entry: PooledIndex,
    /// Whether a kernel of the graph may use the per-block queues.
    per_block: bool,
    /// Resources of each kernel in the graph, as of the recording: segments added later are not included.
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

    pub(crate) fn uses_per_block(&self) -> bool {
        self.per_block
    }

    /// Returns the number of kernels in the graph.
    pub(crate) fn len(&self) -> u32 {
        self.resources.len() as u32
    }

    pub(crate) fn recording(&self) -> &ExecGraph {
        &self.recording
    }

    /// Returns the index of the graph's entry in the launch table.
    pub(crate) fn entry(&self) -> u32 {
        self.entry.index
    }
}
