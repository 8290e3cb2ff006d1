//! Shadow memory: for each byte of symmetric and registered memory, the accesses with which later ones may race.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::access::{Access, Memory, Space, Span};
use crate::epoch::{ActorHasher, Epoch};
use crate::intervals::Bytes;
use crate::met::Met;
use crate::pages::{PAGE, Page, Part};

/// Number of pages per chunk of shadow memory. A chunk is found by one hash lookup.
const PAGES: u64 = 64;

/// Shadow pages with consecutive indices.
type Chunk = Box<[Page; PAGES as usize]>;

/// Shadow memory of one PE and kind of memory, by chunk index.
#[derive(Debug, Default)]
struct Chunks(HashMap<u64, Chunk, BuildHasherDefault<ActorHasher>>);

impl Chunks {
    fn page(&mut self, number: u64) -> Option<&mut Page> {
        self.0.get_mut(&(number / PAGES)).map(|chunk| &mut chunk[(number % PAGES) as usize])
    }

    fn page_or_new(&mut self, number: u64) -> &mut Page {
        let new = || Box::new(std::array::from_fn(|_| Page::default()));
        &mut self.0.entry(number / PAGES).or_insert_with(new)[(number % PAGES) as usize]
    }

    fn pages(&mut self) -> impl Iterator<Item = (u64, &mut Page)> {
        self.0.iter_mut().flat_map(|(chunk, pages)| (chunk * PAGES..).zip(pages.iter_mut()))
    }
}

/// Shadow memory of all PEs.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    /// Three entries for each PE, one per kind of memory, in the order of `index_of`.
    memories: Vec<Chunks>,
}

impl Shadow {
    /// Records an access by a thread or host. Returns the races it is part of, and the stores it replaces.
    ///
    /// `knows` returns whether an earlier step happens before the access. Learning of the access implies learning of
    /// that step.
    pub(crate) fn record(&mut self, span: Span, access: Access, knows: impl Fn(Epoch) -> bool) -> Met {
        self.record_operation(span, access, &knows, &knows)
    }

    /// Records an access by an operation. Returns the races it is part of, and the stores it replaces.
    ///
    /// `knows` returns whether an earlier step happens before the access, and `tells` whether learning of the operation
    /// implies learning of that step. The two differ because a word carries the write that made it, but not all that
    /// its writer knew.
    pub(crate) fn record_operation(
        &mut self,
        span: Span,
        access: Access,
        knows: impl Fn(Epoch) -> bool,
        tells: impl Fn(Epoch) -> bool,
    ) -> Met {
        let mut met = Met::default();
        let pages = self.pages_or_new(span.memory);
        for (number, (start, end)) in parts(span.bytes) {
            let part = Part { access, start, end, width: 0 };
            pages.page_or_new(number).add(number * PAGE, part, (&knows, &tells), &mut met);
        }
        met
    }

    /// Records a row in a page: equal accesses by consecutive actors, one for each `width` bytes of `span`. `access` is
    /// the first of them. `knows` returns whether the actor of an element knows an earlier step.
    ///
    /// Returns `false`, and records nothing, if the accesses must be recorded one by one, because one of them has a
    /// race or they replace different accesses.
    pub(crate) fn record_row(
        &mut self,
        span: Span,
        width: u8,
        access: Access,
        knows: impl Fn(u8, Epoch) -> bool,
    ) -> bool {
        let number = span.bytes.start / PAGE;
        let Some((start, end)) = part(span.bytes, number) else { return false };
        let row = Part { access, start, end, width };
        self.pages_or_new(span.memory).page_or_new(number).add_row(number * PAGE, row, knows)
    }

    fn pages_or_new(&mut self, memory: Memory) -> &mut Chunks {
        let index = index_of(memory);
        if index >= self.memories.len() {
            self.memories.resize_with(index + 1, Chunks::default);
        }
        &mut self.memories[index]
    }

    /// Returns the stores to peers that wrote the current values of these bytes.
    ///
    /// `is_write` returns whether an access that is not such a store has written the bytes.
    pub(crate) fn last_stores(
        &mut self,
        span: Span,
        is_write: impl Fn(&Access) -> bool,
    ) -> Vec<(Access, Bytes)> {
        let mut found = Vec::new();
        let Some(pages) = self.memories.get_mut(index_of(span.memory)) else { return found };
        for (number, range) in parts(span.bytes) {
            let Some(page) = pages.page(number) else { continue };
            page.each_group(number * PAGE, range, |bytes, accesses| {
                let last = accesses.iter().rfind(|access| access.is_store() || is_write(access));
                found.extend(last.filter(|last| last.is_store()).map(|store| (*store, bytes)));
            });
        }
        found
    }

    /// Records that `waiter` has waited for the value that `write` gave to these bytes, and therefore knows the write
    /// there.
    pub(crate) fn see(&mut self, span: Span, write: Epoch, waiter: Epoch) {
        let Some(pages) = self.memories.get_mut(index_of(span.memory)) else { return };
        for (number, range) in parts(span.bytes) {
            if let Some(page) = pages.page(number) {
                page.see(number * PAGE, range, write, waiter);
            }
        }
    }

