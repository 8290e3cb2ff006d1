//! The interface that launch queues need from the PE that owns them.

use std::sync::Arc;

use rushmem_machine::Watchdog;

use super::{LaunchId, LaunchResources, LaunchTable, PerBlockQueues, PooledIndex};
use crate::Result;

/// The PE that owns launch queues.
pub(crate) trait QueueOwner {
    fn number(&self) -> u32;

    fn table(&self) -> &LaunchTable;

    fn per_block(&self) -> &PerBlockQueues;

    fn watchdog(&self) -> &Arc<Watchdog>;

    /// Records that a queue of the PE has become busy.
    fn began(&self);

    /// Records that a queue of the PE has become idle.
    fn ended(&self);

    /// Keeps the resources of a launch that the application has captured into a graph, and its entry of the launch
    /// table.
    fn captured(&self, resources: LaunchResources, entry: Option<Arc<PooledIndex>>);

    /// Returns the outcome of finished launches. `failed` is the first launch that failed, and `ran` is the machine's
    /// result.
    ///
    /// # Errors
    /// - [`Error::Operation`](crate::Error::Operation) with the error and the name of the launch.
    fn outcome(&self, ran: Result<()>, failed: Option<LaunchId>) -> Result<()>;

    /// Returns the outcome of finished launches like [`QueueOwner::outcome`], but with an error that does not name the
    /// launch. `failed` says whether one of the launches failed.
    ///
    /// # Errors
    /// - The error of the launch.
    fn error(&self, ran: Result<()>, failed: bool) -> Result<()>;
}
