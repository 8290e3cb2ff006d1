//! The streams of a GPU that are not in use.
//!
//! Creating or destroying a stream may make the driver wait for running kernels. On an H200 with driver 580, the first
//! such call is about the 35th stream of a context. So [`Stream::new`](crate::Stream::new) creates streams in batches,
//! behind the driver gate, and a dropped stream returns to the pool. The device destroys the streams when it is
//! dropped.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::sync::{Mutex, MutexGuard};

use cudarc::driver::sys::{self, CUresult, CUstream};

use crate::error::{check, log_drop};
use crate::{Device, Error};
use rushmem_base::lock;

/// A pool of the unused streams of a [`Device`].
#[derive(Default)]
pub(crate) struct StreamPool {
    idle: Mutex<Vec<CUstream>>,
}

// SAFETY: any thread may use the driver's streams. The driver does its own locking.
unsafe impl Send for StreamPool {}
// SAFETY: see above.
unsafe impl Sync for StreamPool {}

impl StreamPool {
    /// Takes an idle stream out of the pool of `device`. Returns `None` if all its streams still have work.
    ///
    /// # Errors
    /// - [`Error::Call`] if the context of `device` cannot be made current
    pub(crate) fn take(&self, device: &Device) -> Result<Option<CUstream>, Error> {
        let _current = device.make_current()?;
        let mut idle = self.idle();
        // SAFETY: all of them are live.
        let is_idle = |&stream: &CUstream| unsafe { sys::cuStreamQuery(stream) } == CUresult::CUDA_SUCCESS;
        let at = idle.iter().rposition(is_idle);
        Ok(at.map(|at| idle.swap_remove(at)))
    }

    /// Adds a stream to the pool. Work in the stream continues.
    pub(crate) fn give_back(&self, stream: CUstream) {
        self.idle().push(stream);
    }

    /// Destroys all streams of `device`. All of them are in the pool.
    ///
    /// # Errors
    /// - [`Error::Call`] if the context of `device` cannot be made current
    pub(crate) fn destroy(&self, device: &Device) -> Result<(), Error> {
        let streams = std::mem::take(&mut *self.idle());
        if streams.is_empty() {
            return Ok(());
        }
        let _exclusive = device.exclusive()?;
        for stream in streams {
            // SAFETY: a live stream, destroyed once.
            log_drop("a stream", check("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(stream) }));
        }
        Ok(())
    }

    fn idle(&self) -> MutexGuard<'_, Vec<CUstream>> {
        lock(&self.idle)
    }
}
