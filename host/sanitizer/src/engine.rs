//! The engine: one method for each relation of the memory model.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::access::{Access, Call, DELIVERED, Kind, Memory, SOURCE_READ, Span};
use crate::accesses::{Accesses, Entry, List};
use crate::actors::{ALL, Actor, Actors, Learned, Transfer, delivery_of};
use crate::calls::Calls;
use crate::clock::{Clock, Filtered};
use crate::context::{Announcer, Context};
use crate::deadlock::{Deadlock, Wait, WaitGraph};
use crate::epoch::{ActorId, ActorMap, Epoch};
use crate::intervals::Bytes;
use crate::meetings::{Departure, MeetingId, Meetings};
use crate::order::{Knowledge, Side, missing};
use crate::pages::{Conflict, Met, PAGE};
use crate::post::Post;
use crate::queues::Queues;
use crate::report::{Party, Race, Races};
use crate::shadow::Shadow;
use crate::values::Values;

/// The knowledge of an actor at one time, for another actor: an event of a stream, or a message between hosts.
#[derive(Clone, Debug)]
pub struct Token(Clock);

/// The buffers of a collective call in one PE.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Buffers {
    /// The memory that the call reads in this PE.
    pub reads: Vec<Span>,
    /// The memory that the call writes in this PE.
    pub writes: Vec<Span>,
    /// The member that has the data to write; `None` if all have a part of it.
    pub root: Option<u32>,
}

/// The strength of a load that waits for a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Acquire {
    /// The load acquires.
    Now,
    /// A later acquire fence of the same actor acquires.
    AtFence,
}

/// The number of new actors after which the engine forgets settled ones.
const SETTLE_AFTER: usize = 1024;

/// An operation that has not been delivered.
#[derive(Debug)]
struct Undelivered {
    /// The PE that posted it.
    pe: u32,
    start: Clock,
    post: Post,
}

/// The happens-before engine. The methods follow the order of the execution that it watches.
///
/// A hook calls a method that releases *before* the step that others can see. It calls a method that acquires *after* the
/// step that has seen them.
#[derive(Debug, Default)]
pub struct Engine {
    actors: Actors,
    shadow: Shadow,
    values: Values,
    queues: Queues,
    meetings: Meetings,
    waits: WaitGraph,
    races: Races,
    calls: Calls,
    undelivered: ActorMap<Undelivered>,
    /// The accesses of the blocks that run.
    accesses: Vec<Arc<Accesses>>,
    /// The number of actors at which the engine forgets settled ones.
    settle_at: usize,
}

/// # Actors
impl Engine {
    /// Creates an engine without actors.
    pub fn new() -> Self {
        Self { settle_at: SETTLE_AFTER, ..Self::default() }
    }

    /// Adds an actor that follows nobody: the first host thread of a PE.
    pub fn start(&mut self, actor: Actor) -> ActorId {
        self.begin(actor, Clock::default())
    }

    /// Adds an actor that follows `parent`: a GPU thread of a launch, a stream, or a host thread.
    pub fn fork(&mut self, parent: ActorId, actor: Actor) -> ActorId {
        let clock = self.actors.release(parent);
        self.begin(actor, clock)
    }

    /// Adds actors that follow `parent`: the GPU threads of a block.
    pub fn fork_all(&mut self, parent: ActorId, actors: impl IntoIterator<Item = Actor>) -> Vec<ActorId> {
        let clock = self.actors.release(parent);
        actors.into_iter().map(|actor| self.begin(actor, clock.clone())).collect()
    }

    fn begin(&mut self, actor: Actor, clock: Clock) -> ActorId {
        let id = self.actors.add(actor, clock, None);
        if !matches!(actor, Actor::Stream { .. }) {
            self.waits.add(id, actor);
        }
        id
    }

    /// Ends an actor: it makes no further steps.
    pub fn end(&mut self, actor: ActorId) {
        self.actors.state(actor).is_live = false;
        self.waits.remove(actor);
    }

