//! The interface through which a launch reports its events to an observer, such as the communication sanitizer.

use std::fmt;
use std::panic::Location;

use rushmem_device::watch::Watcher;

/// Observes the blocks and lanes of a launch. Worker threads call it concurrently.
pub trait Observer: fmt::Debug + Send + Sync {
    /// Called when a block starts, before its lanes run.
    fn block_begins(&self, block: u32, threads: u32);
    /// Creates the watcher of lane `thread`, which is about to start.
    fn watcher(&self, block: u32, thread: u32) -> Box<dyn Watcher>;
    /// Called when a lane has returned from the kernel.
    fn lane_ends(&self, block: u32, thread: u32);
    /// Called when the lanes `threads` have all arrived at a block barrier or a warp exchange.
    fn sync(&self, block: u32, threads: &mut dyn Iterator<Item = u32>);
    /// Called when a lane waits for the lanes `missing` at a barrier or an exchange, and no lane of its worker makes
    /// progress.
    fn waits(&self, block: u32, thread: u32, site: &'static Location<'static>, missing: Vec<u32>);
}
