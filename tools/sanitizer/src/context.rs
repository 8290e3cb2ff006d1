//! Contexts of operations, and operations that may announce others.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::access::{Call, CallId, Kind, Span};
use crate::actor::Actor;
use crate::clock::Clock;
use crate::epoch::{ActorId, Epoch};

/// The operations that a thread's `fence` and `quiet` cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub enum Context {
    /// A context of a PE.
    Queues {
        /// The PE that owns the context.
        pe: u32,
        /// Index of the context in the PE.
        context: u32,
    },
    /// The stores of one thread to the mapped memory of peers, which every `fence` and `quiet` of the thread covers.
    Stores(ActorId),
}

/// An operation that has written a word, which may announce other operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Announcer {
    /// Its delivery.
    pub(crate) write: Epoch,
    /// The PE that posted it.
    pub(crate) pe: u32,
    pub(crate) context: Context,
}

/// The last writer of a word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Writer {
    pub(crate) actor: Actor,
    pub(crate) kind: Kind,
    pub(crate) call: CallId,
}

/// What an actor has learned from the last word that it has read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    pub(crate) announcer: Option<Announcer>,
    /// Everything that the word's writer knew.
    pub(crate) knew: Option<Arc<Clock>>,
    pub(crate) writer: Option<Writer>,
    pub(crate) look: Option<Look>,
}

/// A read of a word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) word: Span,
    /// The value, if the hook knows it.
    pub(crate) value: Option<u64>,
    pub(crate) call: Call,
}
