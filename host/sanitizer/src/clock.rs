//! Sparse vector clocks.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The number of an actor. Numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
pub struct ActorId(pub(crate) u64);

/// A hasher for the numbers of actors.
#[derive(Debug, Default)]
pub(crate) struct ActorHasher(u64);

impl Hasher for ActorHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    /// Spreads a number over all bits: the odd factor is 2^64 divided by the golden ratio.
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_right(32);
    }
}

/// A map from actors.
pub(crate) type ActorMap<V> = HashMap<ActorId, V, BuildHasherDefault<ActorHasher>>;

/// A set of actors.
pub(crate) type ActorSet = HashSet<ActorId, BuildHasherDefault<ActorHasher>>;

/// A point in the program order of one actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch {
    pub(crate) actor: ActorId,
    /// Counts from 1.
    pub(crate) count: u32,
}

/// A list of entries that clocks share.
type Entries = Arc<Vec<Epoch>>;

/// The longest list of entries that a clock keeps beside its shared ones.
const RECENT: usize = 16;

/// A vector clock: for each actor, the last point that is known. Absent actors are at 0.
///
/// Clones share most entries. So the clocks of a block after a barrier are one list and one own entry for each thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    /// Entries in the order of actors, if there are any.
    shared: Option<Entries>,
    /// Entries in the order of actors, which replace shared ones.
    recent: Vec<Epoch>,
}

/// Shared lists of clocks, each with what is left of it.
#[derive(Debug, Default)]
pub(crate) struct Filtered {
    lists: HashMap<*const Vec<Epoch>, (Entries, Entries)>,
}

impl Clock {
    fn shared(&self) -> &[Epoch] {
        self.shared.as_ref().map_or(&[], |list| list)
    }

    /// Returns the last known point of `actor`.
    pub(crate) fn get(&self, actor: ActorId) -> u32 {
        find(&self.recent, actor).or_else(|| find(self.shared(), actor)).unwrap_or(0)
    }

    /// Returns whether the clock has reached `epoch`.
    pub(crate) fn has(&self, epoch: Epoch) -> bool {
        self.get(epoch.actor) >= epoch.count
    }

    /// Raises the entry of an actor to `epoch`.
    pub(crate) fn raise(&mut self, epoch: Epoch) {
        if self.has(epoch) {
            return;
        }
        match self.recent.binary_search_by_key(&epoch.actor, |e| e.actor) {
            Ok(at) => self.recent[at] = epoch,
            Err(at) => self.recent.insert(at, epoch),
        }
        if self.recent.len() > RECENT {
            self.flatten();
        }
    }

    /// Returns everything that any of `clocks` knows. The result has a shared list only.
    pub(crate) fn union<'a>(clocks: impl IntoIterator<Item = &'a Self>) -> Self {
        let (mut lists, mut recent): (Vec<&Entries>, Vec<Epoch>) = (Vec::new(), Vec::new());
        for clock in clocks {
            lists.extend(&clock.shared);
            recent.extend_from_slice(&clock.recent);
        }
        lists.sort_unstable_by_key(|list| Arc::as_ptr(list));
        lists.dedup_by(|a, b| Arc::ptr_eq(a, b));
        let mut lists = lists.into_iter();
        let mut all = Self { shared: lists.next().map(Arc::clone), recent };
        for list in lists {
            all.shared = Some(Arc::new(merged(all.shared(), list, u32::max)));
        }
        all.recent.sort_unstable_by_key(|epoch| (epoch.actor, Reverse(epoch.count)));
        all.recent.dedup_by_key(|epoch| epoch.actor);
        if !all.recent.is_empty() {
            all.shared = Some(Arc::new(merged(all.shared(), &all.recent, u32::max)));
            all.recent.clear();
        }
        all
    }

    /// Returns the entries that the clock shares with its clones, as a clock.
    pub(crate) fn base(&self) -> Self {
        Self { shared: self.shared.clone(), recent: Vec::new() }
    }

    /// Returns the address of the list that the clock shares with its clones.
    pub(crate) fn base_address(&self) -> *const Vec<Epoch> {
        self.shared.as_ref().map_or(std::ptr::null(), Arc::as_ptr)
    }

    /// Adds everything that `other` knows.
    pub(crate) fn join(&mut self, other: &Self) {
        if self.is_empty() {
            self.clone_from(other);
            return;
        }
        if self.base_address() != other.base_address() {
            if other.shared().len() <= RECENT {
                other.shared().iter().for_each(|&epoch| self.raise(epoch));
            } else {
                self.flatten();
                self.shared = Some(Arc::new(merged(self.shared(), other.shared(), u32::max)));
            }
        }
        other.recent.iter().for_each(|&epoch| self.raise(epoch));
    }

    /// Moves all entries to the shared list, before others copy the clock.
    pub(crate) fn flatten(&mut self) {
        if !self.recent.is_empty() {
            self.shared = Some(Arc::new(merged(self.shared(), &self.recent, |_, recent| recent)));
            self.recent.clear();
        }
    }

    /// Drops the entries of actors that `keep` refuses. Clocks that share entries still do afterwards, if all use the same
    /// `filtered`.
    pub(crate) fn retain(&mut self, keep: impl Fn(ActorId) -> bool, filtered: &mut Filtered) {
        self.recent.retain(|epoch| keep(epoch.actor));
        let Some(shared) = &self.shared else { return };
        let (_, new) = filtered.lists.entry(Arc::as_ptr(shared)).or_insert_with(|| {
            let is_whole = shared.iter().all(|epoch| keep(epoch.actor));
            let left = || shared.iter().copied().filter(|epoch| keep(epoch.actor)).collect();
            (Arc::clone(shared), if is_whole { Arc::clone(shared) } else { Arc::new(left()) })
        });
        self.shared = Some(Arc::clone(new));
    }

    /// Returns whether the clock knows nobody.
    pub(crate) fn is_empty(&self) -> bool {
        self.shared().is_empty() && self.recent.is_empty()
    }

    /// Returns the number of entries, duplicates included.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shared().len() + self.recent.len()
    }
}