    /// Lets `parent` follow the end of `child`. Nobody joins `child` again.
    pub fn join(&mut self, parent: ActorId, child: ActorId) {
        self.join_all(parent, &[child]);
    }

    /// Lets `parent` follow the ends of `children`, as [`Engine::join`] does.
    pub fn join_all(&mut self, parent: ActorId, children: &[ActorId]) {
        let clock = self.union(children);
        self.actors.acquire(parent, &clock, Learned::Message);
        children.iter().for_each(|&child| self.actors.state(child).is_joined = true);
        self.settle_if_many();
    }

    /// Returns everything that any of the actors knows.
    fn union(&self, actors: &[ActorId]) -> Clock {
        Clock::union(actors.iter().filter_map(|&actor| Some(&self.actors.get(actor)?.clock)))
    }

    /// Notes that the next step of `parent` is to join one of `children`, so that it does not hold up the settling.
    pub fn awaits(&mut self, parent: ActorId, children: &[ActorId]) {
        self.actors.state(parent).rest().awaits = children.to_vec();
    }

    /// Returns the knowledge of `actor` for others.
    pub fn release(&mut self, actor: ActorId) -> Token {
        Token(self.actors.release(actor))
    }

    /// Lets `actor` follow the step that made the token.
    pub fn acquire(&mut self, actor: ActorId, token: &Token) {
        self.actors.acquire(actor, &token.0, Learned::Message);
    }

    /// Forgets everything that all live actors know. The engine does so from time to time.
    pub fn settle(&mut self) {
        let mut filtered = Filtered::default();
        self.actors.settle(&mut filtered);
        let actors = &self.actors;
        self.queues.settle(actors);
        self.shadow.settle(|epoch| actors.has_settled(epoch.actor));
        self.values.retain(|id| !actors.has_settled(id), &mut filtered);
        self.settle_at = 2 * self.actors.len() + SETTLE_AFTER;
    }

    fn settle_if_many(&mut self) {
        if self.actors.len() >= self.settle_at {
            self.settle();
        }
    }

    /// Returns the numbers of actors and of intervals that the engine keeps.
    pub fn size(&self) -> (usize, usize) {
        (self.actors.len(), self.shadow.len())
    }
}

/// # Memory
impl Engine {
    /// Begins the life of an object, or of a part of it.
    pub fn alloc(&mut self, span: Span) {
        self.take_all(|accesses| !accesses.is_empty());
        self.shadow.clear(span);
        self.values.clear(span);
    }

    /// Ends the life of an object.
    pub fn free(&mut self, actor: ActorId, span: Span, call: Call) {
        self.take_all(|accesses| !accesses.is_empty());
        self.note_stores(span);
        self.step(actor, span, Kind::Free, call);
    }

    /// Loads, without an order.
    pub fn load(&mut self, actor: ActorId, span: Span, call: Call) {
        self.step(actor, span, Kind::Read, call);
    }

    /// Stores to memory of the actor's own PE, without an order.
    pub fn store(&mut self, actor: ActorId, span: Span, call: Call) {
        let epoch = self.actors.now(actor);
        self.store_at(actor, epoch, span, call);
    }

    fn store_at(&mut self, actor: ActorId, epoch: Epoch, span: Span, call: Call) {
        if self.step_at(actor, epoch, span, Kind::Write, call) {
            self.values.set_unknown(span);
        } else {
            self.values.clear(span);
        }
        self.waits.wake(span);
    }

    /// Stores a word with the knowledge at the last release fence.
    pub fn store_relaxed(&mut self, actor: ActorId, word: Span, call: Call) {
        self.actors.tick(actor);
        self.step(actor, word, Kind::Set, call);
        let write = self.actors.now(actor);
        let clock = self.actors.state(actor).rest().released.clone();
        self.values.set(word, &clock, Some((write, word.bytes)), None);
        self.waits.wake(word);
        self.actors.tick(actor);
    }

