//! The owner of launch queues: the part of a PE that they use.

use std::sync::Arc;

use rushmem_machine::Watchdog;

use super::{LaunchId, LaunchResources, LaunchTable, PerBlockQueues, PooledIndex};
use crate::Result;

/// A PE, as its launch queues use it.
pub(crate) trait QueueOwner {
    /// Returns the number of the PE, for the log.
    fn number(&self) -> u32;

    /// Returns the PE's launch table.
    fn table(&self) -> &LaunchTable;

    /// Returns the last use of the PE's per-block queues.
    fn per_block(&self) -> &PerBlockQueues;

    /// Returns the watchdog of the PE's kernels.
    fn watchdog(&self) -> &Arc<Watchdog>;

    /// Notes that a queue has begun to run launches.
    fn began(&self);

    /// Notes that a queue runs nothing any more.
    fn ended(&self);

    /// Keeps the resources of a launch that a graph of the application has captured, and its entry of the launch table.
    fn captured(&self, resources: LaunchResources, entry: Option<Arc<PooledIndex>>);

    /// Returns the outcome of ended launches. `failed` is the first launch that failed, and `ran` is the machine's
    /// result.
    ///
    /// # Errors
    /// - [`Error::Operation`](crate::Error::Operation) with the error and the name of the launch.
    fn outcome(&self, ran: Result<()>, failed: Option<LaunchId>) -> Result<()>;

    /// Returns the outcome of ended launches without a name. `failed` tells whether one of them failed.
    ///
    /// # Errors
    /// - The error of the launch.
    fn error(&self, ran: Result<()>, failed: bool) -> Result<()>;
}
