//! Operations in flight, by the queues of a context, and the fences between them.

use std::collections::HashMap;

use crate::actors::{Actors, delivery_of};
use crate::clock::Clock;
use crate::context::Context;
use crate::epoch::{ActorId, Epoch};

/// An operation in flight.
#[derive(Debug)]
struct Posted {
    operation: ActorId,
    /// The step that posted it; `None` for stores, which several steps post.
    made: Option<Epoch>,
    target: u32,
    /// Whether fences cover it.
    is_ordered: bool,
}

impl Posted {
    /// Returns whether `clock` knows that the operation has been posted.
    fn is_known(&self, clock: &Clock, actors: &Actors) -> bool {
        match self.made {
            Some(made) => actors.knows(clock, made),
            None => actors.knows_post(clock, self.operation),
        }
    }
}

/// A fence toward one PE. Its actor stands for the delivery of all operations before it.
#[derive(Debug)]
struct Fence {
    actor: ActorId,
    /// The step of the thread that made it.
    made: Epoch,
    target: u32,
}

/// The queues of a context.
#[derive(Debug, Default)]
struct Queue {
    posted: Vec<Posted>,
    fences: Vec<Fence>,
}

/// The operations of all contexts that have not settled.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    queues: HashMap<Context, Queue>,
}

impl Queues {
    /// Returns whether a context has operations or fences that have not settled.
    pub(crate) fn has(&self, context: Context) -> bool {
        self.queues.contains_key(&context)
    }

    /// Adds an operation that a step has posted, or stores of several steps.
    pub(crate) fn add(
        &mut self,
        context: Context,
        operation: ActorId,
        made: Option<Epoch>,
        target: u32,
        is_ordered: bool,
    ) {
        let posted = Posted { operation, made, target, is_ordered };
        self.queues.entry(context).or_default().posted.push(posted);
    }

    /// Returns the operations that `clock` has seen posted, to one PE or to all.
    pub(crate) fn earlier(
        &self,
        context: Context,
        target: Option<u32>,
        clock: &Clock,
        actors: &Actors,
    ) -> Vec<ActorId> {
        let posted = self.queues.get(&context).map_or(&[][..], |queue| &queue.posted);
        let is_earlier =
            |posted: &&Posted| target.is_none_or(|pe| pe == posted.target) && posted.is_known(clock, actors);
        posted.iter().filter(is_earlier).map(|posted| posted.operation).collect()
    }

    /// Returns the ordered operations of `contexts` that `clock` has seen posted, each with its target. Operations that
    /// earlier fences order before later ones of all `contexts` are left out.
    pub(crate) fn unfenced(
        &self,
        contexts: &[Context],
        target: Option<u32>,
        clock: &Clock,
        actors: &Actors,
    ) -> Vec<(u32, ActorId)> {
        let mut known: HashMap<u32, Vec<Clock>> = HashMap::new();
        let fenced = |context, target| {
            let mut known = clock.clone();
            let fences = self.fences(context, target, clock, actors);
            fences.into_iter().for_each(|fence| actors.add_delivered(&mut known, fence));
            known
        };
        let mut is_unfenced = |posted: &&Posted| {
            let of_target = || contexts.iter().map(|context| fenced(*context, posted.target)).collect();
            let known = known.entry(posted.target).or_insert_with(of_target);
            let delivered = delivery_of(posted.operation);
            posted.is_known(clock, actors) && !known.iter().all(|known| actors.knows(known, delivered))
        };
        let posted =
            contexts.iter().filter_map(|context| self.queues.get(context)).flat_map(|queue| &queue.posted);
        let chosen = posted.filter(|p| p.is_ordered && target.is_none_or(|pe| pe == p.target));
        chosen.filter(|p| is_unfenced(p)).map(|p| (p.target, p.operation)).collect()
    }

    /// Adds a fence toward `target`.
    pub(crate) fn add_fence(&mut self, context: Context, fence: ActorId, made: Epoch, target: u32) {
        self.queues.entry(context).or_default().fences.push(Fence { actor: fence, made, target });
    }

    /// Returns the fences toward `target` that precede a posting by an actor with `clock`.
    pub(crate) fn fences(
        &self,
        context: Context,
        target: u32,
        clock: &Clock,
        actors: &Actors,
    ) -> Vec<ActorId> {
        let fences = self.queues.get(&context).map_or(&[][..], |queue| &queue.fences);
        let precedes = |fence: &&Fence| fence.target == target && actors.knows(clock, fence.made);
        fences.iter().filter(precedes).map(|fence| fence.actor).collect()
    }

    /// Forgets the operations and fences that have settled.
    pub(crate) fn settle(&mut self, actors: &Actors) {
        self.queues.retain(|_, queue| {
            queue.posted.retain(|posted| !actors.has_settled(posted.operation));
            queue.fences.retain(|fence| !actors.has_settled(fence.actor));
            !(queue.posted.is_empty() && queue.fences.is_empty())
        });
    }
}
