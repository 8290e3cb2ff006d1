//! Compact lists of vector clock entries, grouped into runs of actors with consecutive IDs.

use crate::epoch::{ActorId, Epoch};

/// A run of actors with consecutive IDs, such as the threads of a block.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u64,
    /// Index in `counts` of the first actor's entry.
    at: usize,
}

/// A list of vector clock entries in the order of actor IDs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries {
    runs: Vec<Run>,
    /// Last known step count of each actor.
    counts: Vec<u32>,
}

pub(crate) static NONE: Entries = Entries { runs: Vec::new(), counts: Vec::new() };

impl Entries {
    pub(crate) fn len(&self) -> usize {
        self.counts.len()
    }

    /// Returns the step count of an actor, or 0 if it has no entry.
    pub(crate) fn get(&self, actor: ActorId) -> u32 {
        self.place(actor, &mut 0).map_or(0, |place| self.counts[place])
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Epoch> {
        self.runs.iter().enumerate().flat_map(|(number, run)| {
            let counts = &self.counts[run.at..self.end(number)];
            (run.first..).zip(counts).map(|(actor, &count)| Epoch { actor: ActorId(actor), count })
        })
    }

    /// Returns the component-wise maximum of two lists. Fast if each run of the shorter list is part of a run of the
    /// longer one, which is the usual case.
    pub(crate) fn merged(&self, other: &Self) -> Self {
        let (short, long) = if self.len() < other.len() { (self, other) } else { (other, self) };
        let (mut all, mut hint) = (long.clone(), 0);
        for (number, run) in short.runs.iter().enumerate() {
            let counts = &short.counts[run.at..short.end(number)];
            let place = long.place(ActorId(run.first), &mut hint);
            // A run that is not part of the longer list needs the slow path.
            let Some(place) = place.filter(|place| place + counts.len() <= long.end(hint)) else {
                return long.raised(short.iter());
            };
            let theirs = &mut all.counts[place..place + counts.len()];
            theirs.iter_mut().zip(counts).for_each(|(count, other)| *count = (*count).max(*other));
        }
        all
    }

    /// Returns the component-wise maximum of this list and `entries`, which must be in the order of actor IDs.
    ///
    /// Most actors already have an entry, so this copies the list and raises counts.
    pub(crate) fn raised(&self, entries: impl Iterator<Item = Epoch>) -> Self {
        let (mut all, mut new, mut hint) = (self.clone(), Vec::new(), 0);
        for epoch in entries {
            match self.place(epoch.actor, &mut hint) {
                Some(place) => all.counts[place] = all.counts[place].max(epoch.count),
                None => new.push(epoch),
            }
        }
        if new.is_empty() {
            return all;
        }
        let (mut old, mut new) = (all.iter().peekable(), new.into_iter().peekable());
        let next = || match (old.peek(), new.peek()) {
            (Some(a), Some(b)) if a.actor > b.actor => new.next(),
            (None, _) => new.next(),
            _ => old.next(),
        };
        std::iter::from_fn(next).collect()
    }

    /// Returns the index of an actor's entry in `counts`. `hint` is the index of a run to try first, and is set to the
    /// run that contains the actor.
    fn place(&self, ActorId(actor): ActorId, hint: &mut usize) -> Option<usize> {
        let begins_at = |number: usize| self.runs.get(number).map_or(u64::MAX, |run| run.first);
        if !(begins_at(*hint)..begins_at(*hint + 1)).contains(&actor) {
            *hint = self.runs.partition_point(|run| run.first <= actor).checked_sub(1)?;
        }
        let Run { first, at } = *self.runs.get(*hint)?;
        let place = at + (actor - first) as usize;
        (place < self.end(*hint)).then_some(place)
    }

    fn end(&self, number: usize) -> usize {
        self.runs.get(number + 1).map_or(self.counts.len(), |next| next.at)
    }
}

impl FromIterator<Epoch> for Entries {
    /// Creates a list of entries, which must be in actor order.
    fn from_iter<I: IntoIterator<Item = Epoch>>(entries: I) -> Self {
        let (mut all, mut next) = (Self::default(), None);
        for Epoch { actor: ActorId(actor), count } in entries {
            if next != Some(actor) {
                all.runs.push(Run { first: actor, at: all.counts.len() });
            }
            all.counts.push(count);
            next = Some(actor + 1);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn list(entries: &BTreeMap<u64, u32>) -> Entries {
        entries.iter().map(|(&actor, &count)| Epoch { actor: ActorId(actor), count }).collect()
    }

    proptest! {
        #[test]
        fn a_union_has_the_larger_counts(
            a in prop::collection::btree_map(0..40u64, 1..9u32, 0..40),
            b in prop::collection::btree_map(0..40u64, 1..9u32, 0..40),
            // The actors of the second list are a subset of those of the first.
            part in prop::option::of(0..40u64),
        ) {
            let is_chosen = |actor: u64| part.is_none_or(|first| actor >= first && a.contains_key(&actor));
            let b: BTreeMap<u64, u32> = b.into_iter().filter(|(actor, _)| is_chosen(*actor)).collect();
            let union = list(&a).merged(&list(&b));
            let count = |map: &BTreeMap<u64, u32>, actor: u64| map.get(&actor).copied().unwrap_or(0);
            for actor in 0..42 {
                prop_assert_eq!(union.get(ActorId(actor)), count(&a, actor).max(count(&b, actor)));
            }
            let all: BTreeMap<u64, u32> = union.iter().map(|epoch| (epoch.actor.0, epoch.count)).collect();
            prop_assert_eq!((union.len(), union.runs.len()), (all.len(), list(&all).runs.len()));
        }
    }
}
