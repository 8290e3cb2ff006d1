//! Fence scopes, and what a word carries from release fences to acquire fences.
//!
//! A relaxed store carries what its thread knew at its last release fence. Threads outside the scope of that fence
//! learn nothing from it, so a word carries a separate clock for each scope that its writers have released to.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::clock::{Clock, Filtered};
use crate::epoch::{ActorId, Epoch};

/// The set of observers that a fence covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub enum Scope {
    /// The threads of the same block.
    Block,
    /// All threads of the same PE.
    Gpu,
    /// All threads, streams and hosts of the job.
    System,
}

/// Identifies a block by PE, launch and index in the launch.
type Block = (u32, u32, u32);

/// Where a thread runs, which decides the scopes that it shares with other threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pe: u32,
    block: Option<Block>,
}

impl From<Actor> for Place {
    fn from(actor: Actor) -> Self {
        let block = match actor {
            Actor::Thread { pe, launch, block, .. } => Some((pe, launch, block)),
            _ => None,
        };
        Self { pe: actor.pe(), block }
    }
}

/// What a value in memory publishes to its readers: one vector clock for each scope to which its writers have released.
///
/// The clock of a PE includes what its threads have released to the system, and the clock of a block what its threads
/// have released to the PE. A block whose clock would equal that of its PE has none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carried {
    system: Clock,
    pes: Vec<(u32, Clock)>,
    blocks: Vec<(Block, Clock)>,
    /// Where the thread that released last is running.
    last: Option<Place>,
}

impl Carried {
    /// Returns what a thread at `place` publishes after it has released `clock` at system scope.
    pub(crate) fn to_all(place: Place, clock: Clock) -> Self {
        Self { pes: vec![(place.pe, clock.clone())], system: clock, blocks: Vec::new(), last: Some(place) }
    }

    /// Returns what a thread at `place` publishes after it has released `clock` at `scope`, in addition to earlier
    /// releases.
    pub(crate) fn released(&self, place: Place, clock: Clock, scope: Scope) -> Self {
        let mut new = match scope {
            Scope::System => return Self::to_all(place, clock),
            Scope::Gpu => Self { pes: vec![(place.pe, clock)], blocks: Vec::new(), ..self.clone() },
            Scope::Block => {
                let blocks = place.block.map(|block| (block, clock)).into_iter().collect();
                Self { blocks, ..self.clone() }
            }
        };
        new.last = Some(place);
        new
    }

    /// Returns the vector clock published at system scope.
    pub(crate) fn to_system(&self) -> &Clock {
        &self.system
    }

    /// Joins `clock` into the vector clocks of all scopes.
    pub(crate) fn raise_all(&mut self, clock: &Clock) {
        self.clocks().for_each(|known| known.join(clock));
    }

    /// Adds a step to the vector clocks of all scopes.
    pub(crate) fn raise(&mut self, epoch: Epoch) {
        self.clocks().for_each(|known| known.raise(epoch));
    }

    /// Joins what another atomic update of the same word publishes.
    pub(crate) fn join(&mut self, other: &Self) {
        self.system.join(&other.system);
        join_by_key(&mut self.pes, &other.pes);
        join_by_key(&mut self.blocks, &other.blocks);
        self.last = other.last.or(self.last);
    }

    fn clocks(&mut self) -> impl Iterator<Item = &mut Clock> {
        let pes = self.pes.iter_mut().map(|(_, clock)| clock);
        pes.chain(self.blocks.iter_mut().map(|(_, clock)| clock)).chain([&mut self.system])
    }
}

fn join_by_key<K: Copy + PartialEq>(mine: &mut Vec<(K, Clock)>, theirs: &[(K, Clock)]) {
    for (key, clock) in theirs {
        match mine.iter_mut().find(|(known, _)| known == key) {
            Some((_, known)) => known.join(clock),
            None => mine.push((*key, clock.clone())),
        }
    }
}

/// Shared copy of what stores publish, since many stores publish the same.
pub(crate) type Shared = Arc<Carried>;

/// Drops settled actors from many vector clocks, and keeps clocks that share memory shared.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    pub(crate) clocks: Filtered,
    /// Each shared value with its filtered copy. The original is kept alive, so its address cannot be reused.
    carried: HashMap<*const Carried, (Shared, Shared)>,
}

impl Filter {
    /// Drops the entries of actors for which `keep` returns `false`.
    pub(crate) fn retain(&mut self, carried: &mut Shared, keep: impl Fn(ActorId) -> bool) {
        let Self { clocks, carried: known } = self;
        let (_, new) = known.entry(Arc::as_ptr(carried)).or_insert_with(|| {
            let mut new = Carried::clone(carried);
            new.clocks().for_each(|clock| clock.retain(&keep, clocks));
            (Arc::clone(carried), Arc::new(new))
        });
        *carried = Arc::clone(new);
    }
}

