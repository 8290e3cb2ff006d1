//! Compares the engine with a model that keeps all events of a program as a graph and searches for paths.
//!
//! Both execute random programs step by step. Every race that the engine reports must be one of the model. For every
//! access and byte with a race in the model, the engine must report some race of that access.

mod model;

use std::collections::HashSet;

use model::{Carry, FenceMade, Found, Model, Node, Operation, Value};
use proptest::prelude::*;
use rushmem_sanitizer::{
    Acquire, Actor, ActorId, Buffers, Call, Context, Engine, Kind, MeetingId, Post, Scope, Site, Span, Token,
};

const PES: u32 = 3;
const JOB: MeetingId = MeetingId(0);

/// One step of a random program.
#[derive(Clone, Copy, Debug)]
enum Step {
    Load(u32, u64, u64),
    Store(u64, u64),
    StoreRelaxed(u64),
    Put { source: u64, target: u32, at: u64, words: u64, context: u32 },
    PutSignal { source: u64, target: u32, at: u64, signal: u64, adds: bool, strong: bool },
    PeerStore { target: u32, at: u64, at_once: bool },
    Get { target: u32, at: u64, to: u64, words: u64 },
    Signal { target: u32, word: u64, adds: bool, strong: bool },
    Fetch { target: u32, word: u64, updates: bool, waits: bool },
    Deliver(usize),
    Complete(usize),
    Fence(Option<u32>, u32),
    Quiet(Option<u32>, u32),
    Flush(Option<u32>, u32),
    Observe(u64, bool),
    Look(u64),
    FenceRelease(Scope),
    FenceAcquire(Scope),
    Sync,
    Collective { buffers: Option<(u64, u64)> },
    Release,
    Acquire,
    EndAndFork,
    Free(u64),
    Settle,
}

fn word() -> impl Strategy<Value = u64> + Clone {
    0..8u64
}

fn scope() -> impl Strategy<Value = Scope> {
    prop_oneof![Just(Scope::Gpu), Just(Scope::System)]
}

fn step() -> impl Strategy<Value = Step> {
    use Step::*;
    let pe = || 0..PES;
    let some_pe = || prop::option::of(0..PES);
    prop_oneof![
        4 => (pe(), word(), 1..3u64).prop_map(|(p, w, n)| Load(p, w, n)),
        3 => (word(), 1..3u64).prop_map(|(w, n)| Store(w, n)),
        1 => word().prop_map(StoreRelaxed),
        5 => (word(), pe(), word(), 1..4u64, 0..2u32)
            .prop_map(|(source, target, at, words, context)| Put { source, target, at, words, context }),
        4 => (word(), pe(), word(), word(), any::<bool>(), prop::bool::weighted(0.2)).prop_map(
            |(source, target, at, signal, adds, strong)| PutSignal { source, target, at, signal, adds, strong }),
        4 => (pe(), word(), prop::bool::weighted(0.8))
            .prop_map(|(target, at, at_once)| PeerStore { target, at, at_once }),
        2 => (pe(), word(), word(), 1..3u64)
            .prop_map(|(target, at, to, words)| Get { target, at, to, words }),
        2 => (pe(), word(), any::<bool>(), any::<bool>())
            .prop_map(|(target, word, adds, strong)| Signal { target, word, adds, strong }),
        2 => (pe(), word(), any::<bool>(), any::<bool>())
            .prop_map(|(target, word, updates, waits)| Fetch { target, word, updates, waits }),
        9 => (0..8usize).prop_map(Deliver),
        2 => (0..8usize).prop_map(Complete),
        4 => (some_pe(), 0..2u32).prop_map(|(p, c)| Fence(p, c)),
        4 => (some_pe(), 0..2u32).prop_map(|(p, c)| Quiet(p, c)),
        1 => (some_pe(), 0..2u32).prop_map(|(p, c)| Flush(p, c)),
        6 => (word(), prop::bool::weighted(0.8)).prop_map(|(w, now)| Observe(w, now)),
        1 => word().prop_map(Look),
        2 => scope().prop_map(FenceRelease),
        2 => scope().prop_map(FenceAcquire),
        3 => Just(Sync),
        1 => prop::option::of((word(), word())).prop_map(|buffers| Collective { buffers }),
        1 => Just(Release),
        1 => Just(Acquire),
        1 => Just(EndAndFork),
        1 => word().prop_map(Free),
        2 => Just(Settle),
    ]
}

