//! Streams and events.
//!
//! Streams come from a [pool](crate::stream_pool) and return to it. Launches into streams of a GPU are serialized,
//! since concurrent ones might give two idle streams the same hardware queue.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::CudaStream;
use cudarc::driver::sys::{
    self, CUcontext, CUevent, CUevent_flags, CUresult, CUstream, CUstream_flags, CUstreamCaptureStatus,
};

use crate::driver_gate::KernelQueue;
use crate::error::{call_error, check, log_drop};
use crate::{Device, DeviceBuffer, Error};
use rushmem_base::lock;

/// Number of streams that are created at a time, when the pool has no idle one.
const BATCH: usize = 32;

/// Number of launches into a stream after which it may be full. A stream has room for about 1000 launches, or for half
/// as many if other work is between them.
const FULL_AFTER: u32 = 256;

/// Locks held during launches, indexed by the ordinal of the GPU.
static LAUNCH_LOCKS: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];

/// A queue of work on one GPU, executed in order.
///
/// A stream does not synchronize with the default stream. Dropping a stream does not interrupt its work.
pub struct Stream {
    device: Arc<Device>,
    raw: CUstream,
    owner: Owner,
    /// Number of launches through this object since the stream was last known to be idle.
    launches: AtomicU32,
}

enum Owner {
    /// The device's pool owns the stream, and gets it back when this object is dropped.
    Pool,
    /// The user owns the stream, and created it with cudarc.
    Cudarc(#[expect(dead_code, reason = "keeps the stream alive")] Arc<CudaStream>),
    /// The user owns the stream, and keeps it alive by other means than cudarc.
    User,
}

// SAFETY: any thread may use the driver's streams. The driver does its own locking.
unsafe impl Send for Stream {}
// SAFETY: see above.
unsafe impl Sync for Stream {}

impl Stream {
    /// Returns an idle stream from the pool of the device.
    ///
    /// If the pool has none, the call creates 32 streams. Before that, it blocks until no PE of this process runs a
    /// kernel.
    ///
    /// # Errors
    /// - [`Error::Call`] if the driver cannot create a stream
    pub fn new(device: &Arc<Device>) -> Result<Self, Error> {
        let current = device.make_current()?;
        let idle = device.stream_pool.take();
        drop(current);
        if let Some(raw) = idle {
            return Ok(Self::with_owner(device, raw, Owner::Pool));
        }
        // Allocate before passing the gate. A blocking call within another could wait for a launch ahead of it in line,
        // which in turn waits for the outer call.
        let word = DeviceBuffer::new(device, size_of::<u32>())?;
        let _exclusive = device.exclusive()?;
        let stream = Self::create(device)?;
        let others = (1..BATCH).map(|_| Self::create(device)).collect::<Result<Vec<_>, Error>>()?;
        for stream in others.iter().chain([&stream]) {
            // The driver completes the creation at the first use of a stream. That may block, too, so do it while the
            // gate is passed.
            // SAFETY: the word is live until the work is done.
            check("cuMemsetD8Async", unsafe {
                sys::cuMemsetD8Async(word.address(), 0, word.len(), stream.raw())
            })?;
            stream.synchronize()?;
        }
        Ok(stream)
    }

