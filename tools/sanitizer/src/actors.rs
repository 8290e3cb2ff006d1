//! The table of actors: everything that has its own program order, such as GPU threads and operations in flight.
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

/// Step count that covers all steps of an operation, including those of stores added later.
pub(crate) const ALL: u32 = u32::MAX;

/// Maximum number of nested waits to follow when checking what an actor will know. For example, a host waits for a
/// stream, and the stream for a thread.
const HOPS: u32 = 2;

pub(crate) fn delivery_of(operation: ActorId) -> Epoch {
    Epoch { actor: operation, count: DELIVERED }
}

/// The kind of synchronization by which an actor last learned of steps of others, used to explain a race.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Learned {
    #[default]
    Nothing,
    /// The actor learned by a message between hosts, an event, or the end of a launch.
    Message,
    /// The actor learned by a barrier or another collective call.
    Meeting,
    /// The actor learned by an acquire fence after reading a word.
    Word,
}

/// State of an actor: its vector clock, and what is needed to complete and order operations.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) actor: Actor,
    /// Vector clock of everything that happened before the next step. The actor's own entry is the count of that step.
    pub(crate) clock: Clock,
    /// Whether the actor may take further steps.
    pub(crate) is_live: bool,
    /// Whether no other actor will join this one any more.
    pub(crate) is_joined: bool,
    /// For an operation, the step of the poster at which it was posted.
    pub(crate) post: Option<Epoch>,
    /// Steps of other actors at which this operation was complete up to a given count. An actor that knows such a step
    /// knows all parts of the operation up to the count.
    ends: Vec<(u32, Epoch)>,
    pub(crate) learned: Learned,
    /// For an actor, what its relaxed loads have read until its next acquire fence. For an operation, what its atomic
    /// has read until it completes.
    pub(crate) found: Option<Box<Found>>,
    /// What the actor's relaxed stores publish: its knowledge at its last release fences.
    pub(crate) carried: Option<Shared>,
    /// The deliveries that fences order before this operation. Knowing this operation's delivery implies knowing them.
    pub(crate) behind: Clock,
    /// The context of an operation, for `fence` and `quiet`.
    pub(crate) context: Option<Context>,
    /// The last step of an operation, which grows with each store that becomes part of it.
    last: u32,
    /// Whether further stores of the poster may become part of this operation.
    is_open: bool,
    /// The PE to which the actor stored last, and the operation that collects its stores to that PE.
    stores: Option<(u32, ActorId)>,
    /// Allocated only for an actor that waits or fences.
    rest: Option<Box<Rest>>,
}

/// The part of an actor's state that operations, and most threads, do not need.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// Actors that this one is about to join, at which point it will know everything they know.
    pub(crate) awaits: Vec<ActorId>,
    /// Words read by relaxed loads since the last acquire fence, with the writes that the loads observed.
    pub(crate) found_writes: Vec<(Span, Epoch)>,
    /// What the last read of a word has revealed, used to explain races.
    pub(crate) heard: Heard,
}

impl State {
    /// Returns the rarely needed part of the state, allocating it if necessary.
    pub(crate) fn rest(&mut self) -> &mut Rest {
        self.rest.get_or_insert_default()
    }

    pub(crate) fn heard(&self) -> Option<&Heard> {
        self.rest.as_ref().map(|rest| &rest.heard)
    }

    /// Returns the poster's step at which part `part` of an operation was posted. Each store to a peer has its own
    /// step, while the parts of other operations share one.
    pub(crate) fn posted_at(&self, part: u32) -> Option<Epoch> {
        let first = self.post?;
        Some(Epoch { count: first.count + part.saturating_sub(DELIVERED + 1), ..first })
    }
}

