//! The race detection engine, with one method for each way in which the memory model orders steps.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::access::{Access, Call, DELIVERED, Kind, Memory, SOURCE_READ, Span};
use crate::accesses::{Accesses, Batch, Entry, List};
use crate::actor::{Actor, Transfer};
use crate::actors::{Actors, Learned, State};
use crate::calls::Calls;
use crate::clock::Clock;
use crate::context::{Heard, Look, Writer};
use crate::deadlock::{Awaited, Deadlock, Wait, WaitGraph};
use crate::epoch::{ActorId, ActorMap, Epoch};
use crate::intervals::Bytes;
use crate::locks::{Holder, Locks};
use crate::meetings::{Departure, MeetingId, Meetings};
use crate::met::Conflict;
use crate::objects::Objects;
use crate::order::{Knowledge, MissingOrder, Side, missing};
use crate::pages::PAGE;
use crate::post::{Post, Undelivered};
use crate::queues::Queues;
use crate::report::{Named, Party, Race, Races, Seen};
use crate::scopes::{Carried, Filter, Found, Place, Scope, Shared};
use crate::shadow::Shadow;
use crate::values::{Values, Written};

/// Snapshot of an actor's vector clock, to be acquired by another actor. Used for events of a stream and messages
/// between hosts.
#[derive(Clone, Debug)]
pub struct Token(Clock);

/// The memory that a collective call reads and writes on one PE.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Buffers {
    /// The memory that the call reads on this PE.
    pub reads: Vec<Span>,
    /// The memory that the call writes on this PE.
    pub writes: Vec<Span>,
    /// PE whose data the call distributes, as in a broadcast, or `None` if every member contributes.
    pub root: Option<u32>,
    /// Whether the call only moves data. Other collective calls are barriers, after which all members know what each of
    /// them knew.
    pub moves: bool,
}

/// When a load acquires what the writer of the word has released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Acquire {
    /// The load itself acquires, like a load-acquire.
    Now,
    /// A later acquire fence of the same actor acquires.
    AtFence,
}

/// Size of the largest word that can be accessed atomically, in bytes.
const WORD: u64 = 8;

/// Maximum number of writes of other words that a deadlock report shows for each word.
const ELSEWHERE: usize = 3;

/// Number of new actors after which the engine drops actors that all others know.
const SETTLE_AFTER: usize = 1024;

/// Happens-before engine: records the accesses and synchronization of a job, and detects races and deadlocks.
///
/// Its methods must be called in the order of the execution. A hook calls a method that releases *before* others can
/// see the step, and a method that acquires *after* the step has seen what it acquires.
#[derive(Debug, Default)]
pub struct Engine {
    pub(crate) actors: Actors,
    pub(crate) shadow: Shadow,
    pub(crate) values: Values,
    pub(crate) queues: Queues,
    meetings: Meetings,
    pub(crate) waits: WaitGraph,
    races: Races,
    pub(crate) calls: Calls,
    hosts: Vec<ActorId>,
    objects: Objects,
    locks: Locks,
    pub(crate) undelivered: ActorMap<Undelivered>,
    /// Lists of plain accesses of the running blocks, which are processed lazily.
    accesses: Vec<Arc<Accesses>>,
    /// Number of actors at which the engine next drops those that all others know.
    settle_at: usize,
}

/// # Actors
///
/// Methods that create, order and retire hosts, streams and GPU threads.
impl Engine {
    /// Creates an engine without actors.
    pub fn new() -> Self {
        Self { settle_at: SETTLE_AFTER, ..Self::default() }
    }

    /// Adds an actor that happens after no other: the first host thread of a PE.
    pub fn start(&mut self, actor: Actor) -> ActorId {
        let id = self.actors.next_id();
        self.begin(id, actor, Clock::default());
        id
    }

    /// Adds an actor whose steps happen after the current step of `parent`: a GPU thread, a stream, or a host thread.
    pub fn fork(&mut self, parent: ActorId, actor: Actor) -> ActorId {
        let id = self.actors.next_id();
        self.fork_as(parent, [(id, actor)]);
        id
    }