    /// Makes a release fence.
    pub fn fence_release(&mut self, actor: ActorId) {
        let clock = self.actors.release(actor);
        self.actors.state(actor).rest().released = clock;
    }

    /// Makes an acquire fence.
    pub fn fence_acquire(&mut self, actor: ActorId) {
        let now = self.actors.now(actor);
        let state = self.actors.state(actor);
        let found = std::mem::take(&mut state.found);
        let writes = std::mem::take(&mut state.rest().found_writes);
        writes.into_iter().for_each(|(word, write)| self.shadow.see(word, write, now));
        self.actors.acquire(actor, &found, Learned::Word);
    }

    /// Notes a look at a word that has not found the wanted value.
    pub fn look(&mut self, actor: ActorId, word: Span, call: Call) {
        self.step(actor, word, Kind::Wait, call);
    }

    /// Notes a load that has found a value: the end of a wait, a test that succeeds, or any strong load.
    pub fn observe(&mut self, actor: ActorId, word: Span, acquire: Acquire, call: Call) {
        self.take_all(Accesses::has_stores);
        self.note_stores(word);
        let (mut clock, mut writes, mut heard) = (Clock::default(), Vec::new(), None);
        for release in self.values.seen(word) {
            heard = release.announcer.or(heard);
            clock.join(&release.clock);
            let Some((write, bytes)) = release.write else { continue };
            // One clock entry stands for all stores of an operation, so a wait for one of them notes its word.
            let is_put = self.actors.get(write.actor).is_some_and(|state| state.post.is_some());
            if is_put && write.count == DELIVERED && word.bytes.contains(bytes) {
                clock.raise(write);
            } else {
                writes.push((word, write));
            }
        }
        let state = self.actors.state(actor);
        state.rest().heard = heard;
        state.found.join(&clock);
        state.rest().found_writes.append(&mut writes);
        if acquire == Acquire::Now {
            self.fence_acquire(actor);
        }
        self.waits.set(actor, None);
        self.step(actor, word, Kind::Wait, call);
    }

    /// Watches the plain accesses of a block.
    pub fn add_accesses(&mut self, accesses: Arc<Accesses>) {
        self.accesses.push(accesses);
    }

    /// Ends the watch of the accesses of a block, which has ended.
    pub fn remove_accesses(&mut self, accesses: &Arc<Accesses>) {
        self.take_accesses(accesses);
        self.accesses.retain(|other| !Arc::ptr_eq(other, accesses));
    }

    /// Takes the accesses of all lists that `is_due` chooses.
    fn take_all(&mut self, is_due: impl Fn(&Accesses) -> bool) {
        if self.accesses.iter().any(|accesses| is_due(accesses)) {
            let all = std::mem::take(&mut self.accesses);
            all.iter().filter(|accesses| is_due(accesses)).for_each(|accesses| self.take_accesses(accesses));
            self.accesses = all;
        }
    }

    /// Takes the plain accesses of a block, before the next other step of the block.
    pub fn take_accesses(&mut self, accesses: &Accesses) {
        let mut list = accesses.list();
        // A store to a peer is a step of its thread, so steps come in the order of execution.
        let mut steps = Vec::with_capacity(list.entries.len());
        for entry in &list.entries {
            steps.push(match entry.kind {
                Kind::Put => self.begin_store(entry.actor, entry.span.memory.pe, list.call(entry)),
                _ => self.actors.now(entry.actor),
            });
        }
        for row in list.rows(&steps).iter() {
            if row.len() > 1 && self.take_row(&list, row, steps[row[0]]) {
                continue;
            }
            for &number in row {
                let (entry, step) = (list.entries[number], steps[number]);
                let (Entry { actor, span, kind, .. }, call) = (entry, list.call(&entry));
                match kind {
                    Kind::Put => self.end_store(actor, step, span, call),
                    Kind::Read => drop(self.step_at(actor, step, span, kind, call)),
                    _ => self.store_at(actor, step, span, call),
                }
            }
        }
        accesses.clear(&mut list).into_iter().for_each(|actor| self.end(actor));
    }

