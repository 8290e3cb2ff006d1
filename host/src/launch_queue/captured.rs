//! Keeps the resources of launches that the application has captured into its CUDA graphs.

use std::sync::{Arc, Mutex};

use rushmem_base::lock;

use super::{LaunchResources, PooledIndex};

/// The resources needed by a PE's captured launches. CUDA does not report when a graph is destroyed, so they are kept
/// until the application calls [`Pe::release_captured`](crate::Pe::release_captured).
#[derive(Default)]
pub(crate) struct CapturedLaunches(Mutex<Vec<Needs>>);

/// The resources of a captured launch, and the entry of the launch table to which it reports failures.
#[derive(PartialEq)]
struct Needs {
    resources: LaunchResources,
    entry: Option<Arc<PooledIndex>>,
}

impl CapturedLaunches {
    /// Keeps the resources and the launch-table entry of a captured launch. Returns whether it is the first one kept.
    pub(crate) fn add(&self, resources: LaunchResources, entry: Option<Arc<PooledIndex>>) -> bool {
        let needs = Needs { resources, entry };
        let mut all = lock(&self.0);
        let is_first = all.is_empty();
        if !all.contains(&needs) {
            all.push(needs);
        }
        is_first
    }

    /// Drops the resources of all captured launches. Returns whether there were any.
    pub(crate) fn clear(&self) -> bool {
        !std::mem::take(&mut *lock(&self.0)).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::time::Duration;

    use bytemuck::Zeroable;
    use rushmem_device::abi::CtxParts;
    use rushmem_runtime_kernels::rushmem_order;

    use super::super::pool::IndexPool;
    use super::super::{LaunchId, LaunchQueue, LaunchTable, PerBlockQueues, QueueOwner};
    use super::*;
    use crate::Result;
    use crate::config::Config;
    use rushmem_error::ObjectNames;
    use rushmem_machine::{
        Event, ExecGraph, KernelLaunch, KernelStream, LaunchConfig, Machine, Native, Queued,
    };
    use rushmem_machine::{Launched, Limits, Watchdog};
    use rushmem_memory::{Memory, SegmentMap};

    fn native() -> Arc<dyn Machine> {
        Arc::new(Native::new(Default::default()))
    }

    fn table(machine: &Arc<dyn Machine>) -> Arc<SegmentMap> {
        let heap = machine.heap(4096, false).unwrap();
        let parts = CtxParts { heap_bytes: 4096, ..CtxParts::zeroed() };
        Memory::new(heap, 0, parts, 0, None, Arc::clone(machine), ObjectNames::default()).unwrap().current().1
    }

    #[test]
    fn keeps_each_table_and_entry_once_until_they_are_released() {
        let (table, pool) = (table(&native()), IndexPool::new(0, 1));
        let entry = pool.take(Duration::ZERO).map(Arc::new);
        let captured = CapturedLaunches::default();
        let resources = || LaunchResources { table: Arc::clone(&table), module: None };
        assert!(captured.add(resources(), entry.clone()) && !captured.add(resources(), entry.clone()));
        assert_eq!(Arc::strong_count(&table), 2);
        drop(entry);
        assert!(pool.take(Duration::ZERO).is_none(), "kernels of the graph report to the entry");
        assert!(captured.clear() && !captured.clear());
        assert_eq!(Arc::strong_count(&table), 1);
        assert!(pool.take(Duration::ZERO).is_some());
    }

    /// A stream that reports being captured while its flag is set.
    struct Captured(Arc<AtomicBool>, Box<dyn KernelStream>);

    impl KernelStream for Captured {
        fn launch(&self, step: KernelLaunch) -> Result<Queued> {
            if self.is_capturing()? { Ok(Queued::Captured) } else { self.1.launch(step) }
        }
        fn launch_graph(&self, recording: &ExecGraph) -> Result<()> {
            self.1.launch_graph(recording)
        }
        fn record_event(&self) -> Result<Event> {
            self.1.record_event()
        }
        fn wait_event(&self, event: &Event) -> Result<()> {
            self.1.wait_event(event)
        }
        fn wait(&self, event: &Event) -> Result<()> {
            self.1.wait(event)
        }
        fn is_capturing(&self) -> Result<bool> {
            Ok(self.0.load(Ordering::Relaxed))
        }
        fn is_busy(&self) -> bool {
            self.1.is_busy()
        }
    }

    /// A fake PE that counts its running queues.
    struct Owner {
        table: LaunchTable,
        per_block: PerBlockQueues,
        watchdog: Arc<Watchdog>,
        captured: CapturedLaunches,
        running: AtomicU32,
    }

    impl QueueOwner for Owner {
        fn number(&self) -> u32 {
            0
        }
        fn table(&self) -> &LaunchTable {
            &self.table
        }
        fn per_block(&self) -> &PerBlockQueues {
            &self.per_block
        }
        fn watchdog(&self) -> &Arc<Watchdog> {
            &self.watchdog
        }
        fn began(&self) {
            self.running.fetch_add(1, Ordering::Relaxed);
        }
        fn ended(&self) {
            self.running.fetch_sub(1, Ordering::Relaxed);
        }
        fn captured(&self, resources: LaunchResources, entry: Option<Arc<PooledIndex>>) {
            self.captured.add(resources, entry);
        }
        fn outcome(&self, ran: Result<()>, _: Option<LaunchId>) -> Result<()> {
            ran
        }
        fn error(&self, ran: Result<()>, _: bool) -> Result<()> {
            ran
        }
    }

    #[test]
    fn captured_launch_does_not_run_and_keeps_its_resources() {
        let (machine, capturing) = (native(), Arc::new(AtomicBool::new(true)));
        let owner = Owner {
            table: LaunchTable::new(&*machine).unwrap(),
            per_block: PerBlockQueues::default(),
            watchdog: Watchdog::new(0, Limits::new(&Config::default(), true)),
            captured: CapturedLaunches::default(),
            running: AtomicU32::new(0),
        };
        let stream = Captured(Arc::clone(&capturing), machine.queue().unwrap());
        let queue = LaunchQueue::of_stream(Box::new(stream), owner.table.take(Duration::ZERO).unwrap());
        let table = table(&machine);
        let grid = LaunchConfig::new(1, 1);
        let launch = |call| {
            let with = (CtxParts::zeroed(), LaunchResources { table: Arc::clone(&table), module: None });
            queue.launch(
                &owner,
                with,
                Launched { name: "test", site: Some(Location::caller()) },
                Default::default(),
                grid,
                call,
            )
        };
        launch(rushmem_order(0, 0)).unwrap();
        assert!(!queue.is_used() && owner.running.load(Ordering::Relaxed) == 0);
        let error = launch(rushmem_order(0, 0).with_per_block()).unwrap_err().to_string();
        assert!(error.starts_with("test: its queues serve one kernel at a time"), "{error}");
        for refused in [queue.wait(&owner), queue.mark().map(drop)] {
            assert!(refused.unwrap_err().to_string().ends_with("call it after the capture"));
        }
        capturing.store(false, Ordering::Relaxed);
        queue.wait(&owner).unwrap();
        drop(queue);
        assert_eq!(Arc::strong_count(&table), 2, "the graph needs it");
        assert!(owner.captured.clear());
        assert_eq!(Arc::strong_count(&table), 1);
    }
}
