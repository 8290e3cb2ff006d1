//! The graph of waiting actors, in which the sanitizer detects deadlocks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::access::{Call, Span};
use crate::actor::Actor;
use crate::epoch::ActorId;
use crate::locks::Holder;
use crate::report::{Named, Party};

/// The condition that satisfies a wait.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub enum Until {
    /// A word has a wanted value. Every other actor, and every operation in flight to this word, may write it.
    Word {
        /// The word that is polled.
        word: Span,
        /// The wanted value as text, for example `>= 3`.
        wanted: String,
        /// The value that the last poll has read, if known.
        value: Option<u64>,
    },
    /// All listed actors arrive at a barrier of a warp, block or grid.
    Arrivals {
        /// Name of the barrier in reports, for example "the barrier of block 3".
        at: String,
        /// The actors that have not arrived.
        actors: Vec<ActorId>,
    },
    /// On each listed PE, some actor arrives at a collective call.
    Members {
        /// Name of the call in reports, for example "`barrier_all` of team 0".
        at: String,
        /// The PEs that have not arrived.
        pes: Vec<u32>,
    },
    /// All listed actors finish.
    Ends {
        /// The actors that have not finished.
        actors: Vec<ActorId>,
    },
}

/// A wait of an actor: the waiting call, and the condition that satisfies it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Wait {
    /// The call in which the actor waits.
    pub call: Call,
    /// The condition that satisfies the wait.
    pub until: Until,
}

/// One line of a deadlock report: an actor that waits forever, and for what.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Stuck {
    /// The actor that waits.
    pub actor: Actor,
    /// The call in which the actor waits.
    pub call: Call,
    /// What the actor waits for, as text.
    pub waits_for: String,
    /// Number of other actors of this PE that wait in the same call for the same thing.
    pub others: usize,
    /// The word for which the actor waits, if it waits for one.
    pub word: Option<Awaited>,
}

/// A word for which an actor waits in a deadlock, and what may help to explain why it never has the wanted value.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Awaited {
    /// The word, with the object that contains it.
    pub word: Named,
    /// The value of the word, if known.
    pub value: Option<u64>,
    /// The holder of the lock, if the word belongs to one that is held.
    pub holder: Option<Holder>,
    /// The last actor that wrote the word, if any.
    pub writer: Option<Party>,
    /// Writes that may have been meant for this word: to the same word on other PEs, or to other words of the same
    /// object.
    pub elsewhere: Vec<(Named, Party)>,
}

impl Awaited {
    fn new(word: Span, value: Option<u64>) -> Self {
        let word = Named { span: word, object: None };
        Self { word, value, holder: None, writer: None, elsewhere: Vec::new() }
    }
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { word, value, holder, writer, elsewhere } = self;
        if word.object.is_some() {
            write!(f, "\n    word:      {word}")?;
        }
        if let Some(holder) = holder {
            return write!(f, "\n    holder:    {holder}");
        }
        if let Some(value) = value {
            write!(f, "\n    value:     {value}")?;
        }
        if let Some(writer) = writer {
            write!(f, "\n    writer:    {writer}")?;
        }
        for (other, party) in elsewhere {
            write!(f, "\n    elsewhere: {other}\n               {party}")?;
        }
        Ok(())
    }
}