    /// Forgets all accesses to a range, because it has been allocated for a new object.
    pub(crate) fn clear(&mut self, span: Span) {
        let Some(pages) = self.memories.get_mut(index_of(span.memory)) else { return };
        // A range with more pages than there are chunks for is cleared by walking over the chunks.
        if span.bytes.len() / PAGE > PAGES * pages.0.len() as u64 {
            return pages.pages().for_each(|(number, page)| {
                if let Some(range) = part(span.bytes, number) {
                    page.clear(number * PAGE, range);
                }
            });
        }
        for (number, range) in parts(span.bytes) {
            if let Some(page) = pages.page(number) {
                page.clear(number * PAGE, range);
            }
        }
    }

    /// Forgets accesses for which `has_settled` holds, because all live actors know them.
    pub(crate) fn settle(&mut self, has_settled: impl Fn(Epoch) -> bool) {
        for Chunks(chunks) in &mut self.memories {
            chunks.retain(|_, pages| {
                pages.iter_mut().for_each(|page| page.settle(&has_settled));
                pages.iter().any(|page| !page.is_empty())
            });
        }
    }

    /// Returns the number of ranges that have accesses.
    pub(crate) fn len(&self) -> usize {
        self.memories
            .iter()
            .flat_map(|chunks| chunks.0.values())
            .flat_map(|pages| pages.iter())
            .map(Page::len)
            .sum()
    }
}

/// Returns the index of a memory in the shadow memory of all PEs.
fn index_of(Memory { pe, space }: Memory) -> usize {
    let space = match space {
        Space::Heap => 0,
        Space::Local => 1,
        Space::Window => 2,
    };
    3 * pe as usize + space
}

/// Returns the part of a byte range that lies in page `number`, as offsets in that page, or `None` if there is none.
fn part(Bytes { start, end }: Bytes, number: u64) -> Option<(u8, u8)> {
    let base = number * PAGE;
    let (from, to) = (start.max(base), end.min(base + PAGE));
    (from < to).then(|| ((from - base) as u8, (to - base) as u8))
}

