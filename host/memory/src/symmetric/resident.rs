//! The segment table of kernels that the runtime does not launch: it never moves, and is updated in place.
//!
//! Such kernels hold its address: as an argument, or in a captured graph. They may run while the host updates the
//! table, so each update becomes visible in an order in which no kernel finds an incomplete segment.

use std::mem::{offset_of, size_of};
use std::sync::Arc;

use bytemuck::{Pod, bytes_of};
use rushmem_device::abi::{CtxParts, DevAddr, SegmentDesc, SegmentEnd, SegmentTable};
use rushmem_error::{Error, Result};
use rushmem_machine::{Machine, Region};

use super::segment::{Segment, adapt};

/// Maximum number of segments in the table at the same time.
const SLOTS: usize = 64;

/// A segment table with a fixed address.
pub(super) struct ResidentTable {
    region: Region,
    /// The context in the table.
    parts: CtxParts,
    /// For each slot in use, the first offset of its segment. Offsets are never reused, so they identify segments.
    slots: Vec<Option<u64>>,
    tail_bytes: u64,
}

/// Offset of the first descriptor.
const DESCS: u64 = size_of::<SegmentTable>() as u64;

/// Offset of the first tail: keys and addresses of a segment.
const TAILS: u64 =
    (DESCS + (SLOTS * size_of::<SegmentDesc>()) as u64).next_multiple_of(size_of::<SegmentEnd>() as u64);

impl ResidentTable {
    /// Creates a table without segments. `own` is the PE's kernel context without segments.
    pub(super) fn new(machine: &dyn Machine, own: CtxParts) -> Result<Self> {
        let ends = own.rails as usize * (own.n_pes as usize + 1);
        let tail = ends * size_of::<SegmentEnd>() + own.n_pes as usize * size_of::<DevAddr>();
        let tail_bytes = (tail as u64).next_multiple_of(size_of::<SegmentEnd>() as u64);
        let region = machine.local(TAILS + SLOTS as u64 * tail_bytes)?;
        let parts = CtxParts { segments: region.addr, ..own };
        region.write(0, bytes_of(&SegmentTable { parts, count: 0, in_place: 1 }))?;
        Ok(Self { region, parts, slots: Vec::new(), tail_bytes })
    }

    pub(super) fn addr(&self) -> DevAddr {
        self.region.addr
    }

    /// Checks that there is room for one more segment.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if there is none.
    pub(super) fn check_room(&self) -> Result<()> {
        if self.slots.iter().flatten().count() < SLOTS {
            return Ok(());
        }
        Err(Error::Unavailable {
            what: format!("a segment beside {SLOTS} others"),
            why: "the resident context has no room for more windows, local buffers and parts of the heap; unregister \
                  buffers, or start with a larger heap (setting heap_bytes)"
                .into(),
        })
    }

    /// Updates the table to `segments`.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if there are too many segments.
    /// - The errors of writes to memory of the machine.
    pub(super) fn update(&mut self, segments: &[Arc<Segment>]) -> Result<()> {
        for slot in 0..self.slots.len() {
            let stays = |begin| segments.iter().any(|segment| segment.begin == begin);
            if self.slots[slot].is_some_and(|begin| !stays(begin)) {
                self.set_length(slot, 0)?;
                self.slots[slot] = None;
            }
        }
        for segment in segments {
            if !self.slots.contains(&Some(segment.begin)) {
                self.check_room()?;
                self.adapt_context(segments)?;
                self.insert(segment)?;
            }
        }
        Ok(())
    }

    /// Updates the context before a kernel can find a segment that needs it. Nothing is undone when segments are
    /// removed: that would only make kernels faster.
    fn adapt_context(&mut self, segments: &[Arc<Segment>]) -> Result<()> {
        let parts = adapt(self.parts, segments);
        let at = |field: usize| (offset_of!(SegmentTable, parts) + field) as u64;
        // A kernel launched between these writes must find the mixed PEs if it finds the flag. Running kernels may keep
        // the old context, because they cannot know of the segment.
        self.write(at(offset_of!(CtxParts, mixed_from)), &parts.mixed_from)?;
        self.write(at(offset_of!(CtxParts, mixed_to)), &parts.mixed_to)?;
        self.write(at(offset_of!(CtxParts, flags)), &parts.flags)?;
        self.parts = parts;
        Ok(())
    }

