//! The observer of a launch, such as the communication sanitizer.

use std::fmt;
use std::panic::Location;

use rushmem_device::watch::Watcher;

/// An observer of a launch. The workers call it from several threads.
pub trait Observer: fmt::Debug + Send + Sync {
    /// Notes that a block begins, before its lanes run.
    fn block_begins(&self, block: u32, threads: u32);
    /// Returns the watcher of a lane that begins.
    fn watcher(&self, block: u32, thread: u32) -> Box<dyn Watcher>;
    /// Notes that a lane has returned from the kernel.
    fn lane_ends(&self, block: u32, thread: u32);
    /// Notes that these lanes have all arrived at a barrier of the block or at an exchange of a warp.
    fn sync(&self, block: u32, threads: &mut dyn Iterator<Item = u32>);
    /// Notes that a lane waits at a barrier or an exchange for these lanes, and no lane of its worker goes on.
    fn waits(&self, block: u32, thread: u32, site: &'static Location<'static>, missing: Vec<u32>);
}
