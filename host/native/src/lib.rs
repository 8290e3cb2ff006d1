//! The native GPU emulator: runs kernels on the CPU with the semantics of CUDA.
//!
//! Each GPU thread is a *lane*, a stackful coroutine. A lane runs until it waits in a spin, a block barrier or a warp
//! exchange; then its worker runs the next lane. Workers are threads of the operating system, and each block stays on
//! one worker. All blocks of a launch are live at once, like in a cooperative launch. So kernels may wait for each
//! other, for other launches and for other processes.
//!
//! Some undefined behaviour of CUDA is an error here, with its source line: a barrier after some lanes have returned, a
//! warp exchange from two places, a launch from inside a kernel. A [`Report`] shows the lanes of a deadlocked kernel.
//!
//! Limit: a lane that loops without calling a primitive blocks its worker. [`stalled`] finds it.
#![deny(unsafe_code)]

mod block;
mod error;
mod lane;
mod observe;
mod overflow;
mod pool;
mod report;
mod rest;
mod signal;
mod stack;
mod stall;
#[cfg(test)]
mod tests;
mod wait_channel;
mod worker;

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rushmem_base::cores;
use rushmem_device::arch::Lane;

pub use error::Error;
pub use observe::Observer;
pub use report::{BlockReport, Report};
pub use rushmem_base::{LaunchConfig, MAX_BLOCKS, MAX_SHARED_BYTES, MAX_THREADS};
pub use stall::{Stall, stalled};
pub use wait_channel::WaitChannel;

/// Options of a launch.
#[derive(Clone, Debug)]
pub struct Options {
    /// Stack size of each lane in bytes, rounded up to whole pages. Memory is used page by page. Stacks are kept for
    /// later launches. A stack overflow hits a guard page and ends the process with a segmentation fault, after a line
    /// that names the lane.
    pub stack_bytes: usize,
    /// Number of workers, including the calling thread; by default one for each core.
    pub workers: Option<NonZeroUsize>,
    /// Time after which the launch ends with [`Error::TimeLimit`]. `None` by default, because the calls of the device
    /// API have their own deadlines.
    pub time_limit: Option<Duration>,
    /// Number of PEs that share the cores. Waiting lanes rest longer if there are more PEs than cores.
    pub sharers: u32,
    /// Channel of the PE. Waiting lanes otherwise find changes of memory by looking again.
    pub channel: Option<Arc<WaitChannel>>,
    /// The PE that launches the kernel, for messages.
    pub pe: Option<u32>,
    /// The name of the kernel, for messages.
    pub kernel: Option<&'static str>,
    /// The observer of the launch, if there is one.
    pub observer: Option<Arc<dyn Observer>>,
    /// Whether plain loads and stores go through a [`WeakMemory`](rushmem_device::arch::WeakMemory), as in
    /// [`rushmem_device::watch::ENABLED`] builds they can.
    pub weak_memory: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            stack_bytes: 1024 * 1024,
            workers: None,
            time_limit: None,
            sharers: 1,
            channel: None,
            pe: None,
            kernel: None,
            observer: None,
            weak_memory: false,
        }
    }
}

/// Runs `kernel` once for each thread of `grid`, and returns when all threads have returned.
///
/// The primitives of the device crate work inside `kernel`. Launches of several threads run concurrently.
///
/// After an error the launch has ended, and the remaining lanes have been unwound. The barriers and exchanges of an
/// unwinding lane return at once.
///
/// # Errors
/// - [`Error::LaunchConfig`]: a GPU cannot launch a grid of this size.
/// - [`Error::Nested`]: the caller is a kernel.
/// - [`Error::TooManyLanes`], [`Error::Stack`]: there is no stack for a lane.
/// - [`Error::Deadlock`], [`Error::Divergence`], [`Error::WarpMask`]: the kernel waits in a wrong way.
/// - [`Error::Panicked`]: a lane panicked.
/// - [`Error::TimeLimit`]: the kernel ran longer than `options` allows.
pub fn launch(grid: LaunchConfig, options: &Options, kernel: impl Fn() + Send + Sync) -> Result<(), Error> {
    launch_lanes(grid, options, &|_| kernel())
}

/// Returns the maximum number of lanes that can wait at once, for all launches of this process together.
pub fn max_lanes() -> u32 {
    u32::try_from(stack::STORE.limit()).unwrap_or(u32::MAX)
}

thread_local! {
    static IN_KERNEL: Cell<bool> = const { Cell::new(false) };
}

fn launch_lanes(
    grid: LaunchConfig,
    options: &Options,
    kernel: &(dyn Fn(&dyn Lane) + Sync),
) -> Result<(), Error> {
    if IN_KERNEL.get() {
        return Err(Error::Nested);
    }
    if !(1..=MAX_BLOCKS).contains(&grid.blocks())
        || !(1..=MAX_THREADS).contains(&grid.threads())
        || grid.shared_bytes() > MAX_SHARED_BYTES
    {
        return Err(Error::LaunchConfig(grid));
    }
    if thread::panicking() {
        // Lanes call `panicking` to find out whether they unwind, so they must not run on a panicking thread.
        let beside = || launch_lanes(grid, options, kernel);
        return thread::scope(|scope| {
            scope.spawn(beside).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
    }
    let wanted = options.workers.map(|workers| u32::try_from(workers.get()).unwrap_or(u32::MAX));
    let workers = wanted.unwrap_or_else(cores).min(grid.blocks());
    let launch = worker::Launch::new(grid, workers, options, kernel);
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
