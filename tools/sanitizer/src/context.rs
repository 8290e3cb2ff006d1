//! Contexts of operations, and operations that announce others.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::access::{Call, CallId, Kind, Span};
use crate::actor::Actor;
use crate::clock::Clock;
use crate::epoch::{ActorId, Epoch};

/// The queues that `fence` and `quiet` of a thread cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub enum Context {
    /// A context of a PE.
    Queues {
        /// The PE.
        pe: u32,
        /// The number of the context.
        context: u32,
    },
    /// The stores of one thread to the mapped memory of peers. Each `fence` and `quiet` of the thread covers them.
    Stores(ActorId),
}

/// An operation that has written a word, which may announce others.
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

/// The last word that an actor has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    pub(crate) announcer: Option<Announcer>,
    /// Everything that its writer knew.
    pub(crate) knew: Option<Arc<Clock>>,
    pub(crate) writer: Option<Writer>,
    pub(crate) look: Option<Look>,
}

/// A read of a word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) word: Span,
    /// The value, where the hook knows it.
    pub(crate) value: Option<u64>,
    pub(crate) call: Call,
}
