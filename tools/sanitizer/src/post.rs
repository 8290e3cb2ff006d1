//! Description of an operation, such as a put, as passed from the hooks to the engine.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::access::{Call, Kind, Span};
use crate::actor::Transfer;
use crate::clock::Clock;
use crate::context::Context;
use crate::scopes::{Place, Shared};

/// Description of an operation to be posted: the memory it accesses, and how it is ordered.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Post {
    pub(crate) context: Context,
    pub(crate) target: u32,
    pub(crate) transfer: Transfer,
    pub(crate) call: Call,
    /// Memory that the operation reads before it is delivered.
    pub(crate) source: Option<Span>,
    /// Memory that the operation accesses when it is delivered, and how.
    pub(crate) destination: Option<(Span, Kind)>,
    /// The second word that the operation accesses: a signal, or the destination of an atomic's result.
    pub(crate) signal: Option<(Span, Kind)>,
    /// Whether fences order the operation.
    pub(crate) is_ordered: bool,
    /// Whether the operation is ordered after all earlier ones to the same PE, as if a fence preceded it.
    pub(crate) is_strong: bool,
    /// Whether the signal of the operation publishes everything that the poster knows.
    pub(crate) releases: bool,
    /// Whether the atomic replaces the value of its word instead of updating it.
    pub(crate) replaces: bool,
    /// Whether the atomic returns the previous value of its word.
    pub(crate) fetches: bool,
}

impl Post {
    fn new(context: Context, target: u32, transfer: Transfer, call: Call) -> Self {
        Self {
            context,
            target,
            transfer,
            call,
            source: None,
            destination: None,
            signal: None,
            is_ordered: true,
            is_strong: false,
            releases: false,
            replaces: false,
            fetches: false,
        }
    }

    /// Creates a put. `source` is `None` for a put of a single value.
    pub fn put(context: Context, source: Option<Span>, destination: Span, call: Call) -> Self {
        let destination_end = Some((destination, Kind::Put));
        let new = Self::new(context, destination.memory.pe, Transfer::Put, call);
        Self { source, destination: destination_end, ..new }
    }

    /// Creates a get. `destination` is `None` if the call returns a single value.
    pub fn get(context: Context, source: Span, destination: Option<Span>, call: Call) -> Self {
        let destination = destination.map(|span| (span, Kind::Write));
        let new = Self::new(context, source.memory.pe, Transfer::Get, call);
        Self { source: Some(source), destination, is_ordered: false, ..new }
    }

    /// Creates a signal to `word`. The kind is `Kind::Set` or `Kind::Atomic`.
    pub fn signal(context: Context, word: Span, kind: Kind, call: Call) -> Self {
        let new = Self::new(context, word.memory.pe, Transfer::Word, call);
        Self { destination: Some((word, kind)), ..new }
    }

    /// Creates an atomic without a result.
    pub fn atomic(context: Context, word: Span, call: Call) -> Self {
        Self::signal(context, word, Kind::Atomic, call)
    }

    /// Creates an atomic that returns the previous value of `word`. The kind is `Kind::Atomic` or `Kind::Fetch`.
    pub fn fetch(context: Context, word: Span, kind: Kind, call: Call) -> Self {
        Self { fetches: true, ..Self::signal(context, word, kind, call) }
    }

    /// Creates a nonblocking atomic like [`Post::fetch`]. Fences do not order it. `result` is where a call of the host
    /// stores the value.
    pub fn fetch_nbi(context: Context, word: Span, kind: Kind, result: Option<Span>, call: Call) -> Self {
        let signal = result.map(|span| (span, Kind::Write));
        Self { signal, is_ordered: false, ..Self::fetch(context, word, kind, call) }
    }

    /// Adds a signal, delivered after the data, which publishes everything that the poster knows. The kind is
    /// `Kind::Set` or `Kind::Atomic`.
    pub fn with_signal(self, word: Span, kind: Kind) -> Self {
        Self { signal: Some((word, kind)), ..self }.releasing()
    }

    /// Returns the words that the operation updates or reads atomically.
    pub(crate) fn words(&self) -> impl Iterator<Item = Span> + use<> {
        let ends = self.destination.into_iter().chain(self.signal);
        ends.filter(|(_, kind)| matches!(kind, Kind::Atomic | Kind::Fetch)).map(|(span, _)| span)
    }

    /// Publishes with the operation everything that its poster knows, like a put with signal.
    pub fn releasing(self) -> Self {
        Self { releases: true, ..self }
    }

    /// Marks an atomic as replacing its word, like a set.
    pub fn replacing(self) -> Self {
        Self { replaces: true, ..self }
    }

    /// Orders the operation after all earlier ones to the same PE, and makes it publish what its poster knows.
    pub fn after_all(self) -> Self {
        Self { is_strong: true, ..self }.releasing()
    }
}

/// An operation that was posted but not delivered.
#[derive(Debug)]
pub(crate) struct Undelivered {
    /// The PE that posted the operation.
    pub(crate) pe: u32,
    /// Where the poster runs, which decides which observers are within the scope of its fences.
    pub(crate) place: Place,
    /// What the data publishes, and also the signal unless the operation is releasing.
    pub(crate) carried: Shared,
    /// What the signal publishes, if the operation is releasing.
    pub(crate) released: Option<Shared>,
    /// Vector clock of the poster.
    pub(crate) knew: Arc<Clock>,
    pub(crate) post: Post,
}
