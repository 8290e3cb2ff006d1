//! Pages of shadow memory: packed records of the accesses to 64 bytes.

use crate::access::{Access, CallId, Kind};
use crate::crowds::{Crowds, Member};
use crate::epoch::{ActorId, Epoch};
use crate::intervals::Bytes;
use crate::met::{Conflict, Met};

/// Size of a page in bytes.
pub(crate) const PAGE: u64 = 64;

/// Maximum number of individual records for the same bytes. Older reads are moved to [`Crowds`], and older updates are
/// dropped.
const MAX_RECORDS: usize = 64;

/// The part of an access that lies in one page, or a *row*: equal plain accesses of consecutive actors to consecutive
/// elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The access. In a row, that of the first actor.
    pub(crate) access: Access,
    /// Offset of the part's first byte in the page; `end` is the offset past its last byte.
    pub(crate) start: u8,
    pub(crate) end: u8,
    /// Length of each element in a row, or 0 for a single access.
    pub(crate) width: u8,
}

/// An access to some bytes of a page, or a row of accesses. Packed into 16 bytes, because most words have several.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Record {
    /// The low 32 bits of the actor ID. The field `upper` has the others.
    actor: u32,
    upper: u8,
    /// Offset of the first byte in the page; `end` is the offset past the last byte.
    start: u8,
    end: u8,
    kind: Kind,
    count: u32,
    /// The low 16 bits of the call ID. The field `call_upper` has the others.
    call: u16,
    call_upper: u8,
    /// Length of each element in a row, or 0 for a single access.
    width: u8,
}

const _: () = assert!(size_of::<Record>() == 16);

impl Record {
    fn new(&Part { access, start, end, width }: &Part) -> Self {
        let Access { epoch: Epoch { actor: ActorId(actor), count }, kind, call: CallId(call), .. } = access;
        let (call, call_upper) = (call as u16, (call >> 16) as u8);
        Self {
            actor: actor as u32,
            upper: (actor >> 32) as u8,
            start,
            end,
            kind,
            count,
            call,
            call_upper,
            width,
        }
    }

    /// Returns the step of the access. In a row, that of the first element.
    fn epoch(&self) -> Epoch {
        Epoch { actor: ActorId(u64::from(self.actor) | u64::from(self.upper) << 32), count: self.count }
    }

    fn call(&self) -> CallId {
        CallId(u32::from(self.call) | u32::from(self.call_upper) << 16)
    }

    /// Returns the part of the record from offset `start` to `end`. In a row, both must be element boundaries.
    fn cut(&self, start: u8, end: u8) -> Self {
        if self.width == 0 {
            return Self { start, end, ..*self };
        }
        let actor = self.epoch().actor.0 + u64::from((start - self.start) / self.width);
        let width = if end - start == self.width { 0 } else { self.width };
        Self { actor: actor as u32, upper: (actor >> 32) as u8, start, end, width, ..*self }
    }

    /// Returns the step of each element of a row with the element's offset, or the only step of a single access.
    fn epochs(&self) -> impl Iterator<Item = (u8, Epoch)> {
        let (Epoch { actor: ActorId(first), count }, width) = (self.epoch(), self.width);
        let elements = (self.end - self.start).checked_div(width).unwrap_or(1);
        (0..elements)
            .map(move |i| (self.start + i * width, Epoch { actor: ActorId(first + u64::from(i)), count }))
    }

    /// Whether the record can be split at offset `at`: in a row, it must be an element boundary.
    fn may_be_cut(&self, at: u8) -> bool {
        self.width == 0 || (at - self.start).is_multiple_of(self.width)
    }

    fn bytes(&self, base: u64) -> Bytes {
        Bytes { start: base + u64::from(self.start), end: base + u64::from(self.end) }
    }
}

/// The recorded accesses to a page of 64 bytes.
///
/// Records are sorted by offset. Those of the same bytes form a group in the order of execution.
#[derive(Debug, Default)]
pub(crate) struct Page {
    records: Vec<Record>,
    notes: Option<Box<Notes>>,
}

