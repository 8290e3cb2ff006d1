#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::CudaStream;
use cudarc::driver::sys::{
    self, CUevent, CUevent_flags, CUresult, CUstream, CUstream_flags, CUstreamCaptureStatus,
};

use crate::error::{call_error, check, log_drop};
use crate::{Device, DeviceBuffer, Error, driver_gate};
use rushmem_base::lock;

/// Streams are made so many at a time.
const BATCH: usize = 32;

/// Launches after which a stream may be full. It has room for about 1000, and for half as many if something goes with each.
const MUCH: u32 = 256;

/// Who launches, for each GPU of a process by its ordinal.
static TURNS: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];

/// A queue of work on one GPU, done in order. It does not wait for the default stream, nor the default stream for it.
///
/// Dropping it lets the work in it go on to its end.
pub struct Stream {
    device: Arc<Device>,
    raw: CUstream,
    /// Somebody else's stream, kept while this object lives.
    theirs: Option<Arc<CudaStream>>,
    /// Our launches since it was last known to be idle.
    launches: AtomicU32,
}

// SAFETY: the driver's streams may be used by any thread, and it locks for itself.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream with nothing in it, of the device's reserve. If that has none, 32 are made, for which it waits until none of
    /// the process's PEs has a kernel running.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(device: &Arc<Device>) -> Result<Self, Error> {
        if let Some(raw) = device.streams.take(device)? {
            return Ok(Self::of_raw(device, raw, None));
        }
        let word = DeviceBuffer::new(device, size_of::<u32>())?;
        let _alone = device.alone()?;
        let stream = Self::make(device)?;
        let others = (1..BATCH).map(|_| Self::make(device)).collect::<Result<Vec<_>, Error>>()?;
        for stream in others.iter().chain([&stream]) {
            // The driver does its part when it is used for the first time, too.
            word.fill(stream, 0, word.len(), 0)?;
        }
        Ok(stream)
    }

    fn make(device: &Arc<Device>) -> Result<Self, Error> {
        let _current = device.current()?;
        let mut raw: CUstream = ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current, and the stream is written to a live variable. Destroyed with the device.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut raw, flags) })?;
        Ok(Self::of_raw(device, raw, None))
    }

    fn of_raw(device: &Arc<Device>, raw: CUstream, theirs: Option<Arc<CudaStream>>) -> Self {
        Self { device: Arc::clone(device), raw, theirs, launches: AtomicU32::new(0) }
    }

    /// A stream that somebody else has made, of the same GPU's primary context.
    ///
    /// # Errors
    /// [`Error::OtherGpu`] if it is of another.
    pub fn of(device: &Arc<Device>, theirs: &Arc<CudaStream>) -> Result<Self, Error> {
        if theirs.context().cu_ctx() != device.context() {
            let (stream, pe) = (theirs.context().ordinal() as u32, device.ordinal());
            return Err(Error::OtherGpu { stream, pe });
        }
        Ok(Self::of_raw(device, theirs.cu_stream(), Some(Arc::clone(theirs))))
    }

    /// Whether what is queued goes into a graph that somebody captures, and does not run. Such a stream must not be
    /// asked whether it is done.
    ///
    /// # Errors
    /// What the driver says.
    pub fn is_capturing(&self) -> Result<bool, Error> {
        let _current = self.device.current()?;
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: a live stream and a live variable.
        check("cuStreamIsCapturing", unsafe { sys::cuStreamIsCapturing(self.raw, &mut status) })?;
        Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// The GPU that it belongs to.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(crate) fn raw(&self) -> CUstream {
        self.raw
    }

    /// Calls `launch`, which launches something into this stream, while no other thread launches on this GPU.
    ///
    /// An idle stream is given one of the hardware's queues with what is launched into it. The driver may give two streams
    /// the same one if threads launch at the same moment, and then a kernel of one stream does not begin before all that was
    /// queued in the other has ended, though it may wait for that kernel. (On an H200 with driver 580 and 160 streams: every
    /// 30th time that two threads queue 20 kernels each, every other time with ten threads; never in turn.)
    ///
    /// If there is much in the stream, it has its queue, and the launch may wait for room: then others launch meanwhile.
    ///
    /// # Errors
    /// As [`query`](Self::query), of what is in the stream.
    pub(crate) fn in_turn(&self, launch: impl FnOnce() -> CUresult) -> Result<CUresult, Error> {
        let _turn = match self.has_its_queue()? {
            true => None,
            false => {
                let turn = &TURNS[self.device.ordinal() as usize % TURNS.len()];
                Some(lock(turn))
            }
        };
        Ok(launch())
    }

    /// Whether a launch needs no turn: there is much in the stream, or it is captured and runs later. Somebody else's may hold
    /// much of theirs.
    fn has_its_queue(&self) -> Result<bool, Error> {
        if self.launches.fetch_add(1, Ordering::Relaxed) < MUCH && self.theirs.is_none() {
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

    /// Whether all work in it is done.
    ///
    /// # Errors
    /// The error of work that failed, which is often a kernel's.
    pub fn query(&self) -> Result<bool, Error> {
        let _current = self.device.current()?;
        // SAFETY: a live stream.
        done("cuStreamQuery", unsafe { sys::cuStreamQuery(self.raw) })
    }

    /// Waits until all work in it is done.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    pub fn synchronize(&self) -> Result<(), Error> {
        let _current = self.device.current()?;
        // SAFETY: a live stream.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.raw) })
    }

    /// Waits until all work in it is done, at most this long. It leaves the CPU to others meanwhile.
    ///
    /// # Errors
    /// As [`query`](Self::query), and [`Error::Deadline`].
    pub fn wait(&self, limit: Duration) -> Result<(), Error> {
        wait("work on a GPU stream", limit, || self.query())
    }

    /// Makes work that is queued from now on wait for what was before the event when it was recorded.
    ///
    /// # Errors
    /// What the driver says.
    pub fn wait_for(&self, event: &Event) -> Result<(), Error> {
        let _current = self.device.current()?;
        // SAFETY: both are live; the driver keeps of the event what it needs.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.raw, event.raw, 0) })
    }

    /// Queues a copy of `len` bytes between two addresses of GPU memory or page-locked host memory.
    ///
    /// # Errors
    /// What the driver says.
    ///
    /// # Safety
    /// Both ranges are valid until the copy is done, and nobody else touches them in a way that races with it.
    pub unsafe fn copy(&self, to: u64, from: u64, len: usize) -> Result<(), Error> {
        let _current = self.device.current()?;
        // SAFETY: the caller's promise.
        check("cuMemcpyAsync", unsafe { sys::cuMemcpyAsync(to, from, len, self.raw) })
    }
}

