//! The recording of a graph, as launch queues replay it.

use super::{LaunchResources, PooledIndex};
use crate::machine::ExecGraph;

/// A recorded graph with the entry of the launch table that its kernels report to.
pub(crate) struct RecordedGraph {
    recording: ExecGraph,
    entry: PooledIndex,
    /// Resources of each of its kernels, which segments opened later do not join.
    resources: Vec<LaunchResources>,
}

impl RecordedGraph {
    pub(crate) fn new(recording: ExecGraph, entry: PooledIndex, resources: Vec<LaunchResources>) -> Self {
        Self { recording, entry, resources }
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
