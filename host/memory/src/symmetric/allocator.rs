//! Allocates offsets in the symmetric heap. It is deterministic: all PEs make the same calls, and so get the same
//! offsets.

use std::collections::BTreeMap;

use rushmem_device::Handle;
use rushmem_error::call_site::CallSite;
use rushmem_error::{Error, Result};

/// Alignment of every object, in bytes: a cache line, so no two objects share one.
pub(super) const ALIGN: u64 = 128;

/// A first-fit allocator of heap offsets. It merges adjacent free ranges.
pub(super) struct Allocator {
    /// Free ranges: from the offset of each to its length in bytes.
    free: BTreeMap<u64, u64>,
    /// Allocated objects, by offset.
    used: BTreeMap<u64, Object>,
    total: u64,
    /// Number of objects allocated so far.
    count: u64,
}

#[derive(Clone, Copy)]
struct Object {
    /// Position of the object in the order of allocations.
    nth: u64,
    /// Requested size in bytes. `room` is the size including padding.
    bytes: u64,
    room: u64,
    stamp: u64,
}

/// Why a handle does not refer to a whole object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandleError {
    /// The object does not exist, or has been freed.
    Gone,
    /// The handle refers to a part of an object.
    Part,
}

impl Allocator {
    /// Creates an allocator that manages the offsets `from..to`.
    pub(super) fn new(from: u64, to: u64) -> Self {
        let mut this = Self { free: BTreeMap::new(), used: BTreeMap::new(), total: 0, count: 0 };
        this.add(from, to);
        this
    }

    /// Adds the offsets `from..to` to the free ones. They must not be adjacent to existing offsets.
    pub(super) fn add(&mut self, from: u64, to: u64) {
        // Not adjacent, or freed ranges would merge across two segments, which are separate memory.
        let from = from.next_multiple_of(ALIGN).min(to);
        if from < to {
            self.free.insert(from, to - from);
            self.total += to - from;
        }
    }

    /// Returns the number of bytes managed, free and in use.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of free bytes. They may be in several ranges.
    pub(super) fn available(&self) -> u64 {
        self.free.values().sum()
    }

    /// Allocates `bytes` bytes at a multiple of `align`, a power of two, for handles with `stamp`. Returns the offset.
    ///
    /// # Errors
    /// [`Error::HeapFull`] if no free range is large enough.
    pub(super) fn alloc(&mut self, bytes: u64, align: u64, stamp: u64) -> Result<u64> {
        let align = align.max(ALIGN);
        // Even an empty object occupies a unit: its offset identifies it.
        let room = bytes.max(1).checked_next_multiple_of(ALIGN);
        let fit = |room: u64| {
            self.free.iter().find_map(|(&from, &have)| {
                let at = from.checked_next_multiple_of(align)?;
                (at.checked_add(room)? <= from + have).then_some((from, have, at))
            })
        };
        let Some((room, (from, have, at))) = room.and_then(|room| Some((room, fit(room)?))) else {
            return Err(Error::HeapFull {
                wanted: bytes,
                free: self.available(),
                largest: self.free.values().copied().max().unwrap_or(0),
                total: self.total,
                max: None,
                site: CallSite::current(),
            });
        };
        // The alignment may leave a gap in front of the object. It stays free, as does the rest after the object.
        self.free.remove(&from);
        if at > from {
            self.free.insert(from, at - from);
        }
        if from + have > at + room {
            self.free.insert(at + room, from + have - (at + room));
        }
        self.count += 1;
        self.used.insert(at, Object { nth: self.count, bytes, room, stamp });
        Ok(at)
    }

    /// Returns all objects, in the order of their allocation.
    pub(super) fn objects(&self) -> Vec<Handle> {
        let mut all: Vec<_> = self.used.iter().collect();
        all.sort_by_key(|(_, object)| object.nth);
        all.into_iter()
            .map(|(&offset, object)| Handle { offset, bytes: object.bytes, stamp: object.stamp })
            .collect()
    }

