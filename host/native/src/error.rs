use std::io;
use std::panic::Location;
use std::time::Duration;

use crate::report::location;
use crate::{Grid, MAX_SHARED_BYTES, MAX_THREADS, Report};

/// Why a native launch did not complete.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The grid is outside of what a GPU can launch. Nothing ran.
    #[error(
        "a grid of {} blocks x {} threads with {} bytes of shared memory cannot be launched: \
         at least 1 block, 1 to {MAX_THREADS} threads and at most {MAX_SHARED_BYTES} bytes are possible",
        .0.blocks, .0.threads, .0.shared_bytes
    )]
    Grid(Grid),
    /// A kernel called [`launch`](super::launch). Nothing ran.
    #[error("a kernel cannot launch another kernel: launch it from the host after this one")]
    Nested,
    /// More lanes were suspended at once than this process can have stacks.
    #[error(
        "too many lanes wait at once: a process can have {limit} lane stacks here, and all are taken. \
         Launch fewer threads, or raise the kernel's limit on mappings (sysctl vm.max_map_count), \
         of which a quarter is used"
    )]
    TooManyLanes {
        /// Stacks that this process can have.
        limit: usize,
    },
    /// The operating system refused memory for a lane's stack.
    #[error("no memory for a lane's stack of {bytes} bytes")]
    Stack {
        /// The size asked for.
        bytes: usize,
        /// What the system said.
        source: io::Error,
    },
    /// In some block every lane that is left waits for something that can no longer happen.
    #[error("kernel deadlock: lanes wait for others that will not come\n{0}")]
    Deadlock(Report),
    /// Lanes of one warp wait for the same lanes at two places.
    #[error(
        "warp divergence in block {block}: lane {thread} at {} exchanges values with the lanes of mask {mask:#010x}, \
         some of which wait for the same lanes at {}",
        location(here),
        location(there)
    )]
    Divergence {
        /// The block.
        block: u32,
        /// The lane, as its index in the block.
        thread: u32,
        /// The lanes of the warp that were to meet.
        mask: u32,
        /// Where this lane is.
        here: &'static Location<'static>,
        /// Where others are.
        there: &'static Location<'static>,
    },
    /// A lane took part in a warp exchange that its mask keeps it out of.
    #[error(
        "lane {thread} of block {block} at {} takes part in a warp exchange whose mask {mask:#010x} leaves it out",
        location(site)
    )]
    WarpMask {
        /// The block.
        block: u32,
        /// The lane, as its index in the block.
        thread: u32,
        /// The mask that it gave.
        mask: u32,
        /// Where it is.
        site: &'static Location<'static>,
    },
    /// A lane panicked.
    #[error("lane {thread} of block {block} panicked: {message}")]
    Panicked {
        /// The block.
        block: u32,
        /// The lane, as its index in the block.
        thread: u32,
        /// What the panic said.
        message: String,
    },
    /// The launch ran longer than [`Options::time_limit`](super::Options::time_limit).
    #[error("the kernel did not end within {limit:?}\n{report}")]
    TimeLimit {
        /// The limit.
        limit: Duration,
        /// Where the lanes were.
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