/// The state of all actors that have not settled.
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

    /// Adds an actor whose vector clock starts as `clock`. `post` is the poster's step if the actor is an operation.
    pub(crate) fn add(&mut self, actor: Actor, clock: Clock, post: Option<Epoch>) -> ActorId {
        let id = self.next_id();
        self.add_as(id, actor, clock, post);
        id
    }

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

    pub(crate) fn iter(&self) -> impl Iterator<Item = &State> {
        self.states.values().map(Box::as_ref)
    }

    /// Returns the state of an actor, or `None` if it has settled.
    pub(crate) fn get(&self, id: ActorId) -> Option<&State> {
        self.states.get(&id).map(Box::as_ref)
    }

    /// Returns the state of an actor.
    ///
    /// # Panics
    /// Panics if the actor has settled: a hook has used an actor that has finished.
    #[allow(clippy::expect_used, reason = "a hook that uses an ended actor is a mistake in Rushmem")]
    pub(crate) fn state(&mut self, id: ActorId) -> &mut State {
        self.states.get_mut(&id).expect("the actor has not ended")
    }

    /// Returns the state of an actor, like [`Actors::state`], for reading.
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

    /// Starts the actor's next step. Actors that know the current step do not know anything that follows.
    pub(crate) fn tick(&mut self, id: ActorId) {
        let Epoch { actor, count } = self.now(id);
        let state = self.state(id);
        state.clock.raise(Epoch { actor, count: count + 1 });
        state.rest.iter_mut().for_each(|rest| rest.awaits.clear());
        state.stores = None;
    }

    /// Returns the actor's vector clock, to be joined into those of others, and starts its next step.
    pub(crate) fn release(&mut self, id: ActorId) -> Clock {
        self.state(id).clock.flatten();
        let clock = self.clock(id);
        self.tick(id);
        clock
    }

    /// Records a release fence: later relaxed stores of the actor publish what it knows now, to observers in `scope`.
    pub(crate) fn fence_release(&mut self, id: ActorId, scope: Scope) {
        let clock = self.release(id);
        let state = self.state(id);
        let released = |carried: &Carried| carried.released(Place::from(state.actor), clock, scope);
        state.carried = Some(Arc::new(released(state.carried.as_deref().unwrap_or(&Carried::default()))));
    }

    /// Returns what a relaxed store of an actor publishes if fences order it after the deliveries in `behind`.
    pub(crate) fn carried(&self, id: ActorId, behind: &Clock) -> Shared {
        let carried = self.known(id).carried.clone().unwrap_or_default();
        if behind.is_empty() {
            return carried;
        }
        let mut all = Carried::clone(&carried);
        all.raise_all(behind);
        Arc::new(all)
    }

    /// Joins `clock` into the actor's vector clock, so its next step happens after everything in `clock`.
    pub(crate) fn acquire(&mut self, id: ActorId, clock: &Clock, learned: Learned) {
        self.learn(id, clock);
        let state = self.state(id);
        state.learned = learned;
        state.rest.iter_mut().for_each(|rest| rest.awaits.clear());
    }

    /// Joins `clock` into the actor's vector clock. The actor's next store to a peer starts a new operation.
    pub(crate) fn learn(&mut self, id: ActorId, clock: &Clock) {
        let state = self.state(id);
        state.clock.join(clock);
        state.stores = None;
    }

    /// Adds an operation that collects an actor's stores to one PE. It happens after everything in `start`.
    ///
    /// Further stores become part of it until the actor learns something or releases what it knows.
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

    /// Returns the operation that collects an actor's stores to `target`, or `None` if the next store needs a new one.
    pub(crate) fn open_stores(&self, poster: ActorId, target: u32) -> Option<ActorId> {
        let (_, stores) = self.known(poster).stores.filter(|(pe, _)| *pe == target)?;
        self.get(stores).is_some_and(|state| state.is_open).then_some(stores)
    }

    /// Starts a new operation with the actor's next store to a peer.
    pub(crate) fn close_stores(&mut self, poster: ActorId) {
        if let Some(state) = self.states.get_mut(&poster) {
            state.stores = None;
        }
    }

    /// Adds a store to the operation `stores`, and starts the poster's next step. Returns the step of the operation.
    pub(crate) fn add_store(&mut self, poster: ActorId, stores: ActorId) -> Epoch {
        let Epoch { actor, count } = self.now(poster);
        self.state(poster).clock.raise(Epoch { actor, count: count + 1 });
        let state = self.state(stores);
        state.last += 1;
        Epoch { actor: stores, count: state.last }
    }

    /// Whether `epoch` happens before the step whose clock is `clock`, directly or by way of a step at which `epoch`
    /// was complete. True for all settled actors.
    pub(crate) fn knows(&self, clock: &Clock, epoch: Epoch) -> bool {
        let has_end =
            |state: &State| state.ends.iter().any(|&(count, end)| count >= epoch.count && clock.has(end));
        clock.has(epoch) || self.get(epoch.actor).is_none_or(has_end)
    }

    /// Whether all parts of an operation were posted before the step whose clock is `clock`.
    pub(crate) fn knows_post(&self, clock: &Clock, operation: ActorId) -> bool {
        self.states
            .get(&operation)
            .is_none_or(|state| state.posted_at(state.last).is_none_or(|post| self.knows(clock, post)))
    }

    /// Whether a part of an operation was posted before the step whose clock is `clock`.
    pub(crate) fn knows_part(&self, clock: &Clock, part: Epoch) -> bool {
        let post = self.states.get(&part.actor).and_then(|state| state.posted_at(part.count));
        post.is_none_or(|post| self.knows(clock, post))
    }

    /// Returns the vector clock of one store in an operation that collects stores.
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

    /// Records that the parts of operation `id` up to `count` are complete at `end`, so knowing `end` implies knowing
    /// them.
    pub(crate) fn end_at(&mut self, id: ActorId, count: u32, end: Epoch) {
        if let Some(state) = self.states.get_mut(&id) {
            // Most operations are completed once.
            state.ends.reserve_exact(1);
            state.ends.push((count, end));
            // A later store would not be complete at `end`.
            state.is_open = false;
        }
    }

    /// Returns the actor, other than an operation, at whose step this part of an operation was complete, if any.
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

    /// Removes actors that all live actors know completely from the table and from all clocks.
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

    /// Whether an actor will know `epoch` at its next step, by itself or by joining the actors that it awaits. `hops`
    /// limits the nesting.
    fn will_know(&self, state: &State, epoch: Epoch, hops: u32) -> bool {
        let awaits = state.rest.iter().flat_map(|rest| &rest.awaits);
        let mut children = awaits.filter_map(|child| self.states.get(child));
        self.knows(&state.clock, epoch)
            || hops > 0 && children.any(|child| self.will_know(child, epoch, hops - 1))
    }

    /// Groups the live actors by the entries that their clocks share. Returns these entries with each group.
    fn live_groups(&self) -> Vec<(Clock, Vec<&State>)> {
        let mut live: Vec<&State> =
            self.states.values().map(Box::as_ref).filter(|state| state.is_live).collect();
        live.sort_unstable_by_key(|state| state.clock.base_address());
        let groups = live.chunk_by(|a, b| a.clock.base_address() == b.clock.base_address());
        groups.map(|group| (group[0].clock.base(), group.to_vec())).collect()
    }

    /// Returns the IDs of actors that must be kept: those that some live actor does not know completely, and those by
    /// whose steps others may become known.
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