    /// Takes a row of accesses, which begins with a step. Returns whether it does: the accesses of some rows must be taken one
    /// by one.
    fn take_row(&mut self, list: &List, row: &[usize], first: Epoch) -> bool {
        let (entry, last) = (list.entries[row[0]], list.entries[row[row.len() - 1]]);
        let (kind, width) = (entry.kind, entry.span.bytes.len() as u8);
        let bytes = Bytes { end: last.span.bytes.end, ..entry.span.bytes };
        let span = Span { bytes, ..entry.span };
        let access = Access::new(first, kind, bytes, self.calls.id(list.call(&entry)));
        let actors = &self.actors;
        let clocks: [_; PAGE as usize] = std::array::from_fn(|i| {
            row.get(i).map(|&number| &actors.known(list.entries[number].actor).clock)
        });
        let knows =
            |element: u8, epoch| clocks[usize::from(element)].is_some_and(|clock| actors.knows(clock, epoch));
        let is_taken = self.shadow.record_row(span, width, access, knows);
        if is_taken && kind == Kind::Write {
            self.values.clear(span);
            self.waits.wake(span);
        }
        is_taken
    }

    /// Records an access of an actor in its program order. Returns whether it has a race.
    fn step(&mut self, actor: ActorId, span: Span, kind: Kind, call: Call) -> bool {
        let epoch = self.actors.now(actor);
        self.step_at(actor, epoch, span, kind, call)
    }

    /// Records an access of an actor at one of its steps. The actor has learned nothing since.
    fn step_at(&mut self, actor: ActorId, epoch: Epoch, span: Span, kind: Kind, call: Call) -> bool {
        let (actors, call) = (&self.actors, self.calls.id(call));
        let clock = &actors.known(actor).clock;
        let access = Access::new(epoch, kind, span.bytes, call);
        let met = self.shadow.record(span, access, |epoch| actors.knows(clock, epoch));
        let conflicts = met.conflicts;
        let is_racy = !conflicts.is_empty();
        if is_racy {
            let clock = self.actors.clock(actor);
            self.report(conflicts, span, access, &clock, actor);
        }
        is_racy
    }

    /// Records an access by an actor with `clock`. `informed` is the actor that made the call.
    fn record(&mut self, span: Span, access: Access, clock: &Clock, informed: ActorId) {
        let actors = &self.actors;
        let met = self.shadow.record(span, access, |epoch| actors.knows(clock, epoch));
        self.keep_values(span.memory, met.lost);
        let conflicts = met.conflicts;
        self.report(conflicts, span, access, clock, informed);
    }

    /// Adds the races of an access by an actor with `clock`.
    fn report(
        &mut self,
        conflicts: Vec<Conflict>,
        span: Span,
        access: Access,
        clock: &Clock,
        informed: ActorId,
    ) {
        let actors = &self.actors;
        let (learned, heard) =
            actors.get(informed).map_or((Learned::Nothing, None), |state| (state.learned, state.heard()));
        let party = |side: Side, call| {
            let call = self.calls.call(call);
            Party { actor: side.actor.in_call(call), kind: side.kind, call }
        };
        for conflict in conflicts {
            let (Some(first), Some(second)) = (self.side(conflict.earlier), self.side(access)) else {
                continue;
            };
            let earlier = conflict.earlier.epoch.actor;
            let is_posted = actors.get(earlier).is_some_and(|state| state.post.is_some());
            let knows_post = is_posted && actors.knows_part(clock, conflict.earlier.epoch);
            let knowledge = Knowledge { knows_post, learned, heard };
            self.races.add(Race {
                first: party(first, conflict.earlier.call),
                second: party(second, access.call),
                memory: span.memory,
                bytes: conflict.bytes,
                missing: missing(first, second, knowledge),
            });
        }
    }

