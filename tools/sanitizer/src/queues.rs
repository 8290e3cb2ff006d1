//! Tracks the operations in flight of each context, and the fences between them.

use std::collections::HashMap;

use crate::actors::{Actors, delivery_of};
use crate::clock::Clock;
use crate::context::Context;
use crate::epoch::{ActorId, Epoch};

#[derive(Debug)]
struct Posted {
    operation: ActorId,
    /// The poster's step at which the operation was posted, or `None` for stores to a peer, each of which has its own
    /// step.
    made: Option<Epoch>,
    target: u32,
    /// Whether fences order the operation.
    is_ordered: bool,
}

impl Posted {
    /// Whether the operation was posted before the step whose clock is `clock`.
    fn is_known(&self, clock: &Clock, actors: &Actors) -> bool {
        match self.made {
            Some(made) => actors.knows(clock, made),
            None => actors.knows_post(clock, self.operation),
        }
    }
}

/// A fence for operations to one PE. Its actor represents the delivery of all operations before it.
#[derive(Debug)]
struct Fence {
    actor: ActorId,
    /// The step at which the thread called the fence.
    made: Epoch,
    target: u32,
}

#[derive(Debug, Default)]
struct Queue {
    posted: Vec<Posted>,
    fences: Vec<Fence>,
}

/// The operations and fences of all contexts that some live actor does not know completely.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    queues: HashMap<Context, Queue>,
}

impl Queues {
    /// Whether a context has operations or fences that have not settled.
    pub(crate) fn has(&self, context: Context) -> bool {
        self.queues.contains_key(&context)
    }

    /// Adds an operation to its context. `made` is the step of the poster, or `None` if the operation collects stores.
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

    /// Returns the operations of a context that were posted before the step with this `clock`, to PE `target` or to all
    /// PEs.
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

    /// Returns the operations that a new fence of `contexts` has to cover, each with its target PE. Excludes those that
    /// earlier fences already order before later operations of all `contexts`.
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

    pub(crate) fn add_fence(&mut self, context: Context, fence: ActorId, made: Epoch, target: u32) {
        self.queues.entry(context).or_default().fences.push(Fence { actor: fence, made, target });
    }

    /// Returns the fences for operations to `target` that were called before the step with this `clock`.
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

    pub(crate) fn settle(&mut self, actors: &Actors) {
        self.queues.retain(|_, queue| {
            queue.posted.retain(|posted| !actors.has_settled(posted.operation));
            queue.fences.retain(|fence| !actors.has_settled(fence.actor));
            !(queue.posted.is_empty() && queue.fences.is_empty())
        });
    }
}
