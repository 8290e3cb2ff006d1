//! Reference implementation of the memory model: a graph of events, in which races are found by searching for paths.

use std::collections::{HashMap, HashSet};

use rushmem_sanitizer::{ActorId, Kind, Span};

pub(crate) type Node = usize;

#[derive(Clone)]
pub(crate) struct Operation {
    /// Actor ID of the operation, or `None` for a store to a peer, which is delivered immediately.
    pub(crate) id: Option<ActorId>,
    pub(crate) context: (u32, u32),
    /// The thread that made the store, if this is a store to a peer.
    pub(crate) stores_of: Option<ActorId>,
    pub(crate) target: u32,
    pub(crate) is_ordered: bool,
    pub(crate) post: Node,
    pub(crate) read: Node,
    pub(crate) done: Node,
    /// Event that stands for the operation's read and delivery, without anything that precedes them.
    pub(crate) alone: Node,
    /// What the data, the relaxed words and the releasing signal of the operation publish.
    pub(crate) carry: Carry,
    pub(crate) signal: Option<Carry>,
    /// Deliveries that must precede the delivery of this operation.
    pub(crate) before: Vec<Node>,
    /// Events that stand for the deliveries in `before` and the ones before them, without anything else that precedes
    /// them.
    pub(crate) follows: Vec<Node>,
    pub(crate) ends: Vec<(Span, Kind)>,
    pub(crate) fetches: bool,
    pub(crate) is_delivered: bool,
    /// What the values that the operation returns have published.
    pub(crate) found: Found,
}

/// Events that a value publishes: to all observers, and to those of one PE.
#[derive(Clone, Default)]
pub(crate) struct Carry {
    pub(crate) system: Vec<Node>,
    pub(crate) near: (u32, Vec<Node>),
}

impl Carry {
    pub(crate) fn with(mut self, nodes: &[Node]) -> Self {
        self.system.extend(nodes);
        self.near.1.extend(nodes);
        self
    }
}

/// Events that an actor has read but not acquired. An acquire fence of GPU scope acquires those of the same PE.
#[derive(Clone, Default)]
pub(crate) struct Found {
    pub(crate) near: Vec<Node>,
    pub(crate) far: Vec<Node>,
}

impl Found {
    pub(crate) fn add(&mut self, carry: &Carry, pe: u32) {
        self.far.extend(&carry.system);
        if carry.near.0 == pe {
            self.near.extend(&carry.near.1);
        }
    }

    pub(crate) fn join(&mut self, other: &Self) {
        self.near.extend(&other.near);
        self.far.extend(&other.far);
    }
}

#[derive(Clone)]
pub(crate) struct Access {
    pub(crate) node: Node,
    pub(crate) span: Span,
    pub(crate) kind: Kind,
    pub(crate) line: u32,
}

/// A value in memory: who wrote it, and the complete range of the write.
#[derive(Clone)]
pub(crate) enum Value {
    Put { done: Node, alone: Node, carry: Carry, whole: Span },
    Word(Carry),
    Relaxed { store: Node, carry: Carry },
}

pub(crate) struct FenceMade {
    pub(crate) node: Node,
    pub(crate) context: (u32, u32),
    pub(crate) actor: ActorId,
    pub(crate) target: Option<u32>,
}

#[derive(Default)]
pub(crate) struct Model {
    /// For each event, a bit set of all events that precede it, and itself.
    pub(crate) before: Vec<Vec<u64>>,
    pub(crate) accesses: Vec<Access>,
    pub(crate) operations: Vec<Operation>,
    pub(crate) fences: Vec<FenceMade>,
    pub(crate) values: HashMap<(u32, u64), Vec<Value>>,
    /// For a byte and the write that gave it its value, the events that have waited for this value.
    pub(crate) seen: HashMap<(Node, u32, u64), Vec<Node>>,
}

impl Model {
    /// Adds an event that happens after `earlier`.
    pub(crate) fn event(&mut self, earlier: Vec<Node>) -> Node {
        let node = self.before.len();
        let mut before = vec![0; node / 64 + 1];
        before[node / 64] = 1 << (node % 64);
        for other in earlier {
            before.iter_mut().zip(&self.before[other]).for_each(|(mine, theirs)| *mine |= theirs);
        }
        self.before.push(before);
        node
    }

    /// Adds an event that represents `others` without anything that precedes them.
    pub(crate) fn alone(&mut self, others: &[Node]) -> Node {
        let node = self.event(Vec::new());
        others.iter().for_each(|other| self.before[node][other / 64] |= 1 << (other % 64));
        node
    }

