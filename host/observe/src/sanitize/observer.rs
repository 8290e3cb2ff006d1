//! Forwards the events of a kernel launch on the native GPU emulator to the sanitizer.

use std::panic::Location;
use std::sync::Arc;

use rushmem_device::watch::Watcher;
use rushmem_native::Observer;
use rushmem_sanitizer::Noted;

use super::LaunchWatch;
use super::lane::LaneWatch;

/// Forwards the emulator's events of one kernel launch to the sanitizer.
#[derive(Debug)]
pub struct LaunchObserver(pub Arc<LaunchWatch>);

impl Observer for LaunchObserver {
    fn block_begins(&self, block: u32, threads: u32) {
        self.0.begin(block, threads);
    }

    #[allow(clippy::expect_used, reason = "a block begins before its lanes")]
    fn watcher(&self, block: u32, thread: u32) -> Box<dyn Watcher> {
        let accesses = self.0.block(block).expect("the block has begun");
        Box::new(LaneWatch::new(Arc::clone(&self.0), accesses, (block, thread)))
    }

    fn lane_ends(&self, block: u32, thread: u32) {
        if let Some(accesses) = self.0.block(block)
            && accesses.end(thread) == Noted::Full
        {
            self.0.watched.link().take_accesses(&accesses);
        }
    }

    fn sync(&self, block: u32, threads: &mut dyn Iterator<Item = u32>) {
        self.0.sync(block, threads);
    }

    fn waits(&self, block: u32, thread: u32, site: &'static Location<'static>, missing: Vec<u32>) {
        self.0.wait(block, thread, site, &missing);
    }
}
