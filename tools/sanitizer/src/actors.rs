//! Actors: everything that has its own program order.
//!
//! An actor is *settled* once all live actors know its last step. Nothing can race with it any more, so it is removed
//! from the table and from all clocks. An actor that is not in the table is therefore known to everybody.

use std::sync::Arc;

use crate::access::{DELIVERED, Span};
use crate::actor::{Actor, Transfer};
use crate::clock::Clock;
use crate::context::{Context, Heard};
use crate::epoch::{ActorId, ActorMap, ActorSet, Epoch};
use crate::scopes::{Carried, Filter, Found, Place, Scope, Shared};

/// All parts of an operation, including those added later.
pub(crate) const ALL: u32 = u32::MAX;

/// Longest chain of actors that wait for each other, in hops: for example, a host waits for a stream, and the stream
/// for a thread.
const HOPS: u32 = 2;

/// Returns the step at which an operation is delivered.
pub(crate) fn delivery_of(operation: ActorId) -> Epoch {
    Epoch { actor: operation, count: DELIVERED }
}

/// How an actor last learned of other PEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Learned {
    #[default]
    Nothing,
    /// Through a message of the host, an event, or the end of a launch.
    Message,
    /// Through a barrier or another collective call.
    Meeting,
    /// Through a word of the same PE.
    Word,
}

/// An actor and what it knows.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) actor: Actor,
    /// Everything that happened before its next step. Its own entry is the count of that step.
    pub(crate) clock: Clock,
    /// Whether it may take further steps.
    pub(crate) is_live: bool,
    /// Whether no other actor will join it any more.
    pub(crate) is_joined: bool,
    /// For an operation, the step at which it was posted.
    pub(crate) post: Option<Epoch>,
    /// Steps of other actors at which parts of this one are complete. To know one of them is to know all parts up to
    /// the count.
    ends: Vec<(u32, Epoch)>,
    pub(crate) learned: Learned,
    /// For an actor, what relaxed loads have found, until its next acquire fence. For an operation, what its atomic has
    /// found, until it completes.
    pub(crate) found: Option<Box<Found>>,
    /// What its relaxed stores carry, which is what it knew at its last release fences.
    pub(crate) carried: Option<Shared>,
    /// The deliveries that fences order before an operation. Whoever knows its delivery knows them too.
    pub(crate) behind: Clock,
    /// The context of an operation.
    pub(crate) context: Option<Context>,
    /// The last part of an operation.
    last: u32,
    /// Whether further stores of the poster may become part of the operation.
    is_open: bool,
    /// The PE that the actor last stored to, and the operation that further stores to that PE become part of.
    stores: Option<(u32, ActorId)>,
    /// Allocated only for an actor that waits or fences.
    rest: Option<Box<Rest>>,
}

/// The part of the state that operations, and most threads, do not need.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// The children that the actor waits for. At its next step it knows all that they know.
    pub(crate) awaits: Vec<ActorId>,
    /// The writes that strong loads have found, until the next acquire fence.
    pub(crate) found_writes: Vec<(Span, Epoch)>,
    /// The last word that it has read.
    pub(crate) heard: Heard,
}

impl State {
    /// Returns the rest of the state, allocating it if necessary.
    pub(crate) fn rest(&mut self) -> &mut Rest {
        self.rest.get_or_insert_default()
    }

    /// Returns the last word that the actor has read.
    pub(crate) fn heard(&self) -> Option<&Heard> {
        self.rest.as_ref().map(|rest| &rest.heard)
    }

    /// Returns the step at which a part of an operation was posted. Each store to a peer has its own step, while all
    /// parts of another operation share one.
    pub(crate) fn posted_at(&self, part: u32) -> Option<Epoch> {
        let first = self.post?;
        Some(Epoch { count: first.count + part.saturating_sub(DELIVERED + 1), ..first })
    }
}

/// The table of actors.
#[derive(Debug, Default)]
pub(crate) struct Actors {
    /// The states are large, so they are boxed to keep the table small.
    states: ActorMap<Box<State>>,
    next: u64,
}

