//! The effects of an access on earlier ones.

use crate::access::Access;
use crate::intervals::Bytes;

/// An earlier access without an order to the new one, and the bytes in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Conflict {
    pub(crate) earlier: Access,
    pub(crate) bytes: Bytes,
}

/// The effects of a new access on earlier ones.
#[derive(Debug, Default)]
pub(crate) struct Met {
    /// The accesses that conflict with it, without an order.
    pub(crate) conflicts: Vec<Conflict>,
    /// The stores to peers that it replaces, and their bytes.
    pub(crate) lost: Vec<(Access, Bytes)>,
}

impl Met {
    /// Adds a conflict, or its bytes to the entry of the same access.
    pub(crate) fn add_conflict(&mut self, new: Conflict) {
        match self.conflicts.iter_mut().find(|known| known.earlier == new.earlier) {
            Some(known) => known.bytes.end = new.bytes.end,
            None => self.conflicts.push(new),
        }
    }
}
