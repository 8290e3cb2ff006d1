//! The engine's methods for operations in flight, such as puts, and for stores to the memory of peers.

use std::sync::Arc;

use crate::access::{Access, Call, DELIVERED, Kind, Memory, SOURCE_READ, Span};
use crate::accesses::Accesses;
use crate::actor::{Actor, Transfer};
use crate::actors::{ALL, delivery_of};
use crate::clock::Clock;
use crate::context::{Announcer, Context, Heard, Look, Writer};
use crate::engine::Engine;
use crate::epoch::{ActorId, Epoch};
use crate::intervals::Bytes;
use crate::met::Met;
use crate::post::{Post, Undelivered};
use crate::scopes::{Carried, Place, Shared};
use crate::values::Written;

/// # Operations
///
/// Methods that post, deliver, order and complete operations such as puts, gets and atomics.
impl Engine {
    /// Posts an operation, which happens after the current step of the poster. Its delivery also happens after those
    /// that fences order before it. Returns its ID.
    pub fn post(&mut self, poster: ActorId, post: Post) -> ActorId {
        let operation = self.actors.next_id();
        self.post_as(operation, poster, post);
        operation
    }

    /// Posts an operation with an ID from [`Ids`](crate::Ids), like [`Engine::post`].
    pub fn post_as(&mut self, operation: ActorId, poster: ActorId, post: Post) {
        self.settle_if_many();
        let Post { context, target, transfer, call, .. } = post;
        let (made, known) = (self.actors.now(poster), self.actors.clock(poster));
        let mut behind =
            if post.is_ordered { self.behind(context, target, &known) } else { Clock::default() };
        // A strong signal acts like a fence that covers only this one operation.
        if post.is_strong {
            let covered = self.unfenced(poster, context, Some(target));
            if let Some(fence) = self.fence_of(poster, target, &covered, call) {
                self.actors.add_delivered(&mut behind, fence);
            }
        }
        let maker = self.actors.known(poster).actor;
        let (pe, place) = (maker.pe(), Place::from(maker));
        // The source is read once the poster's knowledge allows it, the delivery only after the fences.
        let mut start = known.clone();
        start.join(&behind);
        let carried = self.actors.carried(poster, &behind);
        let released = post.releases.then(|| Shared::new(Carried::to_all(place, start.clone())));
        let description = Actor::Operation { pe, target, transfer, call };
        self.actors.add_as(operation, description, start, Some(made));
        let state = self.actors.state(operation);
        (state.behind, state.context) = (behind, Some(context));
        self.queues.add(context, operation, Some(made), target, post.is_ordered);
        if let Some(source) = post.source {
            let clocks = (&known, carried.to_system());
            self.part(operation, SOURCE_READ, (source, Kind::Read), clocks, poster, call);
        }
        let clock = self.actors.clock(operation);
        for end in post.destination.into_iter().chain(post.signal) {
            self.part(operation, DELIVERED, end, (&clock, carried.to_system()), poster, call);
        }
        // Everything that needs the clock of the operation has been recorded. Its completion is known by `ends`.
        self.actors.state(operation).clock = Clock::default();
        self.undelivered
            .insert(operation, Undelivered { pe, place, carried, released, knew: Arc::new(known), post });
        // What the poster does next must not be taken for part of what the operation carries.
        self.actors.tick(poster);
    }

    /// Returns the deliveries that earlier fences order before an operation to `target`.
    fn behind(&self, context: Context, target: u32, known: &Clock) -> Clock {
        let mut behind = Clock::default();
        for fence in self.queues.fences(context, target, known, &self.actors) {
            self.actors.add_delivered(&mut behind, fence);
        }
        behind
    }

    pub(crate) fn part(
        &mut self,
        operation: ActorId,
        count: u32,
        (span, kind): (Span, Kind),
        clocks: (&Clock, &Clock),
        poster: ActorId,
        call: Call,
    ) {
        let access = Access::new(Epoch { actor: operation, count }, kind, span.bytes, self.calls.id(call));
        self.record(span, access, clocks, poster);
    }

