//! The effect of a new access on the earlier accesses in shadow memory.

use crate::access::Access;
use crate::intervals::Bytes;

/// An earlier access that races with a new one, and the bytes that both access.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Conflict {
    pub(crate) earlier: Access,
    pub(crate) bytes: Bytes,
}

/// The effect of a new access on the earlier accesses in shadow memory: races, and stores that it replaces.
#[derive(Debug, Default)]
pub(crate) struct Met {
    /// Earlier accesses that race with the new one.
    pub(crate) conflicts: Vec<Conflict>,
    /// Stores to peers that the new access removes from shadow memory, with their bytes.
    pub(crate) lost: Vec<(Access, Bytes)>,
}

impl Met {
    /// Adds a race, or extends the known one if its earlier access is the same.
    pub(crate) fn add_conflict(&mut self, new: Conflict) {
        match self.conflicts.iter_mut().find(|known| known.earlier == new.earlier) {
            Some(known) => known.bytes.end = new.bytes.end,
            None => self.conflicts.push(new),
        }
    }
}