/// Additional information about a few records of a page.
#[derive(Debug, Default)]
struct Notes {
    /// Complete ranges of accesses that are only partly recorded in this page.
    extents: Vec<(Epoch, Kind, Bytes)>,
    /// Writes observed by waits: the write, its byte range, and the step of the waiting actor, which knows the write
    /// there.
    seen: Vec<(Epoch, (u8, u8), Epoch)>,
    /// Reads in excess of [`MAX_RECORDS`].
    crowds: Crowds,
}

impl Notes {
    /// Drops information about accesses that have no record any more.
    fn retain(&mut self, records: &[Record]) {
        let is_there = |epoch: Epoch| records.iter().any(|record| record.epoch() == epoch);
        self.extents.retain(|(epoch, ..)| is_there(*epoch));
        self.seen.retain(|(epoch, ..)| is_there(*epoch));
    }

    fn is_empty(&self) -> bool {
        self.extents.is_empty() && self.seen.is_empty() && self.crowds.is_empty()
    }
}

impl Page {
    /// Adds a part of an access. Reports to `met` the earlier accesses that it races with, and the stores to peers that
    /// it replaces.
    ///
    /// A write replaces the accesses that it follows, since whatever conflicts with them also conflicts with it. A read
    /// replaces earlier reads only if nobody can learn of it without learning of them.
    pub(crate) fn add(
        &mut self,
        base: u64,
        part: Part,
        (knows, tells): (&impl Fn(Epoch) -> bool, &impl Fn(Epoch) -> bool),
        met: &mut Met,
    ) {
        let Part { ref access, start, end, .. } = part;
        if access.kind.changes()
            && let Some(notes) = &mut self.notes
        {
            notes.crowds.meet(base, (start, end), access, knows, met);
        }
        let (mut first, mut last) = self.inside(start, end);
        // An access that repeats the last one within the same step adds nothing.
        if self.is_held(first, last, &part, base) {
            return;
        }
        // Split the records at both bounds of the access. Each is then either inside or outside.
        if first < last && (self.records[first].start < start || self.records[last - 1].end > end) {
            self.split(base, start);
            self.split(base, end);
            (first, last) = self.inside(start, end);
        }
        // A row is kept whole only if the access treats all of its elements alike.
        if self.records[first..last].iter().any(|record| record.width > 0) {
            self.split_rows(base, first, last, access, knows);
            (first, last) = self.inside(start, end);
        }
        let mut kept = first;
        for at in first..last {
            let record = self.records[at];
            let old = self.access(&record, base);
            let (conflicts, absorbs) = (old.conflicts(access), access.absorbs(&old));
            // Whoever waited for the value of a write knows that write, but only for these bytes.
            let is_ordered = (conflicts || absorbs) && (knows(old.epoch) || self.has_seen(&record, knows));
            if conflicts && !is_ordered {
                met.add_conflict(Conflict { earlier: old, bytes: record.bytes(base) });
            }
            // Drop the old record only if this access takes its place for every later one.
            if !(absorbs && is_ordered && (access.kind.changes() || tells(old.epoch))) {
                self.records[kept] = record;
                kept += 1;
            // The value of the word would be lost with its last store.
            } else if old.is_store() && self.is_last_write(at) {
                met.lost.push((old, record.bytes(base)));
            }
        }
        self.insert(base, (first, kept, last), &part);
        if kept < last {
            self.tidy();
        }
    }