    /// Adds actors whose steps happen after the current step of `parent`, with IDs from [`Ids`](crate::Ids). Used for
    /// the GPU threads of a block.
    ///
    /// Earlier writes of the hosts are already published. Stores of earlier launches are not: the new threads know
    /// them, but publish them only by a fence.
    pub fn fork_as(&mut self, parent: ActorId, actors: impl IntoIterator<Item = (ActorId, Actor)>) {
        let clock = self.actors.release(parent);
        let (mut published, pe) = (Clock::default(), self.actors.known(parent).actor);
        // Only the hosts' own entries are published, rather than everything that the parent knows.
        self.hosts.iter().for_each(|&host| published.raise(Epoch { actor: host, count: clock.get(host) }));
        let carried = Shared::new(Carried::to_all(Place::from(pe), published));
        for (id, actor) in actors {
            self.begin(id, actor, clock.clone());
            self.actors.state(id).carried = Some(Shared::clone(&carried));
        }
    }

    fn begin(&mut self, id: ActorId, actor: Actor, clock: Clock) {
        self.actors.add_as(id, actor, clock, None);
        if matches!(actor, Actor::Host { .. }) {
            self.hosts.push(id);
        }
        // A stream does nothing by itself, so it can neither be stuck nor end a wait.
        if !matches!(actor, Actor::Stream { .. }) {
            self.waits.add(id, actor);
        }
    }

    /// Retires an actor: it takes no further steps.
    pub fn end(&mut self, actor: ActorId) {
        self.actors.state(actor).is_live = false;
        self.waits.remove(actor);
    }

    /// Orders the next step of `parent` after all steps of `child`, which no other actor will join.
    pub fn join(&mut self, parent: ActorId, child: ActorId) {
        self.join_all(parent, &[child]);
    }

    /// Orders the next step of `parent` after all steps of `children`, like [`Engine::join`].
    pub fn join_all(&mut self, parent: ActorId, children: &[ActorId]) {
        let clock = self.union(children);
        self.actors.acquire(parent, &clock, Learned::Message);
        children.iter().for_each(|&child| self.actors.state(child).is_joined = true);
        self.settle_if_many();
    }

    /// Returns the component-wise maximum of the actors' vector clocks.
    fn union(&self, actors: &[ActorId]) -> Clock {
        Clock::union(actors.iter().filter_map(|&actor| Some(&self.actors.get(actor)?.clock)))
    }

    /// Records that the next step of `parent` will join one of `children`, so an idle `parent` does not keep memory
    /// from being reclaimed.
    pub fn awaits(&mut self, parent: ActorId, children: &[ActorId]) {
        self.actors.state(parent).rest().awaits = children.to_vec();
    }

    /// Returns a snapshot of the actor's vector clock, to be acquired by another actor.
    pub fn release(&mut self, actor: ActorId) -> Token {
        Token(self.actors.release(actor))
    }

    /// Orders the next step of `actor` after the step at which the token was created.
    pub fn acquire(&mut self, actor: ActorId, token: &Token) {
        self.actors.acquire(actor, &token.0, Learned::Message);
    }

    /// Frees the records of steps that all live actors know. The engine also does this periodically.
    pub fn settle(&mut self) {
        let mut filter = Filter::default();
        self.actors.settle(&mut filter);
        let actors = &self.actors;
        self.queues.settle(actors);
        self.shadow.settle(|epoch| actors.has_settled(epoch.actor));
        self.values.retain(|id| !actors.has_settled(id), &mut filter);
        // Doubling keeps the cost of settling linear in the number of actors.
        self.settle_at = 2 * self.actors.len() + SETTLE_AFTER;
    }

    pub(crate) fn settle_if_many(&mut self) {
        if self.actors.len() >= self.settle_at {
            self.settle();
        }
    }

    /// Returns the number of actors and of recorded byte ranges, as a measure of memory use.
    pub fn size(&self) -> (usize, usize) {
        (self.actors.len(), self.shadow.len())
    }
}