struct Posting {
    context: u32,
    is_store: bool,
    source: Option<Span>,
    ends: Vec<(Span, Kind)>,
    target: u32,
    is_ordered: bool,
    strong: bool,
    fetches: bool,
}

impl Posting {
    fn ordered(target: u32, ends: impl Into<Vec<(Span, Kind)>>) -> Self {
        Self {
            context: 0,
            is_store: false,
            source: None,
            ends: ends.into(),
            target,
            is_ordered: true,
            strong: false,
            fetches: false,
        }
    }
}

/// Executes a random program on the engine and the model. Actors 0 to 2 are hosts, followed by two threads per PE.
struct Runner {
    engine: Engine,
    model: Model,
    actors: Vec<ActorId>,
    last: Vec<Node>,
    /// What each actor has released by its fences.
    released: Vec<Carry>,
    found: Vec<Found>,
    /// Events of all hosts. A GPU thread publishes those that it knows when it starts.
    of_hosts: Vec<Node>,
    found_writes: Vec<Vec<(Node, u32, u64)>>,
    token: Option<(Token, Node)>,
    launches: u32,
    line: u32,
}

impl Runner {
    fn new() -> Self {
        let mut engine = Engine::new();
        engine.define_meeting(JOB, (0..PES).collect());
        let mut runner = Self {
            engine,
            model: Model::default(),
            actors: Vec::new(),
            last: Vec::new(),
            released: vec![Carry::default(); 9],
            found: vec![Found::default(); 9],
            of_hosts: Vec::new(),
            found_writes: vec![Vec::new(); 9],
            token: None,
            launches: 0,
            line: 0,
        };
        for pe in 0..PES {
            let host = runner.engine.start(Actor::Host { pe, thread: 0 });
            let node = runner.model.event(Vec::new());
            runner.actors.push(host);
            runner.last.push(node);
            runner.of_hosts.push(node);
        }
        for index in 3..9 {
            let id = runner.fork(index);
            let host = runner.last[Self::pe(index) as usize];
            runner.actors.push(id);
            runner.last.push(host);
            runner.begin(index, host);
        }
        runner
    }

    /// Starts a GPU thread after the event `host`. It publishes what the hosts did before.
    fn begin(&mut self, index: usize, host: Node) {
        let published: Vec<Node> =
            self.of_hosts.iter().copied().filter(|&node| self.model.precedes(node, host)).collect();
        let published = self.model.alone(&published);
        let carry = Carry { system: vec![published], near: (Self::pe(index), vec![published]) };
        (self.released[index], self.found[index]) = (carry, Found::default());
        self.found_writes[index].clear();
        self.last[index] = self.model.event(vec![host]);
    }

    fn pe(actor: usize) -> u32 {
        (actor % 3) as u32
    }

    fn fork(&mut self, index: usize) -> ActorId {
        let pe = Self::pe(index);
        self.launches += 1;
        let thread = Actor::Thread { pe, launch: self.launches, block: index as u32 / 6, thread: 0 };
        self.engine.fork(self.actors[pe as usize], thread)
    }

    fn call(&mut self) -> Call {
        self.line += 1;
        Call { name: "call", site: Site { file: "random.rs", line: self.line } }
    }

    fn next(&mut self, actor: usize, others: &[Node]) -> Node {
        let mut earlier = vec![self.last[actor]];
        earlier.extend(others);
        self.last[actor] = self.model.event(earlier);
        if actor < 3 {
            self.of_hosts.push(self.last[actor]);
        }
        self.last[actor]
    }

    fn access(&mut self, actor: usize, span: Span, kind: Kind) -> Call {
        let call = self.call();
        let node = self.next(actor, &[]);
        self.model.access(node, span, kind, call.site.line);
        call
    }

