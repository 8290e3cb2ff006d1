//! The owner of launch queues: what they need from a PE.

use std::sync::Arc;

use rushmem_machine::Watchdog;

use super::{LaunchId, LaunchResources, LaunchTable, PerBlockQueues, PooledIndex};
use crate::Result;

/// What launch queues need from their PE.
pub(crate) trait QueueOwner {
    /// Returns the PE number, for the log.
    fn number(&self) -> u32;

    fn table(&self) -> &LaunchTable;

    /// Returns the state of the PE's per-block queues.
    fn per_block(&self) -> &PerBlockQueues;

    fn watchdog(&self) -> &Arc<Watchdog>;

    /// Records that a queue has started to run launches.
    fn began(&self);

    /// Records that a queue does not run anything any more.
    fn ended(&self);

    /// Keeps the resources of a launch captured into a graph of the application, and its entry of the launch table.
    fn captured(&self, resources: LaunchResources, entry: Option<Arc<PooledIndex>>);

    /// Returns the outcome of finished launches. `failed` is the first launch that failed, and `ran` is the machine's
    /// result.
    ///
    /// # Errors
    /// - [`Error::Operation`](crate::Error::Operation) with the error and the name of the launch.
    fn outcome(&self, ran: Result<()>, failed: Option<LaunchId>) -> Result<()>;

    /// Like [`QueueOwner::outcome`], but the error does not name the launch. `failed`: whether one of the launches
    /// failed.
    ///
    /// # Errors
    /// - The error of the launch.
    fn error(&self, ran: Result<()>, failed: bool) -> Result<()>;
}