    fn side(&self, access: Access) -> Option<Side> {
        let state = self.actors.get(access.epoch.actor)?;
        let poster = state.post.and_then(|post| self.actors.get(post.actor));
        Some(Side {
            epoch: access.epoch,
            actor: state.actor,
            maker: poster.unwrap_or(state).actor,
            kind: access.kind,
            context: state.context,
            completer: self.actors.completer(access.epoch),
        })
    }
}

/// # Operations
impl Engine {
    /// Posts an operation. It follows everything that the poster knows. Its delivery follows the fences toward its PE.
    pub fn post(&mut self, poster: ActorId, post: Post) -> ActorId {
        self.settle_if_many();
        let Post { context, target, transfer, call, .. } = post;
        let (made, known) = (self.actors.now(poster), self.actors.clock(poster));
        let mut behind =
            if post.is_ordered { self.behind(context, target, &known) } else { Clock::default() };
        if post.is_strong {
            let covered = self.unfenced(poster, context, Some(target));
            if let Some(fence) = self.fence_of(poster, target, &covered, call) {
                self.actors.add_delivered(&mut behind, fence);
            }
        }
        let pe = self.actors.state(poster).actor.pe();
        let mut start = known.clone();
        start.join(&behind);
        let description = Actor::Operation { pe, target, transfer, call };
        let operation = self.actors.add(description, start.clone(), Some(made));
        let state = self.actors.state(operation);
        (state.behind, state.context) = (behind, Some(context));
        self.queues.add(context, operation, Some(made), target, post.is_ordered);
        if let Some(source) = post.source {
            self.part(operation, SOURCE_READ, (source, Kind::Read), &known, poster, call);
        }
        let clock = self.actors.clock(operation);
        for end in post.destination.into_iter().chain(post.signal) {
            self.part(operation, DELIVERED, end, &clock, poster, call);
        }
        // Nobody asks for the knowledge of an operation later.
        self.actors.state(operation).clock = Clock::default();
        self.undelivered.insert(operation, Undelivered { pe, start, post });
        self.actors.tick(poster);
        operation
    }

    /// Returns the knowledge of the fences that order a post behind earlier ones.
    fn behind(&self, context: Context, target: u32, known: &Clock) -> Clock {
        let mut behind = Clock::default();
        for fence in self.queues.fences(context, target, known, &self.actors) {
            self.actors.add_delivered(&mut behind, fence);
        }
        behind
    }

    fn part(
        &mut self,
        operation: ActorId,
        count: u32,
        (span, kind): (Span, Kind),
        clock: &Clock,
        poster: ActorId,
        call: Call,
    ) {
        let access = Access::new(Epoch { actor: operation, count }, kind, span.bytes, self.calls.id(call));
        self.record(span, access, clock, poster);
    }

    /// Delivers an operation: waits at its PE may see the data, and then the signal.
    pub fn deliver(&mut self, operation: ActorId) {
        self.take_all(Accesses::has_stores);
        let words = self.undelivered.get(&operation).map(|operation| operation.post.words());
        words.into_iter().flatten().for_each(|word| self.note_stores(word));
        let Some(Undelivered { pe, start, post }) = self.undelivered.remove(&operation) else { return };
        let mut clock = start.clone();
        clock.raise(delivery_of(operation));
        let announcer = Announcer { write: delivery_of(operation), pe, context: post.context };
        for (span, kind) in post.destination.into_iter().chain(post.signal) {
            if kind == Kind::Fetch || post.fetches {
                self.fetch(operation, span, kind);
            }
            match kind {
                Kind::Put => {
                    let write = delivery_of(operation);
                    self.values.set(span, &start, Some((write, span.bytes)), Some(announcer));
                }
                Kind::Set => self.values.set(span, &clock, None, Some(announcer)),
                Kind::Atomic => self.values.update(span, &clock, announcer),
                Kind::Fetch => continue,
                _ if self.shadow.last_stores(span, |_| false).is_empty() => self.values.clear(span),
                _ => self.values.set_unknown(span),
            }
            self.waits.wake(span);
        }
    }

