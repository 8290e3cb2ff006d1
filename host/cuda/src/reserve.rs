#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::sync::{Mutex, MutexGuard};

use cudarc::driver::sys::{self, CUresult, CUstream};

use crate::error::{check, log_drop};
use crate::{Device, Error};
use rushmem_base::lock;

/// The streams of a [`Device`] that nobody uses.
///
/// Who makes a stream beside kernels that run may wait for their end, and they may wait for what it does next: on an H200 with
/// driver 580, whoever makes the 35th or so of a context. So streams are made many at a time, while no kernel runs, and are
/// lent: none is destroyed before the device.
#[derive(Default)]
pub(crate) struct Reserve {
    idle: Mutex<Vec<CUstream>>,
}

// SAFETY: the driver's streams may be used by any thread, and it locks for itself.
unsafe impl Send for Reserve {}
// SAFETY: as above.
unsafe impl Sync for Reserve {}

impl Reserve {
    /// A stream of the device that this is the reserve of, with nothing in it, if there is one.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn take(&self, device: &Device) -> Result<Option<CUstream>, Error> {
        let _current = device.current()?;
        let mut idle = self.idle();
        // SAFETY: all of them are live.
        let done = |&stream: &CUstream| unsafe { sys::cuStreamQuery(stream) } == CUresult::CUDA_SUCCESS;
        let at = idle.iter().rposition(done);
        Ok(at.map(|at| idle.swap_remove(at)))
    }

    /// Takes a stream, or takes it back. The work in it goes on.
    pub(crate) fn give(&self, stream: CUstream) {
        self.idle().push(stream);
    }

    /// Destroys all, of which none is lent.
    ///
    /// # Errors
    /// What the driver says.
    pub(crate) fn end(&self, device: &Device) -> Result<(), Error> {
        let streams = std::mem::take(&mut *self.idle());
        if streams.is_empty() {
            return Ok(());
        }
        let _alone = device.alone()?;
        for stream in streams {
            // SAFETY: live, and destroyed once.
            log_drop("a stream", check("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(stream) }));
        }
        Ok(())
    }

    fn idle(&self) -> MutexGuard<'_, Vec<CUstream>> {
        lock(&self.idle)
    }
}