    fn create(device: &Arc<Device>) -> Result<Self, Error> {
        let _current = device.make_current()?;
        let mut raw: CUstream = ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current. The stream is written to a live variable and destroyed with the device.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut raw, flags) })?;
        Ok(Self::with_owner(device, raw, Owner::Pool))
    }

    fn with_owner(device: &Arc<Device>, raw: CUstream, owner: Owner) -> Self {
        Self { device: Arc::clone(device), raw, owner, launches: AtomicU32::new(0) }
    }

    /// Wraps a stream that the user created with cudarc in the primary context of this GPU.
    ///
    /// # Errors
    /// - [`Error::WrongStreamGpu`] if the stream belongs to another context
    pub fn from_cudarc(device: &Arc<Device>, external: &Arc<CudaStream>) -> Result<Self, Error> {
        if external.context().cu_ctx() != device.context() {
            let (stream, pe) = (external.context().ordinal() as u32, device.ordinal());
            return Err(Error::WrongStreamGpu { stream, pe });
        }
        Ok(Self::with_owner(device, external.cu_stream(), Owner::Cudarc(Arc::clone(external))))
    }

    /// Wraps a stream that the user created in the primary context of this GPU, given as a `CUstream`. Null is the
    /// default stream.
    ///
    /// # Errors
    /// - [`Error::WrongStreamGpu`] if the stream belongs to another context
    /// - [`Error::Call`] if the driver does not know the stream
    ///
    /// # Safety
    /// `stream` is null or a stream that exists until this object is dropped.
    pub unsafe fn from_raw(device: &Arc<Device>, stream: *mut c_void) -> Result<Self, Error> {
        let raw: CUstream = stream.cast();
        let _current = device.make_current()?;
        let mut context: CUcontext = ptr::null_mut();
        // SAFETY: the caller guarantees a live stream. The context is written to a live variable.
        check("cuStreamGetCtx", unsafe { sys::cuStreamGetCtx(raw, &mut context) })?;
        if context != device.context() {
            return Err(Error::WrongStreamGpu { stream: gpu_of(context)?, pe: device.ordinal() });
        }
        Ok(Self::with_owner(device, raw, Owner::User))
    }

    /// Returns whether the runtime created the stream.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.owner, Owner::Pool)
    }

    /// Returns whether the user is capturing the stream into a graph. Work queued during a capture does not run.
    ///
    /// [`query`](Self::query) must not be called on a capturing stream.
    ///
    /// # Errors
    /// - [`Error::Call`] if the driver refuses
    pub fn is_capturing(&self) -> Result<bool, Error> {
        if self.is_own() {
            return Ok(false);
        }
        let _current = self.device.make_current()?;
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: a live stream and a live variable.
        check("cuStreamIsCapturing", unsafe { sys::cuStreamIsCapturing(self.raw, &mut status) })?;
        Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Returns the GPU that executes the stream's work.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(crate) fn raw(&self) -> CUstream {
        self.raw
    }

    /// Calls `launch`, which launches work into this stream, while no other thread launches on this GPU.
    ///
    /// The driver assigns a hardware queue to an idle stream at a launch. If two threads launch at the same moment, it
    /// may assign the same queue to two streams. A kernel in one stream then starts only after all work in the other
    /// has completed, although that work may wait for the kernel. Serialized launches never showed this.
    ///
    /// Measured on an H200 with driver 580 and 160 streams: with two threads that queue 20 kernels each, it happened in
    /// every 30th run; with ten threads, in every second run.
    ///
    /// A stream with much work already has its queue, and a launch into it may block until there is room in the stream.
    /// Such a launch takes no lock, or it would hold up the launches of all other threads.
    ///
    /// # Errors
    /// - [`Error::Call`] if work in the stream failed
    pub(crate) fn launch_in_turn(&self, launch: impl FnOnce() -> CUresult) -> Result<CUresult, Error> {
        let _turn = match self.needs_no_lock()? {
            true => None,
            false => Some(lock(&LAUNCH_LOCKS[self.device.ordinal() as usize % LAUNCH_LOCKS.len()])),
        };
        Ok(launch())
    }

    /// Returns whether a launch can skip the lock: the stream is being captured, or already has work.
    fn needs_no_lock(&self) -> Result<bool, Error> {
        // Streams of the user may also hold launches that are not counted here, so they are always queried.
        if self.launches.fetch_add(1, Ordering::Relaxed) < FULL_AFTER && self.is_own() {
            return Ok(false);
        }
        if self.is_capturing()? {
            return Ok(true);
        }
        let idle = self.query()?;
        if idle {
            self.launches.store(1, Ordering::Relaxed);
        }
        Ok(!idle)
    }

    /// Returns whether all work in the stream has completed.
    ///
    /// # Errors
    /// - [`Error::Call`] if work in the stream failed, often a kernel
    pub fn query(&self) -> Result<bool, Error> {
        let _current = self.device.make_current()?;
        // SAFETY: a live stream.
        is_done("cuStreamQuery", unsafe { sys::cuStreamQuery(self.raw) })
    }

    /// Waits until all work in the stream has completed.
    ///
    /// # Errors
    /// - [`Error::Call`] if work in the stream failed, often a kernel
    pub fn synchronize(&self) -> Result<(), Error> {
        let _current = self.device.make_current()?;
        // SAFETY: a live stream.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.raw) })
    }

    /// Waits until all work in the stream has completed, at most for `limit`. The thread yields the CPU while it waits.
    ///
    /// # Errors
    /// - [`Error::Deadline`] if the work did not complete in time; it continues
    /// - [`Error::Call`] if work in the stream failed, often a kernel
    pub fn wait(&self, limit: Duration) -> Result<(), Error> {
        wait("the work in a GPU stream", limit, || self.query())
    }

    /// Orders later work in this stream after all work before `event` in its stream.
    ///
    /// # Errors
    /// - [`Error::Call`] if the driver refuses
    pub fn wait_event(&self, event: &Event) -> Result<(), Error> {
        let _current = self.device.make_current()?;
        // SAFETY: both are live. The driver copies the state of the event.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.raw, event.raw, 0) })
    }

    /// Queues a copy of `len` bytes from address `from` to address `to`, in GPU memory or page-locked host memory.
    ///
    /// # Errors
    /// - [`Error::Call`] if the driver refuses, or if earlier work in the stream failed
    ///
    /// # Safety
    /// Both ranges stay valid until the copy has completed. No other access races with the copy.
    pub unsafe fn copy(&self, to: u64, from: u64, len: usize) -> Result<(), Error> {
        let _current = self.device.make_current()?;
        // SAFETY: the caller vouches for both ranges.
        check("cuMemcpyAsync", unsafe { sys::cuMemcpyAsync(to, from, len, self.raw) })
    }
}

impl KernelQueue for Stream {
    fn is_busy(&self) -> bool {
        // A query would end the capture of a stream of the user. Failed work does not run any more.
        matches!(self.is_capturing(), Ok(false)) && matches!(self.query(), Ok(false))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.is_own() {
            self.device.stream_pool.give_back(self.raw);
        }
    }
}

