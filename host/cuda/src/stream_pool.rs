//! Keeps the unused streams of a GPU for later use.
//!
//! Creating or destroying a stream may make the driver wait for running kernels. On an H200 with driver 580, the first
//! such call is about the 35th stream of a context. So [`Stream::new`](crate::Stream::new) passes the driver gate once
//! to create a batch of streams, and a dropped stream returns to the pool. The device destroys its streams when it is
//! dropped.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::sync::{Mutex, MutexGuard};

use cudarc::driver::sys::{self, CUresult, CUstream};

use rushmem_base::lock;

/// A pool of the unused streams of a [`Device`](crate::Device).
#[derive(Default)]
pub(crate) struct StreamPool {
    idle: Mutex<Vec<CUstream>>,
}

// SAFETY: any thread may use the driver's streams. The driver does its own locking.
unsafe impl Send for StreamPool {}
// SAFETY: see above.
unsafe impl Sync for StreamPool {}

impl StreamPool {
    /// Removes an idle stream from the pool. Returns `None` if all its streams still have work.
    ///
    /// The caller has made the context of the streams current.
    pub(crate) fn take(&self) -> Option<CUstream> {
        let mut idle = self.idle();
        // SAFETY: all of them are live.
        let is_idle = |&stream: &CUstream| unsafe { sys::cuStreamQuery(stream) } == CUresult::CUDA_SUCCESS;
        let at = idle.iter().rposition(is_idle)?;
        Some(idle.swap_remove(at))
    }

    /// Returns a stream to the pool, even if it still has work.
    pub(crate) fn give_back(&self, stream: CUstream) {
        self.idle().push(stream);
    }

    pub(crate) fn take_all(&self) -> Vec<CUstream> {
        std::mem::take(&mut *self.idle())
    }

    fn idle(&self) -> MutexGuard<'_, Vec<CUstream>> {
        lock(&self.idle)
    }
}
