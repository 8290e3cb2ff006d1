//! The launch table: one word per launch queue, in which a failing kernel stores its launch ID.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rushmem_base::lock;
use rushmem_device::abi::{DevAddr, LAUNCH_QUEUES, SEALED};
use rushmem_error::call_site::CallSite;
use rushmem_machine::{Machine, Region};

use super::pool::{IndexPool, PooledIndex};
use crate::{Error, Result};

/// Maximum number of launch queues, graphs and host operations that exist at the same time.
const WORDS: u32 = LAUNCH_QUEUES as u32;

/// Index of the entry of the PE's own queue, to which [`Pe::launch`](crate::Pe::launch) appends.
pub(crate) const OWN: u32 = 0;

/// The launch table of a PE: a word per launch queue, and the names of all kernels and operations launched so far.
pub(crate) struct LaunchTable {
    words: Region,
    pool: Arc<IndexPool>,
    names: Mutex<Vec<LaunchName>>,
}

/// The name of a kernel or operation. For an operation, also the application's source line that requested it.
type LaunchName = (&'static str, CallSite);

/// Identifies a launch within its queue by its number (below 2^31) and the name of its kernel or operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaunchId {
    pub(crate) number: u32,
    /// Index of the name plus one: no ID is 0.
    name: u32,
}

impl LaunchId {
    /// Returns the ID as the word that a failing kernel stores in the launch table.
    pub(crate) const fn to_word(self) -> u64 {
        (self.number as u64) << 32 | self.name as u64
    }

    /// Decodes the ID in a word of the launch table. Returns `None` for 0.
    pub(crate) const fn from_word(word: u64) -> Option<Self> {
        let word = word & !SEALED;
        if word == 0 { None } else { Some(Self { number: (word >> 32) as u32, name: word as u32 }) }
    }
}

impl LaunchTable {
    pub(crate) fn new(machine: &dyn Machine) -> Result<Self> {
        let words = machine.local(u64::from(WORDS) * 8)?;
        Ok(Self { words, pool: IndexPool::new(OWN + 1, WORDS), names: Mutex::default() })
    }

    /// Borrows an entry for a new queue. If none is free, waits for at most `within`.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if none becomes free in time.
    pub(crate) fn take(&self, within: Duration) -> Result<PooledIndex> {
        self.pool.take(within).ok_or_else(|| Error::Unavailable {
            what: format!("room for more than {} streams, graphs and operations of the host", WORDS - 1),
            why: "all are in use; drop streams and graphs that are no longer used".into(),
        })
    }

    /// Returns the device address of the word of entry `index`.
    pub(crate) fn addr(&self, index: u32) -> DevAddr {
        self.words.addr.add(u64::from(index) * 8)
    }

    /// Returns the failed launch that has stored its ID in entry `index`, if any.
    pub(crate) fn failed(&self, index: u32) -> Result<Option<LaunchId>> {
        let mut word = 0u64;
        self.words.read(u64::from(index) * 8, bytemuck::bytes_of_mut(&mut word))?;
        Ok(LaunchId::from_word(word))
    }

    /// Clears entry `index`. No launch that reports to it may be running.
    pub(crate) fn clear(&self, index: u32) -> Result<()> {
        self.words.write(u64::from(index) * 8, &[0; 8])
    }

    /// Returns whether a launch has failed in any queue.
    pub(crate) fn any_failed(&self) -> Result<bool> {
        let mut words = vec![0u64; WORDS as usize];
        self.words.read(0, bytemuck::cast_slice_mut(&mut words))?;
        Ok(words.iter().any(|&word| word != 0))
    }

    /// Returns the ID of launch `number` of a queue, and records its name. For an operation, `site` is the
    /// application's source line.
    pub(crate) fn launch_id(&self, number: u32, name: &'static str, site: CallSite) -> LaunchId {
        let mut names = lock(&self.names);
        let known = names.iter().position(|known| *known == (name, site));
        let index = known.unwrap_or_else(|| {
            names.push((name, site));
            names.len() - 1
        });
        LaunchId { number, name: index as u32 + 1 }
    }

    /// Returns the name of a launch's kernel or operation.
    pub(crate) fn name(&self, launch_id: LaunchId) -> &'static str {
        self.named(launch_id).0
    }

    /// Returns the name of a launch's kernel or operation. For an operation, also the application's source line.
    pub(crate) fn named(&self, launch_id: LaunchId) -> LaunchName {
        let names = lock(&self.names);
        let unknown = ("an unknown operation", CallSite::default());
        names.get(launch_id.name as usize - 1).copied().unwrap_or(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushmem_machine::Native;

    #[test]
    fn launch_id_round_trips_through_its_word() {
        let table = LaunchTable::new(&Native::new(Default::default())).unwrap();
        let none = CallSite::default();
        let (put, get) = (table.launch_id(7, "put", none), table.launch_id(0, "get", none));
        assert_eq!(table.launch_id(9, "put", none).name, put.name);
        for launch_id in [put, get] {
            assert_eq!(LaunchId::from_word(launch_id.to_word()), Some(launch_id));
            assert_eq!(LaunchId::from_word(launch_id.to_word() | SEALED), Some(launch_id));
        }
        assert_eq!((table.name(put), table.name(get)), ("put", "get"));
        assert_eq!(LaunchId::from_word(0), None);
    }

    #[test]
    fn entries_are_independent() {
        let table = LaunchTable::new(&Native::new(Default::default())).unwrap();
        let entry = table.take(Duration::ZERO).unwrap();
        let launch_id = table.launch_id(3, "x", CallSite::default());
        table.words.write(u64::from(entry.index) * 8, &launch_id.to_word().to_ne_bytes()).unwrap();
        assert!(table.any_failed().unwrap());
        assert_eq!(table.failed(entry.index).unwrap(), Some(launch_id));
        assert_eq!(table.failed(OWN).unwrap(), None);
        table.clear(entry.index).unwrap();
        assert!(!table.any_failed().unwrap());
    }
}
