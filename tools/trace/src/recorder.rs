//! Collects the spans of a process while a job runs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use rushmem_base::lock;

use crate::clock::now_ns;
use crate::offset::ClockOffset;
use crate::span::{Category, Detail, Site, Span, Track, Word};
use crate::totals::Totals;
use crate::trace::Trace;

/// Identifies a span that a [`Recorder`] has opened and not yet closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId(u64);

/// Collects the spans of all PEs in a process. It can be shared by threads.
#[derive(Debug)]
pub struct Recorder {
    state: Mutex<State>,
    next: AtomicU64,
    /// Maximum number of closed spans that are kept.
    limit: usize,
}

#[derive(Debug, Default)]
struct State {
    ended: Vec<Span>,
    open: BTreeMap<u64, Span>,
    totals: BTreeMap<u32, Totals>,
    dropped: u64,
    clock: ClockOffset,
}

impl State {
    fn add(&mut self, span: Span, limit: usize) {
        self.totals.entry(span.pe).or_default().end(&span);
        if self.ended.len() < limit {
            self.ended.push(span);
        } else {
            self.dropped += 1;
        }
    }
}

impl Recorder {
    /// Creates a recorder that keeps the first `limit` closed spans, and only counts later ones.
    pub fn new(limit: usize) -> Self {
        Self { state: Mutex::default(), next: AtomicU64::new(0), limit }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Opens a span at its `begin` time. Its `end` is set when the span is closed.
    pub fn begin(&self, span: Span) -> SpanId {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut state = self.lock();
        state.totals.entry(span.pe).or_default().begin(&span);
        state.open.insert(id, span);
        SpanId(id)
    }

    /// Closes a span at the present time.
    pub fn end(&self, id: SpanId) {
        self.end_at(id, now_ns(), None);
    }

    /// Closes a span at time `ns`, in nanoseconds since 1970. A `note` replaces the one that the span was opened with.
    pub fn end_at(&self, SpanId(id): SpanId, ns: u64, note: Option<Cow<'static, str>>) {
        let mut state = self.lock();
        if let Some(mut span) = state.open.remove(&id) {
            span.end = Some(ns);
            span.detail.note = note.or(span.detail.note);
            state.add(span, self.limit);
        }
    }

    /// Adds a span that is already closed.
    pub fn add(&self, span: Span) {
        let mut state = self.lock();
        state.totals.entry(span.pe).or_default().begin(&span);
        state.add(span, self.limit);
    }

    /// Counts spans that were lost before they reached the recorder.
    pub fn add_dropped(&self, count: u64) {
        self.lock().dropped += count;
    }

    /// Opens a span for a call by the host program of `pe`. It is closed when the returned guard is dropped.
    pub fn host_call(&self, pe: u32, name: &'static str, site: Option<Site>, detail: Detail) -> OpenSpan<'_> {
        let (track, category, begin) = (Track::Host, Category::Host, now_ns());
        let span = Span { pe, track, name: name.into(), category, site, begin, end: None, detail };
        OpenSpan { recorder: self, id: self.begin(span) }
    }

    /// Returns the spans that are still open, in the order in which they were opened.
    pub fn open(&self) -> Vec<Span> {
        self.lock().open.values().cloned().collect()
    }

    /// Returns the most recently closed span for which `is_wanted` returns true.
    pub fn last(&self, is_wanted: impl Fn(&Span) -> bool) -> Option<Span> {
        self.lock().ended.iter().rev().find(|span| is_wanted(span)).cloned()
    }

    /// Returns up to `limit` words of symmetric memory that `pe` changed last, without repetition, newest first.
    pub fn changed(&self, pe: u32, limit: usize) -> Vec<Word> {
        let state = self.lock();
        let spans = state.open.values().rev().chain(state.ended.iter().rev());
        let mut words = Vec::new();
        for word in spans.filter(|span| span.pe == pe).filter_map(|span| span.detail.changes) {
            if words.len() == limit {
                break;
            }
            if !words.contains(&word) {
                words.push(word);
            }
        }
        words
    }

    /// Returns the running totals of a PE. They include spans that were discarded, and waits that are still open.
    pub fn totals(&self, pe: u32) -> Totals {
        let now = now_ns();
        let state = self.lock();
        let mut totals = state.totals.get(&pe).cloned().unwrap_or_default();
        let open = state.open.values().filter(|span| span.pe == pe && span.is_wait());
        totals.wait_ns += open.map(|span| span.ns(now)).sum::<u64>();
        totals
    }

    /// Sets the offset between this machine's clock and the clock of PE 0, which [`Recorder::trace`] applies.
    pub fn set_clock(&self, offset: ClockOffset) {
        self.lock().clock = offset;
    }

    /// Returns all spans so far, open ones included, with times by the clock of PE 0.
    pub fn trace(&self) -> Trace {
        let state = self.lock();
        let spans = state.ended.iter().chain(state.open.values()).cloned().collect();
        let mut trace = Trace { spans, dropped: state.dropped, clock_error_ns: 0 };
        trace.correct(state.clock);
        trace
    }
}

/// Guard that closes its span when dropped.
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
    fn changed_returns_the_newest_words() {
        let recorder = Recorder::new(10);
        let word = |offset| Word { pe: 1, offset };
        for offset in [8, 16, 8, 24] {
            let changes = Some(word(offset));
            drop(recorder.host_call(0, "set", None, Detail { changes, ..Detail::default() }));
        }
        assert_eq!(recorder.changed(0, 2), [word(24), word(8)]);
        assert!(recorder.changed(1, 2).is_empty());
        assert_eq!(recorder.last(|span| span.pe == 0).unwrap().detail.changes, Some(word(24)));
    }

    #[test]
    fn span_is_open_until_it_is_closed() {
        let recorder = Recorder::new(1);
        let outer = recorder.host_call(3, "outer", None, Detail::default());
        assert_eq!(recorder.open()[0].name, "outer");
        let wait = Span { category: Category::Wait, begin: now_ns() - 1000, ..recorder.open()[0].clone() };
        let id = recorder.begin(wait);
        assert!(recorder.totals(3).wait_ns >= 1000 && recorder.totals(4).wait_ns == 0);
        let mut state = recorder.lock();
        state.open.remove(&id.0);
        drop(state);
        drop(outer);
        assert!(recorder.open().is_empty());
        let Trace { spans, dropped, .. } = recorder.trace();
        assert!(spans[0].end.is_some_and(|end| end >= spans[0].begin) && dropped == 0);
        drop(recorder.host_call(3, "second", None, Detail::default()));
        assert_eq!((recorder.trace().spans.len(), recorder.trace().dropped), (1, 1));
        recorder.set_clock(ClockOffset { ns: -1000, error_ns: 7 });
        let corrected = recorder.trace();
        assert_eq!((corrected.spans[0].begin, corrected.clock_error_ns), (spans[0].begin - 1000, 7));
    }

    #[test]
    fn span_can_be_closed_at_a_given_time() {
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
