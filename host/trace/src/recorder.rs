//! The collection of spans while a job runs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::now_ns;
use crate::span::{Category, Detail, Site, Span, Track};
use crate::trace::Trace;

/// The number of a span that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId(u64);

/// The spans of the PEs of a process.
#[derive(Debug)]
pub struct Recorder {
    state: Mutex<State>,
    next: AtomicU64,
    /// The largest number of spans.
    limit: usize,
}

#[derive(Debug, Default)]
struct State {
    ended: Vec<Span>,
    open: BTreeMap<u64, Span>,
    dropped: u64,
}

impl State {
    fn add(&mut self, span: Span, limit: usize) {
        if self.ended.len() < limit {
            self.ended.push(span);
        } else {
            self.dropped += 1;
        }
    }
}

impl Recorder {
    /// Creates a recorder that keeps the first `limit` spans.
    pub fn new(limit: usize) -> Self {
        Self { state: Mutex::default(), next: AtomicU64::new(0), limit }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a span now. Its `end` is set when it ends.
    pub fn begin(&self, span: Span) -> SpanId {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().open.insert(id, span);
        SpanId(id)
    }

    /// Ends a span now.
    pub fn end(&self, id: SpanId) {
        self.end_at(id, now_ns(), None);
    }

    /// Ends a span at `ns`, in nanoseconds. A `note` replaces the note of its begin.
    pub fn end_at(&self, SpanId(id): SpanId, ns: u64, note: Option<Cow<'static, str>>) {
        let mut state = self.lock();
        if let Some(mut span) = state.open.remove(&id) {
            span.end = Some(ns);
            span.detail.note = note.or(span.detail.note);
            state.add(span, self.limit);
        }
    }

    /// Adds a span that has ended.
    pub fn add(&self, span: Span) {
        self.lock().add(span, self.limit);
    }

    /// Notes spans that were lost before they came here.
    pub fn add_dropped(&self, count: u64) {
        self.lock().dropped += count;
    }

    /// Begins a call of the host of `pe`. It ends when the result is dropped.
    pub fn host_call(&self, pe: u32, name: &'static str, site: Option<Site>, detail: Detail) -> OpenSpan<'_> {
        let (track, category, begin) = (Track::Host, Category::Host, now_ns());
        let span = Span { pe, track, name: name.into(), category, site, begin, end: None, detail };
        OpenSpan { recorder: self, id: self.begin(span) }
    }

    /// Returns the spans that have begun and not ended, in the order of their begin.
    pub fn open(&self) -> Vec<Span> {
        self.lock().open.values().cloned().collect()
    }

    /// Returns everything so far.
    pub fn trace(&self) -> Trace {
        let state = self.lock();
        let spans = state.ended.iter().chain(state.open.values()).cloned().collect();
        Trace { spans, dropped: state.dropped }
    }
}

/// A span that ends when it is dropped.
#[derive(Debug)]
pub struct OpenSpan<'a> {
    recorder: &'a Recorder,
    id: SpanId,
}

impl Drop for OpenSpan<'_> {
    fn drop(&mut self) {
        self.recorder.end(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_open_until_it_ends() {
        let recorder = Recorder::new(1);
        let outer = recorder.host_call(3, "outer", None, Detail::default());
        assert_eq!(recorder.open()[0].name, "outer");
        drop(outer);
        assert!(recorder.open().is_empty());
        let Trace { spans, dropped } = recorder.trace();
        assert!(spans[0].end.is_some_and(|end| end >= spans[0].begin) && dropped == 0);
        drop(recorder.host_call(3, "second", None, Detail::default()));
        assert_eq!((recorder.trace().spans.len(), recorder.trace().dropped), (1, 1));
    }

    #[test]
    fn a_span_ends_at_a_given_time() {
        let recorder = Recorder::new(1);
        let (track, name, category) = (Track::Packets, "NAK".into(), Category::Packet);
        let detail = Detail { note: Some("first".into()), ..Detail::default() };
        let id =
            recorder.begin(Span { pe: 0, track, name, category, site: None, begin: 1, end: None, detail });
        recorder.end_at(id, 5, Some("second".into()));
        let span = &recorder.trace().spans[0];
        assert_eq!((span.end, span.detail.note.as_deref()), (Some(5), Some("second")));
    }
}
