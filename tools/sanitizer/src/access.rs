//! Memory accesses as the sanitizer sees them, and the rules by which two of them conflict.

use std::fmt;
use std::panic::Location;

use serde::{Deserialize, Serialize};

use crate::epoch::Epoch;
use crate::intervals::Bytes;
use crate::text::{self, Text};

/// Step of an operation at which its source has been read. An operation, such as a put, has two steps.
pub(crate) const SOURCE_READ: u32 = 1;

/// Step of an operation at which its data and its signal have been delivered.
pub(crate) const DELIVERED: u32 = 2;

/// A kind of memory on each PE: symmetric heap, local buffers or windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Space {
    /// The symmetric heap of a PE.
    Heap,
    /// Local buffers that a PE has registered with the runtime.
    Local,
    /// User memory that all PEs have registered as windows.
    Window,
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Heap => "heap",
            Self::Local => "local buffers",
            Self::Window => "windows",
        })
    }
}

/// A PE's memory of one kind, in which accesses are located by offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
pub struct Memory {
    /// The PE that owns the memory.
    pub pe: u32,
    /// Kind of the memory: heap, local buffers or windows.
    pub space: Space,
}

/// A range of bytes in the memory of a PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Span {
    /// The memory that contains the range.
    pub memory: Memory,
    /// The range of bytes, as offsets from the start of the memory.
    pub bytes: Bytes,
}

impl Span {
    /// Returns `len` bytes of the symmetric heap of `pe`.
    pub fn heap(pe: u32, start: u64, len: u64) -> Self {
        Self { memory: Memory { pe, space: Space::Heap }, bytes: Bytes { start, end: start + len } }
    }

    /// Whether the two spans have bytes in common.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        let (a, b) = (self.bytes, other.bytes);
        self.memory == other.memory && a.start < b.end && b.start < a.end
    }
}

/// A source line of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub struct Site {
    /// Path of the source file.
    #[serde(deserialize_with = "text::intern")]
    pub file: Text,
    /// Line number, from 1.
    pub line: u32,
}

impl From<&'static Location<'static>> for Site {
    fn from(location: &'static Location<'static>) -> Self {
        Self { file: location.file(), line: location.line() }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A function call in the program: the name of the function and the source line. Serialized by the module `wire`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// Name of the called function.
    pub name: Text,
    /// The source line that contains the call.
    pub site: Site,
}

/// Index of a call in [`Calls`](crate::calls::Calls).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallId(pub(crate) u32);

/// How an access uses memory, which decides what it conflicts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A plain load, or the read of an operation's source.
    Read,
    /// A plain store, or the write of a destination by anything except a put.
    Write,
    /// The write of a put or a store to a peer. A wait for a word that lies within the put never sees a torn value.
    Put,
    /// A read by a wait, a test or a relaxed load.
    Wait,
    /// A write by a signal that sets its word, or by a relaxed store.
    Set,
    /// An atomic update, or a signal that adds.
    Atomic,
    /// An atomic read.
    Fetch,
    /// The end of an object's lifetime. Conflicts with every other access.
    Free,
}

impl Kind {
    fn reads(self) -> bool {
        matches!(self, Self::Read | Self::Wait | Self::Fetch)
    }

    pub(crate) fn changes(self) -> bool {
        !self.reads()
    }

    /// Whether accesses of this kind are to single words, on which they never conflict with accesses of the same kind.
    pub(crate) fn is_word(self) -> bool {
        matches!(self, Self::Wait | Self::Set | Self::Atomic | Self::Fetch)
    }

    /// Whether conflicts depend on the complete range of an access, rather than on the common bytes.
    pub(crate) fn has_extent(self) -> bool {
        self.is_word() || self == Self::Put
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "reads",
            Self::Write | Self::Put => "writes",
            Self::Wait => "waits for",
            Self::Set => "sets",
            Self::Atomic => "updates atomically",
            Self::Fetch => "reads atomically",
            Self::Free => "frees",
        })
    }
}

/// An access as stored in shadow memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Access {
    pub(crate) epoch: Epoch,
    pub(crate) kind: Kind,
    /// The complete range of the access, if conflicts of its kind depend on it.
    pub(crate) extent: Option<Bytes>,
    pub(crate) call: CallId,
}

