//! Tracks whether this process is in a job, and defines which threads may make calls.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of PEs of this process that have started and not yet left their job.
static UP: AtomicUsize = AtomicUsize::new(0);

/// Returns whether a PE of this process is up: between the start of its application and the time it has left its job.
///
/// The function may be called at any time, from any thread. OpenSHMEM 1.6 section 9.1.4, `shmem_query_initialized`;
/// NVSHMEM: `nvshmemx_init_status`.
pub fn is_initialized() -> bool {
    UP.load(Ordering::SeqCst) > 0
}

/// Counts a PE as up until this is dropped.
pub(crate) struct Up(());

impl Up {
    pub(crate) fn new() -> Up {
        UP.fetch_add(1, Ordering::SeqCst);
        Up(())
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        UP.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The threads of a PE's process that may make calls. OpenSHMEM 1.6 section 9.1.7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThreadLevel {
    /// The process has only one thread: `SHMEM_THREAD_SINGLE`.
    Single,
    /// Only the main thread may call: `SHMEM_THREAD_FUNNELED`.
    Funneled,
    /// Any thread may call, but only one at a time: `SHMEM_THREAD_SERIALIZED`.
    Serialized,
    /// Any number of threads may call at the same time: `SHMEM_THREAD_MULTIPLE`.
    Multiple,
}

/// The thread level of every job. Always the highest one: a [`Pe`](crate::Pe) is `Sync`, so any thread may call it.
///
/// OpenSHMEM's `shmem_init_thread` and `shmem_query_thread` return this value.
pub const THREAD_LEVEL: ThreadLevel = ThreadLevel::Multiple;