    /// Whether a fence or `quiet` by `actor` on `context` covers an operation.
    fn covers(actor: ActorId, context: (u32, u32), target: Option<u32>, operation: &Operation) -> bool {
        let is_of = match operation.stores_of {
            Some(thread) => thread == actor,
            None => operation.context == context,
        };
        is_of && target.is_none_or(|pe| pe == operation.target)
    }

    /// Returns the deliveries that fences order before the delivery of `operation`.
    fn fenced(&self, operation: &Operation) -> Vec<Node> {
        let mut found = Vec::new();
        for fence in self.model.fences.iter().filter(|f| f.target.is_none_or(|pe| pe == operation.target)) {
            let applies = match operation.stores_of {
                Some(thread) => thread == fence.actor,
                None => operation.context == fence.context,
            };
            if !applies || !self.model.precedes(fence.node, operation.post) {
                continue;
            }
            let covered = self.model.operations.iter().filter(|earlier| {
                earlier.is_ordered
                    && earlier.target == operation.target
                    && Self::covers(fence.actor, fence.context, None, earlier)
                    && self.model.precedes(earlier.post, fence.node)
                    && !self.model.precedes(earlier.done, fence.node)
            });
            found.extend(covered.map(|earlier| earlier.done));
        }
        found
    }

    /// Returns the deliveries of earlier operations that a strong signal announces.
    fn announced(&self, id: ActorId, signal: &Operation) -> Vec<Node> {
        let covered = self.model.operations.iter().filter(|earlier| {
            earlier.is_ordered
                && Self::covers(id, signal.context, Some(signal.target), earlier)
                && self.model.precedes(earlier.post, signal.post)
                && !self.model.precedes(earlier.done, signal.post)
        });
        covered.map(|earlier| earlier.done).collect()
    }

    fn post(&mut self, actor: usize, posting: Posting, make: impl FnOnce(Context, Call) -> Post) -> usize {
        let call = self.call();
        let Posting { context, is_store, .. } = posting;
        let index = self.post_in_model(actor, posting, call);
        let pe = Self::pe(actor);
        let id = self.actors[actor];
        let context = if is_store { Context::Stores(id) } else { Context::Queues { pe, context } };
        self.model.operations[index].id = Some(self.engine.post(id, make(context, call)));
        index
    }

    fn post_in_model(&mut self, actor: usize, posting: Posting, call: Call) -> usize {
        let Posting { context, is_store, source, ends, target, is_ordered, strong, fetches } = posting;
        let pe = Self::pe(actor);
        let id = self.actors[actor];
        let post = self.next(actor, &[]);
        let mut operation = Operation {
            id: None,
            context: (pe, context),
            stores_of: is_store.then_some(id),
            target,
            is_ordered,
            post,
            read: 0,
            done: 0,
            alone: 0,
            carry: Carry::default(),
            signal: None,
            before: Vec::new(),
            follows: Vec::new(),
            ends: ends.clone(),
            fetches,
            is_delivered: false,
            found: Found::default(),
        };
        if is_ordered {
            operation.before = self.fenced(&operation);
        }
        if strong {
            operation.before.extend(self.announced(id, &operation));
        }
        for &done in &operation.before {
            let earlier = self.model.operations.iter().find(|earlier| earlier.done == done);
            let Operation { alone, follows, .. } = earlier.expect("a posted operation");
            operation.follows.extend(follows.iter().chain([alone]));
        }
        operation.read = self.model.event(vec![post]);
        if let Some(source) = source {
            self.model.access(operation.read, source, Kind::Read, call.site.line);
        }
        let mut earlier = operation.before.clone();
        earlier.push(operation.read);
        operation.done = self.model.event(earlier);
        operation.alone = self.model.alone(&[operation.read, operation.done]);
        operation.carry = self.released[actor].clone().with(&operation.follows);
        if strong || ends.len() > 1 {
            let all = [&[post], &operation.follows[..]].concat();
            operation.signal = Some(Carry { system: all.clone(), near: (pe, all) });
        }
        for (span, kind) in ends {
            self.model.access(operation.done, span, kind, call.site.line);
        }
        self.model.operations.push(operation);
        self.model.operations.len() - 1
    }

