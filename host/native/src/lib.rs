//! Runs a kernel on the CPU with CUDA's meaning.
//!
//! Each GPU thread is a *lane*: a stackful coroutine that runs until it waits (a spin, a block barrier, a warp
//! exchange) and is then set aside for the next one. A block stays on one worker thread of the operating system; the
//! workers share the blocks. All blocks of a launch are live at once, as in a cooperative launch, so kernels may wait
//! for each other, for other launches and for other processes.
//!
//! What CUDA leaves undefined is an error here, and it names the place: a barrier that a lane has left for good, a
//! warp exchange from two places, a launch from inside a kernel. Kernels that can never go on are found and
//! reported lane by lane ([`Report`]).
//!
//! One thing is beyond it: a lane that loops without ever calling a primitive keeps its worker for itself.
#![deny(unsafe_code)]

mod block;
mod error;
mod lane;
mod pool;
mod report;
mod stack;
#[cfg(test)]
mod tests;
mod worker;

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::thread;
use std::time::{Duration, Instant};

use rushmem_device::arch::Lane;

pub use error::Error;
pub use report::{BlockReport, Report};
pub use rushmem_base::{Grid, MAX_SHARED_BYTES, MAX_THREADS};

/// How a launch is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Stack of each lane in bytes, rounded up to whole pages; memory is taken page by page as it is touched, and
    /// stacks are kept for later launches. A lane that needs more runs into a guard page: the process ends with a
    /// segmentation fault.
    pub stack_bytes: usize,
    /// Threads of the operating system that share the blocks; by default one for each core. The calling thread is one
    /// of them.
    pub workers: Option<NonZeroUsize>,
    /// Ends the launch with [`Error::TimeLimit`] when it runs longer. None by default: the calls of the device API
    /// have deadlines of their own.
    pub time_limit: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self { stack_bytes: 1024 * 1024, workers: None, time_limit: None }
    }
}

/// Runs `kernel` once for each thread of `grid`, and returns when all have returned.
///
/// The device crate's primitives work inside `kernel`. Launches from several threads at once run side by side.
///
/// # Errors
/// See [`Error`]. After an error the launch is over: lanes that had not returned were unwound, so what they held was
/// dropped. While a lane unwinds it does not wait: its barriers and exchanges return at once.
pub fn launch(grid: Grid, options: &Options, kernel: impl Fn() + Send + Sync) -> Result<(), Error> {
    launch_lanes(grid, options, &|_| kernel())
}

/// Lanes that can wait at once in this process, of all launches together.
pub fn max_lanes() -> u32 {
    u32::try_from(stack::STORE.limit()).unwrap_or(u32::MAX)
}

thread_local! {
    static IN_KERNEL: Cell<bool> = const { Cell::new(false) };
}

fn launch_lanes(grid: Grid, options: &Options, kernel: &(dyn Fn(&dyn Lane) + Sync)) -> Result<(), Error> {
    if IN_KERNEL.get() {
        return Err(Error::Nested);
    }
    if grid.blocks == 0 || !(1..=MAX_THREADS).contains(&grid.threads) || grid.shared_bytes > MAX_SHARED_BYTES
    {
        return Err(Error::Grid(grid));
    }
    if thread::panicking() {
        // A lane tells by `panicking` that it is being unwound, so it must not run on a thread that is.
        let beside = || launch_lanes(grid, options, kernel);
        return thread::scope(|scope| {
            scope.spawn(beside).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
    }
    let cores = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let workers = options.workers.map_or_else(cores, NonZeroUsize::get);
    let workers = u32::try_from(workers).unwrap_or(u32::MAX).min(grid.blocks);
    let deadline = options.time_limit.map(|limit| (limit, Instant::now() + limit));
    let launch = worker::Launch::new(grid, workers, options.stack_bytes, deadline, kernel);
    pool::share_out(workers as usize - 1, &|| in_kernel(|| launch.run()));
    launch.into_result()
}

fn in_kernel(f: impl FnOnce()) {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            IN_KERNEL.set(false);
        }
    }
    IN_KERNEL.set(true);
    let _leave = Leave;
    f();
}
