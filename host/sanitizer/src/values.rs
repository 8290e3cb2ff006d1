//! Values in memory that waits may see, each with the knowledge that it carries.

use std::collections::BTreeMap;

use crate::access::{Memory, Span};
use crate::clock::{Clock, Filtered};
use crate::context::Announcer;
use crate::epoch::{ActorId, Epoch};
use crate::intervals::{Bytes, IntervalMap};

/// The last values of some bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Release {
    /// The knowledge that the values carry.
    pub(crate) clock: Clock,
    /// The write that a waiter knows only for the bytes of its word: a put of several words, or a strong store.
    pub(crate) write: Option<(Epoch, Bytes)>,
    /// The operation that wrote it, if one did.
    pub(crate) announcer: Option<Announcer>,
    number: u64,
}

impl PartialEq for Release {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

/// The last values of all memories.
#[derive(Debug, Default)]
pub(crate) struct Values {
    memories: BTreeMap<Memory, IntervalMap<Release>>,
    released: u64,
}

impl Values {
    /// Replaces the values of `span`.
    pub(crate) fn set(
        &mut self,
        span: Span,
        clock: &Clock,
        write: Option<(Epoch, Bytes)>,
        announcer: Option<Announcer>,
    ) {
        self.released += 1;
        let release = Release { clock: clock.clone(), write, announcer, number: self.released };
        let memory = self.memories.entry(span.memory).or_default();
        memory.update(span.bytes, |_, _| Some(release.clone()));
    }

    /// Replaces the values of `span` by values that carry nothing, although the shadow memory may have a store.
    pub(crate) fn set_unknown(&mut self, span: Span) {
        self.set(span, &Clock::default(), None, None);
    }

    /// Gives values to the parts of `span` that have none.
    pub(crate) fn set_if_new(
        &mut self,
        span: Span,
        clock: Clock,
        write: (Epoch, Bytes),
        announcer: Announcer,
    ) {
        self.released += 1;
        let (write, announcer) = (Some(write), Some(announcer));
        let release = Release { clock, write, announcer, number: self.released };
        let memory = self.memories.entry(span.memory).or_default();
        memory.update(span.bytes, |_, old| old.or_else(|| Some(release.clone())));
    }

    /// Updates a word atomically: the new value carries the knowledge of the old one too.
    pub(crate) fn update(&mut self, span: Span, clock: &Clock, announcer: Announcer) {
        self.released += 1;
        let number = self.released;
        self.memories.entry(span.memory).or_default().update(span.bytes, |_, old| {
            let mut release =
                old.unwrap_or(Release { clock: Clock::default(), write: None, announcer: None, number });
            release.clock.join(clock);
            Some(Release { number, announcer: Some(announcer), ..release })
        });
    }

    /// Forgets the values of `span`.
    pub(crate) fn clear(&mut self, span: Span) {
        if let Some(memory) = self.memories.get_mut(&span.memory) {
            memory.clear(span.bytes);
        }
    }

    /// Returns the values that a wait for `span` sees.
    pub(crate) fn seen(&self, span: Span) -> Vec<Release> {
        let memory = self.memories.get(&span.memory);
        memory.map_or(Vec::new(), |memory| memory.overlapping(span.bytes).map(|(_, r)| r.clone()).collect())
    }

    /// Drops actors from all clocks that `keep` refuses.
    pub(crate) fn retain(&mut self, keep: impl Fn(ActorId) -> bool, filtered: &mut Filtered) {
        for memory in self.memories.values_mut() {
            memory.retain(|release| {
                release.clock.retain(&keep, filtered);
                true
            });
        }
    }
}
