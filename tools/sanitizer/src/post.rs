//! Operations as described by the hooks.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::access::{Call, Kind, Span};
use crate::actor::Transfer;
use crate::clock::Clock;
use crate::context::Context;
use crate::scopes::{Place, Shared};

/// An operation to be posted.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Post {
    pub(crate) context: Context,
    pub(crate) target: u32,
    pub(crate) transfer: Transfer,
    pub(crate) call: Call,
    /// The memory that it reads first.
    pub(crate) source: Option<Span>,
    /// The memory that it reads or writes afterwards.
    pub(crate) destination: Option<(Span, Kind)>,
    /// The second word that it accesses: a signal, or the destination of an atomic's result.
    pub(crate) signal: Option<(Span, Kind)>,
    /// Whether fences order it.
    pub(crate) is_ordered: bool,
    /// Whether it follows all earlier operations to its PE, like after a fence.
    pub(crate) is_strong: bool,
    /// Whether its signal publishes what its poster knows.
    pub(crate) releases: bool,
    /// Whether it replaces its word instead of updating it.
    pub(crate) replaces: bool,
    /// Whether it returns the value of its word.
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

    /// Creates a put. A put of a value, or a store to a peer, has no source.
    pub fn put(context: Context, source: Option<Span>, destination: Span, call: Call) -> Self {
        let destination_end = Some((destination, Kind::Put));
        let new = Self::new(context, destination.memory.pe, Transfer::Put, call);
        Self { source, destination: destination_end, ..new }
    }

    /// Creates a get. A get that returns a single value has no destination.
    pub fn get(context: Context, source: Span, destination: Option<Span>, call: Call) -> Self {
        let destination = destination.map(|span| (span, Kind::Write));
        let new = Self::new(context, source.memory.pe, Transfer::Get, call);
        Self { source: Some(source), destination, is_ordered: false, ..new }
    }

    /// Creates a signal, which is a `Kind::Set` or `Kind::Atomic`.
    pub fn signal(context: Context, word: Span, kind: Kind, call: Call) -> Self {
        let new = Self::new(context, word.memory.pe, Transfer::Word, call);
        Self { destination: Some((word, kind)), ..new }
    }

    /// Creates an atomic without a result.
    pub fn atomic(context: Context, word: Span, call: Call) -> Self {
        Self::signal(context, word, Kind::Atomic, call)
    }

    /// Creates an atomic that returns the value of its word, which is a `Kind::Atomic` or `Kind::Fetch`.
    pub fn fetch(context: Context, word: Span, kind: Kind, call: Call) -> Self {
        Self { fetches: true, ..Self::signal(context, word, kind, call) }
    }

    /// Creates an atomic like [`Post::fetch`] that does not wait for the value. Fences do not order it. The host's
    /// calls store the value to `result`.
    pub fn fetch_nbi(context: Context, word: Span, kind: Kind, result: Option<Span>, call: Call) -> Self {
        let signal = result.map(|span| (span, Kind::Write));
        Self { signal, is_ordered: false, ..Self::fetch(context, word, kind, call) }
    }

    /// Adds a releasing signal after the data, which is a `Kind::Set` or `Kind::Atomic`.
    pub fn with_signal(self, word: Span, kind: Kind) -> Self {
        Self { signal: Some((word, kind)), ..self }.releasing()
    }

    /// Returns the words that it updates or reads atomically.
    pub(crate) fn words(&self) -> impl Iterator<Item = Span> + use<> {
        let ends = self.destination.into_iter().chain(self.signal);
        ends.filter(|(_, kind)| matches!(kind, Kind::Atomic | Kind::Fetch)).map(|(span, _)| span)
    }

    /// Has the operation publish everything that its poster knows, like the signal of a put.
    pub fn releasing(self) -> Self {
        Self { releases: true, ..self }
    }

    /// Marks an atomic as replacing its word, like a set.
    pub fn replacing(self) -> Self {
        Self { replaces: true, ..self }
    }

    /// Orders the operation after all earlier ones to its PE, and has it publish what its poster knows.
    pub fn after_all(self) -> Self {
        Self { is_strong: true, ..self }.releasing()
    }
}

/// An operation that was posted but not delivered.
#[derive(Debug)]
pub(crate) struct Undelivered {
    /// The PE that posted it.
    pub(crate) pe: u32,
    /// The place of its poster, which decides whom its words reach.
    pub(crate) place: Place,
    /// What the data carries, and the words too unless it is releasing.
    pub(crate) carried: Shared,
    /// What the signal carries, if it is releasing.
    pub(crate) released: Option<Shared>,
    /// Everything that its poster knew.
    pub(crate) knew: Arc<Clock>,
    pub(crate) post: Post,
}
