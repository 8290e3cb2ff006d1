//! Records of accesses, in pages of memory.

use crate::access::{Access, Kind};
use crate::calls::CallId;
use crate::clock::{ActorId, Epoch};
use crate::intervals::Bytes;

/// The number of bytes of a page.
pub(crate) const PAGE: u64 = 256;

/// The most accesses that are kept for the same bytes. Only words that many actors update without an order have more.
const MOST: usize = 64;

/// An access of some bytes of a page. Most words have a few, so it is small.
#[derive(Clone, Debug, PartialEq)]
struct Record {
    actor: ActorId,
    count: u32,
    call: CallId,
    /// The bytes, from the begin of the page.
    start: u16,
    end: u16,
    kind: Kind,
    more: Option<Box<More>>,
}

/// The rest of a record, which few have.
#[derive(Clone, Debug, Default, PartialEq)]
struct More {
    /// The whole range of the access, if it has one and its record has only a part.
    extent: Option<Bytes>,
    /// Steps of actors that have waited for the value of these bytes, so that they know the access.
    seen: Vec<Epoch>,
}

impl Record {
    /// Returns the record of the part of an access from `start` to `end`.
    fn new(access: &Access, base: u64, (start, end): (u16, u16)) -> Self {
        let part = Bytes { start: base + u64::from(start), end: base + u64::from(end) };
        let extent = access.extent.filter(|&whole| whole != part);
        let more = extent.map(|whole| Box::new(More { extent: Some(whole), seen: Vec::new() }));
        let Epoch { actor, count } = access.epoch;
        Self { actor, count, call: access.call, start, end, kind: access.kind, more }
    }

    fn epoch(&self) -> Epoch {
        Epoch { actor: self.actor, count: self.count }
    }

    fn bytes(&self, base: u64) -> Bytes {
        Bytes { start: base + u64::from(self.start), end: base + u64::from(self.end) }
    }

    fn access(&self, base: u64) -> Access {
        let whole = self.more.as_ref().and_then(|more| more.extent).unwrap_or_else(|| self.bytes(base));
        Access::new(self.epoch(), self.kind, whole, self.call)
    }

    fn seen(&self) -> &[Epoch] {
        self.more.as_ref().map_or(&[], |more| &more.seen)
    }

    /// Returns whether the two accesses are equal but for their bytes in the page.
    fn is_like(&self, other: &Self) -> bool {
        let of = |record: &Self| (record.actor, record.count, record.call, record.kind);
        let extents = |record: &Self| record.kind.has_extent() && record.more.is_none();
        of(self) == of(other) && self.more == other.more && !extents(self)
    }

    /// Cuts the record to a part of its bytes.
    fn cut(mut self, base: u64, (start, end): (u16, u16)) -> Self {
        if self.kind.has_extent() {
            let whole = self.bytes(base);
            self.more.get_or_insert_default().extent.get_or_insert(whole);
        }
        Self { start, end, ..self }
    }
}

/// The accesses of a page: records in the order of bytes. Records of the same bytes lie together, in the order of execution.
#[derive(Debug, Default)]
pub(crate) struct Page {
    records: Vec<Record>,
}

impl Page {
    /// Adds the part of an access from `start` to `end`. Tells `conflict` of earlier accesses without an order, and the
    /// bytes in common.
    pub(crate) fn add(
        &mut self,
        base: u64,
        (start, end): (u16, u16),
        access: &Access,
        knows: &impl Fn(Epoch) -> bool,
        conflict: &mut impl FnMut(Access, Bytes),
    ) {
        let (mut first, mut last) = self.inside(start, end);
        if self.is_held(first, last, (start, end), access, base) {
            return;
        }
        if first < last && (self.records[first].start < start || self.records[last - 1].end > end) {
            self.split(base, start);
            self.split(base, end);
            (first, last) = self.inside(start, end);
        }
        let mut kept = first;
        for at in first..last {
            let record = &self.records[at];
            let old = record.access(base);
            let (conflicts, absorbs) = (old.conflicts(access), access.absorbs(&old));
            let is_ordered =
                (conflicts || absorbs) && (knows(old.epoch) || record.seen().iter().any(|&seen| knows(seen)));
            if conflicts && !is_ordered {
                conflict(old, record.bytes(base));
            }
            if !(absorbs && is_ordered) {
                self.records.swap(kept, at);
                kept += 1;
            }
        }
        let new = |from, to| Record::new(access, base, (from, to));
        if kept == first {
            self.replace(first, last, new(start, end));
        } else {
            self.records.drain(kept..last);
            self.add_to_groups(first, kept, (start, end), new);
        }
        self.merge_before(first);
    }

    /// Returns the indices of the records that overlap a range.
    fn inside(&self, start: u16, end: u16) -> (usize, usize) {
        let first = self.records.partition_point(|record| record.end <= start);
        let others = self.records[first..].iter();
        (first, first + others.take_while(|record| record.start < end).count())
    }