    /// Allocates an object at its offset. Returns `false` if that is not free.
    pub(super) fn place(&mut self, object: Handle) -> bool {
        let Some(room) = object.bytes.max(1).checked_next_multiple_of(ALIGN) else { return false };
        let Some(end) = object.offset.checked_add(room) else { return false };
        let range = self.free.range(..=object.offset).next_back().map(|(&from, &have)| (from, from + have));
        let Some((from, to)) = range.filter(|(_, to)| end <= *to) else { return false };
        self.free.remove(&from);
        if object.offset > from {
            self.free.insert(from, object.offset - from);
        }
        if to > end {
            self.free.insert(end, to - end);
        }
        self.count += 1;
        let Handle { offset, bytes, stamp } = object;
        self.used.insert(offset, Object { nth: self.count, bytes, room, stamp });
        true
    }

    /// Checks that `handle` refers to a whole object. A stamp of 0 matches any object.
    pub(super) fn whole(&self, handle: Handle) -> Result<(), HandleError> {
        let stamped = |object: &Object| handle.stamp == 0 || object.stamp == handle.stamp;
        match self.used.get(&handle.offset).filter(|object| stamped(object)) {
            Some(object) if object.bytes == handle.bytes => Ok(()),
            Some(_) => Err(HandleError::Part),
            None if self.holds(handle) => Err(HandleError::Part),
            None => Err(HandleError::Gone),
        }
    }

    pub(super) fn free(&mut self, handle: Handle) -> Result<(), HandleError> {
        self.whole(handle)?;
        let Some(object) = self.used.remove(&handle.offset) else { return Err(HandleError::Gone) };
        self.give_back(handle.offset, object.room);
        Ok(())
    }

    fn give_back(&mut self, offset: u64, room: u64) {
        let (mut at, mut len) = (offset, room);
        if let Some((&before, &before_len)) = self.free.range(..at).next_back()
            && before + before_len == at
        {
            self.free.remove(&before);
            (at, len) = (before, before_len + len);
        }
        if let Some(after_len) = self.free.remove(&(at + len)) {
            len += after_len;
        }
        self.free.insert(at, len);
    }

    /// Resizes an object in place and gives it a new stamp. Returns false if the following range is not free or too
    /// short.
    pub(super) fn resize(&mut self, offset: u64, bytes: u64, stamp: u64) -> bool {
        let Some(object) = self.used.get(&offset).copied() else { return false };
        let Some(room) = bytes.max(1).checked_next_multiple_of(ALIGN) else { return false };
        if room > object.room {
            let (behind, more) = (offset + object.room, room - object.room);
            let Some(&have) = self.free.get(&behind).filter(|&&have| have >= more) else { return false };
            self.free.remove(&behind);
            if have > more {
                self.free.insert(behind + more, have - more);
            }
        } else if room < object.room {
            self.give_back(offset + room, object.room - room);
        }
        self.used.insert(offset, Object { bytes, room, stamp, ..object });
        true
    }