    /// Records that an operation is delivered: waits on the target PE can now see its data and its signal.
    pub fn deliver(&mut self, operation: ActorId) {
        // A value that an earlier store left is replaced now, or read by this atomic.
        self.take_all(Accesses::has_stores);
        let words = self.undelivered.get(&operation).map(|operation| operation.post.words());
        words.into_iter().flatten().for_each(|word| self.note_stores(word));
        let Some(undelivered) = self.undelivered.remove(&operation) else { return };
        let Undelivered { pe, place, carried, released, knew, post } = undelivered;
        let write = delivery_of(operation);
        // A signal or atomic also carries its own write, so a waiter may reuse the word.
        let words = || {
            let mut words = Carried::clone(released.as_ref().unwrap_or(&carried));
            words.raise(write);
            Shared::new(words)
        };
        let announcer = Some(Announcer { write, pe, context: post.context });
        let Post { target, transfer, call, .. } = post;
        let (actor, call_id) = (Actor::Operation { pe, target, transfer, call }, self.calls.id(call));
        for (span, kind) in post.destination.into_iter().chain(post.signal) {
            // The old value is read before the new one replaces it.
            if kind == Kind::Fetch || post.fetches {
                self.fetch(operation, span, kind, place, call);
            }
            let writer = Some(Writer { actor, kind, call: call_id });
            let knew = Some(Arc::clone(&knew));
            let written = |carried, write| Written { carried, write, announcer, writer, knew };
            match kind {
                Kind::Put => {
                    self.values.set(span, written(Shared::clone(&carried), Some((write, span.bytes))));
                }
                Kind::Atomic if !post.replaces => self.values.update(span, written(words(), None)),
                Kind::Set | Kind::Atomic => self.values.set(span, written(words(), None)),
                Kind::Fetch => continue,
                // A plain write of a result carries nothing. If the shadow memory still has a store to a peer there,
                // its value must not be taken for the current one.
                _ if self.shadow.last_stores(span, |_| false).is_empty() => self.values.clear(span),
                _ => self.values.set_unknown(span),
            }
            self.waits.wake(span);
        }
    }

    /// Records what an atomic learns from the value that it fetches. The poster acquires it when the operation
    /// completes.
    fn fetch(&mut self, operation: ActorId, word: Span, kind: Kind, place: Place, call: Call) {
        if !kind.is_word() || self.actors.has_settled(operation) {
            return;
        }
        let poster = self.actors.known(operation).post.map(|post| post.actor);
        for written in self.values.seen(word) {
            // The poster acquires it only when the operation completes.
            self.actors.state(operation).found.get_or_insert_default().add(&written.carried, place);
            if let Some(poster) = poster.filter(|poster| !self.actors.has_settled(*poster)) {
                let Written { announcer, knew, writer, .. } = written;
                let look = Some(Look { word, value: None, call });
                self.actors.state(poster).rest().heard = Heard { announcer, knew, writer, look };
            }
        }
    }

    /// Orders the delivery of later operations after that of earlier ones to the same PE. `target` limits it to one PE.
    pub fn fence(&mut self, actor: ActorId, context: Context, target: Option<u32>, call: Call) {
        let mut covered = self.unfenced(actor, context, target);
        covered.sort_unstable();
        let made = self.actors.now(actor);
        // One fence actor per target, because fences do not order operations to different PEs.
        for operations in covered.chunk_by(|a, b| a.0 == b.0) {
            let target = operations[0].0;
            if let Some(fence) = self.fence_of(actor, target, operations, call) {
                // A fence covers both the context and the thread's own stores to peers.
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

    /// Adds an actor that represents the delivery of all `operations` to `target`. Returns `None` if there are none.
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
            // Knowing the fence is knowing each of the operations, without an entry for every one.
            self.actors.end_at(*operation, ALL, delivery_of(fence));
            if let Some(state) = self.actors.get(*operation) {
                behind.join(&state.behind);
            }
        }
        self.actors.state(fence).behind = behind;
        Some(fence)
    }

    /// Completes earlier operations of the context, to PE `target` or to all PEs.
    pub fn quiet(&mut self, actor: ActorId, context: Context, target: Option<u32>) {
        self.complete_earlier(actor, context, target, DELIVERED);
    }

    /// Records that earlier puts of the context to PE `target`, or to all PEs, have read their sources.
    pub fn flush(&mut self, actor: ActorId, context: Context, target: Option<u32>) {
        self.complete_earlier(actor, context, target, SOURCE_READ);
    }

    fn complete_earlier(&mut self, actor: ActorId, context: Context, target: Option<u32>, count: u32) {
        for operation in self.earlier(actor, context, target) {
            self.complete_part(actor, operation, count);
        }
    }

    /// Returns the operations that a `quiet` would complete now. `target` limits them to one PE. Later stores start a
    /// new operation.
    pub fn earlier(&mut self, actor: ActorId, context: Context, target: Option<u32>) -> Vec<ActorId> {
        self.actors.close_stores(actor);
        let Some(state) = self.actors.get(actor) else { return Vec::new() };
        let earlier = |context| self.queues.earlier(context, target, &state.clock, &self.actors);
        [context, Context::Stores(actor)].into_iter().flat_map(earlier).collect()
    }

    /// Whether the engine still tracks operations or fences of a context.
    pub fn is_in_flight(&self, context: Context) -> bool {
        self.queues.has(context)
    }

    /// Records that `actor` knows that an operation is complete.
    pub fn complete(&mut self, actor: ActorId, operation: ActorId) {
        self.complete_part(actor, operation, DELIVERED);
    }

    /// Records that `actor` knows that a put has read its source.
    pub fn free_source(&mut self, actor: ActorId, operation: ActorId) {
        self.complete_part(actor, operation, SOURCE_READ);
    }

    fn complete_part(&mut self, actor: ActorId, operation: ActorId, count: u32) {
        let now = self.actors.now(actor);
        let (Some(completer), Some(state)) = (self.actors.get(actor), self.actors.get(operation)) else {
            return;
        };
        let is_known = self.actors.knows(&completer.clock, Epoch { actor: operation, count });
        // Known already, and there is no result left to acquire.
        if is_known && state.found.is_none() {
            return;
        }
        let (found, behind) = (state.found.clone(), state.behind.clone());
        if !is_known {
            self.actors.end_at(operation, if count == DELIVERED { ALL } else { count }, now);
        }
        if count == DELIVERED {
            // Completing the delivery also completes what fences have ordered before it.
            self.actors.learn(actor, &behind);
            if let Some(found) = found {
                self.actors.state(actor).found.get_or_insert_default().join(&found);
            }
        }
    }
}

/// # Stores to peers
///
/// A store to the memory of another PE is posted and delivered in one step. Stores of one thread to one PE form one
/// operation until the thread learns something or releases what it knows. The shadow memory holds the last store of
/// each word, so the value of a store is recorded only when an actor reads it, or when the shadow memory drops the
/// store.
impl Engine {
    /// Records a plain store to memory of another PE.
    pub fn store_to_peer(&mut self, actor: ActorId, span: Span, call: Call) {
        let epoch = self.begin_store(actor, span.memory.pe, call);
        self.end_store(actor, epoch, span, call);
    }