/// What a thread has read from words but not acquired yet, by the scope of the fence that acquires it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    block: Clock,
    pe: Clock,
    system: Clock,
}

impl Found {
    /// Adds what a word publishes to a thread at `place`.
    ///
    /// A fence of block scope acquires only from the last writer, since a word does not record the block of each of its
    /// writers.
    pub(crate) fn add(&mut self, carried: &Carried, place: Place) {
        let of_pe = carried.pes.iter().find(|(pe, _)| *pe == place.pe);
        let of_block = carried.blocks.iter().find(|(block, _)| Some(*block) == place.block);
        let is_of_block = place.block.is_some() && carried.last.and_then(|last| last.block) == place.block;
        of_block.into_iter().for_each(|(_, clock)| self.block.join(clock));
        if let Some((_, clock)) = of_pe {
            let known = if is_of_block { &mut self.block } else { &mut self.pe };
            known.join(clock);
        }
        self.system.join(&carried.system);
    }

    /// Adds a write that a fence of any scope acquires.
    pub(crate) fn add_write(&mut self, write: Epoch) {
        self.block.raise(write);
    }

    pub(crate) fn join(&mut self, other: &Self) {
        self.block.join(&other.block);
        self.pe.join(&other.pe);
        self.system.join(&other.system);
    }

    /// Removes and returns what an acquire fence of `scope` acquires.
    pub(crate) fn take(&mut self, scope: Scope) -> Clock {
        let mut taken = std::mem::take(&mut self.block);
        if scope >= Scope::Gpu {
            taken.join(&std::mem::take(&mut self.pe));
        }
        if scope == Scope::System {
            taken.join(&std::mem::take(&mut self.system));
        }
        taken
    }

    /// Whether `knows` holds for any of the clocks that an acquire fence of system scope would acquire.
    pub(crate) fn any(&self, knows: impl Fn(&Clock) -> bool) -> bool {
        [&self.block, &self.pe, &self.system].into_iter().any(knows)
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(ActorId) -> bool, filtered: &mut Filtered) {
        [&mut self.block, &mut self.pe, &mut self.system]
            .into_iter()
            .for_each(|clock| clock.retain(&keep, filtered));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(pe: u32, block: u32) -> Place {
        Actor::Thread { pe, launch: 0, block, thread: 0 }.into()
    }

    fn step(count: u32) -> (Epoch, Clock) {
        let epoch = Epoch { actor: ActorId(7), count };
        let mut clock = Clock::default();
        clock.raise(epoch);
        (epoch, clock)
    }

    fn passes(writer: Place, released: Scope, reader: Place, acquired: Scope) -> bool {
        let (epoch, clock) = step(3);
        let carried = Carried::default().released(writer, clock, released);
        let mut found = Found::default();
        found.add(&carried, reader);
        found.take(acquired).has(epoch)
    }

    #[test]
    fn both_fences_must_cover_the_other_thread() {
        use Scope::{Block, Gpu, System};
        let writer = thread(0, 0);
        for (reader, least) in [(thread(0, 0), Block), (thread(0, 1), Gpu), (thread(1, 0), System)] {
            for (released, acquired) in
                [Block, Gpu, System].into_iter().flat_map(|a| [Block, Gpu, System].map(|b| (a, b)))
            {
                let is_covered = released >= least && acquired >= least;
                assert_eq!(
                    passes(writer, released, reader, acquired),
                    is_covered,
                    "{released:?} {acquired:?}"
                );
            }
        }
    }

    #[test]
    fn a_narrow_fence_keeps_what_a_wider_one_has_released() {
        let ((early, before), (late, after)) = (step(3), step(4));
        let wide = Carried::default().released(thread(0, 0), before, Scope::System);
        let carried = wide.released(thread(0, 0), after, Scope::Gpu);
        let learned = |reader| {
            let mut found = Found::default();
            found.add(&carried, reader);
            let known = found.take(Scope::System);
            (known.has(early), known.has(late))
        };
        assert_eq!((learned(thread(0, 1)), learned(thread(1, 0))), ((true, true), (true, false)));
    }

    #[test]
    fn updates_keep_what_each_writer_has_released() {
        let ((first, a), (second, b)) = (step(3), {
            let epoch = Epoch { actor: ActorId(8), count: 1 };
            let mut clock = Clock::default();
            clock.raise(epoch);
            (epoch, clock)
        });
        let mut word = Carried::default().released(thread(0, 0), a, Scope::System);
        word.join(&Carried::default().released(thread(1, 0), b, Scope::Gpu));
        let mut found = Found::default();
        found.add(&word, thread(1, 1));
        let near = found.take(Scope::Gpu);
        assert_eq!((near.has(first), near.has(second)), (false, true));
        assert!(found.any(|known| known.has(first)) && found.take(Scope::System).has(first));
        assert!(!found.any(|known| known.has(first)));
    }
}
