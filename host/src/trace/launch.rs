//! The launches of a stream, and their lanes.

use std::panic::Location;
use std::sync::Arc;

use rushmem_device::kernel;
use rushmem_device::watch::Watcher;
use rushmem_trace::{Category, Detail, Site, Span, SpanId, Track, now_ns};

use super::lane::LaneTrace;
use super::pe::Traced;
use crate::native::{Grid, Observer};

/// A stream on the timeline.
#[derive(Clone, Debug)]
pub(crate) struct StreamTrace {
    traced: Option<Arc<Traced>>,
    track: Track,
}

impl StreamTrace {
    pub(super) fn new(traced: Option<Arc<Traced>>, track: Track) -> Self {
        Self { traced, track }
    }

    /// Begins a launch, which ends when the result is dropped.
    pub(crate) fn launch(&self, grid: Grid, call: &kernel::Call) -> Option<Arc<LaunchTrace>> {
        let traced = Arc::clone(self.traced.as_ref()?);
        let (name, site) = call.operation().map_or((call.name(), None), |(name, site)| (name, Some(site)));
        let Grid { blocks, threads, .. } = grid;
        let span = traced.job.recorder.begin(Span {
            pe: traced.pe,
            track: self.track.clone(),
            name: name.into(),
            category: Category::Launch,
            site: site.map(Into::into),
            begin: now_ns(),
            end: None,
            detail: Detail {
                note: Some(format!("{blocks} x {threads} threads").into()),
                ..Detail::default()
            },
        });
        Some(Arc::new(LaunchTrace { traced, name, site: site.map(Into::into), span }))
    }
}

/// A launch on the timeline.
#[derive(Debug)]
pub(crate) struct LaunchTrace {
    pub(super) traced: Arc<Traced>,
    /// The name of the kernel, or of the host's operation that it performs.
    pub(super) name: &'static str,
    /// The line of that operation. The calls of its kernel are lines of the runtime, which say nothing to the user.
    pub(super) site: Option<Site>,
    span: SpanId,
}

impl Drop for LaunchTrace {
    fn drop(&mut self) {
        self.traced.job.recorder.end(self.span);
    }
}

/// The observer of a launch.
#[derive(Debug)]
pub(crate) struct TraceObserver(pub(crate) Arc<LaunchTrace>);

impl Observer for TraceObserver {
    fn block_begins(&self, _: u32, _: u32) {}

    fn watcher(&self, block: u32, thread: u32) -> Box<dyn Watcher> {
        Box::new(LaneTrace::new(Arc::clone(&self.0), block, thread))
    }

    fn lane_ends(&self, _: u32, _: u32) {}

    fn sync(&self, _: u32, _: &mut dyn Iterator<Item = u32>) {}

    fn waits(&self, _: u32, _: u32, _: &'static Location<'static>, _: Vec<u32>) {}
}