impl Actors {
    /// Allocates the ID of an actor that the engine creates by itself. [`Ids`](crate::Ids) allocates all others.
    pub(crate) fn next_id(&mut self) -> ActorId {
        self.next += 1;
        ActorId(self.next - 1)
    }

    /// Adds an actor that starts with `clock`. An operation takes no further steps.
    pub(crate) fn add(&mut self, actor: Actor, clock: Clock, post: Option<Epoch>) -> ActorId {
        let id = self.next_id();
        self.add_as(id, actor, clock, post);
        id
    }

    /// Adds an actor with a given ID, like [`Actors::add`].
    pub(crate) fn add_as(&mut self, id: ActorId, actor: Actor, mut clock: Clock, post: Option<Epoch>) {
        let is_live = !matches!(actor, Actor::Operation { .. });
        // The entry of an operation covers both of its steps.
        clock.raise(Epoch { actor: id, count: if is_live { 1 } else { DELIVERED } });
        let state = State {
            actor,
            clock,
            is_live,
            is_joined: !is_live,
            post,
            ends: Vec::new(),
            learned: Learned::Nothing,
            found: None,
            carried: None,
            behind: Clock::default(),
            context: None,
            last: DELIVERED,
            is_open: false,
            stores: None,
            rest: None,
        };
        self.states.insert(id, Box::new(state));
    }

