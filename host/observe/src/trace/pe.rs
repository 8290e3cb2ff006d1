//! Records the calls that a PE's host makes on the timeline.

use std::panic::Location;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};

use rushmem_base::lock;
use rushmem_device::abi::DevAddr;
use rushmem_device::watch;
use rushmem_error::{ObjectNames, Result};
use rushmem_trace::{Detail, OpenSpan, Recorder, Span, now_ns};

use super::JobTrace;
use super::gpu::{RingMemory, RingSize, Rings};
use super::offsets::WireRange;

/// The timeline's hooks for a PE. They do nothing if the job has no timeline.
#[derive(Clone, Debug, Default)]
pub struct PeTrace(pub(super) Option<Arc<Traced>>);

#[derive(Debug)]
pub(super) struct Traced {
    pub(super) pe: u32,
    pub(super) streams: AtomicU32,
    pub(super) job: JobTrace,
    rings: OnceLock<Rings>,
}

impl PeTrace {
    /// Creates the timeline hooks for `pe`. Without a job timeline, the result ignores all events.
    pub fn new(job: Option<&JobTrace>, pe: u32) -> Self {
        let traced = |job: &JobTrace| {
            Arc::new(Traced { pe, streams: AtomicU32::new(0), job: job.clone(), rings: OnceLock::new() })
        };
        Self(job.map(traced))
    }

    /// Allocates GPU memory in which kernels record their device calls, if they were built with a timeline.
    ///
    /// `allocate` takes the size in bytes. Returns the GPU address, or 0 if no memory is needed.
    ///
    /// # Errors
    /// - The error of `allocate`.
    pub fn prepare_gpu(
        &self,
        size: RingSize,
        allocate: impl FnOnce(u64) -> Result<Box<dyn RingMemory>>,
    ) -> Result<DevAddr> {
        match &self.0 {
            Some(traced) if !traced.job.is_native && traced.job.has_traced_kernels => {
                let rings = Rings::new(allocate(size.bytes)?, size)?;
                Ok(traced.rings.get_or_init(|| rings).addr())
            }
            _ => Ok(DevAddr(0)),
        }
    }

    /// Runs `launch`, which launches a kernel on the PE's own stream and also returns the launch ID, and records its
    /// time.
    ///
    /// # Errors
    /// - The error of `launch`.
    pub fn launches<R>(&self, launch: impl FnOnce() -> Result<(R, u64)>) -> Result<R> {
        let before = self.rings().map(|_| now_ns());
        let (launched, mark) = launch()?;
        if let (Some(rings), Some(before)) = (self.rings(), before) {
            rings.launched(mark, before);
        }
        Ok(launched)
    }

    /// Records that the launch with ID `mark`, on the PE's own stream, has finished.
    pub fn has_ended(&self, mark: u64) {
        if let Some(rings) = self.rings() {
            rings.ended(mark, now_ns());
        }
    }

    /// Whether kernels record device calls in GPU time, so the GPU's clock must be compared with the host's.
    pub fn needs_clock(&self) -> bool {
        self.rings().is_some()
    }

    /// Records that a kernel read `device_ns` from the GPU's clock between the host times `before` and `after`.
    pub fn bound_clock(&self, before: u64, device_ns: u64, after: u64) {
        if let Some(rings) = self.rings() {
            rings.bound_clock(before, device_ns, after);
        }
    }

    fn rings(&self) -> Option<&Rings> {
        self.0.as_ref()?.rings.get()
    }

    /// Returns the calls in progress on the host and in kernels, or `None` without a timeline that sees the calls of
    /// kernels.
    pub fn open(&self) -> Option<Vec<Span>> {
        let traced = self.0.as_ref()?;
        let mut open = traced.job.recorder.open();
        match self.rings().map(|rings| rings.open(traced.pe)) {
            Some(Ok(calls)) => open.extend(calls),
            Some(Err(error)) => tracing::debug!("the calls of kernels cannot be read: {error}"),
            None if !traced.job.is_native || !watch::ENABLED => return None,
            None => {}
        }
        Some(open)
    }

    /// Reads the device calls that kernels on a GPU have recorded, when the PE finishes. `name` maps the ID of a launch
    /// to the name of its kernel.
    pub fn read_gpu(&self, name: impl Fn(u64) -> &'static str) {
        let (Some(traced), Some(rings)) = (&self.0, self.rings()) else { return };
        match rings.read_all(traced.pe, name) {
            Ok(calls) => lock(&traced.job.gpu_calls).push(calls),
            Err(error) => tracing::warn!(pe = traced.pe, "the timeline has no calls of kernels: {error}"),
        }
    }

    /// Saves the names of the symmetric objects for the timeline, which is written after the PE has been dropped.
    pub fn keep_names(&self, names: &ObjectNames) {
        if let Some(traced) = &self.0 {
            traced.job.names.get_or_init(|| names.clone());
        }
    }

    /// Adds the wire addresses of symmetric memory beyond the first heap, to show its symmetric offsets on the
    /// timeline.
    pub fn add_ranges<I: IntoIterator<Item = WireRange>>(&self, ranges: impl FnOnce() -> I) {
        if let Some(traced) = &self.0 {
            traced.job.offsets.add(ranges());
        }
    }

    /// Returns the recorder of this process's spans, or `None` if the job has no timeline.
    pub fn recorder(&self) -> Option<&Recorder> {
        self.0.as_ref().map(|traced| &*traced.job.recorder)
    }

    /// Starts the timeline span of a host call, which lasts until the result is dropped.
    #[track_caller]
    pub fn call(&self, name: &'static str) -> Option<OpenSpan<'_>> {
        self.call_with(name, Detail::default)
    }

    /// Starts the timeline span of a host call, like [`PeTrace::call`], with details such as the peer or the bytes
    /// transferred.
    #[track_caller]
    pub fn call_with(&self, name: &'static str, detail: impl FnOnce() -> Detail) -> Option<OpenSpan<'_>> {
        let traced = self.0.as_ref()?;
        Some(traced.job.recorder.host_call(traced.pe, name, Some(Location::caller().into()), detail()))
    }
}