/// Splits a byte range into pages. Returns each page index with the offsets of the part in that page.
fn parts(bytes: Bytes) -> impl Iterator<Item = (u64, (u8, u8))> {
    let pages = bytes.start / PAGE..bytes.end.div_ceil(PAGE);
    pages.filter_map(move |number| Some((number, part(bytes, number)?)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::access::{CallId, Kind};
    use crate::clock::Clock;
    use crate::epoch::ActorId;

    fn epoch(actor: u64) -> Epoch {
        Epoch { actor: ActorId(actor), count: 1 }
    }

    fn record(shadow: &mut Shadow, actor: u64, known: &[u64], kind: Kind, span: Span) -> Vec<(u64, Bytes)> {
        let mut clock = Clock::default();
        known.iter().for_each(|&k| clock.raise(epoch(k)));
        let access = Access::new(epoch(actor), kind, span.bytes, CallId::default());
        let found = shadow.record(span, access, |epoch| clock.has(epoch));
        found.conflicts.into_iter().map(|conflict| (conflict.earlier.epoch.actor.0, conflict.bytes)).collect()
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
    fn a_write_meets_the_first_of_many_reads() {
        let read_by = |readers: std::ops::Range<u64>| {
            let mut shadow = Shadow::default();
            for actor in readers {
                assert!(record(&mut shadow, actor, &[], Kind::Read, Span::heap(0, 8, 8)).is_empty());
            }
            shadow
        };
        // The writer knows all readers except the first.
        let most: Vec<u64> = (2..1001).collect();
        let mut shadow = read_by(1..1001);
        let found = record(&mut shadow, 2000, &most, Kind::Write, Span::heap(0, 8, 4));
        assert_eq!(found, [(1, Bytes { start: 8, end: 12 })]);
        let all: Vec<u64> = (1..1001).collect();
        let mut shadow = read_by(1..1001);
        assert_eq!(record(&mut shadow, 2000, &all, Kind::Write, Span::heap(0, 0, 16)), []);
        assert_eq!(record(&mut shadow, 2001, &[2000], Kind::Write, Span::heap(0, 0, 16)), []);
        let mut shadow = read_by(1..1001);
        shadow.clear(Span::heap(0, 0, 16));
        assert_eq!(record(&mut shadow, 2000, &[], Kind::Write, Span::heap(0, 0, 16)), []);
        let mut shadow = read_by(1..1001);
        shadow.settle(|epoch| epoch.actor.0 > 1);
        assert_eq!(record(&mut shadow, 2000, &[], Kind::Write, Span::heap(0, 0, 16)).len(), 1);
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

    #[test]
    fn an_access_of_many_pages_has_few_ranges() {
        let mut shadow = Shadow::default();
        record(&mut shadow, 1, &[], Kind::Write, Span::heap(0, 36, 10 * PAGE));
        assert_eq!(shadow.len(), 11);
        for i in 0..32 {
            record(&mut shadow, 2, &[1], Kind::Read, Span::heap(0, PAGE + 8 * i, 8));
        }
        assert_eq!(shadow.len(), 11, "equal neighbours are one range");
        shadow.clear(Span::heap(0, 0, 1 << 40));
        assert_eq!(record(&mut shadow, 3, &[], Kind::Write, Span::heap(0, 0, 20 * PAGE)), []);
    }

    /// Records an access byte by byte. Returns the earlier ones that conflict, each with the range of common bytes.
    fn record_bytes(
        bytes: &mut [Vec<Access>],
        access: Access,
        range: Bytes,
        knows: impl Fn(Epoch) -> bool,
    ) -> Vec<(u64, Bytes)> {
        let mut found: Vec<(u64, Bytes)> = Vec::new();
        for at in range.start..range.end {
            let old = &mut bytes[at as usize];
            if old.last() == Some(&access) {
                continue;
            }
            for first in old.iter().filter(|first| first.conflicts(&access) && !knows(first.epoch)) {
                let actor = first.epoch.actor.0;
                match found.iter_mut().find(|(known, _)| *known == actor) {
                    Some((_, bytes)) => {
                        *bytes = Bytes { start: at.min(bytes.start), end: bytes.end.max(at + 1) }
                    }
                    None => found.push((actor, Bytes { start: at, end: at + 1 })),
                }
            }
            old.retain(|first| !(access.absorbs(first) && knows(first.epoch)));
            old.push(access);
        }
        found.sort_unstable();
        found
    }

    const KINDS: [Kind; 5] = [Kind::Read, Kind::Write, Kind::Put, Kind::Wait, Kind::Atomic];

    fn elements(first: u64, (at, count, width): (u64, u64, u8), kind: Kind) -> Vec<(Access, Bytes)> {
        let element = |i: u64| {
            let start = at + i * u64::from(width);
            let bytes = Bytes { start, end: start + u64::from(width) };
            (Access::new(epoch(first + i), kind, bytes, CallId::default()), bytes)
        };
        (0..count).map(element).collect()
    }

    proptest! {
        #[test]
        fn behaves_like_lists_of_bytes(
            accesses in prop::collection::vec((0..600u64, 1..40u64, 0..5usize, any::<u64>()), 0..60),
        ) {
            let (mut shadow, mut bytes) = (Shadow::default(), vec![Vec::new(); 1024]);
            for (actor, (start, len, kind, known)) in accesses.into_iter().enumerate() {
                let len = if len > 30 { 10 * len } else { len };
                let span = Span::heap(0, start, len);
                let access = Access::new(epoch(actor as u64), KINDS[kind], span.bytes, CallId::default());
                let knows = |epoch: Epoch| known >> (epoch.actor.0 % 64) & 1 == 1;
                let found = shadow.record(span, access, knows);
                let mut found: Vec<_> = found.conflicts.into_iter().map(|c| (c.earlier.epoch.actor.0, c.bytes)).collect();
                found.sort_unstable();
                prop_assert_eq!(found, record_bytes(&mut bytes, access, span.bytes, knows));
            }
        }

        #[test]
        fn a_row_is_the_same_as_its_accesses(
            steps in prop::collection::vec(
                ((0..2u64, 0..64u64, 1..17u64, 0..4u8), 0..5usize, any::<u64>(), any::<bool>()), 0..40),
        ) {
            let (mut shadow, mut bytes) = (Shadow::default(), vec![Vec::new(); 256]);
            for (step, ((page, at, count, shift), kind, known, is_alike)) in steps.into_iter().enumerate() {
                let (width, first) = (1 << shift, 64 * step as u64);
                let at = at / u64::from(width) * u64::from(width);
                let count = count.min((PAGE - at) / u64::from(width));
                let is_row = kind < 2 && count > 1;
                let row = (page * PAGE + at, count, width);
                // Most rows are ordered after all elements of some other rows.
                let knows = |i: u64, epoch: Epoch| {
                    let (other, seed) = (epoch.actor.0 / 64, known.rotate_left(if is_alike { 0 } else { i as u32 }));
                    let bit = if is_alike { other } else { other + epoch.actor.0 };
                    other as usize == step && epoch.actor.0 == first + i || seed >> (bit % 64) & 1 == 1
                };
                let all = elements(first, row, KINDS[kind]);
                let (first_access, _) = all[0];
                let span = Span::heap(0, row.0, count * u64::from(width));
                let is_added = is_row && shadow.record_row(span, width, first_access, |i, epoch| knows(i.into(), epoch));
                for (i, (access, range)) in (0..).zip(all) {
                    let wanted = record_bytes(&mut bytes, access, range, |epoch| knows(i, epoch));
                    if is_added {
                        prop_assert_eq!(&wanted, &[]);
                        continue;
                    }
                    let span = Span::heap(0, range.start, range.len());
                    let met = shadow.record(span, access, |epoch| knows(i, epoch));
                    let mut found: Vec<_> = met.conflicts.iter().map(|c| (c.earlier.epoch.actor.0, c.bytes)).collect();
                    found.sort_unstable();
                    prop_assert_eq!(found, wanted);
                }
            }
        }
    }
}