    /// Delivers an operation in the engine and the model, after the deliveries that must precede it.
    fn deliver(&mut self, index: usize) {
        let operation = self.model.operations[index].clone();
        if operation.is_delivered {
            return;
        }
        for before in operation.before {
            let index = self.model.operations.iter().position(|other| other.done == before).unwrap();
            self.deliver(index);
        }
        if let Some(id) = operation.id {
            self.engine.deliver(id);
        }
        let poster = operation.context.0;
        let words = operation.signal.unwrap_or(operation.carry.clone()).with(&[operation.alone]);
        for (span, kind) in operation.ends {
            for at in Model::bytes(span).filter(|_| operation.fetches && kind != Kind::Write) {
                for value in self.model.values.get(&at).into_iter().flatten() {
                    let (Value::Put { carry, .. } | Value::Word(carry) | Value::Relaxed { carry, .. }) =
                        value;
                    self.model.operations[index].found.add(carry, poster);
                }
            }
            match kind {
                Kind::Put => {
                    let (carry, alone) = (operation.carry.clone(), operation.alone);
                    let value = Value::Put { done: operation.done, alone, carry, whole: span };
                    self.model.set(span, &value);
                }
                Kind::Set => self.model.set(span, &Value::Word(words.clone())),
                Kind::Atomic => Model::bytes(span).for_each(|at| {
                    self.model.values.entry(at).or_default().push(Value::Word(words.clone()));
                }),
                Kind::Write => self.model.clear(span),
                _ => {}
            }
        }
        self.model.operations[index].is_delivered = true;
    }

    fn complete_earlier(&mut self, actor: usize, context: u32, target: Option<u32>, delivers: bool) {
        let context = (Self::pe(actor), context);
        let mut earlier = Vec::new();
        for index in 0..self.model.operations.len() {
            let operation = self.model.operations[index].clone();
            let is_covered = Self::covers(self.actors[actor], context, target, &operation);
            if !is_covered || !self.model.precedes(operation.post, self.last[actor]) {
                continue;
            }
            if delivers {
                self.deliver(index);
                earlier.extend([operation.alone]);
                earlier.extend(operation.follows);
                self.found[actor].join(&self.model.operations[index].found);
            } else {
                earlier.push(operation.read);
            }
        }
        self.next(actor, &earlier);
        let (id, context) = (self.actors[actor], Context::Queues { pe: context.0, context: context.1 });
        if delivers {
            self.engine.quiet(id, context, target);
        } else {
            self.engine.flush(id, context, target);
        }
    }

    fn observe(&mut self, actor: usize, word: Span, now: bool) {
        let pe = Self::pe(actor);
        for at in Model::bytes(word) {
            for value in self.model.values.get(&at).into_iter().flatten() {
                let found = &mut self.found[actor];
                match value {
                    Value::Put { alone, carry, whole, .. } if word.bytes.contains(whole.bytes) => {
                        found.add(carry, pe);
                        found.near.push(*alone);
                    }
                    Value::Put { done, carry, .. } => {
                        found.add(carry, pe);
                        self.found_writes[actor].push((*done, at.0, at.1));
                    }
                    Value::Word(carry) => found.add(carry, pe),
                    Value::Relaxed { store, carry } => {
                        found.add(carry, pe);
                        self.found_writes[actor].push((*store, at.0, at.1));
                    }
                }
            }
        }
        let node = if now { self.acquire(actor, Scope::System) } else { self.next(actor, &[]) };
        let call = self.call();
        self.model.access(node, word, Kind::Wait, call.site.line);
        let acquire = if now { Acquire::Now } else { Acquire::AtFence };
        self.engine.observe(self.actors[actor], (word, None), acquire, call);
    }

