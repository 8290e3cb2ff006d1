//! Tracks the launches of one stream, and determines the outcome of each.

use std::sync::{Arc, Mutex, MutexGuard};

use rushmem_base::lock;
use rushmem_device::abi::{CtxParts, DevAddr};
use rushmem_device::kernel::Call;
use rushmem_error::call_site::CallSite;
use rushmem_machine::{Event, KernelLaunch, KernelStream, LaunchConfig, LaunchSite, Launched, Queued, Run};

use super::{LaunchId, LaunchResources, OWN, PooledIndex, QueueOwner, RecordedGraph, check_grid};
use crate::{Error, Result};

/// The launches of one stream. They share an entry of the launch table, in which a failing launch leaves its ID.
pub(crate) struct LaunchQueue {
    queue: Arc<dyn KernelStream>,
    /// Index of the queue's entry in the launch table.
    entry: u32,
    /// Owner of the table entry, shared with captured launches that report to it. `None` for the PE's own queue.
    lent: Option<Arc<PooledIndex>>,
    state: Mutex<QueueState>,
}

/// The launches of a queue that may be running or were skipped after a failure.
#[derive(Default)]
struct QueueState {
    /// Number of the last launch. Wraps at [`LAUNCH_NUMBERS`].
    launches: u32,
    /// Registration of the launches that may be running with the watchdog. `None` while there are none.
    running: Option<Run>,
    /// Ranges of launches that did nothing: the failed launch before each range, and the number of the last launch in
    /// it.
    skipped: Vec<(LaunchId, u32)>,
    /// Resources of the launches that may be running, kept until they have finished.
    resources: Vec<LaunchResources>,
    /// Recorded graphs launched since the last wait.
    graphs: Vec<Arc<RecordedGraph>>,
    /// Number of the last use of the per-block queues that later launches are ordered after.
    per_block_use: u64,
}

/// Launch numbers are below this limit, because the next bit is [`SEALED`](rushmem_device::abi::SEALED).
const LAUNCH_NUMBERS: u32 = 1 << 31;

/// Maximum number of ranges kept in [`QueueState::skipped`].
const MAX_SKIPPED_RANGES: usize = 64;

impl LaunchQueue {
    pub(crate) fn own(queue: Box<dyn KernelStream>) -> Self {
        Self { queue: Arc::from(queue), entry: OWN, lent: None, state: Mutex::default() }
    }

