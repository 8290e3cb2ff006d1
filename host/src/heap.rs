//! The symmetric heap's allocator: every PE runs the same one on the same calls, and so gets the same offsets.

use std::collections::BTreeMap;

use crate::{Error, Result};

/// Every object begins at a multiple of this: a line of its own, so that no two share one by accident.
const ALIGN: u64 = 128;

/// Offsets that are free and in use. First fit, neighbours merge.
pub(crate) struct Allocator {
    /// Offset and length of each free piece.
    free: BTreeMap<u64, u64>,
    /// Offset and length of each object.
    used: BTreeMap<u64, u64>,
    total: u64,
}

impl Allocator {
    /// An allocator of the offsets `from..to`.
    pub(crate) fn new(from: u64, to: u64) -> Self {
        let from = from.next_multiple_of(ALIGN).min(to);
        let free = if from < to { BTreeMap::from([(from, to - from)]) } else { BTreeMap::new() };
        Self { free, used: BTreeMap::new(), total: to - from }
    }

    /// The offset of `bytes` new bytes.
    ///
    /// # Errors
    /// [`Error::HeapFull`].
    pub(crate) fn alloc(&mut self, bytes: u64) -> Result<u64> {
        let full = |free: &BTreeMap<u64, u64>| Error::HeapFull {
            wanted: bytes,
            free: free.values().sum(),
            largest: free.values().copied().max().unwrap_or(0),
            total: self.total,
        };
        let Some(len) = bytes.max(1).checked_next_multiple_of(ALIGN) else { return Err(full(&self.free)) };
        let Some((&at, &have)) = self.free.iter().find(|&(_, &have)| have >= len) else {
            return Err(full(&self.free));
        };
        self.free.remove(&at);
        if have > len {
            self.free.insert(at + len, have - len);
        }
        self.used.insert(at, len);
        Ok(at)
    }

    /// Takes the object at `offset` back; its length, if there is one.
    pub(crate) fn free(&mut self, offset: u64) -> Option<u64> {
        let freed = self.used.remove(&offset)?;
        let (mut at, mut len) = (offset, freed);
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
        Some(freed)
    }

    /// True if an object of at least `bytes` begins at `offset`, or contains it.
    pub(crate) fn holds(&self, offset: u64, bytes: u64) -> bool {
        let object = self.used.range(..=offset).next_back();
        object.is_some_and(|(at, len)| offset.checked_add(bytes).is_some_and(|end| end <= at + len))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_full_heap_says_how_full() {
        let mut heap = Allocator::new(0, 1024);
        let a = heap.alloc(100).unwrap();
        heap.alloc(700).unwrap();
        assert!(matches!(
            heap.alloc(200),
            Err(Error::HeapFull { wanted: 200, free: 128, largest: 128, total: 1024 })
        ));
        assert_eq!(heap.free(a), Some(128));
        assert!(matches!(heap.alloc(200), Err(Error::HeapFull { free: 256, largest: 128, .. })));
        assert_eq!(heap.alloc(128).unwrap(), a);
        assert!(matches!(heap.alloc(u64::MAX), Err(Error::HeapFull { .. })));
    }

    proptest! {
        #[test]
        fn objects_never_overlap_and_all_comes_back(ops in prop::collection::vec((0u8..3, 1u64..5000), 1..200)) {
            let mut heap = Allocator::new(4096, 1 << 16);
            let mut live: Vec<(u64, u64)> = Vec::new();
            for (op, n) in ops {
                if op == 0 && !live.is_empty() {
                    let (at, _) = live.swap_remove(n as usize % live.len());
                    prop_assert!(heap.free(at).is_some());
                    prop_assert!(heap.free(at).is_none());
                } else if let Ok(at) = heap.alloc(n) {
                    prop_assert!(at >= 4096 && at + n <= 1 << 16 && at % ALIGN == 0);
                    prop_assert!(live.iter().all(|&(o, len)| at + n <= o || o + len <= at));
                    prop_assert!(heap.holds(at, n));
                    live.push((at, n));
                }
            }
            for (at, _) in live {
                heap.free(at);
            }
            prop_assert_eq!(heap.alloc((1 << 16) - 4096).unwrap(), 4096);
        }
    }
}