    /// Whether `first` happens before `second`.
    pub(crate) fn precedes(&self, first: Node, second: Node) -> bool {
        self.before[second].get(first / 64).is_some_and(|bits| bits >> (first % 64) & 1 == 1)
    }

    pub(crate) fn access(&mut self, node: Node, span: Span, kind: Kind, line: u32) {
        self.accesses.push(Access { node, span, kind, line });
    }

    pub(crate) fn bytes(span: Span) -> impl Iterator<Item = (u32, u64)> {
        (span.bytes.start..span.bytes.end).map(move |byte| (span.memory.pe, byte))
    }

    pub(crate) fn clear(&mut self, span: Span) {
        Self::bytes(span).for_each(|at| {
            self.values.remove(&at);
        });
    }

    pub(crate) fn set(&mut self, span: Span, value: &Value) {
        Self::bytes(span).for_each(|at| {
            self.values.insert(at, vec![value.clone()]);
        });
    }

    /// Returns the byte accesses that race with earlier ones: the line of the later access and the byte, with the
    /// earlier lines.
    pub(crate) fn races(&self) -> HashMap<(u32, u32, u64), HashSet<u32>> {
        let mut races: HashMap<_, HashSet<u32>> = HashMap::new();
        for (at, second) in self.accesses.iter().enumerate() {
            for first in self.accesses[..at].iter().filter(|first| need_order(first, second)) {
                if self.precedes(first.node, second.node) {
                    continue;
                }
                let common: HashSet<_> = Self::bytes(first.span).collect();
                for (pe, byte) in Self::bytes(second.span).filter(|byte| common.contains(byte)) {
                    if !self.is_ordered_at((pe, byte), first, second) {
                        races.entry((second.line, pe, byte)).or_default().insert(first.line);
                    }
                }
            }
        }
        races
    }

    /// Whether the accesses `first` and `second` are ordered at a byte, directly or by a write between them that
    /// follows `first` and that `second` knows.
    fn is_ordered_at(&self, byte: (u32, u64), first: &Access, second: &Access) -> bool {
        let (mut reached, mut queue) = (HashSet::from([first.node]), vec![first]);
        while let Some(access) = queue.pop() {
            if self.precedes(access.node, second.node) || self.is_seen(access, second, byte) {
                return true;
            }
            for later in &self.accesses {
                let stands_between = replaces(later, access)
                    && later.span.memory.pe == byte.0
                    && (later.span.bytes.start..later.span.bytes.end).contains(&byte.1)
                    && self.precedes(access.node, later.node);
                if stands_between && reached.insert(later.node) {
                    queue.push(later);
                }
            }
        }
        false
    }

    /// Whether an event before `second` has waited for the value that `first` gave to the byte. Seeing the value of a
    /// put also proves that its source was read.
    fn is_seen(&self, first: &Access, second: &Access, (pe, byte): (u32, u64)) -> bool {
        let put = self.operations.iter().find(|operation| operation.read == first.node);
        let write = put.map_or(first.node, |put| put.done);
        let mut waits = self.seen.get(&(write, pe, byte)).into_iter().flatten();
        waits.any(|&wait| self.precedes(wait, second.node))
    }
}

/// Whether each access that conflicts with `old` also conflicts with `new`.
fn replaces(new: &Access, old: &Access) -> bool {
    match (new.kind, old.kind) {
        (Kind::Write | Kind::Free, _) | (Kind::Put, Kind::Read | Kind::Fetch) => true,
        (Kind::Put, Kind::Put) => {
            old.span.memory == new.span.memory && old.span.bytes.contains(new.span.bytes)
        }
        (Kind::Set, Kind::Set) | (Kind::Atomic, Kind::Atomic) => new.span == old.span,
        _ => false,
    }
}

/// Whether two accesses conflict, as an independent copy of the memory model's table.
pub(crate) fn need_order(first: &Access, second: &Access) -> bool {
    let is =
        |a: Kind, b: Kind| (first.kind == a && second.kind == b) || (first.kind == b && second.kind == a);
    let writes = |kind| !matches!(kind, Kind::Read | Kind::Wait | Kind::Fetch);
    if !writes(first.kind) && !writes(second.kind) {
        return false;
    }
    let is_same = first.span == second.span;
    let atomic = is(Kind::Wait, Kind::Set)
        || is(Kind::Wait, Kind::Atomic)
        || is(Kind::Set, Kind::Set)
        || is(Kind::Atomic, Kind::Atomic)
        || is(Kind::Atomic, Kind::Fetch);
    if atomic {
        return !is_same;
    }
    if is(Kind::Wait, Kind::Put) {
        let (wait, put) = if first.kind == Kind::Wait { (first, second) } else { (second, first) };
        return !put.span.bytes.contains(wait.span.bytes);
    }
    true
}
