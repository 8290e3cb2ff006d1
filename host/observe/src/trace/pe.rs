//! The calls of the host of a PE.

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

/// The timeline as a PE sees it. Does nothing if the job has none.
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
    /// Creates the timeline of `pe`.
    pub fn new(job: Option<&JobTrace>, pe: u32) -> Self {
        let traced = |job: &JobTrace| {
            Arc::new(Traced { pe, streams: AtomicU32::new(0), job: job.clone(), rings: OnceLock::new() })
        };
        Self(job.map(traced))
    }

    /// Prepares the timeline of kernels on a GPU, if they write their calls. Returns the address of its memory, or 0 if
    /// there is none.
    ///
    /// # Errors
    /// - The error of `allocate`, which allocates the memory.
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

    /// Performs a launch on the PE's own stream. `launch` also returns the mark of the launch.
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

    /// Records that a launch on the PE's own stream has finished.
    pub fn has_ended(&self, mark: u64) {
        if let Some(rings) = self.rings() {
            rings.ended(mark, now_ns());
        }
    }

    /// Returns whether the clocks of the GPU and the host must be compared.
    pub fn needs_clock(&self) -> bool {
        self.rings().is_some()
    }

    /// Records that a kernel has read `device_ns` from the GPU's clock between `before` and `after`.
    pub fn bound_clock(&self, before: u64, device_ns: u64, after: u64) {
        if let Some(rings) = self.rings() {
            rings.bound_clock(before, device_ns, after);
        }
    }

    fn rings(&self) -> Option<&Rings> {
        self.0.as_ref()?.rings.get()
    }

    /// Returns the calls that have not returned, if the timeline sees the calls of kernels.
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

    /// Reads the calls of kernels on a GPU, at the end of the PE. `name` returns the kernel name of a launch.
    pub fn read_gpu(&self, name: impl Fn(u64) -> &'static str) {
        let (Some(traced), Some(rings)) = (&self.0, self.rings()) else { return };
        match rings.read_all(traced.pe, name) {
            Ok(calls) => lock(&traced.job.gpu_calls).push(calls),
            Err(error) => tracing::warn!(pe = traced.pe, "the timeline has no calls of kernels: {error}"),
        }
    }

    /// Saves the names of the symmetric objects, since the timeline is written after the PE has been dropped.
    pub fn keep_names(&self, names: &ObjectNames) {
        if let Some(traced) = &self.0 {
            traced.job.names.get_or_init(|| names.clone());
        }
    }

    /// Adds symmetric memory beyond the first heap.
    pub fn add_ranges<I: IntoIterator<Item = WireRange>>(&self, ranges: impl FnOnce() -> I) {
        if let Some(traced) = &self.0 {
            traced.job.offsets.add(ranges());
        }
    }

    /// Returns the recorder, if the job has a timeline.
    pub fn recorder(&self) -> Option<&Recorder> {
        self.0.as_ref().map(|traced| &*traced.job.recorder)
    }

    /// Starts the span of a host call, which lasts until the result is dropped.
    #[track_caller]
    pub fn call(&self, name: &'static str) -> Option<OpenSpan<'_>> {
        self.call_with(name, Detail::default)
    }

    /// Starts a span like [`PeTrace::call`], with details.
    #[track_caller]
    pub fn call_with(&self, name: &'static str, detail: impl FnOnce() -> Detail) -> Option<OpenSpan<'_>> {
        let traced = self.0.as_ref()?;
        Some(traced.job.recorder.host_call(traced.pe, name, Some(Location::caller().into()), detail()))
    }
}
