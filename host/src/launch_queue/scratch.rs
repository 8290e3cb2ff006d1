//! Symmetric memory of the runtime for host operations: words for their results, and staging buffers for the host's
//! slices.
#![allow(unsafe_code, reason = "makes handles of the runtime's symmetric memory from offsets")]

use std::sync::Arc;
use std::time::Duration;

use bytemuck::Pod;
use rushmem_device::{Sym, SymSlice};

use super::pool::{IndexPool, PooledIndex};
use crate::{Error, Result};

/// Number of result words. It limits how many host operations with a result can run concurrently.
const RESULTS: u32 = 256;
/// Bytes per result word. Each word has a cache line to itself.
const RESULT_BYTES: u64 = 64;
const STAGING_BUFFERS: u32 = 4;
const STAGING_BYTES: u64 = 64 << 10;

/// An empty symmetric object, passed to kernels as a missing argument.
// SAFETY: nothing is read or written through a slice without elements.
pub(crate) const NO_BYTES: SymSlice<u8> = unsafe { SymSlice::from_raw(0, 0) };

/// The part of the symmetric heap that the runtime uses for host operations.
pub(crate) struct HostScratch {
    /// Offset of the scratch memory in the heap.
    at: u64,
    results: Arc<IndexPool>,
    buffers: Arc<IndexPool>,
}

/// A borrowed word for the result of a host operation. Returned to the pool on drop.
pub(crate) struct ResultWord<'a> {
    scratch: &'a HostScratch,
    index: PooledIndex,
}

/// A borrowed staging buffer. Returned to the pool on drop.
pub(crate) struct StagingBuffer<'a> {
    scratch: &'a HostScratch,
    index: PooledIndex,
}

impl HostScratch {
    /// Size of the scratch memory in every PE's heap, in bytes.
    pub(crate) const BYTES: u64 = RESULTS as u64 * RESULT_BYTES + STAGING_BUFFERS as u64 * STAGING_BYTES;

    pub(crate) fn new(at: u64) -> Self {
        Self { at, results: IndexPool::new(0, RESULTS), buffers: IndexPool::new(0, STAGING_BUFFERS) }
    }

    /// Borrows a result word. If none is free, waits for at most `within`.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if none becomes free in time.
    pub(crate) fn result_word(&self, within: Duration) -> Result<ResultWord<'_>> {
        let index = self.results.take(within).ok_or_else(|| full("results", RESULTS))?;
        Ok(ResultWord { scratch: self, index })
    }

    /// Borrows a staging buffer. If none is free, waits for at most `within`.
    ///
    /// # Errors
    /// - [`Error::Unavailable`] if none becomes free in time.
    pub(crate) fn staging_buffer(&self, within: Duration) -> Result<StagingBuffer<'_>> {
        let index = self.buffers.take(within).ok_or_else(|| full("transfers", STAGING_BUFFERS))?;
        Ok(StagingBuffer { scratch: self, index })
    }
}

fn full(what: &str, most: u32) -> Error {
    Error::Unavailable {
        what: format!("room for more than {most} {what} of the host"),
        why: "all are in use; call from fewer threads at once".into(),
    }
}

impl ResultWord<'_> {
    /// Returns the word as a symmetric object of type `T`, which has at most 8 bytes.
    pub(crate) fn word<T: Pod>(&self) -> Sym<T> {
        const { assert!(size_of::<T>() <= 8) };
        // SAFETY: a cache line of the runtime's scratch, which nothing else uses while the index is lent.
        unsafe { Sym::from_raw(self.scratch.at + u64::from(self.index.index) * RESULT_BYTES) }
    }
}

impl StagingBuffer<'_> {
    /// Returns the number of elements of type `T` that fit into a staging buffer.
    pub(crate) const fn room<T: Pod>() -> usize {
        match size_of::<T>() {
            0 => usize::MAX,
            size => STAGING_BYTES as usize / size,
        }
    }

    /// Returns the first `len` elements of the buffer as a symmetric object.
    pub(crate) fn slice<T: Pod>(&self, len: usize) -> SymSlice<T> {
        assert!(len <= Self::room::<T>(), "{len} elements in a staging buffer of {STAGING_BYTES} bytes");
        let buffers = self.scratch.at + u64::from(RESULTS) * RESULT_BYTES;
        // SAFETY: a part of the runtime's scratch, which nothing else uses while the index is lent.
        unsafe { SymSlice::from_raw(buffers + u64::from(self.index.index) * STAGING_BYTES, len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lent_parts_do_not_overlap() {
        let scratch = HostScratch::new(4096);
        let results: Vec<_> = (0..RESULTS).map(|_| scratch.result_word(Duration::ZERO).unwrap()).collect();
        let buffers: Vec<_> =
            (0..STAGING_BUFFERS).map(|_| scratch.staging_buffer(Duration::ZERO).unwrap()).collect();
        assert!(
            scratch.result_word(Duration::ZERO).is_err() && scratch.staging_buffer(Duration::ZERO).is_err()
        );
        let words = results.iter().map(|result| (result.word::<u64>().offset(), 8));
        let data = buffers.iter().map(|buffer| {
            let all = buffer.slice::<u8>(StagingBuffer::room::<u8>());
            (all.offset(), all.bytes())
        });
        let mut ranges: Vec<(u64, u64)> = words.chain(data).collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        let last = ranges.last().unwrap();
        assert!(ranges[0].0 == 4096 && last.0 + last.1 == 4096 + HostScratch::BYTES);
    }
}