    /// Returns the states of all actors that have not settled.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &State> {
        self.states.values().map(Box::as_ref)
    }

    /// Returns the state of an actor, unless it has settled.
    pub(crate) fn get(&self, id: ActorId) -> Option<&State> {
        self.states.get(&id).map(Box::as_ref)
    }

    /// Returns the state of an actor.
    ///
    /// # Panics
    /// If the actor has settled, which means that a hook has used an actor after its end.
    #[allow(clippy::expect_used, reason = "a hook that uses an ended actor is a mistake in Rushmem")]
    pub(crate) fn state(&mut self, id: ActorId) -> &mut State {
        self.states.get_mut(&id).expect("the actor has not ended")
    }

    /// Returns the state of an actor, like [`Actors::state`].
    #[allow(clippy::expect_used, reason = "a hook that uses an ended actor is a mistake in Rushmem")]
    pub(crate) fn known(&self, id: ActorId) -> &State {
        self.states.get(&id).expect("the actor has not ended")
    }

    pub(crate) fn clock(&mut self, id: ActorId) -> Clock {
        self.state(id).clock.clone()
    }

    /// Returns the current step of an actor.
    pub(crate) fn now(&mut self, id: ActorId) -> Epoch {
        Epoch { actor: id, count: self.state(id).clock.get(id) }
    }

    /// Starts the next step. Whoever knows the current one does not know what follows.
    pub(crate) fn tick(&mut self, id: ActorId) {
        let Epoch { actor, count } = self.now(id);
        let state = self.state(id);
        state.clock.raise(Epoch { actor, count: count + 1 });
        state.rest.iter_mut().for_each(|rest| rest.awaits.clear());
        state.stores = None;
    }

    /// Returns the actor's clock, to be passed to others, and starts the next step.
    pub(crate) fn release(&mut self, id: ActorId) -> Clock {
        self.state(id).clock.flatten();
        let clock = self.clock(id);
        self.tick(id);
        clock
    }

    /// Records a release fence: later relaxed stores of the actor carry what it knows now.
    pub(crate) fn fence_release(&mut self, id: ActorId, scope: Scope) {
        let clock = self.release(id);
        let state = self.state(id);
        let released = |carried: &Carried| carried.released(Place::from(state.actor), clock, scope);
        state.carried = Some(Arc::new(released(state.carried.as_deref().unwrap_or(&Carried::default()))));
    }

    /// Returns what a relaxed store of an actor carries if it follows the deliveries in `behind`.
    pub(crate) fn carried(&self, id: ActorId, behind: &Clock) -> Shared {
        let carried = self.known(id).carried.clone().unwrap_or_default();
        if behind.is_empty() {
            return carried;
        }
        let mut all = Carried::clone(&carried);
        all.raise_all(behind);
        Arc::new(all)
    }

    /// Adds `clock` to what an actor knows.
    pub(crate) fn acquire(&mut self, id: ActorId, clock: &Clock, learned: Learned) {
        self.learn(id, clock);
        let state = self.state(id);
        state.learned = learned;
        state.rest.iter_mut().for_each(|rest| rest.awaits.clear());
    }

    /// Adds what completed operations tell to what an actor knows. Its next store to a peer starts a new operation.
    pub(crate) fn learn(&mut self, id: ActorId, clock: &Clock) {
        let state = self.state(id);
        state.clock.join(clock);
        state.stores = None;
    }

    /// Adds an operation for stores to a PE, which follows `start`. Further stores of the poster become part of it
    /// until the poster learns something or releases what it knows.
    pub(crate) fn add_stores(
        &mut self,
        actor: Actor,
        poster: ActorId,
        (start, behind): (Clock, &Clock),
        target: u32,
    ) -> ActorId {
        let (made, carried) = (self.now(poster), self.carried(poster, behind));
        let stores = self.add(actor, Clock::default(), Some(made));
        let state = self.state(stores);
        (state.clock, state.carried, state.is_open) = (start, Some(carried), true);
        self.state(poster).stores = Some((target, stores));
        stores
    }

    /// Returns the operation that the next store of an actor to `target` becomes part of, if there is one.
    pub(crate) fn open_stores(&self, poster: ActorId, target: u32) -> Option<ActorId> {
        let (_, stores) = self.known(poster).stores.filter(|(pe, _)| *pe == target)?;
        self.get(stores).is_some_and(|state| state.is_open).then_some(stores)
    }

    /// Starts a new operation at the next store of an actor.
    pub(crate) fn close_stores(&mut self, poster: ActorId) {
        if let Some(state) = self.states.get_mut(&poster) {
            state.stores = None;
        }
    }

    /// Adds a store to an operation of stores, and starts the poster's next step.
    pub(crate) fn add_store(&mut self, poster: ActorId, stores: ActorId) -> Epoch {
        let Epoch { actor, count } = self.now(poster);
        self.state(poster).clock.raise(Epoch { actor, count: count + 1 });
        let state = self.state(stores);
        state.last += 1;
        Epoch { actor: stores, count: state.last }
    }

    /// Whether `clock` knows `epoch`, by its own entry or by a step at which `epoch` was complete. Everybody knows a
    /// settled actor.
    pub(crate) fn knows(&self, clock: &Clock, epoch: Epoch) -> bool {
        let has_end =
            |state: &State| state.ends.iter().any(|&(count, end)| count >= epoch.count && clock.has(end));
        clock.has(epoch) || self.get(epoch.actor).is_none_or(has_end)
    }

    /// Whether `clock` knows that all parts of an operation have been posted.
    pub(crate) fn knows_post(&self, clock: &Clock, operation: ActorId) -> bool {
        self.states
            .get(&operation)
            .is_none_or(|state| state.posted_at(state.last).is_none_or(|post| self.knows(clock, post)))
    }

    /// Whether `clock` knows that a part of an operation has been posted.
    pub(crate) fn knows_part(&self, clock: &Clock, part: Epoch) -> bool {
        let post = self.states.get(&part.actor).and_then(|state| state.posted_at(part.count));
        post.is_none_or(|post| self.knows(clock, post))
    }

    /// Returns everything that happened before a part of an operation of stores.
    pub(crate) fn clock_of_part(&self, part: Epoch) -> Clock {
        let state = self.known(part.actor);
        let mut clock = state.clock.clone();
        state.posted_at(part.count).into_iter().for_each(|post| clock.raise(post));
        clock
    }

    /// Adds the delivery of an operation to `clock`, together with the fences before it.
    pub(crate) fn add_delivered(&self, clock: &mut Clock, operation: ActorId) {
        if let Some(state) = self.states.get(&operation) {
            clock.raise(delivery_of(operation));
            clock.join(&state.behind);
        }
    }

    /// Records that whoever knows `end` also knows the parts of `id` up to `count`.
    pub(crate) fn end_at(&mut self, id: ActorId, count: u32, end: Epoch) {
        if let Some(state) = self.states.get_mut(&id) {
            // Most operations are completed once.
            state.ends.reserve_exact(1);
            state.ends.push((count, end));
            // A later store would not be complete at `end`.
            state.is_open = false;
        }
    }

    /// Returns the actor other than an operation that has completed this part of an operation, if any.
    pub(crate) fn completer(&self, epoch: Epoch) -> Option<Actor> {
        let ends = self.states.get(&epoch.actor)?.ends.iter().filter(|(count, _)| *count >= epoch.count);
        let mut completers = ends.filter_map(|(_, end)| Some(self.states.get(&end.actor)?.actor));
        completers.find(|completer| !matches!(completer, Actor::Operation { .. }))
    }

    pub(crate) fn len(&self) -> usize {
        self.states.len()
    }

    pub(crate) fn has_settled(&self, id: ActorId) -> bool {
        !self.states.contains_key(&id)
    }

    /// Removes the actors that have settled from the table and from all clocks.
    pub(crate) fn settle(&mut self, filter: &mut Filter) {
        let left = self.unsettled();
        self.states.retain(|id, _| left.contains(id));
        let remains = |id| left.contains(&id);
        for state in self.states.values_mut() {
            if let Some(carried) = &mut state.carried {
                filter.retain(carried, remains);
            }
            let filtered = &mut filter.clocks;
            state.clock.retain(remains, filtered);
            let heard = state.rest.iter_mut().filter_map(|rest| rest.heard.knew.as_mut());
            heard.for_each(|knew| Arc::make_mut(knew).retain(remains, filtered));
            state.found.iter_mut().for_each(|found| found.retain(remains, filtered));
            state.behind.retain(remains, filtered);
            state.ends.retain(|(_, end)| remains(end.actor));
        }
    }

    /// Whether an actor will know `epoch` at its next step, by itself or from the children that it waits for.
    fn will_know(&self, state: &State, epoch: Epoch, hops: u32) -> bool {
        let awaits = state.rest.iter().flat_map(|rest| &rest.awaits);
        let mut children = awaits.filter_map(|child| self.states.get(child));
        self.knows(&state.clock, epoch)
            || hops > 0 && children.any(|child| self.will_know(child, epoch, hops - 1))
    }

    /// Groups the live actors by the shared part of their clocks. Returns that part with each group.
    fn live_groups(&self) -> Vec<(Clock, Vec<&State>)> {
        let mut live: Vec<&State> =
            self.states.values().map(Box::as_ref).filter(|state| state.is_live).collect();
        live.sort_unstable_by_key(|state| state.clock.base_address());
        let groups = live.chunk_by(|a, b| a.clock.base_address() == b.clock.base_address());
        groups.map(|group| (group[0].clock.base(), group.to_vec())).collect()
    }

    /// Returns the actors that some live actor does not know completely, and those by whose steps they may become
    /// known. A fence makes no accesses, so it stays only as such a step.
    fn unsettled(&self) -> ActorSet {
        let groups = self.live_groups();
        let all_will_know = |epoch| {
            // One test of the shared part answers for the whole group in most cases.
            let group_will = |(base, group): &(Clock, Vec<&State>)| {
                self.knows(base, epoch) || group.iter().all(|live| self.will_know(live, epoch, HOPS))
            };
            groups.iter().all(group_will)
        };
        let is_left = |id: ActorId, state: &State| {
            if matches!(state.actor, Actor::Operation { transfer: Transfer::Fence, .. }) {
                return false;
            }
            // Of an operation, all parts must be known.
            let count = if state.post.is_some() { state.last } else { state.clock.get(id) };
            let last = Epoch { actor: id, count };
            state.is_live || !state.is_joined || !all_will_know(last)
        };
        let first = self.states.iter().filter(|(id, state)| is_left(**id, state)).map(|(id, _)| *id);
        // Everything that an unsettled actor ends at must stay, since knowing it means knowing that actor.
        let mut queue: Vec<ActorId> = first.collect();
        let mut left: ActorSet = queue.iter().copied().collect();
        while let Some(id) = queue.pop() {
            let ends = self.states.get(&id).map_or(&[][..], |state| &state.ends);
            let known = ends.iter().map(|(_, end)| end.actor).filter(|end| self.states.contains_key(end));
            queue.extend(known.filter(|end| left.insert(*end)));
        }
        left
    }
}
