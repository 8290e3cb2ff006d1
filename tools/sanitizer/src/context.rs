//! Contexts of operations, and the operations whose written words may announce others.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::access::{Call, CallId, Kind, Span};
use crate::actor::Actor;
use crate::clock::Clock;
use crate::epoch::{ActorId, Epoch};

/// The set of operations that a `fence` or `quiet` covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub enum Context {
    /// The operations posted through a communication context.
    Queues {
        /// The PE that owns the context.
        pe: u32,
        /// Index of the context in the PE.
        context: u32,
    },
    /// One thread's stores to the mapped memory of other PEs, which every `fence` and `quiet` of the thread covers.
    Stores(ActorId),
}

/// The operation that wrote a word, which may announce earlier operations to readers of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Announcer {
    /// The step at which the operation was delivered.
    pub(crate) write: Epoch,
    /// The PE that posted the operation.
    pub(crate) pe: u32,
    pub(crate) context: Context,
}

/// The last actor that wrote a word, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Writer {
    pub(crate) actor: Actor,
    pub(crate) kind: Kind,
    pub(crate) call: CallId,
}

/// What an actor's last read of a word has revealed about its writer, used to explain a race.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    pub(crate) announcer: Option<Announcer>,
    /// Vector clock of the word's writer at the time of the write.
    pub(crate) knew: Option<Arc<Clock>>,
    pub(crate) writer: Option<Writer>,
    pub(crate) look: Option<Look>,
}

/// A read of a word, as shown in a report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) word: Span,
    /// The value read, if the hook has reported it.
    pub(crate) value: Option<u64>,
    pub(crate) call: Call,
}
