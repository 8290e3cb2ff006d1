//! The values last written to memory, with what each of them publishes to a waiting reader.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::access::{Memory, Span};
use crate::clock::Clock;
use crate::context::{Announcer, Writer};
use crate::epoch::{ActorId, Epoch};
use crate::intervals::{Bytes, IntervalMap};
use crate::scopes::{Filter, Shared};

/// The last write to a range of bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Release {
    pub(crate) written: Written,
    number: u64,
}

impl PartialEq for Release {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

/// A write to memory, with what a reader of the value learns from it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    /// What the value publishes to its readers.
    pub(crate) carried: Shared,
    /// The write itself and its range, if a reader knows it only for the bytes of the word that it reads. That is so
    /// for a put of several words, and for a relaxed store.
    pub(crate) write: Option<(Epoch, Bytes)>,
    /// The operation that wrote the value, if one did.
    pub(crate) announcer: Option<Announcer>,
    pub(crate) writer: Option<Writer>,
    /// Vector clock of the writer, used to explain a race.
    pub(crate) knew: Option<Arc<Clock>>,
}

/// The last writes to all memories.
#[derive(Debug, Default)]
pub(crate) struct Values {
    memories: BTreeMap<Memory, IntervalMap<Release>>,
    released: u64,
}

impl Values {
    /// Records a write to `span`, which replaces earlier values.
    pub(crate) fn set(&mut self, span: Span, written: Written) {
        let release = self.release(written);
        self.memory(span).update(span.bytes, |_, _| Some(release.clone()));
    }

    /// Replaces the values of `span` with values that carry nothing, even if the shadow memory has a store there.
    pub(crate) fn set_unknown(&mut self, span: Span) {
        self.set(span, Written::default());
    }

    /// Records a write to those parts of `span` that have no recorded value.
    pub(crate) fn set_if_new(&mut self, span: Span, written: Written) {
        let release = self.release(written);
        self.memory(span).update(span.bytes, |_, old| old.or_else(|| Some(release.clone())));
    }

    /// Records an atomic update of a word. The new value also publishes what the old one did.
    pub(crate) fn update(&mut self, span: Span, written: Written) {
        let new = self.release(written);
        self.memory(span).update(span.bytes, |_, old| {
            let Some(old) = old else { return Some(new.clone()) };
            let mut carried = old.written.carried;
            Arc::make_mut(&mut carried).join(&new.written.carried);
            let written = Written { carried, write: old.written.write, ..new.written.clone() };
            Some(Release { written, ..new })
        });
    }

    fn release(&mut self, written: Written) -> Release {
        self.released += 1;
        Release { written, number: self.released }
    }

    fn memory(&mut self, span: Span) -> &mut IntervalMap<Release> {
        self.memories.entry(span.memory).or_default()
    }

    /// Forgets the values of `span`.
    pub(crate) fn clear(&mut self, span: Span) {
        if let Some(memory) = self.memories.get_mut(&span.memory) {
            memory.clear(span.bytes);
        }
    }

    /// Returns the writes whose values a read of `span` sees.
    pub(crate) fn seen(&self, span: Span) -> Vec<Written> {
        let memory = self.memories.get(&span.memory);
        let written = |(_, release): (Bytes, &Release)| release.written.clone();
        memory.map_or(Vec::new(), |memory| memory.overlapping(span.bytes).map(written).collect())
    }

    /// Returns the parts of `span` whose last writer is known.
    pub(crate) fn writers(&self, span: Span) -> impl Iterator<Item = (Span, Writer)> {
        let values = self.memories.get(&span.memory).into_iter();
        let known = values.flat_map(move |values| values.overlapping(span.bytes));
        known.filter_map(move |(bytes, release)| Some((Span { bytes, ..span }, release.written.writer?)))
    }

    /// Drops actors for which `keep` returns `false` from all vector clocks.
    pub(crate) fn retain(&mut self, keep: impl Fn(ActorId) -> bool, filter: &mut Filter) {
        for memory in self.memories.values_mut() {
            memory.retain(|release| {
                let Written { carried, knew, .. } = &mut release.written;
                filter.retain(carried, &keep);
                knew.iter_mut().for_each(|knew| Arc::make_mut(knew).retain(&keep, &mut filter.clocks));
                true
            });
        }
    }
}