    /// Adds the knowledge in a word to the result of an atomic.
    fn fetch(&mut self, operation: ActorId, word: Span, kind: Kind) {
        if !kind.is_word() || self.actors.has_settled(operation) {
            return;
        }
        for release in self.values.seen(word) {
            self.actors.state(operation).found.join(&release.clock);
        }
    }

    /// Lets later operations arrive behind earlier ones, at one PE or at each.
    pub fn fence(&mut self, actor: ActorId, context: Context, target: Option<u32>, call: Call) {
        let mut covered = self.unfenced(actor, context, target);
        covered.sort_unstable();
        let made = self.actors.now(actor);
        for operations in covered.chunk_by(|a, b| a.0 == b.0) {
            let target = operations[0].0;
            if let Some(fence) = self.fence_of(actor, target, operations, call) {
                self.queues.add_fence(context, fence, made, target);
                self.queues.add_fence(Context::Stores(actor), fence, made, target);
            }
        }
        self.actors.tick(actor);
    }

    fn unfenced(&self, actor: ActorId, context: Context, target: Option<u32>) -> Vec<(u32, ActorId)> {
        let Some(state) = self.actors.get(actor) else { return Vec::new() };
        self.queues.unfenced(&[context, Context::Stores(actor)], target, &state.clock, &self.actors)
    }

    /// Adds the actor that stands for the delivery of `operations` to `target`, if there are any.
    fn fence_of(
        &mut self,
        actor: ActorId,
        target: u32,
        operations: &[(u32, ActorId)],
        call: Call,
    ) -> Option<ActorId> {
        if operations.is_empty() {
            return None;
        }
        let pe = self.actors.state(actor).actor.pe();
        let description = Actor::Operation { pe, target, transfer: Transfer::Fence, call };
        let fence = self.actors.add(description, Clock::default(), None);
        let mut behind = Clock::default();
        for (_, operation) in operations {
            self.actors.end_at(*operation, ALL, delivery_of(fence));
            if let Some(state) = self.actors.get(*operation) {
                behind.join(&state.behind);
            }
        }
        self.actors.state(fence).behind = behind;
        Some(fence)
    }

    /// Completes earlier operations, to one PE or to all.
    pub fn quiet(&mut self, actor: ActorId, context: Context, target: Option<u32>) {
        self.complete_earlier(actor, context, target, DELIVERED);
    }

    /// Frees the sources of earlier puts, to one PE or to all.
    pub fn flush(&mut self, actor: ActorId, context: Context, target: Option<u32>) {
        self.complete_earlier(actor, context, target, SOURCE_READ);
    }

    fn complete_earlier(&mut self, actor: ActorId, context: Context, target: Option<u32>, count: u32) {
        for operation in self.earlier(actor, context, target) {
            self.complete_part(actor, operation, count);
        }
    }

    /// Returns the operations that `quiet` would complete now, to one PE or to all. Later stores are no parts of them.
    pub fn earlier(&mut self, actor: ActorId, context: Context, target: Option<u32>) -> Vec<ActorId> {
        self.actors.close_stores(actor);
        let Some(state) = self.actors.get(actor) else { return Vec::new() };
        let earlier = |context| self.queues.earlier(context, target, &state.clock, &self.actors);
        [context, Context::Stores(actor)].into_iter().flat_map(earlier).collect()
    }

    /// Returns whether operations of a context have not settled.
    pub fn is_in_flight(&self, context: Context) -> bool {
        self.queues.has(context)
    }

    /// Completes one operation.
    pub fn complete(&mut self, actor: ActorId, operation: ActorId) {
        self.complete_part(actor, operation, DELIVERED);
    }

    /// Frees the source of one put.
    pub fn free_source(&mut self, actor: ActorId, operation: ActorId) {
        self.complete_part(actor, operation, SOURCE_READ);
    }

