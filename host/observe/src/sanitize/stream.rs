//! Translates the launches, waits and events of a stream into sanitizer requests.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rushmem_device::kernel;
use rushmem_native::LaunchConfig;
use rushmem_sanitizer::{Actor, ActorId, Call, Request};

use super::LaunchWatch;
use super::pe::{Knowledge, PeWatch, Seen, Watched};

/// The communication sanitizer's hooks for a stream. They do nothing if the job runs without the sanitizer.
#[derive(Clone, Debug, Default)]
pub struct StreamWatch(Option<(Arc<Watched>, ActorId)>);

impl PeWatch {
    /// Registers a new stream with the sanitizer. Its steps happen after those of the host so far.
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
    /// Records that the stream's next steps happen after the steps in `seen`, which the host or another stream has
    /// released.
    pub fn acquire(&self, seen: Option<&Knowledge>) {
        if let (Some((watched, stream)), Some(seen)) = (&self.0, seen) {
            watched.tell(seen.acquired_by(*stream));
        }
    }

    /// Returns a snapshot of the steps that happened before the stream's current step.
    pub fn release(&self) -> Seen {
        let (watched, stream) = self.0.as_ref()?;
        watched.release(*stream)
    }

    /// Records that the stream is idle, so its next step will happen after the host's current one.
    pub fn idles(&self) {
        if let Some((watched, stream)) = &self.0 {
            watched.tell(Request::Awaits { parent: *stream, children: vec![watched.host] });
        }
    }

    /// Runs `wait`, in which the host waits for the stream's work, and records the wait.
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

    /// Starts observing a launch on this stream. Returns `None` if the job runs without the sanitizer.
    pub fn launch(&self, grid: LaunchConfig, call: &kernel::Call) -> Option<Arc<LaunchWatch>> {
        let (watched, stream) = self.0.as_ref()?;
        Some(LaunchWatch::new(Arc::clone(watched), *stream, grid, call))
    }

    /// Records that the stream is dropped, so its steps happen before the host's next ones.
    pub fn end(&self) {
        if let Some((watched, stream)) = &self.0 {
            watched.tell_all([
                Request::End(*stream),
                Request::Join { parent: watched.host, children: vec![*stream] },
            ]);
        }
    }
}
