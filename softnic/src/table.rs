//! A table that assigns numbers such as QPNs to objects and finds the objects by them.

use crate::rng::Rng;
use std::collections::VecDeque;

/// Number of freed numbers that are not reused yet. Until one is, a late packet, doorbell or key with that number finds
/// no object.
const QUARANTINE: usize = 256;

/// A table of objects, to which it assigns numbers. A lookup costs one bounds check.
#[derive(Debug)]
pub(crate) struct Table<T> {
    base: u32,
    limit: usize,
    slots: Vec<Option<T>>,
    freed: VecDeque<u32>,
}

impl<T> Table<T> {
    /// Creates a table whose numbers start at `base`, for up to `limit` objects.
    pub(crate) fn new(base: u32, limit: usize) -> Table<T> {
        Table { base, limit, slots: Vec::new(), freed: VecDeque::new() }
    }

    /// Creates a table of up to `limit` objects with 24-bit numbers, which start at `least` or, given `rng`, at a
    /// random number above it.
    pub(crate) fn from_random(least: u32, limit: usize, rng: Option<&mut Rng>) -> Table<T> {
        let places = (1 << 24) - u64::from(least) - limit as u64;
        Table::new(least + rng.map_or(0, |rng| rng.below(places) as u32), limit)
    }

    /// Splits off the last `limit` numbers of an empty table, for objects of another kind.
    pub(crate) fn split_off<U>(&mut self, limit: usize) -> Table<U> {
        self.limit -= limit;
        Table::new(self.base + self.limit as u32, limit)
    }

    /// Stores the object that `make` builds for its number. Returns `None` if the table is full.
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(u32) -> T) -> Option<u32> {
        let index = self.next_index()?;
        if self.freed.front() == Some(&index) {
            self.freed.pop_front();
        }
        let number = self.base + index;
        let value = Some(make(number));
        match self.slots.get_mut(index as usize) {
            Some(slot) => *slot = value,
            None => self.slots.push(value),
        }
        Some(number)
    }

    /// Returns the number that the next object will get, or `None` if the table is full.
    pub(crate) fn next_number(&self) -> Option<u32> {
        Some(self.base + self.next_index()?)
    }

    fn next_index(&self) -> Option<u32> {
        let reuse = self.freed.len() > QUARANTINE || self.slots.len() >= self.limit;
        if reuse { self.freed.front().copied() } else { Some(self.slots.len() as u32) }
    }

    pub(crate) fn insert(&mut self, value: T) -> Option<u32> {
        self.insert_with(|_| value)
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let index = number.checked_sub(self.base)?;
        let value = self.slots.get_mut(index as usize)?.take()?;
        self.freed.push_back(index);
        Some(value)
    }

    /// Removes the objects for which `holds` returns `true`.
    pub(crate) fn remove_all(&mut self, holds: impl Fn(&T) -> bool) {
        for number in self.numbers(holds) {
            self.remove(number);
        }
    }

    /// Swaps the objects with numbers `a` and `b`.
    pub(crate) fn swap(&mut self, a: u32, b: u32) {
        let slot = |number: u32| number.wrapping_sub(self.base) as usize;
        let (a, b) = (slot(a), slot(b));
        if a.max(b) < self.slots.len() {
            self.slots.swap(a, b);
        }
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.slots.get(number.wrapping_sub(self.base) as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.slots.get_mut(number.wrapping_sub(self.base) as usize)?.as_mut()
    }

    /// Returns the numbers of the objects for which `holds` returns `true`.
    pub(crate) fn numbers(&self, holds: impl Fn(&T) -> bool) -> Vec<u32> {
        self.iter().filter(|(_, object)| holds(object)).map(|(number, _)| number).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let base = self.base;
        self.slots.iter().enumerate().filter_map(move |(i, slot)| Some((base + i as u32, slot.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_numbers_are_not_reused_immediately() {
        let mut table = Table::new(0x40, 1 << 20);
        let first = table.insert(1).unwrap();
        assert_eq!(table.remove(first), Some(1));
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get(first), None);
        assert_ne!(table.insert(2), Some(first));
        assert_eq!(table.get(0), None);
    }

    #[test]
    fn random_tables_stay_within_24_bits() {
        for seed in 0..100 {
            let mut table = Table::from_random(0x100, 1 << 18, Some(&mut Rng::new(seed)));
            let first = table.insert(()).unwrap();
            assert!(first >= 0x100 && u64::from(first) + (1 << 18) <= 1 << 24, "{first:#x}");
            assert_eq!(table.insert(()), Some(first + 1));
        }
    }

    #[test]
    fn a_split_table_has_no_number_twice() {
        let mut qps = Table::new(0x100, 3);
        let mut dcts = qps.split_off(2);
        assert_eq!((qps.insert('q'), qps.insert('r')), (Some(0x100), None));
        assert_eq!([(); 3].map(|()| dcts.insert('d')), [Some(0x101), Some(0x102), None]);
        assert_eq!((qps.get(0x101), dcts.get(0x100)), (None, None));
    }

    #[test]
    fn a_full_table_reuses_or_refuses() {
        let mut table = Table::new(1, 2);
        let (a, b) = (table.insert('a').unwrap(), table.insert('b').unwrap());
        assert_eq!(table.insert('c'), None);
        assert_eq!(table.remove(a), Some('a'));
        assert_eq!(table.insert('c'), Some(a));
        assert_eq!(table.iter().map(|(n, c)| (n, *c)).collect::<Vec<_>>(), [(a, 'c'), (b, 'b')]);
    }
}