/// # Memory
///
/// Methods that record the lifetimes of objects and the accesses of threads.
impl Engine {
    /// Records the start of the lifetime of an object, or of part of one. Earlier accesses to its memory are forgotten.
    pub fn alloc(&mut self, span: Span) {
        // Accesses to the previous object that are still in a list must not be taken for accesses to this one.
        self.take_all(|accesses| !accesses.is_empty());
        self.shadow.clear(span);
        self.values.clear(span);
    }

    /// Sets the name and the allocating call that reports show for an object. The name in `label` may be empty.
    pub fn name_object(&mut self, span: Span, label: Call) {
        self.objects.add(span, label);
    }

    /// Records the end of an object's lifetime. Every access that does not happen before it races with it.
    pub fn free(&mut self, actor: ActorId, span: Span, call: Call) {
        self.take_all(|accesses| !accesses.is_empty());
        self.note_stores(span);
        self.step(actor, span, Kind::Free, call);
    }

    /// Records a plain load, which orders nothing.
    pub fn load(&mut self, actor: ActorId, span: Span, call: Call) {
        self.step(actor, span, Kind::Read, call);
    }

    /// Records a plain store to the actor's own PE, which orders nothing.
    pub fn store(&mut self, actor: ActorId, span: Span, call: Call) {
        let epoch = self.actors.now(actor);
        self.store_at(actor, epoch, span, call);
    }

    fn store_at(&mut self, actor: ActorId, epoch: Epoch, span: Span, call: Call) {
        // A racing store may leave an unordered store to a peer in the shadow memory, which must not be taken for the
        // value.
        if self.step_at(actor, epoch, span, Kind::Write, call) {
            self.values.set_unknown(span);
        } else {
            self.values.clear(span);
        }
        self.waits.wake(span);
    }

    /// Records a relaxed store of a word. It publishes what the actor knew at its last release fences.
    pub fn store_relaxed(&mut self, actor: ActorId, word: Span, call: Call) {
        // A separate step: a waiter that learns of the store learns of nothing around it.
        self.actors.tick(actor);
        self.step(actor, word, Kind::Set, call);
        let write = self.actors.now(actor);
        let carried = self.actors.carried(actor, &Clock::default());
        let knew = Some(Arc::new(self.actors.clock(actor)));
        let write = Some((write, word.bytes));
        let writer =
            Writer { actor: self.actors.known(actor).actor, kind: Kind::Set, call: self.calls.id(call) };
        self.values.set(word, Written { carried, write, announcer: None, writer: Some(writer), knew });
        self.waits.wake(word);
        self.actors.tick(actor);
    }

    /// Records a release fence: later relaxed writes of the actor publish what it knows now, to observers in `scope`.
    pub fn fence_release(&mut self, actor: ActorId, scope: Scope) {
        self.actors.fence_release(actor, scope);
    }

    /// Records an acquire fence: the actor learns what the writers of words that it has read have released.
    pub fn fence_acquire(&mut self, actor: ActorId, scope: Scope) {
        let now = self.actors.now(actor);
        let state = self.actors.state(actor);
        let found = state.found.as_mut().map(|found| found.take(scope)).unwrap_or_default();
        let writes = std::mem::take(&mut state.rest().found_writes);
        // These writes are known only for the bytes of the word, so they do not go into the clock.
        writes.into_iter().for_each(|(word, write)| self.shadow.see(word, write, now));
        self.actors.acquire(actor, &found, Learned::Word);
    }

    /// Records that a wait or test has read a word without finding the wanted value.
    pub fn look(&mut self, actor: ActorId, word: Span, call: Call) {
        self.step(actor, word, Kind::Wait, call);
    }