    /// Adds a row if it conflicts with nothing and all of its elements replace the same earlier accesses. Returns
    /// whether it was added. `knows` returns whether the actor of an element knows an earlier step.
    pub(crate) fn add_row(&mut self, base: u64, row: Part, knows: impl Fn(u8, Epoch) -> bool) -> bool {
        let Part { ref access, start, end, width } = row;
        let has_crowd = self.notes.as_ref().is_some_and(|notes| !notes.crowds.is_empty());
        // The elements may conflict with different reads of a crowd.
        if has_crowd && access.kind.changes() {
            return false;
        }
        self.split(base, start);
        self.split(base, end);
        let (first, last) = self.inside(start, end);
        let mut kept = first;
        let mut replaced = 0u64;
        for at in first..last {
            let record = self.records[at];
            let old = self.access(&record, base);
            let (conflicts, absorbs) = (old.conflicts(access), access.absorbs(&old));
            // Records that do not align with the elements need single accesses, and the bit mask has room for 64
            // records.
            let is_fit = |at: u8| (at - start).is_multiple_of(width);
            if !(is_fit(record.start) && is_fit(record.end) && at - first < 64) {
                return false;
            }
            if !(conflicts || absorbs) {
                continue;
            }
            // Compare element by element, in steps of the shorter elements of the two rows.
            let step = if record.width == 0 { width } else { width.min(record.width) };
            let mut relations = (record.start..record.end).step_by(step.into()).map(|at| {
                let Epoch { actor: ActorId(actor), count } = record.epoch();
                let old = (at - record.start).checked_div(record.width).unwrap_or(0);
                let element = (at - start) / width;
                knows(element, Epoch { actor: ActorId(actor + u64::from(old)), count })
            });
            let is_ordered = relations.next().unwrap_or(true);
            // Rows are only for the case in which every element has the same relation to the record.
            if relations.any(|other| other != is_ordered) || conflicts && !is_ordered || old.is_store() {
                return false;
            }
            if absorbs && is_ordered {
                replaced |= 1 << (at - first);
            }
        }
        // Up to here only boundaries have changed, so the caller could still add the accesses one by one.
        for at in first..last {
            if replaced >> (at - first) & 1 == 0 {
                self.records[kept] = self.records[at];
                kept += 1;
            }
        }
        self.insert(base, (first, kept, last), &row);
        if kept < last {
            self.tidy();
        }
        true
    }

    /// Splits the rows at indices `first` to `last` into elements, except rows that the access follows completely, or
    /// not at all and without a conflict.
    fn split_rows(
        &mut self,
        base: u64,
        first: usize,
        last: usize,
        access: &Access,
        knows: &impl Fn(Epoch) -> bool,
    ) {
        let is_whole = |row: &Record| {
            let is_first_known = knows(row.epoch());
            (is_first_known || !self.access(row, base).conflicts(access))
                && row.epochs().all(|(_, epoch)| knows(epoch) == is_first_known)
        };
        let rows = self.records[first..last].iter().filter(|record| record.width > 0 && !is_whole(record));
        let places: Vec<u8> = rows.flat_map(|row| row.epochs().map(|(at, _)| at)).collect();
        places.into_iter().for_each(|at| self.split(base, at));
    }

    /// Whether no later record of the same bytes is a write.
    fn is_last_write(&self, at: usize) -> bool {
        let mut later = self.records[at + 1..].iter().take_while(|r| r.start == self.records[at].start);
        !later.any(|record| record.kind.changes())
    }

    /// Returns the index range of the records that overlap a byte range.
    fn inside(&self, start: u8, end: u8) -> (usize, usize) {
        let records = &self.records;
        // Start from a guess, because most pages have about the same number of records for each word.
        let mut first = records.len() * usize::from(start) / PAGE as usize;
        while first > 0 && records[first - 1].end > start {
            first -= 1;
        }
        while first < records.len() && records[first].end <= start {
            first += 1;
        }
        (first, first + records[first..].iter().take_while(|record| record.start < end).count())
    }

    fn access(&self, record: &Record, base: u64) -> Access {
        Access::new(record.epoch(), record.kind, self.extent(record, base), record.call())
    }

    /// Returns the complete range of an access if it is known, and the range of the record otherwise.
    fn extent(&self, record: &Record, base: u64) -> Bytes {
        let (part, epoch) = (record.bytes(base), record.epoch());
        let mut extents = self.notes.iter().flat_map(|notes| &notes.extents);
        let is_of = |&&(of, kind, whole): &&(Epoch, Kind, Bytes)| {
            (of, kind) == (epoch, record.kind) && whole.contains(part)
        };
        extents.find(is_of).map_or(part, |&(.., whole)| whole)
    }

    /// Whether `knows` holds for the step of an actor that has waited for the value written by this record.
    fn has_seen(&self, record: &Record, knows: &impl Fn(Epoch) -> bool) -> bool {
        let Some(notes) = &self.notes else { return false };
        let is_of = |write: Epoch, (start, end): (u8, u8)| {
            write == record.epoch() && start <= record.start && record.end <= end
        };
        notes.seen.iter().any(|&(write, range, waiter)| is_of(write, range) && knows(waiter))
    }