    fn acquire(&mut self, actor: usize, scope: Scope) -> Node {
        let mut found = std::mem::take(&mut self.found[actor].near);
        if scope == Scope::System {
            found.append(&mut self.found[actor].far);
        }
        let node = self.next(actor, &found);
        for key in std::mem::take(&mut self.found_writes[actor]) {
            self.model.seen.entry(key).or_default().push(node);
        }
        node
    }

    fn collective(&mut self, buffers: Option<(u64, u64)>, order: usize) {
        let call = self.call();
        let members: Vec<usize> = (0..3).map(|i| 3 + (order + i) % 3).collect();
        let mut arrivals = Vec::new();
        for &actor in &members {
            arrivals.push(self.next(actor, &[]));
            self.engine.arrive(self.actors[actor], JOB, Self::pe(actor));
        }
        for &actor in &members {
            let pe = Self::pe(actor);
            let spans = buffers.map(|(read, write)| (span(pe, read, 2), span(pe, write, 2)));
            let mut earlier = arrivals.clone();
            let mut used = Buffers::default();
            if let Some((read, write)) = spans {
                let arrived = members.iter().position(|&member| member == actor).expect("a member");
                let reads = self.model.event(vec![arrivals[arrived]]);
                self.model.access(reads, read, Kind::Read, call.site.line);
                let writes = self.model.event([&arrivals[..], &[reads]].concat());
                self.model.access(writes, write, Kind::Write, call.site.line);
                self.model.clear(write);
                // A call that moves data vouches only for its own buffers.
                earlier = vec![self.model.alone(&[reads, writes])];
                used = Buffers { reads: vec![read], writes: vec![write], root: None, moves: true };
            }
            self.next(actor, &earlier);
            self.engine.leave(self.actors[actor], JOB, pe, &used, call);
        }
    }

    fn run(&mut self, actor: usize, step: Step) {
        use Step::*;
        // Operations of a host are executed by kernels.
        let is_of_host = matches!(step, Load(..) | Store(..) | Release | Acquire | Free(_) | Settle);
        let actor = if actor < 3 && !is_of_host { actor + 3 } else { actor };
        let (id, pe) = (self.actors[actor], Self::pe(actor));
        match step {
            Step::Load(from, word, words) => {
                let call = self.access(actor, span(from, word, words), Kind::Read);
                self.engine.load(id, span(from, word, words), call);
            }
            Step::Store(word, words) => {
                let call = self.access(actor, span(pe, word, words), Kind::Write);
                self.model.clear(span(pe, word, words));
                self.engine.store(id, span(pe, word, words), call);
            }
            Step::StoreRelaxed(word) => {
                let call = self.access(actor, span(pe, word, 1), Kind::Set);
                let value = Value::Relaxed { store: self.last[actor], carry: self.released[actor].clone() };
                self.model.set(span(pe, word, 1), &value);
                self.engine.store_relaxed(id, span(pe, word, 1), call);
            }
            Step::Put { .. } | Step::PutSignal { .. } | Step::PeerStore { .. } => self.put(actor, step),
            Step::Get { .. } | Step::Signal { .. } | Step::Fetch { .. } => self.get_or_update(actor, step),
            Step::Deliver(back) => self.deliver_recent(back),
            Step::Complete(back) => self.complete_recent(actor, back),
            Step::Fence(target, context) => {
                let node = self.next(actor, &[]);
                self.model.fences.push(FenceMade { node, context: (pe, context), actor: id, target });
                let call = self.call();
                self.engine.fence(id, Context::Queues { pe, context }, target, call);
            }
            Step::Quiet(target, context) => self.complete_earlier(actor, context, target, true),
            Step::Flush(target, context) => self.complete_earlier(actor, context, target, false),
            Step::Observe(word, now) => self.observe(actor, span(pe, word, 1), now),
            Step::Look(word) => {
                let call = self.access(actor, span(pe, word, 1), Kind::Wait);
                self.engine.look(id, span(pe, word, 1), call);
            }
            Step::FenceRelease(scope) => self.fence_release(actor, scope),
            Step::FenceAcquire(scope) => {
                self.acquire(actor, scope);
                self.engine.fence_acquire(id, scope);
            }
            Step::Sync => self.sync(pe),
            Step::Collective { buffers } => self.collective(buffers, actor),
            Step::Release => self.token = Some((self.engine.release(id), self.next(actor, &[]))),
            Step::Acquire => self.acquire_token(actor),
            Step::EndAndFork if actor >= 3 => self.end_and_fork(actor),
            Step::EndAndFork => {}
            Step::Free(word) => {
                let call = self.access(actor, span(pe, word, 2), Kind::Free);
                self.engine.free(id, span(pe, word, 2), call);
            }
            Step::Settle => self.engine.settle(),
        }
    }

