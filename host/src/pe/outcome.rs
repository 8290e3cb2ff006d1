//! Determines the outcome of launches, and which error a failed launch reports.

use std::panic::Location;
use std::sync::Arc;

use rushmem_error::call_site::CallSite;
use rushmem_fabric::queues::set_abort_word;
use rushmem_machine::{KernelLaunch, Launched, Watchdog};

use crate::launch_queue::{
    Dropped, LaunchId, LaunchResources, LaunchTable, Operation, PerBlockQueues, PooledIndex, QueueOwner,
    for_launch,
};
use crate::pe::Pe;
use crate::{Error, Result};

impl Pe {
    /// Runs an operation on the calling thread, independently of all launch queues. Reports only the operation's own
    /// errors.
    ///
    /// # Errors
    /// - [`Error::Operation`] with the error of the operation.
    #[track_caller]
    pub(crate) fn initiate(&self, operation: Operation) -> Result<()> {
        let site = Location::caller();
        let table = &self.launch_queues().table;
        let entry = table.take(self.config().timeout)?;
        let launch_id = table.launch_id(1, operation.name, CallSite::current());
        let (ctx, resources) = self.launch_context(&operation.call)?;
        let ctx = for_launch(ctx, operation.grid, table.addr(entry.index), launch_id);
        self.service().launched();
        let step = KernelLaunch {
            ctx,
            grid: operation.grid,
            call: operation.call.of_operation(operation.name, site),
            module: resources.module.clone(),
        };
        let launched = Launched { name: operation.name, site: None };
        let run = self.watchdog.begin(Box::new(|| true), launched, 1);
        let ran = self.machine_ref().run(step);
        drop(run);
        self.service().ended();
        let mut failed = table.failed(entry.index)?;
        if failed.is_some() {
            table.clear(entry.index)?;
        } else if ran.is_err() {
            failed = Some(launch_id);
        }
        match failed {
            None => Ok(()),
            failed => self.outcome(ran, failed),
        }
    }
}

/// Methods for launches and streams that the program dropped without waiting for them.
impl Pe {
    /// Keeps a dropped launch or stream for [`Pe::wait_for_dropped`]. Does not wait for it: the program may be about to
    /// return an error, for which the kernel would wait in vain. If the thread is panicking, aborts the waits of all
    /// kernels.
    pub(crate) fn keep_dropped(&self, dropped: Dropped) {
        if std::thread::panicking() {
            self.end_kernels(format!("PE {} panicked", self.my_pe()));
        }
        self.launch_queues().dropped.add(dropped);
    }

    /// Waits for the launches and streams that the program has dropped. Keeps the first error for the PE's shutdown.
    pub(crate) fn wait_for_dropped(&self) {
        let queues = self.launch_queues();
        queues.dropped.take_each(|dropped| {
            let ended = match &dropped {
                Dropped::Launch(launch_id, event) => queues.own.wait_for(self, *launch_id, event),
                Dropped::Stream(queue) => queue.wait(self),
            };
            if let Err(error) = ended {
                queues.unreported.keep(error);
            }
        });
    }

    /// Aborts the waits of this PE's kernels, because the PE has failed with the given cause. The watchdog handles
    /// kernels that keep running.
    pub(super) fn end_kernels(&self, cause: String) {
        self.watchdog.job_failed(cause);
        set_abort_word(&*self.control.memory);
    }
}

impl QueueOwner for Pe {
    fn number(&self) -> u32 {
        self.my_pe()
    }

    fn table(&self) -> &LaunchTable {
        &self.launch_queues().table
    }

    fn per_block(&self) -> &PerBlockQueues {
        &self.launch_queues().per_block
    }

    fn watchdog(&self) -> &Arc<Watchdog> {
        &self.watchdog
    }

    fn began(&self) {
        self.service().launched();
    }

    fn ended(&self) {
        self.service().ended();
    }

    fn captured(&self, resources: LaunchResources, entry: Option<Arc<PooledIndex>>) {
        if self.launch_queues().captured.add(resources, entry) {
            // The application's graph may run at any time from now on.
            self.service().launched();
        }
    }

    fn outcome(&self, ran: Result<()>, failed: Option<LaunchId>) -> Result<()> {
        let outcome = self.error(ran, failed.is_some());
        match (outcome, failed) {
            (Err(error), Some(failed)) if !matches!(error, Error::PeerLost(_)) => {
                let (what, site) = self.launch_queues().table.named(failed);
                Err(Error::Operation { what, cause: Box::new(error.of_operation(site)), site })
            }
            (outcome, _) => outcome,
        }
    }

    /// Returns the outcome of finished launches, without the name of the failed one.
    ///
    /// An error record on the control page belongs to a failed launch. If no launch in this queue has failed, the
    /// record may belong to a failed launch in another queue. A record that no launch claims is reported by the first
    /// wait while nothing runs.
    fn error(&self, ran: Result<()>, failed: bool) -> Result<()> {
        let ran = ran.map_err(|error| error.on_pe(self.my_pe()));
        // Before the launch table: whatever finishes in between has left its failure in the table.
        let busy = self.service().is_busy();
        self.judge(ran, failed, failed || !busy)
    }
}

/// The error that explains the outcome of kernels.
impl Pe {
    /// Returns the error that explains the outcome `ran` of kernels. `failed` says whether a launch of the queue in
    /// question failed, and `takes_records` whether records that no launch claims are to be reported.
    pub(super) fn judge(&self, ran: Result<()>, failed: bool, takes_records: bool) -> Result<()> {
        if !failed && self.launch_queues().table.any_failed()? {
            return ran;
        }
        if let Some(failure) = self.service().take_failure() {
            self.take_errors(failed)?;
            return Err(failure);
        }
        let error = if takes_records { self.take_errors(failed)? } else { None };
        match (error, self.membership.fatal()) {
            // The kernel's own error may be the reason why the other PE was lost.
            (Some(error), lost) if lost.is_none() || !is_explained_by_loss(&error) => Err(error),
            (_, Some(lost)) => Err(Error::PeerLost(lost)),
            (None, None) if failed && ran.is_ok() => Err(match self.service().poisoned()? {
                // Losses are not recorded once half of the records are in use.
                Some((peer, qpn)) => match self.membership.loss_of(peer) {
                    Some(lost) => Error::PeerLost(lost),
                    None => Error::Poisoned { peer, qpn },
                },
                None => self.membership.any_loss().map_or(Error::Unrecorded, Error::PeerLost),
            }),
            _ => ran,
        }
    }
}

fn is_explained_by_loss(error: &Error) -> bool {
    matches!(error, Error::Device { first, .. } if first.is_explained_by_loss())
}