    fn complete_part(&mut self, actor: ActorId, operation: ActorId, count: u32) {
        let now = self.actors.now(actor);
        let (Some(completer), Some(state)) = (self.actors.get(actor), self.actors.get(operation)) else {
            return;
        };
        let is_known = self.actors.knows(&completer.clock, Epoch { actor: operation, count });
        if is_known && state.found.is_empty() {
            return;
        }
        let (found, behind) = (state.found.clone(), state.behind.clone());
        if !is_known {
            self.actors.end_at(operation, if count == DELIVERED { ALL } else { count }, now);
        }
        if count == DELIVERED {
            self.actors.learn(actor, &found);
            self.actors.learn(actor, &behind);
        }
    }
}

/// # Stores to peers
///
/// A store is posted and delivered at once. Stores of one thread to one PE are parts of one operation, as long as the thread
/// learns nothing and tells nobody what it knows. The shadow memory has the last store of each word. So the value of a store
/// is noted only when somebody looks at it, or when the shadow memory forgets the store.
impl Engine {
    /// Stores to memory of another PE, without an order.
    pub fn store_to_peer(&mut self, actor: ActorId, span: Span, call: Call) {
        let epoch = self.begin_store(actor, span.memory.pe, call);
        self.end_store(actor, epoch, span, call);
    }

    /// Adds a store of an actor to the operation of its stores to a PE. Returns the part of the operation.
    fn begin_store(&mut self, actor: ActorId, target: u32, call: Call) -> Epoch {
        let stores = match self.actors.open_stores(actor, target) {
            Some(stores) => stores,
            None => self.open_stores(actor, target, call),
        };
        self.actors.add_store(actor, stores)
    }

    /// Records a store as a part of an operation.
    fn end_store(&mut self, actor: ActorId, epoch: Epoch, span: Span, call: Call) {
        let access = Access::new(epoch, Kind::Put, span.bytes, self.calls.id(call));
        let actors = &self.actors;
        let stores = actors.known(epoch.actor);
        let (clock, made) = (&stores.clock, stores.posted_at(epoch.count));
        let is_known = |epoch: Epoch| {
            made.is_some_and(|made| epoch.actor == made.actor && epoch.count <= made.count)
                || actors.knows(clock, epoch)
        };
        let Met { conflicts, .. } = self.shadow.record(span, access, is_known);
        if !conflicts.is_empty() {
            let clock = self.actors.clock_of_part(epoch);
            self.report(conflicts, span, access, &clock, actor);
        }
        self.values.clear(span);
        self.waits.wake(span);
    }

    /// Adds an operation for the stores of an actor to a PE.
    fn open_stores(&mut self, actor: ActorId, target: u32, call: Call) -> ActorId {
        self.settle_if_many();
        let (context, known) = (Context::Stores(actor), self.actors.clock(actor));
        let behind = self.behind(context, target, &known);
        let mut start = known;
        start.join(&behind);
        let pe = self.actors.known(actor).actor.pe();
        let description = Actor::Operation { pe, target, transfer: Transfer::Put, call };
        let stores = self.actors.add_stores(description, actor, start, target);
        let state = self.actors.state(stores);
        (state.behind, state.context) = (behind, Some(context));
        self.queues.add(context, stores, None, target, true);
        stores
    }

    /// Notes the values that stores to peers gave to a word.
    fn note_stores(&mut self, word: Span) {
        let undelivered = &self.undelivered;
        let is_write =
            |access: &Access| access.kind.changes() && !undelivered.contains_key(&access.epoch.actor);
        let stores = self.shadow.last_stores(word, is_write);
        self.keep_values(word.memory, stores);
    }

