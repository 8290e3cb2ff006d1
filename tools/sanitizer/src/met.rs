//! What a new access does to earlier ones.

use crate::access::Access;
use crate::intervals::Bytes;

/// An earlier access that a new one races with, and the common bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Conflict {
    pub(crate) earlier: Access,
    pub(crate) bytes: Bytes,
}

/// What a new access does to earlier ones.
#[derive(Debug, Default)]
pub(crate) struct Met {
    /// The accesses that it races with.
    pub(crate) conflicts: Vec<Conflict>,
    /// The stores to peers that it replaces, with their bytes.
    pub(crate) lost: Vec<(Access, Bytes)>,
}

impl Met {
    /// Adds a conflict, merging it with an earlier one with the same access.
    pub(crate) fn add_conflict(&mut self, new: Conflict) {
        match self.conflicts.iter_mut().find(|known| known.earlier == new.earlier) {
            Some(known) => known.bytes.end = new.bytes.end,
            None => self.conflicts.push(new),
        }
    }
}