/// A deadlock: a set of waits that can never be satisfied.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Deadlock {
    /// The waiting actors, each before the one that it waits for.
    pub stuck: Vec<Stuck>,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "deadlock: these waits cannot end")?;
        for Stuck { actor, call, waits_for, others, word } in &self.stuck {
            write!(f, "\n  {actor} waits in `{}` at {} for {waits_for}", call.name, call.site)?;
            if *others > 0 {
                write!(f, " ({others} more wait like it)")?;
            }
            if let Some(word) = word {
                word.fmt(f)?;
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Entry {
    actor: Actor,
    wait: Option<Wait>,
}

/// All actors that may still act, with the waits of those that are blocked.
#[derive(Debug, Default)]
pub(crate) struct WaitGraph {
    entries: BTreeMap<ActorId, Entry>,
    /// The actors that are waiting for a value of a word.
    for_words: BTreeSet<ActorId>,
}

impl WaitGraph {
    /// Adds an actor that is not waiting.
    pub(crate) fn add(&mut self, id: ActorId, actor: Actor) {
        self.entries.insert(id, Entry { actor, wait: None });
    }

    /// Removes an actor that has finished.
    pub(crate) fn remove(&mut self, id: ActorId) {
        self.entries.remove(&id);
        self.for_words.remove(&id);
    }

    /// Sets the wait of an actor, or clears it.
    pub(crate) fn set(&mut self, id: ActorId, wait: Option<Wait>) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if matches!(wait, Some(Wait { until: Until::Word { .. }, .. })) {
            self.for_words.insert(id);
        } else {
            self.for_words.remove(&id);
        }
        entry.wait = wait;
    }

    /// Clears the waits for words that overlap `span`, because their values may have changed.
    pub(crate) fn wake(&mut self, span: Span) {
        let entries = &mut self.entries;
        self.for_words.retain(|id| {
            let Some(entry) = entries.get_mut(id) else { return false };
            let is_woken =
                |wait: &Wait| matches!(&wait.until, Until::Word { word, .. } if word.overlaps(span));
            let is_woken = entry.wait.as_ref().is_some_and(is_woken);
            if is_woken {
                entry.wait = None;
            }
            !is_woken
        });
    }

    /// Returns the actors whose waits can never be satisfied. `may_arrive` returns whether an operation in flight may
    /// write a word.
    fn stuck(&self, may_arrive: impl Fn(Span) -> bool) -> BTreeSet<ActorId> {
        let waits = self.entries.iter().filter(|(_, entry)| entry.wait.is_some());
        let mut stuck: BTreeSet<ActorId> = waits.map(|(id, _)| *id).collect();
        loop {
            let acts = |id: &ActorId| self.entries.contains_key(id) && !stuck.contains(id);
            let some_acts = |is_candidate: &dyn Fn(ActorId, Actor) -> bool| {
                self.entries.iter().any(|(id, entry)| is_candidate(*id, entry.actor) && acts(id))
            };
            let may_end = |id: &ActorId| match self.until(*id) {
                Some(Until::Word { word, .. }) => some_acts(&|other, _| other != *id) || may_arrive(*word),
                Some(Until::Arrivals { actors, .. }) => actors.iter().all(acts),
                Some(Until::Members { pes, .. }) => {
                    pes.iter().all(|pe| some_acts(&|_, actor| actor.pe() == *pe))
                }
                Some(Until::Ends { actors }) => {
                    actors.iter().all(|other| acts(other) || !self.entries.contains_key(other))
                }
                None => true,
            };
            let free: Vec<ActorId> = stuck.iter().copied().filter(may_end).collect();
            if free.is_empty() {
                return stuck;
            }
            free.iter().for_each(|id| {
                stuck.remove(id);
            });
        }
    }

    /// Returns the waits that can never be satisfied, or `None` if there are none. `may_arrive` returns whether an
    /// operation in flight may write a word.
    pub(crate) fn deadlock(&self, may_arrive: impl Fn(Span) -> bool) -> Option<Deadlock> {
        let stuck = self.stuck(may_arrive);
        let mut lines: Vec<Stuck> = Vec::new();
        for id in self.in_order(&stuck) {
            let Some(Entry { actor, wait: Some(wait) }) = self.entries.get(&id) else { continue };
            let waits_for = self.describe(&wait.until, &stuck);
            let is_alike = |line: &&mut Stuck| {
                line.actor.pe() == actor.pe() && line.call == wait.call && line.waits_for == waits_for
            };
            match lines.iter_mut().find(is_alike) {
                Some(line) => line.others += 1,
                None => {
                    let word = match wait.until {
                        Until::Word { word, value, .. } => Some(Awaited::new(word, value)),
                        _ => None,
                    };
                    lines.push(Stuck { actor: *actor, call: wait.call, waits_for, others: 0, word });
                }
            }
        }
        (!lines.is_empty()).then_some(Deadlock { stuck: lines })
    }

    fn until(&self, id: ActorId) -> Option<&Until> {
        self.entries.get(&id).and_then(|entry| entry.wait.as_ref()).map(|wait| &wait.until)
    }

    /// Returns the first actor because of which `until` can never happen: it waits forever, or has finished.
    fn blocker(&self, until: &Until, stuck: &BTreeSet<ActorId>) -> Option<ActorId> {
        let has_ended = |id: &ActorId| !self.entries.contains_key(id);
        match until {
            Until::Word { .. } => None,
            Until::Arrivals { actors, .. } => {
                actors.iter().copied().find(|id| stuck.contains(id) || has_ended(id))
            }
            Until::Members { pes, .. } => {
                let is_of = |pe: u32| move |(_, entry): &(&ActorId, &Entry)| entry.actor.pe() == pe;
                let idle =
                    |pe: &&u32| self.entries.iter().filter(is_of(**pe)).all(|(id, _)| stuck.contains(id));
                let pe = pes.iter().find(idle)?;
                self.entries.iter().find(is_of(*pe)).map(|(id, _)| *id)
            }
            Until::Ends { actors } => actors.iter().copied().find(|id| stuck.contains(id)),
        }
    }

    /// Sorts the actors in `stuck` such that each precedes the first one that it waits for.
    fn in_order(&self, stuck: &BTreeSet<ActorId>) -> Vec<ActorId> {
        let (mut order, mut known) = (Vec::new(), BTreeSet::new());
        for &first in stuck {
            let mut next = Some(first);
            while let Some(id) = next.filter(|id| known.insert(*id)) {
                order.push(id);
                next =
                    self.until(id).and_then(|until| self.blocker(until, stuck)).filter(|b| stuck.contains(b));
            }
        }
        order
    }

    fn describe(&self, until: &Until, stuck: &BTreeSet<ActorId>) -> String {
        let blocker = match self.blocker(until, stuck) {
            Some(id) => match self.entries.get(&id) {
                Some(entry) => format!("{}, which waits", entry.actor),
                None => "an actor that has ended".into(),
            },
            None => "a PE that has ended".into(),
        };
        match until {
            Until::Word { word: Span { memory, bytes }, wanted, .. } => {
                let writers = if stuck.len() > 1 { "only waiting actors" } else { "nobody" };
                let (space, pe, at) = (memory.space, memory.pe, bytes.start);
                format!(
                    "`{wanted}` in the word at {at:#x} in the {space} of PE {pe}, which {writers} may write"
                )
            }
            Until::Arrivals { at, .. } | Until::Members { at, .. } => format!("{at} of {blocker}"),
            Until::Ends { .. } => format!("the end of {blocker}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Site;

    fn call(line: u32) -> Call {
        Call { name: "wait", site: Site { file: "test.rs", line } }
    }

    fn thread(pe: u32, thread: u32) -> Actor {
        Actor::Thread { pe, launch: 0, block: 0, thread }
    }

    fn graph() -> WaitGraph {
        let mut graph = WaitGraph::default();
        for (id, actor) in [thread(0, 0), thread(0, 1), thread(1, 0)].into_iter().enumerate() {
            graph.add(ActorId(id as u64), actor);
        }
        graph
    }

    fn word(line: u32) -> Option<Wait> {
        let until = Until::Word { word: Span::heap(1, 64, 8), wanted: ">= 3".into(), value: None };
        Some(Wait { call: call(line), until })
    }

    fn arrivals(line: u32, actors: &[u64]) -> Option<Wait> {
        let actors = actors.iter().map(|&id| ActorId(id)).collect();
        Some(Wait {
            call: call(line),
            until: Until::Arrivals { at: "the barrier of block 0".into(), actors },
        })
    }

    fn members(line: u32, pes: &[u32]) -> Option<Wait> {
        Some(Wait { call: call(line), until: Until::Members { at: "`sync_all`".into(), pes: pes.to_vec() } })
    }

    fn lines(graph: &WaitGraph, arrives: bool) -> Vec<String> {
        let deadlock = graph.deadlock(|_| arrives);
        deadlock
            .map_or(Vec::new(), |d| d.to_string().lines().skip(1).map(|line| line.trim().into()).collect())
    }

    #[test]
    fn a_word_that_somebody_may_write_is_no_deadlock() {
        let mut graph = graph();
        graph.set(ActorId(0), word(1));
        graph.set(ActorId(1), arrivals(2, &[0]));
        assert!(lines(&graph, false).is_empty());
        graph.remove(ActorId(2));
        assert_eq!(lines(&graph, false).len(), 2);
        assert!(lines(&graph, true).is_empty(), "an operation on its way may write the word");
        graph.wake(Span::heap(1, 64, 4));
        assert!(lines(&graph, false).is_empty(), "the actor must look again");
    }

    #[test]
    fn a_cycle_is_reported_in_its_order() {
        let mut graph = graph();
        graph.set(ActorId(0), members(10, &[1]));
        graph.set(ActorId(1), arrivals(20, &[0]));
        graph.set(ActorId(2), word(30));
        let lines = lines(&graph, false);
        let ends = [
            (
                "PE 0 launch 0 block 0 thread 0 waits in `wait` at test.rs:10",
                "PE 1 launch 0 block 0 thread 0, which waits",
            ),
            (
                "PE 1 launch 0 block 0 thread 0 waits in `wait` at test.rs:30",
                "PE 1, which only waiting actors may write",
            ),
            (
                "PE 0 launch 0 block 0 thread 1 waits in `wait` at test.rs:20",
                "PE 0 launch 0 block 0 thread 0, which waits",
            ),
        ];
        assert_eq!(lines.len(), ends.len());
        for (line, (start, end)) in lines.iter().zip(ends) {
            assert!(line.starts_with(start) && line.ends_with(end), "{line}");
        }
        assert!(lines[1].contains("for `>= 3` in the word at 0x40 in the heap of"), "{}", lines[1]);
    }

    #[test]
    fn an_arrival_of_an_ended_actor_never_comes() {
        let mut graph = graph();
        graph.set(ActorId(0), arrivals(1, &[1]));
        assert!(lines(&graph, false).is_empty());
        graph.remove(ActorId(1));
        assert_eq!(lines(&graph, false).len(), 1);
        assert!(lines(&graph, false)[0].ends_with("for the barrier of block 0 of an actor that has ended"));
        graph.set(ActorId(0), members(1, &[1]));
        graph.remove(ActorId(2));
        assert!(lines(&graph, false)[0].ends_with("of a PE that has ended"));
    }

    #[test]
    fn the_end_of_an_ended_actor_has_come() {
        let mut graph = graph();
        let ends = Some(Wait { call: call(1), until: Until::Ends { actors: vec![ActorId(1), ActorId(2)] } });
        graph.set(ActorId(0), ends);
        graph.remove(ActorId(1));
        assert!(lines(&graph, false).is_empty());
        graph.set(ActorId(2), word(2));
        assert_eq!(lines(&graph, false).len(), 2);
        graph.remove(ActorId(2));
        assert!(lines(&graph, false).is_empty());
    }

    #[test]
    fn like_waits_are_one_line() {
        let mut graph = graph();
        graph.set(ActorId(0), word(1));
        graph.set(ActorId(1), word(1));
        graph.remove(ActorId(2));
        assert!(lines(&graph, false)[0].ends_with("may write (1 more wait like it)"));
    }
}