    /// Returns whether the last record of exactly one group is this access already.
    fn is_held(
        &self,
        first: usize,
        last: usize,
        (start, end): (u16, u16),
        access: &Access,
        base: u64,
    ) -> bool {
        let Some(record) = self.records[first..last].last() else { return false };
        record.epoch() == access.epoch
            && record.start <= start
            && end <= record.end
            && record.seen().is_empty()
            && record.access(base) == *access
    }

    /// Replaces some records by one.
    fn replace(&mut self, first: usize, last: usize, new: Record) {
        if first < last {
            self.records[first] = new;
            self.records.drain(first + 1..last);
            return;
        }
        if self.records.is_empty() {
            // Most pages of a long transfer have one record.
            self.records.reserve_exact(1);
        }
        self.records.insert(first, new);
    }

    /// Adds records to the groups from `first` to `last`, and in the gaps between them.
    fn add_to_groups(
        &mut self,
        first: usize,
        last: usize,
        (start, end): (u16, u16),
        new: impl Fn(u16, u16) -> Record,
    ) {
        let (head, tail) = (&self.records[first], &self.records[last - 1]);
        if (head.start, tail.start) == (start, start) && head.end == end {
            self.records.insert(last, new(start, end));
            if last - first == MOST {
                self.records.remove(first);
            }
            return;
        }
        let (mut all, mut at) = (Vec::new(), start);
        let old: Vec<Record> = self.records.drain(first..last).collect();
        for group in old.chunk_by(|a, b| a.start == b.start) {
            let (from, to) = (group[0].start, group[0].end);
            if at < from {
                all.push(new(at, from));
            }
            let skipped = usize::from(group.len() == MOST);
            all.extend_from_slice(&group[skipped..]);
            all.push(new(from, to));
            at = to;
        }
        if at < end {
            all.push(new(at, end));
        }
        self.records.splice(first..first, all);
    }

    /// Makes `at` a boundary.
    fn split(&mut self, base: u64, at: u16) {
        let (first, last) = self.inside(at, at + 1);
        let group = &self.records[first..last];
        let Some(&Record { start, end, .. }) = group.first() else { return };
        if start < at {
            let right: Vec<Record> = group.iter().map(|record| record.clone().cut(base, (at, end))).collect();
            let left = self.records[first..last].iter_mut();
            left.for_each(|record| *record = record.clone().cut(base, (start, at)));
            self.records.splice(last..last, right);
        }
    }

    /// Merges the group that begins at index `at` with the one before it, if they have the same accesses.
    fn merge_before(&mut self, at: usize) {
        let (left, right) = self.records.split_at(at);
        let group = |records: &[Record]| records.iter().take_while(|r| r.start == records[0].start).count();
        let (Some(before), count) = (left.last(), group(right)) else { return };
        let Some(last) = right[..count].last() else { return };
        if before.end != last.start || !before.is_like(last) || left.len() < count {
            return;
        }
        let (first, end) = (at - count, last.end);
        let is_whole = left[..first].last().is_none_or(|other| other.start != before.start);
        if is_whole && left[first..].iter().zip(right).all(|(a, b)| a.start == before.start && a.is_like(b)) {
            self.records.drain(at..at + count);
            self.records[first..at].iter_mut().for_each(|record| record.end = end);
        }
    }

    /// Notes that an actor has waited for the value that `write` gave to these bytes.
    pub(crate) fn see(&mut self, base: u64, (start, end): (u16, u16), write: Epoch, waiter: Epoch) {
        let (first, last) = self.inside(start, end);
        if !self.records[first..last].iter().any(|record| record.epoch() == write) {
            return;
        }
        self.split(base, start);
        self.split(base, end);
        let (first, last) = self.inside(start, end);
        for record in self.records[first..last].iter_mut().filter(|record| record.epoch() == write) {
            let seen = &mut record.more.get_or_insert_default().seen;
            if !seen.contains(&waiter) {
                seen.push(waiter);
            }
        }
    }

    /// Forgets the accesses of a range.
    pub(crate) fn clear(&mut self, base: u64, (start, end): (u16, u16)) {
        self.split(base, start);
        self.split(base, end);
        let (first, last) = self.inside(start, end);
        self.records.drain(first..last);
    }

    /// Forgets the accesses that everybody knows. Returns whether some are left.
    pub(crate) fn settle(&mut self, has_settled: &impl Fn(Epoch) -> bool) -> bool {
        self.records.retain(|record| {
            !has_settled(record.epoch()) && !record.seen().iter().any(|&seen| has_settled(seen))
        });
        !self.records.is_empty()
    }

    /// Returns the number of groups.
    pub(crate) fn len(&self) -> usize {
        self.records.chunk_by(|a, b| a.start == b.start).count()
    }
}
