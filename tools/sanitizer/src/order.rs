//! Finds out which synchronization is missing between two racing accesses, and suggests how to add it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::access::{DELIVERED, Kind};
use crate::actor::{Actor, Transfer};
use crate::actors::Learned;
use crate::context::{Announcer, Context};
use crate::epoch::Epoch;

/// The synchronization that is missing between two racing accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingOrder {
    /// A put may still be reading its source.
    SourceInUse,
    /// A get or an atomic has not yet returned its result.
    ResultPending,
    /// No fence separates two operations to the same PE.
    Fence {
        /// The PE that both operations access.
        pe: u32,
    },
    /// A relaxed write announces an access that its thread has not released.
    Release,
    /// A relaxed read has seen the announcement of an access, but no acquire fence followed.
    Acquire,
    /// The words of a put arrive in any order, so none of them announces the others.
    WordOrder,
    /// An operation may not be complete at its target PE when another PE accesses the memory.
    Completion {
        /// The PE whose memory the operation accesses.
        pe: u32,
    },
    /// The owner of the memory does not wait for the arrival of an operation, or the operation is not ordered after the
    /// owner's access.
    Arrival,
    /// Two PEs read and then write the same word, so one may overwrite the value of the other.
    LostUpdate,
    /// The parts of a collective call's result overlap.
    PartsOverlap,
    /// Operations of different PEs access the same bytes without synchronization.
    Barrier,
    /// A word is accessed by an atomic and a plain access, or by atomics of different kinds or widths.
    Atomicity,
    /// Threads of a block are not synchronized.
    BlockSync,
    /// Blocks of a launch are not synchronized.
    GridSync,
    /// The host, a stream or another launch does not wait for a launch.
    LaunchEnd,
    /// A stream does not wait for an event of another stream.
    StreamEvent,
    /// A collective call may still be using its buffers.
    CollectiveEnd,
    /// Memory is freed while it is in use.
    Lifetime,
}

impl fmt::Display for MissingOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SourceInUse => "the put may still read its source",
            Self::ResultPending => "the result may not be here yet",
            Self::Fence { .. } => "nothing orders the deliveries",
            Self::Release => "the word that announces the first does not publish it",
            Self::Acquire => "the read that has seen the announcement does not acquire",
            Self::WordOrder => "the words of a put arrive in any order",
            Self::Completion { .. } => "the operation may not be complete",
            Self::Arrival => "nothing orders the arrival and this access",
            Self::LostUpdate => "another PE may change the word between the get and the put",
            Self::PartsOverlap => "several members write the same bytes",
            Self::Barrier => "nothing orders the two PEs",
            Self::Atomicity => "the two accesses are not atomic with each other",
            Self::BlockSync => "nothing orders the threads of the block",
            Self::GridSync => "nothing orders the blocks",
            Self::LaunchEnd => "nothing orders the launch and the other access",
            Self::StreamEvent => "nothing orders the launches of two streams",
            Self::CollectiveEnd => "the collective call may still use its buffers",
            Self::Lifetime => "the memory may still be in use",
        })
    }
}