    /// Adds a store to the operation that collects an actor's stores to PE `target`. Returns its step in that
    /// operation.
    pub(crate) fn begin_store(&mut self, actor: ActorId, target: u32, call: Call) -> Epoch {
        let stores = match self.actors.open_stores(actor, target) {
            Some(stores) => stores,
            None => self.open_stores(actor, target, call),
        };
        self.actors.add_store(actor, stores)
    }

    /// Records the memory access of a store that [`Engine::begin_store`] has added.
    pub(crate) fn end_store(&mut self, actor: ActorId, epoch: Epoch, span: Span, call: Call) {
        let access = Access::new(epoch, Kind::Put, span.bytes, self.calls.id(call));
        let actors = &self.actors;
        let stores = actors.known(epoch.actor);
        let (clock, made) = (&stores.clock, stores.posted_at(epoch.count));
        // All steps that precede the store in its own thread are known, although the operation's clock is older.
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

    /// Adds an operation that collects an actor's stores to PE `target`.
    fn open_stores(&mut self, actor: ActorId, target: u32, call: Call) -> ActorId {
        self.settle_if_many();
        let (context, known) = (Context::Stores(actor), self.actors.clock(actor));
        let behind = self.behind(context, target, &known);
        let mut start = known;
        start.join(&behind);
        let pe = self.actors.known(actor).actor.pe();
        let description = Actor::Operation { pe, target, transfer: Transfer::Put, call };
        let stores = self.actors.add_stores(description, actor, (start, &behind), target);
        let state = self.actors.state(stores);
        (state.behind, state.context) = (behind, Some(context));
        self.queues.add(context, stores, None, target, true);
        stores
    }

    /// Records the values that stores to peers have given to a word. Called before an actor reads it.
    pub(crate) fn note_stores(&mut self, word: Span) {
        let undelivered = &self.undelivered;
        let is_write =
            |access: &Access| access.kind.changes() && !undelivered.contains_key(&access.epoch.actor);
        let stores = self.shadow.last_stores(word, is_write);
        self.keep_values(word.memory, stores);
    }

    /// Records what the given stores to peers publish, for bytes that have no newer value.
    pub(crate) fn keep_values(&mut self, memory: Memory, stores: Vec<(Access, Bytes)>) {
        for (store, bytes) in stores {
            let Some(state) = self.actors.get(store.epoch.actor) else { continue };
            let (pe, Some(context)) = (state.actor.pe(), state.context) else { continue };
            let carried = state.carried.clone().unwrap_or_default();
            let knew = Some(Arc::new(self.actors.clock_of_part(store.epoch)));
            let announcer = Some(Announcer { write: store.epoch, pe, context });
            let actor = state.actor.in_call(self.calls.call(store.call));
            let writer = Some(Writer { actor, kind: store.kind, call: store.call });
            let write = Some((store.epoch, store.extent.unwrap_or(bytes)));
            let written = Written { carried, write, announcer, writer, knew };
            self.values.set_if_new(Span { memory, bytes }, written);
        }
    }
}
