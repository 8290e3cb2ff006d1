//! Who has failed: a word for each queue of kernels, which the launch that fails sets.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rushmem_device::abi::{DevAddr, SEALED};

use super::pool::{Place, Pool};
use crate::machine::{Machine, Region};
use crate::{Error, Result};

/// Words: queues, graphs and operations of the host that there can be at once.
const WORDS: u32 = 512;

/// The word of the PE's own queue.
pub(crate) const OWN: u32 = 0;

/// The words of a PE, and the names of what it launches.
pub(crate) struct Board {
    words: Region,
    pool: Arc<Pool>,
    names: Mutex<Vec<&'static str>>,
}

/// What tells a launch from others of its queue: a number that grows, below 2^31, and a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) number: u32,
    name: u32,
}

impl Ticket {
    /// The ticket as a launch's mark.
    pub(crate) const fn mark(self) -> u64 {
        (self.number as u64) << 32 | self.name as u64
    }

    /// The ticket of a mark that a launch has left, none for 0.
    pub(crate) const fn of(mark: u64) -> Option<Self> {
        let mark = mark & !SEALED;
        if mark == 0 { None } else { Some(Self { number: (mark >> 32) as u32, name: mark as u32 }) }
    }
}

impl Board {
    pub(crate) fn new(machine: &dyn Machine) -> Result<Self> {
        let words = machine.local(u64::from(WORDS) * 8)?;
        Ok(Self { words, pool: Pool::new(OWN + 1, WORDS), names: Mutex::default() })
    }

    /// A word for a new queue.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is none within this time.
    pub(crate) fn take(&self, within: Duration) -> Result<Place> {
        self.pool.take(within).ok_or_else(|| Error::Unavailable {
            what: format!("room for more than {} streams, graphs and operations of the host", WORDS - 1),
            why: "all are in use; drop streams and graphs that are done".into(),
        })
    }

    /// Where a word is, for kernels.
    pub(crate) fn addr(&self, index: u32) -> DevAddr {
        self.words.addr.add(u64::from(index) * 8)
    }

    /// The launch that failed in the queue with this word.
    pub(crate) fn failed(&self, index: u32) -> Result<Option<Ticket>> {
        let mut word = 0u64;
        self.words.read(u64::from(index) * 8, bytemuck::bytes_of_mut(&mut word))?;
        Ok(Ticket::of(word))
    }

    /// Lets a queue begin afresh, in which nothing runs.
    pub(crate) fn clear(&self, index: u32) -> Result<()> {
        self.words.write(u64::from(index) * 8, &[0; 8])
    }

    /// Whether a launch has failed in any queue.
    pub(crate) fn any_failed(&self) -> Result<bool> {
        let mut words = vec![0u64; WORDS as usize];
        self.words.read(0, bytemuck::cast_slice_mut(&mut words))?;
        Ok(words.iter().any(|&word| word != 0))
    }

    /// The ticket of launch number `number` of a queue.
    pub(crate) fn ticket(&self, number: u32, name: &'static str) -> Ticket {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let known = names.iter().position(|&known| known == name);
        let index = known.unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        });
        Ticket { number, name: index as u32 + 1 }
    }

    /// The name in a ticket.
    pub(crate) fn name(&self, ticket: Ticket) -> &'static str {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.get(ticket.name as usize - 1).copied().unwrap_or("an unknown operation")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Native;

    #[test]
    fn a_ticket_survives_as_a_mark() {
        let board = Board::new(&Native::new(Default::default(), 1)).unwrap();
        let (put, get) = (board.ticket(7, "put"), board.ticket(0, "get"));
        assert_eq!(board.ticket(9, "put").name, put.name);
        for ticket in [put, get] {
            assert_eq!(Ticket::of(ticket.mark()), Some(ticket));
            assert_eq!(Ticket::of(ticket.mark() | SEALED), Some(ticket));
        }
        assert_eq!((board.name(put), board.name(get)), ("put", "get"));
        assert_eq!(Ticket::of(0), None);
    }

    #[test]
    fn words_are_told_apart() {
        let board = Board::new(&Native::new(Default::default(), 1)).unwrap();
        let place = board.take(Duration::ZERO).unwrap();
        let ticket = board.ticket(3, "x");
        board.words.write(u64::from(place.index) * 8, &ticket.mark().to_ne_bytes()).unwrap();
        assert!(board.any_failed().unwrap());
        assert_eq!(board.failed(place.index).unwrap(), Some(ticket));
        assert_eq!(board.failed(OWN).unwrap(), None);
        board.clear(place.index).unwrap();
        assert!(!board.any_failed().unwrap());
    }
}
