//! Maps from ranges of bytes to values.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A half-open range of byte offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
pub struct Bytes {
    /// Offset of the first byte.
    pub start: u64,
    /// Offset past the last byte.
    pub end: u64,
}

impl Bytes {
    /// Returns whether `other` lies within this range.
    pub fn contains(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// Returns whether the range is empty.
    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// Returns the length in bytes.
    pub fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// A map from disjoint ranges to values. Adjacent ranges with equal values are merged into one entry.
#[derive(Clone, Debug)]
pub(crate) struct IntervalMap<V> {
    /// The start of each range, with its end and value.
    map: BTreeMap<u64, (u64, V)>,
}

impl<V> Default for IntervalMap<V> {
    fn default() -> Self {
        Self { map: BTreeMap::new() }
    }
}

impl<V: Clone + Default + PartialEq> IntervalMap<V> {
    /// Calls `change` for each value in `bytes` and for each gap between values, and stores the result. `None` stands
    /// for a gap.
    pub(crate) fn update(&mut self, bytes: Bytes, mut change: impl FnMut(Bytes, Option<V>) -> Option<V>) {
        if bytes.is_empty() || self.update_one(bytes, &mut change) {
            return;
        }
        self.split(bytes.start);
        self.split(bytes.end);
        let inside: Vec<u64> = self.map.range(bytes.start..bytes.end).map(|(&start, _)| start).collect();
        let mut at = bytes.start;
        for start in inside {
            let Some((end, value)) = self.map.remove(&start) else { continue };
            self.fill(Bytes { start: at, end: start }, None, &mut change);
            self.fill(Bytes { start, end }, Some(value), &mut change);
            at = end;
        }
        self.fill(Bytes { start: at, end: bytes.end }, None, &mut change);
        self.merge_before(bytes.end);
    }

    /// Updates `bytes` if they are exactly one entry or lie within a gap. Returns `false` if neither is the case.
    fn update_one(&mut self, bytes: Bytes, change: &mut impl FnMut(Bytes, Option<V>) -> Option<V>) -> bool {
        match self.map.range_mut(..bytes.end).next_back() {
            Some((&start, (end, value))) if *end > bytes.start => {
                if (Bytes { start, end: *end }) != bytes {
                    return false;
                }
                let Some(new) = change(bytes, Some(std::mem::take(value))) else {
                    self.map.remove(&start);
                    return true;
                };
                *value = new;
                self.merge_before(start);
            }
            before => {
                let Some(new) = change(bytes, None) else { return true };
                match before {
                    Some((_, (end, value))) if *end == bytes.start && *value == new => *end = bytes.end,
                    _ => {
                        self.map.insert(bytes.start, (bytes.end, new));
                    }
                }
            }
        }
        self.merge_before(bytes.end);
        true
    }

    /// Returns the ranges that overlap `bytes`, clipped to it, with their values.
    pub(crate) fn overlapping(&self, bytes: Bytes) -> impl Iterator<Item = (Bytes, &V)> {
        let first = self.map.range(..bytes.start).next_back().filter(|(_, (end, _))| *end > bytes.start);
        let others = (!bytes.is_empty()).then(|| self.map.range(bytes.start..bytes.end));
        first.into_iter().chain(others.into_iter().flatten()).map(move |(&start, (end, value))| {
            (Bytes { start: start.max(bytes.start), end: (*end).min(bytes.end) }, value)
        })
    }

    pub(crate) fn clear(&mut self, bytes: Bytes) {
        if self.overlapping(bytes).next().is_some() {
            self.update(bytes, |_, _| None);
        }
    }

    /// Calls `keep`, which may change the value, for all ranges, and drops those for which it returns `false`.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&mut V) -> bool) {
        self.map.retain(|_, (_, value)| keep(value));
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    fn fill(&mut self, bytes: Bytes, old: Option<V>, change: &mut impl FnMut(Bytes, Option<V>) -> Option<V>) {
        if bytes.is_empty() {
            return;
        }
        if let Some(value) = change(bytes, old) {
            self.map.insert(bytes.start, (bytes.end, value));
            self.merge_before(bytes.start);
        }
    }

    /// Splits the entry that contains offset `at`, if any, into two with the same value.
    fn split(&mut self, at: u64) {
        let Some((_, (end, value))) = self.map.range_mut(..at).next_back() else { return };
        if *end > at {
            let rest = (*end, value.clone());
            *end = at;
            self.map.insert(at, rest);
        }
    }

    /// Merges the entry that starts at `at` with the preceding one if their values are equal.
    fn merge_before(&mut self, at: u64) {
        let Some((end, value)) = self.map.get(&at) else { return };
        let Some((&start, (before_end, before))) = self.map.range(..at).next_back() else { return };
        if *before_end == at && before == value {
            let end = *end;
            self.map.remove(&at);
            if let Some(before) = self.map.get_mut(&start) {
                before.0 = end;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn adjacent_equal_values_merge() {
        let mut map = IntervalMap::default();
        for i in 0..100 {
            map.update(Bytes { start: 8 * i, end: 8 * i + 8 }, |_, _| Some(7));
        }
        assert_eq!(map.len(), 1);
        map.update(Bytes { start: 8, end: 16 }, |_, _| Some(8));
        assert_eq!(map.len(), 3);
        map.update(Bytes { start: 8, end: 16 }, |_, _| Some(7));
        assert_eq!(map.len(), 1);
    }

    proptest! {
        #[test]
        fn behaves_like_an_array(updates in prop::collection::vec((0..64u64, 0..20u64, 0..4u8), 0..40)) {
            let (mut map, mut array) = (IntervalMap::default(), [None; 84]);
            for (start, len, value) in updates {
                let bytes = Bytes { start, end: start + len };
                let new = |old: Option<u8>| (value > 0).then(|| value.max(old.unwrap_or(0)));
                map.update(bytes, |_, old| new(old));
                array[start as usize..(start + len) as usize].iter_mut().for_each(|v| *v = new(*v));
                let mut found = [None; 84];
                for (part, value) in map.overlapping(Bytes { start: 0, end: 84 }) {
                    found[part.start as usize..part.end as usize].fill(Some(*value));
                }
                prop_assert_eq!(&found[..], &array[..]);
                let pieces = array.chunk_by(|a, b| a == b).filter(|piece| piece[0].is_some()).count();
                prop_assert_eq!(map.len(), pieces);
            }
        }
    }
}
