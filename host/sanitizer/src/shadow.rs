//! Shadow memory: the accesses of each byte that later ones may race with.

use std::collections::BTreeMap;

use crate::access::{Access, Memory, Span};
use crate::clock::{Clock, Epoch};
use crate::intervals::{Bytes, IntervalMap};

/// The most accesses that are kept for the same bytes. Only words that many actors update without an order have more.
const MOST: usize = 64;

/// An access of some bytes.
#[derive(Clone, Debug, PartialEq)]
struct Record {
    access: Access,
    /// Steps of actors that have waited for the value of these bytes, so that they know the access.
    seen: Vec<Epoch>,
}

/// An earlier access without an order to the new one, and the bytes in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Conflict {
    pub(crate) earlier: Access,
    pub(crate) bytes: Bytes,
}

/// The accesses of all memories.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    memories: BTreeMap<Memory, IntervalMap<Vec<Record>>>,
}

impl Shadow {
    /// Adds an access by an actor with `clock`. Returns the earlier accesses that conflict and that `knows` refuses.
    pub(crate) fn record(
        &mut self,
        span: Span,
        access: Access,
        clock: &Clock,
        knows: impl Fn(&Clock, Epoch) -> bool,
    ) -> Vec<Conflict> {
        let mut found: Vec<Conflict> = Vec::new();
        let is_ordered = |old: &Record| {
            knows(clock, old.access.epoch) || old.seen.iter().any(|&epoch| knows(clock, epoch))
        };
        let memory = self.memories.entry(span.memory).or_default();
        let is_last = |records: &Vec<Record>| {
            records.last().is_some_and(|last| last.seen.is_empty() && last.access == access)
        };
        if memory.holding(span.bytes).is_some_and(is_last) {
            return found;
        }
        memory.update(span.bytes, |bytes, old| {
            let mut records = old.unwrap_or_default();
            for old in records.iter().filter(|old| old.access.conflicts(&access) && !is_ordered(old)) {
                add_conflict(&mut found, Conflict { earlier: old.access, bytes });
            }
            records.retain(|old| !(access.absorbs(&old.access) && is_ordered(old)));
            if records.len() == MOST {
                records.remove(0);
            }
            // Most bytes have one or two accesses.
            records.reserve_exact(1);
            records.push(Record { access, seen: Vec::new() });
            Some(records)
        });
        found
    }

    /// Notes that an actor has waited for the value that `write` gave to these bytes.
    pub(crate) fn see(&mut self, span: Span, write: Epoch, waiter: Epoch) {
        let Some(memory) = self.memories.get_mut(&span.memory) else { return };
        memory.update(span.bytes, |_, old| {
            let mut records = old?;
            for record in records.iter_mut().filter(|record| record.access.epoch == write) {
                if !record.seen.contains(&waiter) {
                    record.seen.push(waiter);
                }
            }
            Some(records)
        });
    }

    /// Forgets the accesses of new memory.
    pub(crate) fn clear(&mut self, span: Span) {
        if let Some(memory) = self.memories.get_mut(&span.memory) {
            memory.clear(span.bytes);
        }
    }

    /// Forgets the accesses that everybody knows.
    pub(crate) fn settle(&mut self, has_settled: impl Fn(Epoch) -> bool) {
        for memory in self.memories.values_mut() {
            memory.retain(|records| {
                records.retain(|record| {
                    !has_settled(record.access.epoch) && !record.seen.iter().any(|&seen| has_settled(seen))
                });
                !records.is_empty()
            });
        }
    }

    /// Returns the number of intervals.
    pub(crate) fn len(&self) -> usize {
        self.memories.values().map(IntervalMap::len).sum()
    }
}

/// Adds a conflict, or its bytes to the entry of the same access.
fn add_conflict(found: &mut Vec<Conflict>, new: Conflict) {
    match found.iter_mut().find(|known| known.earlier == new.earlier) {
        Some(known) => known.bytes.end = new.bytes.end,
        None => found.push(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Call, Kind, Site};
    use crate::clock::ActorId;

    const CALL: Call = Call { name: "test", site: Site { file: "test.rs", line: 1 } };

    fn epoch(actor: u64) -> Epoch {
        Epoch { actor: ActorId(actor), count: 1 }
    }

    /// Records an access of an actor that knows the actors in `known`.
    fn record(shadow: &mut Shadow, actor: u64, known: &[u64], kind: Kind, span: Span) -> Vec<(u64, Bytes)> {
        let mut clock = Clock::default();
        known.iter().for_each(|&k| clock.raise(epoch(k)));
        let access = Access::new(epoch(actor), kind, span.bytes, CALL);
        let found = shadow.record(span, access, &clock, Clock::has);
        found.into_iter().map(|conflict| (conflict.earlier.epoch.actor.0, conflict.bytes)).collect()
    }

    #[test]
    fn conflicts_have_the_bytes_in_common() {
        let mut shadow = Shadow::default();
        assert!(record(&mut shadow, 1, &[], Kind::Write, Span::heap(0, 0, 16)).is_empty());
        assert!(record(&mut shadow, 2, &[], Kind::Write, Span::heap(1, 0, 16)).is_empty());
        let found = record(&mut shadow, 3, &[], Kind::Read, Span::heap(0, 12, 8));
        assert_eq!(found, [(1, Bytes { start: 12, end: 16 })]);
        assert!(record(&mut shadow, 4, &[1], Kind::Read, Span::heap(0, 0, 8)).is_empty());
    }

    #[test]
    fn an_ordered_write_replaces_earlier_accesses() {
        let mut shadow = Shadow::default();
        for actor in 1..100 {
            let known: Vec<u64> = (1..actor).collect();
            assert!(record(&mut shadow, actor, &known, Kind::Write, Span::heap(0, 0, 64)).is_empty());
        }
        assert_eq!(record(&mut shadow, 100, &[], Kind::Read, Span::heap(0, 0, 8)).len(), 1);
    }

    #[test]
    fn all_concurrent_reads_are_kept() {
        let mut shadow = Shadow::default();
        for actor in 1..9 {
            assert!(record(&mut shadow, actor, &[], Kind::Read, Span::heap(0, 0, 8)).is_empty());
        }
        assert_eq!(record(&mut shadow, 9, &[3], Kind::Write, Span::heap(0, 4, 2)).len(), 7);
    }

    #[test]
    fn a_waiter_knows_the_word_and_no_more() {
        let mut shadow = Shadow::default();
        record(&mut shadow, 1, &[], Kind::Put, Span::heap(0, 0, 64));
        shadow.see(Span::heap(0, 56, 8), epoch(1), epoch(2));
        assert!(record(&mut shadow, 2, &[2], Kind::Read, Span::heap(0, 56, 8)).is_empty());
        assert_eq!(record(&mut shadow, 2, &[2], Kind::Read, Span::heap(0, 0, 64)).len(), 1);
    }

    #[test]
    fn new_memory_and_settled_accesses_are_forgotten() {
        let mut shadow = Shadow::default();
        record(&mut shadow, 1, &[], Kind::Write, Span::heap(0, 0, 64));
        record(&mut shadow, 2, &[], Kind::Write, Span::heap(0, 64, 64));
        shadow.clear(Span::heap(0, 0, 32));
        assert!(record(&mut shadow, 3, &[], Kind::Read, Span::heap(0, 0, 32)).is_empty());
        shadow.settle(|epoch| epoch.actor != ActorId(2));
        assert_eq!(shadow.len(), 1);
    }
}
