//! The native GPU emulator: runs kernels on the CPU with the semantics of CUDA.
//!
//! Each GPU thread is a *lane*, a stackful coroutine. A lane runs until it waits in a spin, a block barrier or a warp
//! exchange; its worker then switches to the next lane. Workers are operating system threads, and each block stays on
//! one worker. All blocks of a launch are resident together, as in a cooperative launch, so kernels may wait for each
//! other, for other launches and for other processes.
//!
//! Some undefined behaviour of CUDA is an error here, reported with its source line: a barrier after some lanes have
//! returned, a warp exchange from two places, a launch from within a kernel. A [`Report`] shows what every lane of a
//! deadlocked kernel was doing.
//!
//! Limitation: scheduling is cooperative, so a lane that loops without calling a primitive blocks its worker.
//! [`stalled`] detects that.
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

/// Options of a native kernel launch.
#[derive(Clone, Debug)]
pub struct Options {
    /// Stack size of each lane in bytes, rounded up to whole pages. The system allocates pages as they are touched, and
    /// later launches reuse stacks. An overflow hits a guard page: the process writes a line that names the lane, and
    /// dies from a segmentation fault.
    pub stack_bytes: usize,
    /// Number of worker threads, including the calling thread. Defaults to one per core.
    pub workers: Option<NonZeroUsize>,
    /// Time after which the launch fails with [`Error::TimeLimit`]. Unlimited by default, since calls of the device API
    /// have their own deadlines.
    pub time_limit: Option<Duration>,
    /// Number of PEs that share the machine's cores. If there is more than one per core, waiting workers sleep longer.
    pub sharers: u32,
    /// Wait channel of the PE, through which a NIC wakes waiting lanes. Without one, they only poll memory.
    pub channel: Option<Arc<WaitChannel>>,
    /// PE that launches the kernel, for messages.
    pub pe: Option<u32>,
    /// Name of the kernel, for messages.
    pub kernel: Option<&'static str>,
    /// Observer of the launch, such as the sanitizer.
    pub observer: Option<Arc<dyn Observer>>,
    /// Whether plain loads and stores go through a [`WeakMemory`](rushmem_device::arch::WeakMemory). Has an effect only
    /// in builds with [`rushmem_device::watch::ENABLED`].
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

/// Runs `kernel` once for each thread of `grid`. Returns when all of them have returned.
///
/// Within `kernel`, the primitives of the device crate work. Several threads may launch kernels concurrently.
///
/// If this returns an error, the remaining lanes have been unwound. Barriers and exchanges that an unwinding lane calls
/// return immediately.
///
/// # Errors
/// - [`Error::LaunchConfig`]: a GPU cannot launch a grid of this size.
/// - [`Error::Nested`]: the caller is itself a kernel.
/// - [`Error::TooManyLanes`], [`Error::Stack`]: there is no stack for a lane.
/// - [`Error::Deadlock`], [`Error::Divergence`], [`Error::WarpMask`]: the kernel uses a barrier or an exchange
///   incorrectly.
/// - [`Error::Panicked`]: a lane panicked.
/// - [`Error::TimeLimit`]: the kernel ran longer than `options` allows.
pub fn launch(grid: LaunchConfig, options: &Options, kernel: impl Fn() + Send + Sync) -> Result<(), Error> {
    launch_lanes(grid, options, &|_| kernel())
}

/// Returns the maximum number of lanes that can be waiting at the same time, over all launches of this process.
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
        // Lanes use `thread::panicking` to find out whether they are being unwound, so they cannot run on a thread that
        // is already panicking. Run the launch on a fresh thread.
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
