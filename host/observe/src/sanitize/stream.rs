//! The order of launches on a stream.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rushmem_device::kernel;
use rushmem_native::LaunchConfig;
use rushmem_sanitizer::{Actor, ActorId, Call, Request};

use super::LaunchWatch;
use super::pe::{Knowledge, PeWatch, Seen, Watched};

/// A stream as the sanitizer sees it.
#[derive(Clone, Debug, Default)]
pub struct StreamWatch(Option<(Arc<Watched>, ActorId)>);

impl PeWatch {
    /// Creates a stream.
    pub fn stream(&self) -> StreamWatch {
        let Some(watched) = &self.0 else { return StreamWatch::default() };
        let stream = watched.streams.fetch_add(1, Ordering::Relaxed);
        let actor = Actor::Stream { pe: watched.pe, stream };
        let forked = watched.link().fork(watched.host, vec![actor]);
        let actor = forked.first().copied().unwrap_or(watched.host);
        StreamWatch(Some((Arc::clone(watched), actor)))
    }
}

impl StreamWatch {
    /// Passes what the host, or another stream, knew to the stream.
    pub fn acquire(&self, seen: Option<&Knowledge>) {
        if let (Some((watched, stream)), Some(seen)) = (&self.0, seen) {
            watched.tell(seen.acquired_by(*stream));
        }
    }

    /// Returns what the stream knows.
    pub fn release(&self) -> Seen {
        let (watched, stream) = self.0.as_ref()?;
        watched.release(*stream)
    }

    /// Records that the next step of the stream follows the host.
    pub fn idles(&self) {
        if let Some((watched, stream)) = &self.0 {
            watched.tell(Request::Awaits { parent: *stream, children: vec![watched.host] });
        }
    }

    /// Runs `wait`, in which the host waits for the stream.
    #[track_caller]
    pub fn is_awaited<R>(&self, wait: impl FnOnce() -> R) -> R {
        let Some((watched, stream)) = &self.0 else { return wait() };
        let call = Call { name: "wait", site: Location::caller().into() };
        watched.tell(Request::Awaits { parent: watched.host, children: vec![*stream] });
        watched.host_waits(*stream, call);
        let result = wait();
        watched.host_goes_on(*stream);
        result
    }

    /// Starts to watch a launch on the stream.
    pub fn launch(&self, grid: LaunchConfig, call: &kernel::Call) -> Option<Arc<LaunchWatch>> {
        let (watched, stream) = self.0.as_ref()?;
        Some(LaunchWatch::new(Arc::clone(watched), *stream, grid, call))
    }

    /// Records that the stream is dropped.
    pub fn end(&self) {
        if let Some((watched, stream)) = &self.0 {
            watched.tell_all([
                Request::End(*stream),
                Request::Join { parent: watched.host, children: vec![*stream] },
            ]);
        }
    }
}