/// Returns the count of an actor in a sorted list.
///
/// Most actors of a list have numbers one after the other. So the difference to the first number is the place, or a later one.
fn find(list: &[Epoch], actor: ActorId) -> Option<u32> {
    let place = actor.0.checked_sub(list.first()?.actor.0)?;
    match list.get(place as usize) {
        Some(epoch) if epoch.actor == actor => return Some(epoch.count),
        _ => {}
    }
    let before = &list[..list.len().min(place as usize)];
    Some(before[before.binary_search_by_key(&actor, |epoch| epoch.actor).ok()?].count)
}

/// Returns the union of two sorted lists. `both` chooses the count of an actor in both.
fn merged(a: &[Epoch], b: &[Epoch], both: impl Fn(u32, u32) -> u32) -> Vec<Epoch> {
    let mut all = Vec::with_capacity(a.len() + b.len());
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let (x, y) = (a[i], b[j]);
        all.push(match x.actor.cmp(&y.actor) {
            std::cmp::Ordering::Less => x,
            std::cmp::Ordering::Greater => y,
            std::cmp::Ordering::Equal => Epoch { count: both(x.count, y.count), ..x },
        });
        i += usize::from(x.actor <= y.actor);
        j += usize::from(y.actor <= x.actor);
    }
    all.extend_from_slice(&a[i..]);
    all.extend_from_slice(&b[j..]);
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn epoch((actor, count): (u64, u32)) -> Epoch {
        Epoch { actor: ActorId(actor), count }
    }

    fn clock(entries: &[(u64, u32)]) -> Clock {
        let mut clock = Clock::default();
        entries.iter().for_each(|&e| clock.raise(epoch(e)));
        clock
    }

    #[test]
    fn clones_share_entries() {
        let mut first = clock(&[(1, 1), (2, 5)]);
        first.flatten();
        let mut second = first.clone();
        second.raise(epoch((3, 1)));
        assert_eq!(first.base_address(), second.base_address());
        assert_eq!((second.get(ActorId(2)), first.get(ActorId(3))), (5, 0));
    }

    #[test]
    fn dropped_actors_leave_no_entry() {
        let mut clock = clock(&(0..40).map(|i| (i, 1)).collect::<Vec<_>>());
        clock.retain(|actor| actor.0 % 2 == 0, &mut Filtered::default());
        assert_eq!((clock.len(), clock.get(ActorId(3)), clock.get(ActorId(38))), (20, 0, 1));
    }

    #[test]
    fn clones_share_entries_after_a_drop() {
        let mut first = clock(&[(1, 1), (2, 5)]);
        first.flatten();
        let (mut second, mut filtered) = (first.clone(), Filtered::default());
        first.retain(|actor| actor.0 == 2, &mut filtered);
        second.retain(|actor| actor.0 == 2, &mut filtered);
        assert_eq!(first.base_address(), second.base_address());
        assert_eq!((first.len(), second.get(ActorId(2))), (1, 5));
    }

    proptest! {
        #[test]
        fn join_is_the_maximum_of_each_entry(
            a in prop::collection::vec((0..60u64, 1..9u32), 0..60),
            b in prop::collection::vec((0..60u64, 1..9u32), 0..60),
        ) {
            let mut joined = clock(&a);
            joined.join(&clock(&b));
            let union = Clock::union([&clock(&a), &clock(&b), &joined.base()]);
            let mut wanted = BTreeMap::new();
            for (actor, count) in a.into_iter().chain(b) {
                let entry: &mut u32 = wanted.entry(actor).or_default();
                *entry = count.max(*entry);
            }
            for actor in 0..60 {
                let wanted = wanted.get(&actor).copied().unwrap_or(0);
                prop_assert_eq!(joined.get(ActorId(actor)), wanted);
                prop_assert_eq!(union.get(ActorId(actor)), wanted);
            }
        }
    }
}