    /// Creates the launch queue of a stream. `entry` is its entry in the launch table.
    pub(crate) fn of_stream(queue: Box<dyn KernelStream>, entry: PooledIndex) -> Self {
        let index = entry.index;
        Self { queue: Arc::from(queue), entry: index, lent: Some(Arc::new(entry)), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        lock(&self.state)
    }

    /// Appends a kernel launch. For a kernel of the runtime, `asked` is the application's source line that requested
    /// the operation.
    pub(crate) fn launch(
        &self,
        owner: &dyn QueueOwner,
        (ctx, resources): (CtxParts, LaunchResources),
        Launched { name, site }: Launched,
        asked: CallSite,
        grid: LaunchConfig,
        call: Call,
    ) -> Result<LaunchId> {
        check_grid(&call, grid)?;
        let table = &owner.table();
        // The lock keeps launches in the order of their numbers, on which `wait_for` relies.
        let mut state = self.lock();
        state.launches = (state.launches + 1) % LAUNCH_NUMBERS;
        if state.launches.is_multiple_of(LAUNCH_NUMBERS / 2) {
            state.forget_old_ranges();
        }
        let launch_id = table.launch_id(state.launches, name, asked);
        let ctx = for_launch(ctx, grid, table.addr(self.entry), launch_id);
        let uses_per_block = call.uses_per_block();
        if uses_per_block && self.queue.is_capturing()? {
            let what = "its queues serve one kernel at a time, so a CUDA graph of the application cannot hold it; record \
                        it by `Stream::capture`";
            return Err(Error::misuse(name, what));
        }
        let step = KernelLaunch { ctx, grid, call, module: resources.module.clone() };
        let mut queued = Queued::Runs;
        self.begin(&mut state, owner, name, uses_per_block, || {
            queued = self.queue.launch(step)?;
            Ok(())
        })?;
        // Not launched: a graph of the application has it now, and may run it at any time. So it is not one of this
        // queue's running launches, and its resources are kept elsewhere.
        if queued == Queued::Captured {
            owner.captured(resources, self.lent.clone());
            return Ok(launch_id);
        }
        if !state.resources.contains(&resources) {
            state.resources.push(resources);
        }
        self.began(&mut state, owner, Launched { name, site }, 1);
        tracing::debug!(pe = owner.number(), kernel = name, ?grid, "launched");
        Ok(launch_id)
    }

    /// Appends a launch of a recorded graph.
    pub(crate) fn replay(
        &self,
        owner: &dyn QueueOwner,
        graph: &Arc<RecordedGraph>,
        site: LaunchSite,
    ) -> Result<()> {
        self.check_not_captured("Graph::launch")?;
        let mut state = self.lock();
        let launch = || self.queue.launch_graph(graph.recording());
        self.begin(&mut state, owner, "a graph", graph.uses_per_block(), launch)?;
        self.began(&mut state, owner, Launched { name: "a graph", site: Some(site) }, graph.len());
        if !state.graphs.iter().any(|known| Arc::ptr_eq(known, graph)) {
            state.graphs.push(Arc::clone(graph));
        }
        Ok(())
    }

    /// Appends a kernel or graph by calling `launch`. If it uses the per-block queues, it must not overlap another
    /// kernel or graph that does.
    fn begin(
        &self,
        state: &mut QueueState,
        owner: &dyn QueueOwner,
        name: &'static str,
        uses_per_block: bool,
        launch: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if !uses_per_block {
            return launch();
        }
        owner.per_block().launch(name, &mut state.per_block_use, || {
            launch()?;
            self.queue.record_event()
        })
    }

    /// Records that a kernel, or a graph of `count` kernels, may be running.
    fn began(&self, state: &mut QueueState, owner: &dyn QueueOwner, launched: Launched, count: u32) {
        match &state.running {
            Some(running) => running.add(launched, count),
            // The service polls for requests, and the watchdog measures, only while something may be running.
            None => {
                owner.began();
                let queue = Arc::clone(&self.queue);
                state.running =
                    Some(owner.watchdog().begin(Box::new(move || queue.is_busy()), launched, count));
            }
        }
    }

    /// Checks that the application is not capturing the stream into a CUDA graph.
    ///
    /// # Errors
    /// - [`Error::Misuse`] if it is.
    fn check_not_captured(&self, call: &'static str) -> Result<()> {
        match self.queue.is_capturing()? {
            true => {
                let what = "the application is capturing the stream: call it after the capture";
                Err(Error::misuse(call, what))
            }
            false => Ok(()),
        }
    }

    /// Records an event after everything queued so far.
    pub(crate) fn mark(&self) -> Result<Event> {
        self.check_not_captured("Stream::record")?;
        self.queue.record_event()
    }

    /// Returns the number of the last use of the per-block queues that later launches are ordered after.
    pub(crate) fn per_block_use(&self) -> u64 {
        self.lock().per_block_use
    }

    /// Orders later launches after `event`. The event comes after use `per_block_use` of the per-block queues.
    pub(crate) fn follow(&self, event: &Event, per_block_use: u64) -> Result<()> {
        self.queue.wait_event(event)?;
        let mut state = self.lock();
        state.per_block_use = state.per_block_use.max(per_block_use);
        Ok(())
    }

    /// Waits until every launch in the queue has finished.
    ///
    /// # Errors
    /// - The error of the first launch that failed, with the launch's name.
    pub(crate) fn wait(&self, owner: &dyn QueueOwner) -> Result<()> {
        self.check_not_captured("Stream::wait")?;
        let ran = self.drain(owner);
        // Read the table first. Taking the queue's failure lets later launches run, and these may report to the table
        // as well.
        let failed = self.failed(owner);
        let ran = ran.and(self.queue.take_failure().map_or(Ok(()), Err));
        let graphs = std::mem::take(&mut self.lock().graphs);
        let mut failed = failed?;
        // Graphs report to their own entries.
        for graph in &graphs {
            let first = owner.table().failed(graph.entry())?;
            failed = failed.or(first);
        }
        let outcome = owner.outcome(ran, failed);
        for graph in &graphs {
            owner.table().clear(graph.entry())?;
        }
        // Only now that the outcome is known: clearing the entry lets later launches run.
        self.restart(owner, failed)?;
        outcome
    }

    /// Waits for one launch, given an `event` after it. Failures of other launches are left for the waits for those.
    ///
    /// # Errors
    /// - [`Error::NotRun`] if an earlier launch has failed.
    /// - The error of the launch itself.
    pub(crate) fn wait_for(&self, owner: &dyn QueueOwner, launch_id: LaunchId, event: &Event) -> Result<()> {
        let ran = self.queue.wait(event);
        let not_run = |failed: LaunchId| Error::NotRun {
            kernel: owner.table().name(launch_id),
            failed: owner.table().name(failed),
        };
        let number = launch_id.number;
        // Launches finish in order, so everything up to this one has.
        self.lock().ended_with(owner, number);
        // The failure that made this launch do nothing may have been reported, and the table cleared, since.
        if let Some(failed) = self.lock().skipped_after(number) {
            return Err(not_run(failed));
        }
        match self.failed(owner)? {
            Some(failed) if self.lock().precedes(failed.number, number) => Err(not_run(failed)),
            Some(failed) if failed == launch_id => {
                // Later launches in the queue do nothing once they see the failure. They must be gone before `restart`
                // clears it.
                let ran = ran.and(self.drain(owner));
                let ran = ran.and(self.queue.take_failure().map_or(Ok(()), Err));
                let outcome =
                    owner.error(ran, true).map_err(|error| error.in_kernel(owner.table().name(failed)));
                self.restart(owner, Some(failed))?;
                outcome
            }
            // This launch did not fail. A record that no launch claims is reported by the first wait while nothing
            // runs.
            _ => owner.error(ran, false),
        }
    }

    /// Waits until everything queued so far has finished.
    fn drain(&self, owner: &dyn QueueOwner) -> Result<()> {
        let ran = self.queue.record_event().and_then(|event| self.queue.wait(&event));
        self.lock().ended(owner);
        ran
    }

    fn failed(&self, owner: &dyn QueueOwner) -> Result<Option<LaunchId>> {
        let in_table = owner.table().failed(self.entry)?;
        Ok(in_table.or_else(|| self.queue.failed().and_then(LaunchId::from_word)))
    }

    /// Resumes launches after the failure `failed` has been reported.
    fn restart(&self, owner: &dyn QueueOwner, failed: Option<LaunchId>) -> Result<()> {
        let Some(failed) = failed else { return Ok(()) };
        let mut state = self.lock();
        // All launches queued so far have done nothing. Their waits still have to report that.
        let last = state.launches;
        if state.skipped.len() == MAX_SKIPPED_RANGES {
            state.skipped.remove(0);
        }
        state.skipped.push((failed, last));
        owner.table().clear(self.entry)
    }

    /// Returns whether some launch has not been waited for.
    pub(crate) fn is_used(&self) -> bool {
        self.lock().running.is_some()
    }
}

impl QueueState {
    /// Records that launch `number` and all earlier ones have finished. If it was the last one, the queue becomes idle.
    fn ended_with(&mut self, owner: &dyn QueueOwner, number: u32) {
        match (self.launches_after(number), &self.running) {
            (0, _) => self.ended(owner),
            (left, Some(running)) => running.keep_last(left),
            _ => {}
        }
    }