    /// Notes the values of stores to peers, where nothing has replaced them.
    fn keep_values(&mut self, memory: Memory, stores: Vec<(Access, Bytes)>) {
        for (store, bytes) in stores {
            let Some(state) = self.actors.get(store.epoch.actor) else { continue };
            let (pe, Some(context)) = (state.actor.pe(), state.context) else { continue };
            let clock = self.actors.clock_of_part(store.epoch);
            let announcer = Announcer { write: store.epoch, pe, context };
            let write = (store.epoch, store.extent.unwrap_or(bytes));
            self.values.set_if_new(Span { memory, bytes }, clock, write, announcer);
        }
    }
}

/// # Meetings
impl Engine {
    /// Synchronises the threads of a warp or block, which are all there.
    pub fn sync(&mut self, actors: &[ActorId]) {
        let all = self.union(actors);
        let learned = actors.iter().map(|&actor| self.actors.state(actor).learned);
        let learned = learned.max().unwrap_or_default();
        for &actor in actors {
            let state = self.actors.state(actor);
            (state.clock, state.learned) = (all.clone(), learned);
            self.actors.tick(actor);
            self.waits.set(actor, None);
        }
    }

    /// Adds a meeting of `members`: the PEs of a team, or the blocks of a grid.
    pub fn define_meeting(&mut self, id: MeetingId, members: Vec<u32>) {
        self.meetings.define(id, members);
    }

    /// Removes a meeting.
    pub fn remove_meeting(&mut self, id: MeetingId) {
        self.meetings.remove(id);
    }

    /// Lets a member arrive.
    pub fn arrive(&mut self, actor: ActorId, id: MeetingId, member: u32) {
        let clock = self.actors.release(actor);
        for free in self.meetings.arrive(id, member, (actor, clock)) {
            self.waits.set(free, None);
        }
    }

    /// Returns the members that the call of `member` still waits for.
    pub fn missing(&self, id: MeetingId, member: u32) -> Vec<u32> {
        self.meetings.missing(id, member)
    }

    /// Lets a member leave, after all have arrived. The call has read after the member's own arrival, and has written after
    /// the arrivals of the members that had the data, too.
    pub fn leave(&mut self, actor: ActorId, id: MeetingId, member: u32, buffers: &Buffers, call: Call) {
        let Departure { own, data, all } = self.meetings.leave(id, member, buffers.root);
        if !(buffers.reads.is_empty() && buffers.writes.is_empty()) {
            let (made, pe) = (self.actors.now(actor), self.actors.state(actor).actor.pe());
            let description = Actor::Operation { pe, target: pe, transfer: Transfer::Collective, call };
            let operation = self.actors.add(description, data, Some(made));
            let clock = self.actors.clock(operation);
            for &span in &buffers.reads {
                self.part(operation, SOURCE_READ, (span, Kind::Read), &own, actor, call);
            }
            for &span in &buffers.writes {
                self.part(operation, DELIVERED, (span, Kind::Write), &clock, actor, call);
                self.values.clear(span);
            }
            self.actors.tick(actor);
            self.complete(actor, operation);
        }
        self.actors.acquire(actor, &all, Learned::Meeting);
    }
}

/// # Findings
impl Engine {
    /// Returns the races since the last call.
    pub fn take_races(&mut self) -> Vec<Race> {
        self.races.take()
    }

    /// Returns the number of races so far.
    pub fn race_count(&self) -> usize {
        self.races.count()
    }

    /// Sets the wait of an actor. A wait for a word calls this after each look that fails.
    pub fn wait(&mut self, actor: ActorId, wait: Wait) {
        self.waits.set(actor, Some(wait));
    }

    /// Ends the wait of an actor.
    pub fn wake(&mut self, actor: ActorId) {
        self.waits.set(actor, None);
    }

    /// Returns the waits that cannot end, if there are any.
    pub fn deadlock(&self) -> Option<Deadlock> {
        let writes = |post: &Post, word: Span| {
            post.destination.into_iter().chain(post.signal).any(|(span, _)| span.overlaps(word))
        };
        self.waits.deadlock(|word| self.undelivered.values().any(|operation| writes(&operation.post, word)))
    }
}
