//! Sparse vector clocks whose copies share most of their memory.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use crate::entries::{self, Entries};
use crate::epoch::{ActorId, Epoch};

/// A list of entries that several clocks share.
type Shared = Arc<Entries>;

/// Maximum number of entries that a clock stores outside its shared list.
const RECENT: usize = 16;

/// A vector clock: the last known step of each actor. Actors without an entry are at 0.
///
/// Clones share most entries. After a barrier, the clocks of a block are one shared list, plus one entry for each
/// thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    /// List of entries shared with other clocks, if there is one.
    shared: Option<Shared>,
    /// Entries in the order of actor IDs, which take precedence over the shared ones.
    recent: Vec<Epoch>,
}

/// Cache of filtered lists, which preserves sharing when many clocks are filtered.
#[derive(Debug, Default)]
pub(crate) struct Filtered {
    lists: HashMap<*const Entries, (Shared, Shared)>,
}

impl Clock {
    fn shared(&self) -> &Entries {
        self.shared.as_deref().unwrap_or(&entries::NONE)
    }

    /// Returns the last known step of `actor`.
    pub(crate) fn get(&self, actor: ActorId) -> u32 {
        match self.recent.iter().find(|epoch| epoch.actor == actor) {
            Some(epoch) => epoch.count,
            None => self.shared().get(actor),
        }
    }

    /// Whether the clock has reached `epoch`.
    pub(crate) fn has(&self, epoch: Epoch) -> bool {
        self.get(epoch.actor) >= epoch.count
    }

    /// Raises the entry of an actor to `epoch`, unless it is higher.
    pub(crate) fn raise(&mut self, epoch: Epoch) {
        if self.has(epoch) {
            return;
        }
        match self.recent.binary_search_by_key(&epoch.actor, |e| e.actor) {
            Ok(at) => self.recent[at] = epoch,
            Err(at) => self.recent.insert(at, epoch),
        }
        // Long private lists would make lookups and clones slow.
        if self.recent.len() > RECENT {
            self.flatten();
        }
    }

    /// Returns the component-wise maximum of all `clocks`, with all entries in its shared list.
    pub(crate) fn union<'a>(clocks: impl IntoIterator<Item = &'a Self>) -> Self {
        let (mut lists, mut recent): (Vec<&Shared>, Vec<Epoch>) = (Vec::new(), Vec::new());
        for clock in clocks {
            lists.extend(&clock.shared);
            recent.extend_from_slice(&clock.recent);
        }
        // The clocks of a block mostly share one list, which has to be merged only once.
        lists.sort_unstable_by_key(|list| Arc::as_ptr(list));
        lists.dedup_by(|a, b| Arc::ptr_eq(a, b));
        let mut lists = lists.into_iter();
        let mut all = Self { shared: lists.next().map(Arc::clone), recent };
        for list in lists {
            all.shared = Some(Arc::new(all.shared().merged(list)));
        }
        all.recent.sort_unstable_by_key(|epoch| (epoch.actor, Reverse(epoch.count)));
        all.recent.dedup_by_key(|epoch| epoch.actor);
        if !all.recent.is_empty() {
            all.shared = Some(Arc::new(all.shared().raised(all.recent.iter().copied())));
            all.recent.clear();
        }
        all
    }

    /// Returns the shared entries of the clock, as a clock.
    pub(crate) fn base(&self) -> Self {
        Self { shared: self.shared.clone(), recent: Vec::new() }
    }

    /// Returns the address of the shared list, to detect clocks that share it.
    pub(crate) fn base_address(&self) -> *const Entries {
        self.shared.as_ref().map_or(std::ptr::null(), Arc::as_ptr)
    }

    /// Sets each entry to the maximum of both clocks.
    pub(crate) fn join(&mut self, other: &Self) {
        if self.is_empty() {
            self.clone_from(other);
            return;
        }
        if self.base_address() != other.base_address() {
            // A short list is added to the recent entries, which keeps the long one shared.
            if other.shared().len() <= RECENT {
                other.shared().iter().for_each(|epoch| self.raise(epoch));
            } else {
                self.flatten();
                self.shared = Some(Arc::new(self.shared().merged(other.shared())));
            }
        }
        other.recent.iter().for_each(|&epoch| self.raise(epoch));
    }

    /// Moves all entries to the shared list, so clones of the clock share them.
    pub(crate) fn flatten(&mut self) {
        if !self.recent.is_empty() {
            self.shared = Some(Arc::new(self.shared().raised(self.recent.iter().copied())));
            self.recent.clear();
        }
    }

    /// Drops the entries of actors for which `keep` returns `false`. Clocks that share entries still share them
    /// afterwards if all calls use the same `filtered`.
    pub(crate) fn retain(&mut self, keep: impl Fn(ActorId) -> bool, filtered: &mut Filtered) {
        self.recent.retain(|epoch| keep(epoch.actor));
        let Some(shared) = &self.shared else { return };
        let (_, new) = filtered.lists.entry(Arc::as_ptr(shared)).or_insert_with(|| {
            let is_whole = shared.iter().all(|epoch| keep(epoch.actor));
            let left = || shared.iter().filter(|epoch| keep(epoch.actor)).collect();
            (Arc::clone(shared), if is_whole { Arc::clone(shared) } else { Arc::new(left()) })
        });
        self.shared = Some(Arc::clone(new));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shared().len() == 0 && self.recent.is_empty()
    }

    /// Returns the number of entries, counting duplicates.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shared().len() + self.recent.len()
    }
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