    fn insert(&mut self, segment: &Segment) -> Result<()> {
        let slot = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        let tail_at = TAILS + slot as u64 * self.tail_bytes;
        let (entry, tail) = segment.describe(self.region.addr.add(tail_at));
        if tail.len() as u64 > self.tail_bytes {
            let what = format!("a segment of {} NICs", tail.len() / size_of::<SegmentEnd>());
            return Err(Error::Unavailable { what, why: "the resident context has no room for it".into() });
        }
        self.region.write(tail_at, &tail)?;
        self.write(desc(slot), &SegmentDesc { bytes: 0, addr_bytes: 0, ..entry })?;
        self.set_length(slot, entry.bytes)?;
        if slot == self.slots.len() {
            self.slots.push(None);
            self.write(offset_of!(SegmentTable, count) as u64, &(self.slots.len() as u64))?;
        }
        self.slots[slot] = Some(segment.begin);
        Ok(())
    }

    /// Sets the length of an entry. Kernels ignore entries of length 0.
    fn set_length(&self, slot: usize, bytes: u64) -> Result<()> {
        self.write(desc(slot) + offset_of!(SegmentDesc, bytes) as u64, &bytes)?;
        self.write(desc(slot) + offset_of!(SegmentDesc, addr_bytes) as u64, &bytes)
    }

    fn write<T: Pod>(&self, offset: u64, value: &T) -> Result<()> {
        self.region.write(offset, bytes_of(value))
    }
}

/// Returns the offset of the descriptor of a slot.
fn desc(slot: usize) -> u64 {
    DESCS + (slot * size_of::<SegmentDesc>()) as u64
}

#[cfg(test)]
mod tests {
    use bytemuck::Zeroable;
    use rushmem_device::abi::ctx_flags;
    use rushmem_machine::Native;

    use super::*;

    fn segment(machine: &Native, begin: u64, bytes: u64) -> Arc<Segment> {
        Arc::new(Segment::new(machine.local(4096).unwrap(), Vec::new(), None).at(begin, bytes, 0))
    }

    /// Returns the segment table, and its descriptors.
    fn read(table: &ResidentTable) -> (SegmentTable, Vec<SegmentDesc>) {
        let mut head = SegmentTable::zeroed();
        table.region.read(0, bytemuck::bytes_of_mut(&mut head)).unwrap();
        let mut descs = vec![SegmentDesc::zeroed(); head.count as usize];
        table.region.read(DESCS, bytemuck::cast_slice_mut(&mut descs)).unwrap();
        (head, descs)
    }

    fn ranges(table: &ResidentTable) -> Vec<(u64, u64)> {
        read(table).1.iter().map(|desc| (desc.begin, desc.bytes)).collect()
    }

    #[test]
    fn segments_come_and_go_in_place() {
        let machine = Native::new(Default::default());
        let own = CtxParts { rails: 1, n_pes: 2, ..CtxParts::zeroed() };
        let mut table = ResidentTable::new(&machine, own).unwrap();
        assert_eq!(ranges(&table), []);
        let [a, b, c] = [1, 2, 3].map(|i| segment(&machine, i << 20, 64 * i));
        table.update(&[Arc::clone(&a), Arc::clone(&b)]).unwrap();
        assert_eq!(ranges(&table), [(1 << 20, 64), (2 << 20, 128)]);
        let (head, descs) = read(&table);
        assert_eq!((head.parts.segments, head.parts.status), (table.addr(), DevAddr(0)));
        assert_ne!(head.parts.flags & ctx_flags::HOST_MEMORY, 0);
        assert_eq!(descs[1].addr, b.region().addr);
        table.update(&[Arc::clone(&b)]).unwrap();
        assert_eq!(ranges(&table), [(1 << 20, 0), (2 << 20, 128)], "nothing has moved");
        table.update(&[b, c]).unwrap();
        assert_eq!(ranges(&table), [(3 << 20, 192), (2 << 20, 128)]);
    }

    #[test]
    fn full_table_rejects_a_segment_until_another_is_removed() {
        let machine = Native::new(Default::default());
        let mut table = ResidentTable::new(&machine, CtxParts { n_pes: 1, ..CtxParts::zeroed() }).unwrap();
        let mut all: Vec<_> = (1..=SLOTS as u64).map(|i| segment(&machine, i << 20, 64)).collect();
        table.update(&all).unwrap();
        all.push(segment(&machine, 1 << 30, 64));
        let error = table.update(&all).unwrap_err().to_string();
        assert!(error.starts_with("a segment beside 64 others"), "{error}");
        all.remove(0);
        table.update(&all).unwrap();
        assert_eq!(ranges(&table)[0], (1 << 30, 64));
    }
}
