//! Launch queues keep the launches of a stream in order and determine the outcome of each.
//!
//! A kernel that fails leaves a record on the PE's control page, and its launch ID in the queue's entry of the launch
//! table. The record says what went wrong, and the ID says in which launch. Later launches in the queue find the ID and
//! do nothing, until a wait has reported the error.

mod captured;
mod dropped;
mod operation;
mod owner;
mod per_block;
mod pool;
mod queue;
mod recorded;
mod resources;
mod scratch;
mod table;
mod unreported;

use rushmem_device::kernel::Call;
use rushmem_machine::{LaunchConfig, Machine};

pub(crate) use captured::CapturedLaunches;
pub(crate) use dropped::{Dropped, DroppedWork};
pub(crate) use operation::Operation;
pub(crate) use owner::QueueOwner;
pub(crate) use per_block::PerBlockQueues;
pub(crate) use pool::PooledIndex;
pub(crate) use queue::{LaunchQueue, for_launch};
pub(crate) use recorded::RecordedGraph;
pub(crate) use resources::LaunchResources;
pub(crate) use scratch::{HostScratch, NO_BYTES, StagingBuffer};
pub(crate) use table::{LaunchId, LaunchTable, OWN};
pub(crate) use unreported::Unreported;

use crate::{Error, Result};

/// The launch queues of a PE, and the tables and pools they share.
pub(crate) struct LaunchQueues {
    /// Queue for launches by [`Pe::launch`](crate::Pe::launch).
    pub(crate) own: LaunchQueue,
    pub(crate) table: LaunchTable,
    pub(crate) scratch: HostScratch,
    pub(crate) per_block: PerBlockQueues,
    pub(crate) dropped: DroppedWork,
    pub(crate) captured: CapturedLaunches,
    pub(crate) unreported: Unreported,
}

impl LaunchQueues {
    /// Creates the PE's own queue, and the tables and pools that all its queues share. `scratch` is the heap offset of
    /// the [`HostScratch::BYTES`] bytes for host operations.
    pub(crate) fn new(machine: &dyn Machine, scratch: u64) -> Result<Self> {
        Ok(Self {
            own: LaunchQueue::own(machine.queue()?),
            table: LaunchTable::new(machine)?,
            scratch: HostScratch::new(scratch),
            per_block: PerBlockQueues::default(),
            dropped: DroppedWork::default(),
            captured: CapturedLaunches::default(),
            unreported: Unreported::default(),
        })
    }
}

/// Checks the block size of a grid against the kernel's `max_threads`.
///
/// # Errors
/// - [`Error::Unavailable`] if blocks are too large.
pub(crate) fn check_grid(call: &Call, grid: LaunchConfig) -> Result<()> {
    match call.max_threads() {
        Some(most) if grid.threads() > most => {
            let what = format!("{} with {} threads a block", call.name(), grid.threads());
            let why =
                format!("the kernel is declared with max_threads = {most}; launch it with smaller blocks");
            Err(Error::Unavailable { what, why })
        }
        _ => Ok(()),
    }
}
