//! Launch queues: they order the launches of one stream and find the outcome of each.
//!
//! A kernel that fails leaves a record on the PE's control page, and its launch id in its queue's entry of the launch table.
//! The record says what went wrong, and the launch id says which launch it was. Later launches of the queue find the id and
//! do nothing until a wait has reported the error.

mod pool;
mod queue;
mod recorded;
mod resources;
mod scratch;
mod table;

use rushmem_device::kernel::Call;

pub(crate) use pool::PooledIndex;
pub(crate) use queue::{LaunchQueue, with_launch_id};
pub(crate) use recorded::RecordedGraph;
pub(crate) use resources::LaunchResources;
pub(crate) use scratch::{HostScratch, NO_BYTES, StagingBuffer};
pub(crate) use table::{LaunchId, LaunchTable, OWN};

use crate::machine::{Grid, KernelLaunch, Machine};
use crate::operations::Operation;
use crate::{Error, Pe, Result};

/// The launch table of a PE, its own queue, and the scratch of host operations.
pub(crate) struct LaunchQueues {
    /// The queue of [`Pe::launch`].
    pub(crate) own: LaunchQueue,
    pub(crate) table: LaunchTable,
    pub(crate) scratch: HostScratch,
}

impl LaunchQueues {
    /// `scratch` is the heap offset of [`HostScratch::BYTES`] bytes.
    pub(crate) fn new(machine: &dyn Machine, scratch: u64) -> Result<Self> {
        Ok(Self {
            own: LaunchQueue::new(machine.queue()?, OWN),
            table: LaunchTable::new(machine)?,
            scratch: HostScratch::new(scratch),
        })
    }
}

/// Checks the grid's block size against the kernel's `max_threads`.
///
/// # Errors
/// - [`Error::Unavailable`] if a block has more threads.
pub(crate) fn check_grid(call: &Call, grid: Grid) -> Result<()> {
    match call.max_threads() {
        Some(most) if grid.threads > most => {
            let what = format!("{} with {} threads a block", call.name(), grid.threads);
            let why =
                format!("the kernel is declared with max_threads = {most}; launch it with smaller blocks");
            Err(Error::Unavailable { what, why })
        }
        _ => Ok(()),
    }
}

impl Pe {
    /// Runs an operation on the calling thread, beside all queues. It reports only its own errors.
    ///
    /// # Errors
    /// - [`Error::Operation`] with the error of the operation.
    pub(crate) fn initiate(&self, operation: Operation) -> Result<()> {
        let table = &self.launch_queues().table;
        let entry = table.take(self.config().timeout)?;
        let launch_id = table.launch_id(1, operation.name);
        let (ctx, resources) = self.launch_context(&operation.call)?;
        let ctx = with_launch_id(ctx, table.addr(entry.index), launch_id);
        self.service().launched();
        let step = KernelLaunch {
            ctx,
            grid: operation.grid,
            call: operation.call,
            module: resources.module.clone(),
        };
        let ran = self.machine_ref().run(step, self.launch_timeout());
        self.service().ended();
        let mut failed = table.failed(entry.index)?;
        if failed.is_some() {
            table.clear(entry.index)?;
        } else if ran.is_err() {
            failed = Some(launch_id);
        }
        match failed {
            None => Ok(()),
            failed => self.launch_outcome(ran, failed),
        }
    }

    /// Returns the outcome of ended launches. `failed` is the first launch that failed, and `ran` is the machine's result.
    pub(crate) fn launch_outcome(&self, ran: Result<()>, failed: Option<LaunchId>) -> Result<()> {
        let outcome = self.launch_error(ran, failed.is_some());
        match (outcome, failed) {
            (Err(error), Some(failed)) if !matches!(error, Error::PeerLost(_)) => Err(Error::Operation {
                what: self.launch_queues().table.name(failed),
                cause: Box::new(error),
            }),
            (outcome, _) => outcome,
        }
    }

    /// Returns the outcome of ended launches without a name.
    ///
    /// A record belongs to a failed launch. If none of this queue has failed, the record may belong to a launch of another
    /// queue, which has failed or is about to. A record no launch claims is reported by the first wait made while nothing runs.
    pub(crate) fn launch_error(&self, ran: Result<()>, failed: bool) -> Result<()> {
        // Read this before the launch table: launches that have ended are in the table.
        let busy = self.service().is_busy();
        if !failed && self.launch_queues().table.any_failed()? {
            return ran;
        }
        if let Some(failure) = self.service().take_failure() {
            self.take_errors()?;
            return Err(failure);
        }
        let error = if failed || !busy { self.take_errors()? } else { None };
        match (error, self.lost()) {
            // This kernel's own error may be the reason for the other PE's end.
            (Some(error), lost) if lost.is_none() || !is_explained_by_loss(&error) => Err(error),
            (_, Some(lost)) => Err(Error::PeerLost(lost)),
            (None, None) if failed && ran.is_ok() => Err(match self.service().poisoned()? {
                Some((peer, qpn)) => Error::Poisoned { peer, qpn },
                None => Error::Unrecorded,
            }),
            _ => ran,
        }
    }
}

fn is_explained_by_loss(error: &Error) -> bool {
    matches!(error, Error::Device { first, .. } if first.is_explained_by_loss())
}