    /// Returns the number of launches after launch `number`.
    fn launches_after(&self, number: u32) -> u32 {
        self.launches.wrapping_sub(number) % LAUNCH_NUMBERS
    }

    /// Returns whether launch `one` came before launch `other`.
    fn precedes(&self, one: u32, other: u32) -> bool {
        self.launches_after(one) > self.launches_after(other)
    }

    /// Drops old ranges of skipped launches, before their launch numbers are reused.
    fn forget_old_ranges(&mut self) {
        let ranges = std::mem::take(&mut self.skipped);
        let is_recent = |&(_, last): &(LaunchId, u32)| self.launches_after(last) < LAUNCH_NUMBERS / 2;
        self.skipped = ranges.into_iter().filter(is_recent).collect();
    }

    /// Returns the failed launch that made launch `number` do nothing, if there is one.
    fn skipped_after(&self, number: u32) -> Option<LaunchId> {
        let covers = |&&(failed, last): &&(LaunchId, u32)| {
            self.precedes(failed.number, number) && !self.precedes(last, number)
        };
        self.skipped.iter().find(covers).map(|(failed, _)| *failed)
    }

    /// Records that all launches of the queue have finished.
    fn ended(&mut self, owner: &dyn QueueOwner) {
        self.resources.clear();
        if self.running.take().is_some() {
            owner.ended();
        }
    }
}

/// Adapts a kernel context to a launch. If the kernel fails, it stores `launch_id` in the word at `status`.
pub(crate) fn for_launch(
    ctx: CtxParts,
    config: LaunchConfig,
    status: DevAddr,
    launch_id: LaunchId,
) -> CtxParts {
    let [[grid_x, grid_y, _], [block_x, block_y, _]] = [config.grid_dim(), config.block_dim()];
    let (grid_dim, block_dim) = ([grid_x, grid_y], [block_x, block_y]);
    CtxParts { status, mark: launch_id.to_word(), grid_dim, block_dim, ..ctx }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_launches_are_found_after_numbers_wrap() {
        let id = |number: u32| LaunchId::from_word(u64::from(number) << 32 | 1).unwrap();
        let failed = LAUNCH_NUMBERS - 2;
        let mut state = QueueState { launches: 1, skipped: vec![(id(failed), 0)], ..QueueState::default() };
        let skipped_after = |state: &QueueState, number| state.skipped_after(number).map(|id| id.number);
        assert_eq!(skipped_after(&state, failed), None);
        assert_eq!(skipped_after(&state, LAUNCH_NUMBERS - 1), Some(failed));
        assert_eq!(skipped_after(&state, 0), Some(failed));
        assert_eq!(skipped_after(&state, 1), None);
        assert_eq!(state.launches_after(failed), 3);

        state.forget_old_ranges();
        assert_eq!(skipped_after(&state, 0), Some(failed));
        state.launches = LAUNCH_NUMBERS / 2;
        state.forget_old_ranges();
        assert_eq!(skipped_after(&state, 0), None);
    }
}