    fn put(&mut self, actor: usize, step: Step) {
        match step {
            Step::Put { source, target, at, words, context } => {
                let (from, to) = (span(Self::pe(actor), source, words), span(target, at, words));
                let posting =
                    Posting { context, source: Some(from), ..Posting::ordered(target, [(to, Kind::Put)]) };
                self.post(actor, posting, |c, call| Post::put(c, Some(from), to, call));
            }
            Step::PutSignal { source, target, at, signal, adds, strong } => {
                let (from, to) = (span(Self::pe(actor), source, 2), span(target, at, 2));
                let (word, kind) = (span(target, signal, 1), signal_kind(adds));
                let ends = [(to, Kind::Put), (word, kind)];
                let posting = Posting { source: Some(from), strong, ..Posting::ordered(target, ends) };
                self.post(actor, posting, |c, call| {
                    let put = Post::put(c, Some(from), to, call).with_signal(word, kind);
                    if strong { put.after_all() } else { put }
                });
            }
            Step::PeerStore { target, at, at_once } => {
                let to = span(target, at, 1);
                let posting = Posting { is_store: true, ..Posting::ordered(target, [(to, Kind::Put)]) };
                if at_once {
                    let call = self.call();
                    let index = self.post_in_model(actor, posting, call);
                    self.deliver(index);
                    self.engine.store_to_peer(self.actors[actor], to, call);
                } else {
                    self.post(actor, posting, |c, call| Post::put(c, None, to, call));
                }
            }
            _ => unreachable!("{step:?} puts nothing"),
        }
    }

    fn get_or_update(&mut self, actor: usize, step: Step) {
        match step {
            Step::Get { target, at, to, words } => {
                let (from, to) = (span(target, at, words), span(Self::pe(actor), to, words));
                let posting = Posting {
                    source: Some(from),
                    is_ordered: false,
                    ..Posting::ordered(target, [(to, Kind::Write)])
                };
                self.post(actor, posting, |c, call| Post::get(c, from, Some(to), call));
            }
            Step::Signal { target, word, adds, strong } => {
                let (word, kind) = (span(target, word, 1), signal_kind(adds));
                let posting = Posting { strong, ..Posting::ordered(target, [(word, kind)]) };
                self.post(actor, posting, |c, call| {
                    let signal = Post::signal(c, word, kind, call);
                    if strong { signal.after_all() } else { signal }
                });
            }
            Step::Fetch { target, word, updates, waits } => {
                let kind = if updates { Kind::Atomic } else { Kind::Fetch };
                let word = span(target, word, 1);
                let ends = [(word, kind)];
                let posting = Posting { is_ordered: waits, fetches: true, ..Posting::ordered(target, ends) };
                let index = self.post(actor, posting, |c, call| {
                    if waits {
                        Post::fetch(c, word, kind, call)
                    } else {
                        Post::fetch_nbi(c, word, kind, None, call)
                    }
                });
                if waits {
                    self.complete(actor, index);
                }
            }
            _ => unreachable!("{step:?} gets and updates nothing"),
        }
    }

    fn deliver_recent(&mut self, back: usize) {
        let waiting = (0..self.model.operations.len()).filter(|&i| !self.model.operations[i].is_delivered);
        if let Some(index) = waiting.rev().nth(back) {
            self.deliver(index);
        }
    }