    /// Whether the last record of the range already represents this access.
    fn is_held(&self, first: usize, last: usize, part: &Part, base: u64) -> bool {
        let Some(record) = self.records[first..last].last() else { return false };
        let Part { access, start, end, .. } = *part;
        record.width == 0
            && record.epoch() == access.epoch
            && record.start <= start
            && end <= record.end
            && self.access(record, base) == access
            && !self.has_seen(record, &|_| true)
    }

    /// Inserts the records for a part of an access. The records from index `first` to `kept` stay, and those up to
    /// `last` are dropped.
    fn insert(&mut self, base: u64, (first, kept, last): (usize, usize, usize), part: &Part) {
        let new = Record::new(part);
        let group = &self.records[first..kept];
        let is_one_group = group.iter().all(|record| (record.start, record.end) == (new.start, new.end));
        if !is_one_group {
            return self.insert_in_groups(base, (first, kept, last), part);
        }
        if part.access.extent.is_some_and(|whole| whole != new.bytes(base)) {
            self.note_extent(&part.access);
        }
        if self.records.is_empty() {
            // Most pages of a long transfer have a single record.
            self.records.reserve_exact(1);
        }
        if kept < last {
            self.records[kept] = new;
            self.records.drain(kept + 1..last);
        } else {
            self.records.insert(kept, new);
        }
        // The group is full, so its oldest record becomes part of a crowd or is forgotten.
        if kept - first == MAX_RECORDS {
            let oldest = self.records.remove(first);
            self.crowd(base, &oldest);
        }
        self.merge_before(base, first);
    }

    /// Moves the record of a read to the crowds of the page. Records of updates are dropped.
    fn crowd(&mut self, base: u64, record: &Record) {
        if record.kind.changes() {
            return;
        }
        let access = self.access(record, base);
        let is_whole = access.extent.is_none_or(|whole| whole == record.bytes(base));
        if record.width == 0 && is_whole {
            let Record { kind, start, end, .. } = *record;
            let member = Member { kind, range: (start, end), call: record.call() };
            self.notes.get_or_insert_default().crowds.add(member, record.epoch());
        }
    }

    /// Inserts the records for a part of an access after each group of records, and into the gaps between groups.
    fn insert_in_groups(&mut self, base: u64, (first, kept, last): (usize, usize, usize), part: &Part) {
        let (new, Part { start, end, .. }) = (Record::new(part), *part);
        self.records.drain(kept..last);
        let old: Vec<Record> = self.records.drain(first..kept).collect();
        let (mut all, mut at) = (Vec::new(), start);
        for group in old.chunk_by(|a, b| a.start == b.start) {
            let (from, to) = (group[0].start, group[0].end);
            if at < from {
                all.push(new.cut(at, from));
            }
            let skipped = usize::from(group.len() == MAX_RECORDS);
            group[..skipped].iter().for_each(|oldest| self.crowd(base, oldest));
            all.extend_from_slice(&group[skipped..]);
            all.push(new.cut(from, to));
            at = to;
        }
        if at < end {
            all.push(new.cut(at, end));
        }
        self.records.splice(first..first, all);
        self.note_extent(&part.access);
    }

    /// Stores the complete range of an access, if conflicts depend on it.
    fn note_extent(&mut self, access: &Access) {
        let Some(whole) = access.extent else { return };
        let note = (access.epoch, access.kind, whole);
        let extents = &mut self.notes.get_or_insert_default().extents;
        if !extents.contains(&note) {
            extents.push(note);
        }
    }