    /// Records a load that has read a value: a wait that returns, a test that succeeds, or any relaxed load. Reports
    /// quote `value` if it is known.
    pub fn observe(
        &mut self,
        actor: ActorId,
        (word, value): (Span, Option<u64>),
        acquire: Acquire,
        call: Call,
    ) {
        // A store to a peer is visible before its list is taken, so the value may come from one.
        self.take_all(Accesses::has_stores);
        self.note_stores(word);
        let place = Place::from(self.actors.known(actor).actor);
        let (mut found, mut writes, mut heard) = (Found::default(), Vec::new(), Heard::default());
        let posted = |write: Epoch| self.actors.get(write.actor).and_then(|state| state.post);
        for written in self.values.seen(word) {
            let writer = written.announcer.and_then(|announcer| posted(announcer.write));
            // A thread learns nothing from its own update.
            if writer.is_none_or(|post| post.actor != actor) {
                heard.announcer = written.announcer.or(heard.announcer);
                heard.writer = written.writer.or(heard.writer);
                heard.knew = written.knew.or(heard.knew);
            }
            found.add(&written.carried, place);
            let Some((write, bytes)) = written.write else { continue };
            // All stores of an operation share one clock entry, so a wait for one of them records only its word.
            let is_put = self.actors.get(write.actor).is_some_and(|state| state.post.is_some());
            // A put that lies within the word is known as a whole. Of a longer one, the waiter knows only these bytes.
            if is_put && write.count == DELIVERED && word.bytes.contains(bytes) {
                found.add_write(write);
            } else {
                writes.push((word, write));
            }
        }
        let state = self.actors.state(actor);
        // For reports: the cause of a race is most likely the last word that was read.
        if heard.knew.is_some() {
            heard.look = Some(Look { word, value, call });
            state.rest().heard = heard;
        }
        state.found.get_or_insert_default().join(&found);
        state.rest().found_writes.append(&mut writes);
        if acquire == Acquire::Now {
            self.fence_acquire(actor, Scope::System);
        }
        self.waits.set(actor, None);
        // The read itself is an access, which conflicts with plain writes of the word.
        self.step(actor, word, Kind::Wait, call);
    }

    /// Registers the list of a block's plain accesses, which the engine processes when it needs them.
    pub fn add_accesses(&mut self, accesses: Arc<Accesses>) {
        self.accesses.push(accesses);
    }

    /// Processes the remaining plain accesses of a block that has finished, and unregisters its list.
    pub fn remove_accesses(&mut self, accesses: &Arc<Accesses>) {
        self.take_accesses(accesses);
        self.accesses.retain(|other| !Arc::ptr_eq(other, accesses));
    }

    /// Processes the plain accesses in all lists for which `is_due` returns `true`.
    pub(crate) fn take_all(&mut self, is_due: impl Fn(&Accesses) -> bool) {
        if self.accesses.iter().any(|accesses| is_due(accesses)) {
            // Taken out, because taking a list needs the whole engine.
            let all = std::mem::take(&mut self.accesses);
            all.iter().filter(|accesses| is_due(accesses)).for_each(|accesses| self.take_accesses(accesses));
            self.accesses = all;
        }
    }

    /// Processes and removes the plain accesses in a block's list. Must be called before any other step of the block.
    pub fn take_accesses(&mut self, accesses: &Accesses) {
        let mut list = accesses.list();
        self.take_list(&mut list);
        accesses.clear(&mut list).into_iter().for_each(|actor| self.end(actor));
    }

    /// Processes plain accesses that a block in another process has sent, like [`Engine::take_accesses`].
    pub fn take_batch(&mut self, batch: &Batch) {
        if batch.is_short() {
            for (actor, span, kind, call) in batch.accesses() {
                match kind {
                    Kind::Put => self.store_to_peer(actor, span, call),
                    Kind::Read => self.load(actor, span, call),
                    _ => self.store(actor, span, call),
                }
            }
        } else {
            List::of(batch.accesses()).for_each(|mut list| self.take_list(&mut list));
        }
        batch.ended().iter().for_each(|&actor| self.end(actor));
    }