impl driver_gate::IsBusy for Stream {
    fn is_busy(&self) -> bool {
        // Work that failed does not run any longer.
        matches!(self.query(), Ok(false))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.theirs.is_none() {
            self.device.streams.give(self.raw);
        }
    }
}

/// A mark in a stream.
pub struct Event {
    device: Arc<Device>,
    raw: CUevent,
}

// SAFETY: the driver's events may be used by any thread, and it locks for itself.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Makes an event, which counts as passed until it is recorded.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(device: &Arc<Device>) -> Result<Self, Error> {
        let _current = device.current()?;
        let mut raw: CUevent = ptr::null_mut();
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: the context is current, and the event is written to a live variable. Destroyed in `drop`.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&mut raw, flags) })?;
        Ok(Self { device: Arc::clone(device), raw })
    }

    /// Puts the mark behind all work that is now in the stream.
    ///
    /// # Errors
    /// What the driver says: event and stream must be of one GPU.
    pub fn record(&self, stream: &Stream) -> Result<(), Error> {
        let _current = self.device.current()?;
        // SAFETY: both are live.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.raw, stream.raw) })
    }

    /// Whether the stream has come to the mark.
    ///
    /// # Errors
    /// The error of work before it that failed.
    pub fn query(&self) -> Result<bool, Error> {
        let _current = self.device.current()?;
        // SAFETY: a live event.
        done("cuEventQuery", unsafe { sys::cuEventQuery(self.raw) })
    }

    /// Waits until the stream has come to the mark.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    pub fn synchronize(&self) -> Result<(), Error> {
        let _current = self.device.current()?;
        // SAFETY: a live event.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.raw) })
    }

    /// Waits until the stream has come to the mark, at most this long. It leaves the CPU to others meanwhile.
    ///
    /// # Errors
    /// As [`query`](Self::query), and [`Error::Deadline`].
    pub fn wait(&self, limit: Duration) -> Result<(), Error> {
        wait("work before a GPU event", limit, || self.query())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let destroy = || {
            let _current = self.device.current()?;
            // SAFETY: made in `new`, destroyed once.
            check("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(self.raw) })
        };
        log_drop("an event", destroy());
    }
}

fn done(call: &'static str, result: CUresult) -> Result<bool, Error> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(true),
        CUresult::CUDA_ERROR_NOT_READY => Ok(false),
        failed => Err(Error::Call(call_error(call, failed, String::new()))),
    }
}

/// Polls, at first without rest, then with ever longer rests up to a fifth of a millisecond.
fn wait(
    what: &'static str,
    limit: Duration,
    mut done: impl FnMut() -> Result<bool, Error>,
) -> Result<(), Error> {
    const EAGER: Duration = Duration::from_micros(100);
    const LONGEST: Duration = Duration::from_micros(200);
    let begin = Instant::now();
    loop {
        if done()? {
            return Ok(());
        }
        let waited = begin.elapsed();
        if waited >= limit {
            return Err(Error::Deadline { what, limit });
        }
        if waited < EAGER {
            thread::yield_now();
        } else {
            thread::sleep((waited / 10).min(LONGEST).min(limit - waited));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_what_it_waits_for() {
        let begin = Instant::now();
        wait("it", Duration::from_secs(60), || Ok(begin.elapsed() > Duration::from_millis(3))).unwrap();
        assert!(begin.elapsed() < Duration::from_secs(20));
        wait("it", Duration::ZERO, || Ok(true)).unwrap();
    }

    #[test]
    fn a_wait_ends_at_its_deadline() {
        let limit = Duration::from_millis(5);
        let begin = Instant::now();
        let error = wait("the kernel", limit, || Ok(false)).unwrap_err();
        assert!(begin.elapsed() >= limit);
        assert_eq!(error.to_string(), "the kernel did not end within 5ms");
    }

    #[test]
    fn a_wait_ends_with_an_error() {
        let lost = Error::NoDevice { ordinal: 1, count: 0 };
        assert_eq!(wait("it", Duration::from_secs(60), || Err(lost.clone())), Err(lost));
    }
}