    /// Splits the records that contain offset `at` in two.
    fn split(&mut self, base: u64, at: u8) {
        let (first, last) = self.inside(at, at + 1);
        let Some(&Record { start, end, .. }) = self.records[first..last].first() else { return };
        if start >= at {
            return;
        }
        if let Some(row) = self.records[first..last].iter().find(|record| !record.may_be_cut(at)) {
            // Cuts out the element that contains `at`, which is then a single access.
            let (from, to) = (at - (at - start) % row.width, at - (at - start) % row.width + row.width);
            self.split(base, from);
            self.split(base, to);
            return self.split(base, at);
        }
        // The parts no longer show the complete range.
        for i in first..last {
            let access = self.access(&self.records[i], base);
            self.note_extent(&access);
        }
        let left = &mut self.records[first..last];
        let right: Vec<Record> = left.iter().map(|record| record.cut(at, end)).collect();
        left.iter_mut().for_each(|record| *record = record.cut(start, at));
        self.records.splice(last..last, right);
    }

    /// Merges the group of records that starts at index `at` with the preceding group if both are parts of the same
    /// accesses.
    fn merge_before(&mut self, base: u64, at: usize) {
        let (left, right) = self.records.split_at(at);
        let group = |records: &[Record]| records.iter().take_while(|r| r.start == records[0].start).count();
        let (Some(before), count) = (left.last(), group(right)) else { return };
        let Some(last) = right[..count].last() else { return };
        let are_alike = |a: &Record, b: &Record| {
            a.width == 0
                && Record { start: b.start, end: b.end, ..*a } == *b
                && (!a.kind.has_extent() || self.extent(a, base) == self.extent(b, base))
        };
        let has_seen = self.notes.as_ref().is_some_and(|notes| !notes.seen.is_empty());
        if has_seen || before.end != last.start || left.len() < count || !are_alike(before, last) {
            return;
        }
        let (first, end) = (at - count, last.end);
        let is_whole = left[..first].last().is_none_or(|other| other.start != before.start);
        if is_whole
            && left[first..].iter().zip(right).all(|(a, b)| a.start == before.start && are_alike(a, b))
        {
            self.records.drain(at..at + count);
            self.records[first..at].iter_mut().for_each(|record| record.end = end);
        }
    }

    /// Records that an actor has waited for the value that `write` gave to these bytes.
    pub(crate) fn see(&mut self, base: u64, (start, end): (u8, u8), write: Epoch, waiter: Epoch) {
        let (first, last) = self.inside(start, end);
        if !self.records[first..last].iter().any(|record| record.epoch() == write) {
            return;
        }
        self.split(base, start);
        self.split(base, end);
        let (note, seen) = ((write, (start, end), waiter), &mut self.notes.get_or_insert_default().seen);
        if !seen.contains(&note) {
            seen.push(note);
        }
    }

    /// Calls `f` for each group of records that overlaps a range, with the common bytes and the accesses in the order
    /// of execution.
    pub(crate) fn each_group(&self, base: u64, (start, end): (u8, u8), mut f: impl FnMut(Bytes, &[Access])) {
        let (first, last) = self.inside(start, end);
        for group in self.records[first..last].chunk_by(|a, b| a.start == b.start) {
            let common = Record { start: group[0].start.max(start), end: group[0].end.min(end), ..group[0] };
            let accesses: Vec<Access> = group.iter().map(|record| self.access(record, base)).collect();
            f(common.bytes(base), &accesses);
        }
    }

    /// Drops the records of accesses to a range of bytes.
    pub(crate) fn clear(&mut self, base: u64, (start, end): (u8, u8)) {
        self.split(base, start);
        self.split(base, end);
        let (first, last) = self.inside(start, end);
        self.records.drain(first..last);
        self.notes.iter_mut().for_each(|notes| notes.crowds.clear((start, end)));
        self.tidy();
    }

    /// Drops the records of accesses for which `has_settled` holds, because all live actors know them.
    pub(crate) fn settle(&mut self, has_settled: &impl Fn(Epoch) -> bool) {
        let mut records = std::mem::take(&mut self.records);
        records.retain(|record| !has_settled(record.epoch()) && !self.has_seen(record, has_settled));
        self.records = records;
        self.notes.iter_mut().for_each(|notes| notes.crowds.settle(has_settled));
        self.tidy();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.notes.is_none()
    }

    /// Drops information about accesses that have no record any more.
    fn tidy(&mut self) {
        if let Some(notes) = &mut self.notes {
            notes.retain(&self.records);
            self.notes.take_if(|notes| notes.is_empty());
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.records.chunk_by(|a, b| a.start == b.start).count()
    }
}