/// A point in the work of a stream. It has passed when all work before it has completed.
pub struct Event {
    device: Arc<Device>,
    raw: CUevent,
}

// SAFETY: any thread may use the driver's events. The driver does its own locking.
unsafe impl Send for Event {}
// SAFETY: see above.
unsafe impl Sync for Event {}

impl Event {
    /// Creates an event. It counts as passed until it is recorded.
    ///
    /// # Errors
    /// - [`Error::Call`] if the driver refuses
    pub fn new(device: &Arc<Device>) -> Result<Self, Error> {
        let _current = device.make_current()?;
        let mut raw: CUevent = ptr::null_mut();
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: the context is current. The event is written to a live variable and destroyed in `drop`.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&mut raw, flags) })?;
        Ok(Self { device: Arc::clone(device), raw })
    }

    /// Records the event after all work that is now in `stream`.
    ///
    /// # Errors
    /// - [`Error::Call`] if the event and the stream belong to different GPUs
    pub fn record(&self, stream: &Stream) -> Result<(), Error> {
        let _current = self.device.make_current()?;
        // SAFETY: both are live.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.raw, stream.raw) })
    }

    /// Returns whether the event has passed.
    ///
    /// # Errors
    /// - [`Error::Call`] if work before the event failed
    pub fn query(&self) -> Result<bool, Error> {
        let _current = self.device.make_current()?;
        // SAFETY: a live event.
        is_done("cuEventQuery", unsafe { sys::cuEventQuery(self.raw) })
    }

    /// Waits until the event has passed.
    ///
    /// # Errors
    /// - [`Error::Call`] if work before the event failed
    pub fn synchronize(&self) -> Result<(), Error> {
        let _current = self.device.make_current()?;
        // SAFETY: a live event.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.raw) })
    }

    /// Waits until the event has passed, at most for `limit`. The thread yields the CPU while it waits.
    ///
    /// # Errors
    /// - [`Error::Deadline`] if the event did not pass in time; the work before it continues
    /// - [`Error::Call`] if work before the event failed
    pub fn wait(&self, limit: Duration) -> Result<(), Error> {
        wait("the work before a GPU event", limit, || self.query())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let destroy = || {
            let _current = self.device.make_current()?;
            // SAFETY: created in `new`, destroyed once.
            check("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(self.raw) })
        };
        log_drop("an event", destroy());
    }
}

/// Returns the ordinal of the GPU that a context belongs to.
fn gpu_of(context: CUcontext) -> Result<u32, Error> {
    let (mut gpu, mut popped) = (0, ptr::null_mut());
    // SAFETY: a context of the driver, popped again, and live variables.
    unsafe {
        check("cuCtxPushCurrent", sys::cuCtxPushCurrent_v2(context))?;
        let found = check("cuCtxGetDevice", sys::cuCtxGetDevice(&mut gpu));
        check("cuCtxPopCurrent", sys::cuCtxPopCurrent_v2(&mut popped)).and(found)?;
    }
    Ok(gpu as u32)
}

/// Converts the result of a query. Returns whether the work has completed.
fn is_done(call: &'static str, result: CUresult) -> Result<bool, Error> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(true),
        CUresult::CUDA_ERROR_NOT_READY => Ok(false),
        failed => Err(Error::Call(call_error(call, failed, String::new()))),
    }
}

/// Polls `done` until it returns true, at most for `limit`. `work` describes the work in errors.
///
/// It polls without a pause for the first 100 us, then with pauses of 2 % of the time so far, at most 200 us.
fn wait(
    work: &'static str,
    limit: Duration,
    mut done: impl FnMut() -> Result<bool, Error>,
) -> Result<(), Error> {
    const EAGER_TIME: Duration = Duration::from_micros(100);
    const MAX_PAUSE: Duration = Duration::from_micros(200);
    let begin = Instant::now();
    loop {
        if done()? {
            return Ok(());
        }
        let waited = begin.elapsed();
        if waited >= limit {
            return Err(Error::Deadline { work, limit });
        }
        if waited < EAGER_TIME {
            thread::yield_now();
        } else {
            thread::sleep((waited / 50).min(MAX_PAUSE).min(limit - waited));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_returns_when_the_work_completes() {
        let begin = Instant::now();
        wait("work", Duration::from_secs(60), || Ok(begin.elapsed() > Duration::from_millis(3))).unwrap();
        assert!(begin.elapsed() < Duration::from_secs(20));
        wait("work", Duration::ZERO, || Ok(true)).unwrap();
    }

    #[test]
    fn wait_fails_at_its_deadline() {
        let limit = Duration::from_millis(5);
        let begin = Instant::now();
        let error = wait("the kernel", limit, || Ok(false)).unwrap_err();
        assert!(begin.elapsed() >= limit);
        assert_eq!(error.to_string(), "the kernel did not end within 5ms");
    }

    #[test]
    fn wait_returns_errors() {
        let lost = Error::NoDevice { ordinal: 1, count: 0 };
        assert_eq!(wait("work", Duration::from_secs(60), || Err(lost.clone())), Err(lost));
    }
}