    fn complete_recent(&mut self, actor: usize, back: usize) {
        let posted = (0..self.model.operations.len())
            .filter(|&i| self.model.operations[i].id.is_some())
            .filter(|&i| self.model.precedes(self.model.operations[i].post, self.last[actor]));
        if let Some(index) = posted.rev().nth(back) {
            self.complete(actor, index);
        }
    }

    fn fence_release(&mut self, actor: usize, scope: Scope) {
        let now = vec![self.next(actor, &[])];
        let carry = &mut self.released[actor];
        if scope == Scope::System {
            carry.system.clone_from(&now);
        }
        carry.near = (Self::pe(actor), now);
        self.engine.fence_release(self.actors[actor], scope);
    }

    /// Synchronizes the two threads of a PE's kernel.
    fn sync(&mut self, pe: u32) {
        let threads = [3, 6].map(|first| first + pe as usize);
        let before = threads.map(|thread| self.last[thread]);
        threads.iter().for_each(|&thread| {
            self.next(thread, &before);
        });
        self.engine.sync(&threads.map(|thread| self.actors[thread]));
    }

    fn acquire_token(&mut self, actor: usize) {
        if let Some((token, node)) = self.token.clone() {
            self.next(actor, &[node]);
            self.engine.acquire(self.actors[actor], &token);
        }
    }

    fn end_and_fork(&mut self, actor: usize) {
        let (id, host) = (self.actors[actor], Self::pe(actor) as usize);
        self.engine.end(id);
        self.engine.join(self.actors[host], id);
        let end = self.last[actor];
        let join = self.next(host, &[end]);
        self.actors[actor] = self.fork(actor);
        self.begin(actor, join);
    }

    fn complete(&mut self, actor: usize, index: usize) {
        self.deliver(index);
        let operation = self.model.operations[index].clone();
        let earlier = [vec![operation.alone], operation.follows].concat();
        self.next(actor, &earlier);
        self.found[actor].join(&operation.found);
        if let Some(id) = operation.id {
            self.engine.complete(self.actors[actor], id);
        }
    }
}

fn signal_kind(adds: bool) -> Kind {
    if adds { Kind::Atomic } else { Kind::Set }
}

/// Returns 8-byte words at `pe`. The memory is small, to make accesses collide.
fn span(pe: u32, word: u64, words: u64) -> Span {
    Span::heap(pe, 8 * word, 8 * words)
}

fn compare(program: &[(usize, Step)]) -> Result<usize, TestCaseError> {
    let mut runner = Runner::new();
    for &(actor, step) in program {
        runner.run(actor, step);
    }
    let wanted = runner.model.races();
    let found = runner.engine.take_races();
    let mut pairs: HashSet<(u32, u32)> = HashSet::new();
    for race in &found {
        let lines = (race.first.call.site.line, race.second.call.site.line);
        pairs.insert(lines);
        for byte in [race.bytes.start, race.bytes.end - 1] {
            let is_real =
                wanted.get(&(lines.1, race.memory.pe, byte)).is_some_and(|first| first.contains(&lines.0));
            prop_assert!(is_real, "false alarm: {race}");
        }
    }
    for ((second, pe, byte), firsts) in &wanted {
        let is_found = firsts.iter().any(|first| pairs.contains(&(*first, *second)));
        prop_assert!(is_found, "missed: line {second} at byte {byte} of PE {pe}, after one of {firsts:?}");
    }
    Ok(wanted.len())
}

/// Returns the settings of the tests. `PROPTEST_CASES` sets the number of programs.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig { cases: default.cases.max(2000), failure_persistence: None, ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_engine_finds_exactly_the_races_of_the_model(
        program in prop::collection::vec((0..9usize, step()), 1..60),
    ) {
        compare(&program)?;
    }

    /// Random programs with few threads, in which chains of order are long and races are rare.
    #[test]
    #[ignore = "slow: runs with --ignored"]
    fn programs_of_few_threads_agree(
        program in prop::collection::vec((3..5usize, step()), 1..80),
    ) {
        compare(&program)?;
    }
}
