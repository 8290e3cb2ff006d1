use std::io;
use std::panic::Location;
use std::time::Duration;

use crate::report::location;
use crate::{LaunchConfig, MAX_BLOCKS, MAX_SHARED_BYTES, MAX_THREADS, Report};

/// The reason why a native launch failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The grid exceeds a limit of GPUs. No lane ran.
    #[error(
        "a grid of {} blocks x {} threads with {} bytes of shared memory cannot be launched: \
         use 1 to {MAX_BLOCKS} blocks, 1 to {MAX_THREADS} threads and at most {MAX_SHARED_BYTES} bytes",
        .0.blocks(), .0.threads(), .0.shared_bytes()
    )]
    LaunchConfig(LaunchConfig),
    /// A kernel called [`launch`](super::launch), which is not allowed. No lane ran.
    #[error("a native kernel cannot launch another kernel: launch it from the host")]
    Nested,
    /// More lanes are waiting at the same time than this process can have stacks.
    #[error(
        "too many lanes wait at once: all {limit} lane stacks of this process are in use. Launch fewer threads, \
         or raise the limit on memory mappings (sysctl vm.max_map_count): each stack needs four"
    )]
    TooManyLanes {
        /// Maximum number of lane stacks in this process.
        limit: usize,
    },
    /// The operating system could not provide memory for a lane's stack.
    #[error("cannot allocate {bytes} bytes for a lane's stack: {source}")]
    Stack {
        /// Size of the stack in bytes.
        bytes: usize,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Some lanes wait for each other, or for lanes that have returned, so they can never continue.
    #[error("kernel deadlock: lanes wait for others that will never arrive\n{0}")]
    Deadlock(Report),
    /// Lanes of one warp called an exchange with the same mask at different source locations.
    #[error(
        "warp divergence in block {block}: lane {thread} at {} exchanges values with the lanes of mask \
         {mask:#010x}, but another of these lanes waits at {}",
        location(here),
        location(there)
    )]
    Divergence {
        /// Index of the block in the grid.
        block: u32,
        /// Index of the lane in its block.
        thread: u32,
        /// Mask of the lanes in the exchange.
        mask: u32,
        /// Source location at which `thread` called the exchange.
        here: &'static Location<'static>,
        /// Source location at which the other lanes called the exchange.
        there: &'static Location<'static>,
    },
    /// A lane called a warp exchange with a mask that does not contain the lane itself.
    #[error(
        "lane {thread} of block {block} at {} enters a warp exchange, but its mask {mask:#010x} does not contain \
         this lane",
        location(site)
    )]
    WarpMask {
        /// Index of the block in the grid.
        block: u32,
        /// Index of the lane in its block.
        thread: u32,
        /// Mask that the lane passed to the exchange.
        mask: u32,
        /// Source location at which the lane called the exchange.
        site: &'static Location<'static>,
    },
    /// A lane panicked.
    #[error("lane {thread} of block {block} panicked: {message}")]
    Panicked {
        /// Index of the block in the grid.
        block: u32,
        /// Index of the lane in its block.
        thread: u32,
        /// Message of the panic.
        message: String,
    },
    /// The launch ran longer than [`Options::time_limit`](super::Options::time_limit).
    #[error(
        "the kernel did not end within {limit:?}; check its loops, or raise RUSHMEM_KERNEL_LIMIT (none for kernels \
         that run on)\n{report}"
    )]
    TimeLimit {
        /// The time limit of the launch.
        limit: Duration,
        /// Position of each lane when the launch was stopped.
        report: Report,
    },
}

impl Error {
    pub(crate) fn report_mut(&mut self) -> Option<&mut Report> {
        match self {
            Error::Deadlock(report) | Error::TimeLimit { report, .. } => Some(report),
            _ => None,
        }
    }
}