impl Access {
    pub(crate) fn new(epoch: Epoch, kind: Kind, bytes: Bytes, call: CallId) -> Self {
        let extent = kind.has_extent().then_some(bytes);
        Self { epoch, kind, extent, call }
    }

    /// Whether two accesses to common bytes are a race unless one happens before the other.
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        use Kind::{Atomic, Fetch, Put, Set, Wait};
        let same = self.extent == other.extent;
        match (self.kind, other.kind) {
            (a, b) if a.reads() && b.reads() => false,
            (Wait, Put) => !other.covers(self),
            (Put, Wait) => !self.covers(other),
            (Wait, Set | Atomic) | (Set | Atomic, Wait) | (Set, Set) => !same,
            (Atomic, Atomic | Fetch) | (Fetch, Atomic) => !same,
            _ => true,
        }
    }

    /// Whether every later access that conflicts with `old` also conflicts with this one. If so, the shadow memory may
    /// forget `old` once this access is ordered after it.
    pub(crate) fn absorbs(&self, old: &Self) -> bool {
        use Kind::{Fetch, Free, Put, Read, Write};
        match (self.kind, old.kind) {
            (Write | Free, _) | (Put, Read | Fetch) | (Read, Read) => true,
            (Put, Put) => old.covers(self),
            (new, old_kind) => new == old_kind && self.extent == old.extent,
        }
    }

    /// Whether this is one of the stores to a peer that together form an operation. Each store is a separate step of
    /// it.
    pub(crate) fn is_store(&self) -> bool {
        self.kind == Kind::Put && self.epoch.count > DELIVERED
    }

    fn covers(&self, other: &Self) -> bool {
        matches!((self.extent, other.extent), (Some(whole), Some(part)) if whole.contains(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoch::ActorId;

    const KINDS: [Kind; 8] =
        [Kind::Read, Kind::Write, Kind::Put, Kind::Wait, Kind::Set, Kind::Atomic, Kind::Fetch, Kind::Free];

    fn all() -> Vec<Access> {
        let epoch = Epoch { actor: ActorId(1), count: 1 };
        let call = CallId::default();
        let ranges = [(0, 4), (0, 8), (4, 8), (0, 16)].map(|(start, end)| Bytes { start, end });
        KINDS.iter().flat_map(|&kind| ranges.map(|bytes| Access::new(epoch, kind, bytes, call))).collect()
    }

    #[test]
    fn conflicts_are_symmetric() {
        for (a, b) in all().iter().flat_map(|a| all().into_iter().map(move |b| (*a, b))) {
            assert_eq!(a.conflicts(&b), b.conflicts(&a), "{a:?} {b:?}");
        }
    }

    #[test]
    fn absorbed_accesses_hide_no_conflict() {
        let all = all();
        for (new, old) in all.iter().flat_map(|a| all.iter().map(move |b| (a, b))) {
            let hidden = || all.iter().find(|later| old.conflicts(later) && !new.conflicts(later));
            assert!(!new.absorbs(old) || hidden().is_none(), "{new:?} {old:?} {:?}", hidden());
        }
    }

    #[test]
    fn atomics_conflict_with_plain_accesses_only() {
        let of = |kind, start, end| {
            let epoch = Epoch { actor: ActorId(1), count: 1 };
            Access::new(epoch, kind, Bytes { start, end }, CallId::default())
        };
        assert!(!of(Kind::Atomic, 0, 8).conflicts(&of(Kind::Atomic, 0, 8)));
        assert!(of(Kind::Atomic, 0, 8).conflicts(&of(Kind::Atomic, 0, 4)));
        assert!(of(Kind::Atomic, 0, 8).conflicts(&of(Kind::Write, 0, 8)));
        assert!(of(Kind::Atomic, 0, 8).conflicts(&of(Kind::Put, 0, 8)));
        assert!(of(Kind::Atomic, 0, 8).conflicts(&of(Kind::Set, 0, 8)));
        assert!(!of(Kind::Wait, 0, 8).conflicts(&of(Kind::Put, 0, 64)));
        assert!(of(Kind::Wait, 0, 8).conflicts(&of(Kind::Put, 0, 1)));
        assert!(of(Kind::Wait, 0, 8).conflicts(&of(Kind::Write, 0, 8)));
    }
}
