//! Posted writes: acknowledged WRITEs that have not reached memory yet. They are injected faults.
//!
//! PCIe keeps the posted writes of one adapter in order, and its reads and atomics do not overtake them. It does not
//! order them with accesses of other adapters and processors. A write with relaxed ordering may overtake earlier ones.
//! So may a relaxed atomic: where the rules leave room, this model takes the weaker order.

use crate::memory::{Memory, MemoryError};
use std::sync::Arc;
use std::time::Instant;

/// A write that has been acknowledged, but has not reached memory.
pub(crate) struct PostedWrite {
    /// When the write reaches memory, unless an access requires it earlier.
    pub(crate) due: Instant,
    /// The context that owns the written memory.
    pub(crate) owner: u32,
    pub(crate) memory: Arc<dyn Memory>,
    pub(crate) offset: u64,
    pub(crate) data: Box<[u8]>,
    /// Whether the write may overtake earlier ones.
    pub(crate) relaxed: bool,
}

impl PostedWrite {
    fn land(&self) -> Result<(), MemoryError> {
        self.memory.write(self.offset, &self.data)?;
        self.memory.flush()
    }
}

/// The posted writes of an adapter, oldest first.
#[derive(Default)]
pub(crate) struct PostedWrites(Vec<PostedWrite>);

impl PostedWrites {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a write. Unless it is relaxed, it reaches memory no earlier than the writes before it.
    pub(crate) fn push(&mut self, mut write: PostedWrite) {
        if !write.relaxed {
            let before = self.0.iter().filter(|before| Arc::ptr_eq(&before.memory, &write.memory));
            write.due = before.map(|before| before.due).fold(write.due, Instant::max);
        }
        self.0.push(write);
    }

    /// Returns when the next write reaches memory.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.0.iter().map(|write| write.due).min()
    }

    pub(crate) fn land_on(&mut self, memory: &Arc<dyn Memory>) -> Result<(), MemoryError> {
        let mut landing = self.0.extract_if(.., |write| Arc::ptr_eq(&write.memory, memory));
        landing.try_for_each(|write| write.land())
    }

    /// Delivers the writes that are due at `now`, or all of them if it is `None`. Calls `changed` with the context that
    /// owns the memory of each.
    pub(crate) fn land_due(&mut self, now: Option<Instant>, mut changed: impl FnMut(u32)) {
        for write in self.0.extract_if(.., |write| now.is_none_or(|now| write.due <= now)) {
            if let Err(error) = write.land() {
                tracing::debug!(?error, "a posted write failed");
            }
            changed(write.owner);
        }
    }
}
