//! Whether this process is in a job, and what of it may be called from where.

use std::sync::atomic::{AtomicUsize, Ordering};

/// PEs of this process that are up.
static UP: AtomicUsize = AtomicUsize::new(0);

/// Whether a PE of this process is up: from the moment that its application begins until it has left its job. May be
/// asked at any time. OpenSHMEM 1.6 section 9.1.4, `shmem_query_initialized`; NVSHMEM: `nvshmemx_init_status`.
pub fn is_initialized() -> bool {
    UP.load(Ordering::SeqCst) > 0
}

/// A PE is up as long as this is.
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

/// From which threads of a PE's process its calls may be made. OpenSHMEM 1.6 section 9.1.7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThreadLevel {
    /// There is one thread: `SHMEM_THREAD_SINGLE`.
    Single,
    /// The first thread alone: `SHMEM_THREAD_FUNNELED`.
    Funneled,
    /// Any thread, one at a time: `SHMEM_THREAD_SERIALIZED`.
    Serialized,
    /// Any threads at the same time: `SHMEM_THREAD_MULTIPLE`.
    Multiple,
}

/// What every job grants, whatever was asked for: a [`Pe`](crate::Pe) is `Sync`, so the compiler lets any threads call it, and a
/// level below would be a promise that nobody needs. `shmem_init_thread` and `shmem_query_thread` give this.
pub const THREAD_LEVEL: ThreadLevel = ThreadLevel::Multiple;
