//! Records the kernel launches of a PE's streams on the timeline.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rushmem_device::kernel;
use rushmem_native::LaunchConfig;
use rushmem_trace::{Category, Detail, Site, Span, SpanId, Track, now_ns};

use super::pe::{PeTrace, Traced};

/// Timeline track for the kernel launches of one stream.
#[derive(Clone, Debug)]
pub struct StreamTrace {
    traced: Option<Arc<Traced>>,
    track: Track,
}

impl PeTrace {
    /// Adds a timeline track for a stream. The first one is for the PE's own stream.
    pub fn stream(&self) -> StreamTrace {
        let number = self.0.as_ref().map_or(0, |traced| traced.streams.fetch_add(1, Ordering::Relaxed));
        StreamTrace { traced: self.0.clone(), track: Track::Stream { number } }
    }

    /// Returns the timeline track for launches outside any stream.
    pub fn operations(&self) -> StreamTrace {
        StreamTrace { traced: self.0.clone(), track: Track::Operations }
    }
}

impl StreamTrace {
    /// Starts the timeline span of a kernel launch, which lasts until the result is dropped. `None` if the job has no
    /// timeline.
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

/// The open timeline span of a kernel launch, which is closed when this is dropped.
#[derive(Debug)]
pub struct LaunchTrace {
    pub(super) traced: Arc<Traced>,
    /// The name of the kernel, or of the host operation that it implements.
    pub(super) name: &'static str,
    /// The line of the host operation that the kernel implements, if any. It replaces the lines of the kernel's own
    /// calls, which are in the runtime.
    pub(super) site: Option<Site>,
    span: SpanId,
}

impl Drop for LaunchTrace {
    fn drop(&mut self) {
        self.traced.job.recorder.end(self.span);
    }
}