impl MissingOrder {
    /// Returns advice on how to add the missing synchronization, as text for the user.
    pub fn remedy(self) -> String {
        match self {
            Self::SourceInUse => "call `ctx.quiet` or `ctx.flush` before the source changes".into(),
            Self::ResultPending => "call `ctx.quiet` before the result is used".into(),
            Self::Fence { pe } => {
                format!(
                    "add `ctx.fence_pe({pe})` or `ctx.fence()` behind the first, before the data is announced"
                )
            }
            Self::Release => {
                "call `ctx.fence` between the first and the signal or atomic that announces it, or use \
                 `ctx.signal_strong` or `ctx.put_signal`"
                    .into()
            }
            Self::Acquire => {
                "call `ctx.fence_acquire` after the atomic or relaxed load that has seen the announcement"
                    .into()
            }
            Self::WordOrder => {
                "announce the data by `ctx.put_signal`, or by a word of its own behind `ctx.fence`".into()
            }
            Self::Completion { pe } => {
                format!("add `ctx.quiet` or `ctx.quiet_pe({pe})` before others learn of the operation")
            }
            Self::Arrival => {
                "use `ctx.put_signal` and wait for the signal, or signal the other PE that the memory is free"
                    .into()
            }
            Self::LostUpdate => {
                "update the word by an atomic, such as `ctx.atomic_fetch_add` or `ctx.atomic_compare_swap`"
                    .into()
            }
            Self::PartsOverlap => {
                "give the data of each member its own range: check the offsets and counts of the result"
                    .into()
            }
            Self::Barrier => "add `ctx.barrier_all`, or a signal and its wait, between them".into(),
            Self::Atomicity => "make both accesses atomics of the same width, or order them".into(),
            Self::BlockSync => "add `block.sync()` between them".into(),
            Self::GridSync => "add `ctx.sync_grid`, or a release and an acquire, between them".into(),
            Self::LaunchEnd => "wait for the launch or its stream between them".into(),
            Self::StreamEvent => {
                "let the second stream wait for the first: `second.follow(&first.record()?)`".into()
            }
            Self::CollectiveEnd => {
                "wait until the call has returned, and synchronise with its callers".into()
            }
            Self::Lifetime => "complete all operations by `ctx.quiet` and a barrier before `free`".into(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    /// The step of the access. For an operation, the count identifies its part.
    pub(crate) epoch: Epoch,
    pub(crate) actor: Actor,
    /// The actor that posted the operation, or the actor itself if it is not an operation.
    pub(crate) maker: Actor,
    pub(crate) kind: Kind,
    pub(crate) context: Option<Context>,
    /// The actor, other than an operation, at whose step this part of the operation was complete, if any.
    pub(crate) completer: Option<Actor>,
}

/// What the actor of a race's second access knows about the first one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Knowledge {
    /// Whether the actor knows that the first operation was posted.
    pub(crate) knows_post: bool,
    /// Whether the actor has read a word that publishes the first access, without acquiring it.
    pub(crate) is_found: bool,
    /// Whether the writer of the word that the actor read last knew the first access.
    pub(crate) writer_knew: bool,
    /// Another actor on the PE of the second access that knows the first access.
    pub(crate) informed: Option<Actor>,
    /// Whether the bytes that both accesses use fit into a word.
    pub(crate) is_word: bool,
    /// By which kind of synchronization the actor last learned of others.
    pub(crate) learned: Learned,
    /// The operation that wrote the word for which the actor last waited.
    pub(crate) heard: Option<Announcer>,
}

impl Side {
    fn transfer(&self) -> Option<(Transfer, u32)> {
        match self.actor {
            Actor::Operation { transfer, target, .. } => Some((transfer, target)),
            _ => None,
        }
    }

    /// Whether a fence can order this operation before one that `pe` posts in `context`.
    fn precedes(&self, pe: u32, context: Option<Context>) -> bool {
        let is_store = |context| matches!(context, Some(Context::Stores(_)));
        self.actor.pe() == pe && (self.context == context || is_store(self.context) || is_store(context))
    }
}

/// Returns the synchronization that is missing between two accesses. Specific causes are checked before general ones.
pub(crate) fn missing(first: Side, second: Side, knowledge: Knowledge) -> MissingOrder {
    let transfers = [first.transfer(), second.transfer()];
    if first.kind == Kind::Free || second.kind == Kind::Free {
        return MissingOrder::Lifetime;
    }
    if transfers.iter().flatten().any(|(transfer, _)| *transfer == Transfer::Collective) {
        return MissingOrder::CollectiveEnd;
    }
    // The second has seen the announcement, so only the acquire is missing.
    if knowledge.is_found {
        return MissingOrder::Acquire;
    }
    // The announcement was made by somebody who knew the first access, so only the release is missing.
    if knowledge.writer_knew {
        return MissingOrder::Release;
    }
    // Another actor on this PE knows the first access already, so only the order from there to the second is missing.
    if let Some(informed) = knowledge.informed.filter(|_| first.maker.pe() != second.maker.pe()) {
        return in_pe(informed, second.maker);
    }
    // The second knows of the operation, but not that it is complete.
    if let (Some((transfer, target)), true) = (first.transfer(), knowledge.knows_post) {
        let completer = first.completer.filter(|completer| completer.pe() == second.actor.pe());
        return match completer {
            Some(completer) => in_pe(completer, second.maker),
            None => unfinished(first, transfer, target, second, knowledge),
        };
    }
    // From here on, the second does not know of the first at all.
    if first.kind.is_word() || second.kind.is_word() {
        return MissingOrder::Atomicity;
    }
    if first.actor.pe() == second.actor.pe() {
        return in_pe(first.maker, second.maker);
    }
    let kinds = transfers.map(|transfer| transfer.map(|(transfer, _)| transfer));
    match kinds {
        [Some(Transfer::Get), Some(Transfer::Put)] | [Some(Transfer::Put), Some(Transfer::Get)]
            if knowledge.is_word =>
        {
            MissingOrder::LostUpdate
        }
        [Some(_), Some(_)] => MissingOrder::Barrier,
        _ => MissingOrder::Arrival,
    }
}

/// Returns the synchronization missing after an operation that the second actor knows was posted, but not that it is
/// complete.
fn unfinished(
    first: Side,
    transfer: Transfer,
    target: u32,
    second: Side,
    Knowledge { learned, heard, .. }: Knowledge,
) -> MissingOrder {
    let is_delivery = first.epoch.count >= DELIVERED;
    let is_result = is_delivery && second.actor.pe() == first.actor.pe() && first.kind == Kind::Write;
    let heard = heard.filter(|_| second.actor.pe() == target && learned == Learned::Word);
    match transfer {
        _ if is_result => MissingOrder::ResultPending,
        Transfer::Put if !is_delivery => MissingOrder::SourceInUse,
        // The wait saw the put itself, but only this word of it.
        Transfer::Put if heard.is_some_and(|heard| heard.write == first.epoch) => MissingOrder::WordOrder,
        Transfer::Put | Transfer::Word => {
            let goes_there = second.transfer().is_some_and(|(transfer, to)| {
                to == target && matches!(transfer, Transfer::Put | Transfer::Word)
            });
            // A fence is enough if the second operation, or the one that announced the first, goes to the same PE
            // through the same context.
            let follows = goes_there && first.precedes(second.actor.pe(), second.context);
            if follows || heard.is_some_and(|heard| first.precedes(heard.pe, Some(heard.context))) {
                MissingOrder::Fence { pe: target }
            } else {
                MissingOrder::Completion { pe: target }
            }
        }
        _ => MissingOrder::Completion { pe: target },
    }
}

/// Returns the synchronization missing between two actors of the same PE.
fn in_pe(first: Actor, second: Actor) -> MissingOrder {
    let place = |actor| match actor {
        Actor::Thread { launch, block, .. } => Some((launch, block)),
        _ => None,
    };
    match (place(first), place(second)) {
        (Some(a), Some(b)) if a == b => MissingOrder::BlockSync,
        (Some(a), Some(b)) if a.0 == b.0 => MissingOrder::GridSync,
        (Some(_), Some(_)) => MissingOrder::StreamEvent,
        _ => MissingOrder::LaunchEnd,
    }
}
