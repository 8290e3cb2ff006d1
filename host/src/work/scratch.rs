//! Symmetric memory of the runtime's own: results of what the host initiates, and data on its way.

use std::sync::Arc;
use std::time::Duration;

use bytemuck::Pod;
use rushmem_device::{Sym, SymSlice};

use super::pool::{Place, Pool};
use crate::{Error, Result};

/// Results that there can be at once.
const RESULTS: u32 = 256;
/// Each has a line of its own.
const RESULT_BYTES: u64 = 64;
/// Pieces of data that can be on their way at once.
const CHUNKS: u32 = 4;
/// Bytes of each.
const CHUNK_BYTES: u64 = 64 << 10;

/// Where results and data lie in the heap, and which of it is in use.
pub(crate) struct Scratch {
    at: u64,
    results: Arc<Pool>,
    chunks: Arc<Pool>,
}

/// A word for a result, while this lives.
pub(crate) struct Answer<'a> {
    scratch: &'a Scratch,
    place: Place,
}

/// Room for data on its way, while this lives.
pub(crate) struct Chunk<'a> {
    scratch: &'a Scratch,
    place: Place,
}

impl Scratch {
    /// Bytes of the heap that it takes on every PE.
    pub(crate) const BYTES: u64 = RESULTS as u64 * RESULT_BYTES + CHUNKS as u64 * CHUNK_BYTES;

    /// At `at` bytes from the base of the heap.
    pub(crate) fn new(at: u64) -> Self {
        Self { at, results: Pool::new(0, RESULTS), chunks: Pool::new(0, CHUNKS) }
    }

    /// A word for a result; waits at most this long for one.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub(crate) fn answer(&self, within: Duration) -> Result<Answer<'_>> {
        let place = self.results.take(within).ok_or_else(|| full("results", RESULTS))?;
        Ok(Answer { scratch: self, place })
    }

    /// Room for data; waits at most this long for some.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub(crate) fn chunk(&self, within: Duration) -> Result<Chunk<'_>> {
        let place = self.chunks.take(within).ok_or_else(|| full("transfers", CHUNKS))?;
        Ok(Chunk { scratch: self, place })
    }
}

fn full(what: &str, most: u32) -> Error {
    Error::Unavailable {
        what: format!("room for more than {most} {what} of the host"),
        why: "all are in use; wait for fewer things from fewer threads at once".into(),
    }
}

impl Answer<'_> {
    /// The word, as a value of at most 8 bytes.
    pub(crate) fn word<T: Pod>(&self) -> Sym<T> {
        const { assert!(size_of::<T>() <= 8) };
        // SAFETY: the runtime's own bytes, a line of the heap that nobody else has while the place is taken.
        unsafe { Sym::from_raw(self.scratch.at + u64::from(self.place.index) * RESULT_BYTES) }
    }
}

impl Chunk<'_> {
    /// Elements of `T` that it has room for.
    pub(crate) const fn room<T: Pod>() -> usize {
        match size_of::<T>() {
            0 => usize::MAX,
            size => CHUNK_BYTES as usize / size,
        }
    }

    /// The first `len` elements.
    pub(crate) fn slice<T: Pod>(&self, len: usize) -> SymSlice<T> {
        assert!(len <= Self::room::<T>(), "{len} elements in a chunk of {CHUNK_BYTES} bytes");
        let chunks = self.scratch.at + u64::from(RESULTS) * RESULT_BYTES;
        // SAFETY: the runtime's own bytes, a part of the heap that nobody else has while the place is taken.
        unsafe { SymSlice::from_raw(chunks + u64::from(self.place.index) * CHUNK_BYTES, len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_use_does_not_overlap() {
        let scratch = Scratch::new(4096);
        let answers: Vec<_> = (0..RESULTS).map(|_| scratch.answer(Duration::ZERO).unwrap()).collect();
        let chunks: Vec<_> = (0..CHUNKS).map(|_| scratch.chunk(Duration::ZERO).unwrap()).collect();
        assert!(scratch.answer(Duration::ZERO).is_err() && scratch.chunk(Duration::ZERO).is_err());
        let words = answers.iter().map(|answer| (answer.word::<u64>().offset(), 8));
        let data = chunks.iter().map(|chunk| {
            let all = chunk.slice::<u8>(Chunk::room::<u8>());
            (all.offset(), all.bytes())
        });
        let mut ranges: Vec<(u64, u64)> = words.chain(data).collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        let last = ranges.last().unwrap();
        assert!(ranges[0].0 == 4096 && last.0 + last.1 == 4096 + Scratch::BYTES);
    }
}