    /// Returns whether the object to which `handle` refers, perhaps in part, still exists.
    pub(super) fn holds(&self, handle: Handle) -> bool {
        let object = self.used.range(..=handle.offset).next_back();
        object.is_some_and(|(at, object)| {
            let end = handle.offset.checked_add(handle.bytes);
            let stamped = handle.stamp == 0 || object.stamp == handle.stamp;
            stamped && end.is_some_and(|end| end <= at + object.bytes)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn handle(offset: u64, bytes: u64, stamp: u64) -> Handle {
        Handle { offset, bytes, stamp }
    }

    #[test]
    fn heap_full_reports_free_and_largest() {
        let mut heap = Allocator::new(0, 1024);
        let a = heap.alloc(100, 1, 1).unwrap();
        heap.alloc(700, 1, 2).unwrap();
        assert!(matches!(
            heap.alloc(200, 1, 3),
            Err(Error::HeapFull { wanted: 200, free: 128, largest: 128, total: 1024, .. })
        ));
        assert_eq!(heap.free(handle(a, 100, 1)), Ok(()));
        assert!(matches!(heap.alloc(200, 1, 4), Err(Error::HeapFull { free: 256, largest: 128, .. })));
        assert_eq!(heap.alloc(128, 1, 5).unwrap(), a);
        assert!(matches!(heap.alloc(u64::MAX, 1, 6), Err(Error::HeapFull { .. })));
        heap.add(1 << 20, (1 << 20) + 256);
        assert_eq!(heap.alloc(200, 1, 7).unwrap(), 1 << 20);
    }

    #[test]
    fn handles_match_only_their_own_object() {
        let mut heap = Allocator::new(0, 4096);
        let at = heap.alloc(100, 1, 7).unwrap();
        let whole = handle(at, 100, 7);
        assert!(heap.holds(whole) && heap.holds(handle(at + 99, 1, 7)) && !heap.holds(handle(at + 99, 2, 7)));
        assert_eq!(heap.free(handle(at, 99, 7)), Err(HandleError::Part));
        assert_eq!(heap.free(handle(at + 4, 96, 7)), Err(HandleError::Part));
        assert_eq!(heap.free(handle(at, 100, 8)), Err(HandleError::Gone));
        assert_eq!(heap.free(whole), Ok(()));
        assert_eq!(heap.free(whole), Err(HandleError::Gone));
        // A new object at the same offset.
        assert_eq!(heap.alloc(100, 1, 8).unwrap(), at);
        assert!(!heap.holds(whole));
        assert_eq!(heap.free(whole), Err(HandleError::Gone));
    }

    #[test]
    fn objects_resize_in_place_if_there_is_room() {
        let mut heap = Allocator::new(0, 1024);
        let (a, b) = (heap.alloc(128, 1, 1).unwrap(), heap.alloc(256, 1, 2).unwrap());
        assert!(!heap.resize(a, 129, 3), "the next object is behind it");
        assert!(heap.resize(b, 100, 3) && heap.available() == 1024 - 256);
        assert!(heap.resize(b, 896, 4) && heap.available() == 0);
        assert!(!heap.resize(b, 897, 5) && heap.holds(handle(b, 896, 4)) && !heap.holds(handle(b, 100, 3)));
    }

    #[test]
    fn another_allocator_takes_over_the_objects() {
        let mut heap = Allocator::new(256, 4096);
        let objects: Vec<u64> = (1..=4).map(|stamp| heap.alloc(100 * stamp, 1, stamp).unwrap()).collect();
        heap.free(handle(objects[1], 200, 2)).unwrap();
        heap.alloc(64, 1, 5).unwrap();
        let found = heap.objects();
        assert_eq!(found.iter().map(|object| object.stamp).collect::<Vec<_>>(), [1, 3, 4, 5]);
        let mut other = Allocator::new(256, 4096);
        assert!(found.iter().all(|&object| other.place(object)));
        assert_eq!((other.objects(), other.available()), (found.clone(), heap.available()));
        assert!(
            !other.place(found[0]) && !other.place(handle(4096, 1, 6)) && !other.place(handle(128, 1, 6))
        );
        assert_eq!(other.alloc(1024, 1, 7).unwrap(), heap.alloc(1024, 1, 7).unwrap());
    }

    proptest! {
        #[test]
        fn objects_never_overlap_and_all_memory_is_freed(
            ops in prop::collection::vec((0u8..3, 1u64..5000, 0u32..13), 1..200),
        ) {
            let mut heap = Allocator::new(4096, 1 << 16);
            let mut live: Vec<(u64, u64)> = Vec::new();
            for (op, n, log_align) in ops {
                if op == 0 && !live.is_empty() {
                    let (at, len) = live.swap_remove(n as usize % live.len());
                    prop_assert_eq!(heap.free(handle(at, len, len)), Ok(()));
                    prop_assert_eq!(heap.free(handle(at, len, len)), Err(HandleError::Gone));
                } else if let Ok(at) = heap.alloc(n, 1 << log_align, n) {
                    prop_assert!(at >= 4096 && at + n <= 1 << 16 && at % ALIGN == 0);
                    prop_assert_eq!(at % (1 << log_align), 0);
                    prop_assert!(live.iter().all(|&(o, len)| at + n <= o || o + len <= at));
                    prop_assert!(heap.holds(handle(at, n, n)));
                    live.push((at, n));
                }
            }
            for (at, len) in live {
                prop_assert_eq!(heap.free(handle(at, len, len)), Ok(()));
            }
            prop_assert_eq!(heap.available(), heap.total());
            prop_assert_eq!(heap.alloc((1 << 16) - 4096, 1, 1).unwrap(), 4096);
        }
    }
}