    fn take_list(&mut self, list: &mut List) {
        // A store to a peer is a step of its thread, so steps are assigned in the order of execution, before the
        // accesses are reordered by page.
        let mut steps = Vec::with_capacity(list.entries.len());
        for entry in &list.entries {
            steps.push(match entry.kind {
                Kind::Put => self.begin_store(entry.actor, entry.span.memory.pe, list.call(entry)),
                _ => self.actors.now(entry.actor),
            });
        }
        for row in list.rows(&steps).iter() {
            if row.len() > 1 && self.take_row(list, row, steps[row[0]]) {
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
    }

    /// Tries to record a row of equal accesses together. `first` is the step of its first access. Returns `false` if
    /// they must be recorded one by one.
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

    /// Records an access at the actor's current step. Returns whether it races with an earlier one.
    fn step(&mut self, actor: ActorId, span: Span, kind: Kind, call: Call) -> bool {
        let epoch = self.actors.now(actor);
        self.step_at(actor, epoch, span, kind, call)
    }

    /// Records an access at the given step of an actor, which has learned nothing since. Returns whether it races with
    /// an earlier one.
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

    /// Records an access of an operation whose vector clock is `clock`. Learning of the access implies learning `told`.
    /// `informed` is the actor that made the call.
    pub(crate) fn record(
        &mut self,
        span: Span,
        access: Access,
        (clock, told): (&Clock, &Clock),
        informed: ActorId,
    ) {
        let actors = &self.actors;
        let knows = |clock| move |epoch| actors.knows(clock, epoch);
        let met = self.shadow.record_operation(span, access, knows(clock), knows(told));
        // These stores are about to leave the shadow memory, which until now held the value of their words.
        self.keep_values(span.memory, met.lost);
        let conflicts = met.conflicts;
        self.report(conflicts, span, access, clock, informed);
    }

    /// Reports the races between an access and the earlier accesses in `conflicts`. `clock` is the vector clock of the
    /// access.
    pub(crate) fn report(
        &mut self,
        conflicts: Vec<Conflict>,
        span: Span,
        access: Access,
        clock: &Clock,
        informed: ActorId,
    ) {
        let actors = &self.actors;
        let informed = actors.get(informed);
        let heard = informed.and_then(State::heard);
        let learned = informed.map_or(Learned::Nothing, |state| state.learned);
        let found = informed.and_then(|state| state.found.as_ref());
        let writer_knew = heard.and_then(|heard| heard.knew.as_deref());
        let party = |side: Side, call| {
            let call = self.calls.call(call);
            Party { actor: side.actor.in_call(call), kind: side.kind, call }
        };
        for conflict in conflicts {
            let (Some(first), Some(second)) = (self.side(conflict.earlier), self.side(access)) else {
                continue;
            };
            let sites = [conflict.earlier.call, access.call].map(|call| self.calls.call(call).site);
            // Each pair of lines is reported once. Checking it first saves the analysis.
            if self.races.has(sites) {
                continue;
            }
            let earlier = conflict.earlier.epoch;
            let is_posted = actors.get(earlier.actor).is_some_and(|state| state.post.is_some());
            let is_known = |clock| actors.knows_part(clock, earlier);
            // Everything that can tell which order is missing.
            let knowledge = Knowledge {
                knows_post: is_posted && (is_known(clock) || writer_knew.is_some_and(is_known)),
                is_found: found.is_some_and(|found| found.any(|known| actors.knows(known, earlier))),
                writer_knew: writer_knew.is_some_and(|knew| actors.knows(knew, earlier)),
                informed: self.informed_in_pe(second.maker, earlier),
                is_word: conflict.bytes.len() <= WORD,
                learned,
                heard: heard.and_then(|heard| heard.announcer),
            };
            self.races.add(Race {
                first: party(first, conflict.earlier.call),
                second: party(second, access.call),
                memory: span.memory,
                bytes: conflict.bytes,
                object: self.objects.at(span.memory, conflict.bytes),
                seen: heard.filter(|_| learned == Learned::Word).and_then(|heard| self.seen(heard)),
                missing: missing(first, second, knowledge),
            });
        }
    }

    fn seen(&self, heard: &Heard) -> Option<Seen> {
        let Look { word, value, call } = heard.look?;
        Some(Seen { word: self.named(word), value, call, writer: self.party(heard.writer?) })
    }

    fn named(&self, span: Span) -> Named {
        Named { span, object: self.objects.at(span.memory, span.bytes) }
    }

    fn party(&self, Writer { actor, kind, call }: Writer) -> Party {
        Party { actor, kind, call: self.calls.call(call) }
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

/// # Meetings
///
/// Methods that record barriers and collective calls.
impl Engine {
    /// Records a barrier of a warp or block at which all listed threads have arrived.
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

    /// Registers the members of a meeting, which is a barrier or the collective calls of a team. Members are PEs, or
    /// the blocks of a grid.
    pub fn define_meeting(&mut self, id: MeetingId, members: Vec<u32>) {
        self.meetings.define(id, members);
    }

    /// Unregisters a meeting, such as the grid barrier of a launch that has finished.
    pub fn remove_meeting(&mut self, id: MeetingId) {
        self.meetings.remove(id);
    }

    /// Records that a member has arrived at a barrier or collective call.
    pub fn arrive(&mut self, actor: ActorId, id: MeetingId, member: u32) {
        let clock = self.actors.release(actor);
        // The last arrival satisfies the waits of all.
        for free in self.meetings.arrive(id, member, (actor, clock)) {
            self.waits.set(free, None);
        }
    }

    /// Returns the members that have not arrived at the collective call in which `member` waits.
    pub fn missing(&self, id: MeetingId, member: u32) -> Vec<u32> {
        self.meetings.missing(id, member)
    }

    /// Records that a member leaves a barrier or collective call, at which all members have arrived.
    ///
    /// The call has read its buffers after the member's own arrival, and written them after the arrivals of the members
    /// that had the data. A barrier also gives the member what all others knew, while a call that only moves data
    /// vouches for nothing but its own buffers.
    pub fn leave(&mut self, actor: ActorId, id: MeetingId, member: u32, buffers: &Buffers, call: Call) {
        let Departure { own, data, all } = self.meetings.leave(id, member, buffers.root);
        if !(buffers.reads.is_empty() && buffers.writes.is_empty()) {
            let (made, pe) = (self.actors.now(actor), self.actors.state(actor).actor.pe());
            let description = Actor::Operation { pe, target: pe, transfer: Transfer::Collective, call };
            let operation = self.actors.add(description, data, Some(made));
            let clock = self.actors.clock(operation);
            for &span in &buffers.reads {
                self.part(operation, SOURCE_READ, (span, Kind::Read), (&own, &own), actor, call);
            }
            // Reads come first: a member may use its source as soon as it has arrived.
            self.report_overlaps(actor, buffers, call);
            for &span in &buffers.writes {
                self.part(operation, DELIVERED, (span, Kind::Write), (&clock, &own), actor, call);
                self.values.clear(span);
            }
            // The member knows the operation, but others learn of it only through the member's later steps.
            self.actors.tick(actor);
            self.complete(actor, operation);
        }
        if !buffers.moves {
            self.actors.acquire(actor, &all, Learned::Meeting);
        }
    }
}

/// # Causes
///
/// Methods that report races and find out their causes.
impl Engine {
    /// Reports a race if output ranges of a collective call overlap, because several members then write the same bytes.
    fn report_overlaps(&mut self, actor: ActorId, buffers: &Buffers, call: Call) {
        let mut writes = buffers.writes.clone();
        // Sorted by address, so an overlap shows between neighbors.
        writes.sort_unstable_by_key(|span| (span.memory, span.bytes.start));
        let pairs = writes.windows(2).find(|pair| pair[0].overlaps(pair[1]));
        let (Some([first, second]), Some(state)) = (pairs, self.actors.get(actor)) else { return };
        let bytes = Bytes { start: second.bytes.start, end: first.bytes.end.min(second.bytes.end) };
        let party = Party { actor: state.actor, kind: Kind::Write, call };
        let missing = MissingOrder::PartsOverlap;
        let (memory, object) = (first.memory, self.objects.at(first.memory, bytes));
        self.races.add(Race { first: party, second: party, memory, bytes, object, seen: None, missing });
    }

    /// Returns a thread, stream or host on the PE of `maker` that knows `step`, which `maker` itself does not know.
    fn informed_in_pe(&self, maker: Actor, step: Epoch) -> Option<Actor> {
        let knows = |state: &&State| {
            let is_operation = state.post.is_some();
            !is_operation && state.actor.pe() == maker.pe() && self.actors.knows(&state.clock, step)
        };
        let is_near = |actor: &Actor| match (*actor, maker) {
            (Actor::Thread { launch: a, block: b, .. }, Actor::Thread { launch: x, block: y, .. }) => {
                (a == x, b == y)
            }
            _ => (false, false),
        };
        self.actors.iter().filter(knows).map(|state| state.actor).max_by_key(is_near)
    }
}

/// # Findings
///
/// Methods that return races and deadlocks, and record waits and locks.
impl Engine {
    /// Returns the races found since the last call.
    pub fn take_races(&mut self) -> Vec<Race> {
        self.races.take()
    }

    /// Returns the number of races found so far.
    pub fn race_count(&self) -> usize {
        self.races.count()
    }

    /// Records that an actor is waiting. For a word, this is called again after each read that does not satisfy the
    /// wait.
    pub fn wait(&mut self, actor: ActorId, wait: Wait) {
        self.waits.set(actor, Some(wait));
    }

    /// Records that an actor is no longer waiting.
    pub fn wake(&mut self, actor: ActorId) {
        self.waits.set(actor, None);
    }

    /// Records that `actor` has acquired a lock in `call`.
    pub fn hold(&mut self, actor: ActorId, lock: Span, call: Call) {
        let actor = self.actors.known(actor).actor;
        self.locks.hold(lock, Holder { actor, call });
    }

    /// Records that a lock was released.
    pub fn let_go(&mut self, lock: Span) {
        self.locks.let_go(lock);
    }

    /// Returns the waits that can never be satisfied, or `None` if there are none. [`Engine::explain`] adds their
    /// causes.
    pub fn deadlock(&self) -> Option<Deadlock> {
        let writes = |post: &Post, word: Span| {
            post.destination.into_iter().chain(post.signal).any(|(span, _)| span.overlaps(word))
        };
        // An operation in flight may still write the word, so its waiters are not stuck.
        let may_arrive = |word| self.undelivered.values().any(|operation| writes(&operation.post, word));
        self.waits.deadlock(may_arrive)
    }

    /// Adds to a deadlock the objects that contain the awaited words, their last writers, and the holders of locks.
    ///
    /// Takes time proportional to the number of recorded stores to these objects.
    pub fn explain(&mut self, deadlock: &mut Deadlock) {
        deadlock
            .stuck
            .iter_mut()
            .filter_map(|stuck| stuck.word.as_mut())
            .for_each(|word| self.explain_word(word));
    }

    fn explain_word(&mut self, awaited: &mut Awaited) {
        let word = awaited.word.span;
        awaited.word = self.named(word);
        awaited.holder = self.locks.holder(word);
        // A held lock explains the wait, whoever wrote the word.
        if awaited.holder.is_some() {
            return;
        }
        // The signal may have gone to another PE, or to another element of the same object.
        let pes: Vec<u32> =
            self.hosts.iter().filter_map(|&host| Some(self.actors.get(host)?.actor.pe())).collect();
        let of = |pe| Span { memory: Memory { pe, ..word.memory }, ..word };
        let copies = pes.into_iter().filter(|&pe| pe != word.memory.pe).map(of);
        let object = self.objects.around(word).unwrap_or(word);
        let places: Vec<Span> = copies.chain([object]).collect();
        places.iter().for_each(|&place| self.note_stores(place));
        awaited.writer = self.values.writers(word).next().map(|(_, writer)| self.party(writer));
        let writers = places.iter().flat_map(|&place| self.values.writers(place));
        for (span, writer) in writers.filter(|(span, _)| !span.overlaps(word)) {
            let party = self.party(writer);
            if awaited.elsewhere.iter().all(|(_, known)| known.call != party.call) {
                awaited.elsewhere.push((self.named(span), party));
            }
            if awaited.elsewhere.len() == ELSEWHERE {
                break;
            }
        }
    }
}
