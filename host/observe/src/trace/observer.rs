//! Forwards the events of a kernel launch on the native GPU emulator to the timeline.

use std::panic::Location;
use std::sync::Arc;

use rushmem_device::watch::Watcher;
use rushmem_native::Observer;

use super::LaunchTrace;
use super::lane::LaneTrace;

/// Forwards the emulator's events of one kernel launch to the timeline.
#[derive(Debug)]
pub struct TraceObserver(pub Arc<LaunchTrace>);

impl Observer for TraceObserver {
    fn block_begins(&self, _: u32, _: u32) {}

    fn watcher(&self, block: u32, thread: u32) -> Box<dyn Watcher> {
        Box::new(LaneTrace::new(Arc::clone(&self.0), block, thread))
    }

    fn lane_ends(&self, _: u32, _: u32) {}

    fn sync(&self, _: u32, _: &mut dyn Iterator<Item = u32>) {}

    fn waits(&self, _: u32, _: u32, _: &'static Location<'static>, _: Vec<u32>) {}
}
