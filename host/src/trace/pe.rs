//! The calls of the host of a PE.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rushmem_trace::{Detail, OpenSpan, Recorder};

use super::StreamTrace;

/// The timeline as a PE sees it. It does nothing if the job has none.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeTrace(Option<Arc<Traced>>);

/// A PE with a timeline.
#[derive(Debug)]
pub(super) struct Traced {
    pub(super) pe: u32,
    pub(super) recorder: Arc<Recorder>,
    streams: AtomicU32,
}

impl PeTrace {
    /// Returns the timeline of `pe`.
    pub(crate) fn new(recorder: Option<&Arc<Recorder>>, pe: u32) -> Self {
        let traced = |recorder: &Arc<Recorder>| {
            Arc::new(Traced { pe, recorder: Arc::clone(recorder), streams: AtomicU32::new(0) })
        };
        Self(recorder.map(traced))
    }

    /// Returns the recorder, if the job has a timeline.
    pub(crate) fn recorder(&self) -> Option<&Recorder> {
        self.0.as_ref().map(|traced| &*traced.recorder)
    }

    /// Begins a call of the host, which ends when the result is dropped.
    #[track_caller]
    pub(crate) fn call(&self, name: &'static str) -> Option<OpenSpan<'_>> {
        self.call_with(name, Detail::default)
    }

    /// Begins a call like [`PeTrace::call`], with properties.
    #[track_caller]
    pub(crate) fn call_with(
        &self,
        name: &'static str,
        detail: impl FnOnce() -> Detail,
    ) -> Option<OpenSpan<'_>> {
        let traced = self.0.as_ref()?;
        Some(traced.recorder.host_call(traced.pe, name, Some(Location::caller().into()), detail()))
    }

    /// Returns a new stream. The PE's own stream is the first one.
    pub(crate) fn stream(&self) -> StreamTrace {
        let number = self.0.as_ref().map_or(0, |traced| traced.streams.fetch_add(1, Ordering::Relaxed));
        StreamTrace::new(self.0.clone(), number)
    }
}
