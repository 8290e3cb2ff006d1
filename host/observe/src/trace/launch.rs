//! The launches of a stream, and their lanes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rushmem_device::kernel;
use rushmem_native::LaunchConfig;
use rushmem_trace::{Category, Detail, Site, Span, SpanId, Track, now_ns};

use super::pe::{PeTrace, Traced};

/// A stream on the timeline.
#[derive(Clone, Debug)]
pub struct StreamTrace {
    traced: Option<Arc<Traced>>,
    track: Track,
}

impl PeTrace {
    /// Adds a stream. The first one is the PE's own.
    pub fn stream(&self) -> StreamTrace {
        let number = self.0.as_ref().map_or(0, |traced| traced.streams.fetch_add(1, Ordering::Relaxed));
        StreamTrace { traced: self.0.clone(), track: Track::Stream { number } }
    }

    /// Returns the track of launches that belong to no stream.
    pub fn operations(&self) -> StreamTrace {
        StreamTrace { traced: self.0.clone(), track: Track::Operations }
    }
}

impl StreamTrace {
    /// Starts the span of a launch, which lasts until the result is dropped.
    pub fn launch(&self, grid: LaunchConfig, call: &kernel::Call) -> Option<Arc<LaunchTrace>> {
        let traced = Arc::clone(self.traced.as_ref()?);
        let (name, site) = call.operation().map_or((call.name(), None), |(name, site)| (name, Some(site)));
        let (blocks, threads) = (grid.blocks(), grid.threads());
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
pub struct LaunchTrace {
    pub(super) traced: Arc<Traced>,
    /// The name of the kernel, or of the host operation that it implements.
    pub(super) name: &'static str,
    /// The line of that operation. The calls of its kernel are in the runtime, and mean nothing to the user.
    pub(super) site: Option<Site>,
    span: SpanId,
}

impl Drop for LaunchTrace {
    fn drop(&mut self) {
        self.traced.job.recorder.end(self.span);
    }
}
